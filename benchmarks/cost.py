"""What calibration costs beside a BoTorch fit of the same data, in one run.

Run with ``taskset -c 0,1 env OMP_NUM_THREADS=2 python benchmarks/cost.py --data-home FOLDER``.  For
each data set and seed, ``--rows`` rows are drawn; BoTorch's ``SingleTaskGP`` is fitted to them by
``fit_gpytorch_mll``, and ``SharpGPRegressor`` with the same rows by each calibration, training
included, all on the CPU.  One fit of each on other rows, whose time does not count, comes first.
The table has medians over seeds of the seconds and of the ratios to BoTorch's on the same rows; the
last lines sum the ratios up over all data sets and seeds.
"""

import argparse
import os
import statistics
import time
import warnings
from collections.abc import Callable

import numpy as np
import torch
from botorch.fit import fit_gpytorch_mll
from botorch.models import SingleTaskGP
from botorch.models.transforms import Normalize, Standardize
from gpytorch.mlls import ExactMarginalLogLikelihood

from sharpgp import SharpGPRegressor, datasets

METHODS = ("kuleshov18", "exact", "loo", "cv")


def botorch_fit(X: np.ndarray, y: np.ndarray) -> None:
    """A SingleTaskGP as its documentation makes one."""
    inputs, target = torch.from_numpy(X), torch.from_numpy(y).unsqueeze(-1)
    model = SingleTaskGP(
        inputs, target, input_transform=Normalize(X.shape[1]), outcome_transform=Standardize(1)
    )
    fit_gpytorch_mll(ExactMarginalLogLikelihood(model.likelihood, model))


def seconds(work: Callable[[], object]) -> float:
    """Wall time of one call."""
    start = time.perf_counter()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        work()
    return time.perf_counter() - start


def warm_up() -> None:
    """Fit everything once, so that no first fit pays for imports and thread pools."""
    rng = np.random.default_rng(0)
    X = rng.uniform(size=(60, 2))
    y = X[:, 0] + 0.1 * rng.normal(size=60)
    seconds(lambda: botorch_fit(X, y))
    for method in METHODS:
        seconds(lambda m=method: SharpGPRegressor(calibration=m, device="cpu").fit(X, y))


def main() -> None:
    """Print the table, a line as soon as it is known."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--datasets", default="boston,concrete,wine,kin8nm,facebook1")
    parser.add_argument("--rows", type=int, default=400)
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--data-home", default=None, help="or environment variable SHARPGP_DATA")
    arguments = parser.parse_args()
    torch.set_num_threads(int(os.environ.get("OMP_NUM_THREADS", "2")))
    print(f"{arguments.rows} rows, {torch.get_num_threads()} threads; ratio to BoTorch in brackets")
    print(f"{'data set':10s}  {'BoTorch':>9s}" + "".join(f"  {m:>16s}" for m in METHODS))
    ratios: dict[str, list[float]] = {method: [] for method in METHODS}
    warm_up()
    for name in arguments.datasets.split(","):
        data = datasets.load(name, data_home=arguments.data_home)
        reference, own = [], {method: [] for method in METHODS}
        for seed in range(arguments.seeds):
            rows = np.random.default_rng(seed).permutation(len(data.y))[: arguments.rows]
            X, y = data.X[rows], data.y[rows]
            reference.append(seconds(lambda X=X, y=y: botorch_fit(X, y)))
            for method in METHODS:
                model = SharpGPRegressor(calibration=method, device="cpu", random_state=seed)
                own[method].append(seconds(lambda m=model, X=X, y=y: m.fit(X, y)))
        line = f"{name:10s}  {statistics.median(reference):7.2f} s"
        for method in METHODS:
            pairs = [a / b for a, b in zip(own[method], reference, strict=True)]
            ratios[method].extend(pairs)
            line += f"  {statistics.median(own[method]):7.2f} s ({statistics.median(pairs):4.1f})"
        print(line, flush=True)
    for what, summary in {"median": statistics.median, "largest": max}.items():
        print(f"{what} ratio: " + ", ".join(f"{m} {summary(ratios[m]):.1f}" for m in METHODS))


if __name__ == "__main__":
    main()
