r"""Titsias' bound of the log marginal likelihood, from sums over rows, and its gradient.

In the notation of :mod:`sharpgp.gp.sparse.whitening`, all that the bound needs from the rows is ``V
V'``, ``V y``, ``y'y`` and ``sum_i k_ii``.  Its gradient visits them once more: it is ``-inner`` for
``A`` and ``a / noise`` for ``Kmn y``, both whitened by ``L``.  Since both are sums, either pass may
be made in parts, on one machine or on many.
"""

import math
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from sharpgp.gp.kernels.covariance import NOISE
from sharpgp.gp.sparse.whitening import (
    Data,
    Factors,
    KernelGradient,
    congruent,
    factorise,
    inducing_covariance,
    solve,
    solve_transposed,
)


@dataclass(frozen=True)
class Targets:
    """Inputs of the bound besides the factors: ``N``, ``y'y`` and ``sum_i k_ii`` [K]."""

    n: int
    square: Tensor
    total: Tensor

    def bound(self, factors: Factors) -> Tensor:
        """Titsias' bound [K]."""
        noise = factors.noise
        half_log_determinant = factors.LB.diagonal(dim1=-2, dim2=-1).log().sum(-1)
        return (
            -half_log_determinant
            - 0.5 * self.n * (noise.log() + math.log(2.0 * math.pi))
            - 0.5 * self._misfit(factors)
            - 0.5 * (self.total / noise - _trace(factors))
        )

    def slope(self, factors: Factors, inner: Tensor) -> Tensor:
        """Derivative [K] of the bound by the noise, kernel values held fixed."""
        fitted = factors.c.square().sum(-1)
        return (
            (inner * factors.excess).sum((-1, -2))
            - 0.5 * self.n
            + 0.5 * self._misfit(factors)
            - 0.5 * fitted
            + 0.5 * (self.total / factors.noise - _trace(factors))
        ) / factors.noise

    def _misfit(self, factors: Factors) -> Tensor:
        return self.square / factors.noise - factors.c.square().sum(-1)


def _trace(factors: Factors) -> Tensor:
    return factors.excess.diagonal(dim1=-2, dim2=-1).sum(-1)


@dataclass(frozen=True)
class BoundGradient:
    """Quantities for each row's part of the gradient: ``inner`` [K, M, M], ``a`` [K, M, 1]."""

    factors: Factors
    inner: Tensor
    a: Tensor

    @classmethod
    def from_factors(cls, factors: Factors) -> "BoundGradient":
        """Computed from the factors of all rows."""
        c = factors.c
        identity = torch.eye(c.shape[-1], dtype=c.dtype, device=c.device)
        inner = 0.5 * congruent(factors.LB, identity + c.unsqueeze(-1) * c.unsqueeze(-2))
        return cls(factors, inner, solve_transposed(factors.LB, c.unsqueeze(-1)))

    def visit(self, pull: KernelGradient, data: Data, weight: Tensor) -> None:
        """Add the rows' part of the gradient, times ``weight`` [K], to ``pull``."""
        L, scale = self.factors.L, (weight / self.factors.noise)[:, None, None]

        def pulled(rows: slice) -> list[Tensor | None]:
            K, pull_back = pull.kernel(data.X[rows])
            V = solve(L, K)
            back = scale * (V - 2.0 * (self.inner @ V) + self.a * data.y[rows])
            return pull_back(solve_transposed(L, back))

        for parts in data.by_rows(pulled, len(weight), L.shape[-1]):
            pull.add(parts)

    def of_inducing(self) -> Tensor:
        """Gradient [K, M, M] for ``Kmm``."""
        identity = torch.eye(len(self.inner[0]), dtype=self.inner.dtype, device=self.inner.device)
        return congruent(self.factors.L, 0.5 * identity - self.inner - 0.5 * self.factors.excess)


class _Bound(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any, Kmm: Tensor, theta: Tensor, Z: Tensor, total: Tensor, data: Data
    ) -> Tensor:
        factors = factorise(data, theta, Z, Kmm)
        targets = Targets(len(data.y), data.y @ data.y, total.detach())
        ctx.save_for_backward(theta, Z)
        ctx.factors, ctx.targets, ctx.data = factors, targets, data
        return targets.bound(factors)

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor | None, ...]:
        g = grads[0]
        theta, Z = ctx.saved_tensors
        factors, data = ctx.factors, ctx.data
        gradient = BoundGradient.from_factors(factors)
        pull = KernelGradient(ctx.needs_input_grad[1:3], data.covariance, theta, Z)
        gradient.visit(pull, data, g)
        pull.theta[:, NOISE] += g * ctx.targets.slope(factors, gradient.inner)
        grad_Kmm = g[:, None, None] * gradient.of_inducing()
        return grad_Kmm, pull.theta, pull.Z, -0.5 * g / factors.noise, None


def variational_bound(data: Data, theta: Tensor, Z: Tensor) -> Tensor:
    r"""Titsias' lower bound [K] of the log marginal likelihood.

    ``log N(y; 0, Q + s I) - (sum_i k_ii - tr Q) / (2 s)``.

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
    >>> few, many = (float(variational_bound(data, theta, Z)) for Z in (X[::4], X))
    >>> few < many
    True
    """
    Kmm = inducing_covariance(data.covariance, theta, Z)
    total = data.covariance.diag(theta, data.X).sum(-1)
    bound: Tensor = _Bound.apply(Kmm, theta, Z, total, data)
    return bound
