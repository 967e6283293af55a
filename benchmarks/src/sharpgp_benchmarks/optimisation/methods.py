"""What is compared, by name."""

from collections.abc import Callable
from functools import partial

from botorch.acquisition import AcquisitionFunction, LogExpectedImprovement, UpperConfidenceBound
from botorch.models import SingleTaskGP
from torch import Tensor

from sharpgp_benchmarks.optimisation.loops import BoTorch, Calibrated, Loop, Paper, Random
from sharpgp_benchmarks.optimisation.problems import Problem
from sharpgp_benchmarks.optimisation.trust_region import TrustRegion

#: Factor of BoTorch's upper confidence bound.
BETA = 2.0


def _log_ei(model: SingleTaskGP, best: float) -> AcquisitionFunction:
    return LogExpectedImprovement(model, best_f=best)


def _ucb(model: SingleTaskGP, best: float) -> AcquisitionFunction:
    return UpperConfidenceBound(model, beta=BETA**2)


#: What starts each method, in the order of the tables.
METHODS: dict[str, Callable[[Problem, Tensor, Tensor, int], Loop]] = {
    "logei": Calibrated,
    "ucb": partial(Calibrated, acquisition="ucb"),
    "botorch_logei": partial(BoTorch, acquisition=_log_ei),
    "botorch_ucb": partial(BoTorch, acquisition=_ucb),
    "turbo": TrustRegion,
    "paper": Paper,
    "random": Random,
}
#: Those that are compared unless others are asked for.
DEFAULT = tuple(METHODS)
#: Those that ask for batches of more than one point.
BATCHES = ("logei", "ucb", "botorch_logei")
#: This library's.
OURS = tuple(METHODS)[:2]
