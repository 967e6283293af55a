"""What the paper's method gives: ``mu(x) + beta(delta) sigma(theta(delta), x)``."""

from typing import Any

import torch
from torch import Tensor

from sharpgp._ranks import whole_rank
from sharpgp._stored import Array, Maybe, Several, agree, stored
from sharpgp._tail import Tail
from sharpgp.calibration.held_out import HeldOutPredictor
from sharpgp.calibration.methods.sharp.curves import Curves
from sharpgp.calibration.methods.sharp.path import LevelResult
from sharpgp.calibration.recalibrator import Recalibrator
from sharpgp.calibration.tails import outer_ranks, pooled_tail
from sharpgp.gp.posterior import Posterior


@stored(
    "SharpPredictor",
    posterior=Posterior,
    curves=Curves,
    X_cal=Array("C d"),
    y_cal=Array("C"),
    n_cal=int,
    scored_by=Maybe(Posterior),
    results=Several(LevelResult),
    evaluations=int,
    method=Recalibrator,
    theta_searched=Array("K P", positive=True),
)
class SharpPredictor(HeldOutPredictor):
    """``Q(delta, x) = mu(x) + beta(delta) sigma(theta(delta), x)`` along calibrated curves.

    The only predictor whose spread depends on the level.

    Parameters
    ----------
    posterior : Posterior
    curves : Curves
    X_cal, y_cal : Tensor [C, d], Tensor [C]
        Calibration points, from which symmetric bands take their scores.
    results : list of LevelResult
        How each trained level was found, increasing in ``delta``.
    evaluations : int
        Evaluations of the objective with its gradient, in all.
    method : Sharp
        The settings.
    theta_searched : Tensor [K, P]
        ``theta`` of each trained level as the search left it, before ``|beta|`` was put in order.

    Attributes
    ----------
    scored_by : Posterior or None
        The posterior that the calibration points were held out from, once ``posterior`` has seen
        more than that.
    """

    n_cal: int
    scored_by: Posterior | None = None

    def __init__(
        self,
        posterior: Posterior,
        curves: Curves,
        X_cal: Tensor,
        y_cal: Tensor,
        *,
        results: list[LevelResult],
        evaluations: int,
        method: Any,
        theta_searched: Tensor,
    ) -> None:
        self.posterior = posterior
        self.curves = curves
        self.X_cal = X_cal
        self.y_cal = y_cal
        self.n_cal = len(y_cal)
        self.results = results
        self.evaluations = evaluations
        self.method = method
        self.theta_searched = theta_searched

    def _restored(self) -> None:
        agree("number of calibration points", self.n_cal, len(self.y_cal))
        agree("features", self.X_cal.shape[1], self.posterior.n_features)
        agree("length of theta", self.curves.theta.shape[1], len(self.posterior.theta_R))

    def spread(self, theta: Tensor, X: Tensor) -> Tensor:
        """``sigma`` [K, T] under ``theta`` [K, P], each distinct ``theta`` computed once."""
        distinct, position = torch.unique(theta, dim=0, return_inverse=True)
        return self.posterior.sigma(distinct, X)[position]

    def inside(self, X: Tensor, delta: Tensor) -> Tensor:
        """See :meth:`LevelPredictor.inside`; crossings are rearranged outward from the mean."""
        beta = self.curves.beta_at(delta).unsqueeze(-1)
        offset = beta * self.spread(self.curves.theta_at(delta), X)
        below = int((beta < 0).sum())
        lower = offset[:below].flip(0).cummin(0).values.flip(0)
        upper = offset[below:].cummax(0).values
        return self.posterior.mean(X) + torch.cat([lower, upper])

    def tail(self, X: Tensor) -> Tail:
        """See :meth:`LevelPredictor.tail`, from scores under the two outermost ``theta``."""
        theta = self.curves.theta[[0, -1]]
        k = outer_ranks(self.n_cal)
        z = self.calibration_scores(theta).sort(dim=-1).values
        spread = self.spread(theta, X)
        outer = torch.cat([z[0, :k].unsqueeze(-1) * spread[0], z[1, -k:].unsqueeze(-1) * spread[1]])
        return pooled_tail(outer.mT, self.n_cal)

    def calibration_scores(self, theta: Tensor) -> Tensor:
        """z-scores [K, C] of the calibration points under ``theta`` [K, P]."""
        scored_by = self.scored_by or self.posterior
        return (self.y_cal - scored_by.mean(self.X_cal)) / scored_by.sigma(theta, self.X_cal)

    def band(self, X: Tensor, coverage: float) -> tuple[Tensor, Tensor]:
        """See :meth:`LevelPredictor.band`: the ``ceil(coverage (C+1))``-th absolute z-score."""
        upper_level = torch.tensor([(1.0 + coverage) / 2.0], dtype=torch.float64, device=X.device)
        theta = self.curves.theta_at(upper_level)
        scores = self.calibration_scores(theta)[0].abs().sort().values
        radius = scores[whole_rank(coverage, self.n_cal, up=True) - 1]
        mean, half = self.posterior.mean(X), radius * self.spread(theta, X)[0]
        return mean - half, mean + half

    def calibrated_on(self, X: Tensor, y: Tensor) -> "SharpPredictor":
        """Every level keeps the ``theta`` that was searched for it and gets a new ``beta``."""
        other: SharpPredictor = self.method.rescored(self, X, y)
        return other

    def _conditioned(self, X: Tensor, y: Tensor) -> "SharpPredictor":
        other = super()._conditioned(X, y)
        other.scored_by = self.scored_by or self.posterior
        return other
