r"""The three quantities of a sparse GP, with hand-written gradients, in blocks of rows.

With inducing inputs ``Z`` [M, d], ``Kmm = k(Z, Z)``, ``Kmn = k(Z, X)`` and noise ``s``, Titsias'
approximation replaces the prior covariance of the data by ``Q = Knm Kmm^-1 Kmn``.  Everything it
predicts goes through ``A = Kmm + Kmn Knm / s``, here in whitened form:

``L L' = Kmm``,  ``V = L^-1 Kmn``,  ``B = I + V V' / s = LB LB'``,  ``A^-1 = R R'`` with
``R = L^-T LB^-T``.

For a point with ``w = L^-1 k(Z, x)`` and ``u = LB^-1 w``, three numbers are enough:
``p = |w|^2 = k' Kmm^-1 k``, ``q = |u|^2 = k' A^-1 k`` and ``mu = u' c`` with
``c = LB^-1 V y / s``.

The data enter through sums over rows, so that rows are visited in blocks, forward and backward;
kernel values are computed anew in the backward pass instead of being kept.  Time is
``O(N M^2)`` and memory ``O(M^2)`` plus one block, whatever ``N``.  All matrices carry a leading
batch of levels ``[K, ...]``.
"""

import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from sharpgp.gp.covariance import Covariance
from sharpgp.gp.linalg import add_to_diagonal, cholesky
from sharpgp.gp.memory import block_entries

#: Added to the diagonal of ``Kmm``, relative to its mean: inducing points may coincide.
JITTER = 1e-11


@dataclass(frozen=True)
class Data:
    """Rows that a sparse GP is conditioned on, standardised: inputs [N, d] and targets [N]."""

    covariance: Covariance
    X: Tensor
    y: Tensor

    def blocks(self, n_levels: int, n_inducing: int) -> Iterator[slice]:
        """Slices of the rows, none with more than a block of kernel entries."""
        yield from row_blocks(len(self.X), n_levels * n_inducing, self.X.device)


@dataclass(frozen=True)
class Factors:
    """``L``, ``LB``, ``B - I`` [K, M, M], ``c`` [K, M] and the noise ``s`` [K]."""

    L: Tensor
    LB: Tensor
    excess: Tensor
    c: Tensor
    noise: Tensor

    def whiten(self, Kx: Tensor) -> tuple[Tensor, Tensor]:
        """``w = L^-1 Kx`` and ``u = LB^-1 w`` [K, M, n]."""
        w = _solve(self.L, Kx)
        return w, _solve(self.LB, w)

    def unwhiten(self, w: Tensor, u: Tensor) -> Tensor:
        """``L^-T (w + LB^-T u)`` [K, M, n]: the transpose of :meth:`whiten`."""
        return _solve_transposed(self.L, w + _solve_transposed(self.LB, u))

    def congruent(self, inner: Tensor) -> Tensor:
        """``R inner R'`` for a symmetric ``inner`` [K, M, M]."""
        return _congruent(self.L, _congruent(self.LB, inner))


