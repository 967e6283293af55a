"""Predictors whose ``beta`` is the sorted calibration scores, with one spread for all levels."""

import copy
from typing import Any, Self

import torch
from torch import Tensor

from sharpgp._stored import Array, stored
from sharpgp.calibration.calibrated import Calibrated
from sharpgp.calibration.curves import Curves
from sharpgp.calibration.scores import CurvePredictor
from sharpgp.gp.posterior import Posterior


def ranked_curves(scores: Tensor, theta_R: Tensor) -> Curves:
    """Curves through the sorted scores at the levels ``j/(C+1)``, with ``theta_R`` throughout."""
    C = len(scores)
    delta = torch.arange(1, C + 1, dtype=scores.dtype, device=scores.device) / (C + 1)
    return Curves.through(delta, scores.sort().values, theta_R.expand(C, -1))


@stored("RankedPredictor", scores=Array("C"))
class RankedPredictor(CurvePredictor):
    """``Q(delta, x) = mu(x) + q_lin(delta, z) spread(x)``, with whole ranks for intervals.

    Parameters
    ----------
    posterior : Posterior
    X_cal, r_cal : Tensor [C, d], Tensor [C]
        Calibration inputs and residuals, oldest first.
    scores : Tensor [C]
        Their z-scores.
    """

    def __init__(self, posterior: Posterior, X_cal: Tensor, r_cal: Tensor, scores: Tensor) -> None:
        curves = ranked_curves(scores, posterior.theta_R)
        super().__init__(posterior, curves, X_cal, r_cal, whole_ranks=True)
        self.scores = scores

    def calibration_scores(self, theta: Tensor) -> Tensor:
        """The scores [C], whatever ``theta``: there is one spread for all levels."""
        return self.scores

    def score(self, X: Tensor, y: Tensor) -> tuple[Tensor, Tensor]:
        """Residuals and z-scores [T] of labelled points under this predictor."""
        r = y - self.posterior.mean(X)
        return r, r / self.spread(self.posterior.theta_R.unsqueeze(0), X)[0]

    def _rescored(self, X: Tensor, y: Tensor, keep: int | None) -> Self:
        r, z = self.score(X, y)
        return self.with_scores(
            newest(self.X_cal, X, keep), newest(self.r_cal, r, keep), newest(self.scores, z, keep)
        )

    def with_scores(self, X_cal: Tensor, r_cal: Tensor, scores: Tensor) -> Self:
        """The same mean and spread with ``beta`` from other scores."""
        later = copy.copy(self)
        later.X_cal, later.r_cal, later.scores, later.n_cal = X_cal, r_cal, scores, len(scores)
        later.curves = ranked_curves(scores, self.posterior.theta_R)
        return later

    def weighted(self, sample_weight: Any) -> Calibrated:
        """The same mean and spread with weighted scores, for a covariate shift."""
        from sharpgp.calibration.weighted import WeightedPredictor  # which is built on this class

        return WeightedPredictor.of(self, sample_weight)


def newest(old: Tensor, new: Tensor, keep: int | None) -> Tensor:
    """Old rows and new ones in one table; of these the last ``keep``, if that is given.

    Examples
    --------
    >>> newest(torch.tensor([1, 2, 3]), torch.tensor([4]), 2).tolist()
    [3, 4]
    """
    both = torch.cat([old, new])
    return both if keep is None else both[-keep:]
