"""Recalibration of z-scores (RK)."""

from torch import Tensor

from sharpgp.calibration.predictors.scored import ScoredPredictor
from sharpgp.calibration.recalibrator import PosteriorMethod, register
from sharpgp.gp.posterior import Posterior
from sharpgp.models.gaussian.plain_gp import PosteriorModel
from sharpgp.rows import Rows


@register("kuleshov18")
class Kuleshov18(PosteriorMethod):
    r"""The GP's own quantiles, rescaled by held-out z-scores.

    ``Q(delta, x) = mu(x) + q_lin(delta, z) sigma(theta_R, x)``, with quantiles of the scores ``z``
    by linear interpolation.

    References
    ----------
    V. Kuleshov, N. Fenner and S. Ermon, "Accurate Uncertainties for Deep Learning Using
    Calibrated Regression", ICML 2018.

    Examples
    --------
    >>> import torch
    >>> from sharpgp.gp.training import train
    >>> X = torch.linspace(0, 6, 60, dtype=torch.float64)[:, None]
    >>> y = X[:, 0].sin() + 0.1 * torch.cos(37 * X[:, 0])
    >>> posterior, _ = train(X[::2], y[::2])
    >>> calibrated = Kuleshov18().fit(posterior, X[1::2], y[1::2])
    >>> calibrated.predict_interval(X[:3], coverage=0.9).shape
    torch.Size([3, 2])
    """

    knows_inputs = True

    def _fit(self, posterior: Posterior, X: Rows, y: Tensor) -> ScoredPredictor:
        return ScoredPredictor.from_model(PosteriorModel(posterior), X, y)
