"""The likelihood of an exact GP as training needs it: many times, on the same points."""

import math
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from sharpgp.gp.covariance import Covariance
from sharpgp.gp.dense import cholesky
from sharpgp.gp.fixed_points import FixedPoints
from sharpgp.gp.inplace import likelihood_of
from sharpgp.gp.sizes import MOST_BATCHED


def likelihood_at(covariance: Covariance, X: Tensor) -> Callable[[Tensor, Tensor], Tensor]:
    """The log marginal likelihood as a function of ``theta`` [P] and targets [N].

    See :func:`sharpgp.gp.dense.log_marginal_likelihood`; here value and gradient are computed
    together, in memory that is reused, so that two threads must not share one such function.

    Examples
    --------
    >>> from sharpgp.gp.covariance import Stationary
    >>> X = torch.linspace(0, 1, 5, dtype=torch.float64)[:, None]
    >>> likelihood = likelihood_at(Stationary("rbf", 1), X)
    >>> theta = torch.tensor([1.0, 1.0, 0.1], dtype=torch.float64)
    >>> round(likelihood(theta, X[:, 0]).item(), 3)
    -2.424
    """
    if len(X) > MOST_BATCHED:
        return lambda theta, y: likelihood_of(covariance, theta.unsqueeze(0), X, y)[0]
    work = _Workspace(covariance.at(X), X)
    return lambda theta, y: _Likelihood.apply(theta, y, work)


class _Workspace:
    """Memory for the likelihood of targets at ``X`` [N, d]."""

    def __init__(self, kernel: FixedPoints, X: Tensor) -> None:
        self._kernel = kernel
        n = len(X)
        # LAPACK works on columns, and the kernels on rows; of symmetric matrices both are the same.
        self._Ky, self._L, self._Ki = (X.new_empty(n, n) for _ in range(3))
        self._info = torch.zeros((), dtype=torch.int32, device=X.device)

    def evaluate(self, theta: Tensor, y: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """The value, its gradient for ``theta`` [P], and ``Ky^-1 y`` [N]."""
        Ky = self._Ky.copy_(self._kernel.matrix(theta))
        Ky.diagonal().add_(theta[-1])
        L = self._L.mT
        torch.linalg.cholesky_ex(Ky.mT, out=(L, self._info))
        if int(self._info) != 0 or not bool(torch.isfinite(L.diagonal()).all()):
            L, _ = cholesky(Ky)
        white = torch.linalg.solve_triangular(L, y.unsqueeze(-1), upper=False)
        alpha = torch.linalg.solve_triangular(L.mT, white, upper=True).squeeze(-1)
        half_log_determinant = L.diagonal().log().sum()
        constant = 0.5 * len(y) * math.log(2.0 * math.pi)
        value = -0.5 * white.square().sum() - half_log_determinant - constant
        torch.cholesky_inverse(L, out=self._Ki.mT)
        G = self._Ki.mul_(-0.5).addr_(alpha, alpha, alpha=0.5)
        gradient = self._kernel.contracted(G)
        gradient[-1] += G.diagonal().sum()
        return value, gradient, alpha


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
