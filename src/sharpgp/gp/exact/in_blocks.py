r"""Exact GPs as large as memory allows: one matrix of the data, worked on in place.

The functions of :mod:`sharpgp.gp.dense` take covariance matrices and give gradients as matrices,
batched over levels: a handful of ``N x N`` matrices at a time.  Those below take hyperparameters.
They keep a single ``N x N`` matrix, which is covariance, factor and inverse in turn, and contract
its gradient with that of the kernel in blocks of rows, so that 20,000 points fit in a few GiB.
Gradients are symmetric: only the blocks on and right of the diagonal are computed.
"""

import math
from collections.abc import Callable, Iterator
from typing import Any

import torch
from torch import Tensor

from sharpgp.exceptions import NumericalError
from sharpgp.gp.compute import MAX_ROWS_BATCHED, block_entries
from sharpgp.gp.dense import (
    JITTER_SCHEDULE,
    leave_one_out,
    log_marginal_likelihood,
    posterior_variance,
)
from sharpgp.gp.kernels.covariance import NOISE, Covariance
from sharpgp.rows import Inputs, Rows

# Number of blocks of entries in a block of rows of a square matrix: operations on these use all
# threads of a CPU.
_BLOCKS = {"cpu": 64, "cuda": 4}
# Triangles up to this size are inverted by substitution, larger ones by products of their parts.
_SMALL_TRIANGLE = 1024


def loo_of(covariance: Covariance, theta: Tensor, rows: Inputs, y: Tensor) -> tuple[Tensor, Tensor]:
    """Leave-one-out residuals and variances [K, N]; see :func:`dense.leave_one_out`.

    Examples
    --------
    >>> from sharpgp.gp.kernels.covariance import Stationary
    >>> X = torch.linspace(0, 1, 5, dtype=torch.float64)[:, None]
    >>> theta = torch.tensor([[1.0, 1.0, 0.1]], dtype=torch.float64)
    >>> residual, variance = loo_of(Stationary("rbf", 1), theta, X, X[:, 0])
    >>> residual.shape
    torch.Size([1, 5])
    """
    rows = Rows.of(rows)
    if len(rows) <= MAX_ROWS_BATCHED:
        return leave_one_out(covariance.of_observations(theta, rows), y.expand(len(theta), -1))
    parts = [_LeaveOneOut.apply(one, covariance, rows, y) for one in theta]
    residual, variance = (torch.stack(part) for part in zip(*parts, strict=True))
    return residual, variance


def variance_of(
    covariance: Covariance, theta: Tensor, rows: Inputs, S: Tensor, kss: Tensor
) -> Tensor:
    """Posterior variances [K, T] at ``S``; see :func:`dense.posterior_variance`.

    With few training points also differentiable in ``S``.

    Examples
    --------
    >>> from sharpgp.gp.kernels.covariance import Stationary
    >>> X = torch.linspace(0, 1, 5, dtype=torch.float64)[:, None]
    >>> theta = torch.tensor([[1.0, 1.0, 0.1]], dtype=torch.float64)
    >>> variance_of(Stationary("rbf", 1), theta, X, X[:2], torch.ones(1, 2).double()).shape
    torch.Size([1, 2])
    """
    rows = Rows.of(rows)
    if len(rows) <= MAX_ROWS_BATCHED:
        Ky = covariance.of_observations(theta, rows)
        return posterior_variance(Ky, covariance.matrix(theta, rows.X, S), kss)
    pairs = zip(theta, kss, strict=True)
    return torch.stack([_Variance.apply(one, prior, covariance, rows, S) for one, prior in pairs])


def likelihood_of(covariance: Covariance, theta: Tensor, rows: Inputs, y: Tensor) -> Tensor:
    """Log marginal likelihoods [K]; see :func:`dense.log_marginal_likelihood`.

    Examples
    --------
    >>> from sharpgp.gp.kernels.covariance import Stationary
    >>> X = torch.linspace(0, 1, 5, dtype=torch.float64)[:, None]
    >>> theta = torch.tensor([[1.0, 1.0, 0.1]], dtype=torch.float64)
    >>> likelihood_of(Stationary("rbf", 1), theta, X, X[:, 0]).shape
    torch.Size([1])
    """
    rows = Rows.of(rows)
    if len(rows) > MAX_ROWS_BATCHED:
        return torch.stack([_LogLikelihood.apply(one, covariance, rows, y) for one in theta])
    Ky = covariance.of_observations(theta, rows)
    return log_marginal_likelihood(Ky, y.expand(len(theta), -1))


