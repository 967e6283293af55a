"""Where training begins: starts of hyperparameters, and sides on which a warp is sought.

The first table has, for a number of evaluations that each start gets before only the best one goes
on, the log likelihood that training loses to the best of four full descents: how often it is more
than 2, and at most; and the evaluations of the likelihood that it takes.  The second has the same
for warps of the targets of tables from the packages of R: relative to the best that is found on any
side, for the side that the skewness points to, for that one and all others where it gains little,
and for the one that is ahead after a few evaluations on each.
"""

from collections.abc import Callable
from unittest.mock import patch

import numpy as np
import torch
from joblib import Parallel, delayed

from sharpgp._validation import check_choice
from sharpgp.gp import training, warped
from sharpgp.gp.exact import ExactPosterior
from sharpgp.gp.warped import Side, WarpedPosterior
from sharpgp_benchmarks import table_sets
from sharpgp_benchmarks.evidence.common import GENERATED, calm, header, numbers, row
from sharpgp_benchmarks.evidence.mixed_tables import by_hand

SIDES: tuple[Side, ...] = ("low", "high", "middle")
#: Rules for sides, and the points up to which a search may end on each.
RULES = {"others where it gains little": 10**9, "ahead after some evaluations": 0}
#: Log likelihood that is lost, and evaluations.
Found = tuple[float, int]


def screened(name: str, n: int, seed: int, kernel: str, tried: list[int]) -> list[Found]:
    """What is found with each number of evaluations that a start gets."""
    calm()
    torch.set_num_threads(1)
    X, y = map(torch.from_numpy, GENERATED[name](n, seed))

    def trained(start: int | None) -> Found:
        _, result = training.train(X, y, kernel, start=start)
        return n * result.log_likelihood, result.evaluations

    best = max(trained(start)[0] for start in range(4))
    found = list[Found]()
    for most in tried:
        with patch.object(training, "tried_for", lambda n, most=most: most):
            value, evaluations = trained(None)
        found.append((best - value, evaluations))
    return found


def on_side(gp: ExactPosterior, side: Side) -> WarpedPosterior | None:
    """The warp that is found on one side."""
    return warped.retrain_warped(gp, gp.X_train, gp.y_train, side=side)


def sided(name: str, most: int) -> list[Found] | None:
    """What is found on one side, and by each of the rules; None where no GP can be warped."""
    calm()
    torch.set_num_threads(1)
    frame, y = table_sets.load(name)
    rows = np.random.default_rng(0).permutation(len(y))[:most]
    X = np.asarray(by_hand().fit_transform(frame.iloc[rows]), dtype=float)
    gp, _ = training.train(torch.from_numpy(X), torch.from_numpy(y[rows]))
    assert isinstance(gp, ExactPosterior)
    descents = list[int]()

    def counted(*args: object, **options: object) -> object:
        found = minimise(*args, **options)
        descents.append(found.evaluations)
        return found

    def measured(search: Callable[[], WarpedPosterior | None]) -> Found:
        descents.clear()
        found = search()
        return -np.inf if found is None else len(rows) * found.log_likelihood(), sum(descents)

    minimise = warped.minimise
    with patch.object(warped, "minimise", counted):
        ends = [measured(lambda side=side: on_side(gp, side)) for side in SIDES]
        found = [ends[SIDES.index(warped.side_of(gp.y_train))]]
        for most_from_sides in RULES.values():
            with patch.object(warped, "MOST_FROM_SIDES", most_from_sides):
                found.append(measured(lambda: warped.best_warped(gp)))
    best = max(value for value, _ in ends)
    return [(best - value, n) for value, n in found] if np.isfinite(best) else None


def print_row(what: tuple[object, ...], found: list[Found]) -> None:
    """One row: number of fits, of losses, the greatest loss, and mean evaluations."""
    lost, evaluations = map(np.array, zip(*found, strict=True))
    row(*what, len(lost), int((lost > 2.0).sum()), f"{lost.max():.1f}", f"{evaluations.mean():.0f}")


def main(
    points: str = "400,1000,1500",
    tried: str = "8,20",
    kernels: str = "rbf,matern32",
    data: str = "simulated,robot arm,smooth 3d,smooth 8d,rough,heteroscedastic",
    seeds: int = 2,
    tables: str = "all",
    rows: int = 400,
    workers: int = 2,
) -> None:
    """Print the tables."""
    names, several = data.split(","), numbers(tried)
    for name in names:
        check_choice(name, "data", GENERATED)
    run = Parallel(n_jobs=workers)
    header("points", "evaluations of a start", "fits", "lose more than 2", "at most", "evaluations")
    for n in numbers(points):
        found = run(
            delayed(screened)(name, n, seed, kernel, several)
            for name in names
            for seed in range(seeds)
            for kernel in kernels.split(",")
        )
        for k, most in enumerate(several):
            print_row((n, most), [one[k] for one in found])
    sets = list(table_sets.SETS) if tables == "all" else [one for one in tables.split(",") if one]
    if not sets:
        return
    found = [one for one in run(delayed(sided)(name, rows) for name in sets) if one is not None]
    print()
    header("side", "fits", "lose more than 2", "at most", "evaluations")
    for k, side in enumerate(("that of the skewness", *RULES)):
        print_row((side,), [one[k] for one in found])
