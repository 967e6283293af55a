"""Uniform error bounds: 100 % intervals of calibrated methods against Bayesian ones.

Run with ``sharpgp bench bounds``, or ``python -m sharpgp.experiments.bounds``, which needs neither
typer nor rich.
"""

from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch import Tensor

from sharpgp import metrics
from sharpgp.calibration import Calibrated, Capone22, Recalibrator
from sharpgp.calibration.recalibrator import make_recalibrator
from sharpgp.exceptions import InvalidInputError
from sharpgp.experiments.regression import BASES, expect, make_problem
from sharpgp.experiments.task import Outcome, Task

DATASETS = ("boston", "mpg", "wine")
#: Probability with which a Bayesian bound is to hold at all test points at once.
CONFIDENCE = 0.99
#: Methods whose 100 % interval ends at the outermost calibration scores.
RANKED = ("paper", "kuleshov18", "exact", "cv")
#: Uniform bounds: the practical one, and the theorem's.
UNIFORM = ("capone22", "capone22_theorem")
METHODS = ("paper", "kuleshov18", "exact", *UNIFORM)


def plan(
    names: Sequence[str] | None = None,
    methods: Sequence[str] | None = None,
    *,
    repeats: int = 10,
    base: str = "trained",
) -> list[Task]:
    """Tasks of a run, by data set, then seed, then method.

    Examples
    --------
    >>> len(plan(["boston"], ["paper", "capone22"]))
    20
    """
    names, methods = list(names or DATASETS), list(methods or METHODS)
    for name in names:
        expect("datasets", name, DATASETS)
    for method in methods:
        expect("methods", method, (*RANKED, *UNIFORM))
    expect("base", base, BASES)
    if repeats < 1:
        raise InvalidInputError(f"repeats: expected at least 1, found {repeats}")
    return [
        Task("bounds", name, method, seed, {"base": base})
        for name in names
        for seed in range(repeats)
        for method in methods
    ]


def run_task(task: Task, context: Mapping[str, Any]) -> Outcome:
    """Rate of violation and mean length of one method's 100 % interval on the test part."""
    problem = make_problem(
        task.dataset, task.seed, task.settings["base"], None, context.get("data_home")
    )
    part = problem.part
    X = torch.from_numpy(part.X_test)
    method = _method(task.method, task.seed, len(part.y_test))
    lower, upper = whole_interval(method.fit(problem.posterior, part.X_cal, part.y_cal), X)
    ends = lower.numpy(), upper.numpy()
    found = {
        "violation_rate": 1.0 - metrics.interval_coverage(part.y_test, *ends),
        "length_100": metrics.interval_width(*ends),
    }
    return Outcome(found, problem.info)


def whole_interval(calibrated: Calibrated, X: Tensor) -> tuple[Tensor, Tensor]:
    """Ends [T] of the 100 % interval: the quantiles at the outermost ranks, ``1`` and ``C``.

    These are the levels ``1/(C+1)`` and ``C/(C+1)``, the most that ``C`` points can say: on
    exchangeable data, a new point lies outside with probability ``2/(C+1)``.  A uniform bound has
    no ranks; it gives its band at the confidence :data:`CONFIDENCE`.
    """
    if calibrated.n_cal is None:
        return calibrated.band(X, CONFIDENCE)
    ends = torch.tensor([1.0, calibrated.n_cal], dtype=torch.float64) / (calibrated.n_cal + 1)
    lower, upper = calibrated.quantiles(X, ends)
    return lower, upper


def _method(name: str, seed: int, points: int) -> Recalibrator:
    if name not in UNIFORM:
        return make_recalibrator(name, random_state=seed)
    scaling = "theorem" if name.endswith("theorem") else "practical"
    return Capone22(random_state=seed, points=points, scaling=scaling)


if __name__ == "__main__":
    from sharpgp.experiments.commands import main

    main("bounds")
