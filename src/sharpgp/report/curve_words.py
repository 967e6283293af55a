"""What the curves of the report show: the scale and the hyperparameters by level."""

import numpy as np
from scipy.special import ndtri

from sharpgp.diagnostics import Diagnostics
from sharpgp.report.advice import LEARNED_SPREAD
from sharpgp.report.numbers import Numbers
from sharpgp.report.words import Finding


def beta_curve(found: Diagnostics, numbers: Numbers) -> Finding:
    """The scale per level, against a Gaussian's."""
    part = numbers["curves"]
    if part is None:
        return Finding(f"{found.method} has no beta curve.", "There is nothing to see here.")
    if part["by_level"]:
        return Finding(
            "beta(delta) is how many standard deviations the quantile of a level lies from the "
            "mean, with the standard deviation under theta(delta).",
            "Theta changes with the level, so read the two together: a small beta times a large "
            "standard deviation is not a narrow interval.",
        )
    if not part["scores"]:
        return Finding(
            "beta(delta) is added to the mean at every point: quantiles of the plain residuals, in "
            "units of the target.",
            "Widths are the same everywhere; a calibration with a spread adapts them to the data.",
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
    advice = "Tails are about as long as the model's own standard deviation says."
    if not 0.9 <= factor <= 1.1:
        advice = f"Tails are {factor:.2f} times as long as the model's own standard deviation says"
        advice += (
            "; calibration has stretched them. Outliers or noise that varies are the usual reason."
            if factor > 1
            else ": it was too cautious, and calibration has pulled them in."
        )
    skew = (high + low) / (high - low) if high > low else 0.0
    if abs(skew) > 0.15:
        advice += f" The {'upper' if skew > 0 else 'lower'} tail is the longer one."
    return Finding(shows, advice)


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
        return Finding(shows, advice)
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
        )
    advice = (
        "Entries far above 1 mark features along which the trained model trusted its data too "
        "far; far below 1, not far enough."
    )
    if found.n_cal is not None and found.n_cal < 20 * len(theta):
        advice += (
            f" With {found.n_cal} calibration points for {len(theta)} entries, expect coverage a "
            'point or two below nominal; "exact" and "cv" avoid that.'
        )
    return Finding(shows, advice)
