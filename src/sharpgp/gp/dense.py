"""Dense factorisations, and the three GP quantities that the rest of the package differentiates.

The functions below have hand-written derivatives: differentiating through a Cholesky factor
costs several times the forward pass and is never needed: results depend on the covariance matrix
only through ``Ky^-1``.  They work on plain matrices and so serve every kernel.  All matrices may
carry a leading batch of levels ``[K, ...]``.
"""

import math
from typing import Any

import torch
from torch import Tensor

from sharpgp.exceptions import NumericalError

#: Jitter tried in turn, relative to the mean of the diagonal; the first is no jitter at all.
JITTER_SCHEDULE = (0.0, 1e-10, 1e-8, 1e-6)


def cholesky(A: Tensor) -> tuple[Tensor, Tensor]:
    r"""Lower Cholesky factor of ``A + jitter * I``, with the smallest jitter that works.

    Parameters
    ----------
    A : Tensor [..., N, N]
        Symmetric matrices, positive definite up to rounding.

    Returns
    -------
    L : Tensor [..., N, N]
    jitter : Tensor [...]
        What was added to each diagonal (absolute); 0 for a well-conditioned matrix.

    Raises
    ------
    NumericalError
        If the matrix is not finite, or not positive definite with the last jitter of
        :data:`JITTER_SCHEDULE`.

    Examples
    --------
    >>> L, jitter = cholesky(torch.tensor([[4.0, 2.0], [2.0, 3.0]], dtype=torch.float64))
    >>> L[1, 0].item(), jitter.item()
    (1.0, 0.0)
    """
    scale = A.diagonal(dim1=-2, dim2=-1).mean(-1)
    L, info = torch.linalg.cholesky_ex(A)
    jitter = torch.zeros_like(scale)
    # info can be 0 for a non-finite matrix, so the factor itself is checked, too.
    failed = (info != 0) | ~torch.isfinite(L.diagonal(dim1=-2, dim2=-1)).all(-1)
    for relative in JITTER_SCHEDULE[1:]:
        if not failed.any():
            return L, jitter
        if not torch.isfinite(A).all():
            raise NumericalError("expected a finite covariance matrix, found NaN or inf in it")
        jitter = torch.where(failed, relative * scale, jitter)
        repaired = A.clone()
        repaired.diagonal(dim1=-2, dim2=-1).add_(jitter.unsqueeze(-1))
        L, info = torch.linalg.cholesky_ex(repaired)
        failed = info != 0
    if failed.any():
        raise NumericalError(
            f"a {A.shape[-1]} x {A.shape[-1]} covariance matrix is singular even with a relative "
            f"jitter of {JITTER_SCHEDULE[-1]:g}; remove duplicate rows or raise the noise variance"
        )
    return L, jitter


class _AddToDiagonal(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, A: Tensor, value: Tensor) -> Tensor:
        out = A.clone()
        out.diagonal(dim1=-2, dim2=-1).add_(value.unsqueeze(-1))
        return out

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor, Tensor]:
        return grads[0], grads[0].diagonal(dim1=-2, dim2=-1).sum(-1)


def add_to_diagonal(A: Tensor, value: Tensor) -> Tensor:
    """``A + value * I`` for matrices [..., N, N] and values [...], without a dense identity.

    Examples
    --------
    >>> add_to_diagonal(torch.zeros(1, 2, 2), torch.tensor([3.0]))[0].tolist()
    [[3.0, 0.0], [0.0, 3.0]]
    """
    out: Tensor = _AddToDiagonal.apply(A, value)
    return out


class _AddEachToDiagonal(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, A: Tensor, values: Tensor) -> Tensor:
        out = A.clone()
        out.diagonal(dim1=-2, dim2=-1).add_(values)
        return out

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor, Tensor | None]:
        own = grads[0].diagonal(dim1=-2, dim2=-1) if ctx.needs_input_grad[1] else None
        return grads[0], own


