"""Copies: rows that agree bit by bit or nearly, and those that differ in a column or two only."""

from collections import Counter
from collections.abc import Sequence

import numpy as np
import torch
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


def equal_rows(X: Tensor) -> Tensor:
    """Label [N] of each row of a table [N, d], counting from 0; copies share one.

    Copies differ by at most :data:`TOLERANCE` of the deviation in every column, or are linked by
    copies.  Where rows are so dense that ten times the tolerance would link far more of them, only
    equal rows are copies.

    Examples
    --------
    >>> equal_rows(torch.tensor([[2.0, 1.0], [0.0, 1.0], [2.0, 1.0]])).tolist()
    [0, 1, 0]
    >>> equal_rows(torch.tensor([[2.0], [0.0], [2.0 + 1e-9]], dtype=torch.float64)).tolist()
    [0, 1, 0]
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
    >>> reach(np.array([[0.0, 5.0], [2.0, 5.0]])).tolist()
    [9.6e-07, 5e-12]
    """
    if not len(table):
        return np.full(table.shape[1], _LEAST_REACH)
    some = table
    if len(table) > _SAMPLED:
        some = table[np.random.default_rng(0).integers(len(table), size=_SAMPLED)]
    clipped = some.clip(*np.quantile(some, _QUANTILES, axis=0))
    digits = _DIGITS * np.abs(table).max(axis=0)
    return np.maximum(np.maximum(TOLERANCE * clipped.std(axis=0), digits), _LEAST_REACH)


class Nearest:
    """The row of a table that a point is a copy of.

    Examples
    --------
    >>> known = Nearest(torch.tensor([[0.0, 1.0], [2.0, 3.0]]).double())
    >>> known.find(torch.tensor([[2.0, 3.0 + 1e-9], [2.0, 4.0]]).double()).tolist()
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
