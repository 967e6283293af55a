"""Gaussian-process regression with sharp, calibrated predictive distributions."""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from sharpgp.calibration import (
        CrossValidated,
        CVPlus,
        Exact,
        Kuleshov18,
        LeaveOneOut,
        Marx22,
        Recalibrator,
        Sharp,
        Vanilla,
        Vovk20,
        calibrate,
    )
    from sharpgp.data.table_check import check
    from sharpgp.distribution import PredictiveDistribution
    from sharpgp.estimator import SharpGPRegressor
    from sharpgp.exceptions import CalibrationWarning, SharpGPError
    from sharpgp.gp.adapters import as_posterior
    from sharpgp.online import Online
    from sharpgp.pipelines import through
    from sharpgp.policy import Neighbours, Sparse

__version__ = "0.1.0"

__all__ = [
    "CVPlus",
    "CalibrationWarning",
    "CrossValidated",
    "Exact",
    "Kuleshov18",
    "LeaveOneOut",
    "Marx22",
    "Neighbours",
    "Online",
    "PredictiveDistribution",
    "Recalibrator",
    "Sharp",
    "SharpGPError",
    "SharpGPRegressor",
    "Sparse",
    "Vanilla",
    "Vovk20",
    "as_posterior",
    "calibrate",
    "check",
    "through",
]

# Names are imported on first use: the libraries below take seconds to load, and a mistyped command
# should fail before that.
_HOMES = {
    "CVPlus": "calibration",
    "CalibrationWarning": "exceptions",
    "CrossValidated": "calibration",
    "Exact": "calibration",
    "Kuleshov18": "calibration",
    "LeaveOneOut": "calibration",
    "Marx22": "calibration",
    "Neighbours": "policy",
    "Online": "online",
    "PredictiveDistribution": "distribution",
    "Recalibrator": "calibration",
    "Sharp": "calibration",
    "SharpGPError": "exceptions",
    "SharpGPRegressor": "estimator",
    "Sparse": "policy",
    "Vanilla": "calibration",
    "Vovk20": "calibration",
    "as_posterior": "gp.adapters",
    "calibrate": "calibration",
    "check": "data.table_check",
    "through": "pipelines",
}

# Baselines that need sharpgp-benchmarks.
_OF_LABORATORY = ("Capone22", "FullyBayesian", "Kuleshov22")

# Modules available as ``sharpgp.bo`` after ``import sharpgp`` alone.
_MODULES = (
    "bo", "calibration", "diagnostics", "exceptions", "gp", "metrics", "persistence", "pipelines",
    "plots", "relevance", "report", "scorers", "toy",
)  # fmt: skip

if not TYPE_CHECKING:

    def __getattr__(name: str) -> Any:
        if name in _MODULES:
            return import_module(f"{__name__}.{name}")
        if name not in _HOMES and name not in _OF_LABORATORY:
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
        home = _HOMES.get(name, "calibration")
        value = getattr(import_module(f"{__name__}.{home}"), name)
        globals()[name] = value
        return value


def __dir__() -> list[str]:
    return sorted({"__version__", *__all__, *_MODULES})
