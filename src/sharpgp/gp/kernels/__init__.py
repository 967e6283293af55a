"""Kernels as functions of a flat vector of hyperparameters, by name or from gpytorch."""
