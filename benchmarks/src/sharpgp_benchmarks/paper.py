"""Every table and figure of the paper and its supplement: the tasks of ``sharpgp bench paper``."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from sharpgp._validation import check_choice
from sharpgp.exceptions import InvalidInputError, SharpGPError
from sharpgp_benchmarks import bo, bounds, datasets, regression
from sharpgp_benchmarks.published import DATASETS
from sharpgp_benchmarks.task import Task

#: Parts of a run: the table, the supplement's, and the figure of regrets.
PARTS = ("regression", "bounds", "bo")
#: Methods of the paper's table, and one beyond it whose coverage is guaranteed.
METHODS = ("paper", "kuleshov18", "vovk20", "marx22", "kuleshov22", "vanilla", "exact")
#: Methods that take the hardly trained base model as it is.
UNDERTRAINED = METHODS[:6]
#: A thorough search of the two levels of the 95 % interval, each on its side of the centre.
THOROUGH: dict[str, Any] = {"levels": [0.025, 0.975], "effort": 2}
#: The set that the network is pretrained on.
PRETRAINED_ON = "yacht"
#: Sets that take minutes a split, with fewer splits unless more are asked for.
LARGE = ("kin8nm", "facebook1", "facebook2")
FEWER = 10
#: A quick run: sets, splits, optimisations.
QUICK_SETS, QUICK_REPEATS, QUICK_ITERATIONS = ("boston", "yacht", "mpg"), 3, 15
#: Functions and methods of the paper's optimisations.
FUNCTIONS, BOUNDS = ("ackley", "rosenbrock"), ("calibrated", "calibrated_1", "ucb")


def available(
    names: Sequence[str] | None, data_home: str | Path | None
) -> tuple[list[str], dict[str, str]]:
    """Sets of the paper's table that can be had, and for each other one the reason.

    ``facebook1`` stands in where the larger ``facebook2`` cannot be had.  Sets that are asked for
    by name have to be there.
    """
    if names is not None:
        datasets.require(names, data_home)
        return list(names), {}
    sets, missing = [], {}
    for name in DATASETS:
        for candidate in (name, "facebook1") if name == "facebook2" else (name,):
            try:
                datasets.require([candidate], data_home)
            except SharpGPError as error:
                missing[candidate] = str(error)
            else:
                sets.append(candidate)
                break
    return sets, missing


def plan(
    names: Sequence[str],
    *,
    parts: Sequence[str] | None = None,
    quick: bool = False,
    repeats: int | None = None,
    of_paper: Mapping[str, Any] | None = None,
) -> list[Task]:
    """Tasks of all tables and of the figure of regrets.

    Parameters
    ----------
    names : sequence of str
        Data sets; a quick run takes those of :data:`QUICK_SETS` among them.
    parts : sequence of str, optional
        Those of :data:`PARTS` to run; all by default.
    quick : bool
        Few repetitions, a short optimisation, and the uniform bounds of ``capone22`` from the
        Laplace approximation, which needs no sampler.
    repeats : int, optional
        Splits of each set; 100 as printed, fewer of :data:`LARGE`, three in a quick run.
    of_paper : mapping, optional
        Settings of the paper's method.

    Examples
    --------
    >>> tasks = plan(["boston"], quick=True)
    >>> sorted({task.experiment for task in tasks})
    ['bo', 'bounds', 'regression']
    """
    names = [name for name in names if name in QUICK_SETS] if quick else list(names)
    if not names:
        raise InvalidInputError(
            "datasets: expected at least one set that can be had, found none; name a folder with "
            "your own copies as --data-home"
        )
    chosen = PARTS if parts is None else parts
    for part in chosen:
        check_choice(part, "parts", PARTS)
    tasks: list[Task] = []
    if "regression" in chosen:
        tasks += _regressions(names, quick, repeats, dict(of_paper or {}))
    bounded = [name for name in bounds.DATASETS if name in names]
    if "bounds" in chosen and bounded:
        how = {"repeats": QUICK_REPEATS, "hyperposterior": "laplace"} if quick else {"repeats": 10}
        tasks += bounds.plan(bounded, **how)
    if "bo" in chosen:
        tasks += bo.plan(
            FUNCTIONS,
            BOUNDS,
            repeats=QUICK_REPEATS if quick else 20,
            iterations=QUICK_ITERATIONS if quick else bo.ITERATIONS,
        )
    return tasks


def _regressions(
    names: Sequence[str], quick: bool, repeats: int | None, of_paper: dict[str, Any]
) -> list[Task]:
    """Both regimes of base models, and a thorough search of the 95 % interval."""
    tasks: list[Task] = []
    for name in names:
        count = repeats or (QUICK_REPEATS if quick else FEWER if name in LARGE else 100)
        network = {"kuleshov22": count}
        own = {
            "paper": of_paper,
            "kuleshov22": {} if quick else {regression.PRETRAINED_ON: PRETRAINED_ON},
        }
        for base, methods in (("trained", METHODS), ("undertrained", UNDERTRAINED)):
            tasks += regression.plan(
                [name], methods, repeats=count, repeats_of=network, base=base, of_method=own
            )
            if name not in LARGE:
                thorough = {"paper": of_paper | THOROUGH}
                tasks += regression.plan(
                    [name], ["paper"], repeats=count, base=base, of_method=thorough
                )
    return tasks
