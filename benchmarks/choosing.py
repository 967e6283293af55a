"""What each calibration costs and gains, by the number of rows.

Rows are drawn from a function of five of eight features with noise that grows along one of them,
so that a calibration can gain by learning where the noise is large. Each method gets the same rows
and makes its own holdout. Costs are CPU seconds of one thread: fitting (training and calibration),
and predicting the 95 % intervals of 1,000 points. Means over the repeats.

    OMP_NUM_THREADS=1 python benchmarks/choosing.py --rows 200 400 800 --repeats 5
"""

import argparse
import time
import warnings

import numpy as np
import torch

from sharpgp import SharpGPRegressor
from sharpgp.exceptions import CalibrationWarning

METHODS = ("vanilla", "kuleshov18", "marx22", "kuleshov22", "paper", "exact", "cv")
COLUMNS = ("fit, s", "predict, s", "coverage", "width", "score", "CRPS")


def draw(n, rng):
    X = rng.uniform(0, 1, (n, 8))
    mean = 10 * np.sin(np.pi * X[:, 0] * X[:, 1]) + 20 * (X[:, 2] - 0.5) ** 2 + 10 * X[:, 3]
    y = mean + 5 * X[:, 4] + 3 * X[:, 5] ** 2 * rng.normal(size=n)
    return X, y / 5.0


def measure(method, n, seed):
    rng = np.random.default_rng(seed)
    (X, y), (X_test, y_test) = draw(n, rng), draw(2000, rng)
    start = time.process_time()
    model = SharpGPRegressor(calibration=method, random_state=seed).fit(X, y)
    fitted = time.process_time()
    model.predict_interval(X_test[:1000])
    predicted = time.process_time()
    report = model.calibration_report(X_test, y_test)
    quality = [report[k] for k in ("coverage_95", "width_95", "interval_score_95", "crps")]
    return [fitted - start, predicted - fitted, *quality]


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rows", type=int, nargs="+", default=[200, 400, 800])
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--methods", nargs="+", default=METHODS)
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    warnings.simplefilter("ignore", CalibrationWarning)
    print("| rows | `calibration=` | " + " | ".join(COLUMNS) + " |")
    print("| --: | --- |" + " --: |" * len(COLUMNS))
    for n in arguments.rows:
        for method in arguments.methods:
            runs = [measure(method, n, seed) for seed in range(arguments.repeats)]
            fit, predict, coverage, width, score, crps = np.mean(runs, axis=0)
            cells = [f"{fit:.2f}", f"{predict:.3f}", f"{coverage:.1%}", f"{width:.2f}"]
            cells += [f"{score:.2f}", f"{crps:.3f}"]
            print(f"| {n} | `{method}` | {' | '.join(cells)} |", flush=True)


if __name__ == "__main__":
    main()
