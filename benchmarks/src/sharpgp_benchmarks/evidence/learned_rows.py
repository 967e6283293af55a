"""How many rows one learning needs: the default with parts of different sizes, in one run.

Models learn from at most L rows and are conditioned on all of them, see
:class:`sharpgp.policy.Policy`.
"""

from dataclasses import replace
from functools import partial
from unittest.mock import patch

import numpy as np

from sharpgp import SharpGPRegressor
from sharpgp.metrics import interval_coverage, interval_score
from sharpgp.models.bases import Bases
from sharpgp_benchmarks.evidence.common import Clock
from sharpgp_benchmarks.evidence.run import header, measured, row

N_TEST = 2000
policy = Bases.policy


def friedman(n: int, rng: np.random.Generator) -> tuple[np.ndarray, np.ndarray]:
    """A sum of smooth parts, with noise."""
    X = rng.uniform(size=(n, 8))
    y = 10 * np.sin(np.pi * X[:, 0] * X[:, 1]) + 20 * (X[:, 2] - 0.5) ** 2 + 10 * X[:, 3]
    return X, y + 5 * X[:, 4] + rng.normal(size=n)


def smooth(n: int, rng: np.random.Generator) -> tuple[np.ndarray, np.ndarray]:
    """Interactions in eight dimensions, hardly any noise."""
    X = rng.normal(size=(n, 8))
    y = np.sin(X[:, 0] * X[:, 1]) + np.cos(X[:, 2] + X[:, 3]) * X[:, 4] + 0.3 * X[:, 5] ** 2
    return X, y + 0.05 * rng.normal(size=n)


def growing_noise(n: int, rng: np.random.Generator) -> tuple[np.ndarray, np.ndarray]:
    """Noise that grows along the first feature."""
    X = rng.uniform(-2, 2, size=(n, 5))
    y = np.sin(2 * X[:, 0]) + X[:, 1] * X[:, 2] / 2
    return X, y + (0.1 + 0.2 * (X[:, 0] + 2)) * rng.normal(size=n)


PROBLEMS = {made.__name__: made for made in (friedman, smooth, growing_noise)}


def case(problem: str, n: int, learned: int, seed: int) -> tuple[float, float, float, float]:
    """CRPS, 95 % interval score and coverage of new rows, and processor seconds of the fit."""
    X, y = PROBLEMS[problem](n + N_TEST, np.random.default_rng(seed))
    fewer = partial(replace, learned_rows=learned)
    with patch.object(Bases, "policy", lambda *given: fewer(policy(*given))), Clock() as clock:
        model = SharpGPRegressor(random_state=seed).fit(X[:n], y[:n])
    lower, upper = model.predict_interval(X[n:], 0.95).T
    crps = float(np.mean(model.predict_dist(X[n:]).crps(y[n:])))
    score = interval_score(y[n:], lower, upper, coverage=0.95)
    return crps, score, interval_coverage(y[n:], lower, upper), clock.wall


def main(
    rows: str = "1000,3000", learned: str = "500,800,1500", repeats: int = 2, processes: int = 1
) -> None:
    """Print the table."""
    header("problem", "rows", "learned", "CRPS", "95 % score", "covered", "s")
    for problem in PROBLEMS:
        for n in map(int, rows.split(",")):
            for most in map(int, learned.split(",")):
                tasks = [(problem, n, most, seed) for seed in range(repeats)]
                found = np.mean(measured(case, tasks, workers=processes), axis=0)
                crps, score, covered, seconds = found
                row(
                    problem,
                    n,
                    most,
                    f"{crps:.4g}",
                    f"{score:.4g}",
                    f"{covered:.3f}",
                    f"{seconds:.1f}",
                )
