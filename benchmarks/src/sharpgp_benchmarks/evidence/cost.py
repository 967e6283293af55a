"""What calibration costs beside a BoTorch fit of the same data, in one run.

Run with ``taskset -c 0,1 env OMP_NUM_THREADS=2``.  For each data set and seed, ``--rows`` rows are
drawn; BoTorch's ``SingleTaskGP`` is fitted to them by ``fit_gpytorch_mll``, and
``SharpGPRegressor`` with ``--base`` and the same rows by each calibration, training included, all
on the CPU.  One fit of each on other rows, whose time does not count, comes first.  The table has
medians over seeds of the seconds and of the ratios to BoTorch's on the same rows; the last lines
sum the ratios up over all data sets and seeds.
"""

import statistics

import numpy as np
import torch

from sharpgp import SharpGPRegressor
from sharpgp_benchmarks.evidence.common import seconds, sets
from sharpgp_benchmarks.evidence.run import header, row
from sharpgp_benchmarks.peers.botorch_gp import BoTorchRegressor

METHODS = ("kuleshov18", "exact", "loo", "cv")


def fit(method: str | None, X: np.ndarray, y: np.ndarray, base: str, seed: int = 0) -> float:
    """Seconds of a fit; of BoTorch's without a method."""
    if method is None:
        return seconds(lambda: BoTorchRegressor().fit(X, y))
    model = SharpGPRegressor(base=base, calibration=method, device="cpu", random_state=seed)
    return seconds(lambda: model.fit(X, y))


def warm_up(base: str) -> None:
    """Fit everything once, so that no first fit pays for imports and thread pools."""
    rng = np.random.default_rng(0)
    X = rng.uniform(size=(60, 2))
    for method in (None, *METHODS):
        fit(method, X, X[:, 0] + 0.1 * rng.normal(size=60), base)


def main(
    datasets: str = "boston,concrete,wine,kin8nm,facebook1",
    rows: int = 400,
    seeds: int = 3,
    base: str = "rbf",
    data_home: str | None = None,
) -> None:
    """Print the table, a line as soon as it is known."""
    loaded = sets(datasets, data_home)
    print(f"{rows} rows, {torch.get_num_threads()} threads; ratio to BoTorch in brackets\n")
    header("set", "BoTorch", *METHODS)
    ratios: dict[str, list[float]] = {method: [] for method in METHODS}
    warm_up(base)
    for data in loaded:
        reference: list[float] = []
        own: dict[str, list[float]] = {method: [] for method in METHODS}
        for seed in range(seeds):
            chosen = np.random.default_rng(seed).permutation(len(data.y))[:rows]
            X, y = data.X[chosen], data.y[chosen]
            reference.append(fit(None, X, y, base))
            for method in METHODS:
                own[method].append(fit(method, X, y, base, seed))
        cells = []
        for method in METHODS:
            pairs = [a / b for a, b in zip(own[method], reference, strict=True)]
            ratios[method].extend(pairs)
            cells.append(f"{statistics.median(own[method]):.2f} s ({statistics.median(pairs):.1f})")
        row(data.name, f"{statistics.median(reference):.2f} s", *cells)
    for what, summary in {"median": statistics.median, "largest": max}.items():
        row(f"{what} ratio", "", *(f"{summary(found):.1f}" for found in ratios.values()))
