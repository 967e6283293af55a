"""What each figure of the report shows and what to do about it, in plain words.

Every sentence follows from numbers by a fixed rule. Only :mod:`sharpgp.report.explanation` decides
whether something is wrong, so that no figure contradicts the verdict.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from sharpgp._numbers import number, percent
from sharpgp.diagnostics import Diagnostics
from sharpgp.diagnostics.groupings import EQUAL_WIDTHS, ROWS
from sharpgp.report.advice import LEARNED_SPREAD
from sharpgp.report.explanation import MIN_POINTS, TOO_GOOD, TOO_NARROW, Statement
from sharpgp.report.numbers import Numbers


@dataclass(frozen=True)
class Finding:
    """What a figure shows, what to do about it, and whether all is well."""

    shows: str
    advice: str = ""
    well: bool = True


@dataclass(frozen=True)
class Verdict:
    """The first sentence of the report: ``state`` is ``"well"``, ``"look"`` or ``"fault"``."""

    state: str
    heading: str
    says: str
    advice: str


def sentence(text: str) -> str:
    """With a capital letter and a full stop."""
    return f"{text[0].upper()}{text[1:]}."


def _count(n: int, of: int) -> str:
    return "None" if n == 0 else "All" if n == of else f"{n:,}"


def verdict(found: Diagnostics, wrong: Sequence[Statement]) -> Verdict:
    """One of three states, with the most costly statement."""
    n = number(len(found.y), 9)
    if found.n_seen >= found.n_given > 0:
        return Verdict(
            "fault",
            "Cannot be judged:",
            f"all {n} test rows are among the rows that trained or calibrated the model.",
            "Give rows that it has not seen, or none: then its own are predicted held out.",
        )
    leak = next((one for one in found.suspicions if one.kind == "leak"), None)
    if leak is not None and not (wrong and wrong[0].kind == "inputs"):
        return Verdict("look", "Too good to be true?", leak.says, leak.cure)
    if not (wrong and wrong[0].everywhere) and (good := too_good(found)) is not None:
        return Verdict("look", "Too good to be true?", *good)
    if not wrong and len(found.y) < MIN_POINTS:
        return Verdict(
            "look",
            "Too few points to tell:",
            f"{n} test points show no fault, and would not show most.",
            f"{MIN_POINTS} are a start, some hundreds are better.",
        )
    if not wrong:
        groups = "" if found.groups is None else f" of {found.groups.max() + 1} groups"
        where = "everywhere" if not found.out_of_fold else "everywhere, held out"
        says = f"on average and, as far as {n} test points{groups} can tell, {where}."
        return Verdict("well", "Calibrated", says, "")
    worst, more = wrong[0], len(wrong) - 1
    also = "" if not more else f" (and {more} more {'finding' if more == 1 else 'findings'} below)"
    state = (
        ("fault", "Not calibrated:")
        if worst.everywhere
        else ("look", "Calibrated on average, not everywhere:")
    )
    advice = worst.advice
    if found.counted == "groups" and found.groups is None and not found.out_of_fold:
        advice = (
            "The model was fitted with groups: make the report with groups, too, as rows of one "
            "group count as one."
        )
    return Verdict(*state, f"{worst.says}{also}.", advice)


def too_good(found: Diagnostics) -> tuple[str, str] | None:
    """What to say of predictions that are better than measured data allow."""
    deviation = float(found.y.std())
    width = float((found.upper - found.lower)[:, found.first].mean())
    if deviation == 0 or (found.explained <= TOO_GOOD and width >= TOO_NARROW * deviation):
        return None
    return (
        f"predictions explain {100 * found.explained:.3f} % of the variance, and intervals are "
        f"{percent(width / deviation)} of the target's standard deviation wide.",
        "If the target was measured, some columns give it away: look for those that are known only "
        "with it. If it was computed from the columns, as in a simulation, all is well.",
    )


#: Kinds of statements that the distribution as a whole shows.
_WHOLE = ("inputs", "shift", "narrow", "wide", "tails", "levels")


def _of_the_whole(wrong: Sequence[Statement]) -> Statement | None:
    return next((one for one in wrong if one.kind in _WHOLE), None)


def reliability(found: Diagnostics, numbers: Numbers, wrong: Sequence[Statement]) -> Finding:
    """The reliability diagram: all levels at once."""
    part = numbers["reliability"]
    observed, p = np.array(part["observed"]), np.array(part["level"])
    off = int(((observed < part["low"]) | (observed > part["high"])).sum())
    shows = (
        "Each dot is a level: the share of points observed at or below that predicted quantile. "
        f"{_count(off, len(p))} of {len(p)} dots lie outside the band of chance"
    )
    if found.out_of_fold:
        return Finding(
            f"{shows}.",
            "These very points fixed the levels, so they lie on the diagonal: only test data tell.",
        )
    shows += f", and the calibration error is {found.ece_ratio:.1f} times what chance gives."
    whole = _of_the_whole(wrong)
    if whole is not None:
        return Finding(shows, sentence(whole.says), False)
    if wrong:
        return Finding(shows, "See the verdict for where points differ.", off == 0)
    return Finding(shows, "A calibrated predictor looks like this.")


#: What each kind of fault looks like in the PIT histogram.
_SHAPES = {
    "narrow": "The ends are too high: distributions are too narrow.",
    "wide": "The middle is too high: distributions are too wide.",
    "tails": "Points pile up in the outermost bars: tails are too short.",
    "inputs": "The shape is that of points unlike those of training.",
    "levels": "The bars are uneven in more than one way.",
}


def pit(found: Diagnostics, numbers: Numbers, wrong: Sequence[Statement]) -> Finding:
    """The PIT histogram: its shape shows what kind of fault there is."""
    part = numbers["pit"]
    share = np.array(part["share"])
    off = int(((share < part["low"]) | (share > part["high"])).sum())
    shows = (
        "Where each observation fell in its own predictive distribution: 0 is far below, 1 far "
        f"above. Flat is calibrated; {_count(off, len(share)).lower()} of {len(share)} bars "
        f"{'leaves' if off == 1 else 'leave'} the band of chance."
    )
    if (shares := found.atoms.mean()) > 0:
        shows += (
            f" {percent(shares)} of the targets are values with a probability of their own (counts,"
            " zeros, rounded values), and fall at random within it."
        )
    whole = _of_the_whole(wrong)
    if whole is None:
        says = "See the verdict for where points differ." if wrong else "No shape stands out."
        return Finding(shows, says, not (wrong and off))
    if whole.kind == "shift":
        high = float(np.mean(found.pit)) > 0.5
        shape = (
            f"The bars lean to the {'right' if high else 'left'}: observations are "
            f"{'higher' if high else 'lower'} than predicted."
        )
    else:
        shape = _SHAPES[whole.kind]
    return Finding(shows, shape, False)


def points(found: Diagnostics, part: Numbers, numbers: Numbers) -> Finding:
    """Observed against predicted values."""
    shown, of = len(numbers["points"]["row"]), numbers["points"]["of"]
    picked = f" ({shown} of {of:,} points are drawn)" if shown < of else ""
    shows = (
        f"Each point with its {percent(part['coverage'])} interval{picked}; on the dashed line, "
        "observed is predicted. Predictions explain "
        f"{percent(found.explained) if found.explained else 'none'} of the variance."
    )
    if found.explained < 0.1:
        advice = "The columns tell little about the target: intervals can be calibrated and wide."
    else:
        advice = "Points beyond their interval are marked; the worst are listed."
    return Finding(shows, advice)


def widths(found: Diagnostics, part: Numbers, wrong: Sequence[Statement]) -> Finding:
    """Widths at one coverage, never without the coverage that comes with them."""
    asked, covered = percent(part["coverage"]), percent(part["covered"])
    narrow, wide = part["tenths"]
    spread = float(found.y.std())
    unit = f" {found.unit}" if found.unit else ""
    relative = f" ({number(part['width'] / spread, 3)} deviations of the target)" if spread else ""
    shows = (
        f"{asked} intervals are {number(part['width'], 3)}{unit} wide on average{relative} and "
        f"cover {covered} of the points. "
    )
    alike = wide <= EQUAL_WIDTHS * narrow
    if alike:
        shows += "All are about equally wide."
    else:
        shows += (
            f"One in ten is narrower than {number(narrow, 3)}, one in ten wider than "
            f"{number(wide, 3)}."
        )
    inside = float(((found.lower <= found.y[:, None]) & (found.y[:, None] <= found.upper)).mean())
    if found.atoms.any() and inside - float(found.covered.mean()) > 0.005:
        shows += " A target equal to an end of its interval counts as a fraction here."
    if not part["backed"]:
        return Finding(
            shows,
            f"There are too few calibration {found.counted} for {asked}: the ends come from a "
            "modelled tail, without a guarantee. Add some or ask for less coverage.",
            False,
        )
    off = not part["low"] <= part["covered"] <= part["high"]
    if wrong:
        less = "fewer" if part["covered"] < part["coverage"] else "more"
        advice = f"They cover {less} points than they claim, beyond chance. " if off else ""
        return Finding(shows, f"{advice}The verdict above names the likely reason.", not off)
    if alike:
        cure = "add a column that tells where the noise is large."
        if found.method not in LEARNED_SPREAD:
            cure = 'use a calibration that learns where the noise is large: "cv" or "exact".'
        advice = "The model sees no difference in uncertainty between points. If you do, " + cure
    else:
        advice = "Points with wide intervals are those that the model knows least about."
    return Finding(shows, advice)


def by_part(part: Numbers, bins: list[Numbers], name: str) -> Finding:
    """Coverage by width (no name), along a column, the rows, or by what is missing."""
    along = "in the order of the rows" if name == ROWS else f"by {name or 'width'}"
    if len(bins) == 1:
        return Finding(f"There is only one group of points {along}.")
    shows = (
        f"The points in groups {along}, and the share of each that its "
        f"{percent(part['coverage'])} intervals cover; bands hold what chance makes of the "
        f"{percent(part['covered'])} of all points, in all groups of the page together. "
    )
    odd = [one for one in bins if one["odd"]]
    if not odd:
        return Finding(f"{shows}No group differs beyond chance.")
    worst = max(odd, key=lambda one: abs(one["covered"] - part["covered"]))
    within = worst["low"] <= worst["covered"] <= worst["high"]
    shows += f"{sentence(worst['says'])[:-1]}: {percent(worst['covered'])} of {worst['n']:,} points"
    shows += ", which stand out at another coverage or by their side." if within else "."
    advice = "These differ from the others beyond chance; the verdict names the likely reason."
    return Finding(shows, advice, False)


def rows(found: Diagnostics) -> Finding | None:
    """Which rows are left out, and how many values are missing; None if all is plain."""
    parts = []
    if found.n_seen and found.n_seen < found.n_given:
        parts.append(f"{found.n_seen:,} that trained or calibrated the model")
    if found.n_copies:
        parts.append(f"{found.n_copies:,} that repeat{'s' if found.n_copies == 1 else ''} others")
    judged = len(found.y)
    drawn = found.n_given - found.n_seen - found.n_copies - judged
    if drawn > 0:
        parts.append(f"{drawn:,} beyond the {judged:,} drawn at random")
    shows = ""
    if parts:
        left = found.n_given - judged
        shows = f"Left out: {left:,} of {found.n_given:,} test rows, {', '.join(parts)}. "
    if found.n_missing:
        lacking = sum(map(bool, found.gaps or ()))
        shows += (
            f"{found.n_missing:,} {'value is' if found.n_missing == 1 else 'values are'} missing, "
            f"in {lacking:,} of {judged:,} test points; see coverage by gaps."
        )
    return Finding(shows.strip()) if shows else None


def below_zero(found: Diagnostics) -> Finding | None:
    """Intervals that end below zero where no target does; None if there are none."""
    widest = int(found.coverages.argmax())
    below = found.lower[:, widest] < 0.0
    if not below.any() or not (found.y > 0.0).all():
        return None
    return Finding(
        f"{below.sum():,} of {len(below):,} intervals at {percent(found.coverages[widest])} end "
        "below 0, where no target is.",
        "If smaller targets are impossible, y_bounds=(0, None) keeps all predictions above.",
    )


def suspicions(found: Diagnostics) -> Finding | None:
    """Suspicious values in the test rows, see ``sharpgp.check``; None if there are none."""
    if not found.suspicions:
        return None
    first, *more = found.suspicions
    return Finding(" ".join(one.says for one in (first, *more[:2])), first.cure, False)
