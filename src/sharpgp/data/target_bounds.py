"""Bounded targets: predictions are clipped, probability beyond a bound moves to the bound.

An interval, a quantile or a draw that leaves the bounds is moved to the nearest bound.  Intervals
are closed and targets stay within, so coverage does not change; widths and scores can only fall.
Probability beyond a bound becomes probability of the bound itself: counts that are zero, shares
that are one.

A value at which targets pile up, with none beyond, is taken for a bound unless the user says
otherwise.  Each of ``n + 1`` exchangeable targets is equally likely to be the only one beyond the
others, so this costs at most ``1 / (n + 1)`` of coverage.
"""

import math
import numbers
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor

from sharpgp._quantile_table import DistributionTable, QuantileTable
from sharpgp._stored import agree, stored
from sharpgp.distribution import PredictiveDistribution
from sharpgp.exceptions import InvalidInputError, warn

#: Targets pile up at the smallest (or largest) value if this share of them is equal to it.
PILE_SHARE = 0.05
# Fewer equal targets do not count as a pile.
_MIN_ROWS_PILE = 10
_EXPECTED = (
    "y_bounds: expected 'auto', None or (low, high), with low < high and None where there is no "
    "bound"
)


@stored("Bounds")
@dataclass(frozen=True)
class Bounds:
    """Smallest and largest possible target; None for no bound.

    ``assumed`` bounds come from the data, and are dropped when later data disagree.

    Examples
    --------
    >>> Bounds.from_pair((0, None)).clip(torch.tensor([-1.0, 2.0])).tolist()
    [0.0, 2.0]
    """

    low: float | None = None
    high: float | None = None
    assumed: bool = False

    @classmethod
    def from_pair(cls, y_bounds: Any) -> "Bounds | None":
        """From ``(low, high)``, either of which may be None; None without any."""
        if y_bounds is None:
            return None
        pair = isinstance(y_bounds, Sequence | np.ndarray) and not isinstance(y_bounds, str)
        if not pair or len(y_bounds) != 2 or not all(map(_is_end, y_bounds)):
            raise InvalidInputError(f"{_EXPECTED}, found {y_bounds!r}")
        low, high = (None if end is None or math.isinf(end) else float(end) for end in y_bounds)
        found = cls(low, high)
        if not found.least < found.most:
            raise InvalidInputError(f"{_EXPECTED}, found {y_bounds!r}")
        return None if low is None and high is None else found

    def _restored(self) -> None:
        agree("bounds in order", self.least < self.most, True)

    @property
    def least(self) -> float:
        """The smallest value, or minus infinity."""
        return -math.inf if self.low is None else self.low

    @property
    def most(self) -> float:
        """The largest value, or infinity."""
        return math.inf if self.high is None else self.high

    def clip(self, values: Tensor) -> Tensor:
        """Clip values to the bounds."""
        return values.clamp(self.least, self.most)

    def has_pile(self, y: Tensor) -> bool:
        """Whether many targets lie at a bound.

        Examples
        --------
        >>> y = torch.tensor([0.0] * 10 + [1.0, 2.0])
        >>> Bounds(low=0.0).has_pile(y), Bounds(low=-1.0).has_pile(y)
        (True, False)
        """
        # Targets that were transformed and brought back differ in their last digits.
        near = 1e-9 * float(y.abs().max())
        counts = [int(((y - end).abs() <= near).sum()) for end in (self.least, self.most)]
        return _is_pile(max(counts), len(y))

    def revise(self, y: np.ndarray) -> "Bounds | None":
        """Bounds revised by more targets: unchanged, or an error if they were given.

        Assumed bounds are dropped, with a warning, on the side where a target lies beyond.

        Examples
        --------
        >>> Bounds(low=0.0, assumed=True).revise(np.array([0.0, 3.0]))
        Bounds(low=0.0, high=None, assumed=True)
        >>> Bounds(low=0.0).revise(np.array([-1.0, 3.0]))
        Traceback (most recent call last):
        sharpgp.exceptions.InvalidInputError: y: expected targets within y_bounds, 0 to inf, ...
        """
        outside = y[(y < self.least) | (y > self.most)]
        if not outside.size:
            return self
        found = f"{outside.size} of {y.size} outside, such as {outside[0]:g}"
        if not self.assumed:
            raise InvalidInputError(
                f"y: expected targets within y_bounds, {self.least:g} to {self.most:g}, "
                f"found {found}"
            )
        warn(
            f"y: bounds of {self.least:g} to {self.most:g} were assumed, because targets pile up "
            f"there; {found}: predictions no longer keep to them",
            UserWarning,
        )
        low = None if y.min() < self.least else self.low
        high = None if y.max() > self.most else self.high
        return None if low is None and high is None else Bounds(low, high, assumed=True)


