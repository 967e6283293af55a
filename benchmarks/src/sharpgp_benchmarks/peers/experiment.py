"""Tasks of the comparison, and what is measured of each method."""

import logging
import time
import warnings
from collections.abc import Mapping, Sequence
from functools import lru_cache
from typing import Any

from sharpgp import metrics
from sharpgp._validation import check_choice
from sharpgp.exceptions import InvalidInputError
from sharpgp_benchmarks import datasets, extra_sets
from sharpgp_benchmarks.peers.protocol import COVERAGES, Case, make_case, sizes
from sharpgp_benchmarks.task import Outcome, Task

logger = logging.getLogger("sharpgp")

DATASETS = ("boston", "yacht", "mpg", "wine", "concrete", "kin8nm", "facebook1")
#: Suffix of a band's metrics, as in the tables of the regression benchmark.
SUFFIX = {"default": "", "centred": "", "symmetric": "_symmetric"}


def plan(
    names: Sequence[str] | None = None,
    methods: Sequence[str] | None = None,
    *,
    repeats: int = 20,
    most: int = 2000,
) -> list[Task]:
    """Tasks of a run, by seed, then data set, then method.

    Parameters
    ----------
    names : sequence of str, optional
        Benchmark sets or further ones; without it, seven of the benchmark; ``["further"]`` for all
        of :data:`sharpgp_benchmarks.extra_sets.SETS`.
    methods : sequence of str, optional
        Without it, all; those whose package is missing are skipped, with a line that names it.
    repeats : int
        Splits per data set.
    most : int
        Training rows at most.

    Examples
    --------
    >>> len(plan(["yacht", "cpu"], ["rk", "cv"], repeats=3))
    12
    """
    from sharpgp_benchmarks.peers.league import why_not
    from sharpgp_benchmarks.peers.methods import METHODS, MOST_ROWS, ONLY_FOR

    if list(names or []) == ["further"]:
        names = list(extra_sets.SETS)
    names, methods = list(names or DATASETS), list(methods or METHODS)
    for name in names:
        known = (*datasets.names(), *extra_sets.DISTINCT, *extra_sets.SETS)
        check_choice(name, "datasets", known)
    for method in methods:
        check_choice(method, "methods", METHODS)
    for what, count in (("repeats", repeats), ("most", most)):
        if count < 1:
            raise InvalidInputError(f"{what}: expected at least 1, found {count}")
    for method in list(methods):
        reason = why_not(method)
        if reason is not None:
            logger.warning(reason)
            methods.remove(method)
    given = {name: sum(sizes(extra_sets.rows(name), most)) for name in names}
    return [
        Task("peers", name, method, seed, {"most": most})
        for seed in range(repeats)
        for name in names
        for method in methods
        if given[name] <= MOST_ROWS.get(method, given[name]) and name in ONLY_FOR.get(method, names)
    ]


def run_task(task: Task, context: Mapping[str, Any]) -> Outcome:
    """Intervals of one method on one split, in standard deviations of the target."""
    from sharpgp_benchmarks.peers.methods import METHODS

    case = find_case(
        task.dataset,
        task.seed,
        task.settings["most"],
        context.get("data_home"),
        context.get("device") or "cpu",
    )
    y = case.parts.y_test
    case.charged, start = 0.0, time.perf_counter()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        prediction = METHODS[task.method](case)
    found = {"seconds": time.perf_counter() - start + case.charged}
    for band, ends in prediction.bands.items():
        for k, coverage in enumerate(COVERAGES):
            lower, upper = ends[:, :, k].T
            suffix = f"_{round(100 * coverage)}{SUFFIX[band]}"
            found[f"width{suffix}"] = metrics.interval_width(lower, upper) / case.unit
            found[f"coverage{suffix}"] = metrics.interval_coverage(y, lower, upper)
            score = metrics.interval_score(y, lower, upper, coverage)
            found[f"interval_score{suffix}"] = score / case.unit
    if prediction.crps is not None:
        found["crps"] = prediction.crps / case.unit
    n_train = len(case.parts.y_train)
    info = {"n_train": n_train, "n_train_available": n_train}
    return Outcome(found, {**info, "n_cal": len(case.parts.y_cal), "n_test": len(y)})


@lru_cache(maxsize=1)
def find_case(dataset: str, seed: int, most: int, data_home: str | None, device: str) -> Case:
    """The split, kept for the methods of a batch."""
    return make_case(extra_sets.load(dataset, data_home), seed, most, device)
