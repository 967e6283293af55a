"""The calibration report: one HTML page that needs no network."""

from sharpgp.report.page import render_report, write_report

__all__ = ["render_report", "write_report"]
