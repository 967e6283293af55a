"""Fits to files that are larger than memory, in passes over their rows, on one machine or many."""

from sharpgp.tabular.streamed.fit import fit_files

__all__ = ["fit_files"]
