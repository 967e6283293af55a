"""Bayesian optimisation with calibrated predictions.

:class:`Optimiser` is a loop to ask for points and to tell results, :class:`OptunaSampler` the loop
as a sampler of Optuna.  For loops of your own, :class:`CalibratedUpperConfidenceBound` and
:class:`CalibratedLogExpectedImprovement` go wherever BoTorch takes an acquisition function, and
:func:`as_botorch` makes a BoTorch model of a calibrated one, for all other acquisition functions.
"""

from sharpgp.bo.acquisition import CalibratedLogExpectedImprovement, CalibratedUpperConfidenceBound
from sharpgp.bo.optimiser import Best, Optimiser
from sharpgp.bo.optuna_sampler import OptunaSampler
from sharpgp.bo.space import Log
from sharpgp.bo.wrapped import as_botorch

__all__ = [
    "Best",
    "CalibratedLogExpectedImprovement",
    "CalibratedUpperConfidenceBound",
    "Log",
    "Optimiser",
    "OptunaSampler",
    "as_botorch",
]
