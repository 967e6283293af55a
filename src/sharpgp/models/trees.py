r"""Tree models from scikit-learn with a location and a spread of their own.

Extra trees carry a whole conditional distribution: the targets that share a leaf with ``x``.
Boosted trees carry none, and their spread is constant: a learned one gained nothing in a pool
(``sharpgp bench evidence pooling``).  Both work in one thread, give the same answers for the same
seed, and keep plain arrays only, so that they can be saved.
"""

import numpy as np
import torch
from numpy.typing import NDArray
from scipy.sparse import csr_matrix
from scipy.special import ndtri
from sklearn.ensemble import ExtraTreesRegressor, HistGradientBoostingRegressor
from threadpoolctl import threadpool_limits
from torch import Tensor

from sharpgp._stored import Array, NumPyArray, agree, stored
from sharpgp.models.refitted import LEAST_SPREAD, RefittedModel
from sharpgp.models.tree_arrays import TreeArrays

Floats = NDArray[np.float64]

# Trees of a forest, and fewest training points in a leaf.  With single ones the quantiles often
# coincide, and the spread says nothing (``sharpgp bench evidence pooling``).
_TREES, _LEAST_IN_LEAF = 100, 3
# Probability between the two quantiles of a leaf that make the spread.
_BETWEEN = 0.8
# Entries of one block of rows' weights: 16 MiB.
_BLOCK = 2**21


@stored(
    "ExtraTrees",
    trees=TreeArrays,
    members=NumPyArray("N trees", whole=True),
    targets=NumPyArray("N"),
    least=float,
)
class ExtraTrees:
    r"""Extremely randomised trees; location and spread from the targets in the leaves.

    A training point ``i`` has the weight ``w_i(x)``: the mean over trees of
    ``1[i in the leaf of x] / size of that leaf``.  The location is ``sum_i w_i y_i``; the spread,
    ``(q_high - q_low) / (Phi^-1(high) - Phi^-1(low))`` from the weighted quantiles of ``y``.

    Parameters
    ----------
    X : array [N, d]
    y : array [N]
    seed : int

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

    def __init__(self, X: Floats, y: Floats, seed: int) -> None:
        forest = ExtraTreesRegressor(
            _TREES,
            min_samples_leaf=min(_LEAST_IN_LEAF, max(1, len(y) // 4)),
            max_features=1.0,
            random_state=seed,
            n_jobs=1,
        ).fit(X, y)
        self.trees = TreeArrays.of_forest(forest)
        order = np.argsort(y, kind="stable")
        self.targets: Floats = y[order]
        self.members = self.trees.leaves(X)[order]
        self.least = LEAST_SPREAD * float(y.std()) or 1.0

    def _restored(self) -> None:
        agree("trees", self.members.shape[1], self.trees.n_trees)
        agree("a positive spread", 0.0 < self.least < np.inf, True)
        agree("targets in order", bool((np.diff(self.targets) >= 0).all()), True)
        inside = (self.members >= 0) & (self.members < len(self.trees.value))
        agree("leaves of points", bool(inside.all()), True)

    def moments(self, X: Floats) -> tuple[Floats, Floats]:
        """Location and spread [T]."""
        members = self._incidence(self.members, np.ones(self.members.shape))
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


@stored("BoostedTrees", trees=TreeArrays, baseline=float, size=float)
class BoostedTrees:
    r"""Gradient boosting on histograms, with early stopping, and a constant spread.

    Parameters
    ----------
    X : array [N, d]
    y : array [N]
    seed : int

    Examples
    --------
    >>> X = np.linspace(0, 1, 200)[:, None]
    >>> y = np.where(X[:, 0] > 0.5, 10.0, 0.0) + np.cos(99 * X[:, 0]) * X[:, 0]
    >>> location, spread = BoostedTrees(X, y, seed=0).moments(np.array([[0.1], [0.9]]))
    >>> bool(np.diff(location)[0] > 8), bool(np.diff(spread)[0] == 0)
    (True, True)
    """

    def __init__(self, X: Floats, y: Floats, seed: int) -> None:
        boosting = HistGradientBoostingRegressor(
            learning_rate=0.1,
            max_iter=300,
            min_samples_leaf=max(2, min(20, len(y) // 15)),
            early_stopping=len(y) >= 40,
            validation_fraction=0.15,
            n_iter_no_change=15,
            random_state=seed,
        ).fit(X, y)
        self.trees = TreeArrays.of_boosting(boosting)
        self.baseline = float(np.squeeze(boosting._baseline_prediction))
        self.size = float(y.std()) or 1.0

    def _restored(self) -> None:
        agree("a positive spread", 0.0 < self.size < np.inf, True)
        agree("a finite baseline", bool(np.isfinite(self.baseline)), True)

    def moments(self, X: Floats) -> tuple[Floats, Floats]:
        """Location and spread [T]."""
        location = self.baseline + self.trees.value[self.trees.leaves(X)].sum(1)
        return location, np.full(len(X), self.size)


#: Tree models by name.
TREES: dict[str, type[ExtraTrees | BoostedTrees]] = {
    "extra_trees": ExtraTrees,
    "boosted_trees": BoostedTrees,
}


@stored(
    "TreeModel",
    kind=str,
    _X=Array("N d"),
    _y=Array("N"),
    seed=int,
    grown=ExtraTrees | BoostedTrees,
)
class TreeModel(RefittedModel):
    """Trees of one kind, grown on inputs ``X`` [N, d] and targets ``y`` [N].

    Examples
    --------
    >>> X = torch.linspace(0, 6, 60, dtype=torch.float64)[:, None]
    >>> model = TreeModel("extra_trees", X, X[:, 0].sin(), seed=0)
    >>> model.location(X[:3]).shape
    torch.Size([3])
    """

    def __init__(self, kind: str, X: Tensor, y: Tensor, seed: int) -> None:
        super().__init__(X, y)
        self.kind, self.seed = kind, seed
        # Histograms are filled in parallel otherwise, and forests of this size gain nothing by it.
        with threadpool_limits(1):
            self.grown = TREES[kind](X.cpu().numpy(), y.cpu().numpy(), seed)

    def _restored(self) -> None:
        agree("kind of trees", isinstance(self.grown, TREES.get(self.kind, ())), True)
        agree("features", bool(self.grown.trees.feature.max() < self.n_features), True)

    def location(self, X: Tensor) -> Tensor:
        """See :meth:`Model.location`; constant between thresholds, so without a gradient."""
        return self._moments(X)[0]

    def spread(self, X: Tensor) -> Tensor:
        """See :meth:`Model.spread`."""
        return self._moments(X)[1]

    def _moments(self, X: Tensor) -> tuple[Tensor, Tensor]:
        location, spread = self.grown.moments(X.detach().cpu().numpy())
        return torch.from_numpy(location).to(X), torch.from_numpy(spread).to(X)

    def relearned(self, X: Tensor, y: Tensor, labels: Tensor, seed: int) -> "TreeModel":
        """See :meth:`Learner.relearned`."""
        return TreeModel(self.kind, X, y, self.seed)
