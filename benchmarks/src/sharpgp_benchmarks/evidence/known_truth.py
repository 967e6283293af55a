"""How far intervals are from the best possible: problems whose conditional quantiles are known.

Inputs are uniform on the unit cube, noise is normal with a known deviation, so that the true
conditional quantiles are the best that any method can give.  The table shows interval score at 95 %
and CRPS of the default estimator relative to theirs on the same test rows (1 is the limit), and the
coverage.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from scipy.special import ndtri

from sharpgp import SharpGPRegressor, metrics
from sharpgp_benchmarks.evidence.common import numbers
from sharpgp_benchmarks.evidence.run import header, measured, row

TEST_ROWS = 2000
# Levels at which the quantiles of both are compared for the CRPS.
LEVELS = (np.arange(200) + 0.5) / 200


@dataclass(frozen=True)
class Problem:
    """``y = f(x) + sd(x) e``, ``x`` uniform on ``[0, 1]^d``, ``e`` standard normal."""

    d: int
    f: Callable[[np.ndarray], np.ndarray]
    sd: Callable[[np.ndarray], np.ndarray]

    def draw(self, n: int, rng: np.random.Generator) -> tuple[np.ndarray, np.ndarray]:
        """``n`` rows: inputs [n, d] and targets [n]."""
        X = rng.uniform(size=(n, self.d))
        return X, self.f(X) + self.sd(X) * rng.normal(size=n)

    def quantiles(self, levels: np.ndarray, X: np.ndarray) -> np.ndarray:
        """True conditional quantiles [n, K]."""
        return self.f(X)[:, None] + self.sd(X)[:, None] * ndtri(levels)


def constant(sd: float) -> Callable[[np.ndarray], np.ndarray]:
    """The same deviation everywhere."""
    return lambda X: np.full(len(X), sd)


def friedman(X: np.ndarray) -> np.ndarray:
    """Friedman's first function, of the first five inputs."""
    return (
        10 * np.sin(math.pi * X[:, 0] * X[:, 1])
        + 20 * (X[:, 2] - 0.5) ** 2
        + 10 * X[:, 3]
        + 5 * X[:, 4]
    )


def kink_and_step(X: np.ndarray) -> np.ndarray:
    """A kink along the first input, a step along the second, a slope along the third."""
    return 3 * np.abs(X[:, 0] - 0.4) + (X[:, 1] > 0.6) + 0.5 * X[:, 2]


def waves(X: np.ndarray) -> np.ndarray:
    """Half a period along the first input, one along the second, ... four along the eighth."""
    return np.sin(math.pi * np.arange(1, 9) * X).sum(1)


PROBLEMS = {
    "friedman, five idle inputs": Problem(10, friedman, constant(1.0)),
    "noise that grows": Problem(
        2, lambda X: np.sin(5 * X[:, 0]) + np.cos(3 * X[:, 1]), lambda X: 0.05 + 0.5 * X[:, 0]
    ),
    "kink and step": Problem(3, kink_and_step, constant(0.15)),
    "eight waves": Problem(8, waves, constant(0.4)),
    "pure noise": Problem(5, lambda X: np.zeros(len(X)), constant(1.0)),
}


def compare(name: str, n: int, seed: int) -> tuple[float, float, float]:
    """Interval score and CRPS relative to the truth's, and coverage, of the default estimator."""
    problem = PROBLEMS[name]
    rng = np.random.default_rng(seed)
    X, y = problem.draw(n, rng)
    X_test, y_test = problem.draw(TEST_ROWS, rng)
    model = SharpGPRegressor(random_state=seed).fit(X, y)
    found = model.predict_interval(X_test, 0.95)
    truth = problem.quantiles(np.array([0.025, 0.975]), X_test)
    score = metrics.interval_score(y_test, found[:, 0], found[:, 1], 0.95)
    best = metrics.interval_score(y_test, truth[:, 0], truth[:, 1], 0.95)
    crps = metrics.crps(y_test, model.predict_quantiles(X_test, LEVELS), LEVELS)
    limit = metrics.crps(y_test, problem.quantiles(LEVELS, X_test), LEVELS)
    covered = np.mean((found[:, 0] <= y_test) & (y_test <= found[:, 1]))
    return score / best, crps / limit, float(covered)


def main(rows: str = "100,300,1000", seeds: int = 5, workers: int = 2) -> None:
    """Print one line per problem and number of rows."""
    header("problem", "rows", "score", "CRPS", "coverage")
    cases = [(name, n) for name in PROBLEMS for n in numbers(rows)]
    tasks = [(*case, seed) for case in cases for seed in range(seeds)]
    judged = measured(compare, tasks, workers=workers)
    for (name, n), runs in zip(cases, np.array(judged).reshape(-1, seeds, 3), strict=True):
        score, crps = np.exp(np.log(runs[:, :2]).mean(0))
        row(name, n, f"{score:.3f}", f"{crps:.3f}", f"{runs[:, 2].mean():.1%}")
