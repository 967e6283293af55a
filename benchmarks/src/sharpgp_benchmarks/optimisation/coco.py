"""COCO's bbob suite: 24 functions, shifted and rotated anew in every instance.

Evaluations are logged by COCO itself, so that ``python -m cocopp`` makes its pages of the folders
of ``sharpgp bench coco``; the table here is computed from the same files, beside the best
algorithms of 2009, which come with cocopp.  Needs the extra ``coco``.
"""

import contextlib
import io
import os
import warnings
from collections.abc import Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from multiprocessing import get_context
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import torch
from torch import Tensor

from sharpgp._extras import LABORATORY, need
from sharpgp._validation import as_count, check_choice
from sharpgp_benchmarks.optimisation.methods import METHODS as LOOPS
from sharpgp_benchmarks.optimisation.problems import Problem

#: What is compared: loops of ``sharpgp bench bo --suite small``, CMA-ES, and random points.
METHODS = ("logei", "ucb", "botorch_logei", "turbo", "cma", "random")
#: Function groups by their last function.
GROUPS = {
    "separable": 5,
    "moderate": 9,
    "ill-conditioned": 14,
    "multimodal": 19,
    "weak structure": 24,
}
#: Distances from the optimum that count as targets.
TARGETS = 10.0 ** np.linspace(2, -8, 51)
#: The best algorithms of 2009, function by function; comes with cocopp.
REFERENCE = "refalgs/best2009-bbob.tar.gz"


def run(
    out: Path,
    methods: Sequence[str],
    functions: Sequence[int],
    dimensions: Sequence[int],
    *,
    instances: int = 15,
    budget: int = 100,
    processes: int = 1,
) -> None:
    """Run what is not in ``out`` yet, ``budget`` evaluations for each input."""
    need("coco", "cocoex", "cma", distribution=LABORATORY)
    for method in methods:
        check_choice(method, "methods", METHODS)
    for name, value in (("instances", instances), ("budget", budget), ("processes", processes)):
        as_count(value, name, least=1)
    cases = [
        (out, method, function, dimension, instances, budget)
        for dimension in sorted(dimensions)
        for function in functions
        for method in methods
        if not _folder(out, method, function, dimension).exists()
    ]
    with ProcessPoolExecutor(processes, mp_context=get_context("spawn")) as pool:
        for future in as_completed([pool.submit(_run_one, *case) for case in cases]):
            future.result()


def _folder(out: Path, method: str, function: int, dimension: int) -> Path:
    return out / method / f"f{function:02d}_d{dimension:02d}"


def _run_one(
    out: Path, method: str, function: int, dimension: int, instances: int, budget: int
) -> None:
    """All instances of one function; its folder has its name once it is whole."""
    import cocoex

    torch.set_num_threads(1)
    warnings.simplefilter("ignore")
    cocoex.log_level("warning")
    final = _folder(out, method, function, dimension)
    part = final.with_name(f".{final.name}")
    part.parent.mkdir(parents=True, exist_ok=True)
    suite = cocoex.Suite(
        "bbob",
        f"instances: 1-{instances}",
        f"dimensions: {dimension} function_indices: {function}",
    )
    options = f"outer_folder: {part.parent} result_folder: {part.name} algorithm_name: {method}"
    observer = cocoex.Observer("bbob", options)
    for seed, problem in enumerate(suite):
        problem.observe_with(observer)
        optimise(problem, method, budget * dimension, seed)
        problem.free()
    os.replace(observer.result_folder, final)


def optimise(problem: Any, method: str, evaluations: int, seed: int) -> None:
    """Spend so many evaluations of one of COCO's problems, or fewer where it is solved."""
    if method == "cma":
        _cma(problem, evaluations, seed)
        return

    def function(X: Tensor) -> Tensor:
        return -torch.tensor([problem(x) for x in X.numpy()], dtype=torch.float64)

    bounds = np.stack([problem.lower_bounds, problem.upper_bounds])
    box = Problem(torch.from_numpy(bounds), function, optimum=np.inf)
    X = box.design(torch.Generator().manual_seed(seed))
    torch.manual_seed(seed)
    loop = LOOPS[method](box, X, function(X), seed)
    while problem.evaluations < evaluations and not problem.final_target_hit:
        x = loop.ask()
        loop.tell(x, function(x))


def _cma(problem: Any, evaluations: int, seed: int) -> None:
    """CMA-ES from random points, restarted while evaluations are left."""
    import cma

    random = np.random.default_rng(seed)
    low, high = problem.lower_bounds, problem.upper_bounds
    while problem.evaluations < evaluations and not problem.final_target_hit:
        options = {"bounds": [low, high], "verbose": -9, "seed": int(random.integers(1, 2**31))}
        search = cma.CMAEvolutionStrategy(random.uniform(low, high), 0.2 * (high - low)[0], options)
        while not search.stop() and problem.evaluations < evaluations:
            points = search.ask()
            search.tell(points, [problem(x) for x in points])


# ------------------------------------------------------------------ what the files say


def shares(out: Path, budget: int = 100) -> pd.DataFrame:
    """Share of targets that were reached, by dimension, function group and method.

    With the standard error over functions and instances.  ``best 2009`` is what the best algorithm
    of 2009 for each function reaches on average in as many evaluations.
    """
    need("coco", "cocopp", distribution=LABORATORY)
    found: dict[tuple[int, str, str], list[float]] = {}
    methods = [name for name in METHODS if (out / name).is_dir()]
    with contextlib.redirect_stdout(io.StringIO()), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        import cocopp
        from cocopp import bestalg

        cocopp.genericsettings.verbose = False
        reference = bestalg.load_reference_algorithm(REFERENCE)
        for method in methods:
            for data in cocopp.load(str(out / method)):
                key = data.dim, group_of(data.funcId)
                reached = np.array(data.detEvals(TARGETS)) <= budget * data.dim
                found.setdefault((*key, method), []).extend(reached.mean(0))
                if method == methods[0]:
                    best = np.array(reference[data.dim, data.funcId].detERT(TARGETS))
                    found.setdefault((*key, "best 2009"), []).append(
                        float((best <= budget * data.dim).mean())
                    )
    rows = [
        (*key, np.mean(values), np.std(values) / len(values) ** 0.5)
        for key, values in found.items()
    ]
    return pd.DataFrame(rows, columns=["d", "functions", "method", "share", "error"])


def table(found: pd.DataFrame) -> str:
    """What :func:`shares` found, a line for each dimension and function group."""
    methods = [name for name in (*METHODS, "best 2009") if name in set(found["method"])]
    cells = found["share"].map("{:.1%}".format) + found["error"].map(" ({:.1%})".format)
    wide = found.assign(cells=cells).pivot(
        index=["d", "functions"], columns="method", values="cells"
    )
    order = [(d, group) for d in sorted(set(found["d"])) for group in GROUPS]
    wide = wide.reindex(index=[key for key in order if key in wide.index], columns=methods)
    shown: str = wide.rename_axis(columns=None).reset_index().fillna("-").to_string(index=False)
    return shown


def group_of(function: int) -> str:
    """The group that a function belongs to.

    Examples
    --------
    >>> group_of(1), group_of(14), group_of(24)
    ('separable', 'ill-conditioned', 'weak structure')
    """
    return next(name for name, last in GROUPS.items() if function <= last)


def numbers(text: str) -> list[int]:
    """Whole numbers from text.

    Examples
    --------
    >>> numbers("1-3,7")
    [1, 2, 3, 7]
    """
    found: list[int] = []
    for part in text.split(","):
        first, _, last = part.partition("-")
        found += range(int(first), int(last or first) + 1)
    return found
