"""What to do about a fault, by the method that the model was calibrated with."""

#: Methods that learn from training data where the noise is large.
LEARNED_SPREAD = ("cv", "cv+", "exact", "loo")


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
        "If the calibration data are like the test data this is rare: check for drift, for copies "
        "of rows across the split, for rows that belong together, or for a target that was "
        "transformed."
    )


def wide_advice(method: str) -> str:
    """Intervals cover more than they need to."""
    if method == "vanilla":
        return 'The model is not calibrated: fit again with calibration="cv" or "exact".'
    return (
        "This happens where test data are easier than calibration data. Calibrate on data like "
        "those you predict."
    )


def spread_advice(method: str) -> str:
    """Coverage is right on average and wrong in places."""
    if method in LEARNED_SPREAD:
        return "More data there, or a feature that explains the noise, would help."
    return 'calibration="cv" or "exact" learns where the noise is large.'
