"""Copies: rows that agree bit by bit or nearly, and those that differ in a column or two only."""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Self

import numpy as np
import torch
from scipy.sparse import coo_matrix
from scipy.sparse.csgraph import connected_components
from scipy.spatial import cKDTree
from torch import Tensor

#: Copies differ by at most this share of each column's deviation.
TOLERANCE = 1e-6
# Values beyond these quantiles do not count for the deviation: one outlier would make all other
# values equal.
_QUANTILES = 0.02, 0.98
# Values that agree in so many digits are equal, whatever the deviation.
_DIGITS, _LEAST_REACH = 1e-12, 1e-200
# Copies are told from rows that are merely dense by what ten times the tolerance would add.
_WIDER, _MOST_ADDED = 10.0, 2
# A sample of so many rows gives the deviations.
_SAMPLED = 5000
# Random combinations of columns that tell most rows apart, and their rounding error.
_COMBINATIONS, _COMBINED_ERROR = 3, 1e-3

# Hidden copies: at least so many pairs, this share of the pairs that agree elsewhere, and so many
# times the share of other pairs.
_LEAST_PAIRS, _LEAST_SHARE, _FAR_MORE = 5, 0.2, 100.0
# From this share on, the columns that differ say nothing about the target.
_NEARLY_ALL = 0.95
# Targets that more rows share are no sign of copies; and as many sets of columns are looked at.
_MOST_TIED, _MOST_SETS = 50, 5


def equal_rows(X: Tensor) -> Tensor:
    """Label [N] of each row of a table [N, d], counting from 0; copies share one.

    Copies differ by at most :data:`TOLERANCE` of the deviation in every column, or are linked by
    copies.  Where rows are so dense that ten times the tolerance would link far more of them, only
    equal rows are copies.

    Examples
    --------
    >>> equal_rows(torch.tensor([[2.0, 1.0], [0.0, 1.0], [2.0, 1.0]])).tolist()
    [0, 1, 0]
    >>> equal_rows(torch.from_numpy(np.array([[2.0], [0], [2 + 1e-9], [1], [4]]))).tolist()
    [0, 1, 0, 2, 3]
    """
    table = _table(X)
    place = _identical(table)
    first = np.unique(place, return_index=True)[1]
    distinct = table if len(first) == len(table) else table[first]
    labels = _linked(distinct, reach(distinct))
    n_linked = int((labels != np.arange(len(labels))).sum())
    if n_linked:
        wider = _linked(distinct, _WIDER * reach(distinct))
        if (wider != np.arange(len(wider))).sum() <= _MOST_ADDED * n_linked:
            place = labels[place]
    elif distinct is table:
        return torch.arange(len(table))
    return torch.from_numpy(_in_order(place))


def reach(table: np.ndarray) -> np.ndarray:
    """How much copies may differ in each column (d,) of a table (n, d).

    Examples
    --------
    >>> reach(np.array([[0.0, 5.0], [1.0, 5.0], [-1.0, 5.0], [1e9, 5.0]])).tolist()
    [5e-07, 5e-12]
    """
    if not len(table):
        return np.full(table.shape[1], _LEAST_REACH)
    some = table
    if len(table) > _SAMPLED:
        some = table[np.random.default_rng(0).integers(len(table), size=_SAMPLED)]
    low = np.quantile(some, _QUANTILES[0], axis=0, method="higher")
    high = np.quantile(some, _QUANTILES[1], axis=0, method="lower")
    clipped = some.clip(low, np.maximum(low, high))
    digits = _DIGITS * np.abs(clipped).max(axis=0)
    return np.maximum(np.maximum(TOLERANCE * clipped.std(axis=0), digits), _LEAST_REACH)


class Nearest:
    """The row of a table that a point is a copy of.

    Examples
    --------
    >>> known = Nearest(torch.tensor([[0.0], [2.0], [3.0], [5.0]]).double())
    >>> known.find(torch.tensor([[2.0], [4.0]]).double() + 1e-9).tolist()
    [1, -1]
    """

    def __init__(self, X: Tensor) -> None:
        table = _table(X)
        self._reach = reach(table)
        self._tree = cKDTree(table / self._reach)

    def find(self, X: Tensor) -> Tensor:
        """Number [T] of the row, -1 without one."""
        away, index = self._tree.query(
            _table(X) / self._reach, p=np.inf, distance_upper_bound=1.0 + 1e-9
        )
        return torch.from_numpy(np.where(np.isfinite(away), index, -1)).to(X.device)


