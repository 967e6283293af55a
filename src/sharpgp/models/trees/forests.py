r"""Forests that carry a whole conditional distribution: the targets that share a leaf with ``x``.

:class:`ExtraTrees` keeps all targets; :class:`LeafForest`, for many rows, a few of each leaf.
"""

from functools import cached_property
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from scipy.sparse import csr_matrix
from sklearn import config_context
from sklearn.ensemble import ExtraTreesRegressor, RandomForestRegressor
from sklearn.tree import ExtraTreeRegressor
from torch import Tensor
from torch.special import ndtri

from sharpgp._stored import ABSENT, Maybe, NumPyArray, agree, stored
from sharpgp.gp.compute import in_order
from sharpgp.gp.wrappers.target_warp import Warp
from sharpgp.models.laws import Table
from sharpgp.models.trees.arrays import TreeArrays
from sharpgp.policy import drawn_rows

Floats = NDArray[np.float64]
Whole = NDArray[np.int64]

#: Rows that each tree of a forest is grown on at most, where its leaves are averaged, and rows
#: whose targets these leaves average.
MOST_GROWN_ON, MOST_IN_LEAVES = 30_000, 200_000
# Trees of a forest, and fewest training points in a leaf.  With single ones the quantiles often
# coincide, and the spread says nothing (``sharpgp bench evidence pooling``).
_TREES, _LEAST_IN_LEAF = 100, 3
# The same where leaves keep a few targets, how many these are, and the share of the features that a
# split chooses from.
_LEAF_TREES, _LEAST_AVERAGED, _KEPT, _FEATURES = 50, 5, 4, 0.5
# Ratio of the targets' deviation to their mean distance from the median (1.25 if they are normal)
# beyond which a few large ones alone decide where trees split (``sharpgp bench evidence splits``).
_HEAVY = 1.8
# Cells that targets are told apart by, and the width of one around a value that repeats, in
# deviations of the target.
_MOST_CELLS, _POINT = 256, 1e-9


