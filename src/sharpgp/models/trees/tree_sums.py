"""Sums of many small trees, quickly: which leaf a row ends in as a matter of bits."""

from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from sharpgp._stored import ABSENT, agree, stored
from sharpgp.gp.compute import in_order
from sharpgp.models.trees.arrays import TreeArrays

Floats = NDArray[np.float64]
Whole = NDArray[np.int64]
Bits = NDArray[np.uint32]
# Leaves of a tree that fit into the bits of a number.
_MOST_LEAVES = 32
# Rows of a block, whose numbers stay in the cache of a core.
_BLOCK = 8192
# A product with it has another number, the place of the bit, in its first five bits for each power
# of two (a de Bruijn sequence).
_DE_BRUIJN = np.uint32(0x077CB531)
_FIRST_FIVE = np.uint32(27)


@stored("SummedTrees", trees=TreeArrays, baseline=float, transient={"_tables": ABSENT})
class SummedTrees:
    r"""``baseline`` and the values of the leaves of ``x`` in many small trees, added up.

    Leaves are numbered from left to right.  A node that sends ``x`` to the right rules out the
    leaves below its left child; what remains begins with the leaf of ``x``.  All nodes of a tree
    that ask one feature rule out what a table has for the place of that feature among all its
    thresholds, so that a tree costs one look-up for each of its features.

    Parameters
    ----------
    boosting : HistGradientBoostingRegressor
        Fitted, without categories.

    References
    ----------
    C. Lucchese et al., "QuickScorer: a fast algorithm to rank documents with additive ensembles of
    regression trees", SIGIR 2015.

    Examples
    --------
    >>> from sklearn.ensemble import HistGradientBoostingRegressor
    >>> X = np.linspace(0, 1, 200)[:, None]
    >>> boosting = HistGradientBoostingRegressor(max_iter=20).fit(X, np.sin(9 * X[:, 0]))
    >>> bool(np.allclose(SummedTrees(boosting).sums(X), boosting.predict(X)))
    True
    """

    def __init__(self, boosting: Any) -> None:
        self.trees = TreeArrays.of_boosting(boosting)
        self.baseline = float(np.squeeze(boosting._baseline_prediction))

    def _restored(self) -> None:
        agree("a finite baseline", bool(np.isfinite(self.baseline)), True)

    def sums(self, X: Floats) -> Floats:
        """Sums [T] at the rows of ``X`` [T, d]."""
        tables = self._tables
        if tables is None:
            return self.baseline + self.trees.value[self.trees.leaves(X)].sum(1)
        starts = range(0, len(X), _BLOCK)
        found = in_order(lambda i: tables.sums(X[i : i + _BLOCK], self.baseline), starts)
        return np.concatenate([*found, np.empty(0)])

    @cached_property
    def _tables(self) -> "_Tables | None":
        """None where a tree has more leaves than a number has bits."""
        numbers = _leaf_numbers(self.trees)
        return None if numbers is None else _Tables(self.trees, *numbers)


class _Tables:
    """For every tree, tables of bits for the features that it asks, and the values of its leaves.

    Parameters
    ----------
    trees : TreeArrays
    first, count : array [nodes] of int
        Number of the first leaf below each node, and of the leaves there.
    """

    def __init__(self, trees: TreeArrays, first: Whole, count: Whole) -> None:
        inner = np.flatnonzero(count > 1)
        self.thresholds = {
            int(f): np.unique(trees.threshold[inner[trees.feature[inner] == f]])
            for f in np.unique(trees.feature[inner])
        }
        # What is left where a node sends a row to the right.
        below = (np.uint32(1) << count[trees.left].astype(np.uint32)) - np.uint32(1)
        rest = ~(below << first.astype(np.uint32))
        places = (_powers() * _DE_BRUIJN) >> _FIRST_FIVE
        self.asked: list[list[tuple[int, Bits]]] = []
        self.values: list[Floats] = []
        for start, stop in zip(trees.roots, [*trees.roots[1:], len(count)], strict=True):
            nodes = np.arange(start, stop)
            leaves, nodes = nodes[count[nodes] == 1], nodes[count[nodes] > 1]
            value = np.zeros(_MOST_LEAVES)
            value[places[first[leaves]]] = trees.value[leaves]
            self.values.append(value)
            self.asked.append(
                [
                    (int(f), self._table(int(f), nodes[trees.feature[nodes] == f], trees, rest))
                    for f in np.unique(trees.feature[nodes])
                ]
            )

    def _table(self, feature: int, nodes: Whole, trees: TreeArrays, rest: Bits) -> Bits:
        """What is left of a tree's leaves, by how many thresholds of a feature a row exceeds."""
        thresholds = self.thresholds[feature]
        table = np.full(len(thresholds) + 1, ~np.uint32(0))
        places = np.searchsorted(thresholds, trees.threshold[nodes]) + 1
        np.bitwise_and.at(table, places, rest[nodes])
        return np.bitwise_and.accumulate(table)

    def sums(self, X: Floats, baseline: float) -> Floats:
        """Sums [T] at the rows of ``X`` [T, d]."""
        exceeded = {f: np.searchsorted(found, X[:, f]) for f, found in self.thresholds.items()}
        total, found = np.full(len(X), baseline), np.empty(len(X), dtype=np.uint32)
        for asked, value in zip(self.asked, self.values, strict=True):
            left = np.full(len(X), ~np.uint32(0))
            for feature, table in asked:
                left &= table.take(exceeded[feature], out=found, mode="clip")
            lowest = left & (~left + np.uint32(1))
            total += value.take((lowest * _DE_BRUIJN) >> _FIRST_FIVE, mode="clip")
        return total


def _powers() -> Bits:
    return np.uint32(1) << np.arange(_MOST_LEAVES, dtype=np.uint32)


def _leaf_numbers(trees: TreeArrays) -> tuple[Whole, Whole] | None:
    """Number of the first leaf below each node, and of the leaves there; None where too many."""
    left, right = trees.left.tolist(), trees.right.tolist()
    first, count = [0] * len(left), [1] * len(left)
    # Children come after their parents.
    for node in range(len(left) - 1, -1, -1):
        if left[node] != node:
            count[node] = count[left[node]] + count[right[node]]
            if count[node] > _MOST_LEAVES:
                return None
    for node in range(len(left)):
        if left[node] != node:
            first[left[node]] = first[node]
            first[right[node]] = first[node] + count[left[node]]
    return np.array(first), np.array(count)
