"""Whether a power of the spread would cover more evenly from narrow to wide intervals.

The default pool on the splits of ``sharpgp bench peers``.  Spreads ``s`` become ``g (s / g)^a``,
``g`` their geometric mean over the training points, with ``a`` from out-of-fold predictions of
these: by their interval scores (``score``, at 80, 90 and 95 %), or as ``1 + b`` with ``b`` the
slope of ``log |z|`` on ``log s`` (``slope``), as found or ridged by 80 points of unit variance
(``slope, shrunk``).  Symmetric 90 % bands from the calibration part; means over the seeds of the
exponent, of the interval score beside that of the spread as it is, and of the coverage in quarters
of the test rows from narrow to wide.
"""

from collections.abc import Callable

import numpy as np
import torch
from joblib import Parallel, delayed

from sharpgp.metrics import interval_score
from sharpgp.models.bases import Bases
from sharpgp.models.folds import together
from sharpgp.models.pool import pooled_out_of_fold
from sharpgp.models.splitters import splits
from sharpgp_benchmarks.datasets import Dataset
from sharpgp_benchmarks.evidence.common import calm, header, row, sets
from sharpgp_benchmarks.peers.predictions import conformal_quantile
from sharpgp_benchmarks.peers.protocol import make_case

COVERAGE = 0.9
JUDGED = (0.8, 0.9, 0.95)
FOLDS = 5

#: Location, spread and target of some points.
Points = tuple[np.ndarray, np.ndarray, np.ndarray]


def raised(s: np.ndarray, power: float, centre: float) -> np.ndarray:
    """Spreads to a power, about their centre."""
    return centre * (s / centre) ** power


def as_it_is(held: Points) -> float:
    """No change."""
    return 1.0


def by_score(held: Points) -> float:
    """The exponent with the least interval scores of bands at their own quantiles."""
    m, s, y = held
    centre = np.exp(np.log(s).mean())

    def loss(power: float) -> float:
        spread = raised(s, power, centre)
        sizes = np.abs(y - m) / spread
        radii = [np.quantile(sizes, coverage) * spread for coverage in JUDGED]
        pairs = zip(radii, JUDGED, strict=True)
        return sum(interval_score(y, m - radius, m + radius, c) for radius, c in pairs)

    return float(min(np.linspace(0.0, 2.0, 21), key=loss))


def by_slope(held: Points, ridge: float = 0.0) -> float:
    """One more than the slope of ``log |z|`` on ``log s``."""
    m, s, y = held
    z = np.abs(y - m) / s
    x, logs = np.log(s) - np.log(s).mean(), np.log(np.maximum(z, 1e-3 * np.median(z)))
    return 1.0 + float(x @ (logs - logs.mean()) / (x @ x + ridge))


CHOICES: dict[str, Callable[[Points], float]] = {
    "as it is": as_it_is,
    "score": by_score,
    "slope": by_slope,
    "slope, shrunk": lambda held: by_slope(held, 80.0),
}


def judge(data: Dataset, seed: int, most: int) -> dict[str, list[float]]:
    """By choice: exponent, interval score, and coverage of each quarter."""
    case = make_case(data, seed, most, "cpu")
    p = case.parts
    X, y = torch.from_numpy(p.X_train), torch.from_numpy(p.y_train)
    with calm():
        models = Bases(seed=seed).learned(X, y)
        model, held = pooled_out_of_fold(models, splits(FOLDS, X, y, None, seed), together(X), seed)

    def predicted(inputs: np.ndarray, target: np.ndarray) -> Points:
        rows = torch.from_numpy(inputs)
        return model.location(rows).numpy(), model.spread(rows).numpy(), target

    with torch.no_grad():
        cal, test = predicted(p.X_cal, p.y_cal), predicted(p.X_test, p.y_test)
    known = held.location.numpy(), held.spread.numpy(), p.y_train[held.rows.numpy()]
    centre = float(np.exp(np.log(known[1]).mean()))
    found = {}
    for name, choose in CHOICES.items():
        power = choose(known)
        m, s, target = cal
        radius = conformal_quantile(np.abs(target - m) / raised(s, power, centre), COVERAGE)
        m, s, target = test
        half = radius * raised(s, power, centre)
        inside = np.abs(target - m) <= half
        quarters = [part.mean() for part in np.array_split(inside[np.argsort(s)], 4)]
        score = interval_score(target, m - half, m + half, COVERAGE)
        found[name] = [power, score, *quarters]
    return found


def main(
    datasets: str = "mpg,boston,concrete,estate,electric,aquatic,bikes,friedman2,hetero-5d,skewed",
    most: int = 300,
    seeds: int = 4,
    workers: int = 1,
    data_home: str | None = None,
) -> None:
    """Print a line for each set and choice, and one for all sets."""
    header("set", "exponent by", "exponent", "score", "narrow", "second", "third", "wide")
    chosen = sets(datasets, data_home)
    tasks = [(data, seed, most) for data in chosen for seed in range(seeds)]
    judged = Parallel(n_jobs=workers)(delayed(judge)(*task) for task in tasks)
    every: dict[str, list[np.ndarray]] = {}
    for i, data in enumerate(chosen):
        runs = judged[i * seeds : (i + 1) * seeds]
        for name in CHOICES:
            figures = np.array([run[name] for run in runs])
            figures[:, 1] /= [run["as it is"][1] for run in runs]
            every.setdefault(name, []).append(figures.mean(0))
            row(data.name, name, *(f"{value:.3f}" for value in figures.mean(0)))
    for name, parts in every.items():
        row("all", name, *(f"{value:.3f}" for value in np.mean(parts, axis=0)))
