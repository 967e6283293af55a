"""A kernel on fixed points: covariances and gradients for one ``theta`` after another.

Training evaluates them hundreds of times.  At a few hundred points, allocating memory for every
result and recording operations for autograd cost as much as the algebra; at a thousand, so do
passes through whole matrices.  So what does not depend on ``theta`` is computed once, every result
is written to the same memory, and of symmetric matrices only the upper triangle counts.
"""

from abc import ABC, abstractmethod
from collections.abc import Callable

import torch
from torch import Tensor


class FixedPoints(ABC):
    """``k(theta, X, X)`` for fixed ``X`` [N, d], for one caller at a time."""

    _own: Tensor | None = None

    @abstractmethod
    def matrix(self, theta: Tensor, out: Tensor) -> None:
        """Write covariances under ``theta`` [P] to the upper triangle of ``out`` [N, N]."""

    @abstractmethod
    def contracted(self, inverse: Tensor, alpha: Tensor, total: Tensor) -> Tensor:
        """Gradient [P] of ``sum_ij G_ij k_ij`` at the last ``theta``.

        ``G = (alpha alpha' - inverse) / 2``, with a symmetric ``inverse`` [N, N] and ``alpha`` [N],
        is that of a likelihood; ``total`` is the sum itself, which is known without one.
        """

    def add_to(self, theta: Tensor, out: Tensor) -> None:
        """Add what :meth:`matrix` writes to the upper triangle of ``out``, as a part of a sum."""
        if self._own is None:
            self._own = torch.zeros_like(out)
        self.matrix(theta, self._own)
        out.add_(self._own)

    def contracted_alone(self, inverse: Tensor, alpha: Tensor) -> tuple[Tensor, Tensor]:
        """What :meth:`contracted` returns for what was added last, and its ``total``."""
        assert self._own is not None
        upper, on = self._own.triu_(), self._own.diagonal()
        by_alpha = 2.0 * alpha @ (upper @ alpha) - alpha.square() @ on
        products = torch.vdot(upper.view(-1), inverse.reshape(-1))
        total = 0.5 * (by_alpha - 2.0 * products + on @ inverse.diagonal())
        return self.contracted(inverse, alpha, total), total


def by_covariance(inverse: Tensor, alpha: Tensor) -> Tensor:
    """Gradient [N, N] of a log likelihood by its covariance: ``(alpha alpha' - inverse) / 2``.

    Examples
    --------
    >>> by_covariance(torch.eye(2), torch.tensor([1.0, 2.0])).tolist()
    [[0.0, 1.0], [1.0, 1.5]]
    """
    return torch.addr(inverse, alpha, alpha, beta=-0.5, alpha=0.5)


class ByAutograd(FixedPoints):
    """Any differentiable function from ``theta`` [1, P] to covariances [1, N, N].

    Examples
    --------
    >>> two = ByAutograd(lambda theta: theta[:, :1, None] ** 2 * torch.ones(1, 2, 2))
    >>> K = torch.empty(2, 2)
    >>> two.matrix(torch.tensor([3.0]), K)
    >>> K.tolist()
    [[9.0, 9.0], [9.0, 9.0]]
    >>> two.contracted(-2 * torch.eye(2), torch.zeros(2), K.trace()).tolist()
    [12.0]
    """

    def __init__(self, function: Callable[[Tensor], Tensor]) -> None:
        self._function = function

    def matrix(self, theta: Tensor, out: Tensor) -> None:
        self._leaf = theta.detach().unsqueeze(0).requires_grad_()
        with torch.enable_grad():
            self._K = self._function(self._leaf)
        out.copy_(self._K.detach()[0])

    def contracted(self, inverse: Tensor, alpha: Tensor, total: Tensor) -> Tensor:
        G = by_covariance(inverse, alpha)
        (found,) = torch.autograd.grad(self._K, self._leaf, G.unsqueeze(0))
        return found[0]
