"""The numbers behind the figures of the report, as plain lists for JSON."""

from typing import Any

import numpy as np

from sharpgp.diagnostics import Diagnostics, Floats, Grouping
from sharpgp.diagnostics.places import reliability_reach
from sharpgp.metrics import (
    coverage_band,
    interval_score,
    interval_width,
    pit_histogram,
)

#: Most groupings on the page; beyond, those that stray most are kept.
MAX_GROUPINGS_SHOWN = 40
#: Bins of the histogram of widths.
WIDTH_BINS = 24
#: Fewest test points for 20 bins of the PIT histogram, instead of 10.
MIN_POINTS_20_BINS = 1000
#: Most points in the figure of observed against predicted, and rows of the table of worst points.
MAX_POINTS_DRAWN, MAX_POINTS_LISTED = 250, 8

Numbers = dict[str, Any]


def numbers_of(found: Diagnostics) -> Numbers:
    """All numbers in the figures, each share with the band of chance."""
    shown = _shown(found)
    feature = max(range(len(shown)), key=lambda i: found.stray(shown[i]))
    return {
        "first": {"coverage": found.first, "feature": feature},
        "target": found.target or "target",
        "unit": found.unit,
        "reliability": _reliability(found),
        "pit": _pit(found),
        "features": [grouping.name for grouping in shown],
        "intervals": [_intervals(found, k, shown) for k in range(len(found.coverages))],
        "points": _points(found),
        "worst": _worst(found),
        "learned": _learned(found),
        "curves": _curves(found),
    }


def _reliability(found: Diagnostics) -> Numbers:
    p = found.levels
    reach = reliability_reach(found.points, found.n_cal, found.level)

    def around(levels: Floats) -> tuple[Floats, Floats]:
        off = reach * np.sqrt(levels * (1 - levels))
        return np.clip(levels - off, 0, 1), np.clip(levels + off, 0, 1)

    every = np.linspace(0, 1, 101)
    (low, high), band = around(p), around(every)
    return {
        "level": _list(p),
        "observed": _list(found.observed),
        "low": _list(low),
        "high": _list(high),
        "band": {"level": _list(every), "low": _list(band[0]), "high": _list(band[1])},
    }


def _pit(found: Diagnostics) -> Numbers:
    n_bins = 20 if len(found.y) >= MIN_POINTS_20_BINS else 10
    # The histogram is judged as a whole.
    histogram = pit_histogram(found.pit, found.n_cal, n_bins, confidence=1 - found.level / n_bins)
    return {
        "edges": _list(histogram.edges),
        "share": _list(histogram.share),
        "low": histogram.low,
        "high": histogram.high,
    }


def _intervals(found: Diagnostics, k: int, shown: list[Grouping]) -> Numbers:
    y, lower, upper, coverage = found.y, found.lower[:, k], found.upper[:, k], found.coverages[k]
    low, high = coverage_band(float(coverage), found.n_cal, len(y), 1 - found.level)
    width = upper - lower
    counts, edges = np.histogram(width, bins=WIDTH_BINS, range=_range(width))
    return {
        "coverage": float(coverage),
        "backed": found.backed[k],
        "covered": float(found.covered[:, k].mean()),
        "low": low,
        "high": high,
        "width": interval_width(lower, upper),
        "score": interval_score(y, lower, upper, float(coverage)),
        "tenths": _list(np.quantile(width, [0.1, 0.9])),
        "widths": {"edges": _list(edges), "count": counts.tolist()},
        "by_width": _parts(found, found.groupings[0], k),
        "by_feature": [_parts(found, grouping, k) for grouping in shown],
    }


def _parts(found: Diagnostics, grouping: Grouping, k: int) -> list[Numbers]:
    """Parts of the points; ``odd`` ones deviate from all points beyond chance, in any way."""
    out = []
    for j, says in enumerate(grouping.says):
        inside = grouping.inside(j)
        if not inside.any():
            continue
        low, high = found.places.band(grouping, j, k)
        odd = found.excess_of(grouping, j) > 1
        out.append(
            {
                "says": says,
                "ends": grouping.ends[j],
                "category": grouping.named,
                "n": int(inside.sum()),
                "covered": float(found.covered[inside, k].mean()),
                "low": low,
                "high": high,
                "odd": bool(odd),
            }
        )
    return out


def _shown(found: Diagnostics) -> list[Grouping]:
    """Groupings of the figure, in order; if there are very many, those that stray most."""
    shown = [g for g in found.groupings if g.kind in ("column", "row", "gaps", "distance")]
    strays = [found.stray(grouping) for grouping in shown]
    return [shown[i] for i in sorted(np.argsort(strays)[-MAX_GROUPINGS_SHOWN:].tolist())]


def _points(found: Diagnostics) -> Numbers:
    """Observed against predicted; very many points are thinned evenly along the predictions."""
    order = np.argsort(found.mean, kind="stable")
    kept = order[
        np.unique(np.linspace(0, len(order) - 1, MAX_POINTS_DRAWN).round().astype(np.int64))
    ]
    return {
        "of": len(order),
        "row": found.row[kept].tolist(),
        "mean": _list(found.mean[kept]),
        "y": _list(found.y[kept]),
        "lower": [_list(column[kept]) for column in found.lower.T],
        "upper": [_list(column[kept]) for column in found.upper.T],
    }


def _worst(found: Diagnostics) -> list[Numbers]:
    """The points that lie farthest out in their own predictive distributions."""
    k = found.first
    lower, upper = found.lower[:, k], found.upper[:, k]
    half = np.maximum((upper - lower) / 2, 1e-300)
    # In half widths from the middle: unlike probabilities, these tell 5 from 50 deviations.
    away = np.abs(found.y - (lower + upper) / 2) / half
    rows = np.argsort(-away, kind="stable")[:MAX_POINTS_LISTED]
    return [
        {
            "row": int(found.row[i]),
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