def bounds_for(y_bounds: Any, y: np.ndarray, *more: np.ndarray) -> Bounds | None:
    """Bounds as given, checked; ``"auto"``: values at which targets pile up.

    Examples
    --------
    >>> bounds_for((0, 1), np.array([0.5, 2.0]))
    Traceback (most recent call last):
    sharpgp.exceptions.InvalidInputError: y: expected targets within y_bounds, 0 to 1, found 1 ...
    """
    everything = np.concatenate([y, *more])
    if isinstance(y_bounds, str) and y_bounds == "auto":
        return assumed_bounds(everything)
    bounds = Bounds.from_pair(y_bounds)
    return None if bounds is None else bounds.revise(everything)


def assumed_bounds(y: np.ndarray) -> Bounds | None:
    """Bounds at which targets pile up, with none beyond, and a warning; or None.

    At least ten targets share such a value, and it has 5 % of all targets or is the most frequent
    one: values at the end of a distribution are rare unless something holds them there.

    Examples
    --------
    >>> import warnings
    >>> with warnings.catch_warnings(record=True) as caught:
    ...     warnings.simplefilter("always")
    ...     print(assumed_bounds(np.array([0.0] * 30 + list(range(1, 31)))))
    Bounds(low=0.0, high=None, assumed=True)
    >>> "y_bounds=(0, None)" in str(caught[0].message)
    True
    """
    values, counts = np.unique(y, return_counts=True)
    if len(values) == 1:  # checked elsewhere
        return None
    ends: list[float | None] = [None, None]
    for side, word in ((0, "smaller"), (-1, "larger")):
        edge, count = float(values[side]) or 0.0, int(counts[side])  # not -0
        most_frequent = count >= _MIN_ROWS_PILE and count == counts.max()
        if not (most_frequent or _is_pile(count, len(y))):
            continue
        ends[side] = edge
        pair = f"({edge:g}, None)" if side == 0 else f"(None, {edge:g})"
        warn(
            f"y: {count} of {len(y)} targets are {edge:g}, and none is {word}; predictions keep to "
            f"this bound, as with y_bounds={pair}; if targets can be {word}, use y_bounds=None",
            UserWarning,
        )
    return None if ends == [None, None] else Bounds(ends[0], ends[1], assumed=True)


def _is_pile(count: int, n: int) -> bool:
    return count >= max(_MIN_ROWS_PILE, PILE_SHARE * n)


def _is_end(end: Any) -> bool:
    return end is None or (isinstance(end, numbers.Real) and not math.isnan(end))


def bounds_of_output(y_bounds: Any, j: int, p: int) -> Any:
    """Bounds of output ``j`` of ``p``, from one for all outputs or one for each.

    Examples
    --------
    >>> (
    ...     bounds_of_output((0, None), 1, 2),
    ...     bounds_of_output([None, (0, 1)], 1, 2),
    ...     bounds_of_output("auto", 1, 2),
    ... )
    ((0, None), (0, 1), 'auto')
    """
    several = (isinstance(y_bounds, Sequence) and not isinstance(y_bounds, str)) and any(
        isinstance(one, Sequence | np.ndarray) for one in y_bounds
    )
    if not several:
        return y_bounds
    if len(y_bounds) != p:
        raise InvalidInputError(
            f"y_bounds: expected one pair, or one for each of {p} outputs, found {len(y_bounds)}"
        )
    return y_bounds[j]


