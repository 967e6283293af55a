"""What to do about a fault, by the method that the model was calibrated with."""

from sharpgp.diagnostics.groupings import Grouping

#: Methods that learn from training data where the noise is large.
LEARNED_SPREAD = ("cv", "cv+", "exact", "loo")

_NEWER = "calibrate on newer data (update), or follow it with Online."


def narrow_advice(method: str) -> str:
    """Intervals cover less than they claim."""
    if method == "vanilla":
        return 'The model is not calibrated: fit again with calibration="cv" or "exact".'
    if method == "paper":
        return (
            "The paper's method chooses its kernel on the calibration points and tends to this "
            'when they are few: give it more, or use calibration="exact" or "cv".'
        )
    if method == "loo":
        return (
            "Leave-one-out scores are optimistic, by about a point at 95 % and by more with many "
            'features, because the hyperparameters have seen every point: use calibration="cv".'
        )
    return (
        "If the calibration data are like the test data this is rare: check for drift, for rows "
        "that belong together, or for a target that was transformed."
    )


def wide_advice(method: str) -> str:
    """Intervals cover more than they need to."""
    if method == "vanilla":
        return 'The model is not calibrated: fit again with calibration="cv" or "exact".'
    return (
        "This happens where test data are easier than calibration data. Calibrate on data like "
        "those you predict."
    )


def moved_advice(later: bool) -> str:
    """A column lies elsewhere than in training; ``later``: it holds dates."""
    if later:
        return f"The process may have changed: {_NEWER}"
    return "Check its unit and origin: outside of what it has seen, a model guesses."


def place_advice(method: str, place: Grouping, fault: str) -> str:
    """What to do about a place; ``fault`` is "low", "high", "drift", "narrow", "wide", "spread"."""
    if place.kind == "row":
        return f"If the rows are in the order of time, the process has changed: {_NEWER}"
    if place.kind in ("outside", "distance", "known"):
        return "Add training rows like these; until then, do not rely on intervals there."
    if fault in ("low", "high", "drift"):
        return "Add training rows from there, or a column that tells what is different about them."
    if method not in LEARNED_SPREAD:
        return 'calibration="cv" or "exact" learns where the noise is large.'
    if place.named and place.kind == "column" and method != "exact":
        return f'Exact(by="{place.name}") keeps the coverage within each {place.name}.'
    return "Add training rows from there, or a column that explains the noise."
