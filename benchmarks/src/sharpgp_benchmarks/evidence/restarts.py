"""What restarts of the paper's search gain, and that none of them ends in a worse path.

The objective of each level, over that of RK on the same base model, as a geometric mean over levels
and splits: ten levels by the number of restarts, and all levels ``j/(C+1)`` of the theorem.  Each
level counts at least ``exp(-3)``, as in the search: close to the centre objectives vanish.
"""

import math

import numpy as np

from sharpgp.calibration.methods.sharp.method import Sharp
from sharpgp.calibration.methods.sharp.search.level_search import mean_log_ratio
from sharpgp.metrics import interval_coverage
from sharpgp_benchmarks.evidence.common import Clock, numbers
from sharpgp_benchmarks.evidence.run import header, measured, row
from sharpgp_benchmarks.regression import make_problem

#: Levels of the paths that are searched with restarts.
LEVELS = 10


def path(
    name: str, seed: int, levels: int | str, restarts: int, data_home: str | None
) -> list[float]:
    """Mean log ratio to RK's objective, coverage at 95 %, processor seconds of one search."""
    problem = make_problem(name, seed, "trained", None, data_home)
    part = problem.part
    method = Sharp(levels=levels, restarts=restarts, random_state=seed)
    with Clock() as clock:
        calibrated = method.fit(problem.posterior, part.X_cal, part.y_cal)
    found = [(one.objective, one.objective_base) for one in calibrated.results]
    ratio = np.array([a / b if b > 0 else 1.0 for a, b in found]).clip(1e-300)
    lower, upper = calibrated.predict_quantiles(part.X_test, [0.025, 0.975]).cpu().numpy().T
    inside = interval_coverage(part.y_test, lower, upper)
    return [mean_log_ratio(np.log(ratio)), inside, clock.cpu]


def main(
    datasets: str = "boston,mpg,yacht,concrete",
    restarts: str = "0,5,20,50",
    splits: int = 5,
    all_levels: bool = True,
    data_home: str | None = None,
) -> None:
    """Print the table."""
    header("set", "levels", "restarts", "splits", "objective", "worse on", "coverage", "seconds")
    for name in datasets.split(","):
        plans: list[tuple[int | str, list[int]]] = [(LEVELS, numbers(restarts))]
        if all_levels:
            plans.append(("all", [0]))
        for levels, counts in plans:
            before = np.zeros(splits)  # RK
            for count in counts:
                cases = [(name, seed, levels, count, data_home) for seed in range(splits)]
                found = np.array(measured(path, cases))
                worse = int((found[:, 0] > before + 1e-9).sum())
                before = found[:, 0]
                objective, coverage, seconds = found.mean(axis=0)
                row(name, levels, count, splits, math.exp(objective), worse, coverage, seconds)
