"""Bayesian optimisation with calibrated predictions.

:class:`Optimiser` is a loop, :class:`OptunaSampler` the loop as a sampler of Optuna; all else is
for loops of your own with BoTorch.
"""

from sharpgp.bo.acquisition import CalibratedLogExpectedImprovement, CalibratedUpperConfidenceBound
from sharpgp.bo.constraints import AtMost, Mixture
from sharpgp.bo.optimiser import Best, Optimiser
from sharpgp.bo.optuna_sampler import OptunaSampler
from sharpgp.bo.space import Log
from sharpgp.bo.wrapped import as_botorch

__all__ = [
    "AtMost",
    "Best",
    "CalibratedLogExpectedImprovement",
    "CalibratedUpperConfidenceBound",
    "Log",
    "Mixture",
    "Optimiser",
    "OptunaSampler",
    "as_botorch",
]
