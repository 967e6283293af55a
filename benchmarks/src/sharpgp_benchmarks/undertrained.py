"""Base models as the paper's printed widths imply: hardly trained at all."""

import torch
from torch import Tensor
from torch.nn.functional import softplus

from sharpgp.gp.dense import add_to_diagonal, log_marginal_likelihood
from sharpgp.gp.exact.posterior import ExactPosterior
from sharpgp.gp.kernels.covariance import Stationary
from sharpgp.gp.scaling import Affine

#: Lengthscale, signal variance and noise variance to start from, in standardised units.
STARTS = {
    **dict.fromkeys(("yacht", "mpg", "concrete"), (10.0, 12.5, 10.0)),
    "wine": (3.5, 20.0, 1.7),
    "kin8nm": (3.5, 20.0, 2.6),
    **dict.fromkeys(("facebook1", "facebook2"), (10.0, 2.0, 1.0)),
}
OTHER_START = (3.5, 20.0, 3.5)
STEPS, RATE = 20, 0.1


def undertrain(X: Tensor, y: Tensor, dataset: str) -> ExactPosterior:
    r"""Exact GP after 20 plain gradient steps of 0.1 on the mean log likelihood per point.

    The steps are taken on gpytorch's raw parameters, ``value = log(1 + exp(raw))``, from starts
    that reproduce the base-model widths printed in the paper's table.

    Parameters
    ----------
    X : Tensor [N, d]
    y : Tensor [N]
    dataset : str
        Chooses the start.

    Examples
    --------
    >>> X = torch.linspace(0, 6, 40, dtype=torch.float64)[:, None]
    >>> posterior = undertrain(X, X[:, 0].sin(), "boston")
    >>> bool(posterior.theta_R[-1] > 3)  # the noise variance has hardly moved from 3.5
    True
    """
    x_units, y_units = Affine.standardising(X), Affine.standardising(y)
    Z, t = x_units.forward(X), y_units.forward(y)
    lengthscale, signal, noise = STARTS.get(dataset, OTHER_START)
    start = Z.new_tensor([lengthscale] * X.shape[1] + [signal, noise])
    raw = start + torch.log(-torch.expm1(-start))  # the inverse of softplus
    covariance = Stationary("rbf", X.shape[1])
    for _ in range(STEPS):
        raw.requires_grad_()
        theta = _theta(raw).unsqueeze(0)
        Ky = add_to_diagonal(covariance.matrix(theta, Z), theta[:, -1])
        value = log_marginal_likelihood(Ky, t.unsqueeze(0))[0] / len(t)
        (gradient,) = torch.autograd.grad(value, raw)
        raw = (raw + RATE * gradient).detach()
    return ExactPosterior(X, y, covariance, _theta(raw), x_units=x_units, y_units=y_units)


def _theta(raw: Tensor) -> Tensor:
    """Inverse lengthscales, signal and noise variance from raw parameters."""
    values = softplus(raw)
    return torch.cat([1.0 / values[:-2], values[-2:]])