class BoundedTable(DistributionTable):
    """The law of ``min(max(Y, low), high)`` for ``Y`` of a table; ``low`` and ``high`` [n, 1]."""

    def __init__(self, table: QuantileTable, bounds: Bounds) -> None:
        self._table, self._bounds = table, bounds
        self._low = (bounds.least - table.centre) / table.scale
        self._high = (bounds.most - table.centre) / table.scale

    def quantiles(self) -> Tensor:
        return self._bounds.clip(self._table.quantiles())

    def quantile(self, p: Tensor) -> Tensor:
        return self._bounds.clip(self._table.quantile(p))

    def interval_end(self, p: Tensor, *, up: bool) -> Tensor:
        return self._bounds.clip(self._table.closed(p, self.quantile(p), up=up))

    def mean(self) -> Tensor:
        return self._table.centre + self._table.scale * self._mean_u()

    def std(self) -> Tensor:
        """Probability at the bounds included."""
        table, m = self._table, self._mean_u()
        values, shares, widths = self._cells()
        inside = (shares * ((values - m).square() + widths.square() / 12)).sum(1, keepdim=True)
        below, low_mean, low_square = self._tail_moments(lower=True)
        above, high_mean, high_square = self._tail_moments(lower=False)
        tails = table.below * ((below - m).square() - 2 * (below - m) * low_mean + low_square)
        tails = tails + table.above * (
            (above - m).square() + 2 * (above - m) * high_mean + high_square
        )
        return table.scale * (inside + tails).clamp_min(0).sqrt()

    def cdf(self, y: Tensor) -> Tensor:
        """It jumps at the bounds."""
        share = torch.where(y < self._bounds.least, 0.0, self._table.cdf(y))
        return torch.where(y >= self._bounds.most, 1.0, share)

    def log_density(self, y: Tensor) -> Tensor:
        """At a bound the log probability."""
        found = self._table.log_density(y)
        low, high = self._bounds.least, self._bounds.most
        for bound, side, place in ((low, 0, self._low), (high, 1, self._high)):
            mass = self._table.shares(place)[side].clamp_min(torch.finfo(torch.float64).tiny)
            found = torch.where(y == bound, mass.log(), found)
        return torch.where((y < low) | (y > high), -math.inf, found)

    def crps(self, y: Tensor) -> Tensor:
        table, u = self._table, self._table.standardised(y)
        inside = self._clipped(u)
        below = table.area_below(inside) - table.area_below(self._low)
        above = table.area_above(inside) - table.area_above(self._high)
        area = below.clamp_min(0) + above.clamp_min(0) + (u - inside).abs()
        return table.scale * area

    def _mean_u(self) -> Tensor:
        values, shares, _ = self._cells()
        below, low_mean, _ = self._tail_moments(lower=True)
        above, high_mean, _ = self._tail_moments(lower=False)
        inside = (shares * values).sum(1, keepdim=True)
        lower = self._table.below * (below - low_mean)
        return inside + lower + self._table.above * (above + high_mean)

    def _cells(self) -> tuple[Tensor, Tensor, Tensor]:
        """Middles, probabilities and widths [n, 3 (K-1)] of the parts of cells.

        A cell has a part within the bounds, and perhaps one at either bound, without a width.
        """
        table = self._table
        left, right = table.u[:, :-1], table.u[:, :-1] + table.w
        at_low = ((self._low - left) / table.w).clamp(0, 1)
        at_high = ((right - self._high) / table.w).clamp(0, 1)
        left, right = self._clipped(left), self._clipped(right)
        values = [self._clipped(left), (left + right) / 2, self._clipped(right)]
        shares = [at_low, 1 - at_low - at_high, at_high]
        widths = [torch.zeros_like(left), right - left, torch.zeros_like(left)]
        shares = [table.dp * share for share in shares]
        return torch.cat(values, 1), torch.cat(shares, 1), torch.cat(widths, 1)

    def _tail_moments(self, *, lower: bool) -> tuple[Tensor, Tensor, Tensor]:
        """Start of a tail within the bounds; mean and mean square of its length."""
        table = self._table
        tail = table.lower if lower else table.upper
        node = table.u[:, :1] if lower else table.u[:, -1:]
        start = self._clipped(node)
        # A tail that starts beyond the far bound counts only once it is back within.
        back = (node - self._high if lower else self._low - node).clamp_min(0)
        end = back + (start - self._low if lower else self._high - start)
        mean = tail.mean_up_to(end) - tail.mean_up_to(back)
        square = tail.square_up_to(end) - tail.square_up_to(back) - 2 * back * mean
        return start, mean, square.clamp_min(0)

    def _clipped(self, u: Tensor) -> Tensor:
        return torch.maximum(torch.minimum(u, self._high), self._low)


class BoundedDistribution(PredictiveDistribution):
    r"""The law of ``min(max(Y, low), high)`` for ``Y`` of a given distribution.

    Quantiles are those of ``Y``, moved to the nearest bound; equal quantiles are probability at
    that bound, where the cdf jumps.  Mean, standard deviation and CRPS are exact.  The log density
    is the logarithm of a probability at a bound, and minus infinity beyond.

    Parameters
    ----------
    dist : PredictiveDistribution
    bounds : Bounds

    Examples
    --------
    >>> dist = PredictiveDistribution([0.25, 0.75], [[-1.0], [1.0]], numpy=True)
    >>> counts = BoundedDistribution(dist, Bounds(low=0.0))
    >>> counts.quantile([0.1, 0.4, 0.75]).tolist(), counts.cdf([0.0]).tolist()
    ([[0.0, 0.0, 1.0]], [0.5])
    >>> counts.mean.round(3), counts.crps([0.0]).round(4)
    (array([0.625]), array([0.1771]))
    """

    def __init__(self, dist: PredictiveDistribution, bounds: Bounds) -> None:
        vars(self).update(vars(dist))
        self._law = BoundedTable(self._table, bounds)
