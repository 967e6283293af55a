"""Experiments with categories, limits and mixtures, beside BoTorch, Optuna's samplers and BayBE.

Every method starts from the same random points.  Regret is that of the best run that meets the
limits, without noise, as a share of the median regret of random settings that meet them: 0 is the
optimum, 1 no progress, and runs that never met them count as 1.  Printed are the median over seeds,
the mean rank, and what 90 % intervals of the points asked for cover.
"""

import random
import time
import warnings
from itertools import product
from statistics import fmean, median
from typing import Any

import numpy as np
from scipy.stats import rankdata

from sharpgp._validation import check_choice
from sharpgp_benchmarks.evidence.run import header, measured, row
from sharpgp_benchmarks.optimisation.laboratory import CONSTRAINED, MIXED
from sharpgp_benchmarks.optimisation.rivals import PEERS

#: Random points to begin with, and runs in all.
DESIGN, RUNS = 10, 40
SUITES = {"mixed": MIXED, "constrained": CONSTRAINED}
#: Methods that are compared unless others are asked for; ``ucb`` and ``baybe`` know no limits.
METHODS = "logei,botorch_logei,optuna_gp,optuna_tpe"


def optimised(name: str, method: str, seed: int, runs: int = RUNS) -> dict[str, Any]:
    """One experiment with one method: regret by run, whether intervals cover, and seconds."""
    experiment = (MIXED | CONSTRAINED)[name]
    rng, noise = random.Random(seed), np.random.default_rng(seed)
    loop = PEERS[method](experiment, seed, DESIGN)
    regrets: list[float] = []
    begun = time.process_time()
    for n in range(runs):
        settings = experiment.drawn(rng) if n < DESIGN else loop.ask()
        results = experiment.measured(settings)
        regrets.append(min(experiment.regret(results) / experiment.usual_regret, 1.0))
        told = results | {"value": results["value"] + experiment.noise * float(noise.normal())}
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            loop.tell(settings, told)
    inside = [abs(level - 0.5) <= 0.45 for level in loop.levels()]
    return {"regret": regrets, "inside": inside, "seconds": time.process_time() - begun}


def main(
    suites: str = ",".join(SUITES), methods: str = METHODS, seeds: int = 5, runs: int = RUNS
) -> None:
    """For each suite, print a line for each experiment, and what holds for all of them."""
    for suite in suites.split(","):
        check_choice(suite, "suites", SUITES)
    for suite in suites.split(","):
        _compared(list(SUITES[suite]), methods.split(","), seeds, runs)


def _compared(names: list[str], chosen: list[str], seeds: int, runs: int) -> None:
    # Whole seeds first: a run that is stopped can be told with fewer.
    cases = [(name, m, seed, runs) for seed, name, m in product(range(seeds), names, chosen)]
    found = dict(zip(cases, measured(optimised, cases), strict=True))
    own = {m: [one for case, one in found.items() if case[1] == m] for m in chosen}
    ranks = []
    header("experiment", *chosen)
    for name in names:
        left = np.array(
            [[min(found[name, m, s, runs]["regret"]) for m in chosen] for s in range(seeds)]
        )
        ranks.append(np.mean([rankdata(line.round(4)) for line in left], 0))
        row(name, *(f"{median(column):.3f}" for column in left.T.tolist()))
    row("mean rank", *(f"{value:.2f}" for value in np.mean(ranks, 0)))
    row("mean", *(f"{fmean(min(one['regret']) for one in own[m]):.3f}" for m in chosen))
    covered = {m: [flag for one in own[m] for flag in one["inside"]] for m in chosen}
    row("90 % covers", *(f"{100 * fmean(c):.1f}" if (c := covered[m]) else "" for m in chosen))
    row("CPU seconds", *(f"{fmean(one['seconds'] for one in own[m]):.0f}" for m in chosen))
