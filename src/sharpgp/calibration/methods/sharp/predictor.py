"""The predictor of the paper's method: ``mu(x) + beta(delta) sigma(theta(delta), x)``."""

from typing import Any, Self

import torch
from torch import Tensor

from sharpgp._ranks import whole_rank
from sharpgp._stored import Array, Maybe, Several, agree, stored
from sharpgp._tail import Tail
from sharpgp.calibration.methods.sharp.curves import Curves
from sharpgp.calibration.methods.sharp.path import LevelResult
from sharpgp.calibration.predictors.by_level import HeldOutPredictor
from sharpgp.calibration.recalibrator import Recalibrator
from sharpgp.calibration.tails import outer_ranks, pooled_tail
from sharpgp.gp.posterior import Posterior
from sharpgp.rows import Rows, rows_of_earlier


@stored(
    "SharpPredictor",
    earlier=rows_of_earlier,
    posterior=Posterior,
    curves=Curves,
    rows_cal=Rows,
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
    rows_cal, y_cal : Rows [C], Tensor [C]
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
        The posterior that has not seen the calibration points, if ``posterior`` has since.
    """

    n_cal: int
    scored_by: Posterior | None = None

    def __init__(
        self,
        posterior: Posterior,
        curves: Curves,
        rows_cal: Rows,
        y_cal: Tensor,
        *,
        results: list[LevelResult],
        evaluations: int,
        method: Any,
        theta_searched: Tensor,
    ) -> None:
        self.posterior, self.curves = posterior, curves
        self.rows_cal, self.y_cal = Rows.of(rows_cal), y_cal
        self.n_cal = len(y_cal)
        self.results = results
        self.evaluations = evaluations
        self.method = method
        self.theta_searched = theta_searched

    def _restored(self) -> None:
        agree("number of calibration points", self.n_cal, len(self.y_cal))
        agree("features", self.rows_cal.n_features, self.posterior.n_features)
        agree("length of theta", self.curves.theta.shape[1], len(self.posterior.theta_R))

    def quantiles_inside(self, X: Rows, delta: Tensor) -> Tensor:
        """Crossings are rearranged outward from the mean."""
        beta = self.curves.beta_at(delta).unsqueeze(-1)
        offset = beta * spread_of(self.posterior, self.curves.theta_at(delta), X)
        below = int((beta < 0).sum())
        lower = offset[:below].flip(0).cummin(0).values.flip(0)
        upper = offset[below:].cummax(0).values
        return self.posterior.mean(X) + torch.cat([lower, upper])

    def tail(self, X: Rows) -> Tail:
        """See :meth:`LevelPredictor.tail`, from scores under the two outermost ``theta``."""
        theta = self.curves.theta[[0, -1]]
        k = outer_ranks(self.n_cal)
        z = self.calibration_scores(theta).sort(dim=-1).values
        spread = spread_of(self.posterior, theta, X)
        outer = torch.cat([z[0, :k].unsqueeze(-1) * spread[0], z[1, -k:].unsqueeze(-1) * spread[1]])
        return pooled_tail(outer.mT, self.n_cal)

    def band(self, X: Rows, coverage: float) -> tuple[Tensor, Tensor]:
        """The ``ceil(coverage (C+1))``-th absolute z-score.

        Under ``theta`` at the upper end of the coverage.
        """
        level = torch.tensor([(1.0 + coverage) / 2.0], dtype=torch.float64, device=X.device)
        theta = self.curves.theta_at(level)
        scores = self.calibration_scores(theta)[0].abs().sort().values
        radius = scores[whole_rank(coverage, self.n_cal, up=True) - 1]
        mean, half = self.posterior.mean(X), radius * self.posterior.sigma(theta, X)[0]
        return mean - half, mean + half

    def calibration_scores(self, theta: Tensor) -> Tensor:
        """z-scores [K, C] of the calibration points under ``theta`` [K, P]."""
        scored_by = self.scored_by or self.posterior
        rows = self.rows_cal
        return (self.y_cal - scored_by.mean(rows)) / scored_by.sigma(theta, rows)

    def calibrated_on(self, X: Rows, y: Tensor) -> "SharpPredictor":
        """Every level keeps the ``theta`` that was searched for it and gets a new ``beta``."""
        other: SharpPredictor = self.method.rescored(self, X, y)
        return other

    def _conditioned(self, X: Rows, y: Tensor) -> Self:
        other = super()._conditioned(X, y)
        other.scored_by = self.scored_by or self.posterior
        return other


def spread_of(posterior: Posterior, theta: Tensor, X: Rows) -> Tensor:
    """``sigma`` [K, T] under ``theta`` [K, P], each distinct ``theta`` computed once."""
    distinct, position = torch.unique(theta, dim=0, return_inverse=True)
    return posterior.sigma(distinct, X)[position]
