"""Hyperparameters, and inducing inputs, that maximise Titsias' bound of the likelihood."""

from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from torch import Tensor

from sharpgp.exceptions import NumericalError
from sharpgp.gp.dense import cholesky
from sharpgp.gp.kernels.covariance import NOISE
from sharpgp.gp.optimise import minimise, with_gradient
from sharpgp.gp.posterior import TrainingResult
from sharpgp.gp.priors import LengthscalePrior
from sharpgp.gp.sparse.elbo import variational_bound
from sharpgp.gp.sparse.whitening import Data, inducing_covariance, solve
from sharpgp.gp.training import NOISE_FLOOR, result_of

# Number of rows that estimate the unexplained variance of all.
_MOST_ASKED = 1000


def maximise_bound(
    data: Data,
    theta: Tensor,
    Z: Tensor,
    *,
    most: int,
    number: int | None = None,
    prior: LengthscalePrior | None = None,
) -> tuple[Tensor, Tensor, TrainingResult]:
    """Bounded L-BFGS on ``log theta`` and ``Z`` together, from a given point."""
    p, shape = len(theta), Z.shape
    best, result = _maximised(
        data,
        lambda v: (v[:p], v[p:].reshape(shape)),
        np.r_[theta.log().cpu().numpy(), Z.cpu().numpy().ravel()],
        search_box(p, shape, data.X.amin(0) - 1.0, data.X.amax(0) + 1.0),
        prior,
        number,
        most=most,
        tolerance=1e-6,
        maxiter=most,
        gtol=1e-5,
        maxcor=20,
    )
    return best[:p].exp(), best[p:].reshape(shape), result


def _maximised(
    data: Data,
    parts: Callable[[Tensor], tuple[Tensor, Tensor]],
    start: np.ndarray,
    box: tuple[np.ndarray, np.ndarray],
    prior: LengthscalePrior | None,
    number: int | None,
    **stopping: Any,
) -> tuple[Tensor, TrainingResult]:
    """The vector with the greatest bound; its ``parts`` are ``log theta`` and ``Z``."""
    n, penalty = len(data.y), data.covariance.penalty(prior, data.X)

    def objective(v: Tensor) -> Tensor:
        log_theta, Z = parts(v)
        bound = variational_bound(data, log_theta.exp().unsqueeze(0), Z)
        return (penalty(log_theta) - bound[0]) / n

    evaluate = with_gradient(objective, "the bound of the marginal likelihood", data.X)
    found = minimise(evaluate, start, *box, **stopping)
    if found.failed:
        raise NumericalError(f"training of the sparse GP failed: {found.failures[-1]}")
    best = torch.from_numpy(found.x).to(data.y)
    return best, result_of(found, [found], number, prior, float(penalty(parts(best)[0])) / n)


def search_box(
    p: int, shape: torch.Size, low: Tensor, high: Tensor
) -> tuple[np.ndarray, np.ndarray]:
    """Bounds of ``log theta`` [P] and of inducing inputs [M, d], the latter from their own [d]."""
    log_lower = np.full(p, np.log(1e-4))
    log_lower[NOISE] = np.log(NOISE_FLOOR)
    lower = np.r_[log_lower, low.expand(shape).cpu().numpy().ravel()]
    upper = np.r_[np.full(p, np.log(1e4)), high.expand(shape).cpu().numpy().ravel()]
    return lower, upper


def unexplained(data: Data, theta: Tensor, Z: Tensor) -> Tensor:
    """Mean of ``k_ii - q_ii`` over some rows: prior variance that ``Z`` leaves unexplained.

    Examples
    --------
    >>> from sharpgp.gp.kernels.by_name import make_covariance
    >>> X = torch.linspace(0, 1, 5, dtype=torch.float64)[:, None]
    >>> data = Data(make_covariance("rbf", 1), X, X[:, 0])
    >>> theta = torch.tensor([3.0, 1.0, 0.1], dtype=torch.float64)
    >>> few, all_of_them = (float(unexplained(data, theta, Z)) for Z in (X[:1], X))
    >>> few > 0.1, all_of_them < 1e-9
    (True, True)
    """
    S, levels = data.X[:_MOST_ASKED], theta.unsqueeze(0)
    L = cholesky(inducing_covariance(data.covariance, levels, Z))[0]
    V = solve(L, data.covariance.matrix(levels, Z, S))
    return (data.covariance.diag(levels, S) - V.square().sum(-2)).mean().clamp_min(0.0)
