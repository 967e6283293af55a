"""Recalibration of plain residuals (RM): no variance, constant width."""

from torch import Tensor

from sharpgp.calibration.predictors.scored import ScoredPredictor
from sharpgp.calibration.recalibrator import PosteriorMethod, register
from sharpgp.gp.posterior import Posterior
from sharpgp.models.gaussian.plain_gp import ConstantSpread
from sharpgp.rows import Rows


@register("marx22")
class Marx22(PosteriorMethod):
    r"""The GP's mean with quantiles of held-out residuals: equally wide everywhere.

    ``Q(delta, x) = mu(x) + q_lin(delta, r)``, by linear interpolation of the residuals ``r``.

    References
    ----------
    C. Marx, S. Zhao, W. Neiswanger and S. Ermon, "Modular Conformal Calibration", ICML 2022.

    Examples
    --------
    >>> import torch
    >>> from sharpgp.gp.training import train
    >>> X = torch.linspace(0, 6, 60, dtype=torch.float64)[:, None]
    >>> y = X[:, 0].sin() + 0.1 * torch.cos(37 * X[:, 0])
    >>> posterior, _ = train(X[::2], y[::2])
    >>> ends = Marx22().fit(posterior, X[1::2], y[1::2]).predict_interval(X, coverage=0.9)
    >>> width = ends[:, 1] - ends[:, 0]
    >>> bool((width - width[0]).abs().max() < 1e-12)
    True
    """

    knows_inputs = True

    def _fit(self, posterior: Posterior, X: Rows, y: Tensor) -> ScoredPredictor:
        return ScoredPredictor.from_model(ConstantSpread(posterior), X, y)
