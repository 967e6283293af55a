"""Scores of quantiles, intervals and means, each averaged over the points."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from sharpgp.distribution import PredictiveDistribution
from sharpgp.exceptions import InvalidInputError
from sharpgp.metrics._checks import (
    Floats,
    check_sizes,
    covered_points,
    flat_columns,
    flat_levels,
    quantile_table,
)

#: The paper's 21 levels, evenly spaced from 0 to 1.
ECE_LEVELS: Floats = np.linspace(0, 1, 21)


def observed_levels(
    y: ArrayLike, quantiles: ArrayLike, *, sample_weight: ArrayLike | None = None
) -> Floats:
    """Return the share of observations, or of their weight, up to each quantile, shape (k,).

    Examples
    --------
    >>> observed_levels([1.0, 3.0], [[0.0, 2.0], [0.0, 2.0]])
    array([0. , 0.5])
    """
    y, q = quantile_table(y, quantiles)
    return np.asarray(_mean(y[:, None] <= q, sample_weight))


def ece(
    y: ArrayLike,
    quantiles: ArrayLike,
    levels: ArrayLike = ECE_LEVELS,
    *,
    sample_weight: ArrayLike | None = None,
) -> float:
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
    observed = observed_levels(y, quantiles, sample_weight=sample_weight)
    return float(np.mean((flat_levels(levels, len(observed)) - observed) ** 2))


def ece_floor(n_cal: int | None, n_test: int, levels: ArrayLike = ECE_LEVELS) -> float:
    r"""Return the mean ECE of a perfectly calibrated predictor, to first order.

    .. math:: \frac1k \sum_j p_j (1 - p_j) \left(\frac1C + \frac1T\right)

    with C calibration and T test points: both samples' shares fluctuate, binomially. ``None`` for
    C stands for a predictor that was calibrated on no finite sample; its term is left out.

    Examples
    --------
    >>> round(ece_floor(100, 100), 6)
    0.003167
    """
    check_sizes("ece_floor", n_cal, n_test)
    p = flat_levels(levels)
    fluctuation = 1 / n_test + (0.0 if n_cal is None else 1 / n_cal)
    return float(np.mean(p * (1 - p)) * fluctuation)


def rmse(y: ArrayLike, mean: ArrayLike, *, sample_weight: ArrayLike | None = None) -> float:
    """Return the root mean squared error of the predictive mean.

    Examples
    --------
    >>> rmse([0.0, 0.0], [3.0, 3.0])
    3.0
    """
    y, mean = flat_columns(y=y, mean=mean)
    return float(np.sqrt(_mean((y - mean) ** 2, sample_weight)))


def interval_width(
    lower: ArrayLike, upper: ArrayLike, *, sample_weight: ArrayLike | None = None
) -> float:
    """Return the mean width of the intervals.

    Examples
    --------
    >>> interval_width([0.0, 0.0], [1.0, 2.0])
    1.5
    """
    lower, upper = flat_columns(lower=lower, upper=upper)
    return float(_mean(upper - lower, sample_weight))


def interval_coverage(
    y: ArrayLike, lower: ArrayLike, upper: ArrayLike, *, sample_weight: ArrayLike | None = None
) -> float:
    """Return the share of observations inside their interval, ends included.

    Examples
    --------
    >>> interval_coverage([0.5, 5.0], [0.0, 0.0], [1.0, 2.0])
    0.5
    """
    return float(_mean(covered_points(y, lower, upper), sample_weight))


def interval_score(
    y: ArrayLike,
    lower: ArrayLike,
    upper: ArrayLike,
    coverage: float,
    *,
    sample_weight: ArrayLike | None = None,
) -> float:
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
    y, lower, upper = flat_columns(y=y, lower=lower, upper=upper)
    if not 0 < coverage < 1:
        raise InvalidInputError(
            f"coverage: expected a number in (0, 1), found {coverage!r}; pass 0.95 for 95 %"
        )
    miss = np.maximum(lower - y, 0) + np.maximum(y - upper, 0)
    scores = upper - lower + 2 / (1 - coverage) * miss
    return float(_mean(scores, sample_weight))


def pinball_loss(
    y: ArrayLike,
    quantiles: ArrayLike,
    levels: ArrayLike,
    *,
    sample_weight: ArrayLike | None = None,
) -> float:
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
    loss = np.maximum(p * error, (p - 1) * error)
    if sample_weight is None:
        return float(np.mean(loss))
    return float(_mean(loss.mean(axis=1), sample_weight))


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


def _proper_table(
    y: ArrayLike, quantiles: ArrayLike, levels: ArrayLike
) -> tuple[Floats, Floats, Floats]:
    """Check the table and drop the levels 0 and 1, whose quantiles are infinite."""
    y, q = quantile_table(y, quantiles)
    p = flat_levels(levels, q.shape[1])
    proper = (p > 0) & (p < 1)
    return y, q[:, proper], p[proper]


def _distribution(
    y: ArrayLike, quantiles: ArrayLike, levels: ArrayLike
) -> tuple[Floats, PredictiveDistribution]:
    y, q, p = _proper_table(y, quantiles, levels)
    return y, PredictiveDistribution(p, q.T, numpy=True)


def _mean(values: ArrayLike, sample_weight: ArrayLike | None) -> Any:
    """Mean over rows, weighted if there are weights."""
    weights = None if sample_weight is None else np.asarray(sample_weight, dtype=np.float64)
    return np.average(np.asarray(values, dtype=np.float64), axis=0, weights=weights)
