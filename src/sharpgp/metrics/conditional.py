"""Coverage where it may be worst: by predicted width, along a feature, in slabs."""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from typing import Any, NamedTuple, TypeVar

import numpy as np
from numpy.typing import ArrayLike, NDArray
from sklearn.base import ClassifierMixin, clone
from sklearn.ensemble import ExtraTreesClassifier
from sklearn.model_selection import KFold

from sharpgp.exceptions import InvalidInputError
from sharpgp.metrics._checks import Floats, covered_points, feature_table, flat_columns
from sharpgp.metrics.sampling import coverage_band

Name = TypeVar("Name", bound=Hashable)
# Excess risk: rows used at most, trees of the classifier, and how often a calibrated predictor
# stays below the level of chance.
_MAX_ROWS, _TREES, _BELOW_CHANCE = 10_000, 40, 0.98


class BinnedCoverage(NamedTuple):
    """Coverage per bin: bin i holds the values in (edges[i], edges[i + 1]], the first its edge."""

    edges: Floats
    n_points: NDArray[np.int64]
    coverage: Floats
    standard_error: Floats


def coverage_by_width(
    y: ArrayLike, lower: ArrayLike, upper: ArrayLike, n_bins: int = 5
) -> BinnedCoverage:
    """Return the coverage in bins of equal count along the predicted width.

    Examples
    --------
    >>> coverage_by_width([0.0, 0.0, 5.0, 0.0], [-1] * 4, [1, 1, 2, 2], n_bins=2).coverage
    array([1. , 0.5])
    """
    y, lower, upper = flat_columns(y=y, lower=lower, upper=upper)
    return coverage_along(upper - lower, y, lower, upper, n_bins)


def coverage_along(
    feature: ArrayLike, y: ArrayLike, lower: ArrayLike, upper: ArrayLike, n_bins: int = 5
) -> BinnedCoverage:
    """Return the coverage in bins of equal count along a feature.

    Equal values share a bin, so ties can leave fewer bins than asked for; none is empty. The
    standard error adds two hits and two misses (Agresti and Coull 1998): the plain one would be
    zero in a bin that is covered entirely.

    Examples
    --------
    >>> result = coverage_along([0, 0, 1, 1], [0.0, 0.0, 5.0, 0.0], [-1] * 4, [1] * 4)
    >>> result.n_points.tolist(), result.coverage.tolist()
    ([2, 2], [1.0, 0.5])
    """
    if n_bins < 1:
        raise InvalidInputError(f"n_bins: expected at least 1, found {n_bins}; pass a number >= 1")
    feature, y = flat_columns(feature=feature, y=y)
    covered = covered_points(y, lower, upper)
    which, edges = bins_of_equal_count(feature, n_bins)
    count = np.bincount(which, minlength=len(edges) - 1)
    hits = np.bincount(which, weights=covered, minlength=len(edges) - 1)
    return BinnedCoverage(edges, count, hits / count, _standard_error(hits, count))


def bins_of_equal_count(values: Floats, n_bins: int) -> tuple[NDArray[np.int64], Floats]:
    """Bin of each value (n,), and the edges; equal values share a bin, and none is empty.

    Examples
    --------
    >>> which, edges = bins_of_equal_count(np.array([1.0, 1.0, 3.0, 4.0]), 2)
    >>> which.tolist(), edges.tolist()
    ([0, 0, 1, 1], [1.0, 1.0, 4.0])
    """
    # Upper edges are values, so each bin holds at least those on its upper edge.
    shares = np.arange(1, n_bins + 1) / n_bins
    upper = np.unique(np.quantile(values, shares, method="inverted_cdf"))
    return np.searchsorted(upper, values), np.concatenate([[values.min()], upper])


def coverage_by(
    classes: Sequence[Name], y: ArrayLike, lower: ArrayLike, upper: ArrayLike
) -> dict[Name, tuple[int, float]]:
    """Return the number of points and the coverage of each class, the largest class first.

    Examples
    --------
    >>> coverage_by(["a", "b", "a"], [0.0, 5.0, 0.0], [-1] * 3, [1] * 3)
    {'a': (2, 1.0), 'b': (1, 0.0)}
    """
    (y,) = flat_columns(y=y)
    covered = covered_points(y, lower, upper)
    if len(classes) != len(y):
        raise InvalidInputError(f"classes: expected {len(y)}, one per row, found {len(classes)}")
    hits: dict[Name, list[bool]] = {}
    for name, hit in zip(classes, covered.tolist(), strict=True):
        hits.setdefault(name, []).append(hit)
    largest = sorted(hits.items(), key=lambda item: -len(item[1]))
    return {name: (len(found), sum(found) / len(found)) for name, found in largest}


