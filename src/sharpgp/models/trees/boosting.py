"""Gradient boosting on histograms: a location, and with many rows a boosted spread, too."""

import numpy as np
import torch
from numpy.typing import NDArray
from sklearn.ensemble import HistGradientBoostingRegressor
from torch import Tensor

from sharpgp._stored import Maybe, agree, stored
from sharpgp.gp.wrappers.target_warp import Warp
from sharpgp.models.laws import Normal
from sharpgp.models.trees.arrays import TreeArrays
from sharpgp.models.trees.forests import heavy_warp
from sharpgp.models.trees.tree_sums import SummedTrees

Floats = NDArray[np.float64]
#: Rows times trees at most, beyond 300 trees; rows up to which trees are boosted once more, on all
#: of them, when their number is known; and rows whose residuals teach the spread, at most.
MOST_BOOSTED, MOST_BOOSTED_AGAIN, MOST_SPREAD_FROM = 400_000_000, 100_000, 50_000
# Share of the rows whose residuals the spread is learned from, and what is added to these, in
# units of their mean: a residual that is 0 by chance must not be an outlier.
_HELD_OUT, _SOFTENING = 0.1, 0.01
# Spreads are at least this part of the target's deviation.
_LEAST_SPREAD = 1e-3
# Most trees: with few rows and with many.
_MOST_TREES, _LEAST_TREES = 2000, 300


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
    >>> law = BoostedTrees(X, y, seed=0).law(np.array([[0.1], [0.9]]), torch.ones(1).double())
    >>> bool(law.location.diff() > 8), bool(law.spread.diff() == 0)
    (True, True)
    """

    def __init__(self, X: Floats, y: Floats, seed: int, weights: Floats | None = None) -> None:
        boosting = HistGradientBoostingRegressor(
            learning_rate=0.1,
            max_iter=300,
            min_samples_leaf=max(2, min(20, len(y) // 15)),
            early_stopping=len(y) >= 40,
            validation_fraction=0.15,
            n_iter_no_change=15,
            random_state=seed,
        ).fit(X, y, weights)
        self.trees = TreeArrays.of_boosting(boosting)
        self.baseline = float(np.squeeze(boosting._baseline_prediction))
        self.size = float(y.std()) or 1.0

    def _restored(self) -> None:
        agree("a positive spread", 0.0 < self.size < np.inf, True)
        agree("a finite baseline", bool(np.isfinite(self.baseline)), True)

    @property
    def n_features(self) -> int:
        """Features that the trees ask for, at least."""
        return 1 + int(self.trees.feature.max())

    def location(self, X: Floats) -> Floats:
        """What the trees add up to [T]."""
        return self.baseline + self.trees.value[self.trees.leaves(X)].sum(1)

    def law(self, X: Floats, like: Tensor) -> Normal:
        """The law at rows, as tensors like another."""
        location = torch.from_numpy(self.location(X)).to(like)
        return Normal(location, torch.full_like(location, self.size))


@stored(
    "ScaledBoosting",
    mean=SummedTrees,
    scale=SummedTrees,
    least=float,
    most=float,
    reach=float,
    warp=Maybe(Warp),
)
class ScaledBoosting:
    r"""Gradient boosting of the location, and of the logarithm of the spread, for many rows.

    A tenth of the rows is held out; the absolute residuals there are boosted in turn, by the
    deviance of a gamma distribution with a mean ``exp(g(x))``.  Up to
    :data:`MOST_BOOSTED_AGAIN` rows as many trees for the location are then grown
    on all of them.

    Targets of which few are far larger than others are boosted as their arcsinh ``u``, see
    :func:`~sharpgp.models.trees.forests.heavy_warp`: with location ``m`` and spread ``s`` of ``u``,
    those of the target are ``back(m)``, a median, and ``back'(m) s``.

    Parameters
    ----------
    X : array [N, d]
    y : array [N]
    seed : int
    weights : array [N], optional

    Examples
    --------
    >>> rng = np.random.default_rng(0)
    >>> X = rng.uniform(size=(3000, 1))
    >>> y = np.where(X[:, 0] > 0.5, 10.0, 0.0) + (0.1 + X[:, 0]) * rng.normal(size=3000)
    >>> law = ScaledBoosting(X, y, seed=0).law(np.array([[0.1], [0.9]]), torch.ones(1).double())
    >>> bool(law.location.diff() > 8), bool(law.spread[1] > 2 * law.spread[0])
    (True, True)
    """

    warp: Warp | None = None

    def __init__(self, X: Floats, y: Floats, seed: int, weights: Floats | None = None) -> None:
        n, warp = len(y), heavy_warp(y)
        of_kept, of_held = weights, weights
        if warp is not None:
            self.warp, y = warp, warp.forward(torch.from_numpy(y)).numpy()
        order = np.random.default_rng(seed).permutation(n)
        held = order[: min(round(_HELD_OUT * n), MOST_SPREAD_FROM)]
        kept = order[len(held) :]
        if weights is not None:
            of_kept, of_held = weights[kept], weights[held]
        trees = int(np.clip(MOST_BOOSTED // n, _LEAST_TREES, _MOST_TREES))
        common = {
            "early_stopping": True,
            "validation_fraction": 0.1,
            "n_iter_no_change": 20,
            "random_state": seed,
        }
        boosting = HistGradientBoostingRegressor(max_iter=trees, **common)
        boosting.fit(X[kept], y[kept], of_kept)
        self.mean = SummedTrees(boosting)
        size = np.abs(y[held] - self.mean.sums(X[held]))
        soft = _SOFTENING * float(size.mean()) or 1.0
        scale = HistGradientBoostingRegressor(
            loss="gamma",
            learning_rate=0.05,
            max_iter=300,
            max_leaf_nodes=15,
            min_samples_leaf=50,
            **common,
        ).fit(X[held], size + soft, of_held)
        self.scale = SummedTrees(scale)
        if n <= MOST_BOOSTED_AGAIN:
            once_more = HistGradientBoostingRegressor(
                max_iter=boosting.n_iter_, early_stopping=False, random_state=seed
            )
            self.mean = SummedTrees(once_more.fit(X, y, weights))
        self.least = _LEAST_SPREAD * float(y.std()) or 1.0
        # A sum of steps may exceed every training value, and is exponentiated.
        self.most = float(max(size.max(), self.least))
        self.reach = float(np.abs(y).max())

    def _restored(self) -> None:
        agree("spreads", 0.0 < self.least <= self.most < np.inf, True)
        agree("a finite reach", 0.0 <= self.reach < np.inf, True)

    @property
    def n_features(self) -> int:
        """Features that the trees ask for, at least."""
        return 1 + max(int(one.trees.feature.max()) for one in (self.mean, self.scale))

    def location(self, X: Floats) -> Floats:
        """A mean, or the median where targets are warped [T]."""
        location = self.mean.sums(X)
        if self.warp is None:
            return location
        return self.warp.back(self._within(location)).numpy()

    def law(self, X: Floats, like: Tensor) -> Normal:
        """The law at rows, as tensors like another."""
        location = torch.from_numpy(self.location(X)).to(like)
        spread = torch.from_numpy(np.exp(self.scale.sums(X)).clip(self.least, self.most)).to(like)
        if self.warp is not None:
            spread = self.warp.slope(self._within(self.mean.sums(X))).to(like) * spread
        return Normal(location, spread)

    def _within(self, location: Floats) -> Tensor:
        return torch.from_numpy(location.clip(-self.reach, self.reach))
