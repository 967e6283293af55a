"""Predictors of the form ``mu(x) + beta(delta) sigma(theta(delta), x)``."""

from typing import Self

import torch
from torch import Tensor

from sharpgp._stored import Array, Maybe, agree, stored
from sharpgp.calibration.calibrated import Calibrated
from sharpgp.calibration.curves import Curves
from sharpgp.calibration.levels import whole_rank
from sharpgp.gp.posterior import Posterior


@stored(
    "CurvePredictor",
    posterior=Posterior,
    curves=Curves,
    X_cal=Array("C d"),
    r_cal=Array("C"),
    n_cal=int,
    whole_ranks=bool,
    scored_by=Maybe(Posterior),
)
class CurvePredictor(Calibrated):
    """``Q(delta, x) = mu(x) + beta(delta) sigma(theta(delta), x)`` along calibrated curves.

    Parameters
    ----------
    posterior : Posterior
    curves : Curves
    X_cal, r_cal : Tensor [C, d], Tensor [C]
        Calibration inputs and residuals, from which symmetric bands take their scores.
    whole_ranks : bool
        Whether centred intervals move outward to whole ranks, as conformal prediction does, or
        take the interpolated quantiles, as the paper does.

    Attributes
    ----------
    scored_by : Posterior or None
        The posterior that the calibration points were held out from, once ``posterior`` has seen
        more than that.
    """

    scored_by: Posterior | None = None

    def __init__(
        self,
        posterior: Posterior,
        curves: Curves,
        X_cal: Tensor,
        r_cal: Tensor,
        *,
        whole_ranks: bool,
    ) -> None:
        self.posterior = posterior
        self.curves = curves
        self.X_cal = X_cal
        self.r_cal = r_cal
        self.n_cal: int = len(r_cal)
        self.whole_ranks = whole_ranks

    def _restored(self) -> None:
        agree("number of calibration points", self.n_cal, len(self.r_cal))
        agree("features", self.X_cal.shape[1], self.posterior.n_features)
        agree("length of theta", self.curves.theta.shape[1], len(self.posterior.theta_R))

    def spread(self, theta: Tensor, X: Tensor) -> Tensor:
        """``sigma`` [K, T] under ``theta`` [K, P], each distinct ``theta`` computed once."""
        distinct, position = torch.unique(theta, dim=0, return_inverse=True)
        return self.posterior.sigma(distinct, X)[position]

    def beta_at(self, delta: Tensor) -> Tensor:
        """``beta`` [K] at levels ``delta`` [K], nondecreasing."""
        return self.curves.beta_at(delta)

    def quantiles(self, X: Tensor, delta: Tensor) -> Tensor:
        """See :meth:`Calibrated.quantiles`; crossings are rearranged outward from the mean."""
        beta = self.beta_at(delta).unsqueeze(-1)
        offset = beta * self.spread(self.curves.theta_at(delta), X)
        below = int((beta < 0).sum())
        lower = offset[:below].flip(0).cummin(0).values.flip(0)
        upper = offset[below:].cummax(0).values
        return self.posterior.mean(X) + torch.cat([lower, upper])

    def calibration_scores(self, theta: Tensor) -> Tensor:
        """z-scores [C] of the calibration points under ``theta`` [1, P]."""
        scored_by = self.scored_by or self.posterior
        return self.r_cal / scored_by.sigma(theta, self.X_cal)[0]

    def _on(self, posterior: Posterior) -> Self:
        other = super()._on(posterior)
        other.scored_by = self.scored_by or self.posterior
        return other

    def labelled_data(self) -> tuple[Tensor, Tensor]:
        """Training points, then calibration points."""
        X, y = self.posterior.X_train, self.posterior.y_train
        y_cal = self.r_cal + self.posterior.mean(self.X_cal)
        return torch.cat([X, self.X_cal]), torch.cat([y, y_cal])

    def centred_levels(self, coverage: float) -> tuple[float, float]:
        """Levels of the two ends of the centred interval, at whole ranks where so chosen."""
        lower, upper = super().centred_levels(coverage)
        if not self.whole_ranks:
            return lower, upper
        C = self.n_cal
        low, high = whole_rank(lower, C, up=False), whole_rank(upper, C, up=True)
        # Beyond the first or last score there is no rank to move to; the tail is modelled.
        return (low / (C + 1) if low >= 1 else lower), (high / (C + 1) if high <= C else upper)

    def band(self, X: Tensor, coverage: float) -> tuple[Tensor, Tensor]:
        """See :meth:`Calibrated.band`: the ``ceil(coverage (C+1))``-th absolute z-score."""
        upper_level = torch.tensor([(1.0 + coverage) / 2.0], dtype=torch.float64)
        theta = self.curves.theta_at(upper_level.to(self.posterior.device))
        scores = self.calibration_scores(theta).abs().sort().values
        radius = scores[whole_rank(coverage, self.n_cal, up=True) - 1] * (1.0 + 1e-10)
        mean, half = self.posterior.mean(X), radius * self.spread(theta, X)[0]
        return mean - half, mean + half
