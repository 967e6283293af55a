r"""Tree models from scikit-learn with a location and a spread of their own.

Extra trees carry a whole conditional distribution: the targets that share a leaf with ``x``.
Boosted trees carry none: their spread is constant, or learned from residuals of fits that did not
see them.
Both work on plain arrays, in one thread, and give the same answers for the same seed.
"""

from typing import Any, Self

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import csr_matrix
from scipy.special import ndtri
from sklearn.ensemble import ExtraTreesRegressor, HistGradientBoostingRegressor
from threadpoolctl import threadpool_limits

from sharpgp.exceptions import InvalidInputError

Floats = NDArray[np.float64]

#: Spreads are at least this part of the target's deviation: leaves can hold equal targets.
LEAST_SPREAD = 1e-3
# Entries of one block of rows' weights: 16 MiB.
_BLOCK = 2**21
# Parts of the points whose residuals come from fits without them.
_PARTS = 5


class ExtraTrees:
    r"""Extremely randomised trees; location and spread from the targets in the leaves.

    A training point ``i`` has the weight ``w_i(x)``: the mean over trees of
    ``1[i in the leaf of x] / size of that leaf``.  The location is ``sum_i w_i y_i``; the spread,
    ``(q_high - q_low) / (Phi^-1(high) - Phi^-1(low))`` from the weighted quantiles of ``y``.

    Parameters
    ----------
    trees : int
    least_in_leaf : int
        Fewest training points in a leaf.  With single ones the quantiles often coincide, and the
        spread says nothing (``sharpgp bench evidence pooling``).
    features : float
        Share of the features that a split may choose from.
    out_of_bag : bool
        Draw the points of each tree with replacement; trees that missed a point then predict it:
        :meth:`out_of_bag`.
    coverage : float
        Probability between the two quantiles that make the spread.

    References
    ----------
    P. Geurts, D. Ernst and L. Wehenkel, "Extremely randomized trees", Machine Learning, 2006.
    N. Meinshausen, "Quantile regression forests", JMLR, 2006.

    Examples
    --------
    >>> X = np.linspace(0, 1, 100)[:, None]
    >>> y = np.where(X[:, 0] > 0.5, 10.0, 0.0) + np.cos(99 * X[:, 0]) * X[:, 0]
    >>> model = ExtraTrees().fit(X, y, seed=0)
    >>> new = np.array([[0.1], [0.9]])
    >>> bool(np.diff(model.location(new))[0] > 8), bool(np.diff(model.spread(new))[0] > 0)
    (True, True)
    """

    def __init__(
        self,
        *,
        trees: int = 100,
        least_in_leaf: int = 3,
        features: float = 1.0,
        out_of_bag: bool = False,
        coverage: float = 0.8,
    ) -> None:
        self.trees = trees
        self.least_in_leaf = least_in_leaf
        self.features = features
        self.bagged = out_of_bag
        self.coverage = coverage

    def fit(self, X: Floats, y: Floats, seed: int) -> Self:
        """Grow the trees on inputs [N, d] and targets [N]."""
        self.forest = ExtraTreesRegressor(
            self.trees,
            min_samples_leaf=min(self.least_in_leaf, max(1, len(y) // 4)),
            max_features=self.features,
            bootstrap=self.bagged,
            random_state=seed,
            n_jobs=1,
        ).fit(X, y)
        self._order = np.argsort(y, kind="stable")
        self._y = y[self._order]
        self._leaves = self.forest.apply(X)[self._order]
        self._least = LEAST_SPREAD * float(y.std()) or 1.0
        self._counts = np.ones(self._leaves.shape)
        if self.bagged:
            drawn = [
                np.bincount(rows, minlength=len(y)) for rows in self.forest.estimators_samples_
            ]
            self._counts = np.stack(drawn, 1)[self._order].astype(np.float64)
        self._members = self._incidence(self._leaves, self._counts)
        sizes = np.asarray(self._members.sum(0)).ravel()
        self._per_leaf = np.divide(1.0, sizes, out=np.zeros_like(sizes), where=sizes > 0)
        return self

    def location(self, X: Floats) -> Floats:
        """Means [T]."""
        return np.asarray(self.forest.predict(X), dtype=np.float64)

    def spread(self, X: Floats) -> Floats:
        """Spreads [T] from conditional quantiles."""
        leaves = self.forest.apply(X)
        rows = max(1, _BLOCK // len(self._y))
        blocks = [leaves[i : i + rows] for i in range(0, len(leaves), rows)]
        found = [self._moments(block, np.ones(block.shape))[1] for block in blocks]
        return np.concatenate(found)

    def out_of_bag(self) -> tuple[Floats, Floats]:
        """Locations and spreads [N] of the training points, each from trees that missed it."""
        if not self.bagged:
            raise InvalidInputError(
                "out_of_bag: expected trees on points drawn with replacement, found ones on all "
                "points; use ExtraTrees(out_of_bag=True)"
            )
        back = np.argsort(self._order)
        missed = (self._counts == 0).astype(np.float64)
        # With too few trees some point is in every bag; all trees then answer for it.
        missed[missed.sum(1) == 0] = 1.0
        rows = max(1, _BLOCK // len(self._y))
        blocks = [slice(i, i + rows) for i in range(0, len(missed), rows)]
        found = [self._moments(self._leaves[one], missed[one]) for one in blocks]
        location, spread = (np.concatenate(parts)[back] for parts in zip(*found, strict=True))
        return location, spread

    def _moments(self, leaves: Floats, asked: Floats) -> tuple[Floats, Floats]:
        """Location and spread of rows in ``leaves`` [T, trees], from the trees ``asked``."""
        weights = self._incidence(leaves, asked).multiply(self._per_leaf).tocsr() @ self._members.T
        W = weights.toarray()
        cumulated = W.cumsum(1)
        total = cumulated[:, -1:]
        tail = 0.5 * (1.0 - self.coverage)
        low, high = (self._quantile(cumulated / total, p) for p in (tail, 1.0 - tail))
        spread = (high - low) / (2.0 * -ndtri(tail))
        return (W @ self._y) / total[:, 0], np.maximum(spread, self._least)

    def _quantile(self, cumulated: Floats, p: float) -> Floats:
        """Weighted quantiles [T] of the sorted targets, linear between the middles of weights."""
        above = (cumulated < p).sum(1).clip(max=len(self._y) - 1)
        rows = np.arange(len(cumulated))
        below = np.maximum(above - 1, 0)
        before = np.where(above > 0, cumulated[rows, below], 0.0)
        width = np.maximum(cumulated[rows, above] - before, np.finfo(float).tiny)
        share = np.clip((p - before) / width, 0.0, 1.0)
        return self._y[below] + share * (self._y[above] - self._y[below])

    def _incidence(self, leaves: Any, values: Floats) -> csr_matrix:
        """Sparse [rows, all leaves of all trees] with ``values`` where a row is in a leaf."""
        nodes = np.array([tree.tree_.node_count for tree in self.forest.estimators_])
        first = np.r_[0, nodes.cumsum()]
        columns = (leaves + first[:-1]).ravel()
        rows = np.repeat(np.arange(len(leaves)), leaves.shape[1])
        return csr_matrix((values.ravel(), (rows, columns)), shape=(len(leaves), first[-1]))


class BoostedTrees:
    r"""Gradient boosting on histograms, with early stopping; spread from a second boosting.

    The location is boosted with ``loss``.  The spread is ``exp(h(x))``, with ``h`` boosted on
    ``log |y_i - m_-i(x_i)|``, the residuals of fits without the fifth that ``i`` is in, and shrunk
    to its mean by ``share``.

    Parameters
    ----------
    loss : {"squared_error", "absolute_error"}
    rate : float
        Learning rate.
    share : float
        Of the variation of the log spread that is kept.  0 is a constant spread, without the six
        further fits that another one takes: in a pool, that is as good
        (``sharpgp bench evidence pooling``).

    Examples
    --------
    >>> X = np.linspace(0, 1, 200)[:, None]
    >>> y = np.where(X[:, 0] > 0.5, 10.0, 0.0) + np.cos(99 * X[:, 0]) * X[:, 0]
    >>> model = BoostedTrees(share=0.5).fit(X, y, seed=0)
    >>> new = np.array([[0.1], [0.9]])
    >>> bool(np.diff(model.location(new))[0] > 8), bool(np.diff(model.spread(new))[0] > 0)
    (True, True)
    """

    def __init__(
        self, *, loss: str = "squared_error", rate: float = 0.1, share: float = 0.0
    ) -> None:
        self.loss = loss
        self.rate = rate
        self.share = share

    def fit(self, X: Floats, y: Floats, seed: int) -> Self:
        """Boost location and spread on inputs [N, d] and targets [N]."""
        # With a share of 0 this is all that the spread needs, and the size is for others to find.
        self.centre, self.scale = np.log(float(y.std()) or 1.0), None
        with threadpool_limits(1):
            self.boosting = self._boosted(X, y, seed, self.loss)
            if self.share > 0.0:
                residuals = self._out_of_fold_residuals(X, y, seed)
                floor = 0.1 * residuals.mean() + LEAST_SPREAD * (float(y.std()) or 1.0)
                logs = np.log(residuals + floor)
                self.centre = float(logs.mean())
                self.scale = self._boosted(X, logs, seed, "squared_error")
        return self

    def _out_of_fold_residuals(self, X: Floats, y: Floats, seed: int) -> Floats:
        residuals = np.empty(len(y))
        for part in np.array_split(np.random.default_rng(seed).permutation(len(y)), _PARTS):
            rest = np.ones(len(y), dtype=bool)
            rest[part] = False
            without = self._boosted(X[rest], y[rest], seed, self.loss)
            residuals[part] = np.abs(y[part] - without.predict(X[part]))
        return residuals

    def _boosted(self, X: Floats, y: Floats, seed: int, loss: str) -> Any:
        return HistGradientBoostingRegressor(
            loss=loss,
            learning_rate=self.rate,
            max_iter=300,
            min_samples_leaf=max(2, min(20, len(y) // 15)),
            early_stopping=len(y) >= 40,
            validation_fraction=0.15,
            n_iter_no_change=15,
            random_state=seed,
        ).fit(X, y)

    def location(self, X: Floats) -> Floats:
        """Means or medians [T]."""
        with threadpool_limits(1):
            return np.asarray(self.boosting.predict(X), dtype=np.float64)

    def spread(self, X: Floats) -> Floats:
        """Spreads [T]."""
        if self.scale is None:
            return np.full(len(X), np.exp(self.centre))
        with threadpool_limits(1):
            h = self.scale.predict(X)
        return np.asarray(np.exp(self.centre + self.share * (h - self.centre)))