def factor_of(covariance: Covariance, theta: Tensor, rows: Rows) -> tuple[Tensor, Tensor]:
    """Cholesky factor [N, N] of the data's covariance under one ``theta`` [P], and the jitter.

    The covariance is computed in blocks and overwritten by its factor; if it has to be
    factorised again with more jitter, it is computed again.
    """
    X, one = rows.X, theta.unsqueeze(0)
    with torch.no_grad():
        prior = covariance.prior(one, rows)[0]
        scale = prior.mean()
        for relative in JITTER_SCHEDULE:
            A = torch.empty(len(X), len(X), dtype=X.dtype, device=X.device)
            for block in _row_blocks(len(X), X.device):
                A[block] = covariance.matrix(one, X[block], X)[0]
            # Distances in blocks are not exactly zero on the diagonal.
            A.diagonal().copy_(prior + relative * scale)
            # LAPACK works in place on columns; the transpose of a symmetric matrix has them.
            info = torch.zeros((), dtype=torch.int32, device=X.device)
            torch.linalg.cholesky_ex(A.mT, out=(A.mT, info))
            if int(info) == 0 and bool(torch.isfinite(A.diagonal()).all()):
                return A.mT, relative * scale
            if not bool(torch.isfinite(theta).all()):
                break
    raise NumericalError(
        f"a {len(X)} x {len(X)} covariance matrix is singular even with a relative "
        f"jitter of {JITTER_SCHEDULE[-1]:g}; remove duplicate rows or raise the noise variance"
    )


def invert_factor(L: Tensor) -> Tensor:
    """``(L L')^-1`` in the place of the lower triangle ``L`` [N, N].

    Everything but small triangles on the diagonal is matrix products, which run several times as
    fast as LAPACK's inverse on a GPU.

    Examples
    --------
    >>> invert_factor(2 * torch.eye(2, dtype=torch.float64)).tolist()
    [[0.25, 0.0], [0.0, 0.25]]
    """
    with torch.no_grad():
        _invert_triangle(L)
        _square_triangle(L)
        for block in _row_blocks(len(L), L.device):
            L[: block.start, block] = L[block, : block.start].mT
            corner = L[block, block]
            corner.copy_(corner.tril() + corner.tril(-1).mT)
    return L


def _invert_triangle(L: Tensor) -> None:
    n = len(L)
    if n <= _SMALL_TRIANGLE:
        identity = torch.eye(n, dtype=L.dtype, device=L.device)
        L.copy_(torch.linalg.solve_triangular(L, identity, upper=False))
        return
    m = n // 2
    _invert_triangle(L[:m, :m])
    _invert_triangle(L[m:, m:])
    L[m:, :m] = -(L[m:, m:].tril() @ (L[m:, :m] @ L[:m, :m].tril()))


def _square_triangle(W: Tensor) -> None:
    """The lower triangle of ``W' W`` in the place of the lower triangle ``W``."""
    n = len(W)
    if n <= _SMALL_TRIANGLE:
        low = W.tril()
        W.copy_(low.mT @ low)
        return
    m = n // 2
    below = W[m:, :m].clone()
    W[m:, :m] = W[m:, m:].tril().mT @ below
    _square_triangle(W[:m, :m])
    W[:m, :m].addmm_(below.mT, below)
    _square_triangle(W[m:, m:])


