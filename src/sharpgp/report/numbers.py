"""The numbers behind the figures of the report, as plain lists for JSON."""

from typing import Any

import numpy as np

from sharpgp.diagnostics import Diagnostics, Floats, bands_of_chance
from sharpgp.metrics import (
    BinnedCoverage,
    coverage_along,
    coverage_band,
    coverage_by_width,
    interval_coverage,
    interval_score,
    interval_width,
    observed_levels,
    pit_histogram,
    sampling_band,
)

#: Features that the page can show; beyond it those whose coverage strays most are kept.
MOST_FEATURES = 40
#: Bins of equal count along a width or a feature, and of the histogram of widths.
COVERAGE_BINS, WIDTH_BINS = 5, 24
#: Test points from which the PIT histogram gets 20 bins instead of 10.
MANY_POINTS = 1000

Numbers = dict[str, Any]


def numbers_of(found: Diagnostics) -> Numbers:
    """Everything that the figures draw, each share with the band that sampling would give it."""
    features = _shown_features(found)
    return {
        "reliability": _reliability(found),
        "pit": _pit(found),
        "features": [found.feature_names[j] for j in features],
        "intervals": [_intervals(found, k, features) for k in range(len(found.coverages))],
        "curves": _curves(found),
    }


def _reliability(found: Diagnostics) -> Numbers:
    p = found.levels
    low, high = sampling_band(p, found.n_cal, len(found.y))
    every = np.linspace(0, 1, 101)
    band = sampling_band(every, found.n_cal, len(found.y))
    return {
        "level": _list(p),
        "observed": _list(observed_levels(found.y, found.quantiles)),
        "low": _list(low),
        "high": _list(high),
        "band": {"level": _list(every), "low": _list(band[0]), "high": _list(band[1])},
    }


def _pit(found: Diagnostics) -> Numbers:
    n_bins = 20 if len(found.y) >= MANY_POINTS else 10
    # One histogram is looked at as a whole: all bins of 19 in 20 calibrated predictors are inside.
    histogram = pit_histogram(found.pit, found.n_cal, n_bins, confidence=1 - 0.05 / n_bins)
    return {
        "edges": _list(histogram.edges),
        "share": _list(histogram.share),
        "low": histogram.low,
        "high": histogram.high,
    }


def _intervals(found: Diagnostics, k: int, features: list[int]) -> Numbers:
    y, lower, upper, coverage = found.y, found.lower[:, k], found.upper[:, k], found.coverages[k]
    low, high = coverage_band(float(coverage), found.n_cal, len(y))
    width = upper - lower
    count, edges = np.histogram(width, bins=WIDTH_BINS, range=_range(width))
    by_width = coverage_by_width(y, lower, upper, COVERAGE_BINS)
    by_feature = [coverage_along(found.X[:, j], y, lower, upper, COVERAGE_BINS) for j in features]
    return {
        "coverage": float(coverage),
        "backed": found.backed[k],
        "covered": interval_coverage(y, lower, upper),
        "low": low,
        "high": high,
        "width": interval_width(lower, upper),
        "score": interval_score(y, lower, upper, float(coverage)),
        "tenths": _list(np.quantile(width, [0.1, 0.9])),
        "widths": {"edges": _list(edges), "count": count.tolist()},
        "by_width": _bins(by_width, float(coverage), found.n_cal),
        "by_feature": [_bins(bins, float(coverage), found.n_cal) for bins in by_feature],
    }


def _bins(bins: BinnedCoverage, coverage: float, n_cal: int | None) -> list[Numbers]:
    low, high = bands_of_chance(bins, coverage, n_cal)
    return [
        {
            "from": float(bins.edges[i]),
            "to": float(bins.edges[i + 1]),
            "n": int(n),
            "covered": float(bins.coverage[i]),
            "low": float(low[i]),
            "high": float(high[i]),
        }
        for i, n in enumerate(bins.n_points)
    ]


def _shown_features(found: Diagnostics) -> list[int]:
    """Columns in the order of ``X``; of very many only those whose coverage strays most."""
    d = found.X.shape[1]
    if d <= MOST_FEATURES:
        return list(range(d))
    k = int(np.abs(found.coverages - 0.9).argmin())
    strays = [
        np.abs(
            coverage_along(found.X[:, j], found.y, found.lower[:, k], found.upper[:, k]).coverage
            - found.coverages[k]
        ).max()
        for j in range(d)
    ]
    return sorted(np.argsort(strays)[-MOST_FEATURES:].tolist())


def _curves(found: Diagnostics) -> Numbers | None:
    curves = found.curves
    if curves is None:
        return None
    return {
        "delta": _list(curves.delta),
        "beta": _list(curves.beta),
        "scores": curves.scores,
        "gauss": None if curves.gauss is None else _list(curves.gauss),
        "by_level": curves.by_level,
        "names": [name for name, moved in zip(curves.names, curves.moved, strict=True) if moved],
        "theta": [_list(column) for column in curves.theta.T[curves.moved]],
    }


def _range(values: Floats) -> tuple[float, float]:
    """Range of a histogram; values that are all alike get one with room around them."""
    low, high = float(values.min()), float(values.max())
    if high - low <= 1e-6 * max(abs(high), 1e-300):
        return 0.5 * low, 1.5 * high if high > 0 else 1.0
    return low, high


def _list(values: Any) -> list[float]:
    """Six digits are more than a screen can show."""
    return [float(f"{value:.6g}") for value in np.asarray(values).ravel().tolist()]
