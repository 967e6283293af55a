"""Optimisations from small designs, as tasks.

Run with ``sharpgp bench bo --suite small``.
"""

import math
import time
import warnings
from collections.abc import Mapping, Sequence
from itertools import accumulate
from typing import Any

import torch
from botorch.exceptions import BotorchWarning
from linear_operator.utils.warnings import NumericalWarning

from sharpgp._validation import as_count, check_choice
from sharpgp.exceptions import NumericalError, SharpGPError
from sharpgp_benchmarks import datasets
from sharpgp_benchmarks.optimisation.methods import BATCHES, DEFAULT, METHODS
from sharpgp_benchmarks.optimisation.problems import PROBLEMS, TABLES, problem_of
from sharpgp_benchmarks.task import Outcome, Task

ITERATIONS = 60
#: A run that takes longer has failed: none may hold up those that wait.
MOST_SECONDS = 600.0
#: Coverages at which predictions of the points asked for are judged.
COVERAGES = {"coverage_80": 0.8, "coverage_95": 0.95}


def available(data_home: Any = None) -> list[str]:
    """Problems that can be had: tables only where their data are."""
    names = []
    for name in PROBLEMS:
        try:
            if name in TABLES:
                datasets.require([name], data_home)
        except SharpGPError:
            continue
        names.append(name)
    return names


def plan(
    names: Sequence[str] | None = None,
    methods: Sequence[str] | None = None,
    *,
    repeats: int = 20,
    iterations: int = ITERATIONS,
    batch: int = 1,
) -> list[Task]:
    """Tasks of a run, by seed, then problem, then method: a run that is stopped has whole seeds.

    Examples
    --------
    >>> len(plan(["branin", "levy4"], ["logei", "random"], repeats=20))
    80
    """
    names, methods = list(names or PROBLEMS), list(methods or DEFAULT)
    for name in names:
        check_choice(name, "datasets", PROBLEMS)
    for method in methods:
        check_choice(method, "methods", METHODS)
    as_count(repeats, "repeats", least=1)
    as_count(iterations, "iterations", least=1)
    settings = {"iterations": iterations}
    if as_count(batch, "batch", least=1) > 1:
        settings["batch"] = batch
        for method in methods:
            check_choice(method, "methods of batches", BATCHES)
    return [
        Task("optimisation", name, method, seed, settings)
        for seed in range(repeats)
        for name in names
        for method in methods
    ]


def run_task(task: Task, context: Mapping[str, Any]) -> Outcome:
    """Optimise one problem with one method from one design.

    With ``f`` the function itself, without noise: simple regret is ``max f - max_t f(x_t)``, the
    design included, area its mean over iterations, and cumulative regret
    ``sum_t (max f - f(x_t))`` over the points that were asked for.  Coverage is that of centred
    intervals for the results of these points, stated before they were seen.
    """
    problem = problem_of(task.dataset, context.get("data_home"))
    generator = torch.Generator().manual_seed(task.seed)
    X = problem.design(generator)
    y = problem.observe(X, generator)
    start = float(problem.regret(X).min())
    regrets, seconds = [], []
    levels: list[float | None] = []
    with torch.random.fork_rng(devices=[]), warnings.catch_warnings():
        # A search from a poor start may stall, and a fit may add jitter; both go on.
        for category in (BotorchWarning, RuntimeWarning, NumericalWarning):
            warnings.simplefilter("ignore", category)
        torch.manual_seed(task.seed)
        loop = METHODS[task.method](problem, X, y, task.seed)
        q = int(task.settings.get("batch", 1))
        for _ in range(int(task.settings["iterations"]) // q):
            begun = time.perf_counter()
            x = loop.ask(q)
            seconds.append(time.perf_counter() - begun)
            result = problem.observe(x, generator)
            regrets += problem.regret(x).tolist()
            loop.tell(x, result)
            levels += loop.levels(x, result)
            if sum(seconds) > MOST_SECONDS:
                raise NumericalError(
                    f"expected at most {MOST_SECONDS:g} s for a run, found more after "
                    f"{len(seconds)} points; ask for fewer iterations"
                )
    info = {"start": start, "regret": regrets, "seconds": seconds, "levels": levels}
    return Outcome(summary(start, regrets, levels), info)


def summary(
    start: float, regrets: Sequence[float], levels: Sequence[float | None]
) -> dict[str, float]:
    """Regrets and coverages of a run.

    Examples
    --------
    >>> summary(4.0, [3.0, 1.0, 2.0], [0.5, 0.05, 0.99])["area"]
    1.667
    """
    simple = list(accumulate(regrets, min, initial=start))[1:]
    out = {
        "simple_regret": simple[-1],
        "area": math.fsum(simple) / len(simple),
        "cumulative_regret": math.fsum(regrets),
    }
    known = [level for level in levels if level is not None]
    for name, coverage in COVERAGES.items():
        if known:
            inside = [abs(level - 0.5) <= coverage / 2.0 for level in known]
            out[name] = sum(inside) / len(inside)
    return out
