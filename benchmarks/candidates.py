"""The candidates for mean and spread, each used throughout, beside the choice between them.

Run with ``python benchmarks/candidates.py --data-home FOLDER``.  For each data set and seed, a GP
is trained on ``--rows`` rows; every candidate of ``sharpgp.calibration.spread`` is calibrated on a
third as many, as ``exact`` does, and the rest of the rows (at most 1,000) judge its symmetric 95 %
band and its CRPS.  The table has ratios to plain ``sigma(theta_R, x)`` (RK) of means over seeds:
the interval score by data set, and geometric means over the sets of interval score and CRPS, with
the coverage.
"""

import argparse
import warnings
from dataclasses import replace

import numpy as np
import torch
from torch import Tensor

from sharpgp import datasets, metrics
from sharpgp.calibration import spread as parts
from sharpgp.calibration.ranks import whole_rank
from sharpgp.calibration.scale import ScaleModel
from sharpgp.calibration.spread import Spread, learn_spread
from sharpgp.gp import train

COVERAGE = 0.95


def candidates(posterior) -> dict[str, Spread]:
    """Every candidate that the library chooses from, and the choice."""
    found = {}
    makers = {
        "plain": lambda: parts._as_trained(posterior),
        "searched": lambda: parts._searched(posterior, 0),
        "warped": lambda: parts._warped(posterior),
    }
    for name, make in makers.items():
        candidate = make()
        scale = ScaleModel(posterior.X_train, candidate.residuals / candidate.sigma)
        for share in (0.0, 0.5, 1.0):
            choice = replace(candidate.choice, share=share)
            model = scale if share > 0 else None
            found[f"{name}, b = {share:g}"] = Spread(
                candidate.posterior, candidate.theta, choice, model
            )
    return found | {"chosen": learn_spread(posterior, 0)}


def judge(spread: Spread, cal: tuple, test: tuple, unit: float) -> tuple[float, float, float]:
    """Interval score, CRPS and coverage on the test part."""
    with torch.no_grad():
        z = ((cal[1] - spread.posterior.mean(cal[0])) / spread.spread(cal[0])).sort().values
        mean, sigma = spread.posterior.mean(test[0]), spread.spread(test[0])
    C = len(z)
    half = z.abs().sort().values[whole_rank(COVERAGE, C, up=True) - 1] * sigma
    miss = ((test[1] - mean).abs() - half).clamp(min=0.0)
    score = float((2 * half + 2 / (1 - COVERAGE) * miss).mean()) / unit
    table = mean.unsqueeze(-1) + sigma.unsqueeze(-1) * z
    crps = metrics.crps(test[1].numpy(), table.numpy(), np.arange(1, C + 1) / (C + 1))
    return score, crps / unit, float((miss == 0).double().mean())


def split(data: datasets.Dataset, rows: int, seed: int) -> list[tuple[Tensor, Tensor]]:
    """Training, calibration and test part."""
    order = np.random.default_rng(seed).permutation(len(data.y))
    ends = np.cumsum([rows, rows // 3, 1000])
    return [
        (torch.from_numpy(data.X[part]), torch.from_numpy(data.y[part]))
        for part in np.split(order[: ends[-1]], ends[:2])
    ]


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--datasets", default="boston,yacht,mpg,wine,concrete,kin8nm,facebook1")
    parser.add_argument("--rows", type=int, default=177)
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--data-home", default=None, help="or environment variable SHARPGP_DATA")
    arguments = parser.parse_args()
    warnings.simplefilter("ignore")
    torch.set_num_threads(1)
    names = arguments.datasets.split(",")
    results: dict[str, list[np.ndarray]] = {}
    for name in names:
        data = datasets.load(name, data_home=arguments.data_home)
        of_set: dict[str, list[tuple[float, float, float]]] = {}
        for seed in range(arguments.seeds):
            fit, *held_out = split(data, arguments.rows, seed)
            for label, spread in candidates(train(*fit)[0]).items():
                of_set.setdefault(label, []).append(judge(spread, *held_out, float(data.y.std())))
        for label, found in of_set.items():
            results.setdefault(label, []).append(np.mean(found, axis=0))
    base = np.array(results["plain, b = 0"])
    print(" " * 18 + "".join(f"{name:>10s}" for name in [*names, "score", "CRPS", "coverage"]))
    for label, rows in results.items():
        ratio = np.array(rows) / base
        line = "".join(f"{value:10.3f}" for value in ratio[:, 0])
        line += "".join(f"{value:10.3f}" for value in np.exp(np.log(ratio[:, :2]).mean(0)))
        print(f"{label:18s}{line}{np.array(rows)[:, 2].mean():10.1%}", flush=True)


if __name__ == "__main__":
    main()