def row_blocks(n_rows: int, entries_per_row: int, device: torch.device) -> Iterator[slice]:
    """Slices of rows that hold at most a block of entries each.

    Examples
    --------
    >>> len(list(row_blocks(10, 2**40, torch.device("cpu"))))
    10
    """
    size = max(1, block_entries(device) // max(1, entries_per_row))
    for start in range(0, n_rows, size):
        yield slice(start, min(start + size, n_rows))


def inducing_covariance(covariance: Covariance, theta: Tensor, Z: Tensor) -> Tensor:
    """``Kmm`` [K, M, M] with its jitter, differentiable in ``theta`` and ``Z``."""
    return add_to_diagonal(covariance.matrix(theta, Z), JITTER * covariance.diag(theta, Z).mean(-1))


def factorise(data: Data, theta: Tensor, Z: Tensor, Kmm: Tensor | None = None) -> Factors:
    """Visit all rows once; the result answers every question under ``theta`` [K, P]."""
    with torch.no_grad():
        Kmm = inducing_covariance(data.covariance, theta, Z) if Kmm is None else Kmm
        L = cholesky(Kmm)[0]
        excess, Vy = torch.zeros_like(L), torch.zeros_like(L[..., 0])
        noise = theta[:, -1]
        for rows in data.blocks(len(theta), len(Z)):
            V = _solve(L, data.covariance.matrix(theta, Z, data.X[rows]))
            excess.baddbmm_(V, V.mT)
            Vy += V @ data.y[rows]
        excess /= noise[:, None, None]
        LB = cholesky(add_to_diagonal(excess, torch.ones_like(noise)))[0]
        c = _solve(LB, (Vy / noise[:, None]).unsqueeze(-1)).squeeze(-1)
    return Factors(L, LB, excess, c, noise)


class _Reduction(torch.autograd.Function):
    """``p - q`` at test points, given the factors: only the kernel values have gradients."""

    @staticmethod
    def forward(ctx: Any, Kx: Tensor, factors: Factors) -> Tensor:
        w, u = factors.whiten(Kx)
        if ctx.needs_input_grad[0]:
            ctx.save_for_backward(w, u)
            ctx.factors = factors
        return w.square().sum(-2) - u.square().sum(-2)

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor, None]:
        w, u = ctx.saved_tensors
        g = 2.0 * grads[0].unsqueeze(-2)
        return ctx.factors.unwhiten(g * w, -g * u), None


def variance_reduction(factors: Factors, Kx: Tensor) -> Tensor:
    """``k' Kmm^-1 k - k' A^-1 k`` [K, n] for ``Kx = k(Z, x)`` [K, M, n], known factors."""
    reduction: Tensor = _Reduction.apply(Kx, factors)
    return reduction


class _SparseVariance(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any, Kmm: Tensor, theta: Tensor, Z: Tensor, S: Tensor, kss: Tensor, data: Data
    ) -> Tensor:
        factors = factorise(data, theta, Z, Kmm)
        out = torch.empty_like(kss)
        for rows in row_blocks(len(S), theta.shape[0] * len(Z), S.device):
            w, u = factors.whiten(data.covariance.matrix(theta, Z, S[rows]))
            out[:, rows] = kss[:, rows] - w.square().sum(-2) + u.square().sum(-2)
        ctx.save_for_backward(theta, Z, S)
        ctx.factors, ctx.data = factors, data
        return out

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor | None, ...]:
        (g,) = grads
        theta, Z, S = ctx.saved_tensors
        factors, data = ctx.factors, ctx.data
        pull = _KernelGradient(ctx, data.covariance, theta, Z)
        wgw, ugu = torch.zeros_like(factors.L), torch.zeros_like(factors.L)
        grad_S, points = torch.zeros_like(S), ctx.needs_input_grad[3]
        for rows in row_blocks(len(S), theta.shape[0] * len(Z), S.device):
            w, u = factors.whiten(data.covariance.matrix(theta, Z, S[rows]))
            gw, gu = w * g[:, None, rows], u * g[:, None, rows]
            wgw.baddbmm_(gw, w.mT)
            ugu.baddbmm_(gu, u.mT)
            back = factors.unwhiten(-2.0 * gw, 2.0 * gu)
            grad_rows = pull.add(S[rows], back, points)
            if grad_rows is not None:
                grad_S[rows] = grad_rows
        # Whitened by L, the gradient is -inner for A.
        inner = _congruent(factors.LB, ugu)
        noise = factors.noise
        scaled = (-2.0 / noise)[:, None, None] * inner
        for rows in data.blocks(theta.shape[0], len(Z)):
            V = _solve(factors.L, data.covariance.matrix(theta, Z, data.X[rows]))
            # Not P @ K: what L^-1 blows up would come back as rounding errors.
            pull.add(data.X[rows], _solve_transposed(factors.L, scaled @ V))
        pull.theta[:, -1] += (inner * factors.excess).sum((-1, -2)) / noise
        return _congruent(factors.L, wgw - inner), pull.theta, pull.Z, grad_S, g, None


