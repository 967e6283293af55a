"""What a predictor says of its own calibration points, by fits that have not seen them."""

from typing import Any

import torch
from torch import Tensor

from sharpgp.calibration.calibrated import Calibrated
from sharpgp.calibration.scored import ScoredPredictor
from sharpgp.exceptions import InvalidInputError
from sharpgp.models.around import AroundModel
from sharpgp.models.laws import Law
from sharpgp.models.model import Model


class HeldOutView(ScoredPredictor):
    """A predictor at its own calibration points, in their order, with held-out predictions.

    Location and spread at a point come from fits without it (``cv``, ``loo``) or without all
    calibration points (``exact``), ``beta`` from the scores of all of them.  Coverage on average
    is therefore nominal up to one rank; widths, errors and coverage in parts of the data are what
    new points will have.

    Parameters
    ----------
    calibrated : ScoredPredictor

    Examples
    --------
    >>> from sharpgp import LeaveOneOut
    >>> from sharpgp.gp.training import train
    >>> X = torch.linspace(0, 6, 60, dtype=torch.float64)[:, None]
    >>> y = X[:, 0].sin() + 0.1 * torch.cos(37 * X[:, 0])
    >>> view = HeldOutView(LeaveOneOut().fit(train(X, y)[0]))
    >>> round(view.calibration_report(view.X_cal, view.y_cal)["coverage_95"], 2)
    0.97
    """

    def __init__(self, calibrated: Calibrated) -> None:
        if not isinstance(calibrated, ScoredPredictor):
            raise InvalidInputError(
                "X, y: expected test data, found none; without them, reports need scores of "
                "points that the model has not seen, as with calibration='cv' or 'exact'"
            )
        vars(self).update(vars(calibrated))
        self.model = _HeldOutModel(calibrated.model, calibrated.held_out())

    def _features(self, X: Any) -> Tensor:
        """Numbers of the calibration points, which stand for them."""
        if len(X) != len(self.y_cal):
            raise InvalidInputError(
                f"X: expected all {len(self.y_cal)} calibration points, found {len(X)}"
            )
        return torch.arange(len(X), dtype=torch.float64, device=self.model.device)[:, None]

    _near_features = _features


class _HeldOutModel(AroundModel):
    """A model that knows the points by their numbers [n, 1]."""

    def __init__(self, model: Model, law: Law) -> None:
        self.model, self.scores, self._law = model, model.scores, law

    def law(self, X: Tensor) -> Law:
        """See :meth:`Model.law`."""
        return self._law.at(X[:, 0].long())

    def extended(self, X: Tensor, y: Tensor) -> Model:
        """See :meth:`Model.extended`."""
        return self.model.extended(X, y)

    def updated(self, X: Tensor, y: Tensor) -> Model:
        """See :meth:`Model.updated`."""
        return self.model.updated(X, y)