def _linked(table: np.ndarray, reach: np.ndarray) -> np.ndarray:
    """Label (n,) of each of some different rows: chains of rows that agree within ``reach`` (d,).

    Rows are split by random combinations of their columns first, which sets nearly all of them
    apart, and then by columns as far as a chain is too wide.
    """
    out, rows, labels = np.arange(len(table)), np.arange(len(table)), np.zeros(len(table), int)
    n_combined = min(_COMBINATIONS, table.shape[1])
    for w in np.random.default_rng(0).uniform(0.5, 1.5, (n_combined, table.shape[1])):
        combined = table[rows] @ (w / w.sum() / reach)
        rows, labels = _split(rows, labels, combined, 1.0 + _COMBINED_ERROR)
    n_before = -1
    while len(rows) and n_before != len(rows):
        n_before = len(rows)
        for column, gap in zip(table.T, reach, strict=True):
            if not len(rows):
                break
            wide = _is_wide(column[rows], labels, gap)
            if wide.any():
                split, own = _split(rows[wide], labels[wide], column[rows[wide]], gap)
                rows = np.concatenate([rows[~wide], split])
                labels = np.concatenate([labels[~wide], own + labels.max() + 1])
    if len(rows):
        _, first, place = np.unique(labels, return_index=True, return_inverse=True)
        out[rows] = rows[first][place]
    return out


def _split(
    rows: np.ndarray, labels: np.ndarray, values: np.ndarray, gap: float
) -> tuple[np.ndarray, np.ndarray]:
    """Split labels where sorted values are more than ``gap`` apart; labels of one row are left."""
    order = np.lexsort((values, labels)) if labels.any() else values.argsort(kind="stable")
    apart = (np.diff(values[order]) > gap) | (np.diff(labels[order]) != 0)
    own = np.concatenate([[0], np.cumsum(apart)]) if len(rows) else labels
    several = np.bincount(own)[own] > 1
    return rows[order][several], own[several]


def _is_wide(values: np.ndarray, labels: np.ndarray, gap: float) -> np.ndarray:
    """Which rows (n,) have a label whose values are not all within ``gap``."""
    _, place = np.unique(labels, return_inverse=True)
    low, high = np.full(place.max() + 1, np.inf), np.full(place.max() + 1, -np.inf)
    np.minimum.at(low, place, values)
    np.maximum.at(high, place, values)
    return np.asarray((high - low > gap)[place])


def _in_order(labels: np.ndarray) -> np.ndarray:
    """Labels (n,) renumbered from 0 in order of first occurrence."""
    _, first, place = np.unique(labels, return_index=True, return_inverse=True)
    return np.asarray(first.argsort().argsort()[place])


def _table(X: Tensor) -> np.ndarray:
    return X.detach().cpu().double().numpy() + 0.0  # turns -0 into 0


def _identical(table: np.ndarray) -> np.ndarray:
    """Label (n,) of each row; rows share one if they are equal bit by bit."""
    words = np.ascontiguousarray(table).view(np.uint64)
    mixed = _mixed(words)
    ordered = np.sort(mixed)
    if (ordered[1:] != ordered[:-1]).all():
        return np.arange(len(words))
    _, first, place = np.unique(mixed, return_index=True, return_inverse=True)
    if not np.array_equal(words[first[place]], words):  # two rows with one hash
        return np.unique(words, axis=0, return_inverse=True)[1].reshape(-1)
    return place


def _mixed(words: np.ndarray) -> np.ndarray:
    """Hash (n,) of each row of ``words`` (n, d)."""
    mixed = np.zeros(len(words), dtype=np.uint64)
    for column in words.T:
        mixed = (mixed ^ column) * np.uint64(0x9E3779B97F4A7C15)
        mixed ^= mixed >> np.uint64(29)
    return mixed


