"""What is wrong with a model on test data, worst first, each by a test of its own.

The order of the tests makes sure that a fault is named by its cause. Inputs far from training come
first, then copies and groups, as all other tests assume independent points. A trend along the rows
comes before a shift, a shift before a wrong spread. Places where coverage differs come next, and
all columns together last. A calibrated predictor passes each test 49 times in 50 (the many places
together: 19 in 20), and all of them about nine times in ten.
"""

from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np
from scipy.special import ndtri
from scipy.stats import f as fisher

from sharpgp.diagnostics import Diagnostics
from sharpgp.diagnostics.chance import MIN_POINTS_PER_GROUP
from sharpgp.metrics import coverage_band
from sharpgp.report.advice import narrow_advice, spread_advice, wide_advice
from sharpgp.report.numbers import FIRST_COVERAGE, MAX_ECE_RATIO, ROWS, SHARE_PASSED, Numbers
from sharpgp.report.wording import numeral, percent, place_of, place_of_gaps

#: Fewest points for judging shape, trend and groups.
MIN_POINTS = 30
#: Standard errors that a calibrated predictor exceeds one time in fifty.
_FAR = float(ndtri((1 + SHARE_PASSED) / 2))
#: The same for a trend along the rows, one time in 500: rows are rarely in a meaningful order.
_TREND = float(ndtri(0.999))
#: Standard error of a robust spread (the range of the middle half) of n normal scores, times the
#: root of n.
_SPREAD_ERROR = 1.167
#: Upper ends of the middle 50 % and the middle 99 % of a standard normal.
_HALF, _OUTER = float(ndtri(0.75)), float(ndtri(0.995))
#: A column is suspected first if it is this many times larger or smaller than in training, or if a
#: larger share of points lies outside its training range.
_FACTOR, _OUTSIDE = 3.0, 0.05
#: Rank correlation with the row order from which the rows count as sorted by the target.
_SORTED = 0.95


@dataclass(frozen=True)
class Fault:
    """One fault: its kind, what was found, and what to do.

    ``everywhere``: whether it concerns all points, or only some.
    """

    kind: str
    says: str
    advice: str
    everywhere: bool = True


def faults(found: Diagnostics, numbers: Numbers) -> list[Fault]:
    """All faults beyond chance, worst first; empty for a calibrated predictor."""
    tests: list[Callable[[Diagnostics], Fault | None]] = [_copies, _groups, _drift]
    out = [fault for test in tests if (fault := test(found))]
    places = _places(found, numbers)
    average = _on_average(found) or _levels(found)
    average = average or _bars(found, numbers) or _coverage(found, numbers)
    if average is not None and (moved := _inputs(found)):
        return [replace(moved, says=f"{moved.says}; {average.says}"), *out, average]
    if average is None and not places and not out and (risk := _conditional(found)):
        return [risk]
    if average is None or any(fault.kind == "drift" for fault in out):
        return out + [fault for fault, _ in places]
    if places:
        worst, inside = places[0]
        # Nothing is wrong without those points: the fault is the place, not the whole.
        if not _on_average(replace(found, y=found.y[~inside], pit=found.pit[~inside])):
            says = f"{worst.says}, and elsewhere predictions are calibrated"
            named = replace(worst, says=says, everywhere=True)
            return [*out, named, *(fault for fault, _ in places[1:])]
    return [*out, average, *(fault for fault, _ in places)]


def _on_average(found: Diagnostics) -> Fault | None:
    """The first of these explains the others: a shift puts points beyond the ends, too."""
    whole: list[Callable[[Diagnostics], Fault | None]] = [_shift, _spread, _tails]
    return next((fault for test in whole if (fault := test(found))), None)


def scores_of(found: Diagnostics) -> np.ndarray:
    """Observations as normal scores (n,): standard normal for a calibrated predictor."""
    return np.asarray(ndtri(np.clip(found.pit, 1e-12, 1 - 1e-12)))


