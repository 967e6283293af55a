"""From a model and points it has not seen to a calibrated predictor."""

from typing import TYPE_CHECKING, Any

from sharpgp._extras import LABORATORY_METHODS
from sharpgp.calibration.any_model import calibrate
from sharpgp.calibration.methods import (
    CrossValidated,
    CVPlus,
    Exact,
    Kuleshov18,
    LeaveOneOut,
    Marx22,
    Sharp,
    Vanilla,
    Vovk20,
)
from sharpgp.calibration.predictors.base import Calibrated
from sharpgp.calibration.predictors.scored import ScoredPredictor
from sharpgp.calibration.recalibrator import (
    PosteriorMethod,
    Recalibrator,
    find_method,
    known_methods,
    register,
)

__all__ = [
    "CVPlus",
    "Calibrated",
    "CrossValidated",
    "Exact",
    "Kuleshov18",
    "LeaveOneOut",
    "Marx22",
    "PosteriorMethod",
    "Recalibrator",
    "ScoredPredictor",
    "Sharp",
    "Vanilla",
    "Vovk20",
    "calibrate",
    "known_methods",
    "register",
]

if TYPE_CHECKING:
    Capone22: type[Recalibrator]
    FullyBayesian: type[Recalibrator]
    Kuleshov22: type[Recalibrator]
else:

    def __getattr__(name: str) -> Any:
        if name in LABORATORY_METHODS:
            return find_method(LABORATORY_METHODS[name])
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
