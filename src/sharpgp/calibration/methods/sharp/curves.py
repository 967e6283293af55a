"""Monotone curves ``beta(delta)`` and ``theta(delta)`` through the trained levels."""

from dataclasses import dataclass

import torch
from torch import Tensor

from sharpgp._stored import Array, agree, stored

#: Between two knots: a line, or a cubic that is monotone wherever the knots are.
INTERPOLATIONS = ("linear", "cubic")

# A quantile goes through a calibration point itself; this much of a z-score keeps rounding from
# excluding the point.
_NUDGE = 1e-10


@stored(
    "Curves",
    delta=Array("K", positive=True, increasing=True),
    beta=Array("K"),
    theta=Array("K P", positive=True),
    interpolation=str,
)
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

    delta: Tensor
    beta: Tensor
    theta: Tensor
    interpolation: str = "linear"

    @classmethod
    def through(
        cls, delta: Tensor, beta: Tensor, theta: Tensor, interpolation: str = "linear"
    ) -> "Curves":
        """Curves through trained levels, with a knot at ``delta_0`` where ``theta`` is least.

        Where the line between the last negative and the first positive ``beta`` is 0, ``theta``
        is the smaller of its two neighbours, entry by entry.
        """
        beta = beta + _NUDGE * torch.maximum(beta.abs(), 1e-3 * beta.abs().mean())
        beta = beta.cummax(0).values  # ties that rounding put out of order
        below = int((beta < 0).sum())
        if 0 < below < len(beta) and beta[below] > 0:
            share = -beta[below - 1] / (beta[below] - beta[below - 1])
            zero = torch.lerp(delta[below - 1], delta[below], share)
            least = torch.minimum(theta[below - 1], theta[below])
            delta = torch.cat([delta[:below], zero[None], delta[below:]])
            beta = torch.cat([beta[:below], torch.zeros_like(zero)[None], beta[below:]])
            theta = torch.cat([theta[:below], least[None], theta[below:]])
        return cls(delta, beta, theta, interpolation)

    def _restored(self) -> None:
        agree("levels below 1", bool(self.delta[-1] < 1), True)
        agree("increasing beta", bool((self.beta.diff() >= 0).all()), True)
        agree("known interpolation", self.interpolation in INTERPOLATIONS, True)

    def beta_at(self, delta: Tensor) -> Tensor:
        """``beta`` at the levels ``delta`` [k], constant beyond the outermost knots."""
        return self._at(self.beta.unsqueeze(-1), delta).squeeze(-1)

    def theta_at(self, delta: Tensor) -> Tensor:
        """``theta`` [k, P] at the levels ``delta`` [k], constant beyond the outermost knots."""
        return self._at(self.theta, delta)

    def _at(self, values: Tensor, delta: Tensor) -> Tensor:
        left, right, weight = self._cell(delta)
        t = weight.unsqueeze(-1)
        line = torch.lerp(values[left], values[right], t)
        if self.interpolation == "linear" or len(values) < 3:
            return line
        slopes = monotone_slopes(self.delta, values)
        step = (self.delta[right] - self.delta[left]).unsqueeze(-1)
        secant = values[right] - values[left]
        first, last = slopes[left] * step - secant, secant - slopes[right] * step
        return line + t * (1.0 - t) * ((1.0 - t) * first + t * last)

    def _cell(self, delta: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        last = len(self.delta) - 1
        right = torch.searchsorted(self.delta, delta.contiguous()).clamp(max=last)
        left = (right - 1).clamp(min=0)
        width = self.delta[right] - self.delta[left]
        share = (delta - self.delta[left]) / torch.where(width > 0, width, 1.0)
        return left, right, torch.where(width > 0, share.clamp(0.0, 1.0), 0.0)


def monotone_slopes(x: Tensor, values: Tensor) -> Tensor:
    """Slopes [K, P] of a cubic interpolant of ``values`` [K, P] at its knots ``x`` [K >= 3].

    Inside, the weighted harmonic mean of the neighbouring secants, or 0 where these differ in sign;
    the interpolant is then monotone between knots and has no extremum but at knots (Fritsch and
    Butland, 1984).

    Examples
    --------
    >>> x = torch.tensor([0.0, 1.0, 2.0])
    >>> monotone_slopes(x, torch.tensor([[0.0], [1.0], [1.0]])).squeeze(-1).tolist()
    [1.5, 0.0, 0.0]
    """
    h = x.diff().unsqueeze(-1).clamp_min(torch.finfo(x.dtype).tiny)
    secant = values.diff(dim=0) / h
    before, after = secant[:-1], secant[1:]
    same = before * after > 0
    w1, w2 = 2.0 * h[1:] + h[:-1], h[1:] + 2.0 * h[:-1]
    one = torch.ones_like(before)
    mean = (w1 + w2) / (w1 / torch.where(same, before, one) + w2 / torch.where(same, after, one))
    inside = torch.where(same, mean, 0.0)
    ends = [_end_slope(h[i], h[j], secant[i], secant[j]) for i, j in ((0, 1), (-1, -2))]
    return torch.cat([ends[0].unsqueeze(0), inside, ends[1].unsqueeze(0)])


def _end_slope(h: Tensor, next_h: Tensor, secant: Tensor, next_secant: Tensor) -> Tensor:
    """Three-point slope at an end, bounded so that the first cell stays monotone."""
    slope = ((2.0 * h + next_h) * secant - h * next_secant) / (h + next_h)
    slope = torch.where(slope * secant > 0, slope, 0.0)
    steep = (secant * next_secant <= 0) & (slope.abs() > 3.0 * secant.abs())
    return torch.where(steep, 3.0 * secant, slope)
