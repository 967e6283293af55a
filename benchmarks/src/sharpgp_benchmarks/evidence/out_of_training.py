"""Points that training left out, predicted from all others, beside cross-validation of everything.

The default and the same with ``folds`` as a number, on the splits of ``sharpgp bench peers``.  With
``folds="auto"`` exact GPs are trained without two parts at a time and conditioned on all other
points; with a number they are fitted without each part, of training and of the data.  Ratios of the
first to the second on the same rows, in geometric means over the seeds: interval scores at 90 and
95 %, CRPS and processor seconds; and coverage of both.
"""

import time

import numpy as np
from joblib import Parallel, delayed

from sharpgp import CrossValidated, SharpGPRegressor, metrics
from sharpgp_benchmarks.datasets import Dataset
from sharpgp_benchmarks.evidence.common import calm, header, row, sets
from sharpgp_benchmarks.peers.protocol import make_case

COVERAGES = (0.9, 0.95)
# Rows up to which there are ten folds; beyond, five.
MOST_TEN_FOLDS = 500
SETS = (
    "mpg,boston,concrete,yacht,wine,kin8nm,facebook1,baseball,diabetes,smooth,noise,skewed,"
    "multiplicative,hetero-1d,hetero-5d,friedman1,friedman2,bikes,laser,mortgage,insurance,airfoil"
)


def judge(data: Dataset, seed: int, most: int, base: str) -> np.ndarray:
    """By way [2]: scores at both coverages, CRPS, processor seconds, coverages."""
    case = make_case(data, seed, most, "cpu")
    X, y = case.together
    found = []
    for folds in ("auto", 10 if len(y) <= MOST_TEN_FOLDS else 5):
        with calm():
            start = time.process_time()
            method = CrossValidated(folds=folds, random_state=seed)
            model = SharpGPRegressor(base=base, calibration=method, random_state=seed).fit(X, y)
            seconds = time.process_time() - start
            ends = model.predict_interval(case.parts.X_test, COVERAGES)
            crps = model.predict_dist(case.parts.X_test).crps(case.parts.y_test).mean()
        target = case.parts.y_test
        both = [(*ends[:, :, k].T, c) for k, c in enumerate(COVERAGES)]
        scores = [metrics.interval_score(target, low, high, c) for low, high, c in both]
        inside = [metrics.interval_coverage(target, low, high) for low, high, _ in both]
        found.append([*scores, float(crps), seconds, *inside])
    return np.array(found)


def main(
    datasets: str = SETS,
    most: int = 300,
    seeds: int = 4,
    base: str = "auto",
    workers: int = 1,
    data_home: str | None = None,
) -> None:
    """Print a line for each set, and one for all."""
    header("set", "score 90 %", "95 %", "CRPS", "time", "covers 90 %, before", "95 %, before")
    chosen = sets(datasets, data_home)
    tasks = [(data, seed, most, base) for seed in range(seeds) for data in chosen]
    judged = Parallel(n_jobs=workers)(delayed(judge)(*task) for task in tasks)
    runs = np.array(judged).reshape(seeds, len(chosen), 2, 6)
    logs = np.log(runs[:, :, 0, :4] / runs[:, :, 1, :4]).mean(0)
    covered = runs[:, :, :, 4:].mean(0)

    def line(name: str, ratios: np.ndarray, inside: np.ndarray) -> None:
        pairs = (f"{now:.1%}, {before:.1%}" for now, before in inside.T)
        row(name, *(f"{value:.3f}" for value in np.exp(ratios)), *pairs)

    for i, data in enumerate(chosen):
        line(data.name, logs[i], covered[i])
    line("all", logs.mean(0), covered.mean(0))
    errors = logs.std(0, ddof=1) / len(chosen) ** 0.5 if len(chosen) > 1 else np.zeros(4)
    row("standard error", *(f"{value:.3f}" for value in errors))
