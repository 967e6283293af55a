"""Sharpness and calibration of the baselines on UCI data, over random 60/20/20 splits.

    python benchmarks/baselines_check.py --data-home FOLDER [--repeats 5]

One GP is trained per split and recalibrated by every method.  Widths are in standard deviations
of the target, always with the coverage on test data beside them: of the centred 95 % interval
(two quantiles, as in the literature) and of the symmetric band.  The ECE floor is what a
perfectly calibrated predictor would show with as many calibration and test points.
``pretrained`` is ``kuleshov22`` after 2,000 epochs on the first split of another data set
(yacht); ``--methods`` also takes every other registered name, such as ``fully_bayesian``.
"""

import argparse
import os
import sys
import time
import warnings
from pathlib import Path

import numpy as np
import torch

from sharpgp.calibration import Kuleshov22
from sharpgp.calibration.recalibrator import make_recalibrator
from sharpgp.exceptions import CalibrationWarning
from sharpgp.gp.training import train
from sharpgp.metrics import (
    ECE_LEVELS,
    ece,
    ece_floor,
    interval_coverage,
    interval_width,
    pinball_loss,
)

DATA = ("boston", "concrete", "mpg")
METHODS = ("vanilla", "kuleshov18", "vovk20", "marx22", "kuleshov22", "pretrained")
PRETRAINING = "yacht"
COLUMNS = ("width", "cover", "band", "cover", "ECE", "floor", "pinball", "seconds")


def main(argv=None):
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--data-home", default=os.environ.get("SHARPGP_DATA"))
    parser.add_argument("--datasets", default=",".join(DATA))
    parser.add_argument("--methods", default=",".join(METHODS))
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--first-seed", type=int, default=0)
    options = parser.parse_args(argv)
    if options.data_home is None:
        print("skipped: name the folder with boston.csv, ... by --data-home or SHARPGP_DATA")
        return 0
    torch.set_num_threads(1)
    home, methods = Path(options.data_home), options.methods.split(",")
    seeds = range(options.first_seed, options.first_seed + options.repeats)
    print(f"{options.repeats} splits, seeds {seeds[0]} to {seeds[-1]}, mean over the splits")
    print(f"{'data':<10}{'method':<16}" + "".join(f"{name:>9}" for name in COLUMNS))
    start = None
    if "pretrained" in methods:
        posterior, cal, _ = split_and_train(home, PRETRAINING, 0)
        start = Kuleshov22(random_state=0).pretrained_on(posterior, *cal).start
    for name in options.datasets.split(","):
        rows = {method: [] for method in methods}
        for seed in seeds:
            posterior, cal, test = split_and_train(home, name, seed)
            for method in methods:
                rows[method].append(
                    measure(recalibrator(method, seed, start), posterior, cal, test)
                )
        for method in methods:
            values = np.mean(rows[method], axis=0)
            shown = "".join(
                f"{v:9.5f}" if k in (4, 5) else f"{v:9.3f}" for k, v in enumerate(values)
            )
            print(f"{name:<10}{method:<16}{shown}", flush=True)
    return 0


def recalibrator(method, seed, start):
    if method == "pretrained":
        return Kuleshov22(random_state=seed, start=start)
    return make_recalibrator(method, random_state=seed)


def split_and_train(home, name, seed):
    """A GP trained on 60 % of the rows, calibration data and test data."""
    path = home / f"{name}.csv"
    if not path.exists():
        sys.exit(f"expected {path.name} in --data-home, found no such file in {home}")
    table = np.loadtxt(path, delimiter=",", skiprows=1)
    rows = torch.from_numpy(table[np.random.default_rng(seed).permutation(len(table))])
    X, y = rows[:, :-1], rows[:, -1] / rows[:, -1].std()
    a, b = int(0.6 * len(y)), int(0.8 * len(y))
    posterior, _ = train(X[:a], y[:a])
    return posterior, (X[a:b], y[a:b]), (X[b:], y[b:])


def measure(method, posterior, cal, test):
    """One row of the table; targets have unit standard deviation already."""
    X, y = test
    started = time.perf_counter()
    calibrated = method.fit(posterior, *cal)
    seconds = time.perf_counter() - started
    inner = ECE_LEVELS[1:-1]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", CalibrationWarning)
        centred = calibrated.predict_interval(X, 0.95, symmetric=False).numpy()
        band = calibrated.predict_interval(X, 0.95, symmetric=True).numpy()
        quantiles = calibrated.predict_quantiles(X, inner).numpy()
    infinite = np.full((len(y), 1), np.inf)  # the levels 0 and 1 count, and are always met
    table = np.hstack([-infinite, quantiles, infinite])
    y = y.numpy()
    return (
        interval_width(*centred.T),
        interval_coverage(y, *centred.T),
        interval_width(*band.T),
        interval_coverage(y, *band.T),
        ece(y, table),
        ece_floor(calibrated.n_cal, len(y)),
        pinball_loss(y, quantiles, inner),
        seconds,
    )


if __name__ == "__main__":
    sys.exit(main())
