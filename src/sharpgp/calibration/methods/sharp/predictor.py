"""The predictor of the paper's method: ``mu(x) + beta(delta) sigma(theta(delta), x)``."""

from typing import Any

import torch
from torch import Tensor

from sharpgp._stored import Array, Maybe, Several, stored
from sharpgp._tail import Tail
from sharpgp.calibration.methods.sharp.curve_predictor import CurvePredictor, spread_of
from sharpgp.calibration.methods.sharp.curves import Curves
from sharpgp.calibration.methods.sharp.path import LevelResult
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
class SharpPredictor(CurvePredictor):
    """``Q(delta, x) = mu(x) + beta(delta) sigma(theta(delta), x)`` along calibrated curves.

    The only predictor whose spread depends on the level.

    Parameters
    ----------
    posterior : Posterior
    curves : Curves
    rows_cal, y_cal, method
        As in :class:`~sharpgp.calibration.methods.sharp.curve_predictor.CurvePredictor`.
    results : list of LevelResult
        How each trained level was found, increasing in ``delta``.
    evaluations : int
        Evaluations of the objective with its gradient, in all.
    theta_searched : Tensor [K, P]
        ``theta`` of each trained level as the search left it, before ``|beta|`` was put in order.
    """

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
        super().__init__(posterior, rows_cal, y_cal, method)
        self.curves = curves
        self.results = results
        self.evaluations = evaluations
        self.theta_searched = theta_searched

    @property
    def theta_curves(self) -> Curves:
        return self.curves

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

    def calibrated_on(self, X: Rows, y: Tensor) -> "SharpPredictor":
        """Every level keeps the ``theta`` that was searched for it and gets a new ``beta``."""
        other: SharpPredictor = self.method.rescored(self, X, y)
        return other
