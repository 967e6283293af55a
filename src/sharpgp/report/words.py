"""What each figure of the report shows and what to do about it, in plain words.

Every sentence follows from numbers by a fixed rule, with thresholds that a calibrated predictor
crosses about one time in twenty.
"""

from dataclasses import dataclass

import numpy as np
from scipy.special import ndtri

from sharpgp.diagnostics import Diagnostics
from sharpgp.report.numbers import Numbers

#: A calibrated predictor's ECE exceeds this multiple of its floor one time in twenty: the ratio
#: of the 95 % point of the Cramer-von Mises statistic, 0.461, to its mean, 1/6.
MOST_ECE = 2.77
#: Methods that learn from training data where the noise is large.
LEARNED_SPREAD = ("cv", "exact", "loo")


@dataclass(frozen=True)
class Finding:
    """What a figure shows, what to do about it, and whether all is well."""

    shows: str
    advice: str
    well: bool


def reliability(found: Diagnostics, numbers: Numbers) -> Finding:
    """The reliability diagram: all levels at once, judged by the ECE against its floor."""
    part = numbers["reliability"]
    observed, p = np.array(part["observed"]), np.array(part["level"])
    outside = int(((observed < part["low"]) | (observed > part["high"])).sum())
    ratio = found.report["ece"] / found.report["ece_floor"]
    shows = (
        f"Each dot is a level: of the points, the share that came in at or below the predicted "
        f"quantile. {_count(outside, len(p))} of {len(p)} dots lie outside the band that chance "
        f"alone would give, and the calibration error is {ratio:.1f} times its floor."
    )
    if ratio <= MOST_ECE:
        return Finding(
            shows,
            "A calibrated predictor looks like this: quantiles can be taken at their word on data "
            "like these.",
            True,
        )
    left, right = (observed - p)[p < 0.5].mean(), (observed - p)[p > 0.5].mean()
    if left > 0 > right:
        fault = "Too many points fall outside on both sides: the model is too sure of itself. "
        return Finding(shows, fault + _narrow_advice(found.method), False)
    if left < 0 < right:
        fault = "Too few points fall outside: the model is too cautious. "
        return Finding(shows, fault + _wide_advice(found.method), False)
    side = "high" if left + right > 0 else "low"
    return Finding(
        shows,
        f"Predictions are too {side} as a whole. Look for a shift between the data of calibration "
        "and test (another period, place or instrument), and calibrate on newer data.",
        False,
    )