def sparse_variance(data: Data, theta: Tensor, Z: Tensor, S: Tensor, kss: Tensor) -> Tensor:
    r"""Variance ``kss - k' Kmm^-1 k + k' A^-1 k`` at the points ``S``.

    Parameters
    ----------
    data : Data
    theta : Tensor [K, P]
    Z : Tensor [M, d]
    S : Tensor [T, d]
    kss : Tensor [K, T]
        Prior variance (with the noise, for a new observation).

    Returns
    -------
    Tensor [K, T]
        Differentiable in ``theta``, ``Z`` and ``S``.

    References
    ----------
    M. Titsias, "Variational Learning of Inducing Variables in Sparse Gaussian Processes",
    AISTATS 2009.

    Examples
    --------
    >>> from sharpgp.gp.covariance import Stationary
    >>> X = torch.linspace(0, 1, 5, dtype=torch.float64)[:, None]
    >>> theta = torch.tensor([[1.0, 1.0, 0.1]], dtype=torch.float64)
    >>> data = Data(Stationary("rbf", 1), X, X[:, 0])
    >>> sparse_variance(data, theta, X[::2], X[:1], torch.ones(1, 1).double() * 1.1).shape
    torch.Size([1, 1])
    """
    Kmm = inducing_covariance(data.covariance, theta, Z)
    out: Tensor = _SparseVariance.apply(Kmm, theta, Z, S, kss, data)
    return out


class _SparseLeaveOneOut(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any, Kmm: Tensor, theta: Tensor, Z: Tensor, prior: Tensor, data: Data
    ) -> tuple[Tensor, Tensor]:
        factors = factorise(data, theta, Z, Kmm)
        p, q, mu = (torch.empty_like(prior) for _ in range(3))
        for rows in data.blocks(theta.shape[0], len(Z)):
            w, u = factors.whiten(data.covariance.matrix(theta, Z, data.X[rows]))
            p[:, rows], q[:, rows] = w.square().sum(-2), u.square().sum(-2)
            mu[:, rows] = (factors.c.unsqueeze(-2) @ u).squeeze(-2)
        noise = factors.noise.unsqueeze(-1)
        rest = (1.0 - q / noise).clamp_min(1e-14)
        residual = (data.y - mu) / rest
        ctx.save_for_backward(theta, Z, q, mu, rest, residual)
        ctx.factors, ctx.data = factors, data
        return residual, prior + noise - p + q / rest

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor | None, ...]:
        g_residual, g_variance = grads
        theta, Z, q, mu, rest, residual = ctx.saved_tensors
        factors, data = ctx.factors, ctx.data
        noise = factors.noise.unsqueeze(-1)
        # With h = q / noise: residual = (y - mu) / (1 - h), variance = ... - p + q / (1 - h).
        g_mu = -g_residual / rest
        g_h = g_residual * residual / rest + g_variance * noise / rest.square()
        g_q, g_p = g_h / noise, -g_variance
        wgw, ugu = torch.zeros_like(factors.L), torch.zeros_like(factors.L)
        e = torch.zeros_like(factors.c)
        for rows in data.blocks(theta.shape[0], len(Z)):
            w, u = factors.whiten(data.covariance.matrix(theta, Z, data.X[rows]))
            wgw.baddbmm_(w * g_p[:, None, rows], w.mT)
            ugu.baddbmm_(u * g_q[:, None, rows], u.mT)
            e += (u @ g_mu[:, rows].unsqueeze(-1)).squeeze(-1)
        # The gradient is -R H R' for A, and R e / noise for Kmn y.
        outer = e.unsqueeze(-1) * factors.c.unsqueeze(-2)
        H = ugu + 0.5 * (outer + outer.mT)
        pull = _KernelGradient(ctx, data.covariance, theta, Z)
        for rows in data.blocks(theta.shape[0], len(Z)):
            w, u = factors.whiten(data.covariance.matrix(theta, Z, data.X[rows]))
            back = 2.0 * u * g_q[:, None, rows]
            back += factors.c.unsqueeze(-1) * g_mu[:, None, rows]
            back += (e / noise).unsqueeze(-1) * data.y[rows]
            back -= (2.0 / noise).unsqueeze(-1) * (H @ u)
            pull.add(data.X[rows], factors.unwhiten(2.0 * w * g_p[:, None, rows], back))
        inner = _congruent(factors.LB, H)
        pull.theta[:, -1] += ((inner * factors.excess).sum((-1, -2)) / noise.squeeze(-1)) + (
            g_variance / rest - (g_h * q / noise + g_mu * mu) / noise
        ).sum(-1)
        grad_Kmm = -_congruent(factors.L, inner + wgw)
        return grad_Kmm, pull.theta, pull.Z, g_variance, None


