"""What copies of rows do to a table of results: wine, with and without them.

Red wine has 240 rows that are equal to an earlier one in every feature and in the grade. Split by
row, a test row may be a copy of a training row, and a model that remembers it looks better than it
is. Three ways to use the same data, over the same seeds:

- ``kept``: split by row; copies in the training part count as measurements of their own
  (``groups=np.arange(n)`` says so);
- ``once``: split by row; copies in the training part are used once, as ``fit`` does by itself;
- ``without``: every row once, then split.

The first two are judged on all test rows, and on those that are not copies of a training row.
Means over the seeds; scores in units of the grade.
"""

import numpy as np
import torch
from joblib import Parallel, delayed

from sharpgp import SharpGPRegressor, metrics
from sharpgp.models.folds import equal_rows
from sharpgp_benchmarks.evidence.common import calm, header, sets
from sharpgp_benchmarks.evidence.common import row as print_row

WAYS = {"kept": ("all", "no copies"), "once": ("all", "no copies"), "without": ("all",)}
COLUMNS = ("test rows", "RMSE", "CRPS", "score at 95 %", "90 % covers", "95 % covers")


def judge(model: SharpGPRegressor, X: np.ndarray, y: np.ndarray) -> list[float]:
    """Figures on some test rows."""
    dist = model.predict_dist(X)
    at_90, at_95 = (model.predict_interval(X, c).T for c in (0.9, 0.95))
    return [
        len(y),
        metrics.rmse(y, model.predict(X)),
        float(np.mean(dist.crps(y))),
        metrics.interval_score(y, *at_95, 0.95),
        metrics.interval_coverage(y, *at_90),
        metrics.interval_coverage(y, *at_95),
    ]


@calm()
def measure(
    method: str, way: str, X: np.ndarray, y: np.ndarray, row: np.ndarray, n_train: int, seed: int
) -> list[list[float]]:
    """Figures on all test rows, and on those that no training row equals."""
    if way == "without":
        first = np.unique(row, return_index=True)[1]
        X, y, row = X[first], y[first], row[first]
    order = np.random.default_rng(seed).permutation(len(y))
    train, test = order[:n_train], order[n_train:]
    model = SharpGPRegressor(base="rbf", calibration=method, random_state=seed)
    groups = np.arange(n_train) if way == "kept" else None
    new = test[~np.isin(row[test], row[train])]
    model.fit(X[train], y[train], groups=groups)
    return [judge(model, X[rows], y[rows]) for rows in (test, new)]


def main(
    rows: int = 400,
    seeds: int = 5,
    methods: str = "cv,exact",
    workers: int = 2,
    data_home: str | None = None,
) -> None:
    """Print a line for each method, way and kind of test rows; ``--rows`` train and calibrate."""
    (wine,) = sets("wine", data_home)
    row = equal_rows(torch.tensor(np.c_[wine.X, wine.y])).numpy()
    print(f"wine: {len(row)} rows, {len(row) - len(np.unique(row))} of them copies\n")
    cases = [(method, way) for method in methods.split(",") for way in WAYS]
    found = Parallel(n_jobs=workers)(
        delayed(measure)(*case, wine.X, wine.y, row, rows, seed)
        for case in cases
        for seed in range(seeds)
    )
    header("method", "copies", "judged by", *COLUMNS)
    for i, (method, way) in enumerate(cases):
        means = np.mean(found[i * seeds : (i + 1) * seeds], axis=0)
        for kind, (n_test, *figures) in zip(WAYS[way], means, strict=False):
            print_row(method, way, kind, f"{n_test:.0f}", *(f"{value:.3f}" for value in figures))
