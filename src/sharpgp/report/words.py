"""What each figure of the report shows and what to do about it, in plain words.

Every sentence follows from numbers by a fixed rule. Only :mod:`sharpgp.report.faults` decides
whether there is a fault and of which kind, so that no figure contradicts another.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from sharpgp.diagnostics import Diagnostics
from sharpgp.report.advice import narrow_advice, spread_advice, wide_advice
from sharpgp.report.faults import MIN_POINTS, Fault, outside
from sharpgp.report.numbers import MAX_ECE_RATIO, ROWS, Numbers
from sharpgp.report.wording import count, numeral, percent, place_of


@dataclass(frozen=True)
class Finding:
    """What a figure shows, what to do about it, and whether all is well."""

    shows: str
    advice: str
    well: bool


@dataclass(frozen=True)
class Verdict:
    """The first sentence of the report: ``state`` is ``"well"``, ``"look"`` or ``"fault"``."""

    state: str
    heading: str
    says: str
    advice: str


def verdict(found: Diagnostics, faults: Sequence[Fault]) -> Verdict:
    """One of three states, with the worst finding by name."""
    leak = next((one for one in found.suspicions if one.kind == "leak"), None)
    if leak is not None and not (faults and faults[0].kind in ("inputs", "copies")):
        return Verdict("look", "Too good to be true?", leak.says, leak.cure)
    if not faults and len(found.y) < MIN_POINTS:
        return Verdict(
            "look",
            "Too few points to tell:",
            f"{numeral(len(found.y))} test points show no fault, and would not show most.",
            f"{MIN_POINTS} are a start, some hundreds are better.",
        )
    if not faults:
        return Verdict(
            "well",
            "Calibrated",
            f"on average and, as far as {numeral(len(found.y))} test points can tell, everywhere.",
            "",
        )
    worst = faults[0]
    more = len(faults) - 1
    also = "" if not more else f" (and {more} more {'finding' if more == 1 else 'findings'} below)"
    if worst.kind == "copies":
        return Verdict("fault", "Cannot be judged:", f"{worst.says}{also}.", worst.advice)
    if worst.everywhere:
        return Verdict("fault", "Not calibrated:", f"{worst.says}{also}.", worst.advice)
    return Verdict(
        "look", "Calibrated on average, not everywhere:", f"{worst.says}{also}.", worst.advice
    )


#: Kinds of faults that the distribution as a whole shows.
_WHOLE = ("inputs", "drift", "shift", "narrow", "wide", "tails", "levels")


def _of_the_whole(faults: Sequence[Fault]) -> Fault | None:
    return next((fault for fault in faults if fault.kind in _WHOLE), None)


def reliability(found: Diagnostics, numbers: Numbers, faults: Sequence[Fault]) -> Finding:
    """The reliability diagram: all levels at once."""
    part = numbers["reliability"]
    observed, p = np.array(part["observed"]), np.array(part["level"])
    off = int(((observed < part["low"]) | (observed > part["high"])).sum())
    ratio = found.report["ece"] / found.report["ece_floor"]
    shows = (
        "Each dot is a level: the share of points observed at or below that predicted quantile. "
        f"{count(off, len(p))} of {len(p)} dots lie outside the band of chance, and the "
        f"calibration error is {ratio:.1f} times its floor."
    )
    fault = _of_the_whole(faults)
    if fault is None and ratio > MAX_ECE_RATIO:
        return Finding(shows, _reason(faults), False)
    if fault is None:
        alike = (
            "All points together are as close to the diagonal as chance allows; see the verdict."
        )
        return Finding(shows, alike if faults else "A calibrated predictor looks like this.", True)
    return Finding(shows, f"{_sentence(fault.says)} {fault.advice}", False)


#: What each kind of fault looks like in the PIT histogram.
_SHAPES = {
    "narrow": "The ends are too high: distributions are too narrow.",
    "wide": "The middle is too high: distributions are too wide.",
    "tails": "Points pile up in the outermost bars: tails are too short.",
    "inputs": "The shape is that of points unlike those of training.",
    "drift": "The shape is that of all rows together; it changes along them.",
    "levels": "The bars are uneven in more than one way.",
}


def pit(found: Diagnostics, numbers: Numbers, faults: Sequence[Fault]) -> Finding:
    """The PIT histogram: its shape shows what kind of fault there is."""
    part = numbers["pit"]
    share = np.array(part["share"])
    off = int(((share < part["low"]) | (share > part["high"])).sum())
    shows = (
        "Where each observation fell in its own predictive distribution: 0 is far below, 1 far "
        f"above. Flat is calibrated; {count(off, len(share)).lower()} of {len(share)} bars "
        f"{'leaves' if off == 1 else 'leave'} the band of chance."
    )
    fault = _of_the_whole(faults)
    if fault is None and off:
        return Finding(shows, _reason(faults), False)
    if fault is None:
        return Finding(shows, "No shape stands out, so nothing needs repair here.", True)
    if fault.kind == "shift":
        high = float(np.mean(found.pit)) > 0.5
        shape = (
            f"The bars lean to the {'right' if high else 'left'}: observations are "
            f"{'higher' if high else 'lower'} than predicted."
        )
    else:
        shape = _SHAPES[fault.kind]
    return Finding(shows, shape, False)


def points(found: Diagnostics, part: Numbers, numbers: Numbers) -> Finding:
    """Observed against predicted values."""
    shown, of = len(numbers["points"]["row"]), numbers["points"]["of"]
    residual = float(found.y.var())
    explained = 1 - float(np.mean((found.y - found.mean) ** 2)) / residual if residual else 0.0
    picked = f" ({shown} of {numeral(of)} points are drawn)" if shown < of else ""
    shows = (
        f"Each point with its {percent(part['coverage'])} interval{picked}; on the dashed line, "
        "observed is predicted. Predictions explain "
        f"{percent(explained) if explained > 0 else 'none'} of the variance."
    )
    if explained < 0.1:
        return Finding(
            shows,
            "The features tell little about the target: intervals can be calibrated and still as "
            "wide as the data.",
            True,
        )
    return Finding(shows, "Points beyond their interval are marked; the worst are listed.", True)


def widths(found: Diagnostics, part: Numbers, faults: Sequence[Fault]) -> Finding:
    """Widths at one coverage, never without the coverage that comes with them."""
    asked, covered = percent(part["coverage"]), percent(part["covered"])
    narrow, wide = part["tenths"]
    spread = float(found.y.std())
    unit = f" {found.unit}" if found.unit else ""
    relative = (
        f" ({part['width'] / spread:.2f} standard deviations of the target)" if spread else ""
    )
    shows = (
        f"{asked} intervals are {part['width']:.3g}{unit} wide on average{relative} and cover "
        f"{covered} of the points. "
    )
    alike = wide < 1.02 * narrow
    if alike:
        shows += "All are about equally wide."
    else:
        shows += f"One in ten is narrower than {narrow:.3g}, one in ten wider than {wide:.3g}."
    if not part["backed"]:
        return Finding(
            shows,
            f"There are too few calibration points for {asked}: the ends come from a modelled "
            "tail, without a guarantee. Add calibration points or ask for less coverage.",
            False,
        )
    if outside(part) and part["covered"] < part["coverage"]:
        return Finding(
            shows,
            "They cover fewer points than they claim, beyond chance: do not rely on their width "
            f"until that is repaired. {_reason(faults) or narrow_advice(found.method)}",
            False,
        )
    if outside(part):
        return Finding(
            shows,
            "They cover more points than they need to, beyond chance, so that they could be "
            f"narrower. {_reason(faults) or wide_advice(found.method)}",
            False,
        )
    if alike:
        return Finding(
            shows,
            "The model sees no difference in uncertainty between points. If you do, use a "
            'calibration that learns where the noise is large: "cv" or "exact".',
            True,
        )
    return Finding(
        shows,
        "Coverage is nominal, within chance. Points with wide intervals are those that the model "
        "knows least about: new data help most there.",
        True,
    )


def _reason(faults: Sequence[Fault]) -> str:
    """A reference to the verdict if it names more than this coverage."""
    if not faults or faults[0].kind == "coverage":
        return ""
    return "The verdict above names the likely reason."


def by_width(found: Diagnostics, part: Numbers) -> Finding:
    """Coverage among narrow and among wide intervals."""
    bins = part["by_width"]
    if len(bins) == 1:
        return Finding("All widths are alike, so there is only one group.", "", True)
    shows = (
        f"The points in {len(bins)} groups from the narrowest to the widest intervals, and the "
        f"share of each group that its {percent(part['coverage'])} intervals cover. "
    )
    odd = _odd(bins, part["coverage"])
    if odd is None:
        return _even(shows, part, bins, "A narrow interval is as trustworthy as a wide one.")
    place = place_of("", bins, odd)
    shows += f"{place[0].upper()}{place[1:]} cover {_share(bins[odd])}."
    if bins[odd]["covered"] < part["coverage"]:
        advice = "Do not read these widths as certainty: the spread misses noise that is there. "
    else:
        advice = "These are wider than they need to be. "
    return Finding(shows, advice + spread_advice(found.method), False)


def by_feature(found: Diagnostics, part: Numbers, which: int, names: list[str]) -> Finding:
    """Coverage along one feature, or along the rows."""
    bins, name = part["by_feature"][which], names[which]
    along = "in the order of the rows" if name == ROWS else f"along {name}"
    shows = (
        f"The points in groups {along}, and the share of each group that its "
        f"{percent(part['coverage'])} intervals cover. "
    )
    if len(bins) == 1:
        return Finding(shows + f"{name} has too few values to make groups of.", "", True)
    odd = _odd(bins, part["coverage"])
    if odd is None:
        return _even(shows, part, bins, f"Coverage is nominal everywhere {along}.")
    narrow = bins[odd]["covered"] < part["coverage"]
    shows += f"At {place_of(name, bins, odd)} it is {_share(bins[odd])}."
    reason = "the process may have changed." if name == ROWS else f"the noise depends on {name}."
    return Finding(
        shows,
        f"Intervals are too {'narrow' if narrow else 'wide'} there: {reason} "
        + spread_advice(found.method),
        False,
    )


def _even(shows: str, part: Numbers, bins: list[Numbers], well: str) -> Finding:
    """No group stands out: all is well, or all groups fail alike."""
    off = [group for group in bins if not group["low"] <= group["covered"] <= group["high"]]
    if not off:
        return Finding(shows + "No group leaves the band of chance.", well, True)
    if not outside(part):
        return Finding(
            shows + f"{count(len(off), len(bins))} of {len(bins)} groups leave the band of chance, "
            "but differ from the others no more than chance would make them.",
            "Too little to go by; more test points would settle it.",
            True,
        )
    return Finding(
        shows + "No group differs from the others by more than chance.",
        "Coverage is off in all groups alike, so the reason lies elsewhere. The verdict names it.",
        False,
    )


def _odd(bins: list[Numbers], coverage: float) -> int | None:
    """The group that stands out most, undercoverage first; None if none does."""
    odd = [i for i, group in enumerate(bins) if group["odd"]]
    under = [i for i in odd if bins[i]["covered"] < coverage]
    return max(under or odd, key=lambda i: abs(bins[i]["covered"] - coverage), default=None)


def _share(group: Numbers) -> str:
    return f"{percent(group['covered'])} of {group['n']} points"


def _sentence(text: str) -> str:
    return f"{text[0].upper()}{text[1:]}."
