"""Exact, sparse or neighbours, CPU or GPU: time and quality by the number of training rows.

The evidence behind ``approximation="auto"`` and ``device="auto"``. Every fit gets the same training
rows, a quarter as many calibration rows, and 2,000 test rows; by default RK's calibration, of one
GP. With ``--calibration exact`` models are learned: those that ``--base`` names, or the default
ones. Data are the name of a set, or of a generated problem. Times are those of the fit, and of 95 %
intervals for 10,000 rows: processor seconds, as other work on a shared machine does not count into
them, or wall-clock seconds where a GPU is compared.
"""

import numpy as np
import torch

from sharpgp import Neighbours, SharpGPRegressor, Sparse
from sharpgp.exceptions import InvalidInputError
from sharpgp.policy import Approximation
from sharpgp_benchmarks.evidence.common import GENERATED, Clock, numbers, sets
from sharpgp_benchmarks.evidence.run import header, row

COLUMNS = ("fit, s", "predict, s", "RMSE", "CRPS", "coverage", "width", "score")
N_TEST = 2000


def draw(name: str, n: int, seed: int, data_home: str | None) -> list[np.ndarray]:
    """Training, calibration and test rows."""
    n_cal = n // 4
    total = n + n_cal + N_TEST
    if name in GENERATED:
        X, y = GENERATED[name](total, seed)
    else:
        (data,) = sets(name, data_home)
        if total > len(data.y):
            raise InvalidInputError(
                f"rows: expected {total} rows for {n} training rows, found {len(data.y)} in {name}"
            )
        order = np.random.default_rng(seed).permutation(len(data.y))[:total]
        X, y = data.X[order], data.y[order]
    ends = [n, n + n_cal]
    return [
        part for pair in zip(np.split(X, ends), np.split(y, ends), strict=True) for part in pair
    ]


def measure(
    data: list[np.ndarray],
    approximation: Approximation,
    device: str,
    seed: int,
    wall: bool,
    settings: dict[str, str],
) -> list[float]:
    """Seconds, errors, and figures of the 95 % interval."""
    X, y, X_cal, y_cal, X_test, y_test = data
    model = SharpGPRegressor(
        approximation=approximation, device=device, random_state=seed, **settings
    )
    with Clock(device) as fitting:
        model.fit(X, y, X_cal, y_cal)
    with Clock(device) as predicting:
        model.predict_interval(np.tile(X_test, (5, 1)))
    report = model.calibration_report(X_test, y_test)
    names = ("rmse", "crps", "coverage_95", "width_95", "interval_score_95")
    quality = [report[name] for name in names]
    return [clock.wall if wall else clock.cpu for clock in (fitting, predicting)] + quality


def main(
    data: str = "simulated",
    rows: str = "500,1000,2000,3000",
    devices: str = "cpu",
    kinds: str = "exact,sparse",
    inducing: int = 300,
    neighbours: int = 64,
    repeats: int = 1,
    calibration: str = "kuleshov18",
    base: str = "auto",
    data_home: str | None = None,
) -> None:
    """Print the table."""
    print(
        f"{data}, {torch.get_num_threads()} thread(s), {inducing} inducing inputs, "
        f"{neighbours} neighbours, {repeats} repetition(s), calibration {calibration}, "
        f"base {base}\n"
    )
    wall = "cuda" in devices
    given: dict[str, Approximation] = {
        "auto": "auto",
        "exact": "exact",
        "sparse": Sparse(inducing),
        "neighbours": Neighbours(neighbours),
    }
    settings = {"calibration": calibration, "base": base}
    header("training rows", "device", "GP", *COLUMNS)
    for n in numbers(rows):
        for device in devices.split(","):
            for kind in kinds.split(","):
                runs = [
                    measure(
                        draw(data, n, seed, data_home), given[kind], device, seed, wall, settings
                    )
                    for seed in range(repeats)
                ]
                fit, predict, rmse, crps, coverage, width, score = np.mean(runs, axis=0)
                times = [f"{fit:.2f}", f"{predict:.2f}"]
                cells = [f"{rmse:.4f}", f"{crps:.4f}", f"{coverage:.1%}", f"{width:.4f}"]
                row(f"{n:,}", device, kind, *times, *cells, f"{score:.4f}")
