"""Rows with roles: coverage of 90 % intervals where rows have weights, copies, groups or levels.

A smooth function of two features with noise, and in each world what fits once got wrong: weights
that follow the noise, copies that rounding or a row number hides, groups of unequal noise, groups
that come later, categories that no training row has, an update of one class alone.  Means over
draws of the rows, with their standard errors.
"""

from collections.abc import Callable
from typing import Any

import numpy as np
import pandas as pd

from sharpgp import Exact, SharpGPRegressor
from sharpgp_benchmarks.evidence.common import without_warnings
from sharpgp_benchmarks.evidence.run import header, measured, row

COVERAGE, N_NEW = 0.9, 1500
# What a world gives: interval ends [n, 2] and targets [n] of new rows.
Answer = tuple[np.ndarray, np.ndarray]


def truth(X: np.ndarray) -> np.ndarray:
    """The mean of the target."""
    return np.asarray(np.sin(2 * X[:, 0]) + X[:, 1])


def drawn(
    n: int, rng: np.random.Generator, noise: float | np.ndarray = 0.3
) -> tuple[np.ndarray, np.ndarray]:
    """Rows and targets."""
    X = rng.uniform(-2, 2, (n, 2))
    return X, truth(X) + noise * rng.normal(size=n)


def none(base: str, seed: int) -> Answer:
    """Nothing but rows."""
    rng = np.random.default_rng(seed)
    (X, y), (X_new, y_new) = drawn(200, rng), drawn(N_NEW, rng)
    return _model(base, seed).fit(X, y).predict_interval(X_new, COVERAGE), y_new


