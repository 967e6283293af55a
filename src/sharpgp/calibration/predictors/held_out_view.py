"""Predictions for a predictor's own calibration points, by fits that have not seen them."""

from typing import Any

import numpy as np
import torch
from torch import Tensor

from sharpgp._validation import as_numpy
from sharpgp.calibration.predictors.base import Calibrated
from sharpgp.calibration.predictors.by_class import ClassPredictor
from sharpgp.calibration.predictors.by_score import ScoredPredictor
from sharpgp.exceptions import InvalidInputError
from sharpgp.models.laws import Law, joined
from sharpgp.models.model import Model
from sharpgp.models.wrapper import WrappedModel
from sharpgp.rows import Inputs, Rows


class HeldOutView(ClassPredictor):
    """A predictor at its own calibration points, with held-out predictions.

    The law at a point comes from fits without it (``cv``, ``loo``) or without all calibration
    points (``exact``).  ``beta`` comes from the scores of all of them, or of its class.  Coverage
    on average is therefore nominal up to one rank; widths, errors and coverage in parts of the data
    are what new points will have.  Points keep their order, or are sorted by class.

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
        if isinstance(calibrated, ScoredPredictor):
            parts, once = [calibrated], [torch.ones_like(calibrated.y_cal).bool()]
        elif isinstance(calibrated, ClassPredictor):
            parts, once = calibrated.parts, calibrated.once()
        else:
            raise InvalidInputError(
                "X, y: expected test data, found none; without them, reports need scores of "
                "points that the model has not seen, as with calibration='cv' or 'exact'"
            )
        rows = list(zip(parts, once, strict=True))
        self.rows_cal = Rows.join(*(part.rows_cal[own] for part, own in rows))
        self.X_cal = self.rows_cal.X
        self.y_cal = torch.cat([part.y_cal[own] for part, own in rows])
        law = joined([part.held_out().take(own.nonzero()[:, 0]) for part, own in rows])
        model = _HeldOutModel(calibrated.model, law)
        self.parts = [part._with(model=model) for part in parts]
        self.columns, self.classes = (), self.X_cal.new_empty(0, 0)
        self.n_cal, self.counted = calibrated.n_cal, calibrated.counted
        of = [own.new_full((int(own.sum()),), k, dtype=torch.long) for k, own in enumerate(once)]
        self._class = torch.cat(of)
        if calibrated.weights is not None:
            own_weights = [part.weights[own] for part, own in rows if part.weights is not None]
            self._weights = torch.cat(own_weights) / calibrated.weights.max()
        self.bounds = calibrated.bounds

    def class_of(self, X: Rows) -> Tensor:
        return self._class[X.X[:, 0].long()]

    def _test_weights(self, X: Rows, sample_weight: Any) -> Tensor | None:
        return None if self.weights is None else self._weights[X.X[:, 0].long()]

    def rows(self, X: Any) -> Rows:
        """Numbers of the calibration points, in place of their features."""
        if len(X) != len(self.y_cal):
            raise InvalidInputError(
                f"X: expected all {len(self.y_cal)} calibration points, found {len(X)}"
            )
        numbers = torch.arange(len(X), dtype=torch.float64, device=self.model.device)
        return Rows(numbers[:, None])

    _near_features = rows

    def _weights_of_report(self, rows: Rows) -> np.ndarray | None:
        """Rows count as the user's weights say."""
        return None if self.weights is None else as_numpy(self._test_weights(rows, None))

    def _columns_of(self, X: Rows) -> Tensor:
        return self.X_cal


class _HeldOutModel(WrappedModel):
    """A model that knows the points by their numbers [n, 1]."""

    def __init__(self, model: Model, law: Law) -> None:
        self.model, self.scores, self._law = model, model.scores, law
        self.rounding = model.rounding

    def law(self, rows: Inputs) -> Law:
        return self._law.take(Rows.of(rows).X[:, 0].long())

    def extended(self, rows: Inputs, y: Tensor) -> Model:
        return self.model.extended(rows, y)

    def updated(self, rows: Inputs, y: Tensor) -> Model:
        return self.model.updated(rows, y)
