"""Extra trees that split by targets as they are, and by their arcsinh.

On the splits of ``sharpgp bench peers`` extra trees alone are grown on the training part and
calibrated with symmetric bands on the calibration part; bands end at zero where targets do.
``heaviness`` is the ratio by which ``sharpgp.models.trees.forests`` decides: standard deviation
beside mean distance from the median.  Means over the seeds, in units of the target's standard
deviation, and what splits by the arcsinh are beside splits by the target itself.
"""

from unittest import mock

import numpy as np
import torch

from sharpgp import metrics
from sharpgp.models.pool_weights import crps_of_scores
from sharpgp.models.trees import forests
from sharpgp_benchmarks.evidence.common import sets, without_warnings
from sharpgp_benchmarks.evidence.run import header, measured, row
from sharpgp_benchmarks.peers.predictions import conformal_quantile
from sharpgp_benchmarks.peers.protocol import COVERAGES, Case, make_case

#: What is the limit of heaviness: no target is heavy, or all are.
LIMITS = {"target": np.inf, "arcsinh": 0.0}


def grown_on(case: Case, limit: float) -> forests.ExtraTrees:
    """Extra trees on the training part, with such a limit."""
    with without_warnings(), mock.patch.object(forests, "_HEAVY", limit):
        return forests.ExtraTrees(case.parts.X_train, case.parts.y_train, 0)


def moments(grown: forests.ExtraTrees, X: np.ndarray) -> list[np.ndarray]:
    """Location and spread [T]."""
    law = grown.law(X, torch.ones(1).double())
    return [law.location.numpy(), law.spread.numpy()]


def bands(grown: forests.ExtraTrees, case: Case, least: float = -np.inf) -> np.ndarray:
    """Ends [T, 2, K] of symmetric bands that the calibration part widens, none below ``least``."""
    p = case.parts
    location, spread = moments(grown, p.X_cal)
    sizes = np.abs(p.y_cal - location) / spread
    location, spread = moments(grown, p.X_test)
    radii = [conformal_quantile(sizes, coverage) * spread for coverage in COVERAGES]
    ends = [np.stack([location - radius, location + radius], 1) for radius in radii]
    return np.stack(ends, 2).clip(least)


def judge(name: str, seed: int, most: int, kind: str, data_home: str | None) -> list[float]:
    """Interval scores at both coverages, and CRPS, of trees with one of the limits."""
    (data,) = sets(name, data_home)
    case = make_case(data, seed, most, "cpu")
    p, grown = case.parts, grown_on(case, LIMITS[kind])
    ends = bands(grown, case, 0.0 if data.y.min() == 0.0 else -np.inf)
    scores = [
        metrics.interval_score(p.y_test, *ends[:, :, k].T, coverage)
        for k, coverage in enumerate(COVERAGES)
    ]
    law, y = grown.law(p.X_test, torch.ones(1).double()), torch.from_numpy(p.y_test)
    crps = crps_of_scores(law, law.score(y), y)
    return [value / case.unit for value in (*scores, float(crps))]


def main(
    datasets: str = "facebook1,fires,cpu,yacht,insurance,boston,multiplicative,estate,concrete,mpg",
    most: int = 2000,
    seeds: int = 5,
    data_home: str | None = None,
) -> None:
    """Print a line for each set."""
    figures = (*(f"score, {coverage:.0%}" for coverage in COVERAGES), "CRPS")
    header("set", "heaviness", *figures, *(f"{name}, arcsinh" for name in figures))
    for data in sets(datasets, data_home):
        plain, tamed = (
            np.mean(
                measured(
                    judge, [(data.name, seed, most, kind, data_home) for seed in range(seeds)]
                ),
                axis=0,
            )
            for kind in LIMITS
        )
        heaviness = data.y.std() / np.abs(data.y - np.median(data.y)).mean()
        cells = [f"{value:.3f}" for value in (*plain, *(tamed / plain))]
        row(data.name, f"{heaviness:.2f}", *cells)
