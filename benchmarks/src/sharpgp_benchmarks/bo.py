"""Bayesian optimisation of test functions: calibrated bounds against those of the base GP.

Run with ``sharpgp bench bo``.
"""

import copy
import math
import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Any

import torch
from botorch.acquisition import AcquisitionFunction, LogExpectedImprovement, UpperConfidenceBound
from botorch.exceptions import BotorchWarning
from botorch.test_functions import Ackley, Branin, Hartmann, Rosenbrock
from botorch.test_functions.synthetic import SyntheticTestFunction
from botorch.utils.sampling import draw_sobol_samples
from torch import Tensor

from sharpgp._validation import as_count, check_choice
from sharpgp.bo import as_botorch
from sharpgp.calibration import Calibrated, Sharp, Vanilla
from sharpgp.calibration.methods.sharp.predictor import SharpPredictor
from sharpgp.gp.exact.posterior import ExactPosterior
from sharpgp.gp.training import train
from sharpgp_benchmarks.kept_loop import KeptLoop
from sharpgp_benchmarks.tables import SHOWN_REGRETS
from sharpgp_benchmarks.task import Outcome, Task

#: The functions, to be maximised on the domains that BoTorch gives them.
FUNCTIONS: dict[str, Callable[[], SyntheticTestFunction]] = {
    "ackley": lambda: Ackley(dim=2, negate=True),
    "rosenbrock": lambda: Rosenbrock(dim=2, negate=True),
    "branin": lambda: Branin(negate=True),
    "hartmann6": lambda: Hartmann(dim=6, negate=True),
}
#: The paper's level of the bound, and the factor of the vanilla one.
DELTA, BETA = 0.99, 2.0
#: Points that the base GP is trained on, and held-out ones: 0.99 is not backed by fewer than 99.
N_TRAIN, N_CAL = 50, 99
#: Standard deviation of the noise, in that of the function over its domain.
NOISE = 0.05
ITERATIONS = 100
#: Points between two recalibrations, for the methods that recalibrate.
EVERY = 10


def plan(
    names: Sequence[str] | None = None,
    methods: Sequence[str] | None = None,
    *,
    repeats: int = 20,
    iterations: int = ITERATIONS,
) -> list[Task]:
    """Tasks of a run, by function, then seed, then method.

    Examples
    --------
    >>> len(plan(["ackley"], ["calibrated", "ucb"], repeats=20))
    40
    """
    names, methods = list(names or FUNCTIONS), list(methods or METHODS)
    for name in names:
        check_choice(name, "datasets", FUNCTIONS)
    for method in methods:
        check_choice(method, "methods", METHODS)
    as_count(repeats, "repeats", least=1)
    as_count(iterations, "iterations", least=1)
    settings = {"iterations": iterations}
    return [
        Task("bo", name, method, seed, settings)
        for name in names
        for seed in range(repeats)
        for method in methods
    ]


def run_task(task: Task, context: Mapping[str, Any]) -> Outcome:
    """Optimise one function with one method from one initial design, and record the regret.

    With ``f`` the function itself, without noise: simple regret is ``max f - max_t f(x_t)`` and
    cumulative regret ``sum_t (max f - f(x_t))``, both over the points that were asked for; the
    initial design, which is the same for all methods, does not count.
    """
    problem = Problem.draw(task.dataset, task.seed)
    regrets: list[float] = []
    with torch.random.fork_rng(devices=[]), warnings.catch_warnings():
        # A search from a poor start may stall; the others go on.
        warnings.simplefilter("ignore", BotorchWarning)
        warnings.simplefilter("ignore", RuntimeWarning)
        torch.manual_seed(task.seed)
        loop = METHODS[task.method](problem)
        for _ in range(int(task.settings["iterations"])):
            x = loop.ask()
            regrets.append(problem.regret(x))
            loop.tell(x, problem.observe(x))
    return Outcome(summary(regrets), {"regret": regrets, **loop_facts(loop, problem)})


def summary(regrets: Sequence[float]) -> dict[str, float]:
    """Simple and cumulative regret after some numbers of iterations, and after all.

    Examples
    --------
    >>> summary([3.0, 1.0, 2.0])
    {'simple_regret': 1.0, 'cumulative_regret': 6.0}
    """
    out = {"simple_regret": min(regrets), "cumulative_regret": math.fsum(regrets)}
    for count in SHOWN_REGRETS:
        if count < len(regrets):
            out[f"simple_regret_{count}"] = min(regrets[:count])
            out[f"cumulative_regret_{count}"] = math.fsum(regrets[:count])
    return out


@dataclass(frozen=True)
class Problem:
    """A noisy function and its initial design, the first points for training."""

    function: SyntheticTestFunction
    noise: float
    X: Tensor
    y: Tensor
    generator: torch.Generator

    @classmethod
    def draw(cls, name: str, seed: int) -> "Problem":
        """The function with a random initial design; every seed has its own."""
        function = FUNCTIONS[name]()
        generator = torch.Generator().manual_seed(seed)
        lower, upper = bounds_of(function)
        unit = torch.rand(N_TRAIN + N_CAL, len(lower), generator=generator, dtype=torch.float64)
        empty = unit[:0]
        problem = cls(function, NOISE * spread_of(name), empty, empty[:, 0], generator)
        X = lower + unit * (upper - lower)
        return replace(problem, X=X, y=problem.observe(X))

    @property
    def bounds(self) -> Tensor:
        """Of the domain, [2, d]."""
        return bounds_of(self.function)

    def observe(self, X: Tensor) -> Tensor:
        """Noisy values [n]."""
        noise = torch.randn(len(X), generator=self.generator, dtype=torch.float64)
        values: Tensor = self.function(X, noise=False)
        return values + self.noise * noise

    def regret(self, x: Tensor) -> float:
        """Distance of ``f(x)`` from its maximum, noise left out."""
        return float(self.function.optimal_value) - float(self.function(x, noise=False))


