"""The scale model: where the noise is large, learned from leave-one-out z-scores."""

import copy

import torch
from torch import Tensor

from sharpgp._stored import Array, agree, stored
from sharpgp.gp.choice import condition
from sharpgp.gp.posterior import Posterior
from sharpgp.gp.training import train

# E log(chi^2_1): what log z^2 is off by on average when z is standard normal.
_LOG_CHI_SQUARE = -1.2704
# Added to z^2 before the logarithm, which would make an outlier of a point hit by chance.
_SOFTENING = 0.02
#: Points that the scale model's hyperparameters are trained on; it is conditioned on all.
MOST_TRAINED = 800


def log_squares(z: Tensor) -> Tensor:
    """``log z^2``, softened near 0 and with mean 0 for standard normal ``z``."""
    return (z.square() + _SOFTENING).log() - _LOG_CHI_SQUARE


@stored("ScaleModel", gp=Posterior, _at_training=Array("N"))
class ScaleModel:
    r"""A GP on the log of squared z-scores: ``log s^2(x) = g(x)``.

    A stationary kernel's ``sigma`` only knows how far the data are; ``exp(g(x)/2)`` multiplies it
    where the noise itself is larger or smaller.  ``g`` is a GP regression of
    ``log(z_i^2 + 0.02)``, whose noise is that of a log chi-square, trained by marginal likelihood.

    Parameters
    ----------
    X : Tensor [N, d]
    z : Tensor [N]
        Leave-one-out z-scores.

    Examples
    --------
    >>> X = torch.linspace(-1, 1, 80, dtype=torch.float64)[:, None]
    >>> noise = torch.randn(80, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    >>> model = ScaleModel(X, noise * (0.1 + (X[:, 0] > 0)))
    >>> g = model.log_square(X)
    >>> bool(g[-10:].mean() > g[:10].mean())
    True
    """

    def __init__(self, X: Tensor, z: Tensor) -> None:
        target = log_squares(z)
        stride = -(-len(z) // MOST_TRAINED)
        trained, _ = train(X[::stride], target[::stride], start=0)
        self.gp = trained if stride == 1 else condition(trained, X, target)
        self._look_back()

    def _look_back(self) -> None:
        with torch.no_grad():
            self._at_training = self.gp.loo(self.gp.theta_R.unsqueeze(0))[0][0]

    def _restored(self) -> None:
        agree("points of the scale model", len(self._at_training), self.gp.n_train)

    def conditioned_on(self, X: Tensor, z: Tensor) -> "ScaleModel":
        """The same model, hyperparameters kept, of other z-scores."""
        other = copy.copy(self)
        other.gp = self.gp.conditioned_on(X, log_squares(z))
        other._look_back()
        return other

    def log_square(self, X: Tensor) -> Tensor:
        """``g(x)`` [T] at new points, within the range of ``g`` at the training points.

        A GP interpolating between noisy targets can overshoot, and an exponential makes of that a
        spread that is off by orders of magnitude.
        """
        at_training = self._at_training
        return self.gp.mean(X).clamp(at_training.min(), at_training.max())

    def log_square_loo(self) -> Tensor:
        """``g(x_i)`` [N] at the training points, each predicted from the others."""
        return self._at_training
