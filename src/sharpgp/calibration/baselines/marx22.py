"""Recalibration of plain residuals (RM): no variance, constant width."""

from torch import Tensor

from sharpgp._stored import stored
from sharpgp.calibration.ranked import RankedPredictor
from sharpgp.calibration.recalibrator import Recalibrator, register
from sharpgp.gp.posterior import Posterior


@stored("ConstantWidthPredictor")
class ConstantWidthPredictor(RankedPredictor):
    """``Q(delta, x) = mu(x) + beta(delta)``: the spread is 1 everywhere."""

    def spread(self, theta: Tensor, X: Tensor) -> Tensor:
        """Ones [K, T]."""
        return theta.new_ones(theta.shape[0], X.shape[0])


@register("marx22")
class Marx22(Recalibrator):
    r"""``Q(delta, x) = mu(x) + q_lin(delta, r)``: quantiles of the residuals themselves.

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

    def _fit(self, posterior: Posterior, X: Tensor, y: Tensor) -> ConstantWidthPredictor:
        r = y - posterior.mean(X)
        return ConstantWidthPredictor(posterior, X, r, r)
