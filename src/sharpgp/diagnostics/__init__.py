"""Predictions of a fitted model for test data, collected once for figures and the report."""

from sharpgp.diagnostics.collecting import COVERAGES, diagnose
from sharpgp.diagnostics.curves import LevelCurves, level_curves
from sharpgp.diagnostics.findings import Diagnostics
from sharpgp.diagnostics.groupings import Grouping
from sharpgp.diagnostics.own_columns import (
    MIN_POINTS_PER_GROUP,
    Floats,
    OwnColumn,
    column_named,
    texts_of,
)

__all__ = [
    "COVERAGES",
    "MIN_POINTS_PER_GROUP",
    "Diagnostics",
    "Floats",
    "Grouping",
    "LevelCurves",
    "OwnColumn",
    "column_named",
    "diagnose",
    "level_curves",
    "texts_of",
]
