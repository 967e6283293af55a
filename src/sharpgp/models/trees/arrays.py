"""Regression trees as plain arrays, without scikit-learn's classes."""

from collections.abc import Callable, Iterable, Iterator
from typing import Any, Self, TypeVar

import numpy as np
from numpy.typing import NDArray

from sharpgp._stored import NumPyArray, agree, stored
from sharpgp.gp.compute import in_order

Floats = NDArray[np.float64]
Whole = NDArray[np.int64]
T = TypeVar("T")
# Entries of one block of answers, rows by trees: 512 KiB, which stay in the cache of a core.
_BLOCK = 2**16


@stored(
    "TreeArrays",
    feature=NumPyArray("nodes", whole=True),
    threshold=NumPyArray("nodes"),
    left=NumPyArray("nodes", whole=True),
    right=NumPyArray("nodes", whole=True),
    value=NumPyArray("nodes"),
    roots=NumPyArray("trees", whole=True),
    single=bool,
)
class TreeArrays:
    """The nodes of several trees in one table; a leaf is a node that is its own child.

    Unlike a pickled forest, the arrays can be saved, and loaded without running code from a file.

    Attributes
    ----------
    feature, left, right : array [nodes] of int
    threshold, value : array [nodes]
        A row goes left where its feature is at most the threshold.
    roots : array [trees] of int
    single : bool
        Whether rows are rounded to single precision first, as scikit-learn's forests do.

    Examples
    --------
    >>> from sklearn.ensemble import ExtraTreesRegressor
    >>> X = np.linspace(0, 1, 30)[:, None]
    >>> forest = ExtraTreesRegressor(5, random_state=0).fit(X, X[:, 0] ** 2)
    >>> trees = TreeArrays.of_trees([one.tree_ for one in forest.estimators_])
    >>> bool(np.allclose(trees.value[trees.leaves(X)].mean(1), forest.predict(X)))
    True
    """

    def __init__(self, tables: list[dict[str, Any]], *, single: bool) -> None:
        sizes = np.array([len(table["value"]) for table in tables], dtype=np.int64)
        self.roots: Whole = np.r_[0, sizes.cumsum()[:-1]]
        first, own = np.repeat(self.roots, sizes), np.arange(sizes.sum())
        joined = {key: np.concatenate([table[key] for table in tables]) for key in tables[0]}
        is_leaf = joined["is_leaf"].astype(bool)
        self.left: Whole = np.where(is_leaf, own, joined["left"].astype(np.int64) + first)
        self.right: Whole = np.where(is_leaf, own, joined["right"].astype(np.int64) + first)
        self.feature: Whole = np.where(is_leaf, 0, joined["feature"]).astype(np.int64)
        self.threshold: Floats = np.where(is_leaf, 0.0, joined["threshold"]).astype(np.float64)
        self.value: Floats = joined["value"].astype(np.float64)
        self.single = single

    @classmethod
    def of_trees(cls, trees: Iterable[Any]) -> Self:
        """What fitted trees of scikit-learn have as ``tree_``, of one forest."""
        tables = []
        for tree in trees:
            tables.append(
                {
                    "left": tree.children_left,
                    "right": tree.children_right,
                    "feature": tree.feature,
                    "threshold": tree.threshold,
                    "value": tree.value[:, 0, 0],
                    "is_leaf": tree.children_left < 0,
                }
            )
        return cls(tables, single=True)

    @classmethod
    def of_boosting(cls, boosting: Any) -> Self:
        """The trees of a fitted ``HistGradientBoostingRegressor`` without categories.

        They are an attribute that scikit-learn does not document; a test compares the predictions.
        """
        tables = []
        for (predictor,) in boosting._predictors:
            nodes = predictor.nodes
            tables.append(
                {
                    "left": nodes["left"],
                    "right": nodes["right"],
                    "feature": nodes["feature_idx"],
                    "threshold": nodes["num_threshold"],
                    "value": nodes["value"],
                    "is_leaf": nodes["is_leaf"],
                }
            )
        return cls(tables, single=False)

    def _restored(self) -> None:
        n = len(self.value)
        own = np.arange(n)
        # Children come after their parents, so that no file can make a walk that does not end.
        for child in (self.left, self.right):
            agree("order of nodes", bool(((child >= own) & (child < n)).all()), True)
        agree("leaves", bool(((self.left == own) == (self.right == own)).all()), True)
        agree("roots", bool(((self.roots >= 0) & (self.roots < n)).all()), True)
        agree("features", bool((self.feature >= 0).all()), True)

    @property
    def n_trees(self) -> int:
        """Number of trees."""
        return len(self.roots)

    def leaves(self, X: Floats) -> Whole:
        """The leaf, as a number of a node, in which each row ends in each tree [T, trees]."""
        found = [*self.by_rows(X, lambda leaves: leaves), np.empty((0, self.n_trees), np.int64)]
        return np.concatenate(found)

    def by_rows(self, X: Floats, work: Callable[[Whole], T]) -> Iterator[T]:
        """``work`` on the :meth:`leaves` of blocks of rows, in their order; several at once."""
        rows = max(1, _BLOCK // self.n_trees)
        children = np.stack([self.left, self.right], 1).ravel()
        starts = range(0, len(X), rows)
        return in_order(lambda i: work(self._leaves(X[i : i + rows], children)), starts)

    def _leaves(self, X: Floats, children: Whole) -> Whole:
        values = X.astype(np.float32).astype(np.float64) if self.single else X
        flat = np.ascontiguousarray(values).ravel()
        at = np.broadcast_to(self.roots, (len(X), self.n_trees)).ravel()
        first = np.repeat(np.arange(len(X)) * X.shape[1], self.n_trees)
        while True:
            goes_left = flat.take(first + self.feature.take(at)) <= self.threshold.take(at)
            after = children.take(2 * at + ~goes_left)
            if np.array_equal(after, at):
                return at.reshape(len(X), self.n_trees)
            at = after
