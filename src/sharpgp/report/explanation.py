"""Why predictions are off: the smallest cause whose removal leaves points that pass.

A page passes if no place deviates beyond chance and all points together have the shares they should
(:mod:`sharpgp.diagnostics.places`).  If it does not, causes are taken out one after another: a part
of the points is left out, or points are compared within the parts of a column only, or a common
shift and spread are taken away.  What then passes has been explained; "elsewhere predictions are
calibrated" is said only of points that were tested without the cause.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray
from scipy.special import ndtr, ndtri
from scipy.stats import f as fisher

from sharpgp._numbers import number, percent
from sharpgp.diagnostics import Diagnostics
from sharpgp.diagnostics.groupings import Grouping, outside_range
from sharpgp.diagnostics.own_columns import OwnColumn, texts_of
from sharpgp.diagnostics.places import Points, effective_size, whole_p_value
from sharpgp.report.advice import moved_advice, narrow_advice, place_advice, wide_advice

#: Most statements of a page, and causes that are tried for each.
MAX_STATEMENTS, _MAX_TRIED = 3, 8
#: Fewest points for saying anything of those that are left.
MIN_POINTS = 30
#: From this explained share of the variance on, and below this width in deviations of the target,
#: predictions are suspiciously good: people, prices and weather, measured twice, agree less well.
TOO_GOOD, TOO_NARROW = 0.999, 0.01
# A part with a larger p-value passes clearly by itself.
_CLEARLY = 0.2
#: More points outside a column's range in training: the column has moved as a whole.
_MOVED = 0.5


@dataclass(frozen=True)
class Statement:
    """One thing that is wrong: its kind, what was found, and what to do.

    ``everywhere``: whether it concerns all points, or only some.  ``cost``: share of the points
    that it moves to the wrong side of an interval end or median.
    """

    kind: str
    says: str
    advice: str
    everywhere: bool = True
    cost: float = 0.0


@dataclass(frozen=True)
class Cause:
    """A part of the points (``inside``), or all differences along a grouping (None)."""

    grouping: Grouping
    j: int | None
    excess: float

    @property
    def inside(self) -> NDArray[np.bool_] | None:
        """The points, if it is a part."""
        return None if self.j is None else self.grouping.inside(self.j)


@dataclass(frozen=True)
class Page:
    """The points that are not yet explained: which are kept, and what is left of their PITs."""

    found: Diagnostics
    points: Points
    kept: NDArray[np.bool_]

    def excess(self) -> NDArray[np.float64]:
        """Deviations (R, S) of all places, in units of their limits."""
        return self.found.places.excess(self.points, self.kept)

    @property
    def passes_as_whole(self) -> bool:
        """Whether all points together have the shares they should."""
        if self.found.out_of_fold:  # their shares were fixed by these very points
            return True
        return whole_p_value(self.points, self.found.n_cal) > self.found.level

    def without(self, cause: Cause) -> "Page":
        """The page without a part, or without differences along a grouping."""
        inside = cause.inside
        if inside is not None:
            left = ~inside[self.kept]
            return replace(self, points=self.points.take(left), kept=self.kept & ~inside)
        part, pit = cause.grouping.part[self.kept], self.points.pit.copy()
        for j in np.unique(part):
            here = part == j
            ranks = np.argsort(np.argsort(pit[here], kind="stable"), kind="stable")
            pit[here] = (ranks + 0.5) / here.sum()
        # All points keep the shares they have together.
        together = np.sort(self.points.pit)
        order = np.argsort(np.argsort(pit, kind="stable"), kind="stable")
        return replace(self, points=self.points.moved_to(together[order]))

    def causes(self, excess: NDArray[np.float64]) -> Iterator[Cause]:
        """What deviates beyond chance: parts, the clearest first, then whole groupings."""
        strongest = np.abs(excess).max(1)
        parts = self.found.places.parts
        along: dict[int, Cause] = {}
        tried = 0
        for row in np.argsort(-strongest):
            grouping, j = parts[row]
            if strongest[row] <= 1:
                break
            if grouping.kind not in ("outside", "known"):
                along.setdefault(id(grouping), Cause(grouping, None, float(strongest[row])))
            if j >= 0 and (tried < _MAX_TRIED or grouping.kind == "outside"):
                tried += 1
                yield Cause(grouping, j, float(strongest[row]))
        yield from list(along.values())[:_MAX_TRIED]


def explain(found: Diagnostics) -> list[Statement]:
    """What is wrong, most costly first; empty for a calibrated predictor."""
    page = Page(found, found.points, np.ones(len(found.y), dtype=bool))
    whole_at_first = page.passes_as_whole
    if (alike := _groups_alike(found)) is not None:
        return [alike]  # all other tests take the points for independent
    if not whole_at_first and (moved := _moved(found, page)):
        says = f"{moved}; {_of_the_whole(found, page.points).says}"
        return [Statement("inputs", says, moved_advice("later than" in moved), cost=1.0)]
    places: list[Statement] = []
    along: list[Grouping] = []
    clear = True
    while len(places) < MAX_STATEMENTS:
        excess = page.excess()
        tried = [(cause, page.without(cause)) for cause in page.causes(excess)]
        if not tried:
            break
        cause, page = max(tried, key=lambda pair: _merit(*pair))
        places.append(_of_cause(found, cause))
        along += [cause.grouping] if cause.j is None or cause.grouping.kind == "width" else []
    else:
        clear = bool((np.abs(page.excess()) <= 1).all())
    if not page.passes_as_whole:
        whole = _of_the_whole(found, page.points)
        for grouping in along:
            if _is_of_parts(found, grouping, whole):
                return [replace(_along(found, grouping), everywhere=True)]
        most, *others = sorted([whole, *places], key=lambda one: -one.cost)[:MAX_STATEMENTS]
        return [replace(most, everywhere=True), *others]
    if not places:
        return []
    left = int(page.kept.sum())
    if clear and MIN_POINTS <= left < len(found.y):
        last = places[-1]
        places[-1] = replace(last, says=f"{last.says}; elsewhere predictions are calibrated")
    return sorted(
        [replace(one, everywhere=not whole_at_first) for one in places], key=lambda one: -one.cost
    )


def _is_of_parts(found: Diagnostics, grouping: Grouping, whole: Statement) -> bool:
    """Whether a fault is not that of all points: some part passes, or parts fail both ways."""
    inside = [grouping.inside(j) for j in range(len(grouping.says))]
    parts = [found.points.take(part) for part in inside if part.sum() >= MIN_POINTS]
    above = [float((part.pit > 0.5).mean()) for part in parts] or [0.5]
    # A drift is one whichever way it goes; along columns a shift may merely vary in size.
    one_sided = min(above) > 0.5 or max(above) < 0.5 or not parts
    if grouping.kind != "row" and whole.kind == "shift" and one_sided:
        return False
    if any(whole_p_value(part, found.n_cal) > _CLEARLY for part in parts):
        return True
    wide = {bool((part.missed.mean(0) < 1 - part.coverages).mean() > 0.5) for part in parts}
    high = {bool(part.pit.mean() > 0.5) for part in parts}
    return len(wide) > 1 or (len(high) > 1 and grouping.kind == "row")


def _merit(cause: Cause, left: Page) -> tuple[bool, bool, float, bool, bool]:
    """The smallest cause that leaves a page that passes; if there is none, the clearest."""
    is_part = cause.j is not None
    if left.kept.sum() < 2:
        return False, False, 0.0, False, is_part
    passes = float(np.abs(left.excess()).max()) <= 1
    both = passes and left.passes_as_whole
    return both, both and is_part, cause.excess, passes, is_part


def _of_cause(found: Diagnostics, cause: Cause) -> Statement:
    grouping, inside = cause.grouping, cause.inside
    if cause.j is None or inside is None:
        return _along(found, grouping)
    k, sideways, excess = _clearest(found, grouping, [cause.j])
    n, place = int(inside.sum()), grouping.says[cause.j]
    covered = 1 - float(found.points.shares[inside, k].mean())
    low, high = found.places.band(grouping, cause.j, k)
    if sideways:
        share, low, high, claimed = 1 - covered, 1 - high, 1 - low, 0.5
        side = "low" if share > claimed else "high"
        says = (
            f"{place}: predictions are too {side}, {percent(share)} of {n:,} points lie above the "
            "predicted median"
        )
    else:
        share, claimed = covered, float(found.coverages[k])
        side = "narrow" if share < claimed else "wide"
        says = f"{place}: {percent(claimed)} intervals cover {percent(share)} of {n:,} points"
    if excess > 1:
        says += f", {100 * low:.3g} to {percent(high)} by chance"
    cost = abs(share - claimed) * n / len(found.y)
    return Statement("place", says, place_advice(found.method, grouping, side), False, cost)


def _clearest(
    found: Diagnostics, grouping: Grouping, parts: Sequence[int]
) -> tuple[int, bool, float]:
    """Which share shows some parts best: its number, if it is the side, and its deviation."""
    z = np.abs(found.excess[[found.places.row_of(grouping, j) for j in parts]]).max(0)
    median, first = len(found.coverages), found.first
    if max(z[0], z[-1]) > max(z[1], z[2:-1].max()):
        return median, True, z[-1]
    k = first if z[2 + first] > 1 else int(z[2:-1].argmax())
    return k, False, z[2 + k]


def _along(found: Diagnostics, grouping: Grouping) -> Statement:
    """Differences along all parts of a grouping: the two that are farthest apart."""
    parts = [j for j in range(len(grouping.says)) if grouping.inside(j).sum() >= 2]
    k, sideways, _ = _clearest(
        found, grouping, [*parts, -1] if grouping.trend is not None else parts
    )
    means = np.array([found.points.shares[grouping.inside(j), k].mean() for j in parts])
    low, high = float(means.min()), float(means.max())
    least, most = (grouping.says[parts[int(i)]] for i in (means.argmin(), means.argmax()))
    name = "the rows" if grouping.kind == "row" else grouping.name
    if sideways:
        says = (
            f"predictions drift along {name}: {percent(low)} of {least} lie above the predicted "
            f"median, and {percent(high)} of {most}"
        )
    else:
        says = (
            f"errors change along {name}: {percent(found.coverages[k])} intervals cover "
            f"{percent(1 - high)} of {most}, and {percent(1 - low)} of {least}"
        )
    cost = float(np.abs(means - np.append(1 - found.coverages, 0.5)[k]).mean())
    fault = "drift" if sideways else "spread"
    advice = place_advice(found.method, grouping, fault)
    return Statement("drift" if grouping.kind == "row" else "place", says, advice, False, cost)


def _of_the_whole(found: Diagnostics, points: Points) -> Statement:
    """A shift, a spread, or both, whichever leaves points that pass; else what is most off."""
    z = ndtri(np.clip(points.pit, 1e-9, 1 - 1e-9))
    middle = float(np.median(z))
    half = 2 * float(ndtri(0.75))
    spread = max(float(np.subtract(*np.quantile(z, [0.75, 0.25]))) / half, 1e-6)

    def p_value(centre: float, scale: float) -> float:
        moved = points.moved_to(np.asarray(ndtr((z - centre) / scale)))
        return whole_p_value(moved, found.n_cal)

    p = {
        "shift": p_value(middle, 1.0),
        "spread": p_value(0.0, spread),
        "both": p_value(middle, spread),
    }
    error = np.sqrt(1 / effective_size(points) + (1 / found.n_cal if found.n_cal else 0.0))
    shifted, spread_out = abs(middle) > 2.5 * error, abs(np.log(spread)) > 2.5 * error
    kinds = {"shift": shifted, "spread": spread_out, "both": shifted and spread_out}
    # The simplest that leaves points that pass; tails are too long where none does.
    kind = next((one for one in kinds if kinds[one] and p[one] > found.level), "")
    if kind != "both" and shifted and spread_out:
        kind = max(p, key=p.__getitem__)
    if not kind and (shifted or abs(np.log(spread)) > 5 * error):
        kind = "both" if shifted else "spread"
    above = float((points.pit > 0.5).mean())
    side, where, share = ("low", "above", above) if above > 0.5 else ("high", "below", 1 - above)
    times = f"errors are {spread:.2g} times as large as predicted"
    if kind in ("shift", "both"):
        also = f", and {times}" if kind == "both" and spread_out else ""
        return Statement(
            "shift",
            f"predictions are too {side} as a whole: {percent(share)} of the points lie {where} "
            f"the predicted median{also}",
            "Look for a shift between calibration and test data (another period, place, instrument "
            "or unit), and calibrate on data like those that you predict.",
            cost=share - 0.5,
        )
    if kind == "spread" and spread > 1:
        says, advice = f"predictions are overconfident: {times}", narrow_advice(found.method)
        return Statement("narrow", says, advice, cost=np.log(spread) / 2)
    if kind == "spread":
        says, advice = f"predictions are too cautious: {times}", wide_advice(found.method)
        return Statement("wide", says, advice, cost=-np.log(spread) / 4)
    return _of_tails_or_levels(found, points, z, error)


def _of_tails_or_levels(
    found: Diagnostics, points: Points, z: NDArray[np.float64], error: float
) -> Statement:
    far, claimed = float((np.abs(z) > ndtri(0.995)).mean()), 0.01
    if far - claimed > 2 * error * np.sqrt(claimed):
        return Statement(
            "tails",
            f"large errors are more frequent than predicted: {percent(far)} of the points lie "
            "where 1 % should",
            "The middle is right and the tails are too short. Look at the worst points below: "
            "measurement errors, or a kind of case that the calibration data lack?",
            cost=far,
        )
    missed = 1 - points.coverages
    share = (np.abs(points.pit - 0.5)[:, None] > points.coverages / 2).mean(0)
    k = int(np.abs((share - missed) / np.sqrt(missed * (1 - missed))).argmax())
    return Statement(
        "levels",
        f"quantiles do not have the shares they claim: {percent(found.coverages[k])} intervals "
        f"cover {percent(1 - share[k])} of the points, and the calibration error is "
        f"{found.ece_ratio:.1f} times what chance gives",
        narrow_advice(found.method),
        cost=float(abs(share[k] - missed[k])),
    )


def _groups_alike(found: Diagnostics) -> Statement | None:
    """One-way analysis of variance of the scores, where the fit did not know the groups."""
    if found.groups is None or not found.grouped_errors or len(found.y) < MIN_POINTS:
        return None
    u, which = found.points.scores[:, 0], found.groups
    n, k = len(u), int(which.max()) + 1
    if not 1 < k < n:
        return None
    size = np.bincount(which)
    mean = np.bincount(which, weights=u) / size
    between = float((size * (mean - u.mean()) ** 2).sum()) / (k - 1)
    within = float(((u - mean[which]) ** 2).sum()) / (n - k)
    if within > 0 and fisher.sf(between / within, k - 1, n - k) > found.level:
        return None
    typical = (n - (size**2).sum() / n) / (k - 1)
    shared = max(0.0, (between - within) / typical)
    share = shared / (shared + within)
    return Statement(
        "groups",
        f"errors within a group are alike: {percent(share)} of their variance is between the {k:,} "
        "groups",
        "Rows of one group are not independent evidence. Fit with groups, so that no group is on "
        "both sides of a split; intervals are then for new groups.",
        True,
        share,
    )


def _moved(found: Diagnostics, page: Page) -> str:
    """The column that lies elsewhere than in training, and so explains a fault of all points."""
    away = []
    for old, new in zip(found.columns_in_training, found.columns, strict=False):
        if old.labels:
            continue
        outside = outside_range(old, new)
        share, factor = float(outside.mean()), 0.0 if new.dates else _factor(old, new)
        if factor:
            much = f"{number(factor, 1)} times" if factor > 1 else f"1/{number(1 / factor, 1)} of"
            says = f"{new.name} is about {much} what it was in training"
            away.append((1 + abs(np.log(factor)), False, says))
        elif share > _MOVED:
            # It explains a fault only if predictions are off where it has moved.
            if replace(page, points=page.points.take(outside)).passes_as_whole:
                continue
            ends = np.array([old.values.min(), old.values.max()])
            between = " to ".join(texts_of(ends, dates=new.dates))
            later = new.dates and new.values.min() > ends[1]
            where = "later than in training" if later else "outside of its range in training"
            says = f"{new.name} is {where} ({between}) at {percent(share)} of the points"
            away.append((share, new.dates, says))  # time moves other columns
    return max(away)[2] if away else ""


def _factor(old: OwnColumn, new: OwnColumn) -> float:
    """How many times larger a column is than in training, where the two hardly overlap; else 0."""
    ours, theirs = (np.abs(one.values) for one in (old, new))
    apart = np.quantile(theirs, 0.1) > np.quantile(ours, 0.9) or np.quantile(
        theirs, 0.9
    ) < np.quantile(ours, 0.1)
    before, now = float(np.median(ours)), float(np.median(theirs))
    if not apart or min(before, now) <= 1e-9 * max(ours.max(), theirs.max()):
        return 0.0
    factor = now / before
    spreads = [float(np.subtract(*np.quantile(one, [0.75, 0.25]))) for one in (ours, theirs)]
    if not 0.5 < spreads[1] / max(factor * spreads[0], 1e-300) < 2:
        return 0.0  # a shift, not another unit
    power = 10.0 ** round(np.log10(factor))
    factor = power if 0.75 < factor / power < 1.33 else factor
    return factor if 3 <= max(factor, 1 / factor) <= 1e6 else 0.0
