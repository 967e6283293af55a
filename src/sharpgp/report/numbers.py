"""The numbers behind the figures of the report, as plain lists for JSON."""

from typing import Any

import numpy as np
from scipy.special import ndtri

from sharpgp.diagnostics import (
    COVERAGE_LOOKS,
    MIN_POINTS_PER_GROUP,
    Diagnostics,
    Floats,
    OwnColumn,
    bands_of_chance,
)
from sharpgp.metrics import (
    BinnedCoverage,
    coverage_band,
    interval_coverage,
    interval_score,
    interval_width,
    observed_levels,
    pit_histogram,
    sampling_band,
)

#: Coverage that the page shows first, if available.
FIRST_COVERAGE = 0.95
#: Most features on the page; beyond, those whose coverage strays most are kept.
MAX_FEATURES_SHOWN = 40
#: Name of the order of the rows, which is treated like a feature.
ROWS = "row"
#: Bins of equal count along a width or a feature, and of the histogram of widths.
COVERAGE_BINS, WIDTH_BINS = 5, 24
#: Fewest test points for 20 bins of the PIT histogram, instead of 10.
MIN_POINTS_20_BINS = 1000
#: Most points in the figure of observed against predicted, and rows of the table of worst points.
MAX_POINTS_DRAWN, MAX_POINTS_LISTED = 250, 8
#: How often a calibrated predictor passes a test of all points together.
SHARE_PASSED = 0.98
#: A calibrated predictor's ECE exceeds this multiple of its floor one time in fifty: the ratio of
#: the 98 % point of the Cramer-von Mises statistic, 0.62, to its mean, 1/6.
MAX_ECE_RATIO = 3.7

Numbers = dict[str, Any]


