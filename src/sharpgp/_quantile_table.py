"""The law behind a predictive distribution: a table of quantiles, linear between, with tails.

Everything is computed in row units ``u = (y - centre) / scale``, so that neither the unit of the
target nor a large offset costs precision, and so that squares cannot overflow.
"""

from abc import ABC, abstractmethod

import torch
from torch import Tensor

from sharpgp._tail import Tail

EPS = torch.finfo(torch.float64).eps
END_SLACK = 1e-10  # of a row's half range
LEVEL_TOLERANCE = 1e-12  # (1 - 0.9) / 2 is not 0.05 in floating point
MIN_SPREAD = 1e-6  # ties are spread out until the density is at most 1 / MIN_SPREAD in row units


class DistributionTable(ABC):
    """Answers of a distribution of ``n`` points, in the user's units, on checked tensors."""

    @abstractmethod
    def quantiles(self) -> Tensor:
        """Quantiles [n, K] of the table."""

    @abstractmethod
    def mean(self) -> Tensor:
        """Expected value [n, 1]."""

    @abstractmethod
    def std(self) -> Tensor:
        """Standard deviation [n, 1]."""

    @abstractmethod
    def quantile(self, p: Tensor) -> Tensor:
        """Quantiles [n, k] at ``p``, [1, k] shared by the points or [n, k]."""

    @abstractmethod
    def interval_end(self, p: Tensor, *, up: bool) -> Tensor:
        """Ends [n, k] of closed intervals at ``p`` [1, k]: quantiles, moved out of ties."""

    @abstractmethod
    def cdf(self, y: Tensor) -> Tensor:
        """Probability [n, 1] up to ``y`` [n, 1]."""

    @abstractmethod
    def log_density(self, y: Tensor) -> Tensor:
        """Log density [n, 1] at ``y`` [n, 1]."""

    @abstractmethod
    def crps(self, y: Tensor) -> Tensor:
        """Continuous ranked probability score [n, 1] of ``y`` [n, 1]."""