@stored("TargetCells", edges=NumPyArray("E"), counts=NumPyArray("C"), size=float)
class TargetCells:
    r"""Cells of the target between midpoints of neighbouring values, and one of each that repeats.

    A forest gives each cell a probability.  Beside its trees stands one that is all root, with the
    targets of all rows, and one more row that is anywhere: no cell is ever impossible.

    Parameters
    ----------
    y : array [N]
    weights : array [N], optional
        How many rows each of them counts as.

    Attributes
    ----------
    edges : array [C + 1]
    counts : array [C]
        Rows of each cell.
    size : float
        Deviation of the target.

    Examples
    --------
    >>> TargetCells(np.array([0.0, 0.0, 0.0, 1.0, 3.0])).counts.tolist()
    [0.0, 3.0, 0.0, 1.0, 1.0]
    """

    def __init__(self, y: Floats, weights: Floats | None = None) -> None:
        values, counts = np.unique(y, return_counts=True)
        variance = np.average((y - np.average(y, weights=weights)) ** 2, weights=weights)
        self.size = float(variance) ** 0.5 or float(np.abs(y).max()) or 1.0
        n = len(y)
        between = 0.5 * (values[1:] + values[:-1])
        if len(values) > _MOST_CELLS:
            between = between[np.diff(counts.cumsum() * _MOST_CELLS // n) > 0]
        gap = 0.5 * np.diff(values) if len(values) > 1 else np.array([self.size])
        ends = values[0] - gap[0], values[-1] + gap[-1]
        points = values[(counts > 1) & (counts * _MOST_CELLS > n)]
        half = np.maximum(_POINT * self.size, 8.0 * np.spacing(np.abs(points)))
        edges = np.unique(np.r_[ends, between, points - half, points + half])
        # Values that only rounding tells apart share an edge's place.
        self.edges: Floats = edges[np.r_[True, np.diff(edges) > 4.0 * np.spacing(abs(edges[1:]))]]
        self.counts = np.bincount(self.of(y), weights, len(self.edges) - 1).astype(np.float64)

    def _restored(self) -> None:
        agree("edges in order", bool((np.diff(self.edges) > 0).all()), True)
        agree("cells", len(self.counts), len(self.edges) - 1)
        agree("rows of cells", bool((self.counts >= 0).all()), True)
        agree("a positive size", 0.0 < self.size < np.inf, True)

    def of(self, y: Floats) -> Whole:
        """The cell of each target; what lies outside belongs to the outermost ones."""
        inner: Whole = np.searchsorted(self.edges[1:-1], y, side="right")
        return inner

    def law(self, mass: Floats, trees: int, m: Floats, variance: Floats, like: Tensor) -> Table:
        """The law at rows, of which ``trees`` give cells a mean probability ``mass`` [T, C].

        ``m`` and ``variance`` [T] are those of the targets in the leaves.  Beyond the edges the law
        is normal with the deviation of all targets.
        """
        rows, cells = self.counts.sum() + 1.0, len(self.counts)
        root = (self.counts + 1.0 / cells) / rows
        found = torch.from_numpy((trees * mass + root) / (trees + 1.0)).to(like)
        outside = 0.5 / (rows * (trees + 1.0))
        below = torch.cat([found.new_zeros(len(found), 1), found.cumsum(1)], 1)
        z = ndtri(outside + (1.0 - 2.0 * outside) * below.clamp(max=1.0))
        spread = np.sqrt((trees * variance + self.size**2) / (trees + 1.0))
        edges, location, deviation = (
            torch.from_numpy(part).to(like) for part in (self.edges, m, spread)
        )
        tails = torch.full_like(deviation, self.size).expand(2, -1)
        return Table(edges, z, location, deviation, tails, 4.0 * _POINT * self.size)


@stored(
    "ExtraTrees",
    trees=TreeArrays,
    members=NumPyArray("N trees", whole=True),
    targets=NumPyArray("N"),
    cells=TargetCells,
    weights=Maybe(NumPyArray("N")),
    transient={"_leaves": ABSENT},
)
class ExtraTrees:
    r"""Extremely randomised trees; the law is that of the targets in the leaves.

    A training point ``i`` has the weight ``w_i(x)``: the mean over trees of
    ``1[i in the leaf of x] / size of that leaf``; with weights, its share of the leaf's.  The
    location is ``sum_i w_i y_i``, the law that of :class:`TargetCells`.  Trees are split by ``y``,
    or by :func:`arcsinh_if_heavy` targets where few of them are large.

    Parameters
    ----------
    X : array [N, d]
    y : array [N]
    seed : int
    cells : TargetCells, optional
        None: those of ``y``.
    weights : array [N], optional

    References
    ----------
    P. Geurts, D. Ernst and L. Wehenkel, "Extremely randomized trees", Machine Learning, 2006.
    N. Meinshausen, "Quantile regression forests", JMLR, 2006.

    Examples
    --------
    >>> X = np.linspace(0, 1, 100)[:, None]
    >>> y = np.where(X[:, 0] > 0.5, 10.0, 0.0) + np.cos(99 * X[:, 0]) * X[:, 0]
    >>> law = ExtraTrees(X, y, 0).law(np.array([[0.1], [0.9]]), torch.ones(1).double())
    >>> bool(law.location.diff() > 8), bool(law.spread.diff() > 0)
    (True, True)
    """

    weights: Floats | None = None

    def __init__(
        self,
        X: Floats,
        y: Floats,
        seed: int,
        cells: TargetCells | None = None,
        weights: Floats | None = None,
    ) -> None:
        least = min(_LEAST_IN_LEAF, max(1, len(y) // 4))
        self.trees = TreeArrays.of_trees(extra_trees(X, arcsinh_if_heavy(y), seed, least, weights))
        self.targets, self.members = y, self.trees.leaves(X)
        self.cells = TargetCells(y, weights) if cells is None else cells
        if weights is not None:
            self.weights = weights

    def _restored(self) -> None:
        agree("trees", self.members.shape, (len(self.targets), self.trees.n_trees))
        inside = (self.members >= 0) & (self.members < len(self.trees.value))
        agree("leaves of points", bool(inside.all()), True)

    @property
    def n_features(self) -> int:
        """Features that the trees ask for, at least."""
        return 1 + int(self.trees.feature.max())

    @cached_property
    def _leaves(self) -> tuple[csr_matrix, Floats, Floats]:
        """Shares of cells [nodes, C], means of targets and of their squares [nodes] in leaves."""
        n, n_trees = self.members.shape
        leaf, row = self.members.ravel(), np.repeat(np.arange(n), n_trees)
        nodes = len(self.trees.value)
        own = np.ones(n) if self.weights is None else self.weights
        share = own[row] / np.bincount(leaf, own[row], nodes)[leaf]
        shape = nodes, len(self.cells.counts)
        cells = csr_matrix((share, (leaf, self.cells.of(self.targets)[row])), shape=shape)
        y = self.targets[row]
        mean = np.bincount(leaf, share * y, nodes).astype(np.float64)
        variance = np.bincount(leaf, share * (y - mean[leaf]) ** 2, nodes).astype(np.float64)
        return cells, mean, variance

    def location(self, X: Floats) -> Floats:
        """Mean of the targets in the leaves [T]."""
        return np.asarray(self._leaves[1][self.trees.leaves(X)].mean(1))

    def law(self, X: Floats, like: Tensor) -> Table:
        """The law at rows, as tensors like another."""
        cells, mean, variance = self._leaves
        leaves = self.trees.leaves(X)
        T, n_trees = leaves.shape
        places = leaves.ravel(), np.arange(0, leaves.size + 1, n_trees)
        asked = csr_matrix((np.full(leaves.size, 1.0 / n_trees), *places), shape=(T, len(mean)))
        found = moments(mean[leaves], variance[leaves])
        return self.cells.law((asked @ cells).toarray(), n_trees, *found, like)


def moments(means: Floats, variances: Floats) -> tuple[Floats, Floats]:
    """Mean and variance [T] of a target from a random one of the leaves [T, trees]."""
    m = means.mean(1)
    return m, variances.mean(1) + ((means - m[:, None]) ** 2).mean(1)


def extra_trees(
    X: Floats, y: Floats, seed: int, least: int, weights: Floats | None = None
) -> list[Any]:
    """The trees of scikit-learn's ``ExtraTreesRegressor`` with ``least`` points in a leaf.

    With a few hundred rows, a forest's overhead per tree takes as long as the tree.

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


def arcsinh_if_heavy(y: Floats) -> Floats:
    r"""Targets that trees are split by: those of :func:`heavy_warp`, where it warps.

    Splits gain by squares, so that of counts with a few huge ones nothing else matters.

    Examples
    --------
    >>> arcsinh_if_heavy(np.array([0.0, 0.0, 0.0, 0.0, 0.0, 1.0, 0.0, 2.0, 997.0])).round(
    ...     2
    ... ).tolist()
    [0.0, 0.0, 0.0, 0.0, 0.0, 0.01, 0.0, 0.02, 2.89]
    >>> arcsinh_if_heavy(np.array([0.0, 1.0, 2.0, 5.0])).tolist()
    [0.0, 1.0, 2.0, 5.0]
    """
    warp = heavy_warp(y)
    return y if warp is None else warp.forward(torch.from_numpy(y)).numpy()


@stored(
    "LeafForest",
    trees=TreeArrays,
    variances=NumPyArray("nodes"),
    kept=NumPyArray("nodes kept", whole=True),
    cells=TargetCells,
)
class LeafForest:
    r"""A forest whose leaves keep the mean and the variance of their targets, and a few of these.

    With ``m_t`` and ``v_t`` those of the leaf of ``x`` in tree ``t``, the location is ``m``, the
    mean of ``m_t`` over trees, and the squared spread the mean of ``v_t + (m_t - m)^2``.  The law
    is that of :class:`TargetCells`, from four targets of each leaf, one of each quarter.  Each tree
    is grown on a random part of at most :data:`MOST_GROWN_ON` rows; its leaves
    then take all rows, or :data:`MOST_IN_LEAVES` random ones.

    Parameters
    ----------
    X : array [N, d]
    y : array [N]
    seed : int
    cells : TargetCells, optional
        None: those of ``y``.
    kind : {"random_forest", "extra_trees"}
    weights : array [N], optional

    References
    ----------
    L. Breiman, "Random forests", Machine Learning, 2001.

    Examples
    --------
    >>> X = np.linspace(0, 1, 100)[:, None]
    >>> y = np.where(X[:, 0] > 0.5, 10.0, 0.0) + np.cos(99 * X[:, 0]) * X[:, 0]
    >>> law = LeafForest(X, y, 0).law(np.array([[0.1], [0.9]]), torch.ones(1).double())
    >>> bool(law.location.diff() > 8), bool(law.spread.diff() > 0)
    (True, True)
    """

    def __init__(
        self,
        X: Floats,
        y: Floats,
        seed: int,
        cells: TargetCells | None = None,
        kind: str = "random_forest",
        weights: Floats | None = None,
    ) -> None:
        cells = TargetCells(y, weights) if cells is None else cells
        if len(y) > MOST_IN_LEAVES:
            rows = drawn_rows(len(y), MOST_IN_LEAVES).numpy()
            X, y, weights = X[rows], y[rows], None if weights is None else weights[rows]
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
        self.trees, self.cells = TreeArrays.of_trees(one.tree_ for one in forest.estimators_), cells
        single = np.ascontiguousarray(X, dtype=np.float32)
        order = np.argsort(y, kind="stable")
        ordered = cells.of(y[order])

        def of_leaves(tree: Any) -> tuple[Floats, Floats, Whole]:
            leaf, nodes = tree.apply(single, check_input=False), tree.tree_.node_count
            number, count = np.bincount(leaf, minlength=nodes), np.bincount(leaf, own, nodes)
            count[number == 0] = 1.0
            mean = np.bincount(leaf, own * y, nodes) / count
            variance = np.bincount(leaf, own * (y - mean[leaf]) ** 2, nodes) / count
            by_leaf = np.argsort(leaf[order], kind="stable")
            start = np.minimum(number.cumsum() - number, len(y) - 1)
            above = own[order][by_leaf].cumsum()
            draw = np.random.default_rng(tree.random_state).random(nodes)
            quarter = (np.arange(_KEPT) + draw[:, None]) / _KEPT * count[:, None]
            below = (above - own[order][by_leaf])[start]
            place = np.searchsorted(above, below[:, None] + quarter, side="right")
            last = start + np.maximum(number, 1) - 1
            return mean, variance, ordered[by_leaf[place.clip(start[:, None], last[:, None])]]

        found = list(in_order(of_leaves, forest.estimators_))
        self.trees.value, self.variances, self.kept = (
            np.concatenate(part) for part in zip(*found, strict=True)
        )

    def _restored(self) -> None:
        agree("leaves", (len(self.variances), len(self.kept)), 2 * (len(self.trees.value),))
        agree("variances", bool((self.variances >= 0).all()), True)
        inside = (self.kept >= 0) & (self.kept < len(self.cells.counts))
        agree("cells of targets", bool(inside.all()), True)

    @property
    def n_features(self) -> int:
        """Features that the trees ask for, at least."""
        return 1 + int(self.trees.feature.max())

    def location(self, X: Floats) -> Floats:
        """Mean of the means of leaves [T]."""
        work = self.trees.by_rows(X, lambda leaves: self.trees.value.take(leaves).mean(1))
        return np.concatenate([*work, np.empty(0)])

    def law(self, X: Floats, like: Tensor) -> Table:
        """The law at rows, as tensors like another."""
        n_cells = len(self.cells.counts)
        nothing = np.empty((0, n_cells)), np.empty(0), np.empty(0)
        found = [*self.trees.by_rows(X, self._of_leaves), nothing]
        mass, m, variance = (np.concatenate(part) for part in zip(*found, strict=True))
        return self.cells.law(mass, self.trees.n_trees, m, variance, like)

    def _of_leaves(self, leaves: Whole) -> tuple[Floats, Floats, Floats]:
        n_cells = len(self.cells.counts)
        kept = self.kept.take(leaves, axis=0).reshape(len(leaves), -1)
        places = (kept + n_cells * np.arange(len(leaves))[:, None]).ravel()
        mass = np.bincount(places, minlength=n_cells * len(leaves)) / kept.shape[1]
        found = moments(self.trees.value.take(leaves), self.variances.take(leaves))
        return mass.reshape(-1, n_cells), *found
