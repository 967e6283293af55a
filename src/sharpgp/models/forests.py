r"""Forests that carry a whole conditional distribution: the targets that share a leaf with ``x``.

:class:`ExtraTrees` keeps all targets, for quantiles; :class:`LeafForest`, for many rows, what each
leaf has on average.
"""

from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from scipy.sparse import csr_matrix
from scipy.special import ndtri
from sklearn import config_context
from sklearn.ensemble import ExtraTreesRegressor, RandomForestRegressor
from sklearn.tree import ExtraTreeRegressor

from sharpgp._stored import Maybe, NumPyArray, agree, stored
from sharpgp.gp.compute import in_order
from sharpgp.gp.sizes import MOST_GROWN_ON, MOST_IN_LEAVES, drawn_rows
from sharpgp.gp.warped import Warp
from sharpgp.models.refitted import LEAST_SPREAD
from sharpgp.models.tree_arrays import TreeArrays

Floats = NDArray[np.float64]

# Trees of a forest, and fewest training points in a leaf.  With single ones the quantiles often
# coincide, and the spread says nothing (``sharpgp bench evidence pooling``).
_TREES, _LEAST_IN_LEAF = 100, 3
# The same where leaves are averaged, and the share of the features that a split chooses from.
_LEAF_TREES, _LEAST_AVERAGED, _FEATURES = 50, 5, 0.5
# Probability between the two quantiles of a leaf that make the spread.
_BETWEEN = 0.8
# Ratio of the targets' deviation to their mean distance from the median (1.25 if they are normal)
# beyond which a few large ones alone decide where trees split (``sharpgp bench evidence splits``).
_HEAVY = 1.8
# Entries of one block of rows' weights: 16 MiB.
_BLOCK = 2**21