class QuantileTable(DistributionTable):
    """Quantiles ``q`` [K, n] at levels ``p`` [K], and tails beyond.

    Members whose names end in ``_u``, and what takes ``u``, are in row units.

    Parameters
    ----------
    p : Tensor [K]
        Strictly increasing in (0, 1).
    q : Tensor [K, n]
        Finite; crossing ones are replaced by their running maximum over the levels.
    tail : Tail, optional
        With a scale [n] on both sides, or [2, n]; else exponential tails continue the outermost
        density.
    """

    def __init__(self, p: Tensor, q: Tensor, tail: Tail | None = None) -> None:
        self.p = p
        q = torch.cummax(q, dim=0).values.T.contiguous()
        self.centre, self.scale, min_spread = _row_units(q.detach())

        self.u = _separate((q - self.centre) / self.scale, min_spread * self.p)
        self.dp = self.p.diff()
        # The maximum matters only for levels so close that rounding swallows their distance.
        self.w = torch.maximum(self.u.diff(dim=1), min_spread * self.dp)

        self.below, self.above = self.p[0], 1 - self.p[-1]  # probability in either tail
        if tail is not None:
            # Tied scores give a tail without width; it gets the width of a tie.
            below, above = tail.scale.expand(2, -1).unsqueeze(-1)
            self.lower, self.upper = (
                Tail(torch.maximum(each / self.scale, min_spread), tail.degrees)
                for each in (below, above)
            )
        else:
            self.lower, self.upper = self._continued(min_spread)
        self._tied = self.w <= 2 * min_spread * self.dp

    def _continued(self, min_spread: Tensor) -> tuple[Tail, Tail]:
        """Exponential tails that continue the density of the first cell that has a width."""
        rise = self.p - self.p[0]
        first = _first_wide(self.w, self.dp, min_spread)
        fall = self.p[-1] - self.p
        last = len(fall) - 1 - _first_wide(self.w.flip(1), self.dp.flip(0), min_spread)
        return (
            Tail(self.below * (self.u.gather(1, first) - self.u[:, :1]) / rise[first]),
            Tail(self.above * (self.u[:, -1:] - self.u.gather(1, last)) / fall[last]),
        )

    def __len__(self) -> int:
        return len(self.u)

    def standardised(self, y: Tensor) -> Tensor:
        """Values [n, 1] in row units."""
        return (y - self.centre) / self.scale

    # -------------------------------------------------------------- answers

    def quantiles(self) -> Tensor:
        return self.centre + self.scale * self.u

    def mean(self) -> Tensor:
        return self.centre + self.scale * self._mean_u()

    def std(self) -> Tensor:
        m = self._mean_u()
        middle = (self.u[:, 1:] + self.u[:, :-1]) / 2
        below = (self.u[:, :1] - self.lower.mean - m).square() + self.lower.variance
        above = (self.u[:, -1:] + self.upper.mean - m).square() + self.upper.variance
        inside = ((middle - m).square() + self.w.square() / 12) @ self.dp[:, None]
        variance = self.below * below + inside + self.above * above
        return self.scale * variance.sqrt()

    def quantile(self, p: Tensor) -> Tensor:
        k = (torch.searchsorted(self.p, p, right=True) - 1).clamp(0, len(self.dp) - 1)
        t = ((p - self.p[k]) / self.dp[k]).clamp(0, 1)
        k = k.expand(len(self), -1)
        inside = self.u.gather(1, k) + t * self.w.gather(1, k)
        # Rounding must not carry a quantile past the next node: quantiles never cross.
        inside = torch.minimum(inside, self.u.gather(1, k + 1))
        below = self.lower.excess((p / self.below).clamp_max(1))
        above = self.upper.excess(((1 - p) / self.above).clamp_max(1))
        return self.centre + self.scale * (inside - below + above)

    def interval_end(self, p: Tensor, *, up: bool) -> Tensor:
        return self.closed(p, self.quantile(p), up=up)

    def closed(self, p: Tensor, ends: Tensor, *, up: bool) -> Tensor:
        """Ends [n, k] at ``p`` [1, k], moved out of ties and by rounding: intervals are closed."""
        k = (torch.searchsorted(self.p, p, right=True) - 1).clamp(0, len(self.dp) - 1)
        left, right = ((p - self.p[i]).abs() <= LEVEL_TOLERANCE for i in (k, k + 1))
        node = torch.where(right, k + 1, k).expand(len(self), -1)
        inside = (p > self.p[0]) & (p < self.p[-1])
        at = left | right | (inside & self._tied.gather(1, k.expand(len(self), -1)))
        end = self.u.gather(1, _run_ends(self._tied, up=up).gather(1, node))
        ends = torch.where(at, self.centre + self.scale * end, ends)
        # A value at an end counts as inside, whatever the rounding.
        slack = END_SLACK * self.scale + 16 * EPS * ends.abs()
        return ends + slack if up else ends - slack

    def cdf(self, y: Tensor) -> Tensor:
        return self.shares(self.standardised(y))[0]

    def log_density(self, y: Tensor) -> Tensor:
        u = self.standardised(y)
        k = self._cell(u)
        f = (self.dp[k] / self.w.gather(1, k)).log()
        below, above = self._excess(u)
        f = torch.where(below > 0, self.below.log() + self.lower.log_density(below), f)
        f = torch.where(above > 0, self.above.log() + self.upper.log_density(above), f)
        return f - self.scale.log()

    def crps(self, y: Tensor) -> Tensor:
        """In every cell ``F`` is linear."""
        u = self.standardised(y)
        return self.scale * (self.area_below(u) + self.area_above(u))

    # -------------------------------------------------------------- in row units

    def shares(self, u: Tensor) -> tuple[Tensor, Tensor]:
        """Probability [n, 1] up to ``u``, and beyond it, each precise where it is small."""
        k = self._cell(u)
        t = ((u - self.u.gather(1, k)) / self.w.gather(1, k)).clamp(0, 1)
        inside = self.p[k] + self.dp[k] * t
        below, above = self._excess(u)
        left = inside * self.lower.log_share(below).exp()
        right = (1 - inside) * self.upper.log_share(above).exp()
        return torch.where(above > 0, 1 - right, left), torch.where(below > 0, 1 - left, right)

    def area_below(self, u: Tensor) -> Tensor:
        """Integral [n, 1] of ``F^2`` up to ``u``."""
        left, v = self._part(u)
        below, above = self._excess(u)
        inside = (left * _cone(self.p[:-1], v)).sum(1, keepdim=True)
        tails = self.lower.area_beyond(below, self.below)
        return inside + tails + self.upper.area_before(above, self.above)

    def area_above(self, u: Tensor) -> Tensor:
        """Integral [n, 1] of ``(1 - F)^2`` from ``u`` on."""
        left, v = self._part(u)
        below, above = self._excess(u)
        inside = ((self.w - left) * _cone(1 - v, 1 - self.p[1:])).sum(1, keepdim=True)
        tails = self.upper.area_beyond(above, self.above)
        return inside + tails + self.lower.area_before(below, self.below)

    def _part(self, u: Tensor) -> tuple[Tensor, Tensor]:
        """How much of each cell lies up to ``u``, and ``F`` where that ends, both [n, K-1]."""
        left = torch.minimum((u - self.u[:, :-1]).clamp_min(0), self.w)
        return left, self.p[:-1] + self.dp * left / self.w

    def _mean_u(self) -> Tensor:
        middle = (self.u[:, 1:] + self.u[:, :-1]) / 2
        below = self.below * (self.u[:, :1] - self.lower.mean)
        above = self.above * (self.u[:, -1:] + self.upper.mean)
        return below + middle @ self.dp[:, None] + above

    def _cell(self, u: Tensor) -> Tensor:
        k = torch.searchsorted(self.u.detach(), u.detach(), right=True) - 1
        return k.clamp(0, len(self.dp) - 1)

    def _excess(self, u: Tensor) -> tuple[Tensor, Tensor]:
        """How far ``u`` lies below the first and above the last node, zero otherwise."""
        return (self.u[:, :1] - u).clamp_min(0), (u - self.u[:, -1:]).clamp_min(0)


