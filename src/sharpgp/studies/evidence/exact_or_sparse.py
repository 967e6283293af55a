"""Exact or sparse, CPU or GPU: time and quality of both by the number of training rows.

The evidence behind ``approximation="auto"`` and ``device="auto"``. Every fit gets the same training
rows, a quarter as many calibration rows, RK's calibration, and 2,000 test rows. Times are those of
the fit, and of 95 % intervals for 10,000 rows: processor seconds, as other work on a shared machine
does not count into them, or wall-clock seconds where a GPU is compared.
"""

import numpy as np
import torch

from sharpgp import SharpGPRegressor, Sparse
from sharpgp.exceptions import InvalidInputError
from sharpgp.studies.evidence.common import Clock, header, numbers, row, sets, simulated

COLUMNS = ("fit, s", "predict, s", "RMSE", "coverage", "width", "score")
N_TEST = 2000


def draw(name: str, n: int, seed: int, data_home: str | None) -> list[np.ndarray]:
    """Training, calibration and test rows."""
    n_cal = n // 4
    total = n + n_cal + N_TEST
    if name == "simulated":
        X, y = simulated(total, seed)
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
    data: list[np.ndarray], approximation: str | Sparse, device: str, seed: int, wall: bool
) -> list[float]:
    """Seconds, and figures of the 95 % interval."""
    X, y, X_cal, y_cal, X_test, y_test = data
    model = SharpGPRegressor(
        calibration="kuleshov18",
        approximation=approximation,
        device=device,
        random_state=seed,
    )
    with Clock(device) as fitting:
        model.fit(X, y, X_cal, y_cal)
    with Clock(device) as predicting:
        model.predict_interval(np.tile(X_test, (5, 1)))
    report = model.calibration_report(X_test, y_test)
    quality = [report[k] for k in ("rmse", "coverage_95", "width_95", "interval_score_95")]
    return [clock.wall if wall else clock.cpu for clock in (fitting, predicting)] + quality


def main(
    data: str = "simulated",
    rows: str = "500,1000,2000,3000",
    devices: str = "cpu",
    kinds: str = "exact,sparse",
    inducing: int = 300,
    repeats: int = 1,
    data_home: str | None = None,
) -> None:
    """Print the table."""
    print(
        f"{data}, {torch.get_num_threads()} thread(s), {inducing} inducing inputs, "
        f"{repeats} repetition(s)\n"
    )
    wall = "cuda" in devices
    header("training rows", "device", "GP", *COLUMNS)
    for n in numbers(rows):
        for device in devices.split(","):
            for kind in kinds.split(","):
                given: str | Sparse = "exact" if kind == "exact" else Sparse(inducing)
                runs = [
                    measure(draw(data, n, seed, data_home), given, device, seed, wall)
                    for seed in range(repeats)
                ]
                fit, predict, rmse, coverage, width, score = np.mean(runs, axis=0)
                cells = [f"{fit:.2f}", f"{predict:.2f}", f"{rmse:.4f}", f"{coverage:.1%}"]
                row(f"{n:,}", device, kind, *cells, f"{width:.4f}", f"{score:.4f}")
