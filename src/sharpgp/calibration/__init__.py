"""From a model and points it has not seen to a calibrated predictor."""

from sharpgp.calibration.calibrated import Calibrated
from sharpgp.calibration.foreign import calibrate
from sharpgp.calibration.methods import (
    Capone22,
    CrossValidated,
    CVPlus,
    Exact,
    FullyBayesian,
    Kuleshov18,
    Kuleshov22,
    LeaveOneOut,
    Marx22,
    Sharp,
    SharpExact,
    Vanilla,
    Vovk20,
)
from sharpgp.calibration.recalibrator import Recalibrator, known_methods

__all__ = [
    "CVPlus",
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
    "SharpExact",
    "Vanilla",
    "Vovk20",
    "calibrate",
    "known_methods",
]
