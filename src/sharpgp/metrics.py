"""Metrics for calibrated regression: flat functions on arrays.

``y`` has shape (n,), interval bounds have shape (n,), quantiles have shape (n, k) with the
``levels`` (k,) along the last axis. Scores are means over the points, smaller is better;
sharpness (width, standard deviation) only means something beside coverage.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

from sharpgp.distribution import PredictiveDistribution
from sharpgp.exceptions import InvalidInputError

__all__ = [
    "ECE_LEVELS",
    "BinnedCoverage",
    "WorstSlab",
    "coverage_along",
    "coverage_by_width",
    "crps",
    "ece",
    "ece_floor",
    "interval_coverage",
    "interval_score",
    "interval_width",
    "nll",
    "observed_levels",
    "pinball_loss",
    "predictive_std",
    "rmse",
    "worst_slab_coverage",
]

Floats = NDArray[np.float64]

ECE_LEVELS: Floats = np.linspace(0, 1, 21)


def observed_levels(y: ArrayLike, quantiles: ArrayLike) -> Floats:
    """Return the share of observations at or below each quantile, shape (k,).

    Examples
    --------
    >>> observed_levels([1.0, 3.0], [[0.0, 2.0], [0.0, 2.0]])
    array([0. , 0.5])
    """
    y, q = _table(y, quantiles)
    return np.asarray((y[:, None] <= q).mean(axis=0))


def ece(y: ArrayLike, quantiles: ArrayLike, levels: ArrayLike = ECE_LEVELS) -> float:
    r"""Return the expected calibration error, :math:`\frac1k \sum_j (p_j - \hat p_j)^2`.

    Here :math:`\hat p_j` is the share of observations up to the quantile of level
    :math:`p_j`. Levels 0 and 1, with infinite quantiles, contribute nothing to the sum but count
    in its mean. A perfect predictor scores `ece_floor` on average, not zero.

    References
    ----------
    Kuleshov, Fenner and Ermon (2018), Accurate uncertainties for deep learning using calibrated
    regression.

    Examples
    --------
    >>> ece([1.0, 3.0], [[0.0, 2.0], [0.0, 2.0]], [0.1, 0.5])
    0.005
    """
    observed = observed_levels(y, quantiles)
    return float(np.mean((_levels(levels, len(observed)) - observed) ** 2))


def ece_floor(n_cal: int, n_test: int, levels: ArrayLike = ECE_LEVELS) -> float:
    r"""Return the mean ECE of a perfectly calibrated predictor, to first order.

    .. math:: \frac1k \sum_j p_j (1 - p_j) \left(\frac1C + \frac1T\right)

    with C calibration and T test points: both samples' shares fluctuate, binomially.

    Examples
    --------
    >>> round(ece_floor(100, 100), 6)
    0.003167
    """
    if n_cal < 1 or n_test < 1:
        raise InvalidInputError(
            f"ece_floor: expected n_cal >= 1 and n_test >= 1, got {n_cal} and {n_test}; "
            "pass the sizes of the calibration and test sets."
        )
    p = _levels(levels)
    return float(np.mean(p * (1 - p)) * (1 / n_cal + 1 / n_test))


def rmse(y: ArrayLike, mean: ArrayLike) -> float:
    """Return the root mean squared error of the predictive mean.

    Examples
    --------
    >>> rmse([0.0, 0.0], [3.0, 3.0])
    3.0
    """
    y, mean = _columns(y=y, mean=mean)
    return float(np.sqrt(np.mean((y - mean) ** 2)))


def interval_width(lower: ArrayLike, upper: ArrayLike) -> float:
    """Return the mean width of the intervals.

    Examples
    --------
    >>> interval_width([0.0, 0.0], [1.0, 2.0])
    1.5
    """
    lower, upper = _columns(lower=lower, upper=upper)
    return float(np.mean(upper - lower))


def interval_coverage(y: ArrayLike, lower: ArrayLike, upper: ArrayLike) -> float:
    """Return the share of observations inside their interval, ends included.

    Examples
    --------
    >>> interval_coverage([0.5, 5.0], [0.0, 0.0], [1.0, 2.0])
    0.5
    """
    return float(_covered(y, lower, upper).mean())


def interval_score(y: ArrayLike, lower: ArrayLike, upper: ArrayLike, coverage: float) -> float:
    r"""Return the mean interval (Winkler) score, proper for central intervals.

    .. math:: (u - l) + \frac{2}{\alpha} (l - y)_+ + \frac{2}{\alpha} (y - u)_+,
              \qquad \alpha = 1 - \text{coverage}

    References
    ----------
    Gneiting and Raftery (2007), Strictly proper scoring rules, prediction, and estimation.

    Examples
    --------
    >>> interval_score([0.5, 3.0], [0.0, 0.0], [1.0, 2.0], coverage=0.5)
    3.5
    """
    y, lower, upper = _columns(y=y, lower=lower, upper=upper)
    if not 0 < coverage < 1:
        raise InvalidInputError(
            f"coverage: expected a number in (0, 1), got {coverage!r}; pass 0.95 for 95 %."
        )
    miss = np.maximum(lower - y, 0) + np.maximum(y - upper, 0)
    return float(np.mean(upper - lower + 2 / (1 - coverage) * miss))


def pinball_loss(y: ArrayLike, quantiles: ArrayLike, levels: ArrayLike) -> float:
    r"""Return the pinball loss, averaged over points and levels; levels 0 and 1 are dropped.

    .. math:: \max(p\,(y - q),\ (p - 1)(y - q))

    References
    ----------
    Koenker and Bassett (1978), Regression quantiles.

    Examples
    --------
    >>> pinball_loss([1.0], [[0.0, 2.0]], [0.1, 0.9])
    0.1
    """
    y, q, p = _proper_table(y, quantiles, levels)
    error = y[:, None] - q
    return float(np.mean(np.maximum(p * error, (p - 1) * error)))


def nll(y: ArrayLike, quantiles: ArrayLike, levels: ArrayLike) -> float:
    """Return the mean negative log density of the distribution that the quantiles tabulate.

    The density is that of `PredictiveDistribution`: constant between levels, exponential beyond
    the outermost ones, so every point counts. Levels 0 and 1 are dropped.

    Examples
    --------
    >>> round(nll([0.0], [[-1.0, 1.0]], [0.25, 0.75]), 4)
    1.3863
    """
    y, dist = _distribution(y, quantiles, levels)
    return float(-dist.log_prob(y).mean())


def crps(y: ArrayLike, quantiles: ArrayLike, levels: ArrayLike) -> float:
    """Return the mean CRPS of the distribution that the quantiles tabulate, exactly.

    See `PredictiveDistribution.crps`. Levels 0 and 1 are dropped.

    Examples
    --------
    >>> round(crps([0.0], [[-1.0, 1.0]], [0.25, 0.75]), 4)
    0.3542
    """
    y, dist = _distribution(y, quantiles, levels)
    return float(dist.crps(y).mean())


def predictive_std(quantiles: ArrayLike, levels: ArrayLike) -> float:
    """Return the mean standard deviation of the distributions that the quantiles tabulate.

    Tails are included, see `PredictiveDistribution`. Levels 0 and 1 are dropped.

    Examples
    --------
    >>> round(predictive_std([[-1.0, 1.0]], [0.25, 0.75]), 4)
    1.633
    """
    _, dist = _distribution(np.zeros(len(np.atleast_1d(quantiles))), quantiles, levels)
    return float(dist.std.mean())


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
    y, lower, upper = _columns(y=y, lower=lower, upper=upper)
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
        raise InvalidInputError(f"n_bins: expected at least 1, got {n_bins}; pass a number >= 1.")
    feature, y = _columns(feature=feature, y=y)
    covered = _covered(y, lower, upper)
    # Upper edges are data points, so each bin holds at least the points on its upper edge.
    shares = np.arange(1, n_bins + 1) / n_bins
    upper_edges = np.unique(np.quantile(feature, shares, method="inverted_cdf"))
    which = np.searchsorted(upper_edges, feature)
    count = np.bincount(which, minlength=len(upper_edges))
    hits = np.bincount(which, weights=covered, minlength=len(upper_edges))
    edges = np.concatenate([[feature.min()], upper_edges])
    return BinnedCoverage(edges, count, hits / count, _standard_error(hits, count))


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
    X, covered = _features(X, y), _covered(y, lower, upper)
    if not 0 < min_share <= 1 or n_directions < 0:
        raise InvalidInputError(
            "worst_slab_coverage: expected min_share in (0, 1] and n_directions >= 0, "
            f"got {min_share!r} and {n_directions!r}; the defaults are 0.1 and 1000."
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


def _covered(y: ArrayLike, lower: ArrayLike, upper: ArrayLike) -> Floats:
    y, lower, upper = _columns(y=y, lower=lower, upper=upper)
    return ((lower <= y) & (y <= upper)).astype(np.float64)


def _columns(**arrays: ArrayLike) -> list[Floats]:
    """Check that all are flat, of one length, nonempty and without NaN; ``y`` also finite."""
    columns = {name: np.asarray(a, dtype=np.float64) for name, a in arrays.items()}
    first, *_ = columns.values()
    for name, a in columns.items():
        if a.ndim != 1 or a.shape != first.shape or not len(a):
            shapes = ", ".join(f"{key} {value.shape}" for key, value in columns.items())
            raise InvalidInputError(
                f"expected flat arrays of one length n >= 1, got {shapes}; pass one value a point."
            )
        if np.isnan(a).any() or (name == "y" and np.isinf(a).any()):
            raise InvalidInputError(
                f"{name}: expected {'finite values' if name == 'y' else 'no NaN'}, got "
                f"{int((~np.isfinite(a)).sum())} non-finite of {len(a)}; remove or impute them."
            )
    return list(columns.values())


def _levels(levels: ArrayLike, k: int | None = None) -> Floats:
    p = np.asarray(levels, dtype=np.float64)
    if p.ndim != 1 or not len(p) or not ((p >= 0) & (p <= 1)).all():
        raise InvalidInputError(
            f"levels: expected a flat array in [0, 1], got {p.tolist()!r:.60}; pass probabilities."
        )
    if k is not None and len(p) != k:
        raise InvalidInputError(
            f"levels: expected {k}, one per column of the quantiles, got {len(p)}; "
            "pass the quantiles as (n, k), points first."
        )
    return p


def _table(y: ArrayLike, quantiles: ArrayLike) -> tuple[Floats, Floats]:
    (y,) = _columns(y=y)
    q = np.asarray(quantiles, dtype=np.float64)
    if q.ndim != 2 or len(q) != len(y) or np.isnan(q).any():
        raise InvalidInputError(
            f"quantiles: expected shape ({len(y)}, k) without NaN, got {q.shape} with "
            f"{int(np.isnan(q).sum())} NaN; pass one row per observation, levels along columns."
        )
    return y, q


def _proper_table(
    y: ArrayLike, quantiles: ArrayLike, levels: ArrayLike
) -> tuple[Floats, Floats, Floats]:
    """Check the table and drop the levels 0 and 1, whose quantiles are infinite."""
    y, q = _table(y, quantiles)
    p = _levels(levels, q.shape[1])
    proper = (p > 0) & (p < 1)
    return y, q[:, proper], p[proper]


def _distribution(
    y: ArrayLike, quantiles: ArrayLike, levels: ArrayLike
) -> tuple[Floats, PredictiveDistribution]:
    y, q, p = _proper_table(y, quantiles, levels)
    return y, PredictiveDistribution(p, q.T, numpy=True)


def _features(X: ArrayLike, y: ArrayLike) -> Floats:
    X, n = np.asarray(X, dtype=np.float64), len(_columns(y=y)[0])
    if X.ndim != 2 or len(X) != n or n < 2 or not X.shape[1] or not np.isfinite(X).all():
        raise InvalidInputError(
            f"X: expected finite features of shape ({n}, d) for at least 2 points, "
            f"got shape {X.shape}; reshape a single feature with X[:, None]."
        )
    return X
