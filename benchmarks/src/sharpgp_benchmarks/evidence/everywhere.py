"""Coverage where it may be worst, of this library's methods and of its peers.

90 % intervals on the splits of ``sharpgp bench peers``, judged on the test rows of all seeds of a
set together: on average, in quarters of the predicted width from narrow to wide, along each feature
(the mean over features of the largest distance from 90 % among five bins), and in the worst slab
that holds a tenth of the rows, found on one half of them and judged on the other. Beside them the
interval score, relative to the first method's. ``chance`` is what a predictor that covers each row
with probability 90 % would show on as many rows.
"""

from collections.abc import Sequence

import numpy as np
from joblib import Parallel, delayed

from sharpgp import metrics
from sharpgp_benchmarks.datasets import Dataset
from sharpgp_benchmarks.evidence.common import calm, header, row, sets
from sharpgp_benchmarks.peers.methods import METHODS
from sharpgp_benchmarks.peers.protocol import COVERAGES, make_case

COVERAGE = COVERAGES[0]


def judge(X: np.ndarray, y: np.ndarray, lower: np.ndarray, upper: np.ndarray) -> list[float]:
    """Coverage on average, by quarter of the width, along features, and in the worst slab."""
    quarters = metrics.coverage_by_width(y, lower, upper, n_bins=4).coverage
    along = [
        np.abs(metrics.coverage_along(column, y, lower, upper).coverage - COVERAGE).max()
        for column in X.T
    ]
    slab = metrics.worst_slab_coverage(X, y, lower, upper, n_directions=300, random_state=0)
    shown = [*quarters, *[float("nan")] * (4 - len(quarters))]
    return [
        float(np.mean((lower <= y) & (y <= upper))),
        *shown,
        float(np.mean(along)),
        slab.coverage,
    ]


def one(data: Dataset, seed: int, most: int, methods: Sequence[str]) -> dict[str, np.ndarray]:
    """Features, targets and interval ends [T, d + 3] of each method on the split of one seed."""
    case = make_case(data, seed, most, "cpu")
    p, found = case.parts, {}
    with calm():
        for name in methods:
            bands = METHODS[name](case).bands
            ends = bands.get("default", bands.get("symmetric"))
            assert ends is not None
            found[name] = np.column_stack([p.X_test, p.y_test, ends[:, :, 0]])
    rng = np.random.default_rng(seed)
    size = rng.permutation(len(p.y_test)) / len(p.y_test) + 1.0
    lower = np.where(rng.random(len(size)) < COVERAGE, p.y_test - size / 2, p.y_test + 1.0)
    found["chance"] = np.column_stack([p.X_test, p.y_test, lower, lower + size])
    return found


def main(
    datasets: str = "boston,concrete,mpg,wine",
    methods: str = "exact,rk,mapie-std-gp,mapie-cqr-gb,mapie-split-gb,crepes-norm",
    most: int = 400,
    seeds: int = 5,
    workers: int = 1,
    data_home: str | None = None,
) -> None:
    """Print a line for each set and method."""
    quarters = ("narrow", "second", "third", "wide")
    header("set", "method", "covers", *quarters, "along features", "worst slab", "score")
    chosen = sets(datasets, data_home)
    tasks = [(data, seed, most, methods.split(",")) for data in chosen for seed in range(seeds)]
    judged = Parallel(n_jobs=workers)(delayed(one)(*task) for task in tasks)
    for i, data in enumerate(chosen):
        runs = judged[i * seeds : (i + 1) * seeds]
        first = None
        for name in runs[0]:
            table = np.concatenate([run[name] for run in runs])
            X, (y, lower, upper) = table[:, :-3], table[:, -3:].T
            score = metrics.interval_score(y, lower, upper, COVERAGE)
            first = score if first is None else first
            figures = judge(X, y, lower, upper)
            relative = "" if name == "chance" else f"{score / first:.3f}"
            row(data.name, name, *(f"{value:.3f}" for value in figures), relative)
