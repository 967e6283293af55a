"""The default estimator beside one GP, and both beside RK, on the same rows.

For each set and seed: the default (``base="auto"``, which pools), ``cv`` with one squared
exponential GP, the pooled ``exact``, and RK (``kuleshov18``, whose better band in hindsight is the
reference). Other rows judge 95 % intervals, the CRPS and coverage. Ratios are geometric means over
seeds; the last line, over sets.
"""

from typing import Any

import numpy as np
from joblib import Parallel, delayed

from sharpgp import SharpGPRegressor, metrics
from sharpgp.studies.datasets import Dataset
from sharpgp.studies.evidence.common import calm, cut, header, row, sets

COVERAGES = (0.9, 0.95)
MODELS: dict[str, dict[str, Any]] = {
    "default": {},
    "cv, one GP": {"base": "rbf", "calibration": "cv"},
    "exact": {"calibration": "exact"},
    "RK": {"base": "rbf", "calibration": "kuleshov18"},
}


def measured(data: Dataset, rows: int, test_rows: int, seed: int, name: str) -> dict[str, float]:
    """Interval score at 95 %, CRPS and coverages of one model on one split."""
    n = min(rows, int(0.8 * len(data.y)))
    (X, y), (X_new, y_new) = cut(data, seed, [n, test_rows])
    truth = y_new.numpy()
    with calm():
        model = SharpGPRegressor(random_state=seed, **MODELS[name]).fit(X, y)
        found = {"crps": float(np.mean(model.predict_dist(X_new).crps(truth)))}
        for coverage in COVERAGES:
            ends = model.predict_interval(X_new, coverage).T
            found[f"{coverage:.0%}"] = metrics.interval_coverage(truth, *ends)
        kinds = (True, False) if name == "RK" else (None,)
        scores = [
            metrics.interval_score(
                truth, *model.predict_interval(X_new, 0.95, symmetric=kind).T, 0.95
            )
            for kind in kinds
        ]
    return found | {"score": min(scores)}


def main(
    datasets: str = "boston,yacht,mpg,concrete,wine",
    rows: int = 1000,
    test_rows: int = 1000,
    seeds: int = 3,
    jobs: int = 2,
    data_home: str | None = None,
) -> None:
    """Print the table."""
    chosen = sets(datasets, data_home)
    tasks = [(data, seed, name) for data in chosen for seed in range(seeds) for name in MODELS]
    answers = Parallel(n_jobs=jobs)(
        delayed(measured)(data, rows, test_rows, seed, name) for data, seed, name in tasks
    )
    by_task = {
        (data.name, seed, name): answer
        for (data, seed, name), answer in zip(tasks, answers, strict=True)
    }
    columns = ("default", "cv, one GP", "exact")
    header(
        "set",
        *(f"score, {name}" for name in columns),
        *(f"CRPS, {name}" for name in columns),
        *(f"{c:.0%} covers, {name}" for name in columns[::2] for c in COVERAGES),
    )
    lines = []
    for data in chosen:
        ratios = [
            np.exp(
                np.mean(
                    [
                        np.log(by_task[data.name, s, name][key] / by_task[data.name, s, "RK"][key])
                        for s in range(seeds)
                    ]
                )
            )
            for key in ("score", "crps")
            for name in columns
        ]
        shares = [
            np.mean([by_task[data.name, s, name][f"{c:.0%}"] for s in range(seeds)])
            for name in columns[::2]
            for c in COVERAGES
        ]
        lines.append([*ratios, *shares])
        row(data.name, *(float(value) for value in lines[-1]))
    table = np.array(lines)
    row("all", *np.exp(np.log(table[:, :6]).mean(0)).tolist(), *table[:, 6:].mean(0).tolist())
