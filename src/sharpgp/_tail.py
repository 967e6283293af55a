"""The part of a predictive distribution beyond the outermost quantile that data support."""

import math
from dataclasses import dataclass
from typing import Self

import torch
from torch import Tensor


@dataclass(frozen=True)
class Tail:
    r"""Excess ``e >= 0`` over a node with ``P(excess > e) = (1 + e / (m tau))^-m``.

    That is a generalised Pareto law of shape ``1/m``; with infinite ``m`` it is exponential.  It is
    the predictive law of an exponential excess whose mean ``tau`` was estimated from ``m`` values.

    Parameters
    ----------
    scale : Tensor
        ``tau``, of any shape that fits what is asked.
    degrees : float
        ``m``, more than 2, so that mean and variance are finite.

    References
    ----------
    J. Pickands, "Statistical inference using extreme order statistics", Annals of Statistics, 1975.

    Examples
    --------
    >>> tail = Tail(torch.tensor(1.0, dtype=torch.float64), 4.0)
    >>> e = tail.excess(torch.tensor(0.01, dtype=torch.float64))
    >>> round(float(e), 3), round(float(tail.log_share(e).exp()), 3)
    (8.649, 0.01)
    """

    scale: Tensor
    degrees: float = math.inf

    def times(self, factor: Tensor) -> Self:
        """The same tail in other units."""
        return type(self)(self.scale * factor, self.degrees)

    def excess(self, share: Tensor) -> Tensor:
        """How far the tail reaches at which ``share`` in [0, 1] of its mass lies beyond."""
        lost = -torch.log(share)
        if math.isinf(self.degrees):
            return self.scale * lost
        return self.scale * self.degrees * torch.expm1(lost / self.degrees)

    def log_share(self, excess: Tensor) -> Tensor:
        """Logarithm of the share of the mass beyond ``excess``."""
        if math.isinf(self.degrees):
            return -excess / self.scale
        return -self.degrees * self._growth(excess)

    def log_density(self, excess: Tensor) -> Tensor:
        """Logarithm of the density at ``excess`` of a tail of mass 1."""
        steeper = 0.0 if math.isinf(self.degrees) else self._growth(excess)
        return self.log_share(excess) - steeper - self.scale.log()

    @property
    def mean(self) -> Tensor:
        """Mean excess."""
        return self.scale / (1.0 - 1.0 / self.degrees)

    @property
    def variance(self) -> Tensor:
        """Variance of the excess."""
        return self.mean.square() / (1.0 - 2.0 / self.degrees)

    def crps(self, excess: Tensor, mass: Tensor) -> Tensor:
        r"""Share of a tail of this mass in the CRPS of an observation at ``excess`` inside it.

        ``e - 2 mass int_0^e s + mass^2 int_0^inf s^2`` with the share ``s`` beyond each value.
        """
        if math.isinf(self.degrees):
            up_to = self.scale * -torch.expm1(self.log_share(excess))
        else:
            up_to = self.mean * -torch.expm1((1.0 - self.degrees) * self._growth(excess))
        return excess - 2.0 * mass * up_to + mass * mass * self.scale / (2.0 - 1.0 / self.degrees)

    def _growth(self, excess: Tensor) -> Tensor:
        return torch.log1p(excess / (self.degrees * self.scale))
