"""Sentences about the test rows: their gaps, and whether they resemble the calibration rows."""

from sharpgp.diagnostics import Diagnostics
from sharpgp.exchangeability import ALARM_LEVEL
from sharpgp.report.wording import numeral, percent
from sharpgp.report.words import Finding


def assumption(found: Diagnostics) -> Finding | None:
    """Whether test points are like the calibration points; None if unknown."""
    test = found.exchangeability
    if test is None or found.n_seen:
        return None
    shows = (
        f"Are the test points like the {numeral(test.n_old)} that calibrated the model? A rank "
        f"test of their scores has p = {test.p_value:.2g}."
    )
    moved = ", ".join(test.moved)
    if test.p_value >= ALARM_LEVEL:
        also = f" These features have moved, though: {moved}." if moved else ""
        return Finding(shows, f"No sign of a change.{also}", not moved)
    named = f"features that moved: {moved}" if moved else "no single feature has moved"
    return Finding(
        shows,
        f"They are not; {named}. Coverage holds for points like those that calibrated the model: "
        "calibrate with newer ones (update), or follow a drift with Online.",
        False,
    )


def suspicions(found: Diagnostics) -> Finding | None:
    """Suspicious values in the test rows, see ``sharpgp.check``; None if there are none."""
    if not found.suspicions:
        return None
    first, *more = found.suspicions
    shows = " ".join(one.says for one in (first, *more[:4]))
    return Finding(shows, first.cure, False)


def gaps(found: Diagnostics, k: int) -> Finding | None:
    """How many values are missing, and coverage by missing columns; None without gaps."""
    if not found.n_missing:
        return None
    n, lacking = len(found.y), sum(map(bool, found.gaps or ()))
    shows = (
        f"{numeral(found.n_missing)} {'value is' if found.n_missing == 1 else 'values are'} "
        f"missing, in {numeral(lacking)} of {numeral(n)} test points."
    )
    by_pattern = found.coverage_by_gaps(k)
    parts = [
        f"{pattern} {percent(covered)} of {numeral(size)}"
        for pattern, (size, covered) in by_pattern.items()
    ]
    asked = percent(float(found.coverages[k]))
    says = f"Coverage of {asked} intervals, by what is missing: {'; '.join(parts)}."
    beyond = found.gaps_beyond_chance(k)
    if beyond:
        return Finding(shows, f"{says} Beyond chance: {'; '.join(beyond)}.", False)
    return Finding(
        shows, f"{says} All of it is within chance, which does much to few points.", True
    )
