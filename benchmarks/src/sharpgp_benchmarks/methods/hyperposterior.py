"""The posterior of a GP's hyperparameters: its prior, its data, and its Laplace approximation."""

import math
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from sharpgp.exceptions import InvalidInputError, NumericalError
from sharpgp.gp.dense import add_to_diagonal, log_marginal_likelihood
from sharpgp.gp.exact.posterior import ExactPosterior
from sharpgp.gp.kernel_posterior import KernelPosterior
from sharpgp.gp.kernels.covariance import STATIONARY, Stationary
from sharpgp.gp.optimise import minimise
from sharpgp.gp.posterior import Posterior
from sharpgp.gp.scaling import Affine
from sharpgp.gp.ties import of_each

#: Training points of a sparse GP that its hyperposterior is computed from, at most: a gradient
#: costs ``N^3``.
MOST_OBSERVED = 1000
# Whitened steps of the second differences: far above the gradient's rounding, far below 1.
_STEP = 1e-3
_MOST_EVALUATIONS = 200


def prior(n_lengthscales: int) -> tuple[np.ndarray, np.ndarray]:
    """Mean and standard deviation [P] of ``log theta``; inverse lengthscales come first.

    On standardised inputs and target, with ``d`` lengthscales: ``log l_j ~ N(log(d) / 2, 1.5^2)``,
    ``log s^2 ~ N(0, 1.5^2)``, ``log n^2 ~ N(-3, 2^2)``.

    Examples
    --------
    >>> location, scale = prior(1)
    >>> location.tolist(), scale.tolist()
    ([-0.0, 0.0, -3.0], [1.5, 1.5, 2.0])
    """
    location = np.array([-0.5 * math.log(n_lengthscales)] * n_lengthscales + [0.0, -3.0])
    return location, np.array([1.5] * n_lengthscales + [1.5, 2.0])


def standardised(posterior: Posterior, name: str) -> KernelPosterior:
    """The same GP with inputs and target standardised, as the prior assumes.

    Parameters
    ----------
    posterior : Posterior
        A GP of this package with a stationary kernel; anything else is refused.
    name : str
        Name of the method, for messages.
    """
    if not isinstance(posterior, KernelPosterior):
        raise InvalidInputError(
            f"{name}: expected a GP with its training data and its own mean, found "
            f"{type(posterior).__name__}; choose another calibration"
        )
    if not isinstance(posterior.covariance, Stationary):
        raise InvalidInputError(
            f"{name}: expected one of the kernels {', '.join(STATIONARY)}, found "
            f"{type(posterior.covariance).__name__}; give the kernel by name or choose another "
            "calibration"
        )
    X, y = posterior.X_train, posterior.y_train
    ties = posterior.covariance.ties
    x_units, y_units = Affine.standardising(X, ties), Affine.standardising(y)
    stretch = of_each(x_units.scale / posterior.x_units.scale, ties, "amax")
    square = (posterior.y_units.scale / y_units.scale).square().expand(2)
    theta_R = posterior.theta_R * torch.cat([stretch, square])
    return posterior.in_units(theta_R, x_units, y_units)


def observed(gp: KernelPosterior, seed: int) -> ExactPosterior:
    """The exact GP whose hyperposterior stands for that of ``gp``.

    That of all points for an exact GP, and of at most :data:`MOST_OBSERVED` random ones for any
    other, whose predictions still use all of them.
    """
    rows = torch.arange(gp.n_train, device=gp.device)
    if not gp.n_dense:
        draw = torch.randperm(gp.n_train, generator=torch.Generator().manual_seed(seed))
        rows = draw[:MOST_OBSERVED].sort().values.to(gp.device)
    return ExactPosterior(
        gp.X_train[rows],
        gp.y_train[rows],
        gp.covariance,
        gp.theta_R,
        x_units=gp.x_units,
        y_units=gp.y_units,
    )


@dataclass(frozen=True)
class Laplace:
    """Gaussian approximation of ``log theta``: mode [P] and covariance [P, P]."""

    mode: Tensor
    covariance: Tensor

    @property
    def scale(self) -> Tensor:
        """Standard deviations [P] of ``log theta``."""
        return self.covariance.diagonal().sqrt()


def laplace(gp: ExactPosterior) -> Laplace:
    r"""Laplace approximation of the posterior of ``log theta``.

    The mode maximises ``log p(y | theta) + log p(log theta)``, found by L-BFGS from ``theta_R``;
    the covariance is the inverse of the negative Hessian there, from central differences of the
    hand-written gradient: ``2 P`` factorisations.  In directions in which the Hessian is flatter
    than the prior (a mode on a ridge), the prior's variance is used.

    Parameters
    ----------
    gp : ExactPosterior
        In standardised units, with a stationary kernel.

    References
    ----------
    Rasmussen and Williams, *Gaussian Processes for Machine Learning*, 2006, section 5.2.

    Examples
    --------
    >>> from sharpgp.gp.training import train
    >>> X = torch.linspace(0, 6, 30, dtype=torch.float64)[:, None]
    >>> posterior, _ = train(X, X[:, 0].sin() + 0.1 * torch.cos(37 * X[:, 0]))
    >>> approximation = laplace(standardised(posterior, "example"))
    >>> approximation.mode.shape, approximation.covariance.shape
    (torch.Size([3]), torch.Size([3, 3]))
    """
    location, scale = prior(gp.n_inverse)

    def potential(white: np.ndarray) -> tuple[float, np.ndarray]:
        """Negative log posterior of whitened ``log theta``, and its gradient."""
        leaf = torch.tensor(location + scale * white, dtype=torch.float64, device=gp.device)
        leaf.requires_grad_()
        theta = leaf.exp().unsqueeze(0)
        Ky = add_to_diagonal(gp.covariance.matrix(theta, gp.X_standardised), theta[:, -1])
        value = -log_marginal_likelihood(Ky, gp.y_standardised.unsqueeze(0))[0]
        (gradient,) = torch.autograd.grad(value, leaf)
        slope = gradient.cpu().numpy() * scale + white
        return value.item() + 0.5 * float(white @ white), slope

    start = np.clip((np.log(gp.theta_R.cpu().numpy()) - location) / scale, -2.0, 2.0)
    found = minimise(potential, start, most=_MOST_EVALUATIONS)
    if found.failed:
        raise NumericalError(
            "expected a finite posterior of the hyperparameters, found none around the trained "
            "ones; check the data for duplicate rows"
        )
    steps = _STEP * np.eye(len(start))
    rows = [potential(found.x + h)[1] - potential(found.x - h)[1] for h in steps]
    hessian = np.stack(rows) / (2.0 * _STEP)
    curvature, axes = np.linalg.eigh(0.5 * (hessian + hessian.T))
    white = (axes / np.maximum(curvature, 1.0)) @ axes.T
    covariance = scale[:, None] * white * scale
    mode = location + scale * found.x
    return Laplace(torch.from_numpy(mode).to(gp.device), torch.from_numpy(covariance).to(gp.device))
