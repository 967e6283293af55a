"""Figures on matplotlib axes; nothing here touches pyplot's global state."""

# ruff: noqa: E402 - an error that names the extra comes before one that names matplotlib
from sharpgp._extras import need

need("plots", "matplotlib")

from sharpgp.plots.calibration import (
    beta_curve,
    calibration_figure,
    coverage_by_feature,
    coverage_by_width,
    pit,
    reliability,
    theta_curves,
    widths,
)
from sharpgp.plots.intervals import plot_intervals_1d, toy_figure
from sharpgp.plots.style import BLUE, CYCLE, GREY, INK, PALE, SHADE

__all__ = [
    "BLUE",
    "CYCLE",
    "GREY",
    "INK",
    "PALE",
    "SHADE",
    "beta_curve",
    "calibration_figure",
    "coverage_by_feature",
    "coverage_by_width",
    "pit",
    "plot_intervals_1d",
    "reliability",
    "theta_curves",
    "toy_figure",
    "widths",
]