def _row_units(q: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Centre, scale and smallest spread of the rows of ``q`` [n, K], each [n, 1].

    Values carry a rounding error of ``EPS * magnitude``, which moves probabilities by that over
    the spread of a tie. With a large offset the spread therefore grows to the geometric mean of
    rounding error and scale, where it distorts no more than rounding does.
    """
    K = q.shape[1]
    centre = q[:, (K - 1) // 2, None] / 2 + q[:, K // 2, None] / 2
    magnitude = q.abs().amax(dim=1, keepdim=True)
    scale = q[:, -1:] / 2 - q[:, :1] / 2
    own_value = torch.where(magnitude > 0, magnitude, torch.ones_like(magnitude))
    scale = torch.where(scale > 32 * EPS * magnitude, scale, own_value)
    return centre, scale, (EPS * (magnitude / scale)).sqrt().clamp_min(MIN_SPREAD)


def _separate(u: Tensor, floor: Tensor) -> Tensor:
    """Move nodes as little as needed for ``diff(u) >= diff(floor)``, both sides sharing the move.

    ``u - floor`` has to be nondecreasing; the running maximum from the left and the running
    minimum from the right both achieve it, and so does their mean, which is odd in ``u``.
    """
    t = u - floor
    up = torch.cummax(t, dim=1).values
    down = torch.cummin(t.flip(1), dim=1).values.flip(1)
    return (up + down) / 2 + floor


def _first_wide(w: Tensor, dp: Tensor, min_spread: Tensor) -> Tensor:
    """End node of the first cell that is wider than a spread-out tie, [n, 1]; 1 without any."""
    return (w > 2 * min_spread * dp).byte().argmax(dim=1, keepdim=True) + 1


def _run_ends(tied: Tensor, *, up: bool) -> Tensor:
    """First (or last) node of the run of tied cells [n, K-1] that each node [n, K] belongs to."""
    if up:
        return tied.shape[1] - _run_ends(tied.flip(1), up=False).flip(1)
    nodes = torch.arange(tied.shape[1] + 1, device=tied.device).expand(len(tied), -1)
    starts = torch.cat([torch.zeros_like(tied[:, :1]), tied], dim=1).logical_not()
    return torch.where(starts, nodes, 0).cummax(1).values


def _cone(a: Tensor, b: Tensor) -> Tensor:
    """Mean square of a linear function between its end values ``a`` and ``b``."""
    return (a * a + a * b + b * b) / 3
