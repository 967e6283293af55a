"""Boxes that hold several outputs at once: joint coverage, and volume beside Bonferroni's.

Three outputs of 160 rows with noise of a given correlation; 39 calibration points (``exact``, or
``kuleshov18``, which is quicker), 80 % regions at 2,000 new points. Means over repeats of rows and
split, with the standard error of the joint coverage; volumes as a ratio, per output (its cube
root), of the box to that of Bonferroni from the same calibration.
"""

import numpy as np

from sharpgp import SharpGPRegressor
from sharpgp_benchmarks.evidence.common import without_warnings
from sharpgp_benchmarks.evidence.run import header, measured, row

COVERAGE = 0.8


def draw(n: int, correlation: float, rng: np.random.Generator) -> tuple[np.ndarray, np.ndarray]:
    """Rows with two features and three outputs."""
    X = rng.uniform(-3, 3, (n, 2))
    mixed = np.full((3, 3), correlation) + (1 - correlation) * np.eye(3)
    noise = rng.multivariate_normal(np.zeros(3), mixed, n)
    f = np.column_stack([np.sin(X[:, 0]), X[:, 1] ** 2 / 3, np.cos(X[:, 0] + X[:, 1])])
    return X, f + noise * [0.1, 0.3, 0.2]


def measure(correlation: float, seed: int, calibration: str) -> tuple[float, float]:
    """Joint coverage, and the ratio of volumes per output."""
    rng = np.random.default_rng(seed)
    (X, Y), (test, target) = draw(160, correlation, rng), draw(2000, correlation, rng)
    settings = {"base": "rbf", "calibration": calibration, "cal_size": 39, "random_state": seed}
    model = SharpGPRegressor(**settings)
    with without_warnings():
        model.fit(X, Y)
        box = model.predict_region(test, COVERAGE)
        each = model.predict_interval(test, 1 - (1 - COVERAGE) / 3, symmetric=True)
    inside = ((box[:, 0] <= target) & (target <= box[:, 1])).all(1).mean()
    logs = [np.log(np.diff(ends, axis=1)).mean() for ends in (box, each)]
    return float(inside), float(np.exp(logs[0] - logs[1]))


def main(
    correlations: str = "0,0.5,0.9,0.99", repeats: int = 50, calibration: str = "exact"
) -> None:
    """Print the table."""
    header("correlation", "joint coverage", "standard error", "width beside Bonferroni's")
    for correlation in map(float, correlations.split(",")):
        cases = [(correlation, seed, calibration) for seed in range(repeats)]
        runs = np.array(measured(measure, cases))
        error = runs[:, 0].std() / np.sqrt(repeats)
        covered, ratio = runs.mean(0)
        row(f"{correlation:g}", f"{covered:.1%}", f"{error:.1%}", f"{ratio:.3f}")
