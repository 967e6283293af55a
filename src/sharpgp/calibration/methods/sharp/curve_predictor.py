"""What predictors along curves ``theta(delta)`` share: scores of held-out points, and bands."""

from abc import abstractmethod
from typing import Any, Self

import torch
from torch import Tensor

from sharpgp._ranks import whole_rank
from sharpgp._stored import agree
from sharpgp.calibration.methods.sharp.curves import Curves
from sharpgp.calibration.predictors.by_level import HeldOutPredictor
from sharpgp.gp.posterior import Posterior
from sharpgp.rows import Rows


class CurvePredictor(HeldOutPredictor):
    """A predictor whose spread is ``sigma(theta(delta), x)`` along curves.

    Parameters
    ----------
    posterior : Posterior
    rows_cal, y_cal : Rows [C], Tensor [C]
        Calibration points, from which symmetric bands take their scores.
    method : Recalibrator
        The settings.

    Attributes
    ----------
    scored_by : Posterior or None
        The posterior that has not seen the calibration points, if ``posterior`` has since.
    """

    n_cal: int
    scored_by: Posterior | None = None

    def __init__(self, posterior: Posterior, rows_cal: Rows, y_cal: Tensor, method: Any) -> None:
        self.posterior = posterior
        self.rows_cal, self.y_cal = Rows.of(rows_cal), y_cal
        self.n_cal = len(y_cal)
        self.method = method

    def _restored(self) -> None:
        agree("number of calibration points", self.n_cal, len(self.y_cal))
        agree("features", self.rows_cal.n_features, self.posterior.n_features)
        agree("length of theta", self.theta_curves.theta.shape[1], len(self.posterior.theta_R))

    @property
    @abstractmethod
    def theta_curves(self) -> Curves:
        """The curves."""

    def calibration_scores(self, theta: Tensor) -> Tensor:
        """z-scores [K, C] of the calibration points under ``theta`` [K, P]."""
        scored_by = self.scored_by or self.posterior
        rows = self.rows_cal
        return (self.y_cal - scored_by.mean(rows)) / scored_by.sigma(theta, rows)

    def band(self, X: Rows, coverage: float) -> tuple[Tensor, Tensor]:
        """The ``ceil(coverage (C+1))``-th absolute z-score.

        Under ``theta`` at the upper end of the coverage.
        """
        level = torch.tensor([(1.0 + coverage) / 2.0], dtype=torch.float64, device=X.device)
        theta = self.theta_curves.theta_at(level)
        scores = self.calibration_scores(theta)[0].abs().sort().values
        radius = scores[whole_rank(coverage, self.n_cal, up=True) - 1]
        mean, half = self.posterior.mean(X), radius * self.posterior.sigma(theta, X)[0]
        return mean - half, mean + half

    def _conditioned(self, X: Rows, y: Tensor) -> Self:
        other = super()._conditioned(X, y)
        other.scored_by = self.scored_by or self.posterior
        return other


def spread_of(posterior: Posterior, theta: Tensor, X: Rows) -> Tensor:
    """``sigma`` [K, T] under ``theta`` [K, P], each distinct ``theta`` computed once."""
    distinct, position = torch.unique(theta, dim=0, return_inverse=True)
    return posterior.sigma(distinct, X)[position]
