"""The part of a predictive distribution beyond the outermost quantile that data support."""

import math
from dataclasses import dataclass
from typing import Self

import torch
from torch import Tensor

# This many scales beyond its node, an exponential tail underflows.
_BEYOND = 800.0


@dataclass(frozen=True)
class Tail:
    r"""Excess ``e >= 0`` over a node with ``P(excess > e) = (1 + e / (m tau))^-m``.

    That is a generalised Pareto law of shape ``1/m``; with infinite ``m`` it is exponential.  It is
    the predictive law of an exponential excess whose mean ``tau`` was estimated from ``m`` values.

    Parameters
    ----------
    scale : Tensor
        ``tau``, of any shape that broadcasts with the arguments.
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
        """Excess beyond which ``share`` in [0, 1] of the tail's mass lies."""
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

    def mean_up_to(self, cap: Tensor) -> Tensor:
        """Mean of the excess, cut off at ``cap``: the area below the share beyond each value."""
        if math.isinf(self.degrees):
            return self.scale * -torch.expm1(self.log_share(cap))
        return self.mean * -torch.expm1((1.0 - self.degrees) * self._growth(cap))

    def square_up_to(self, cap: Tensor) -> Tensor:
        """Mean square of the excess, cut off at ``cap``."""
        if math.isinf(self.degrees):
            ratio = (cap / self.scale).clamp(max=_BEYOND)
            return 2.0 * self.scale.square() * (1.0 - (1.0 + ratio) * torch.exp(-ratio))
        m, growth = self.degrees, self._growth(cap)
        first = -torch.expm1((1.0 - m) * growth) / (m - 1.0)
        second = -torch.expm1((2.0 - m) * growth) / (m - 2.0)
        return 2.0 * (m * self.scale).square() * (second - first)

    def area_beyond(self, excess: Tensor, mass: Tensor) -> Tensor:
        """Integral of the squared probability beyond, from ``excess`` on, for a tail of a mass."""
        if math.isinf(self.degrees):
            left = torch.exp(2.0 * self.log_share(excess))
        else:
            left = torch.exp((1.0 - 2.0 * self.degrees) * self._growth(excess))
        return mass * mass * left * self.scale / (2.0 - 1.0 / self.degrees)

    def area_before(self, excess: Tensor, mass: Tensor) -> Tensor:
        """Integral of the squared probability on this side, up to ``excess``."""
        beyond = self.area_beyond(torch.zeros_like(excess), mass) - self.area_beyond(excess, mass)
        return excess - 2.0 * mass * self.mean_up_to(excess) + beyond

    def _growth(self, excess: Tensor) -> Tensor:
        return torch.log1p(excess / (self.degrees * self.scale))
