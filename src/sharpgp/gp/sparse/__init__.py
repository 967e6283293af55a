"""Sparse GPs by Titsias' bound: their posterior, and its training."""