class _LeaveOneOut(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any, theta: Tensor, covariance: Covariance, rows: Rows, y: Tensor
    ) -> tuple[Tensor, Tensor]:
        Ki = invert_factor(factor_of(covariance, theta, rows)[0])
        variance = 1.0 / Ki.diagonal()
        alpha = Ki @ y
        residual = alpha * variance
        if ctx.needs_input_grad[0]:
            ctx.save_for_backward(theta, Ki, alpha, variance, residual)
            ctx.covariance, ctx.X = covariance, rows.X
        return residual, variance

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor | None, ...]:
        g_residual, g_variance = grads
        theta, Ki, alpha, variance, residual = ctx.saved_tensors
        g_alpha = g_residual * variance
        g_diagonal = -(g_residual * residual * variance + g_variance * variance.square())
        Ki_g = Ki @ g_alpha

        def block(rows: slice) -> Tensor:
            rest = slice(rows.start, None)
            G = (Ki[rows] * -g_diagonal) @ Ki[:, rest]
            G.addr_(Ki_g[rows], alpha[rest], alpha=-0.5)
            return G.addr_(alpha[rows], Ki_g[rest], alpha=-0.5)

        return _contracted(ctx.covariance, theta, ctx.X, block), None, None, None


class _Variance(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any, theta: Tensor, kss: Tensor, covariance: Covariance, rows: Rows, S: Tensor
    ) -> Tensor:
        L = factor_of(covariance, theta, rows)[0]
        V = covariance.matrix(theta.unsqueeze(0), rows.X, S)[0]
        V = torch.linalg.solve_triangular(L, V, upper=False)
        variance = kss - V.square().sum(0)
        if ctx.needs_input_grad[0]:
            U = torch.linalg.solve_triangular(L.mT, V, upper=True)
            ctx.save_for_backward(theta, U)
            ctx.covariance, ctx.X, ctx.S = covariance, rows.X, S
        return variance

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor | None, ...]:
        (g,) = grads
        theta, U = ctx.saved_tensors
        Ug = U * g
        total = _contracted(
            ctx.covariance, theta, ctx.X, lambda rows: Ug[rows] @ U[rows.start :].mT
        )
        for rows in _row_blocks(len(U), U.device):
            total += _kernel_gradient(ctx.covariance, theta, ctx.X[rows], ctx.S, -2.0 * Ug[rows])
        return total, g, None, None, None


class _LogLikelihood(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, theta: Tensor, covariance: Covariance, rows: Rows, y: Tensor) -> Tensor:
        L = factor_of(covariance, theta, rows)[0]
        alpha = torch.cholesky_solve(y.unsqueeze(-1), L).squeeze(-1)
        half_log_determinant = L.diagonal().log().sum()
        ctx.save_for_backward(theta, L, alpha)
        ctx.covariance, ctx.X = covariance, rows.X
        constant = 0.5 * len(y) * math.log(2.0 * math.pi)
        return -0.5 * (y @ alpha) - half_log_determinant - constant

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor | None, ...]:
        theta, L, alpha = ctx.saved_tensors
        Ki = invert_factor(L)  # L is not needed again

        def block(rows: slice) -> Tensor:
            rest = slice(rows.start, None)
            return torch.addr(Ki[rows, rest], alpha[rows], alpha[rest], beta=-0.5, alpha=0.5)

        return grads[0] * _contracted(ctx.covariance, theta, ctx.X, block), None, None, None


def _contracted(
    covariance: Covariance, theta: Tensor, X: Tensor, block: Callable[[slice], Tensor]
) -> Tensor:
    """Gradient [P] for ``theta`` of a function of ``Ky``, whose own gradient ``G`` is symmetric.

    ``block(rows)`` gives ``G[rows, rows.start:]``.
    """
    total = torch.zeros_like(theta)
    for rows in _row_blocks(len(X), X.device):
        G, n = block(rows), rows.stop - rows.start
        total[NOISE] += G.diagonal().sum()
        G[:, n:] *= 2.0  # once for the block below the diagonal
        total += _kernel_gradient(covariance, theta, X[rows], X[rows.start :], G)
    return total


def _kernel_gradient(
    covariance: Covariance, theta: Tensor, X1: Tensor, X2: Tensor, G: Tensor
) -> Tensor:
    leaf = theta.detach().unsqueeze(0).requires_grad_()
    with torch.enable_grad():
        K = covariance.matrix(leaf, X1, X2)
    (found,) = torch.autograd.grad(K, leaf, G.unsqueeze(0), allow_unused=True)
    return torch.zeros_like(theta) if found is None else found[0]


def _row_blocks(n: int, device: torch.device) -> Iterator[slice]:
    size = max(1, _BLOCKS[device.type] * block_entries(device, in_threads=True) // n)
    for start in range(0, n, size):
        yield slice(start, min(start + size, n))
