"""What sampling alone does to a calibrated predictor: bands around shares, PIT histograms."""

from __future__ import annotations

from functools import lru_cache
from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike
from scipy.special import ndtri
from scipy.stats import betabinom, binom

from sharpgp.exceptions import InvalidInputError
from sharpgp.metrics._checks import Floats, check_sizes, flat_columns, flat_levels


def sampling_band(
    levels: ArrayLike, n_cal: int | None, n_test: int, confidence: float = 0.95
) -> tuple[Floats, Floats]:
    r"""Return where the observed share of a perfectly calibrated predictor falls, level by level.

    .. math:: p \pm z \sqrt{p (1 - p) \left(\frac1C + \frac1T\right)}

    cut to [0, 1], with C calibration and T test points and z the two-sided normal quantile of
    ``confidence``. ``None`` for C leaves its term out.

    Examples
    --------
    >>> low, high = sampling_band([0.0, 0.5, 1.0], 100, 100)
    >>> [round(float(v), 4) for v in low], [round(float(v), 4) for v in high]
    ([0.0, 0.3614, 1.0], [0.0, 0.6386, 1.0])
    """
    if not 0 < confidence < 1:
        raise InvalidInputError(
            f"confidence: expected a number in (0, 1), found {confidence!r}; the default is 0.95"
        )
    check_sizes("sampling_band", n_cal, n_test)
    p = flat_levels(levels)
    fluctuation = 1 / n_test + (0.0 if n_cal is None else 1 / n_cal)
    half = ndtri((1 + confidence) / 2) * np.sqrt(p * (1 - p) * fluctuation)
    return np.clip(p - half, 0, 1), np.clip(p + half, 0, 1)


def coverage_band(
    coverage: float, n_cal: int | None, n_test: int, confidence: float = 0.95
) -> tuple[float, float]:
    r"""Return where the share covered falls for intervals that are calibrated, exactly.

    With C exchangeable calibration points the count covered of T test points is beta-binomial,

    .. math:: \mathrm{BetaBin}(T,\ c\,(C + 1),\ (1 - c)(C + 1)) ,

    and binomial for ``None``; the band runs between its two quantiles, as shares. Unlike
    :func:`sampling_band` it stays right for few points and for coverages near 1.

    References
    ----------
    Vovk (2012), Conditional validity of inductive conformal predictors.

    Examples
    --------
    >>> coverage_band(0.9, None, 10)
    (0.7, 1.0)
    >>> low, high = coverage_band(0.9, 50, 1000)
    >>> round(low, 3), round(high, 3)
    (0.803, 0.967)
    """
    check_sizes("coverage_band", n_cal, n_test)
    if not (0 < confidence < 1 and 0 < coverage < 1):
        raise InvalidInputError(
            "coverage_band: expected coverage and confidence in (0, 1), "
            f"found {coverage!r} and {confidence!r}; pass probabilities"
        )
    low, high = _covered_counts(coverage, n_cal, n_test, confidence)
    return low / n_test, high / n_test


@lru_cache(maxsize=4096)  # groups of equal count ask for the same band again and again
def _covered_counts(
    coverage: float, n_cal: int | None, n_test: int, confidence: float
) -> tuple[float, float]:
    tails = [(1 - confidence) / 2, (1 + confidence) / 2]
    if n_cal is None:
        count = binom.ppf(tails, n_test, coverage)
    else:
        k = coverage * (n_cal + 1)
        count = betabinom.ppf(tails, n_test, k, n_cal + 1 - k)
    return float(count[0]), float(count[1])


class PitHistogram(NamedTuple):
    """Share of the points per bin, and the band that sampling alone would give each of them."""

    edges: Floats
    share: Floats
    low: float
    high: float


def pit_histogram(
    pit: ArrayLike, n_cal: int | None = None, n_bins: int = 10, confidence: float = 0.95
) -> PitHistogram:
    """Return the histogram of PIT values ``F(y)``, flat for a calibrated predictor.

    Examples
    --------
    >>> pit_histogram([0.1, 0.2, 0.3, 0.9], n_bins=2).share
    array([0.75, 0.25])
    """
    (values,) = flat_columns(pit=pit)
    if n_bins < 1 or not ((values >= 0) & (values <= 1)).all():
        raise InvalidInputError(
            "pit_histogram: expected values in [0, 1] and n_bins >= 1, found values in "
            f"[{values.min():g}, {values.max():g}] and {n_bins}; pass dist.cdf(y)"
        )
    count, edges = np.histogram(values, bins=n_bins, range=(0.0, 1.0))
    low, high = sampling_band([1 / n_bins], n_cal, len(values), confidence)
    return PitHistogram(edges, count / len(values), float(low[0]), float(high[0]))
