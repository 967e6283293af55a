"""The calibration report: one HTML page that needs no network."""

from sharpgp.report.page import render_report, verdict_of, write_report

__all__ = ["render_report", "verdict_of", "write_report"]
