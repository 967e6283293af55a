"""Metrics for calibrated regression: flat functions on arrays.

``y`` has shape (n,), interval bounds have shape (n,), quantiles have shape (n, k) with the
``levels`` (k,) along the last axis. Scores are means over the points, smaller is better;
sharpness (width, standard deviation) only means something beside coverage.
"""

from sharpgp.metrics.conditional import (
    BinnedCoverage,
    ExcessRisk,
    WorstSlab,
    coverage_along,
    coverage_by,
    coverage_by_width,
    excess_risk,
    worst_slab_coverage,
)
from sharpgp.metrics.report import CalibrationReport, calibration_report
from sharpgp.metrics.sampling import (
    PitHistogram,
    coverage_band,
    pit_histogram,
    sampling_band,
)
from sharpgp.metrics.scores import (
    ECE_LEVELS,
    crps,
    ece,
    ece_floor,
    interval_coverage,
    interval_score,
    interval_width,
    nll,
    observed_levels,
    pinball_loss,
    predictive_std,
    rmse,
)

__all__ = [
    "ECE_LEVELS",
    "BinnedCoverage",
    "CalibrationReport",
    "ExcessRisk",
    "PitHistogram",
    "WorstSlab",
    "calibration_report",
    "coverage_along",
    "coverage_band",
    "coverage_by",
    "coverage_by_width",
    "crps",
    "ece",
    "ece_floor",
    "excess_risk",
    "interval_coverage",
    "interval_score",
    "interval_width",
    "nll",
    "observed_levels",
    "pinball_loss",
    "pit_histogram",
    "predictive_std",
    "rmse",
    "sampling_band",
    "worst_slab_coverage",
]