def pit(found: Diagnostics, numbers: Numbers) -> Finding:
    """The PIT histogram: its shape says what kind of error there is."""
    part = numbers["pit"]
    share = np.array(part["share"])
    outside = int(((share < part["low"]) | (share > part["high"])).sum())
    shows = (
        "Where each observation fell in its own predictive distribution: 0 is far below, 1 far "
        f"above. Flat is calibrated; {_count(outside, len(share)).lower()} of {len(share)} bars "
        f"{'leaves' if outside == 1 else 'leave'} the band of chance."
    )
    if not outside:
        return Finding(shows, "No shape stands out, so nothing needs repair here.", True)
    edge = share[[0, -1]].mean() * len(share)
    middle = share[len(share) // 4 : -(len(share) // 4)].mean() * len(share)
    tilt = float(np.average(np.linspace(-1, 1, len(share)), weights=share))
    if abs(tilt) > abs(edge - middle) / 4:
        high = tilt > 0
        return Finding(
            shows,
            f"The bars lean to the {'right' if high else 'left'}: observations come in "
            f"{'higher' if high else 'lower'} than predicted. Look for drift, or for a feature "
            "that the model lacks.",
            False,
        )
    if edge > middle:
        return Finding(
            shows,
            "The ends are too high: distributions are too narrow. " + _narrow_advice(found.method),
            False,
        )
    return Finding(
        shows,
        "The middle is too high: distributions are too wide. " + _wide_advice(found.method),
        False,
    )


def widths(found: Diagnostics, part: Numbers) -> Finding:
    """Widths at one coverage, never without the coverage they came with."""
    asked, covered = _percent(part["coverage"]), _percent(part["covered"])
    narrow, wide = part["tenths"]
    spread = float(found.y.std())
    relative = (
        f" ({part['width'] / spread:.2f} standard deviations of the target)" if spread else ""
    )
    shows = (
        f"At {asked} the intervals are {part['width']:.3g} wide on average{relative} and hold "
        f"{covered} of the points. "
    )
    alike = wide < 1.02 * narrow
    if alike:
        shows += "All are about equally wide."
    else:
        shows += f"The narrowest tenth is below {narrow:.3g}, the widest tenth above {wide:.3g}."
    if not part["backed"]:
        return Finding(
            shows,
            f"There are too few calibration points for {asked}: the ends come from a modelled "
            "tail, without a promise. Add calibration points or ask for less coverage.",
            False,
        )
    if part["covered"] < part["low"]:
        return Finding(
            shows,
            "They hold fewer points than they say, beyond chance: do not rely on their width "
            "before that is repaired. " + _narrow_advice(found.method),
            False,
        )
    if part["covered"] > part["high"]:
        return Finding(
            shows,
            "They hold more points than they need to, beyond chance, so that they could be "
            "narrower. " + _wide_advice(found.method),
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
        "Coverage is as asked, within chance. Points with wide intervals are those that the model "
        "knows least about: new data pay most there.",
        True,
    )


def by_width(found: Diagnostics, part: Numbers) -> Finding:
    """Coverage among narrow and among wide intervals."""
    bins = part["by_width"]
    shows = (
        f"The points in {len(bins)} groups from the narrowest to the widest intervals, and the "
        f"share that each group's {_percent(part['coverage'])} intervals hold. "
    )
    off = _strays(bins)
    if len(bins) == 1:
        return Finding(shows + "All widths are alike, so there is one group only.", "", True)
    if not off:
        return Finding(
            shows + "No group leaves the band of chance.",
            "A narrow interval is as trustworthy as a wide one: the width tells how sure the model "
            "is.",
            True,
        )
    worst = _worst(off, part["coverage"])
    which = _place(bins, worst, "narrowest", "widest")
    less = worst["covered"] < part["coverage"]
    shows += f"The {which} hold {_percent(worst['covered'])}."
    if less:
        advice = (
            "Do not read these widths as certainty: the spread misses noise that is there. "
            + _spread_advice(found.method)
        )
    else:
        advice = "These are wider than they need to be, and others pay for it. " + _spread_advice(
            found.method
        )
    return Finding(shows, advice, False)


def by_feature(found: Diagnostics, part: Numbers, which: int, names: list[str]) -> Finding:
    """Coverage along one feature."""
    bins, name = part["by_feature"][which], names[which]
    shows = (
        f"The points in groups along {name}, and the share that each group's "
        f"{_percent(part['coverage'])} intervals hold. "
    )
    if len(bins) == 1:
        return Finding(shows + f"{name} has too few values to make groups of.", "", True)
    off = _strays(bins)
    if not off:
        return Finding(
            shows + "No group leaves the band of chance.",
            f"Intervals keep their promise everywhere along {name}.",
            True,
        )
    worst = _worst(off, part["coverage"])
    less = worst["covered"] < part["coverage"]
    shows += (
        f"From {worst['from']:.4g} to {worst['to']:.4g} they hold {_percent(worst['covered'])} of "
        f"{worst['n']} points."
    )
    return Finding(
        shows,
        f"Intervals are too {'narrow' if less else 'wide'} there: {name} has to do with the noise. "
        + _spread_advice(found.method),
        False,
    )


def beta_curve(found: Diagnostics, numbers: Numbers) -> Finding:
    """The scale per level, against a Gaussian's."""
    part = numbers["curves"]
    if part is None:
        return Finding(
            f"{found.method} has no beta curve.", "There is nothing to look at here.", True
        )
    if part["by_level"]:
        return Finding(
            "beta(delta) is how many standard deviations the quantile of a level lies from the "
            "mean, where the standard deviation is that under theta(delta).",
            "Since theta changes along, read the two together: a small beta under a large standard "
            "deviation is no narrow interval.",
            True,
        )
    if not part["scores"]:
        return Finding(
            "beta(delta) is added to the mean at every point: quantiles of the plain residuals, in "
            "units of the target.",
            "Widths are the same everywhere; a calibration with a spread adapts them to the data.",
            True,
        )
    delta, beta = np.array(part["delta"]), np.array(part["beta"])
    level = float(delta[np.abs(delta - 0.975).argmin()])
    low, high = np.interp([1 - level, level], delta, beta)
    gauss = float(ndtri(level))
    factor = (high - low) / (2 * gauss) if gauss > 0 else 1.0
    shows = (
        "beta(delta) is how many standard deviations the quantile of a level lies from the mean; "
        f"the dashed line is a Gaussian's. At {level:.3g} beta is {high:.3g} above and {-low:.3g} "
        f"below; a Gaussian has {gauss:.3g}."
    )
    if factor > 1.1:
        advice = (
            f"Tails are {factor:.2f} times as long as the model's own standard deviation says; "
            "calibration has stretched them. Outliers or noise that varies are the usual reason."
        )
    elif factor < 0.9:
        advice = (
            f"Tails are {factor:.2f} times as long as the model's own standard deviation says: it "
            "was too cautious, and calibration has drawn them in."
        )
    else:
        advice = "Tails are about as long as the model's own standard deviation says."
    skew = (high + low) / (high - low) if high > low else 0.0
    if abs(skew) > 0.15:
        advice += f" The {'upper' if skew > 0 else 'lower'} tail is the longer one."
    return Finding(shows, advice, True)


def theta_curve(found: Diagnostics, numbers: Numbers) -> Finding:
    """The calibration hyperparameters per level, against the trained ones."""
    part = numbers["curves"]
    if part is None or not part["theta"]:
        advice = (
            'To let them follow the level, fit with calibration="paper"; to have them chosen on '
            'training data, with "exact" or "cv".'
        )
        if found.method in LEARNED_SPREAD:
            advice = "Others were tried on the training data and did not score better there."
        shows = "The hyperparameters behind the spread are the trained ones, at every level."
        return Finding(shows, advice, True)
    theta = np.array(part["theta"])
    farthest = np.abs(np.log(theta)).max(axis=1)
    i = int(farthest.argmax())
    reach = theta[i][np.abs(np.log(theta[i])).argmax()]
    shows = (
        "theta(delta) relative to the trained hyperparameters; above 1 means more variance away "
        f"from the data. {len(theta)} {'entry differs' if len(theta) == 1 else 'entries differ'} "
        f"from the trained value, most of all {part['names'][i]}, {reach:.3g} times."
    )
    if not part["by_level"]:
        return Finding(
            shows,
            "One spread serves all levels; it was chosen on training data because its intervals "
            "scored better there.",
            True,
        )
    advice = (
        "Entries far above 1 mark features along which the trained model trusted its data too "
        "far; far below 1, not far enough."
    )
    if found.n_cal is not None and found.n_cal < 20 * len(theta):
        advice += (
            f" With {found.n_cal} calibration points for {len(theta)} entries, expect coverage a "
            'point or two below what is asked; "exact" or "cv" keep it.'
        )
    return Finding(shows, advice, True)


def _narrow_advice(method: str) -> str:
    if method == "vanilla":
        return 'The model is not calibrated: fit again with calibration="cv" or "exact".'
    if method == "paper":
        return (
            "The paper's mode chooses its kernel on the calibration points and tends to this when "
            'they are few: give it more, or use calibration="exact" or "cv".'
        )
    if method == "kuleshov22":
        return (
            "A network that is fitted to the points that calibrate it tends to this: give it more, "
            'or use calibration="exact" or "cv".'
        )
    if method == "loo":
        return (
            "Leave-one-out scores are optimistic by about a point at 95 %, because the "
            'hyperparameters have seen every point: use calibration="cv".'
        )
    return (
        "If the calibration data are like the test data this is rare; check for drift, duplicates "
        "across the split, or a target that was transformed."
    )


def _wide_advice(method: str) -> str:
    if method == "vanilla":
        return 'The model is not calibrated: fit again with calibration="cv" or "exact".'
    return (
        "It happens where test data are easier than calibration data. Calibrate on data like "
        "those that you predict."
    )


def _spread_advice(method: str) -> str:
    if method in LEARNED_SPREAD:
        return "More data in this region, or a feature that explains the noise, would help."
    return 'calibration="cv" or "exact" learns where the noise is large.'


def _strays(bins: list[Numbers]) -> list[Numbers]:
    return [b for b in bins if not b["low"] <= b["covered"] <= b["high"]]


def _worst(bins: list[Numbers], coverage: float) -> Numbers:
    """The bin that strays most, too little before too much."""
    under = [b for b in bins if b["covered"] < coverage]
    return max(under or bins, key=lambda b: abs(b["covered"] - coverage))


def _place(bins: list[Numbers], worst: Numbers, first: str, last: str) -> str:
    """Words for a group: ``narrowest``, ``widest``, or its range of widths."""
    if worst is bins[0]:
        return first
    if worst is bins[-1]:
        return last
    return f"intervals of width {worst['from']:.3g} to {worst['to']:.3g}"


def _count(n: int, of: int) -> str:
    return "None" if n == 0 else "All" if n == of else str(n)


def _percent(share: float) -> str:
    return f"{100 * share:.3g} %"
