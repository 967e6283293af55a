"""Counts that pile up at zero: with a bound, without, and beside conformalised quantile boosting.

facebook1 by default, numbers of comments of which more than half are zero, on the splits of
``sharpgp bench peers``. ``free`` is the estimator as it was fitted, ``bounded`` the same with
``y_bounds=(0, None)``; ``extra trees, bounded`` are the trees of its pool alone, calibrated as it
is; the peer is MAPIE's conformalised quantile regression with scikit-learn's gradient boosting,
with either of its corrections, its ends moved to zero where they are negative.  In units of the
target's standard deviation; means over the seeds.
"""

import numpy as np
from joblib import Parallel, delayed

from sharpgp import SharpGPRegressor, metrics
from sharpgp.models.forests import ExtraTrees
from sharpgp_benchmarks.datasets import Dataset
from sharpgp_benchmarks.evidence.common import calm, header, row, sets
from sharpgp_benchmarks.evidence.splits import bands
from sharpgp_benchmarks.peers.methods import mapie_cqr
from sharpgp_benchmarks.peers.protocol import COVERAGES, make_case


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


def one(
    data: Dataset, seed: int, most: int, base: str, approximation: str, fit: bool
) -> dict[str, list[float]]:
    """Figures of every method on the split of one seed."""
    case = make_case(data, seed, most, "cpu")
    p, found = case.parts, {}
    settings = {"base": base, "approximation": approximation, "random_state": seed}
    with calm():
        if fit:
            model = SharpGPRegressor(**settings, y_bounds=(0, None)).fit(*case.together)
            free = model.calibrated_.within(None)
            for name, predictor in {"free": free, "bounded": model}.items():
                ends = np.asarray(predictor.predict_interval(p.X_test, COVERAGES))
                crps = float(np.mean(predictor.predict_dist(p.X_test).numpy().crps(p.y_test)))
                found[name] = [*judge(ends, p.y_test, case.unit), crps / case.unit]
        others = {f"quantile boosting, {name}": x for name, x in mapie_cqr(case).bands.items()}
        others["extra trees, bounded"] = bands(ExtraTrees(p.X_train, p.y_train, 0), case)
        for name, ends in others.items():
            found[name] = [*judge(ends.clip(0), p.y_test, case.unit), float("nan")]
    return found


def main(
    dataset: str = "facebook1",
    most: int = 2000,
    seeds: int = 5,
    first: int = 0,
    base: str = "auto",
    approximation: str = "auto",
    fit: bool = True,
    workers: int = 1,
    data_home: str | None = None,
) -> None:
    """Print a line for each method, means over ``seeds`` from ``first`` on; then the scores.

    ``--no-fit`` leaves out the estimator, which takes minutes for each seed.
    """
    (data,) = sets(dataset, data_home)
    which = range(first, first + seeds)
    tasks = (delayed(one)(data, seed, most, base, approximation, fit) for seed in which)
    found = Parallel(n_jobs=workers)(tasks)
    asked = [f"{coverage:.0%}" for coverage in COVERAGES]
    header("", *(f"{name}, {c}" for c in asked for name in ("covers", "width", "score")), "CRPS")
    for name in found[0]:
        row(name, *(f"{value:.3f}" for value in np.mean([run[name] for run in found], axis=0)))
    print("\nscores by seed:")
    header("seed", *(f"{name}, {c}" for name in found[0] for c in asked))
    for seed, run in zip(which, found, strict=True):
        row(seed, *(f"{figures[k]:.3f}" for figures in run.values() for k in (2, 5)))
