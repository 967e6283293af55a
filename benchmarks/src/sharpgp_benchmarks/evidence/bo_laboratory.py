"""Experiments with categories, beside Optuna's samplers and BoTorch.

Every method starts from the same random points.  Printed are the simple regret after the last run,
without noise, as a share of the way from the best of the design to the optimum (0 is the optimum,
1 is no progress), its mean rank, and what 90 % intervals of the points asked for cover.
"""

import math
import random
import time
import warnings
from collections.abc import Callable
from itertools import product
from statistics import fmean, median
from typing import Any

import numpy as np
from scipy.stats import rankdata

from sharpgp.bo import Log, Optimiser
from sharpgp_benchmarks.evidence.run import header, measured, row, table
from sharpgp_benchmarks.optimisation.laboratory import MIXED, Experiment

#: Random points to begin with, and runs in all.
DESIGN, RUNS = 10, 40


class Ours:
    """The optimiser of this library."""

    def __init__(self, experiment: Experiment, seed: int, **settings: Any) -> None:
        self.loop = Optimiser(experiment.inputs, design=DESIGN, random_state=seed, **settings)

    def ask(self) -> dict[str, Any]:
        return dict(self.loop.ask())

    def tell(self, point: dict[str, Any], y: float) -> None:
        self.loop.tell(point, y)

    def levels(self) -> list[float]:
        return [run.level for run in self.loop.record.runs if run.level is not None]


class Optuna:
    """A sampler of Optuna."""

    def __init__(self, experiment: Experiment, seed: int, sampler: str) -> None:
        import optuna

        optuna.logging.set_verbosity(optuna.logging.ERROR)
        made = {
            "gp": lambda: optuna.samplers.GPSampler(
                seed=seed, n_startup_trials=DESIGN, deterministic_objective=not experiment.noise
            ),
            "tpe": lambda: optuna.samplers.TPESampler(seed=seed, n_startup_trials=DESIGN),
        }
        self.study = optuna.create_study(direction="maximize", sampler=made[sampler]())
        dist = optuna.distributions
        self.space: dict[str, Any] = {}
        for name, one in experiment.inputs.items():
            if isinstance(one, Log):
                self.space[name] = dist.FloatDistribution(one.low, one.high, log=True)
            elif isinstance(one, range):
                self.space[name] = dist.IntDistribution(one[0], one[-1])
            elif isinstance(one, tuple):
                self.space[name] = dist.FloatDistribution(*map(float, one))
            else:
                self.space[name] = dist.CategoricalDistribution(one)
        self.make = optuna.trial.create_trial
        self.trial: Any = None

    def ask(self) -> dict[str, Any]:
        self.trial = self.study.ask(self.space)
        return dict(self.trial.params)

    def tell(self, point: dict[str, Any], y: float) -> None:
        if self.trial is None:
            self.study.add_trial(self.make(params=point, distributions=self.space, value=y))
        else:
            self.study.tell(self.trial, y)
            self.trial = None

    def levels(self) -> list[float]:
        return []


METHODS: dict[str, Callable[[Experiment, int], Any]] = {
    "logei": Ours,
    "ucb": lambda e, seed: Ours(e, seed, acquisition="ucb"),
    "optuna_gp": lambda e, seed: Optuna(e, seed, "gp"),
    "optuna_tpe": lambda e, seed: Optuna(e, seed, "tpe"),
}


def drawn(experiment: Experiment, rng: random.Random) -> dict[str, Any]:
    """A random point."""
    point: dict[str, Any] = {}
    for name, one in experiment.inputs.items():
        if isinstance(one, Log):
            point[name] = one.low * (one.high / one.low) ** rng.random()
        elif isinstance(one, tuple):
            point[name] = one[0] + rng.random() * (one[1] - one[0])
        else:
            point[name] = rng.choice(list(one))
    return point


def optimised(name: str, method: str, seed: int, runs: int = RUNS) -> dict[str, Any]:
    """One experiment with one method: regret by run, coverage and seconds."""
    experiment = MIXED[name]
    rng, noise = random.Random(seed), np.random.default_rng(seed)
    loop = METHODS[method](experiment, seed)
    regrets: list[float] = []
    points = []
    begun = time.process_time()
    for n in range(runs):
        point = drawn(experiment, rng) if n < DESIGN else loop.ask()
        value = float(experiment.value(**point))
        regrets.append(max(experiment.optimum - value, 0.0))
        points.append(point)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            loop.tell(point, value + experiment.noise * float(noise.normal()))
    inside = [abs(level - 0.5) <= 0.45 for level in loop.levels()]
    return {
        "regret": regrets,
        "inside": inside,
        "seconds": time.process_time() - begun,
    }


def main(
    problems: str = ",".join(MIXED),
    methods: str = ",".join(METHODS),
    seeds: int = 3,
    runs: int = RUNS,
) -> None:
    """Print a line for each problem, and mean ranks."""
    names, chosen = problems.split(","), methods.split(",")
    cases = [(*case, runs) for case in product(names, chosen, range(seeds))]
    found = dict(zip(cases, measured(optimised, cases), strict=True))

    def share(case: tuple[Any, ...]) -> float:
        regret = found[case]["regret"]
        return min(regret) / max(min(regret[:DESIGN]), 1e-12)

    ranks = []
    header("problem", *chosen)
    for name in names:
        shares = np.array([[share((name, m, s, runs)) for m in chosen] for s in range(seeds)])
        ranks.append(np.mean([rankdata(line.round(4)) for line in shares], 0))
        row(name, *(f"{median(c):.3f} ({max(c):.2f})" for c in shares.T.tolist()))
    row("mean rank", *(f"{value:.2f}" for value in np.mean(ranks, 0)))
    lines = []
    for m in chosen:
        own = [one for case, one in found.items() if case[1] == m]
        inside = [flag for one in own for flag in one["inside"]]
        coverage = f"{fmean(inside):.1%}" if inside else ""
        every = math.fsum(min(share(case), 1.0) for case in found if case[1] == m) / len(own)
        lines.append((m, f"{every:.3f}", coverage, fmean(one["seconds"] for one in own)))
    table("Mean share left, coverage at 90 %, seconds", ("method", "left", "covers", "s"), lines)
