"""Sharpness and calibration of the baselines on UCI data, over random 60/20/20 splits.

One GP is trained per split and recalibrated by every method.  Widths are in standard deviations
of the target, always with the coverage on test data beside them: of the centred 95 % interval
(two quantiles, as in the literature) and of the symmetric band.  The ECE floor is what a
perfectly calibrated predictor would show with as many calibration and test points.
``pretrained`` is ``kuleshov22`` after 2,000 epochs on the first split of another data set
(yacht); ``--methods`` also takes every other registered name, such as ``fully_bayesian``.
"""

from typing import Any

import numpy as np

from sharpgp.calibration import Kuleshov22, Recalibrator
from sharpgp.calibration.recalibrator import make_recalibrator
from sharpgp.gp.posterior import Posterior
from sharpgp.gp.training import train
from sharpgp.metrics import ECE_LEVELS, ece, ece_floor, pinball_loss
from sharpgp_benchmarks.datasets import Dataset
from sharpgp_benchmarks.evidence.common import Clock, Part, judged, sets, train_cal_test

PRETRAINING = "yacht"
COLUMNS = ("width", "cover", "band", "cover", "ECE", "floor", "pinball", "seconds")


def main(
    datasets: str = "boston,concrete,mpg",
    methods: str = "vanilla,kuleshov18,vovk20,marx22,kuleshov22,pretrained",
    repeats: int = 5,
    first_seed: int = 0,
    data_home: str | None = None,
) -> None:
    """Print the table."""
    chosen = methods.split(",")
    first, *loaded = sets(f"{PRETRAINING},{datasets}", data_home)
    seeds = range(first_seed, first_seed + repeats)
    print(f"{repeats} splits, seeds {seeds[0]} to {seeds[-1]}, mean over the splits")
    print(f"{'data':<10}{'method':<16}" + "".join(f"{name:>9}" for name in COLUMNS))
    start = None
    if "pretrained" in chosen:
        posterior, cal, _ = split_and_train(first, 0)
        start = Kuleshov22(random_state=0).pretrained_on(posterior, *cal).start
    for data in loaded:
        rows: dict[str, list[tuple[float, ...]]] = {method: [] for method in chosen}
        for seed in seeds:
            posterior, cal, test = split_and_train(data, seed)
            for method in chosen:
                rows[method].append(
                    measure(recalibrator(method, seed, start), posterior, cal, test)
                )
        for method in chosen:
            values = np.mean(rows[method], axis=0)
            shown = "".join(
                f"{v:9.5f}" if k in (4, 5) else f"{v:9.3f}" for k, v in enumerate(values)
            )
            print(f"{data.name:<10}{method:<16}{shown}", flush=True)


def recalibrator(method: str, seed: int, start: Any) -> Recalibrator:
    """A registered method, or the pretrained network."""
    if method == "pretrained":
        return Kuleshov22(random_state=seed, start=start)
    return make_recalibrator(method, random_state=seed)


def split_and_train(data: Dataset, seed: int) -> tuple[Posterior, Part, Part]:
    """A GP trained on 60 % of the rows, calibration data and test data."""
    unit = data.y.std(ddof=1)
    fit, cal, test = ((X, y / unit) for X, y in train_cal_test(data, seed))
    return train(*fit)[0], cal, test


def measure(method: Recalibrator, posterior: Posterior, cal: Part, test: Part) -> tuple[float, ...]:
    """One row of the table; targets have unit standard deviation already."""
    X, y = test
    with Clock() as clock:
        calibrated = method.fit(posterior, *cal)
    centred = judged(calibrated.predict_interval(X, 0.95, symmetric=False), y)
    band = judged(calibrated.predict_interval(X, 0.95, symmetric=True), y)
    inner = ECE_LEVELS[1:-1]
    quantiles = calibrated.predict_quantiles(X, inner).numpy()
    infinite = np.full((len(y), 1), np.inf)  # the levels 0 and 1 count, and are always met
    table = np.hstack([-infinite, quantiles, infinite])
    return (
        *(centred[1], centred[0], band[1], band[0]),
        ece(y.numpy(), table),
        ece_floor(calibrated.n_cal, len(y)),
        pinball_loss(y.numpy(), quantiles, inner),
        clock.wall,
    )
