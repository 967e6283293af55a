"""Open ends of the paper: its ideal objective, another interpolation, a spread without a GP.

Every variant of the paper's mode is calibrated on the same splits as the mode itself.  The pinball
loss is that of levels which lie between the nine that the rows on interpolation train.  The spread
without a GP is a weighted sum of a constant, the base GP's variance and the squared distance to the
nearest training point; it grows with its weights by construction.
"""

from collections.abc import Callable

import numpy as np
import torch
from torch import Tensor

from sharpgp import Kuleshov18, Sharp
from sharpgp.calibration.calibrated import Calibrated
from sharpgp.gp import train
from sharpgp.gp.kernel_posterior import KernelPosterior
from sharpgp.gp.weighted import WeightedSpread
from sharpgp.metrics import pinball_loss
from sharpgp_benchmarks.evidence.common import Part, header, judged, row, sets, train_cal_test

ENDS = (0.025, 0.975)
BETWEEN = (0.07, 0.17, 0.27, 0.37, 0.63, 0.73, 0.83, 0.93)
#: What is calibrated, by name: from the base GP and the calibration part to a predictor.
VARIANTS: dict[str, Callable[[KernelPosterior, Part], Calibrated]] = {
    "RK": lambda gp, cal: Kuleshov18().fit(gp, *cal),
    "paper": lambda gp, cal: Sharp().fit(gp, *cal),
    "paper, mean length": lambda gp, cal: Sharp(objective="length").fit(gp, *cal),
    "nine levels, linear between": lambda gp, cal: Sharp(levels=9).fit(gp, *cal),
    "nine levels, cubic between": lambda gp, cal: Sharp(levels=9, interpolation="cubic").fit(
        gp, *cal
    ),
    "RK, spread without a GP": lambda gp, cal: Kuleshov18().fit(without_a_gp(gp), *cal),
    "paper, spread without a GP": lambda gp, cal: Sharp().fit(without_a_gp(gp), *cal),
}


def without_a_gp(gp: KernelPosterior) -> WeightedSpread:
    """A constant, the GP's variance as trained, and the squared distance to the nearest row."""
    rows = gp.X_train
    scale = rows.std(0).clamp_min(1e-12)

    def parts(X: Tensor) -> Tensor:
        variance = gp.sigma(gp.theta_R.unsqueeze(0), X)[0].square()
        distance = torch.cdist(X / scale, rows / scale).amin(1)
        return torch.stack([torch.ones_like(variance), variance, distance.square() + 1e-6], dim=1)

    return WeightedSpread(gp.mean, parts, torch.cat([rows, rows + 0.1 * scale]))


def main(datasets: str = "boston,yacht,mpg", seeds: int = 5, data_home: str | None = None) -> None:
    """Print the table; widths and scores in standard deviations of the target."""
    header("set", "what is calibrated", "coverage", "width", "interval score", "pinball loss")
    for data in sets(datasets, data_home):
        found: dict[str, list[tuple[float, ...]]] = {name: [] for name in VARIANTS}
        for seed in range(seeds):
            fit, cal, (X, y) = train_cal_test(data, seed)
            gp, _ = train(*fit, random_state=seed)
            scale = float(data.y.std())
            for name, calibrate in VARIANTS.items():
                calibrated = calibrate(gp, cal)
                coverage, width, score = judged(calibrated.predict_quantiles(X, ENDS), y)
                loss = pinball_loss(y, calibrated.predict_quantiles(X, BETWEEN), BETWEEN)
                found[name].append((coverage, width / scale, score / scale, loss / scale))
        for name, rows in found.items():
            row(data.name, name, *np.mean(rows, axis=0).tolist())