def sparse_leave_one_out(
    data: Data, theta: Tensor, Z: Tensor, prior: Tensor
) -> tuple[Tensor, Tensor]:
    r"""Leave-one-out residuals and variances of a sparse GP, inducing inputs held fixed.

    Without point ``i``, ``A`` loses ``k_i k_i' / s``; by the Woodbury identity, with the leverage
    ``h_i = k_i' A^-1 k_i / s``,

    ``r_i = (y_i - mu_i) / (1 - h_i)`` and
    ``v_i = k_ii + s - k_i' Kmm^-1 k_i + s h_i / (1 - h_i)``.

    Parameters
    ----------
    data : Data
    theta : Tensor [K, P]
    Z : Tensor [M, d]
    prior : Tensor [K, N]
        ``k(x_i, x_i)``, without noise.

    Returns
    -------
    residual, variance : Tensor [K, N]
        The variance is that of a new observation, noise included.

    Examples
    --------
    >>> from sharpgp.gp.covariance import Stationary
    >>> X = torch.linspace(0, 1, 5, dtype=torch.float64)[:, None]
    >>> theta = torch.tensor([[1.0, 1.0, 0.1]], dtype=torch.float64)
    >>> data = Data(Stationary("rbf", 1), X, X[:, 0])
    >>> residual, _ = sparse_leave_one_out(data, theta, X[::2], torch.ones(1, 5).double())
    >>> bool(residual.abs().max() < 0.5)
    True
    """
    Kmm = inducing_covariance(data.covariance, theta, Z)
    residual, variance = _SparseLeaveOneOut.apply(Kmm, theta, Z, prior, data)
    return residual, variance


class _Bound(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any, Kmm: Tensor, theta: Tensor, Z: Tensor, total: Tensor, data: Data
    ) -> Tensor:
        factors = factorise(data, theta, Z, Kmm)
        ctx.save_for_backward(theta, Z, total)
        ctx.factors, ctx.data = factors, data
        n, noise = len(data.y), factors.noise
        trace = factors.excess.diagonal(dim1=-2, dim2=-1).sum(-1)
        half_log_determinant = factors.LB.diagonal(dim1=-2, dim2=-1).log().sum(-1)
        square = (data.y @ data.y) / noise - factors.c.square().sum(-1)
        return (
            -half_log_determinant
            - 0.5 * n * (noise.log() + math.log(2.0 * math.pi))
            - 0.5 * square
            - 0.5 * (total / noise - trace)
        )

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor | None, ...]:
        g = grads[0]
        theta, Z, total = ctx.saved_tensors
        factors, data = ctx.factors, ctx.data
        noise, excess, c = factors.noise, factors.excess, factors.c
        trace = excess.diagonal(dim1=-2, dim2=-1).sum(-1)
        identity = torch.eye(len(Z), dtype=c.dtype, device=c.device)
        # Whitened by L, the gradient is -inner for A and a / noise for Kmn y.
        inner = 0.5 * _congruent(factors.LB, identity + c.unsqueeze(-1) * c.unsqueeze(-2))
        a = _solve_transposed(factors.LB, c.unsqueeze(-1))
        scale = (g / noise)[:, None, None]
        pull = _KernelGradient(ctx, data.covariance, theta, Z)
        for rows in data.blocks(theta.shape[0], len(Z)):
            V = _solve(factors.L, data.covariance.matrix(theta, Z, data.X[rows]))
            back = scale * (V - 2.0 * (inner @ V) + a * data.y[rows])
            pull.add(data.X[rows], _solve_transposed(factors.L, back))
        square = (data.y @ data.y) / noise - c.square().sum(-1)
        pull.theta[:, -1] += (g / noise) * (
            (inner * excess).sum((-1, -2))
            - 0.5 * len(data.y)
            + 0.5 * square
            - 0.5 * c.square().sum(-1)
            + 0.5 * (total / noise - trace)
        )
        grad_Kmm = g[:, None, None] * _congruent(factors.L, 0.5 * identity - inner - 0.5 * excess)
        return grad_Kmm, pull.theta, pull.Z, -0.5 * g / noise, None


