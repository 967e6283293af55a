"""Fits to files that are larger than memory, in passes over their rows, on one machine or many."""
