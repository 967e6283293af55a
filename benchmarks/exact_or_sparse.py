"""Exact or sparse, CPU or GPU: time and quality of both by the number of training rows.

The evidence behind ``inducing=None`` and ``device="auto"``. Every fit gets the same training rows,
a quarter as many calibration rows, RK's calibration, and 2,000 test rows. Times are those of the
fit, and of 95 % intervals for 10,000 rows: processor seconds, as other work on a shared machine
does not count into them, or wall-clock seconds where a GPU is compared.

    OMP_NUM_THREADS=1 python benchmarks/exact_or_sparse.py --data kin8nm --data-home DATA
    python benchmarks/exact_or_sparse.py --devices cpu cuda --rows 500 1000 2000 4000
"""

import argparse
import time
import warnings

import numpy as np
import torch

from sharpgp import SharpGPRegressor, datasets
from sharpgp.exceptions import CalibrationWarning
from sharpgp.gp import sizes

COLUMNS = ("fit, s", "predict, s", "RMSE", "coverage", "width", "score")
KINDS = ("exact", "sparse")
N_TEST = 2000


def simulated(n, seed):
    """Rows of a function that bends in six of eight features; its noise depends on a seventh."""
    rng = np.random.default_rng(seed)
    X = rng.uniform(-1, 1, (n, 8))
    f = np.sin(3 * X[:, 0]) * X[:, 1] + X[:, 2] ** 2 + np.cos(3 * X[:, 3] + X[:, 4] * X[:, 5])
    return X, f + (0.05 + 0.1 * (X[:, 6] > 0)) * rng.normal(size=n)


def draw(name, n, seed, data_home):
    """Training, calibration and test rows."""
    n_cal = n // 4
    total = n + n_cal + N_TEST
    if name == "simulated":
        X, y = simulated(total, seed)
    else:
        data = datasets.load(name, data_home=data_home)
        if total > len(data.y):
            raise SystemExit(f"{name} has {len(data.y)} rows, {total} are needed for --rows {n}")
        order = np.random.default_rng(seed).permutation(len(data.y))[:total]
        X, y = data.X[order], data.y[order]
    ends = [n, n + n_cal]
    return [
        part for pair in zip(np.split(X, ends), np.split(y, ends), strict=True) for part in pair
    ]


def clock(wall):
    if not wall:
        return time.process_time()
    if torch.cuda.is_available():
        torch.cuda.synchronize()
    return time.perf_counter()


def measure(data, inducing, device, seed, wall):
    X, y, X_cal, y_cal, X_test, y_test = data
    settings = {"calibration": "kuleshov18", "inducing": inducing, "device": device}
    start = clock(wall)
    model = SharpGPRegressor(**settings, random_state=seed).fit(X, y, X_cal, y_cal)
    fitted = clock(wall)
    model.predict_interval(np.tile(X_test, (5, 1)))
    predicted = clock(wall)
    report = model.calibration_report(X_test, y_test)
    quality = [report[k] for k in ("rmse", "coverage_95", "width_95", "interval_score_95")]
    return [fitted - start, predicted - fitted, *quality]


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--data", default="simulated")
    parser.add_argument("--data-home", default=None)
    parser.add_argument("--rows", type=int, nargs="+", default=[500, 1000, 2000, 3000])
    parser.add_argument("--devices", nargs="+", choices=("cpu", "cuda"), default=["cpu"])
    parser.add_argument("--kinds", nargs="+", choices=KINDS, default=KINDS)
    parser.add_argument("--inducing", type=int, default=300)
    parser.add_argument("--repeats", type=int, default=1)
    given = parser.parse_args()
    warnings.simplefilter("ignore", CalibrationWarning)
    sizes.MOST_EXACT = dict.fromkeys(sizes.MOST_EXACT, 10**9)  # exact, whatever the size
    print(
        f"{given.data}, {torch.get_num_threads()} thread(s), {given.inducing} inducing inputs, "
        f"{given.repeats} repetition(s)\n"
    )
    print("| training rows | device | GP | " + " | ".join(COLUMNS) + " |")
    print("| --: | --- | --- |" + " --: |" * len(COLUMNS))
    for n in given.rows:
        for device in given.devices:
            for kind in given.kinds:
                runs = [run(given, n, device, kind, seed) for seed in range(given.repeats)]
                fit, predict, rmse, coverage, width, score = np.mean(runs, axis=0)
                cells = [f"{fit:.2f}", f"{predict:.2f}", f"{rmse:.4f}", f"{coverage:.1%}"]
                cells += [f"{width:.4f}", f"{score:.4f}"]
                print(f"| {n:,} | {device} | {kind} | {' | '.join(cells)} |", flush=True)


def run(given, n, device, kind, seed):
    data = draw(given.data, n, seed, given.data_home)
    inducing = None if kind == "exact" else given.inducing
    return measure(data, inducing, device, seed, "cuda" in given.devices)


if __name__ == "__main__":
    main()