def numbers_of(found: Diagnostics) -> Numbers:
    """All numbers in the figures, each share with the band of chance."""
    columns = [*_shown_columns(found), OwnColumn(ROWS, np.arange(1.0, len(found.y) + 1))]
    return {
        "target": found.target or "target",
        "unit": found.unit,
        "reliability": _reliability(found),
        "pit": _pit(found),
        "features": [column.name for column in columns],
        "intervals": [_intervals(found, k, columns) for k in range(len(found.coverages))],
        "points": _points(found),
        "worst": _worst(found),
        "learned": _learned(found),
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
    n_bins = 20 if len(found.y) >= MIN_POINTS_20_BINS else 10
    # The histogram is judged as a whole: 49 in 50 calibrated predictors have all bars inside.
    histogram = pit_histogram(
        found.pit, found.n_cal, n_bins, confidence=1 - (1 - SHARE_PASSED) / n_bins
    )
    return {
        "edges": _list(histogram.edges),
        "share": _list(histogram.share),
        "low": histogram.low,
        "high": histogram.high,
    }


def _intervals(found: Diagnostics, k: int, columns: list[OwnColumn]) -> Numbers:
    y, lower, upper, coverage = found.y, found.lower[:, k], found.upper[:, k], found.coverages[k]
    confidence = 1 - (1 - SHARE_PASSED) / COVERAGE_LOOKS
    low, high = coverage_band(float(coverage), found.n_cal, len(y), confidence)
    width = upper - lower
    counts, edges = np.histogram(width, bins=WIDTH_BINS, range=_range(width))

    def judged(column: OwnColumn) -> list[Numbers]:
        bins = column.coverage(y, lower, upper, COVERAGE_BINS)
        groups = _bins(bins, float(coverage), found.n_cal, found.looks)
        named = {"category": bool(column.labels)}
        ends = column.edge_texts(bins.edges)
        return [group | named | {"ends": ends[i]} for i, group in enumerate(groups)]

    return {
        "coverage": float(coverage),
        "backed": found.backed[k],
        "covered": interval_coverage(y, lower, upper),
        "low": low,
        "high": high,
        "width": interval_width(lower, upper),
        "score": interval_score(y, lower, upper, float(coverage)),
        "tenths": _list(np.quantile(width, [0.1, 0.9])),
        "widths": {"edges": _list(edges), "count": counts.tolist()},
        "by_width": judged(OwnColumn("", width)),
        "by_feature": [judged(column) for column in columns],
    }


def _bins(bins: BinnedCoverage, coverage: float, n_cal: int | None, looks: int) -> list[Numbers]:
    """Groups of points; ``odd`` ones differ from the requested coverage *and* from the others.

    If all groups fail alike, none is odd: the fault does not depend on this feature.
    """
    low, high = bands_of_chance(bins, coverage, n_cal, looks)
    out = []
    for i, n in enumerate(bins.n_points):
        covered = float(bins.coverage[i])
        off = not low[i] <= covered <= high[i]
        out.append(
            {
                "from": float(bins.edges[i]),
                "to": float(bins.edges[i + 1]),
                "n": int(n),
                "covered": covered,
                "low": float(low[i]),
                "high": float(high[i]),
                "odd": bool(off and _differs(bins, i, looks)),
            }
        )
    return out


def _differs(bins: BinnedCoverage, i: int, looks: int) -> bool:
    """Whether a group's coverage differs from that of the other groups, beyond chance."""
    n, covered = bins.n_points, bins.coverage
    rest = np.delete(np.arange(len(n)), i)
    others = int(n[rest].sum())
    if others < MIN_POINTS_PER_GROUP:
        return False
    # One hit and one miss are added to each side, so that shares of 0 and 1 also have an error.
    here = (covered[i] * n[i] + 1) / (n[i] + 2)
    there = (float((covered[rest] * n[rest]).sum()) + 1) / (others + 2)
    variance = here * (1 - here) / (n[i] + 2) + there * (1 - there) / (others + 2)
    return bool(abs(here - there) > ndtri(1 - 0.025 / (len(n) * looks)) * np.sqrt(variance))


def _shown_columns(found: Diagnostics) -> list[OwnColumn]:
    """Columns in order; if there are very many, those whose coverage strays most."""
    columns = list(found.columns)
    if len(columns) <= MAX_FEATURES_SHOWN:
        return columns
    k = int(np.abs(found.coverages - 0.9).argmin())
    strays = [
        np.abs(
            column.coverage(found.y, found.lower[:, k], found.upper[:, k]).coverage
            - found.coverages[k]
        ).max()
        for column in columns
    ]
    return [columns[j] for j in sorted(np.argsort(strays)[-MAX_FEATURES_SHOWN:].tolist())]


def _points(found: Diagnostics) -> Numbers:
    """Observed against predicted; very many points are thinned evenly along the predictions."""
    order = np.argsort(found.mean, kind="stable")
    kept = order[
        np.unique(np.linspace(0, len(order) - 1, MAX_POINTS_DRAWN).round().astype(np.int64))
    ]
    return {
        "of": len(order),
        "row": (kept + 1).tolist(),
        "mean": _list(found.mean[kept]),
        "y": _list(found.y[kept]),
        "lower": [_list(column[kept]) for column in found.lower.T],
        "upper": [_list(column[kept]) for column in found.upper.T],
    }


def _worst(found: Diagnostics) -> list[Numbers]:
    """The points that lie farthest out in their own predictive distributions."""
    k = int(np.abs(found.coverages - FIRST_COVERAGE).argmin())
    lower, upper = found.lower[:, k], found.upper[:, k]
    half = np.maximum((upper - lower) / 2, 1e-300)
    # In half widths from the middle: unlike probabilities, these tell 5 from 50 deviations.
    away = np.abs(found.y - (lower + upper) / 2) / half
    rows = np.argsort(-away, kind="stable")[:MAX_POINTS_LISTED]
    return [
        {
            "row": int(i) + 1,
            "observed": float(found.y[i]),
            "mean": float(found.mean[i]),
            "lower": float(lower[i]),
            "upper": float(upper[i]),
            "away": float(away[i]),
        }
        for i in rows
    ]


def _learned(found: Diagnostics) -> Numbers:
    """The pooled models, and how much predictions depend on each feature, largest first."""
    out: Numbers = {
        "members": [
            {"name": one.name, "weight": one.weight, "crps": one.crps}
            for one in found.members
            if one.weight >= 0.005 or len(found.members) == 1
        ],
        "relevance": [
            {"name": name, "value": float(f"{value:.4g}")}
            for name, value in list(found.relevant.items())[:12]
        ],
    }
    for one in out["members"]:
        one["crps"] = float(one["crps"]) if np.isfinite(one["crps"]) else None
    return out


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
    """Range of a histogram, with some room if all values are equal."""
    low, high = float(values.min()), float(values.max())
    if high - low <= 1e-6 * max(abs(high), 1e-300):
        return 0.5 * low, 1.5 * high if high > 0 else 1.0
    return low, high


def _list(values: Any) -> list[float]:
    """Six digits are more than a screen can show."""
    return [float(f"{value:.6g}") for value in np.asarray(values).ravel().tolist()]
