"""Counts that pile up at zero: with a bound, without, and beside conformalised quantile boosting.

facebook1 by default, numbers of comments of which more than half are zero, on the splits of
``sharpgp bench peers``. ``free`` is the estimator as it was fitted, ``bounded`` the same with
``y_bounds=(0, None)``; the peer is MAPIE's conformalised quantile regression with scikit-learn's
gradient boosting, with either of its corrections, its ends moved to zero where they are negative.
In units of the target's standard deviation; means over the seeds.
"""

import numpy as np

from sharpgp import SharpGPRegressor, metrics
from sharpgp.studies.evidence.common import calm, header, row, sets
from sharpgp.studies.peers.methods import mapie_cqr
from sharpgp.studies.peers.protocol import COVERAGES, make_case


def judge(ends: np.ndarray, y: np.ndarray, unit: float) -> list[float]:
    """Coverage, width and interval score of ends [T, 2, K], coverage after coverage."""
    found = []
    for k, coverage in enumerate(COVERAGES):
        lower, upper = ends[:, :, k].T
        found += [
            metrics.interval_coverage(y, lower, upper),
            metrics.interval_width(lower, upper) / unit,
            metrics.interval_score(y, lower, upper, coverage) / unit,
        ]
    return found


def main(
    dataset: str = "facebook1",
    most: int = 2000,
    seeds: int = 5,
    base: str = "auto",
    approximation: str = "auto",
    data_home: str | None = None,
) -> None:
    """Print a line for each method."""
    (data,) = sets(dataset, data_home)
    found: dict[str, list[list[float]]] = {}
    for seed in range(seeds):
        case = make_case(data, seed, most, "cpu")
        p, nothing = case.parts, [float("nan")]
        settings = {"base": base, "approximation": approximation, "random_state": seed}
        with calm():
            model = SharpGPRegressor(**settings, y_bounds=(0, None)).fit(*case.together)
            free = model.calibrated_.within(None)
            for name, one in {"free": free, "bounded": model}.items():
                ends = np.asarray(one.predict_interval(p.X_test, COVERAGES))
                crps = float(np.mean(one.predict_dist(p.X_test).numpy().crps(p.y_test)))
                figures = judge(ends, p.y_test, case.unit)
                found.setdefault(name, []).append([*figures, crps / case.unit])
            for name, ends in mapie_cqr(case).bands.items():
                figures = judge(ends.clip(0), p.y_test, case.unit)
                found.setdefault(f"quantile boosting, {name}", []).append(figures + nothing)
    asked = [f"{coverage:.0%}" for coverage in COVERAGES]
    header("", *(f"{name}, {c}" for c in asked for name in ("covers", "width", "score")), "CRPS")
    for name, figures in found.items():
        row(name, *(f"{value:.3f}" for value in np.mean(figures, axis=0)))