@dataclass(frozen=True)
class HiddenCopies:
    """Rows that are copies but for a column or two.

    Attributes
    ----------
    units : array (n,)
        Whole numbers; copies share one.
    columns : list of tuple of int
        What copies differ in: one or two columns each.
    always : bool
        Whether rows that agree in all other columns (nearly) always have the same target, so that
        one of them says as much as all.
    """

    units: np.ndarray
    columns: list[tuple[int, ...]]
    always: bool

    @classmethod
    def find(cls, X: np.ndarray, y: np.ndarray, columns: Sequence[Sequence[int]]) -> Self:
        """Look for them in a table ``X`` (n, d), ``y`` (n,), where ``columns`` are its features.

        Where the target is continuous, its equal values are copies almost surely.  A column, or
        two, hides copies if rows that differ there alone have equal targets in a fifth of all
        cases, and far more often than other rows do.

        Examples
        --------
        >>> rng = np.random.default_rng(0)
        >>> X, y = rng.normal(size=(40, 2)).repeat(2, axis=0), rng.normal(size=40).repeat(2)
        >>> found = HiddenCopies.find(np.c_[X, np.arange(80)], y, [[0], [1], [2]])
        >>> found.columns, found.always, len(set(found.units.tolist()))
        ([(2,)], True, 40)
        """
        units, found, shares = np.arange(len(y)), [], []
        targets = _identical(y[:, None] + 0.0)
        features = [equal_rows(torch.from_numpy(X[:, list(one)])).numpy() for one in columns]
        same, same_both = _pairs(features), _pairs([*features, targets])
        n_pairs, n_tied = len(y) * (len(y) - 1) / 2, _pairs([targets])
        for few, _ in _differing(np.stack(features, 1), targets).most_common(_MOST_SETS):
            rest = [own for j, own in enumerate(features) if j not in few]
            agree, both = _pairs(rest) - same, _pairs([*rest, targets]) - same_both
            others = (n_tied - both - same_both) / max(n_pairs - agree - same, 1.0)
            share = both / max(agree, 1.0)
            own = _together([*rest, targets])
            # As many targets as pairs: two classes of a label are no copies, whatever their rows.
            inside = np.unique(np.stack([own, _together(features)], 1), axis=0)[:, 0]
            many = len(np.unique(targets[(np.bincount(inside) > 1)[own]])) >= _LEAST_PAIRS
            if many and both >= _LEAST_PAIRS and share >= max(_LEAST_SHARE, _FAR_MORE * others):
                units = _connected(units, own)
                found.append(few)
                shares.append(share)
        return cls(units, found, min(shares, default=0.0) >= _NEARLY_ALL)


def _differing(by_column: np.ndarray, targets: np.ndarray) -> Counter[tuple[int, ...]]:
    """How often neighbours with equal targets differ in just one or two columns, and which."""
    few: Counter[tuple[int, ...]] = Counter()
    size = np.bincount(targets)[targets]
    rows = np.flatnonzero((size > 1) & (size <= _MOST_TIED))
    rows = rows[np.argsort(targets[rows], kind="stable")]
    for apart in range(1, _MOST_TIED):
        one, other = rows[:-apart], rows[apart:]
        tied = targets[one] == targets[other]
        if not tied.any():
            break
        differs = by_column[one[tied]] != by_column[other[tied]]
        n_differing = differs.sum(axis=1)
        some = differs[(n_differing > 0) & (n_differing <= min(2, differs.shape[1] - 1))]
        few.update(tuple(np.flatnonzero(row).tolist()) for row in some)
    return few


def _together(labels: Sequence[np.ndarray]) -> np.ndarray:
    """Label (n,) of rows that agree in all ``labels``."""
    return _identical(np.stack(labels, 1).astype(np.float64))


def _pairs(labels: Sequence[np.ndarray]) -> float:
    """Number of pairs of rows that agree in all ``labels``."""
    count = np.bincount(_together(labels)).astype(np.float64)
    return float((count * (count - 1)).sum() / 2)


def _connected(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    """Label (n,) of rows that are connected through equal ``a`` or ``b``."""
    n_a, n_b = int(a.max()) + 1, int(b.max()) + 1
    links = coo_matrix((np.ones(len(a)), (a, n_a + b)), shape=(n_a + n_b, n_a + n_b))
    return np.asarray(connected_components(links, directed=False)[1][a])
