"""Ranks of calibration scores: the N+1 rule, ties, weights, and which levels points support."""

import math

import torch
from torch import Tensor

from sharpgp._ranks import RANK_TOLERANCE, rank
from sharpgp._tail import Tail
from sharpgp.calibration.tails import check_enough, group_weights, pooled_tail

# An end is a calibration score; this much keeps rounding from excluding it and its ties.
_NUDGE = 1e-10

#: Coverage at which the bands of two rankings are compared.
COMPARED_COVERAGE = 0.9
#: Levels at which distributions are tabulated: every 0.05, denser in the tails.
DEFAULT_GRID = (
    *(0.005, 0.01, 0.025),
    *(round(0.05 * j, 2) for j in range(1, 20)),
    *(0.975, 0.99, 0.995),
)


class Ranks:
    r"""Sorted scores, each with its level.

    With weights ``w_j``, those of the ``j`` smallest scores summing to ``W_j``, and the mean weight
    ``w = sum w_j^2 / W`` of a test point, score ``j`` stands at the level
    ``(W_j + W_(j-1) + w) / (2 (W + w))``.  Equal weights are the same as none: the level is then
    ``j / (C + 1)``.

    With groups, and predictions for new groups, the points of a group share the weight of one
    point: ``w_i`` is divided by the size of its group, and a test point has the weight of a whole
    group.  ``W`` is then the number of groups, if there are no other weights.

    Parameters
    ----------
    scores : Tensor [C]
    weights : Tensor [C], optional
        Nonnegative; points with weight 0 do not count.
    groups : Tensor [C], optional
        Whole numbers, equal for points of one group.
    draw : float, optional
        In [0, 1): take the ``ceil(delta (C+1) - draw)``-th score instead of interpolating.
    upper_only : bool
        Whether only the largest scores have a tail.

    Attributes
    ----------
    z, level : Tensor [C]
        Sorted scores and their levels.
    n_effective : float
        ``W / w``: this many points of equal weight, each a group of its own, support the same
        levels.
    n : int
        The same as a whole number.

    Examples
    --------
    >>> ranks = Ranks(torch.tensor([3.0, 1.0, 2.0], dtype=torch.float64))
    >>> ranks.level.tolist(), ranks.n
    ([0.25, 0.5, 0.75], 3)
    >>> one = torch.ones(1, dtype=torch.float64)
    >>> [round(float(end), 6) for end in ranks.interval_ends(0.5, one)[:2]]
    [1.0, 3.0]
    >>> Ranks(ranks.z, groups=torch.tensor([0, 0, 1])).weights.tolist()
    [0.5, 0.5, 1.0]
    """

    def __init__(
        self,
        scores: Tensor,
        weights: Tensor | None = None,
        *,
        groups: Tensor | None = None,
        draw: float | None = None,
        upper_only: bool = False,
    ) -> None:
        weights = torch.ones_like(scores) if weights is None else weights / weights.max()
        order = scores.argsort()
        order = order[weights[order] > 0]
        self.z, own, self.draw = scores[order], weights[order], draw
        self.groups = torch.arange(len(order), device=order.device)
        if groups is not None:
            self.groups = groups[order].unique(return_inverse=True)[1]
        self.weights = own / self.groups.bincount()[self.groups]
        self.total = self.weights.sum()
        #: Weight of a typical test point, in units of the largest weight.
        typical = self.weights @ own / self.total
        self.n_effective = float(self.total / typical)
        self.n = max(1, math.floor(self.n_effective + 1e-9))
        mass = self.weights.cumsum(0)
        self.level = (2.0 * mass - self.weights + typical) / (2.0 * (self.total + typical))
        #: Levels where the tails begin; with groups, that of a whole group.
        self.ends_at = self.level[[0, -1]]
        self.grouped, self.upper_only = groups is not None, upper_only
        if self.grouped:
            self.ends_at = self.ends_at.clamp(1.0 / (self.n + 1), self.n / (self.n + 1))

    @property
    def tail(self) -> Tail:
        """What lies beyond the outermost scores, see :func:`pooled_tail`."""
        return pooled_tail(
            self.z,
            self.n,
            level=self.level,
            weights=self.weights,
            groups=self.groups,
            ends=self._between(self.z, self.ends_at),
            upper_only=self.upper_only,
        )

    def nodes(self) -> Tensor:
        """Levels [K] at which distributions are tabulated, see :func:`table_levels`."""
        return table_levels(self.n, None if self.grouped else self.level).to(self.z.device)

    def beta(self, delta: Tensor) -> Tensor:
        """Quantiles [K] of the scores at levels ``delta`` [K], beyond the scores from the tail.

        A little above the scores, so that ``P(z <= beta(j/(C+1))) >= j/(C+1)`` with ties, too.
        """
        z = self.z + self._slack(self.z)
        if self.draw is None:
            inside = self._between(z, delta.clamp(*self.ends_at))
        else:
            chosen = (rank(delta, len(z)) - self.draw).ceil().clamp(1, len(z)).long()
            inside = z[chosen - 1]
        return self._beyond(inside, delta)

    def table(self, delta: Tensor) -> Tensor:
        """Like :meth:`beta`, for the nodes of a distribution, whose intervals must contain ties.

        A node between two ranks becomes the outer one if that is a tie.
        """
        if self.draw is not None:
            return self.beta(delta)
        left, right, weight = self._cell(delta.clamp(*self.ends_at))
        outer = torch.where(delta < 0.5, left, right)
        tied = torch.zeros_like(self.z, dtype=torch.bool)
        equal = self.z.diff() == 0
        tied[1:] |= equal
        tied[:-1] |= equal
        between = torch.lerp(self.z[left], self.z[right], weight)
        inside = torch.where(tied[outer], self.z[outer], between)
        return self._beyond(inside, delta).cummax(0).values

    def interval_ends(self, coverage: float, weight: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Closed centred interval ``[z_(l), z_(u)]``, and whether both ends are scores, each [T].

        ``weight`` [T] are weights of test points, in units of the largest one.  With equal weights
        ``l = floor((1-c)/2 (C+1))`` and ``u = ceil((1+c)/2 (C+1))``.  Without such a score, the end
        comes from the tail.
        """
        levels = centred_levels(coverage)
        upper, backed = self._step(self.z, self.weights, levels[1], weight)
        lower, _ = self._step(-self.z.flip(0), self.weights.flip(0), levels[1], weight)
        lower = -lower
        if not bool(backed.all()):
            low, high = self.beta(self.level.new_tensor(levels))
            lower = torch.where(backed, lower, torch.minimum(lower, low))
            upper = torch.where(backed, upper, torch.maximum(upper, high))
        return lower, upper, backed

    def radius(self, coverage: float, weight: Tensor) -> tuple[Tensor, Tensor]:
        """Radius ``|z|_(k)`` of the symmetric band, and whether it is a score, each [T].

        With equal weights ``k = ceil(c (C+1))``.  Beyond, the farther end of the centred interval.
        """
        size, order = self.z.abs().sort()
        radius, backed = self._step(size, self.weights[order], coverage, weight)
        if not bool(backed.all()):
            lower, upper, _ = self.interval_ends(coverage, weight)
            radius = torch.where(backed, radius, torch.maximum(-lower, upper))
        return radius, backed

    def centred_supported(self, coverage: float, weight: Tensor) -> Tensor:
        """Whether there are enough points for two tails [T].

        By ``(W + w)^2 / (sum w_g^2 + w^2) - 1 >= 2/(1-c) - 1`` with the weights ``w_g`` of points
        or groups, in which all ``C + 1`` weights enter alike, so that this choice preserves the
        coverage.
        """
        squares = group_weights(self.weights, self.groups).square().sum() + weight.square()
        worth = (self.total + weight).square() / squares
        return worth * (1.0 - coverage) / 2.0 >= 1.0 - RANK_TOLERANCE

    def _step(
        self, z: Tensor, weights: Tensor, level: float, weight: Tensor
    ) -> tuple[Tensor, Tensor]:
        """Smallest of sorted ``z`` with ``level`` of the mass up to it, and whether it exists.

        The mass ``weight`` of the test point itself lies at infinity.
        """
        needed = (level - RANK_TOLERANCE) * (self.total + weight)
        index = torch.searchsorted(weights.cumsum(0), needed)
        found = z[index.clamp(max=len(z) - 1)]
        return found + self._slack(found), index < len(z)

    def _slack(self, z: Tensor) -> Tensor:
        return _NUDGE * torch.maximum(z.abs(), 1e-3 * self.z.abs().mean())

    def _between(self, z: Tensor, delta: Tensor) -> Tensor:
        left, right, weight = self._cell(delta)
        return torch.lerp(z[left], z[right], weight)

    def _cell(self, delta: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        last = len(self.level) - 1
        right = torch.searchsorted(self.level, delta.contiguous()).clamp(max=last)
        left = (right - 1).clamp(min=0)
        width = self.level[right] - self.level[left]
        share = (delta - self.level[left]) / torch.where(width > 0, width, 1.0)
        return left, right, torch.where(width > 0, share.clamp(0.0, 1.0), 0.0)

    def _beyond(self, inside: Tensor, delta: Tensor) -> Tensor:
        first, last = self.ends_at
        if bool(((delta >= first) & (delta <= last)).all()):
            return inside
        tail = self.tail
        below = tail.excess((delta / first).clamp(max=1.0))
        above = tail.excess(((1.0 - delta) / (1.0 - last)).clamp(max=1.0))
        return inside - below + above


class GroupRanks(Ranks):
    """Ranks of groups of equal weight, without a guarantee: bands end at levels of the sizes.

    The rule with a guarantee puts the mass of a whole group at infinity.  Of twelve groups it takes
    the largest of all sizes at 92 %, and beyond this the farther of two tails.  Here the band is
    the quantile of absolute scores, and beyond the groups it continues with their tail.

    Examples
    --------
    >>> z, groups = torch.linspace(-1, 1, 120).double(), torch.arange(120) % 12
    >>> one = torch.ones(1, dtype=torch.float64)
    >>> [
    ...     round(float(kind(z, groups=groups).radius(0.9, one)[0]), 2)
    ...     for kind in (Ranks, GroupRanks)
    ... ]
    [0.98, 0.94]
    """

    def radius(self, coverage: float, weight: Tensor) -> tuple[Tensor, Tensor]:
        sizes = Ranks(self.z.abs(), groups=self.groups, upper_only=True)
        first, last = sizes.ends_at
        backed = torch.full_like(weight, coverage <= float(last) + RANK_TOLERANCE, dtype=torch.bool)
        return sizes.beta(first.clamp(min=coverage)[None]).expand_as(weight), backed


class WiderRanks(Ranks):
    """Two rankings of scores; the wider one gives the ends, at every coverage.

    The ranking with the wider band at :data:`COMPARED_COVERAGE` gives everything else.  Weights of
    test points are in units of the largest one of the first ranking, ``unit`` times that in units
    of the second.

    Examples
    --------
    >>> one, other = Ranks(torch.arange(20.0).double()), Ranks(torch.arange(40.0).double())
    >>> WiderRanks(one, other).n
    40
    """

    def __init__(self, one: Ranks, other: Ranks, unit: float = 1.0) -> None:
        self.both = ((one, 1.0), (other, unit))
        test = one.z.new_ones(1)
        radii = [float(ranks.radius(COMPARED_COVERAGE, test)[0]) for ranks in (one, other)]
        vars(self).update(vars(one if radii[0] >= radii[1] else other))

    def interval_ends(self, coverage: float, weight: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        found = [ranks.interval_ends(coverage, weight * unit) for ranks, unit in self.both]
        (low, high, backed), (lower, upper, also) = found
        return torch.minimum(lower, low), torch.maximum(upper, high), backed & also

    def radius(self, coverage: float, weight: Tensor) -> tuple[Tensor, Tensor]:
        found = [ranks.radius(coverage, weight * unit) for ranks, unit in self.both]
        (radius, backed), (other, also) = found
        return torch.maximum(radius, other), backed & also

    def centred_supported(self, coverage: float, weight: Tensor) -> Tensor:
        ours, others = (
            ranks.centred_supported(coverage, weight * unit) for ranks, unit in self.both
        )
        return ours & others


def centred_levels(coverage: float) -> tuple[float, float]:
    """Levels of the two ends of a centred interval.

    Examples
    --------
    >>> centred_levels(0.5)
    (0.25, 0.75)
    """
    # Close to 1, the upper level would round to 1, where quantiles are infinite.
    return (1.0 - coverage) / 2.0, min((1.0 + coverage) / 2.0, math.nextafter(1.0, 0.0))


def table_levels(n_scores: int | None, level: Tensor | None = None) -> Tensor:
    """Levels at which a predictive distribution is tabulated.

    Neighbours are at least two ranks apart, so that no density is read off a single gap between two
    scores.  The outermost two ranks on each side, and the grid's levels between them, are added, so
    that the distribution has the quantiles of the scores there.

    Parameters
    ----------
    n_scores : int or None
        Number of points ``C``; None for the grid alone.
    level : Tensor [C], optional
        Levels of the scores, where they are not ``j/(C+1)``.

    Examples
    --------
    >>> [round(p, 2) for p in table_levels(19)[:4].tolist()]
    [0.05, 0.1, 0.2, 0.3]
    """
    grid = torch.tensor(DEFAULT_GRID, dtype=torch.float64)
    if n_scores is None:
        return grid
    check_enough(n_scores)
    if level is None:
        level = torch.arange(1, n_scores + 1, dtype=torch.float64) / (n_scores + 1)
    gap = 2.0 / (n_scores + 1)
    inner = thinned(grid[(grid > gap - 1e-12) & (grid <= 0.5)], gap)
    if len(inner) == 0 or inner[0] == 0.5:
        outer = inner = inner[:0]  # too few scores for a grid
    else:
        outer = grid[grid < inner[0]]
    half = torch.cat([outer, inner])
    ranks = torch.cat([level[:2][level[:2] <= 0.5], level[-2:][level[-2:] >= 0.5]]).cpu()
    ends = level[[0, -1]].cpu()
    every = torch.cat([ends, ranks, half, 1.0 - half]).unique()
    every = every[(every >= ends[0]) & (every <= ends[1])]
    apart = torch.cat([every.new_ones(1), every.diff()]) > 1e-9
    return every[apart]


def thinned(grid: Tensor, gap: float) -> Tensor:
    """Drop increasing levels that are closer than ``gap`` to the one before.

    Examples
    --------
    >>> thinned(torch.tensor([0.1, 0.2, 0.3, 0.5]), 0.15).tolist()
    [0.1, 0.3, 0.5]
    """
    kept: list[float] = []
    for value in grid.tolist():
        if not kept or value - kept[-1] > gap - 1e-12:
            kept.append(value)
    return torch.tensor(kept, dtype=torch.float64)
