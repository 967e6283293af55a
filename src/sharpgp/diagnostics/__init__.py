"""Predictions of a fitted model for test data, collected once for figures and the report."""

from sharpgp.diagnostics.chance import COVERAGE_LOOKS, MIN_POINTS_PER_GROUP, Floats, bands_of_chance
from sharpgp.diagnostics.collecting import COVERAGES, diagnose
from sharpgp.diagnostics.curves import LevelCurves, level_curves
from sharpgp.diagnostics.findings import Diagnostics
from sharpgp.diagnostics.own_columns import OwnColumn, column_named, texts_of

__all__ = [
    "COVERAGES",
    "COVERAGE_LOOKS",
    "MIN_POINTS_PER_GROUP",
    "Diagnostics",
    "Floats",
    "LevelCurves",
    "OwnColumn",
    "bands_of_chance",
    "column_named",
    "diagnose",
    "level_curves",
    "texts_of",
]