def add_each_to_diagonal(A: Tensor, values: Tensor) -> Tensor:
    """``A + diag(values)`` for matrices and values [..., N], or constants [N]; none is made dense.

    Examples
    --------
    >>> add_each_to_diagonal(torch.zeros(1, 2, 2), torch.tensor([3.0, 4.0]))[0].tolist()
    [[3.0, 0.0], [0.0, 4.0]]
    """
    out: Tensor = _AddEachToDiagonal.apply(A, values)
    return out


class _PosteriorVariance(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, Ky: Any, Ks: Tensor, kss: Tensor, L: Tensor | None) -> Tensor:
        factor = L if L is not None else cholesky(Ky)[0]
        V = torch.linalg.solve_triangular(factor, Ks, upper=False)
        if any(ctx.needs_input_grad[:2]):
            U = torch.linalg.solve_triangular(factor.mT, V, upper=True)
            ctx.save_for_backward(U)
        return kss - V.square().sum(-2)

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor | None, ...]:
        (g,) = grads
        grad_Ky = grad_Ks = None
        if any(ctx.needs_input_grad[:2]):
            (U,) = ctx.saved_tensors
            Ug = U * g.unsqueeze(-2)
            if ctx.needs_input_grad[0]:
                grad_Ky = Ug @ U.mT
            if ctx.needs_input_grad[1]:
                grad_Ks = -2.0 * Ug
        return grad_Ky, grad_Ks, g, None


def posterior_variance(Ky: Tensor, Ks: Tensor, kss: Tensor) -> Tensor:
    r"""Posterior variance ``kss - diag(Ks' Ky^-1 Ks)``.

    With ``U = Ky^-1 Ks`` and ``g`` the incoming gradient, the derivatives are
    ``U diag(g) U'`` for ``Ky`` and ``-2 U diag(g)`` for ``Ks``.

    Parameters
    ----------
    Ky : Tensor [..., N, N]
        Covariance of the training observations, noise included.
    Ks : Tensor [..., N, T]
        Covariance between training and test points.
    kss : Tensor [..., T]
        Prior variance at the test points (with the noise, for a new observation).

    Returns
    -------
    Tensor [..., T]

    Examples
    --------
    >>> one = torch.ones(1, 1, dtype=torch.float64)
    >>> posterior_variance(2 * one, one, one[0]).item()
    0.5
    """
    variance: Tensor = _PosteriorVariance.apply(Ky, Ks, kss, None)
    return variance


def variance_given_factor(L: Tensor, Ks: Tensor, kss: Tensor) -> Tensor:
    """:func:`posterior_variance` from a Cholesky factor ``L`` [..., N, N] of ``Ky``.

    Examples
    --------
    >>> one = torch.ones(1, 1, dtype=torch.float64)
    >>> variance_given_factor(2 * one, one, one[0]).item()
    0.75
    """
    variance: Tensor = _PosteriorVariance.apply(None, Ks, kss, L)
    return variance


class _LeaveOneOut(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, Ky: Tensor, y: Tensor) -> tuple[Tensor, Tensor]:
        Ki, alpha, variance = _left_out(cholesky(Ky)[0], y)
        residual = alpha * variance
        ctx.save_for_backward(Ki, alpha, variance, residual)
        return residual, variance

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor, Tensor]:
        g_residual, g_variance = grads
        Ki, alpha, variance, residual = ctx.saved_tensors
        # residual = alpha / d and variance = 1 / d with d = diag(Ki)
        g_alpha = g_residual * variance
        g_diagonal = -(g_residual * residual * variance + g_variance * variance.square())
        Ki_g = (Ki @ g_alpha.unsqueeze(-1)).squeeze(-1)
        outer = Ki_g.unsqueeze(-1) * alpha.unsqueeze(-2)
        grad_Ky = -((Ki * g_diagonal.unsqueeze(-2)) @ Ki) - 0.5 * (outer + outer.mT)
        return grad_Ky, Ki_g


