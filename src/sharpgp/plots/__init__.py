"""Figures on matplotlib axes; only :func:`plot` makes axes by pyplot, if it is given none."""

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
from sharpgp.plots.change import exchangeability, martingale
from sharpgp.plots.intervals import plot_intervals_1d, toy_figure
from sharpgp.plots.models import base, explanation, intervals, observed, parts, plot, relevance
from sharpgp.plots.optimisation import (
    coverage_so_far,
    front,
    optimisation_figure,
    progress,
    remaining_so_far,
)
from sharpgp.plots.style import BLUE, CYCLE, GREY, INK, PALE, SHADE

__all__ = [
    "BLUE",
    "CYCLE",
    "GREY",
    "INK",
    "PALE",
    "SHADE",
    "base",
    "beta_curve",
    "calibration_figure",
    "coverage_by_feature",
    "coverage_by_width",
    "coverage_so_far",
    "exchangeability",
    "explanation",
    "front",
    "intervals",
    "martingale",
    "observed",
    "optimisation_figure",
    "parts",
    "pit",
    "plot",
    "plot_intervals_1d",
    "progress",
    "relevance",
    "reliability",
    "remaining_so_far",
    "theta_curves",
    "toy_figure",
    "widths",
]