def _error(found: Diagnostics) -> float:
    """Root of 1/T + 1/C: the standard error of a mean of scores."""
    return float(np.sqrt(1 / len(found.y) + (1 / found.n_cal if found.n_cal else 0.0)))


def _inputs(found: Diagnostics) -> Fault | None:
    """Columns whose values differ from training, the most different first."""
    away = []
    for old, new in zip(found.columns_in_training, found.columns, strict=False):
        if old.labels or old.dates:
            continue
        low, high = float(old.values.min()), float(old.values.max())
        outside = float(((new.values < low) | (new.values > high)).mean())
        before, now = (float(np.median(np.abs(one.values))) for one in (old, new))
        factor = now / before if before > 0 else 1.0
        if not 1 / _FACTOR < factor < _FACTOR:
            times = _round_factor(max(factor, 1 / max(factor, 1e-12)))
            much = f"{times:,.0f} times" if factor > 1 else f"1/{times:,.0f} of"
            away.append((1 + times, f"{new.name} is about {much} what it was in training"))
        elif outside > _OUTSIDE:
            ends = " to ".join(old.edge_texts(np.array([low, high]))[0])
            says = f"{new.name} is outside of its range in training ({ends}) at {percent(outside)}"
            away.append((outside, f"{says} of the points"))
    if not away:
        return None
    says = max(away)[1]
    return Fault(
        "inputs",
        says,
        "Check its unit and where these rows come from. Outside of what it has seen, a model can "
        "only be as good as its guess.",
    )


def _round_factor(factor: float) -> float:
    """A power of ten if one is close, as between units; otherwise one digit."""
    power = 10.0 ** round(np.log10(factor))
    return power if 0.75 < factor / power < 1.33 else float(f"{factor:.1g}")


def _copies(found: Diagnostics) -> Fault | None:
    n, seen, copies = len(found.y), found.n_seen, found.n_copies
    # Rows of few values (categories, gaps, zeros) are equal by chance. The rate is estimated from
    # the n (n - 1) / 2 pairs of test rows, for the n n_train pairs here.
    chance = 2 * copies * found.n_train / max(n - 1, 1)
    if seen > max(0.01 * n, chance + 3 * chance**0.5):
        return Fault(
            "copies",
            f"{numeral(seen)} of {numeral(n)} test rows are among the rows that trained or "
            "calibrated the model, so all figures here are too good",
            "Take them out of the test data and make the report again.",
        )
    if copies > 0.05 * n:
        return Fault(
            "copies",
            f"{numeral(copies)} of {numeral(n)} test rows are copies of other test rows, so "
            "the bands of chance are too narrow",
            "Keep one of each, and make the report again.",
        )
    return None


def _groups(found: Diagnostics) -> Fault | None:
    """One-way analysis of variance of the scores."""
    if found.groups is None or len(found.y) < MIN_POINTS:
        return None
    u, which = scores_of(found), found.groups
    n, k = len(u), int(which.max()) + 1
    if not 1 < k < n:
        return None
    size = np.bincount(which)
    mean = np.bincount(which, weights=u) / size
    between = float((size * (mean - u.mean()) ** 2).sum()) / (k - 1)
    within = float(((u - mean[which]) ** 2).sum()) / (n - k)
    if within > 0 and fisher.sf(between / within, k - 1, n - k) >= 1 - SHARE_PASSED:
        return None
    typical = (n - (size**2).sum() / n) / (k - 1)
    shared = max(0.0, (between - within) / typical)
    return Fault(
        "groups",
        f"errors within a group are alike: {percent(shared / (shared + within))} of their variance "
        f"is between the {numeral(k)} groups",
        "Rows of one group are not independent evidence. Fit with groups, so that no group is on "
        "both sides of a split; intervals are then for new groups.",
    )


