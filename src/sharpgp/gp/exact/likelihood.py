"""The likelihood of an exact GP as training needs it: many times, on the same points."""

import math
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from sharpgp.gp.compute import MAX_ROWS_BATCHED
from sharpgp.gp.dense import cholesky
from sharpgp.gp.exact.in_blocks import likelihood_of
from sharpgp.gp.kernels.covariance import NOISE, Covariance
from sharpgp.gp.kernels.fixed_points import FixedPoints
from sharpgp.rows import Inputs, Rows


def likelihood_at(covariance: Covariance, rows: Inputs) -> Callable[[Tensor, Tensor], Tensor]:
    """The log marginal likelihood as a function of ``theta`` [P] and targets [N].

    See :func:`sharpgp.gp.dense.log_marginal_likelihood`; here value and gradient are computed
    together, in memory that is reused, so that two threads must not share one such function.

    Examples
    --------
    >>> from sharpgp.gp.kernels.covariance import Stationary
    >>> X = torch.linspace(0, 1, 5, dtype=torch.float64)[:, None]
    >>> likelihood = likelihood_at(Stationary("rbf", 1), X)
    >>> theta = torch.tensor([1.0, 1.0, 0.1], dtype=torch.float64)
    >>> round(likelihood(theta, X[:, 0]).item(), 3)
    -2.424
    """
    rows = Rows.of(rows)
    if len(rows) > MAX_ROWS_BATCHED:
        return lambda theta, y: likelihood_of(covariance, theta.unsqueeze(0), rows, y)[0]
    work = _Workspace(covariance.fix_points(rows.X), rows)
    return lambda theta, y: _Likelihood.apply(theta, y, work)


class _Workspace:
    """Memory for the likelihood of targets of rows [N]: one matrix, worked on in place."""

    def __init__(self, kernel: FixedPoints, rows: Rows) -> None:
        self._kernel, self._own_noise = kernel, rows.noise
        self._work = rows.X.new_empty(len(rows), len(rows))
        self._info = torch.zeros((), dtype=torch.int32, device=rows.device)

    def evaluate(self, theta: Tensor, y: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """The value, its gradient for ``theta`` [P], and ``Ky^-1 y`` [N]."""
        L, noise = self._factor(theta)
        white = torch.linalg.solve_triangular(L, y.unsqueeze(-1), upper=False)
        alpha = torch.linalg.solve_triangular(L.mT, white, upper=True).squeeze(-1)
        half_log_determinant = L.diagonal().log().sum()
        constant = 0.5 * len(y) * math.log(2.0 * math.pi)
        value = -0.5 * white.square().sum() - half_log_determinant - constant
        torch.cholesky_inverse(L, out=self._work.mT)
        inverse = self._work
        by_noise = 0.5 * (alpha @ alpha - inverse.diagonal().sum())
        # The part of Ky in sum_ij G_ij k_ij is known: 1/2 (y' Ky^-1 y - N).
        total = 0.5 * (alpha @ y - len(y)) - noise * by_noise
        if self._own_noise is not None:
            total -= 0.5 * (alpha.square() - inverse.diagonal()) @ self._own_noise
        gradient = self._kernel.contracted(inverse, alpha, total)
        gradient[NOISE] += by_noise
        return value, gradient, alpha

    def _factor(self, theta: Tensor) -> tuple[Tensor, Tensor]:
        """Cholesky factor of the covariance, and the noise with any jitter that it needed."""
        Ky = self._covariance(theta)
        # LAPACK works in place on columns: what is the upper triangle by rows is the lower one.
        # A GPU's libraries are given both triangles, in memory of their own.
        L = Ky.mT
        whole = L if L.device.type == "cpu" else _symmetric(Ky)
        torch.linalg.cholesky_ex(whole, out=(L, self._info))
        if int(self._info) == 0 and bool(torch.isfinite(L.diagonal()).all()):
            return L, theta[NOISE]
        L, jitter = cholesky(_symmetric(self._covariance(theta)))
        return L, theta[NOISE] + jitter

    def _covariance(self, theta: Tensor) -> Tensor:
        self._kernel.matrix(theta, self._work)
        self._work.diagonal().add_(theta[NOISE])
        if self._own_noise is not None:
            self._work.diagonal().add_(self._own_noise)
        return self._work


def _symmetric(upper: Tensor) -> Tensor:
    """The matrix whose upper triangle is given; what is below the diagonal does not count."""
    above = upper.triu(1)
    return (above + above.mT).diagonal_scatter(upper.diagonal())


class _Likelihood(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, theta: Tensor, y: Tensor, work: _Workspace) -> Tensor:
        value, gradient, alpha = work.evaluate(theta, y)
        ctx.save_for_backward(gradient, alpha)
        return value

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor, Tensor, None]:
        gradient, alpha = ctx.saved_tensors
        return grads[0] * gradient, -grads[0] * alpha, None
