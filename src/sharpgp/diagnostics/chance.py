"""How far coverage strays by chance alone, for several groups of points at once."""

import numpy as np
from numpy.typing import NDArray

from sharpgp.metrics import BinnedCoverage, coverage_band

Floats = NDArray[np.float64]

#: Fewest points for judging a group.
MIN_POINTS_PER_GROUP = 10


def bands_of_chance(
    bins: BinnedCoverage, coverage: float, n_cal: int | None
) -> tuple[Floats, Floats]:
    """Where the coverage of each bin falls for calibrated intervals, for all bins together.

    19 in 20 calibrated predictors have all bins inside. Bins of fewer than
    :data:`MIN_POINTS_PER_GROUP` points are not judged: their band is [0, 1].

    Examples
    --------
    >>> from sharpgp.metrics import coverage_along
    >>> bins = coverage_along(np.arange(24), np.zeros(24), -np.ones(24), np.ones(24), n_bins=2)
    >>> low, high = bands_of_chance(bins, 0.5, None)
    >>> [round(float(v), 3) for v in low], [round(float(v), 3) for v in high]
    ([0.167, 0.167], [0.833, 0.833])
    """
    confidence = 1 - 0.05 / len(bins.n_points)
    bands = [
        coverage_band(coverage, n_cal, int(n), confidence)
        if n >= MIN_POINTS_PER_GROUP
        else (0.0, 1.0)
        for n in bins.n_points
    ]
    low, high = np.array(bands).T
    return low, high
