"""Points conditioned on a few points each: batches of small factorisations, and likelihoods."""

import math
from typing import Any

import torch
from torch import Tensor
from torch.utils.checkpoint import checkpoint

from sharpgp.gp.covariance import Covariance
from sharpgp.gp.dense import add_to_diagonal, cholesky, log_marginal_likelihood
from sharpgp.gp.whitening import Data, by_rows


def _solve_by_factor(L: Tensor, B: Tensor) -> Tensor:
    # For batches on a CPU several times as fast as cholesky_solve.
    V = torch.linalg.solve_triangular(L, B, upper=False)
    return torch.linalg.solve_triangular(L.mT, V, upper=True)


class _SymmetricSolve(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, A: Tensor, B: Tensor) -> Tensor:
        L = cholesky(A)[0]
        U = _solve_by_factor(L, B)
        if any(ctx.needs_input_grad):
            ctx.save_for_backward(L, U)
        return U

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor, Tensor]:
        L, U = ctx.saved_tensors
        back = _solve_by_factor(L, grads[0])
        return -back @ U.mT, back


def symmetric_solve(A: Tensor, B: Tensor) -> Tensor:
    r"""``A^-1 B`` for symmetric positive definite ``A`` [..., N, N] and ``B`` [..., N, T].

    With ``G`` the incoming gradient, the derivatives are ``A^-1 G`` for ``B`` and
    ``-A^-1 G (A^-1 B)'`` for ``A``.

    Examples
    --------
    >>> symmetric_solve(4.0 * torch.eye(2), torch.ones(2, 1)).flatten().tolist()
    [0.25, 0.25]
    """
    solution: Tensor = _SymmetricSolve.apply(A, B)
    return solution


def conditional(
    covariance: Covariance, theta: Tensor, X: Tensor, X_near: Tensor, y_near: Tensor
) -> tuple[Tensor, Tensor]:
    r"""Mean and variance of observations, each conditioned on its own set of observations.

    ``k' Ky^-1 y`` and ``k(x, x) + noise - k' Ky^-1 k``, with ``Ky`` and ``k`` those of the given
    points.  Differentiable in ``theta`` and ``X``.

    Parameters
    ----------
    covariance : Covariance
        One that accepts different inputs at each level, such as ``Stationary``.
    theta : Tensor [K, P]
    X : Tensor [n, d]
    X_near : Tensor [n, m, d]
    y_near : Tensor [n, m]
        The points and targets that each point is conditioned on.

    Returns
    -------
    mean, variance : Tensor [K, n]

    Examples
    --------
    >>> from sharpgp.gp.covariance import Stationary
    >>> theta = torch.tensor([[1.0, 1.0, 1.0]], dtype=torch.float64)
    >>> x = torch.zeros(1, 1, dtype=torch.float64)
    >>> mean, variance = conditional(Stationary("rbf", 1), theta, x, x[None], x + 3.0)
    >>> mean.item(), variance.item()
    (1.5, 1.5)
    """
    shape = len(theta), len(X)
    each = theta.repeat_interleave(len(X), 0)
    near = X_near.repeat(len(theta), 1, 1)
    points = X.repeat(len(theta), 1).unsqueeze(-2)
    Ky = add_to_diagonal(covariance.matrix(each, near), each[:, -1])
    k = covariance.matrix(each, near, points)
    weights = symmetric_solve(Ky, k)
    prior = covariance.diag(theta, X) + theta[:, -1:]
    mean = (weights.squeeze(-1) * y_near.repeat(len(theta), 1)).sum(-1).reshape(shape)
    variance = prior - (weights * k).sum((-1, -2)).reshape(shape)
    # Rounding may take a near-noiseless variance below zero; it is never exactly zero.
    return mean, torch.maximum(variance, 1e-12 * prior.detach())


def conditionals(data: Data, theta: Tensor, X: Tensor, near: Tensor) -> tuple[Tensor, Tensor]:
    """:func:`conditional` of ``X`` [T, d], given the data points with indices ``near`` [T, m].

    In blocks of points; with gradients, blocks are recomputed in the backward pass instead of being
    kept.
    """
    gradients = torch.is_grad_enabled() and (theta.requires_grad or X.requires_grad)

    def block(rows: slice) -> tuple[Tensor, Tensor]:
        given = data.covariance, theta, X[rows], data.X[near[rows]], data.y[near[rows]]
        if not gradients:
            return conditional(*given)
        found: tuple[Tensor, Tensor] = checkpoint(conditional, *given, use_reentrant=False)
        return found

    m = near.shape[1]
    blocks = list(by_rows(block, len(X), len(theta) * (m + 1) ** 2, X.device))
    mean, variance = (torch.cat(parts, -1) for parts in zip(*blocks, strict=True))
    return mean, variance


def vecchia_likelihood(
    data: Data, theta: Tensor, first: Tensor, later: Tensor, near: Tensor
) -> Tensor:
    r"""Log density [K] of all targets, each given the nearest of those that precede it.

    ``log p(y_F) + (N - F) mean_i log p(y_i | y_near(i))``, with ``F`` points that come first,
    whose density is exact, and the mean over some of those that come later.

    Parameters
    ----------
    data : Data
    theta : Tensor [K, P]
    first, later : Tensor [F], Tensor [R]
        Indices of points; there may be more later points than these.
    near : Tensor [R, m]
        Indices of the points that each of ``later`` is conditioned on.

    References
    ----------
    A. V. Vecchia, "Estimation and Model Identification for Continuous Spatial Processes", Journal
    of the Royal Statistical Society B 50 (1988).
    """
    K = add_to_diagonal(data.covariance.matrix(theta, data.X[first]), theta[:, -1])
    density = log_marginal_likelihood(K, data.y[first].expand(len(theta), -1))
    if len(later):
        mean, variance = conditionals(data, theta, data.X[later], near)
        square = (data.y[later] - mean).square() / variance
        each = -0.5 * (square + variance.log() + math.log(2.0 * math.pi))
        density = density + (len(data.y) - len(first)) * each.mean(-1)
    return density