def bounds_of(function: SyntheticTestFunction) -> Tensor:
    """Bounds [2, d] of a function's domain."""
    bounds = function.bounds
    assert isinstance(bounds, Tensor)
    return bounds.double()


@lru_cache
def spread_of(name: str) -> float:
    """Standard deviation of a function over its domain."""
    function = FUNCTIONS[name]()
    X = draw_sobol_samples(bounds_of(function), n=4096, q=1, seed=0).squeeze(1)
    return float(function(X, noise=False).std())


# ------------------------------------------------------------------ the methods


def calibrate(X: Tensor, y: Tensor, n_train: int) -> Calibrated:
    """The paper's method at one level, and then a posterior conditioned on all points."""
    posterior, _ = train(X[:n_train], y[:n_train], prior=None)
    calibrated = Sharp(levels=DELTA).fit(posterior, X[n_train:], y[n_train:])
    return calibrated.condition_on_observations(X[n_train:], y[n_train:])


def calibrate_with_factor_one(X: Tensor, y: Tensor, n_train: int) -> Calibrated:
    """The same ``theta``, with the factor 1 that the paper's text gives for ``beta``.

    ``sigma`` is then in the units of the trained signal variance, which the search holds.
    """
    calibrated = calibrate(X, y, n_train)
    assert isinstance(calibrated, SharpPredictor)
    factor = calibrated.curves.beta_at(torch.tensor([DELTA], dtype=torch.float64))
    other = copy.copy(calibrated)
    other.curves = replace(calibrated.curves, beta=calibrated.curves.beta / factor)
    return other


def recalibrate(X: Tensor, y: Tensor) -> Calibrated:
    """The same on a random split of all points so far, with as many for calibration."""
    order = torch.randperm(len(y))
    return calibrate(X[order], y[order], len(y) - N_CAL)


def base(X: Tensor, y: Tensor, n_train: int) -> Calibrated:
    """The base GP as it is: trained on the same points, conditioned on all."""
    posterior, _ = train(X[:n_train], y[:n_train], prior=None)
    return Vanilla().fit(posterior.conditioned_on(X, y), None, None)


class _UCB(KeptLoop):
    """BoTorch's upper confidence bound, with the factor on the standard deviation of ``f``."""

    def acquisition(self) -> AcquisitionFunction:
        return UpperConfidenceBound(as_botorch(_exact(self.model)), beta=BETA**2)


class _LogEI(KeptLoop):
    """BoTorch's log expected improvement over the best posterior mean at the points so far."""

    def acquisition(self) -> AcquisitionFunction:
        gp = _exact(self.model)
        return LogExpectedImprovement(as_botorch(gp), best_f=gp.mean(gp.X_train).max())


class _Random(KeptLoop):
    """Uniform points."""

    def ask(self) -> Tensor:
        lower, upper = self.bounds
        return lower + torch.rand(1, len(lower), dtype=torch.float64) * (upper - lower)

    def tell(self, X: Tensor, y: Tensor) -> None:
        pass


def _exact(model: Calibrated) -> ExactPosterior:
    assert isinstance(model.posterior, ExactPosterior)
    return model.posterior


def _loop(
    kind: type[KeptLoop], start: Callable[[Tensor, Tensor, int], Calibrated], **settings: Any
) -> Callable[[Problem], KeptLoop]:
    def make(problem: Problem) -> KeptLoop:
        model = start(problem.X, problem.y, N_TRAIN)
        return kind(model, problem.bounds, delta=DELTA, **settings)

    return make


#: What starts each method, in the order of the tables.
METHODS: dict[str, Callable[[Problem], KeptLoop]] = {
    "calibrated": _loop(KeptLoop, calibrate),
    "calibrated_1": _loop(KeptLoop, calibrate_with_factor_one),
    "recalibrated": _loop(KeptLoop, calibrate, recalibrate=recalibrate, every=EVERY),
    "ucb": _loop(_UCB, base),
    "ucb_retrained": _loop(_UCB, base, recalibrate=lambda X, y: base(X, y, len(y)), every=EVERY),
    "logei": _loop(_LogEI, base),
    "random": _loop(_Random, base),
}


def loop_facts(loop: KeptLoop, problem: Problem) -> dict[str, Any]:
    """What explains a run: the bound's factor, and its lengthscales relative to the base GP's."""
    facts: dict[str, Any] = {"n_init": len(problem.y), "noise": problem.noise}
    curves = getattr(loop.model, "curves", None)
    if curves is not None:
        level = torch.tensor([DELTA], dtype=torch.float64)
        d = problem.X.shape[1]
        ratio = loop.model.posterior.theta_R[:d] / curves.theta_at(level)[0, :d]
        facts["beta"] = float(curves.beta_at(level))
        facts["lengthscale_ratio"] = float(ratio.log().mean().exp())
    return facts