def weights(base: str, seed: int) -> Answer:
    """Weight 5 and noise 1 on one side, 1 and 0.15 on the other; new rows as weighted."""
    rng = np.random.default_rng(seed)

    def loud(n: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        X = rng.uniform(-2, 2, (n, 2))
        right = X[:, 0] > 0
        y = truth(X) + np.where(right, 1.0, 0.15) * rng.normal(size=n)
        return X, y, np.where(right, 5.0, 1.0)

    X, y, w = loud(200)
    X_new, y_new, w_new = loud(3 * N_NEW)
    kept = rng.random(len(y_new)) < w_new / 5
    model = _model(base, seed).fit(X, y, sample_weight=w)
    return model.predict_interval(X_new[kept], COVERAGE), y_new[kept]


def near_copies(base: str, seed: int) -> Answer:
    """Every row three times, with 1e-9 of noise in its features."""
    rng = np.random.default_rng(seed)
    (X, y), (X_new, y_new) = drawn(70, rng), drawn(N_NEW, rng)
    X, y = X.repeat(3, axis=0) + 1e-9 * rng.normal(size=(210, 2)), y.repeat(3)
    return _model(base, seed).fit(X, y).predict_interval(X_new, COVERAGE), y_new


def hidden_copies(base: str, seed: int) -> Answer:
    """Every row three times, and a row number."""
    rng = np.random.default_rng(seed)
    (X, y), (X_new, y_new) = drawn(70, rng), drawn(N_NEW, rng)
    order = rng.permutation(210)
    X, y = np.c_[X.repeat(3, axis=0)[order], np.arange(210)], y.repeat(3)[order]
    X_new = np.c_[X_new, rng.integers(0, 210, N_NEW)]
    return _model(base, seed).fit(X, y).predict_interval(X_new, COVERAGE), y_new


def update_of_groups(base: str, seed: int) -> Answer:
    """24 groups of 6 rows, then an update of 4 groups of 60; new rows of new groups."""
    rng = np.random.default_rng(seed)

    def grouped(n: int, size: int, first: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        X, y = drawn(n * size, rng, 0.2)
        of = np.repeat(np.arange(n), size)
        return X, y + rng.normal(size=n)[of], of + first

    X, y, of = grouped(24, 6, 0)
    more, y_more, of_more = grouped(4, 60, 24)
    X_new, y_new, _ = grouped(N_NEW, 1, 0)
    model = _model(base, seed).fit(X, y, groups=of).update(more, y_more, groups=of_more)
    return model.predict_interval(X_new, COVERAGE), y_new


def known_groups(base: str, seed: int) -> Answer:
    """8 groups of 30 quiet rows, 32 of 2 loud ones; new rows of a random known group."""
    rng = np.random.default_rng(seed)
    quiet = np.arange(40) < 8
    size, deviation = np.where(quiet, 30, 2), np.where(quiet, 0.1, 1.0)
    effects = rng.normal(size=40)

    def of_groups(of: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        X, y = drawn(len(of), rng, deviation[of])
        return X, y + effects[of]

    of, of_new = np.repeat(np.arange(40), size), rng.integers(0, 40, N_NEW)
    (X, y), (X_new, y_new) = of_groups(of), of_groups(of_new)
    model = _model(base, seed).fit(X, y, groups=of)
    return model.predict_interval(X_new, COVERAGE, groups=of_new), y_new


def unseen_levels(base: str, seed: int) -> Answer:
    """8 categories with normal effects; new rows of 4 other ones."""
    rng = np.random.default_rng(seed)
    effects = rng.normal(size=12)

    def of_levels(n: int, levels: np.ndarray) -> tuple[pd.DataFrame, np.ndarray]:
        level, x = rng.choice(levels, n), rng.uniform(-2, 2, n)
        table = pd.DataFrame({"x": x, "c": [f"c{k}" for k in level]})
        return table, np.sin(x) + effects[level] + 0.2 * rng.normal(size=n)

    (X, y), (X_new, y_new) = of_levels(160, np.arange(8)), of_levels(N_NEW, np.arange(8, 12))
    return _model(base, seed).fit(X, y).predict_interval(X_new, COVERAGE), y_new


def one_class(base: str, seed: int) -> Answer:
    """Ranks in two classes, an update of rows of one; new rows of both."""
    rng = np.random.default_rng(seed)
    (X, y), (more, y_more), (X_new, y_new) = (drawn(n, rng) for n in (200, 20, N_NEW))
    X, X_new = (np.c_[one, np.arange(len(one)) % 2] for one in (X, X_new))
    model = _model(base, seed, Exact(by=2)).fit(X, y).update(np.c_[more, np.zeros(20)], y_more)
    return model.predict_interval(X_new, COVERAGE), y_new


WORLDS: dict[str, Callable[[str, int], Answer]] = {
    one.__name__: one
    for one in (
        none,
        weights,
        near_copies,
        hidden_copies,
        update_of_groups,
        known_groups,
        unseen_levels,
        one_class,
    )
}


def _model(base: str, seed: int, calibration: Any = "auto") -> Any:
    return SharpGPRegressor(base=base, calibration=calibration, random_state=seed, verbose=-1)


def measure(world: str, base: str, seed: int) -> tuple[float, float]:
    """Coverage and mean width of new rows."""
    with without_warnings():
        ends, y = WORLDS[world](base, seed)
    inside = (ends[:, 0] <= y) & (y <= ends[:, 1])
    return float(inside.mean()), float(np.diff(ends, axis=1).mean())


def main(worlds: str = ",".join(WORLDS), draws: int = 12, draws_default: int = 3) -> None:
    """Print the table: one GP (``draws``), and the default (``draws_default``)."""
    header("world", "base", "draws", "covers at 90 %", "standard error", "width")
    for world in worlds.split(","):
        for base, n in (("rbf", draws), ("auto", draws_default)):
            if not n:
                continue
            found = np.array(measured(measure, [(world, base, seed) for seed in range(n)]))
            error = found[:, 0].std(ddof=min(1, n - 1)) / np.sqrt(n)
            covered, width = found.mean(0)
            row(world, base, n, f"{covered:.1%}", f"{error:.1%}", f"{width:.2f}")