def _drift(found: Diagnostics) -> Fault | None:
    """A trend of the scores along the rows, unless these are sorted by the target."""
    n = len(found.y)
    if n < MIN_POINTS or found.groups is not None:
        return None
    row = np.arange(n)
    if abs(_correlation(row, _ranks(found.y))) > _SORTED:
        return None
    trend = _correlation(row, scores_of(found))
    if abs(trend) * np.sqrt(n - 1) <= _TREND:
        return None
    fifth = max(1, n // 5)
    first, last = (found.pit[part] > 0.5 for part in (slice(fifth), slice(-fifth, None)))
    return Fault(
        "drift",
        f"predictions drift along the rows: {percent(first.mean())} of the first fifth lie above "
        f"the predicted median and {percent(last.mean())} of the last fifth",
        "If the rows are in the order of time, the process has changed: calibrate on newer data, "
        "or follow it with Online; see the guide on drift.",
    )


def _shift(found: Diagnostics) -> Fault | None:
    """Too many points on one side of the predicted median."""
    above = float((found.pit > 0.5).mean())
    low, high = coverage_band(0.5, found.n_cal, len(found.y), SHARE_PASSED)
    if low <= above <= high:
        return None
    side, share = ("low", above) if above > high else ("high", 1 - above)
    where = "above" if side == "low" else "below"
    return Fault(
        "shift",
        f"predictions are too {side} as a whole: {percent(share)} of the points lie {where} the "
        "predicted median",
        "Look for a shift between the data of calibration and test (another period, place or "
        "instrument, another unit), and calibrate on data like those that you predict.",
    )


def _spread(found: Diagnostics) -> Fault | None:
    """The middle half of the scores is too wide or too narrow."""
    if len(found.y) < MIN_POINTS:
        return None
    spread = _robust_spread(scores_of(found))
    if abs(np.log(spread)) <= _FAR * _SPREAD_ERROR * _error(found):
        return None
    if spread > 1:
        return Fault(
            "narrow",
            f"predictions are overconfident: errors are {spread:.2g} times as large as predicted",
            narrow_advice(found.method),
        )
    return Fault(
        "wide",
        f"predictions are too cautious: errors are {spread:.2g} times as large as predicted",
        wide_advice(found.method),
    )


def _tails(found: Diagnostics) -> Fault | None:
    """More points far out than the middle of the scores suggests."""
    n = len(found.y)
    if n < MIN_POINTS:
        return None
    u = scores_of(found)
    far = np.abs(u - np.median(u)) > _OUTER * max(1.0, _robust_spread(u))
    low, _ = coverage_band(0.99, found.n_cal, n, SHARE_PASSED)
    if 1 - far.mean() >= low:
        return None
    return Fault(
        "tails",
        f"large errors are more frequent than predicted: {percent(far.mean())} of the points lie "
        "where 1 % should",
        "The middle is right and the tails are too short. Look at the worst points below: "
        "measurement errors, or a kind of case that the calibration data lack?",
    )


def _levels(found: Diagnostics) -> Fault | None:
    """All levels at once, by the ECE against its floor."""
    ratio = found.report["ece"] / found.report["ece_floor"]
    if ratio <= MAX_ECE_RATIO:
        return None
    return Fault(
        "levels",
        f"quantiles do not have the shares they claim: the calibration error is {ratio:.1f} "
        "times what chance alone gives",
        narrow_advice(found.method),
    )


def _bars(found: Diagnostics, numbers: Numbers) -> Fault | None:
    """A bar of the PIT histogram that leaves the band of all bars."""
    share, low, high = (np.asarray(numbers["pit"][key]) for key in ("share", "low", "high"))
    away = np.maximum(low - share, share - high)
    if away.max() <= 0:
        return None
    i, n = int(away.argmax()), len(share)
    return Fault(
        "levels",
        f"{percent(share[i])} of the points fall between the predicted {100 * i // n} % and "
        f"{100 * (i + 1) // n} % quantiles, where {percent(1 / n)} should",
        narrow_advice(found.method),
    )


def _coverage(found: Diagnostics, numbers: Numbers) -> Fault | None:
    """Intervals at one coverage, if no specific fault stands out."""
    off = [part for part in numbers["intervals"] if outside(part)]
    if not off:
        return None
    worst = max(off, key=lambda part: abs(part["covered"] - part["coverage"]))
    less = worst["covered"] < worst["coverage"]
    return Fault(
        "coverage",
        f"{percent(worst['coverage'])} intervals cover {percent(worst['covered'])} of the points",
        narrow_advice(found.method) if less else wide_advice(found.method),
    )


def _conditional(found: Diagnostics) -> Fault | None:
    """All features together predict which points are missed, though no single column does."""
    risk, chance = (found.report.get(f"excess_risk{one}_95", 0.0) for one in ("", "_chance"))
    if risk <= chance:
        return None
    return Fault(
        "conditional",
        f"the columns together tell who is missed: given them, coverage of 95 % intervals is off "
        f"by {percent(risk)} on average, where chance gives at most {percent(chance)}",
        spread_advice(found.method),
        everywhere=False,
    )


def _places(found: Diagnostics, numbers: Numbers) -> list[tuple[Fault, np.ndarray]]:
    """Groups whose coverage differs, with their points, worst first; one per feature."""
    named: dict[str, tuple[float, Fault, np.ndarray]] = {}
    for k, part in enumerate(numbers["intervals"]):
        columns = {column.name: column.values for column in found.columns}
        columns |= {
            ROWS: np.arange(1.0, len(found.y) + 1),
            "": found.upper[:, k] - found.lower[:, k],
        }
        figures = [("", part["by_width"])]
        figures += list(zip(numbers["features"], part["by_feature"], strict=True))
        for name, bins in figures:
            for i, group in enumerate(bins):
                if not group["odd"]:
                    continue
                values = columns[name]
                inside = (values <= group["to"]) & (values > group["from"] if i else True)
                place = place_of(name, bins, i)
                one = _place(found, place, part["coverage"], group["covered"], group["n"], inside)
                named[name] = max(named.get(name, one), one, key=lambda place: place[0])
        by_gaps, beyond = found.coverage_by_gaps(k), found.gaps_beyond_chance(k)
        alike = all(name in beyond for name, (n, _) in by_gaps.items() if n >= MIN_POINTS_PER_GROUP)
        for pattern in [] if alike else beyond:  # if all groups fail, gaps are not the reason
            n, covered = by_gaps[pattern]
            inside = np.array([row == pattern for row in found.gap_patterns])
            one = _place(found, place_of_gaps(pattern), part["coverage"], covered, n, inside)
            key = f"gaps: {pattern}"
            named[key] = max(named.get(key, one), one, key=lambda place: place[0])
    worst_first = sorted(named.values(), key=lambda one: -one[0])
    return [(fault, inside) for _, fault, inside in worst_first]


def _place(
    found: Diagnostics, name: str, coverage: float, covered: float, n: int, inside: np.ndarray
) -> tuple[float, Fault, np.ndarray]:
    """Severity of a place, its fault, and which points are there."""
    badness = abs(covered - coverage) / np.sqrt(coverage * (1 - coverage) / n)
    # Undercoverage before overcoverage, then the coverage that the page shows first.
    badness += 1000.0 * (covered < coverage) + 100.0 * (coverage == FIRST_COVERAGE)
    says = f"{name}: {percent(coverage)} intervals cover {percent(covered)} of {n} points"
    fault = Fault("place", says, spread_advice(found.method), everywhere=False)
    return badness, fault, inside


def outside(part: Numbers) -> bool:
    """Whether the coverage of all points together leaves the band of chance."""
    return not part["low"] <= part["covered"] <= part["high"]


def _robust_spread(u: np.ndarray) -> float:
    low, high = np.quantile(u, [0.25, 0.75])
    return max(float(high - low) / (2 * _HALF), 1e-6)


def _correlation(a: np.ndarray, b: np.ndarray) -> float:
    a, b = a - a.mean(), b - b.mean()
    size = float(np.sqrt((a @ a) * (b @ b)))
    return float(a @ b) / size if size > 0 else 0.0


def _ranks(values: np.ndarray) -> np.ndarray:
    return np.argsort(np.argsort(values, kind="stable"), kind="stable")
