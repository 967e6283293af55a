"""Ways to part the test points: by width, columns, gaps, order, distance from the training data."""

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.spatial import cKDTree
from scipy.stats import spearmanr

from sharpgp.diagnostics.own_columns import MIN_POINTS_PER_GROUP, Floats, OwnColumn, texts_of
from sharpgp.metrics.conditional import bins_of_equal_count

#: Columns of which pairs are examined together: those that predictions depend on most.
_MAX_PAIRED = 6
#: Patterns of gaps shown and judged one by one, beside complete rows and all others together.
_MAX_PATTERNS = 3
#: Inputs nearer than this share of a column's deviation to a training row are known.
_SAME_INPUT = 1e-6
#: Widths are about equal where the 90 % quantile is below this multiple of the 10 % quantile.
EQUAL_WIDTHS = 1.02
#: Names of groupings that are no columns.
ROWS, WIDTH, GAPS, DISTANCE = "row", "width", "gaps", "distance from training"


@dataclass(frozen=True)
class Grouping:
    """The test points in parts.

    Attributes
    ----------
    kind : str
        "width", "column", "row", "gaps", "distance", "outside", "known" or "pair".
    name : str
        Of the column, or what else the points are parted by.
    part : array of shape (n,)
        Part of each point; -1 for points that no part holds.
    says : tuple of str
        Each part in words.
    ends : list of list of two str
        For figures: from where to where a part reaches; twice the name of a category.
    trend : array of shape (n,), optional
        Values whose ranks give a trend along the parts.
    named : bool
        Whether parts have names instead of ends.
    """

    kind: str
    name: str
    part: NDArray[np.int64]
    says: tuple[str, ...]
    ends: list[list[str]]
    trend: Floats | None = None
    named: bool = False

    def inside(self, j: int) -> NDArray[np.bool_]:
        """Which points part ``j`` holds."""
        return np.asarray(self.part == j)


def groupings(found: Any) -> tuple[Grouping, ...]:
    """Every way to part the points of a ``Diagnostics``; those of the figures first."""
    out = [by_width(found.upper[:, found.first] - found.lower[:, found.first])]
    out += [of_column(column) for column in found.columns]
    rows = OwnColumn(ROWS, found.row.astype(np.float64))
    which, edges = bins_of_equal_count(rows.values, 5)
    ends = [
        [f"{found.row[which == j].min():,}", f"{found.row[which == j].max():,}"]
        for j in range(len(edges) - 1)
    ]
    says = tuple(f"rows {first} to {last}" for first, last in ends)
    sorted_by_target = abs(_rank_correlation(rows.values, found.y)) > 0.95
    trend = None if sorted_by_target else rows.values
    part = np.full(len(which), -1) if sorted_by_target else which
    out.append(Grouping("row", ROWS, part, says, ends, trend))
    out += [*_gaps(found), *_from_training(found), *_pairs(found)]
    return tuple(out)


def by_width(width: Floats) -> Grouping:
    """Fifths from the narrowest to the widest intervals; one part if all are about equally wide.

    Examples
    --------
    >>> by_width(np.arange(10.0)).says[0]
    'the narrowest fifth of the intervals'
    """
    narrow, wide = np.quantile(width, [0.1, 0.9])
    which, edges = bins_of_equal_count(width, 1 if wide <= EQUAL_WIDTHS * narrow else 5)
    texts, k = texts_of(edges), len(edges) - 1
    says = [f"intervals of width {low} to {high}" for low, high in pairwise(texts)]
    if k == 5:
        says[0], says[-1] = (f"the {end} fifth of the intervals" for end in ("narrowest", "widest"))
    ends = [texts[i : i + 2] for i in range(k)]
    return Grouping("width", WIDTH, which, tuple(says), ends, width)


def of_column(column: OwnColumn) -> Grouping:
    """Fifths of a column of numbers or dates; the categories of others."""
    if column.labels:
        says = tuple(f"{column.name} = {label}" for label in column.labels)
        ends = [[label] * 2 for label in column.labels]
        return Grouping("column", column.name, column.values.astype(int), says, ends, named=True)
    which, edges = bins_of_equal_count(column.values, 5)
    texts = texts_of(edges, dates=column.dates)
    ends = [texts[i : i + 2] for i in range(len(edges) - 1)]
    says = tuple(f"{column.name} {low} to {high}" for low, high in ends)
    return Grouping("column", column.name, which, says, ends, column.values)