def variational_bound(data: Data, theta: Tensor, Z: Tensor) -> Tensor:
    r"""Titsias' lower bound [K] of the log marginal likelihood.

    ``log N(y; 0, Q + s I) - (sum_i k_ii - tr Q) / (2 s)``.

    Examples
    --------
    >>> from sharpgp.gp.covariance import Stationary
    >>> X = torch.linspace(0, 1, 5, dtype=torch.float64)[:, None]
    >>> theta = torch.tensor([[1.0, 1.0, 0.1]], dtype=torch.float64)
    >>> data = Data(Stationary("rbf", 1), X, X[:, 0])
    >>> few, many = (float(variational_bound(data, theta, Z)) for Z in (X[::4], X))
    >>> few < many
    True
    """
    Kmm = inducing_covariance(data.covariance, theta, Z)
    total = data.covariance.diag(theta, data.X).sum(-1)
    bound: Tensor = _Bound.apply(Kmm, theta, Z, total, data)
    return bound


class _KernelGradient:
    """Sums over blocks of rows what the gradient of ``k(Z, X)`` gives for ``theta`` and ``Z``.

    Inputs 1 and 2 of the function being differentiated are ``theta`` and ``Z``.
    """

    def __init__(self, ctx: Any, covariance: Covariance, theta: Tensor, Z: Tensor) -> None:
        self._covariance = covariance
        self._needed: tuple[bool, bool] = ctx.needs_input_grad[1:3]
        self._theta = theta.detach().requires_grad_(self._needed[0])
        self._Z = Z.detach().requires_grad_(self._needed[1])
        self.theta = torch.zeros_like(theta)
        self.Z = torch.zeros_like(Z) if self._needed[1] else None

    def add(self, X: Tensor, gradient: Tensor, points: bool = False) -> Tensor | None:
        """Add one block; with ``points``, return the gradient for its rows ``X``."""
        X = X.detach().requires_grad_(points)
        wanted = zip((self._theta, self._Z, X), (*self._needed, points), strict=True)
        leaves = [leaf for leaf, needed in wanted if needed]
        with torch.enable_grad():
            K = self._covariance.matrix(self._theta, self._Z, X)
        if not leaves:
            return None
        # A kernel without parameters of its own does not depend on theta.
        found = iter(torch.autograd.grad(K, leaves, gradient, allow_unused=self._needed[0]))
        if self._needed[0] and (part := next(found)) is not None:
            self.theta += part
        if self.Z is not None:
            self.Z += next(found)
        return next(found) if points else None


def _solve(L: Tensor, right: Tensor) -> Tensor:
    if _by_product(L, right):
        return _inverse(L) @ right
    return torch.linalg.solve_triangular(L, right, upper=False)


def _solve_transposed(L: Tensor, right: Tensor) -> Tensor:
    if _by_product(L, right):
        return _inverse(L).mT @ right
    return torch.linalg.solve_triangular(L.mT, right, upper=True)


def _by_product(L: Tensor, right: Tensor) -> bool:
    """Whether to multiply by the inverse: on a GPU that takes a fifth of the time of a solve.

    The condition of ``L`` is bounded by its jitter, so that eleven digits are left or so.
    """
    return right.is_cuda and right.shape[-1] > 4 * L.shape[-1]


def _inverse(L: Tensor) -> Tensor:
    identity = torch.eye(L.shape[-1], dtype=L.dtype, device=L.device)
    return torch.linalg.solve_triangular(L, identity.expand_as(L), upper=False)


def _congruent(L: Tensor, inner: Tensor) -> Tensor:
    """``L^-T inner L^-1`` for a symmetric ``inner``."""
    half = _solve_transposed(L, inner)
    return _solve_transposed(L, half.mT)
