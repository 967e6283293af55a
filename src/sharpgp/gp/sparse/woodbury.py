r"""Variance and leave-one-out of a sparse GP, with hand-written gradients.

In the notation of :mod:`sharpgp.gp.sparse.whitening`, for a point with ``w = L^-1 k(Z, x)`` and
``u = LB^-1 w`` three numbers are enough: ``p = |w|^2 = k' Kmm^-1 k``, ``q = |u|^2 = k' A^-1 k``
and ``mu = u' c`` with ``c = LB^-1 V y / s``.
"""

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from sharpgp.gp.kernels.covariance import NOISE, Covariance
from sharpgp.gp.sparse.whitening import (
    Data,
    Factors,
    KernelGradient,
    add_up,
    by_rows,
    congruent,
    factorise,
    inducing_covariance,
    join,
    solve,
    solve_transposed,
)


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


def weights_of(factors: Factors) -> Tensor:
    """``A^-1 Kmn y / noise`` [K, M, 1]: the mean is ``k' weights``."""
    c = factors.c.unsqueeze(-1)
    return factors.unwhiten(torch.zeros_like(c), c)


def means_at(
    covariance: Covariance, theta: Tensor, Z: Tensor, weights: Tensor, S: Tensor
) -> Tensor:
    """``k(x, Z) weights`` [K, T] at the points ``S`` [T, d], for ``weights`` [K, M, 1]."""

    def block(rows: slice) -> Tensor:
        return (covariance.matrix(theta, S[rows], Z) @ weights).squeeze(-1)

    return _at_points(block, theta, Z, S)


def reductions_at(
    covariance: Covariance, theta: Tensor, Z: Tensor, factors: Factors, S: Tensor
) -> Tensor:
    """Reduction of the prior variance [K, T] at the points ``S``, differentiable in ``S``."""

    def block(rows: slice) -> Tensor:
        return variance_reduction(factors, covariance.matrix(theta, Z, S[rows]))

    return _at_points(block, theta, Z, S)


def _at_points(block: Callable[[slice], Tensor], theta: Tensor, Z: Tensor, S: Tensor) -> Tensor:
    """Answers [K, T] at ``S``, from those at blocks of its rows."""
    blocks = by_rows(block, len(S), len(theta) * len(Z), S.device)
    return join(blocks, S.new_empty(len(theta), len(S)))


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

        def reduction(rows: slice) -> Tensor:
            w, u = factors.whiten(data.covariance.matrix(theta, Z, S[rows]))
            return w.square().sum(-2) - u.square().sum(-2)

        blocks = by_rows(reduction, len(S), theta.shape[0] * len(Z), S.device)
        ctx.save_for_backward(theta, Z, S)
        ctx.factors, ctx.data = factors, data
        return kss - join(blocks, torch.empty_like(kss))

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor | None, ...]:
        (g,) = grads
        theta, Z, S = ctx.saved_tensors
        factors, data = ctx.factors, ctx.data
        pull = KernelGradient(ctx.needs_input_grad[1:3], data.covariance, theta, Z)
        wgw, ugu = torch.zeros_like(factors.L), torch.zeros_like(factors.L)
        grad_S, points = torch.zeros_like(S), ctx.needs_input_grad[3]

        def at_points(rows: slice) -> tuple[Tensor, Tensor, list[Tensor | None], slice]:
            K, back = pull.kernel(S[rows], points)
            w, u = factors.whiten(K)
            gw, gu = w * g[:, None, rows], u * g[:, None, rows]
            parts = back(factors.unwhiten(-2.0 * gw, 2.0 * gu))
            return gw @ w.mT, gu @ u.mT, parts, rows

        for *sums, parts, rows in by_rows(at_points, len(S), theta.shape[0] * len(Z), S.device):
            add_up((wgw, ugu), [sums])
            pull.add(parts)
            if parts[-1] is not None:
                grad_S[rows] = parts[-1]
        # Whitened by L, the gradient is -inner for A.
        inner = congruent(factors.LB, ugu)
        noise = factors.noise
        scaled = (-2.0 / noise)[:, None, None] * inner

        def at_data(rows: slice) -> list[Tensor | None]:
            K, back = pull.kernel(data.X[rows])
            V = solve(factors.L, K)
            # Not P @ K: L^-1 would amplify its rounding errors.
            return back(solve_transposed(factors.L, scaled @ V))

        for parts in data.by_rows(at_data, theta.shape[0], len(Z)):
            pull.add(parts)
        pull.theta[:, NOISE] += (inner * factors.excess).sum((-1, -2)) / noise
        return congruent(factors.L, wgw - inner), pull.theta, pull.Z, grad_S, g, None


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
    >>> from sharpgp.gp.kernels.covariance import Stationary
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

        def norms(rows: slice) -> Tensor:
            w, u = factors.whiten(data.covariance.matrix(theta, Z, data.X[rows]))
            mu = (factors.c.unsqueeze(-2) @ u).squeeze(-2)
            return torch.stack([w.square().sum(-2), u.square().sum(-2), mu])

        blocks = data.by_rows(norms, theta.shape[0], len(Z))
        p, q, mu = join(blocks, prior.new_empty(3, *prior.shape))
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

        def sums(rows: slice) -> tuple[Tensor, Tensor, Tensor]:
            w, u = factors.whiten(data.covariance.matrix(theta, Z, data.X[rows]))
            wg, ug = w * g_p[:, None, rows], u * g_q[:, None, rows]
            return wg @ w.mT, ug @ u.mT, (u @ g_mu[:, rows].unsqueeze(-1)).squeeze(-1)

        add_up((wgw, ugu, e), data.by_rows(sums, theta.shape[0], len(Z)))
        # The gradient is -R H R' for A, and R e / noise for Kmn y.
        outer = e.unsqueeze(-1) * factors.c.unsqueeze(-2)
        H = ugu + 0.5 * (outer + outer.mT)
        pull = KernelGradient(ctx.needs_input_grad[1:3], data.covariance, theta, Z)

        def pulled(rows: slice) -> list[Tensor | None]:
            K, pull_back = pull.kernel(data.X[rows])
            w, u = factors.whiten(K)
            back = 2.0 * u * g_q[:, None, rows]
            back += factors.c.unsqueeze(-1) * g_mu[:, None, rows]
            back += (e / noise).unsqueeze(-1) * data.y[rows]
            back -= (2.0 / noise).unsqueeze(-1) * (H @ u)
            return pull_back(factors.unwhiten(2.0 * w * g_p[:, None, rows], back))

        for parts in data.by_rows(pulled, theta.shape[0], len(Z)):
            pull.add(parts)
        inner = congruent(factors.LB, H)
        pull.theta[:, NOISE] += ((inner * factors.excess).sum((-1, -2)) / noise.squeeze(-1)) + (
            g_variance / rest - (g_h * q / noise + g_mu * mu) / noise
        ).sum(-1)
        grad_Kmm = -congruent(factors.L, inner + wgw)
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
    >>> from sharpgp.gp.kernels.covariance import Stationary
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
