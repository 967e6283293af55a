"""The uncalibrated base GP (B)."""

from dataclasses import dataclass

import torch
from torch import Tensor

from sharpgp._stored import stored
from sharpgp.calibration.predictors.by_level import LevelPredictor
from sharpgp.calibration.recalibrator import PosteriorMethod, register
from sharpgp.gp.posterior import Posterior
from sharpgp.rows import Rows


@stored("GaussianPredictor")
@dataclass(eq=False, repr=False)
class GaussianPredictor(LevelPredictor):
    """Gaussian quantiles ``mu(x) + Phi^-1(delta) sigma(theta_R, x)``."""

    n_cal = None
    posterior: Posterior

    def quantiles_inside(self, X: Rows, delta: Tensor) -> Tensor:
        sigma = self.posterior.sigma(self.posterior.theta_R.unsqueeze(0), X)
        return self.posterior.mean(X) + torch.special.ndtri(delta).unsqueeze(-1) * sigma

    def band(self, X: Rows, coverage: float) -> tuple[Tensor, Tensor]:
        levels = torch.tensor(self.centred_levels(coverage), dtype=torch.float64, device=X.device)
        lower, upper = self.quantiles_inside(X, levels)
        return lower, upper

    def _updated(
        self, X: Rows, y: Tensor, weights: Tensor | None, units: Tensor | None = None
    ) -> "GaussianPredictor":
        return GaussianPredictor(self.posterior.extended(X, y))

    def table_levels(self) -> Tensor:
        """Levels evenly spaced in z-scores, fine enough for a density good to 1e-3."""
        scores = torch.linspace(-5.0, 5.0, 101, dtype=torch.float64, device=self.posterior.device)
        return torch.special.ndtr(scores)


@register("vanilla")
class Vanilla(PosteriorMethod):
    """No calibration: the Gaussian quantiles of the base GP; calibration data are ignored.

    Examples
    --------
    >>> from sharpgp.gp.training import train
    >>> X = torch.linspace(0, 6, 30, dtype=torch.float64)[:, None]
    >>> posterior, _ = train(X, X[:, 0].sin())
    >>> Vanilla().fit(posterior, None, None).predict_quantiles(X, 0.9).shape
    torch.Size([30])
    """

    needs_calibration = False

    def _fit(self, posterior: Posterior, X: Rows, y: Tensor) -> GaussianPredictor:
        return GaussianPredictor(posterior)
