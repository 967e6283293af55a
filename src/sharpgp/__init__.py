"""Gaussian-process regression with sharp, calibrated predictive distributions."""

from sharpgp.calibration import (
    Capone22,
    CrossValidated,
    Exact,
    FullyBayesian,
    Kuleshov18,
    Kuleshov22,
    LeaveOneOut,
    Marx22,
    Recalibrator,
    Sharp,
    Vanilla,
    Vovk20,
)
from sharpgp.distribution import PredictiveDistribution
from sharpgp.estimator import SharpGPRegressor
from sharpgp.exceptions import CalibrationWarning, SharpGPError
from sharpgp.gp.adapters import as_posterior
from sharpgp.online import Online

__version__ = "0.1.0"

__all__ = [
    "CalibrationWarning",
    "Capone22",
    "CrossValidated",
    "Exact",
    "FullyBayesian",
    "Kuleshov18",
    "Kuleshov22",
    "LeaveOneOut",
    "Marx22",
    "Online",
    "PredictiveDistribution",
    "Recalibrator",
    "Sharp",
    "SharpGPError",
    "SharpGPRegressor",
    "Vanilla",
    "Vovk20",
    "as_posterior",
]
