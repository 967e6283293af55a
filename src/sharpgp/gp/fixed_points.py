"""A kernel on fixed points: covariances and gradients for one ``theta`` after another.

Training evaluates them hundreds of times.  At a few hundred points, allocating memory for every
result and recording operations for autograd cost as much as the algebra.  So what does not depend
on ``theta`` is computed once, and every result is written to the same memory.
"""

from abc import ABC, abstractmethod
from collections.abc import Callable

import torch
from torch import Tensor


class FixedPoints(ABC):
    """``k(theta, X, X)`` for fixed ``X`` [N, d], for one caller at a time."""

    @abstractmethod
    def matrix(self, theta: Tensor) -> Tensor:
        """Covariances [N, N] under ``theta`` [P]; the next call overwrites them."""

    @abstractmethod
    def contracted(self, G: Tensor) -> Tensor:
        """Gradient [P] of ``sum_ij G_ij k_ij`` at the last ``theta``; ``G`` [N, N] symmetric."""


class ByAutograd(FixedPoints):
    """Any differentiable function from ``theta`` [1, P] to covariances [1, N, N].

    Examples
    --------
    >>> two = ByAutograd(lambda theta: theta[:, :1, None] ** 2 * torch.ones(1, 2, 2))
    >>> two.matrix(torch.tensor([3.0])).tolist()
    [[9.0, 9.0], [9.0, 9.0]]
    >>> two.contracted(torch.eye(2)).tolist()
    [12.0]
    """

    def __init__(self, function: Callable[[Tensor], Tensor]) -> None:
        self._function = function

    def matrix(self, theta: Tensor) -> Tensor:
        """See :meth:`FixedPoints.matrix`."""
        self._leaf = theta.detach().unsqueeze(0).requires_grad_()
        with torch.enable_grad():
            self._K = self._function(self._leaf)
        return self._K.detach()[0]

    def contracted(self, G: Tensor) -> Tensor:
        """See :meth:`FixedPoints.contracted`."""
        (found,) = torch.autograd.grad(self._K, self._leaf, G.unsqueeze(0))
        return found[0]