def _gaps(found: Any) -> Iterator[Grouping]:
    """Points by the columns that they lack."""
    if found.gaps is None or not any(found.gaps):
        return
    often = [
        gap for gap, n in Counter(found.gaps).most_common() if gap and n >= MIN_POINTS_PER_GROUP
    ][:_MAX_PATTERNS]
    names = ["", *often]
    part = np.array([names.index(gap) if gap in names else len(names) for gap in found.gaps])
    rare = ["others"] if (part == len(names)).any() else []
    short = [_brief(gap) for gap in often]
    ends = [[text] * 2 for text in ("complete", *short, *rare)]
    says = (
        "rows without gaps",
        *(f"rows without {gap}" for gap in short),
        *(["rows with rare gaps"] if rare else []),
    )
    yield Grouping("gaps", GAPS, part, says, ends, named=True)


def _brief(gap: str) -> str:
    first, *others = gap.split(", ")
    return gap if len(others) < 2 else f"{first} and {len(others)} more"


def _from_training(found: Any) -> Iterator[Grouping]:
    """Points by their distance from the training rows, and those outside of a column's range."""
    if not found.columns_in_training or found.X_train is None:
        return
    scale = found.X_train.std(axis=0)
    scale[scale == 0] = 1.0
    away = cKDTree(found.X_train / scale).query(found.X / scale)[0]
    known = away < _SAME_INPUT
    if MIN_POINTS_PER_GROUP <= known.sum() <= len(known) - MIN_POINTS_PER_GROUP:
        both = ("points whose inputs training knows", "points whose inputs are new")
        yield Grouping(
            "known", "inputs", np.where(known, 0, 1), both, [["known"] * 2, ["new"] * 2], named=True
        )
    which, edges = bins_of_equal_count(away, 5)
    texts, k = texts_of(edges), len(edges) - 1
    if k > 1:
        names = [
            "nearest to",
            *(f"at distances {texts[i]} to {texts[i + 1]} from" for i in range(1, k - 1)),
            "farthest from",
        ]
        says = tuple(f"the points {name} the training rows" for name in names)
        yield Grouping(
            "distance", DISTANCE, which, says, [texts[i : i + 2] for i in range(k)], away
        )
    for old, new in zip(found.columns_in_training, found.columns, strict=True):
        if old.labels:
            continue
        outside = outside_range(old, new)
        if outside.sum() >= MIN_POINTS_PER_GROUP:
            low, high = texts_of(np.array([old.values.min(), old.values.max()]), dates=old.dates)
            place = (f"{new.name} outside of its range in training ({low} to {high})",)
            yield Grouping(
                "outside", new.name, np.where(outside, 0, -1), place, [[low, high]], named=True
            )


def outside_range(old: OwnColumn, new: OwnColumn) -> NDArray[np.bool_]:
    """Which values of a column lie outside of those in training, beyond rounding."""
    low, high = float(old.values.min()), float(old.values.max())
    slack = 1e-9 * max(high - low, abs(low), abs(high))  # units and back change the last digits
    return np.asarray((new.values < low - slack) | (new.values > high + slack))


def _pairs(found: Any) -> Iterator[Grouping]:
    """Quarters by two columns: above and below the median of each."""
    relevant = list(found.relevant) or [column.name for column in found.columns]
    numeric = {column.name: column for column in found.columns if not column.labels}
    chosen = [numeric[name] for name in relevant if name in numeric][:_MAX_PAIRED]
    for i, a in enumerate(chosen):
        for b in chosen[:i]:
            middles = [np.median(column.values) for column in (a, b)]
            above = [column.values > m for column, m in zip((a, b), middles, strict=True)]
            texts = [
                texts_of(np.array([m]), dates=column.dates)[0]
                for column, m in zip((a, b), middles, strict=True)
            ]
            says = tuple(
                f"{a.name} {'above' if j & 1 else 'up to'} {texts[0]} and "
                f"{b.name} {'above' if j & 2 else 'up to'} {texts[1]}"
                for j in range(4)
            )
            name, ends = f"{a.name} and {b.name}", [[s] * 2 for s in says]
            yield Grouping("pair", name, above[0] + 2 * above[1], says, ends, named=True)


def _rank_correlation(a: Floats, b: Floats) -> float:
    return float(spearmanr(a, b).statistic) if min(np.ptp(a), np.ptp(b)) > 0 else 0.0
