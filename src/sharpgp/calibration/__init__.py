"""Floor 2: from a posterior and data to a calibrated predictor."""

from sharpgp.calibration.baselines import (
    Capone22,
    FullyBayesian,
    Kuleshov18,
    Kuleshov22,
    Marx22,
    Vanilla,
    Vovk20,
)
from sharpgp.calibration.calibrated import Calibrated
from sharpgp.calibration.cross_validated import CrossValidated, LeaveOneOut
from sharpgp.calibration.exact import Exact
from sharpgp.calibration.recalibrator import Recalibrator, known_methods
from sharpgp.calibration.sharp import Sharp

__all__ = [
    "Calibrated",
    "Capone22",
    "CrossValidated",
    "Exact",
    "FullyBayesian",
    "Kuleshov18",
    "Kuleshov22",
    "LeaveOneOut",
    "Marx22",
    "Recalibrator",
    "Sharp",
    "Vanilla",
    "Vovk20",
    "known_methods",
]
