"""Coverage on data that are exchangeable and hostile: ties, zeros, copies, groups, heavy tails.

For each kind of data and each method: the share of new points inside the intervals of
``predict_interval`` and of ``predict_dist``, with standard errors over repetitions, against what
was asked for. A cell that falls short by more than three standard errors is marked ``!`` where
nothing warned, and ``w`` where anything did, be it about another coverage. ``loo`` refuses groups.
"""

import warnings
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from joblib import Parallel, delayed

from sharpgp import SharpGPRegressor
from sharpgp.exceptions import CalibrationWarning
from sharpgp.studies.evidence.common import header, row

METHODS = ("exact", "cv", "loo", "kuleshov18", "marx22")
COVERAGES = (0.5, 0.8, 0.9, 0.95, 0.99)
N_TEST = 500


@dataclass(frozen=True)
class Draw:
    """Labelled rows to learn from, with their groups if any, and new ones to judge by."""

    X: np.ndarray
    y: np.ndarray
    X_new: np.ndarray
    y_new: np.ndarray
    groups: np.ndarray | None = None


def _wave(X: np.ndarray) -> np.ndarray:
    return np.sin(2.0 * X[:, 0]) + X[:, 1]


def _noisy(rng: np.random.Generator, X: np.ndarray) -> np.ndarray:
    return _wave(X) + 0.3 * rng.normal(size=len(X))


def _zeros(rng: np.random.Generator, X: np.ndarray) -> np.ndarray:
    positive = np.exp(_wave(X) + 0.5 * rng.normal(size=len(X)))
    return np.where(rng.random(len(X)) < 0.35, 0.0, positive)


def _rows(
    observe: Callable[[np.random.Generator, np.ndarray], np.ndarray], n: int = 100, d: int = 2
) -> Callable[[np.random.Generator], Draw]:
    """Independent rows with uniform inputs; ``observe`` draws targets at given inputs."""

    def draw(rng: np.random.Generator) -> Draw:
        X = rng.uniform(-2.0, 2.0, (n + N_TEST, d))
        y = observe(rng, X)
        return Draw(X[:n], y[:n], X[n:], y[n:])

    return draw


def _categories(rng: np.random.Generator) -> Draw:
    kind = rng.integers(0, 3, 120 + N_TEST)
    counts = rng.poisson(np.array([1.0, 2.0, 4.0])[kind])
    y = np.where(rng.random(len(kind)) < 0.35, 0, counts).astype(float)
    X = kind.astype(float)[:, None]
    return Draw(X[:120], y[:120], X[120:], y[120:])


def _copies(rng: np.random.Generator) -> Draw:
    plain = _rows(_noisy, n=40)(rng)
    return Draw(np.repeat(plain.X, 3, 0), np.repeat(plain.y, 3), plain.X_new, plain.y_new)


def _replicates(rng: np.random.Generator) -> Draw:
    X = np.repeat(rng.uniform(-2.0, 2.0, (30, 2)), 4, 0)
    X_new = rng.uniform(-2.0, 2.0, (N_TEST, 2))
    return Draw(X, _noisy(rng, X), X_new, _noisy(rng, X_new))


def _groups(rng: np.random.Generator) -> Draw:
    of_group = rng.uniform(-2.0, 2.0, (30 + N_TEST // 4, 2))
    effect = 0.5 * rng.normal(size=len(of_group))
    g = np.repeat(np.arange(len(of_group)), 4)
    X = of_group[g]
    y = _wave(X) + effect[g] + 0.2 * rng.normal(size=len(g))
    return Draw(X[:120], y[:120], X[120:], y[120:], g[:120])


KINDS: dict[str, Callable[[np.random.Generator], Draw]] = {
    "clean": _rows(_noisy),
    "rounded targets": _rows(lambda rng, X: np.round(_noisy(rng, X))),
    "zeros": _rows(_zeros),
    "counts": _rows(lambda rng, X: rng.poisson(np.exp(0.5 * _wave(X))).astype(float)),
    "categories": _categories,
    "copies": _copies,
    "replicates": _replicates,
    "groups": _groups,
    "heavy tails": _rows(lambda rng, X: _wave(X) + 0.2 * rng.standard_t(2, len(X))),
    "few points": _rows(_noisy, n=20),
    "many features": _rows(_noisy, n=60, d=20),
}


def covered(kind: str, method: str, seed: int, base: str) -> tuple[np.ndarray, np.ndarray, bool]:
    """Coverages of intervals and of the distribution's, and whether anything warned."""
    data = KINDS[kind](np.random.default_rng([seed, list(KINDS).index(kind)]))
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always", CalibrationWarning)
        model = SharpGPRegressor(base=base, calibration=method, random_state=seed)
        model.fit(data.X, data.y, groups=data.groups)
        ends = model.predict_interval(data.X_new, list(COVERAGES))
        dist = model.predict_dist(data.X_new)
        of_dist = np.stack([dist.interval(c) for c in COVERAGES], axis=-1)
    y = data.y_new[:, None]
    found = [((y >= e[:, 0]) & (y <= e[:, 1])).mean(0) for e in (ends, of_dist)]
    said = any(issubclass(one.category, CalibrationWarning) for one in caught)
    return found[0], found[1], said


def main(
    repeats: int = 24,
    jobs: int = 2,
    base: str = "rbf",
    kinds: str = ",".join(KINDS),
    methods: str = ",".join(METHODS),
) -> None:
    """Print the table."""
    cases = [
        (kind, method)
        for kind in kinds.split(",")
        for method in methods.split(",")
        if (kind, method) != ("groups", "loo")
    ]
    tasks = [(*case, seed) for case in cases for seed in range(repeats)]
    answers = Parallel(n_jobs=jobs)(delayed(covered)(*task, base) for task in tasks)
    asked = np.array(COVERAGES)
    header("data", "method", "asked of", *(f"{c:.0%}" for c in COVERAGES))
    for i, (kind, method) in enumerate(cases):
        own = answers[i * repeats : (i + 1) * repeats]
        mark = " w" if np.mean([said for *_, said in own]) > 0.5 else " !"
        for how, part in (("interval", 0), ("distribution", 1)):
            share = np.array([answer[part] for answer in own])
            mean, error = share.mean(0), share.std(0, ddof=1) / np.sqrt(len(share))
            short = mean < asked - 3.0 * error
            cells = [
                f"{100 * m:.1f} ± {100 * e:.1f}{mark if bad else ''}"
                for m, e, bad in zip(mean, error, short, strict=True)
            ]
            row(kind, method, how, *cells)