@stored(
    "ExtraTrees",
    trees=TreeArrays,
    members=NumPyArray("N trees", whole=True),
    targets=NumPyArray("N"),
    least=float,
    weights=Maybe(NumPyArray("N")),
)
class ExtraTrees:
    r"""Extremely randomised trees; location and spread from the targets in the leaves.

    A training point ``i`` has the weight ``w_i(x)``: the mean over trees of
    ``1[i in the leaf of x] / size of that leaf``; with weights, its share of the leaf's.  The
    location is ``sum_i w_i y_i``; the spread, ``(q_high - q_low) / (Phi^-1(high) - Phi^-1(low))``
    from the weighted quantiles of ``y``.  Trees are split by ``y``, or by :func:`tamed` targets
    where few of them are large.

    Parameters
    ----------
    X : array [N, d]
    y : array [N]
    seed : int
    weights : array [N], optional

    References
    ----------
    P. Geurts, D. Ernst and L. Wehenkel, "Extremely randomized trees", Machine Learning, 2006.
    N. Meinshausen, "Quantile regression forests", JMLR, 2006.

    Examples
    --------
    >>> X = np.linspace(0, 1, 100)[:, None]
    >>> y = np.where(X[:, 0] > 0.5, 10.0, 0.0) + np.cos(99 * X[:, 0]) * X[:, 0]
    >>> model = ExtraTrees(X, y, seed=0)
    >>> location, spread = model.moments(np.array([[0.1], [0.9]]))
    >>> bool(np.diff(location)[0] > 8), bool(np.diff(spread)[0] > 0)
    (True, True)
    """

    weights: Floats | None = None

    def __init__(self, X: Floats, y: Floats, seed: int, weights: Floats | None = None) -> None:
        least = min(_LEAST_IN_LEAF, max(1, len(y) // 4))
        self.trees = TreeArrays.of_trees(extra_trees(X, tamed(y), seed, least, weights))
        order = np.argsort(y, kind="stable")
        if weights is not None:
            self.weights = weights[order]
        self.targets: Floats = y[order]
        self.members = self.trees.leaves(X)[order]
        self.least = LEAST_SPREAD * float(y.std()) or 1.0

    def _restored(self) -> None:
        agree("trees", self.members.shape[1], self.trees.n_trees)
        agree("a positive spread", 0.0 < self.least < np.inf, True)
        agree("targets in order", bool((np.diff(self.targets) >= 0).all()), True)
        inside = (self.members >= 0) & (self.members < len(self.trees.value))
        agree("leaves of points", bool(inside.all()), True)

    @property
    def n_features(self) -> int:
        """Features that the trees ask for, at least."""
        return 1 + int(self.trees.feature.max())

    def moments(self, X: Floats) -> tuple[Floats, Floats]:
        """Location and spread [T]."""
        own = np.ones(len(self.targets)) if self.weights is None else self.weights
        members = self._incidence(self.members, np.repeat(own, self.members.shape[1]))
        sizes = np.asarray(members.sum(0)).ravel()
        per_leaf = np.divide(1.0, sizes, out=np.zeros_like(sizes), where=sizes > 0)
        leaves = self.trees.leaves(X)
        rows = max(1, _BLOCK // len(self.targets))
        found = []
        for i in range(0, max(1, len(leaves)), rows):
            block = leaves[i : i + rows]
            asked = self._incidence(block, np.ones(block.shape)).multiply(per_leaf).tocsr()
            found.append(self._of_weights((asked @ members.T).toarray() / self.trees.n_trees))
        location, spread = (np.concatenate(part) for part in zip(*found, strict=True))
        return location, spread

    def _of_weights(self, weights: Floats) -> tuple[Floats, Floats]:
        cumulated = weights.cumsum(1)
        tail = 0.5 * (1.0 - _BETWEEN)
        low, high = (self._quantile(cumulated, p) for p in (tail, 1.0 - tail))
        return weights @ self.targets, np.maximum((high - low) / (-2.0 * ndtri(tail)), self.least)

    def _quantile(self, cumulated: Floats, p: float) -> Floats:
        """Weighted quantiles [T] of the sorted targets, linear between the middles of weights."""
        above = (cumulated < p).sum(1).clip(max=len(self.targets) - 1)
        rows = np.arange(len(cumulated))
        below = np.maximum(above - 1, 0)
        before = np.where(above > 0, cumulated[rows, below], 0.0)
        width = np.maximum(cumulated[rows, above] - before, np.finfo(float).tiny)
        share = np.clip((p - before) / width, 0.0, 1.0)
        return self.targets[below] + share * (self.targets[above] - self.targets[below])

    def _incidence(self, leaves: NDArray[np.int64], values: Floats) -> csr_matrix:
        """Sparse [rows, nodes] with ``values`` where a row is in a leaf."""
        rows = np.repeat(np.arange(len(leaves)), leaves.shape[1])
        shape = (len(leaves), len(self.trees.value))
        return csr_matrix((values.ravel(), (rows, leaves.ravel())), shape=shape)


def extra_trees(
    X: Floats, y: Floats, seed: int, least: int, weights: Floats | None = None
) -> list[Any]:
    """The trees of scikit-learn's ``ExtraTreesRegressor`` with ``least`` points in a leaf.

    Of a few hundred rows, what a forest does around each of its trees takes as long as the tree.

    Examples
    --------
    >>> X = np.linspace(0, 1, 30)[:, None]
    >>> len(extra_trees(X, X[:, 0] ** 2, seed=0, least=3))
    100
    """
    single = np.ascontiguousarray(X, dtype=np.float32)
    tree = ExtraTreeRegressor(max_features=1.0, min_samples_leaf=least)
    draw = np.random.RandomState(seed)
    found = []
    with config_context(skip_parameter_validation=True):
        for _ in range(_TREES):
            tree.random_state = draw.randint(np.iinfo(np.int32).max)
            found.append(tree.fit(single, y, weights, check_input=False).tree_)
    return found


def heavy_warp(y: Floats) -> Warp | None:
    r"""``arcsinh((y - median) / size)`` where few targets are far larger than others; else None.

    ``size`` is the mean distance from the median.

    Examples
    --------
    >>> warp = heavy_warp(np.array([0.0, 0.0, 0.0, 0.0, 0.0, 1.0, 0.0, 2.0, 997.0]))
    >>> round(float(warp.scale), 1), heavy_warp(np.array([0.0, 1.0, 2.0, 5.0])) is None
    (111.1, True)
    """
    centre = np.median(y)
    size = np.abs(y - centre).mean()
    if not (size > 0.0 and y.std() > _HEAVY * size):
        return None
    return Warp(*(torch.tensor(float(value), dtype=torch.float64) for value in (centre, size)))


def tamed(y: Floats) -> Floats:
    r"""Targets that trees are split by: those of :func:`heavy_warp`, where it warps.

    Splits gain by squares, so that of counts with a few huge ones nothing else matters.

    Examples
    --------
    >>> tamed(np.array([0.0, 0.0, 0.0, 0.0, 0.0, 1.0, 0.0, 2.0, 997.0])).round(2).tolist()
    [0.0, 0.0, 0.0, 0.0, 0.0, 0.01, 0.0, 0.02, 2.89]
    >>> tamed(np.array([0.0, 1.0, 2.0, 5.0])).tolist()
    [0.0, 1.0, 2.0, 5.0]
    """
    warp = heavy_warp(y)
    return y if warp is None else warp.forward(torch.from_numpy(y)).numpy()


@stored("LeafForest", trees=TreeArrays, variances=NumPyArray("nodes"), least=float)
class LeafForest:
    r"""A forest of which every leaf keeps the mean and the variance of its targets.

    With ``m_t`` and ``v_t`` those of the leaf of ``x`` in tree ``t``, the location is ``m``, the
    mean of ``m_t`` over trees, and the squared spread the mean of ``v_t + (m_t - m)^2``: mean and
    variance of a target drawn from the leaf of a random tree.  Each tree is grown on a random part
    of at most :data:`~sharpgp.gp.sizes.MOST_GROWN_ON` rows; its leaves then take all rows, or
    :data:`~sharpgp.gp.sizes.MOST_IN_LEAVES` random ones.

    Parameters
    ----------
    X : array [N, d]
    y : array [N]
    seed : int
    kind : {"random_forest", "extra_trees"}

    References
    ----------
    L. Breiman, "Random forests", Machine Learning, 2001.

    Examples
    --------
    >>> X = np.linspace(0, 1, 100)[:, None]
    >>> y = np.where(X[:, 0] > 0.5, 10.0, 0.0) + np.cos(99 * X[:, 0]) * X[:, 0]
    >>> location, spread = LeafForest(X, y, seed=0).moments(np.array([[0.1], [0.9]]))
    >>> bool(np.diff(location)[0] > 8), bool(np.diff(spread)[0] > 0)
    (True, True)
    """

    def __init__(
        self,
        X: Floats,
        y: Floats,
        seed: int,
        kind: str = "random_forest",
        weights: Floats | None = None,
    ) -> None:
        if len(y) > MOST_IN_LEAVES:
            rows = drawn_rows(len(y), MOST_IN_LEAVES).numpy()
            X, y = X[rows], y[rows]
        grower = {"random_forest": RandomForestRegressor, "extra_trees": ExtraTreesRegressor}[kind]
        forest = grower(
            _LEAF_TREES,
            min_samples_leaf=min(_LEAST_AVERAGED, max(1, len(y) // 4)),
            max_features=_FEATURES,
            bootstrap=True,
            max_samples=min(len(y), MOST_GROWN_ON),
            random_state=seed,
            n_jobs=torch.get_num_threads(),  # trees are the same for any number
        ).fit(X, y, weights)
        own = np.ones(len(y)) if weights is None else weights
        self.trees = TreeArrays.of_trees(one.tree_ for one in forest.estimators_)
        single = np.ascontiguousarray(X, dtype=np.float32)

        def moments(tree: Any) -> tuple[Floats, Floats]:
            leaf, nodes = tree.apply(single, check_input=False), tree.tree_.node_count
            count = np.bincount(leaf, own, nodes)
            count[count == 0] = 1.0
            mean = np.bincount(leaf, own * y, nodes) / count
            return mean, np.bincount(leaf, own * (y - mean[leaf]) ** 2, nodes) / count

        found = list(in_order(moments, forest.estimators_))
        self.trees.value = np.concatenate([mean for mean, _ in found])
        self.variances = np.concatenate([variance for _, variance in found])
        self.least = LEAST_SPREAD * float(y.std()) or 1.0

    def _restored(self) -> None:
        agree("leaves", len(self.variances), len(self.trees.value))
        agree("variances", bool((self.variances >= 0).all()), True)
        agree("a positive spread", 0.0 < self.least < np.inf, True)

    @property
    def n_features(self) -> int:
        """Features that the trees ask for, at least."""
        return 1 + int(self.trees.feature.max())

    def moments(self, X: Floats) -> tuple[Floats, Floats]:
        """Location and spread [T]."""
        found = [*self.trees.by_rows(X, self._of_leaves), (np.empty(0), np.empty(0))]
        location, variance = (np.concatenate(part) for part in zip(*found, strict=True))
        return location, np.maximum(np.sqrt(variance), self.least)

    def _of_leaves(self, leaves: NDArray[np.int64]) -> tuple[Floats, Floats]:
        means = self.trees.value.take(leaves)
        location = means.mean(1)
        apart = ((means - location[:, None]) ** 2).mean(1)
        return location, self.variances.take(leaves).mean(1) + apart
