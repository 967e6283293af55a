"""Uniform error bounds: 100 % intervals of calibrated methods against Bayesian ones.

Run with ``sharpgp bench bounds``.
"""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor

from sharpgp import metrics
from sharpgp._validation import check_choice
from sharpgp.calibration import Calibrated, Recalibrator
from sharpgp.calibration.recalibrator import make_recalibrator
from sharpgp.exceptions import InvalidInputError
from sharpgp.rows import Rows
from sharpgp_benchmarks.methods.capone22 import Capone22, UniformBoundPredictor
from sharpgp_benchmarks.regression import BASES, make_problem
from sharpgp_benchmarks.task import OF_METHOD, Outcome, Task

DATASETS = ("boston", "mpg", "wine")
#: Probability with which a Bayesian bound is to hold at all test points at once.
CONFIDENCE = 0.99
#: NUTS samples of the hyperparameters.  The box of a bound has to hold the share
#: ``sqrt(CONFIDENCE)`` of their posterior, which fewer than 199 samples cannot show; twice as many,
#: as neighbours in a chain resemble each other.
SAMPLES = 400
#: Methods whose 100 % interval ends at the outermost calibration scores.
RANKED = ("paper", "kuleshov18", "exact", "cv")
METHODS = ("paper", "kuleshov18", "exact", "capone22")


def plan(
    names: Sequence[str] | None = None,
    methods: Sequence[str] | None = None,
    *,
    repeats: int = 10,
    base: str = "trained",
    hyperposterior: str | None = None,
) -> list[Task]:
    """Tasks of a run, by data set, then seed, then method.

    ``hyperposterior`` is that of ``capone22``; by default samples, where points are few enough.

    Examples
    --------
    >>> len(plan(["boston"], ["paper", "capone22"]))
    20
    """
    names, methods = list(names or DATASETS), list(methods or METHODS)
    for name in names:
        check_choice(name, "datasets", DATASETS)
    for method in methods:
        check_choice(method, "methods", (*RANKED, "capone22"))
    check_choice(base, "base", BASES)
    if repeats < 1:
        raise InvalidInputError(f"repeats: expected at least 1, found {repeats}")
    own = {OF_METHOD: {"hyperposterior": hyperposterior}}
    of_method = {"capone22": own} if hyperposterior else {}
    return [
        Task("bounds", name, method, seed, {"base": base, **of_method.get(method, {})})
        for name in names
        for seed in range(repeats)
        for method in methods
    ]


def run_task(task: Task, context: Mapping[str, Any]) -> Outcome:
    """Rate of violation and mean length of one method's 100 % interval on the test part.

    A uniform bound is measured twice, as it is in practice and with the theorem's factors, which
    need no assumptions.
    """
    problem = make_problem(
        task.dataset, task.seed, task.settings["base"], None, context.get("data_home")
    )
    part = problem.part
    calibrated = _method(task, len(part.y_test)).fit(problem.posterior, part.X_cal, part.y_cal)
    found = measure(calibrated, part.X_test, part.y_test)
    if isinstance(calibrated, UniformBoundPredictor):
        calibrated.scaling = "theorem"
        rigorous = measure(calibrated, part.X_test, part.y_test)
        found |= {f"{name}_theorem": value for name, value in rigorous.items()}
    return Outcome(found, problem.info)


def measure(calibrated: Calibrated, X: np.ndarray, y: np.ndarray) -> dict[str, float]:
    """Rate of violation and mean length of the 100 % interval."""
    lower, upper = whole_interval(calibrated, torch.from_numpy(X))
    return {
        "violation_rate": 1.0 - metrics.interval_coverage(y, lower.numpy(), upper.numpy()),
        "length_100": metrics.interval_width(lower.numpy(), upper.numpy()),
    }


def whole_interval(calibrated: Calibrated, X: Tensor) -> tuple[Tensor, Tensor]:
    """Ends [T] of the 100 % interval: the quantiles at the outermost ranks, ``1`` and ``C``.

    These are the levels ``1/(C+1)`` and ``C/(C+1)``, the most that ``C`` points can say: on
    exchangeable data, a new point lies outside with probability ``2/(C+1)``.  A uniform bound has
    no ranks; it gives its band at the confidence :data:`CONFIDENCE`.
    """
    if calibrated.n_cal is None:
        lower, upper = calibrated.interval_ends(Rows(X), [CONFIDENCE], True, None)[:, 0]
        return lower, upper
    ends = torch.tensor([1.0, calibrated.n_cal], dtype=torch.float64) / (calibrated.n_cal + 1)
    lower, upper = calibrated.quantiles(Rows(X), ends)
    return lower, upper


def _method(task: Task, points: int) -> Recalibrator:
    if task.method in RANKED:
        return make_recalibrator(task.method, random_state=task.seed)
    own = task.settings.get(OF_METHOD, {})
    return Capone22(
        random_state=task.seed, points=points, warmup=SAMPLES // 2, samples=SAMPLES, **own
    )
