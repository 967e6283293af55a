"""Monotone curves ``beta(delta)`` and ``theta(delta)`` through the trained levels."""

from dataclasses import dataclass
from typing import Annotated

import torch
from torch import Tensor

from sharpgp._stored import Array, agree, stored

# A quantile goes through a calibration point itself; this much of a z-score keeps rounding from
# excluding the point.
_NUDGE = 1e-10


@stored("Curves")
@dataclass(frozen=True)
class Curves:
    """Knots ``delta`` [K] (increasing), ``beta`` [K] (nondecreasing) and ``theta`` [K, P].

    Examples
    --------
    >>> delta = torch.tensor([0.2, 0.8], dtype=torch.float64)
    >>> beta = torch.tensor([-1.0, 1.0], dtype=torch.float64)
    >>> theta = torch.tensor([[2.0], [4.0]], dtype=torch.float64)
    >>> curves = Curves.through(delta, beta, theta)
    >>> curves.theta_at(torch.tensor([0.5], dtype=torch.float64)).item()
    2.0
    >>> round(curves.beta_at(torch.tensor([0.65], dtype=torch.float64)).item(), 6)
    0.5
    """

    delta: Annotated[Tensor, Array("K", positive=True, increasing=True)]
    beta: Annotated[Tensor, Array("K")]
    theta: Annotated[Tensor, Array("K P", positive=True)]

    @classmethod
    def through(cls, delta: Tensor, beta: Tensor, theta: Tensor) -> "Curves":
        """Curves through trained levels, with a knot at ``delta_0`` where ``theta`` is least.

        Where the line between the last negative and the first positive ``beta`` is 0, ``theta``
        is the smaller of its two neighbours, entry by entry.
        """
        beta = beta + _NUDGE * torch.maximum(beta.abs(), 1e-3 * beta.abs().mean())
        beta = beta.cummax(0).values  # rounding may put ties out of order
        below = int((beta < 0).sum())
        if 0 < below < len(beta) and beta[below] > 0:
            share = -beta[below - 1] / (beta[below] - beta[below - 1])
            zero = torch.lerp(delta[below - 1], delta[below], share)
            least = torch.minimum(theta[below - 1], theta[below])
            delta = torch.cat([delta[:below], zero[None], delta[below:]])
            beta = torch.cat([beta[:below], torch.zeros_like(zero)[None], beta[below:]])
            theta = torch.cat([theta[:below], least[None], theta[below:]])
        return cls(delta, beta, theta)

    def _restored(self) -> None:
        agree("levels below 1", bool(self.delta[-1] < 1), True)
        agree("increasing beta", bool((self.beta.diff() >= 0).all()), True)

    def beta_at(self, delta: Tensor) -> Tensor:
        """``beta`` at the levels ``delta`` [k], constant beyond the outermost knots."""
        return self._at(self.beta.unsqueeze(-1), delta).squeeze(-1)

    def theta_at(self, delta: Tensor) -> Tensor:
        """``theta`` [k, P] at the levels ``delta`` [k], constant beyond the outermost knots."""
        return self._at(self.theta, delta)

    def _at(self, values: Tensor, delta: Tensor) -> Tensor:
        left, right, weight = self._cell(delta)
        return torch.lerp(values[left], values[right], weight.unsqueeze(-1))

    def _cell(self, delta: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        last = len(self.delta) - 1
        right = torch.searchsorted(self.delta, delta.contiguous()).clamp(max=last)
        left = (right - 1).clamp(min=0)
        width = self.delta[right] - self.delta[left]
        share = (delta - self.delta[left]) / torch.where(width > 0, width, 1.0)
        return left, right, torch.where(width > 0, share.clamp(0.0, 1.0), 0.0)