class WorstSlab(NamedTuple):
    """The slab ``lower <= X @ direction <= upper`` and its coverage on points not used to find it.

    ``share`` is the share of those points that lie in it; without any, the coverage is NaN.
    """

    coverage: float
    standard_error: float
    share: float
    direction: Floats
    lower: float
    upper: float


def worst_slab_coverage(
    X: ArrayLike,
    y: ArrayLike,
    lower: ArrayLike,
    upper: ArrayLike,
    *,
    min_share: float = 0.1,
    n_directions: int = 1000,
    random_state: int | np.random.Generator | None = None,
) -> WorstSlab:
    r"""Return the slab of feature space that is covered worst, and how well it is covered.

    .. math:: \min_{v, a < b} P(l \le Y \le u \mid a \le v^\top X \le b) \quad\text{subject to}
              \quad P(a \le v^\top X \le b) \ge \text{min\_share}

    over the coordinate axes and random directions ``v`` in standardised features. The slab is
    found on a random half of the points and its coverage measured on the other half, so that
    the search does not bias the figure downwards.

    References
    ----------
    Cauchois, Gupta and Duchi (2021), Knowing what you know: valid and validated confidence sets
    in multiclass and multilabel prediction.

    Examples
    --------
    >>> X = np.linspace(0, 1, 400)[:, None]
    >>> y = np.where(X[:, 0] > 0.75, 2.0, 0.0)
    >>> worst_slab_coverage(X, y, np.full(400, -1), np.full(400, 1), random_state=0).coverage
    0.0
    """
    X, covered = feature_table(X, y), covered_points(y, lower, upper)
    if not 0 < min_share <= 1 or n_directions < 0:
        raise InvalidInputError(
            "worst_slab_coverage: expected min_share in (0, 1] and n_directions >= 0, "
            f"found {min_share!r} and {n_directions!r}; the defaults are 0.1 and 1000"
        )
    rng = np.random.default_rng(random_state)
    order = rng.permutation(len(X))
    search, report = order[: len(X) // 2], order[len(X) // 2 :]
    spread = X[search].std(axis=0)
    d = X.shape[1]
    oblique = rng.normal(size=(n_directions if d > 1 else 0, d))
    oblique /= np.linalg.norm(oblique, axis=1, keepdims=True)
    directions = np.vstack([np.eye(d), oblique]) / np.where(spread > 0, spread, 1)

    direction, a, b = _search_slab(X[search], covered[search], directions, min_share)
    inside = covered[report][(a <= X[report] @ direction) & (X[report] @ direction <= b)]
    return WorstSlab(
        coverage=float(inside.mean()) if len(inside) else float("nan"),
        standard_error=float(_standard_error(inside.sum(), len(inside))),
        share=len(inside) / len(report),
        direction=direction,
        lower=a,
        upper=b,
    )


class ExcessRisk(NamedTuple):
    """How far coverage given the features is from the target, estimated from below.

    49 in 50 predictors with the target coverage everywhere stay below ``chance``.
    """

    value: float
    standard_error: float
    chance: float


def excess_risk(
    X: ArrayLike,
    y: ArrayLike,
    lower: ArrayLike,
    upper: ArrayLike,
    coverage: float,
    *,
    n_cal: int | None = None,
    classifier: ClassifierMixin | None = None,
    n_splits: int = 5,
    random_state: int | None = 0,
) -> ExcessRisk:
    r"""Return the excess risk of the target coverage: whether ``x`` tells who will be missed.

    A classifier predicts the coverage :math:`\hat p(x)` of points that it has not seen, in
    ``n_splits`` parts. With the covered points :math:`c_i` and the target coverage :math:`c`,

    .. math:: \mathrm{ERT} = \frac{1}{n} \sum_i \mathrm{sign}(\hat p(x_i) - c) (c_i - c)
              \quad\text{estimates}\quad E |P(\text{covered} \mid X) - c|

    from below: exactly with a perfect classifier, and 0, up to its standard error, where nothing in
    the features tells.  Then :math:`|\mathrm{ERT}|` is, up to signs, at most the distance of the
    share covered from :math:`c`, so ``chance`` is that of the lower end of a
    :func:`~sharpgp.metrics.coverage_band`.  Beyond 10,000 points, a random 10,000 are used.

    Parameters
    ----------
    X : array of shape (n, d)
    y, lower, upper : arrays of shape (n,)
    coverage : float
        The target, in (0, 1).
    n_cal : int, optional
        Points that calibrated the intervals, whose chance counts, too.
    classifier : scikit-learn classifier, optional
        By default 40 extremely randomised trees with at least 20 points in a leaf.
    n_splits : int
    random_state : int or None

    References
    ----------
    S. Braun et al., "Conditional coverage diagnostics for conformal prediction", 2025; the package
    covmetrics.

    Examples
    --------
    >>> X = np.linspace(0, 1, 400)[:, None]
    >>> y = np.where(X[:, 0] > 0.75, 2.0, 0.0)
    >>> found = excess_risk(X, y, np.full(400, -1), np.full(400, 1), 0.75)
    >>> 0.3 < found.value <= 0.375  # what a perfect classifier finds
    True
    """
    X, covered = feature_table(X, y), covered_points(y, lower, upper)
    if len(X) > _MAX_ROWS:
        rows = np.random.default_rng(random_state).choice(len(X), _MAX_ROWS, replace=False)
        X, covered = X[rows], covered[rows]
    n = len(X)
    if not 0 < coverage < 1 or not 2 <= n_splits <= n:
        raise InvalidInputError(
            "excess_risk: expected coverage in (0, 1) and 2 or more parts, at most as many as "
            f"points, found {coverage!r} and {n_splits!r} for {n} points"
        )
    if classifier is None:
        classifier = ExtraTreesClassifier(_TREES, min_samples_leaf=20, random_state=random_state)
    gained = np.empty(n)
    for rest, test in KFold(n_splits, shuffle=True, random_state=random_state).split(X):
        told = clone(classifier).fit(X[rest], covered[rest])
        column = list(told.classes_).index(True) if True in told.classes_ else None
        p = np.zeros(len(test)) if column is None else told.predict_proba(X[test])[:, column]
        gained[test] = np.sign(p - coverage) * (covered[test] - coverage)
    low, _ = coverage_band(coverage, n_cal, n, 2 * _BELOW_CHANCE - 1)
    error = float(gained.std(ddof=1) / np.sqrt(n))
    return ExcessRisk(float(gained.mean()), error, coverage - low)


def _search_slab(
    X: Floats, covered: Floats, directions: Floats, min_share: float
) -> tuple[Floats, float, float]:
    """Slab with the lowest coverage among those that hold ``min_share`` of the points.

    Edges are taken from a grid over the sorted projections. A slab that holds twice the minimum
    splits into two, one of which is covered no better: longer ones need not be tried.
    """
    n = len(X)
    n_edges = min(n, max(200, int(np.ceil(20 / min_share))))
    grid = np.linspace(0, n, n_edges + 1).round().astype(np.int64)
    shortest = max(1, int(min_share * n_edges))
    i, j = np.triu_indices(n_edges + 1, k=shortest)
    i, j = i[j - i <= 2 * shortest + 1], j[j - i <= 2 * shortest + 1]
    best, slab = np.inf, (directions[0], -np.inf, np.inf)
    for v in directions:
        projected = X @ v
        order = np.argsort(projected)
        projected = projected[order]
        hits = np.concatenate([[0.0], np.cumsum(covered[order])])
        # An edge inside a run of equal projections moves to the start of the run.
        edges = np.append(np.searchsorted(projected, projected[grid[:-1]]), n)
        count = edges[j] - edges[i]
        share = np.full(len(count), np.inf)
        np.divide(hits[edges[j]] - hits[edges[i]], count, out=share, where=count >= min_share * n)
        worst = int(share.argmin())
        if share[worst] < best:
            a, b = projected[edges[i[worst]]], projected[edges[j[worst]] - 1]
            best, slab = float(share[worst]), (v, float(a), float(b))
    return slab


def _standard_error(hits: Any, count: Any) -> Any:
    share = (hits + 2) / (count + 4)
    return np.sqrt(share * (1 - share) / (count + 4))