def leave_one_out(Ky: Tensor, y: Tensor) -> tuple[Tensor, Tensor]:
    r"""Leave-one-out residuals and variances of a zero-mean GP from one factorisation.

    ``r_i = [Ky^-1 y]_i / [Ky^-1]_ii`` and ``v_i = 1 / [Ky^-1]_ii``.

    Parameters
    ----------
    Ky : Tensor [..., N, N]
        Covariance of the observations, noise included.
    y : Tensor [..., N]
        Observations, centred.

    Returns
    -------
    residual : Tensor [..., N]
        ``y_i`` minus the prediction from all other points.
    variance : Tensor [..., N]
        Variance of that prediction, noise included.

    References
    ----------
    Rasmussen and Williams, *Gaussian Processes for Machine Learning*, 2006, section 5.4.2.

    Examples
    --------
    >>> Ky = torch.eye(2, dtype=torch.float64) * 4
    >>> residual, variance = leave_one_out(Ky, torch.tensor([1.0, 2.0], dtype=torch.float64))
    >>> residual.tolist(), variance.tolist()
    ([1.0, 2.0], [4.0, 4.0])
    """
    residual, variance = _LeaveOneOut.apply(Ky, y)
    return residual, variance


def loo_given_factor(L: Tensor, y: Tensor) -> tuple[Tensor, Tensor]:
    """:func:`leave_one_out` from a Cholesky factor ``L`` [..., N, N] of ``Ky``; not differentiable.

    Examples
    --------
    >>> L = torch.eye(2, dtype=torch.float64) * 2
    >>> residual, variance = loo_given_factor(L, torch.tensor([1.0, 2.0], dtype=torch.float64))
    >>> residual.tolist(), variance.tolist()
    ([1.0, 2.0], [4.0, 4.0])
    """
    _, alpha, variance = _left_out(L, y)
    return alpha * variance, variance


def _left_out(L: Tensor, y: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """``Ky^-1``, ``Ky^-1 y`` and the inverse of the diagonal of ``Ky^-1``."""
    Ki = torch.cholesky_inverse(L)
    alpha = (Ki @ y.unsqueeze(-1)).squeeze(-1)
    return Ki, alpha, 1.0 / Ki.diagonal(dim1=-2, dim2=-1)


class _LogLikelihood(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, Ky: Tensor, y: Tensor) -> Tensor:
        L = cholesky(Ky)[0]
        alpha = torch.cholesky_solve(y.unsqueeze(-1), L).squeeze(-1)
        ctx.save_for_backward(L, alpha)
        half_log_determinant = L.diagonal(dim1=-2, dim2=-1).log().sum(-1)
        constant = 0.5 * y.shape[-1] * math.log(2.0 * math.pi)
        return -0.5 * (y * alpha).sum(-1) - half_log_determinant - constant

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor, Tensor]:
        L, alpha = ctx.saved_tensors
        g = grads[0]
        grad_Ky = torch.cholesky_inverse(L)
        scaled = (-0.5 * g).unsqueeze(-1) * alpha
        grad_Ky.mul_(-0.5 * g[..., None, None])
        grad_Ky.addcmul_(scaled.unsqueeze(-1), alpha.unsqueeze(-2), value=-1.0)
        return grad_Ky, -g.unsqueeze(-1) * alpha


def log_marginal_likelihood(Ky: Tensor, y: Tensor) -> Tensor:
    r"""Log density of ``y`` under a zero-mean Gaussian with covariance ``Ky``.

    ``-1/2 y' Ky^-1 y - 1/2 log|Ky| - N/2 log(2 pi)``; its derivative with respect to ``Ky`` is
    ``(alpha alpha' - Ky^-1) / 2`` with ``alpha = Ky^-1 y``.

    Parameters
    ----------
    Ky : Tensor [..., N, N]
    y : Tensor [..., N]

    Returns
    -------
    Tensor [...]

    Examples
    --------
    >>> one = torch.eye(1, dtype=torch.float64)
    >>> round(log_marginal_likelihood(one, torch.zeros(1, dtype=torch.float64)).item(), 4)
    -0.9189
    """
    value: Tensor = _LogLikelihood.apply(Ky, y)
    return value
