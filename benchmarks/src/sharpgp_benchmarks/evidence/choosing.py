"""What each calibration costs and gains, by the number of rows.

Rows are drawn from a function of five of eight features with noise that grows along one of them,
so that a calibration can gain by learning where the noise is large. Each method gets the same rows
and makes its own holdout. Costs are CPU seconds of one thread: fitting (training and calibration),
and predicting the 95 % intervals of 1,000 points. Means over the repeats.
"""

import numpy as np

from sharpgp import SharpGPRegressor
from sharpgp_benchmarks.evidence.common import Clock, numbers
from sharpgp_benchmarks.evidence.run import header, measured, row

COLUMNS = ("fit, s", "predict, s", "coverage", "width", "score", "CRPS")


def draw(n: int, rng: np.random.Generator) -> tuple[np.ndarray, np.ndarray]:
    """Rows with heteroscedastic noise."""
    X = rng.uniform(0, 1, (n, 8))
    mean = 10 * np.sin(np.pi * X[:, 0] * X[:, 1]) + 20 * (X[:, 2] - 0.5) ** 2 + 10 * X[:, 3]
    y = mean + 5 * X[:, 4] + 3 * X[:, 5] ** 2 * rng.normal(size=n)
    return X, y / 5.0


def measure(method: str, n: int, seed: int, base: str) -> list[float]:
    """Seconds, and figures of the 95 % interval on 2,000 new points."""
    rng = np.random.default_rng(seed)
    (X, y), (X_test, y_test) = draw(n, rng), draw(2000, rng)
    with Clock() as fitting:
        model = SharpGPRegressor(base=base, calibration=method, random_state=seed).fit(X, y)
    with Clock() as predicting:
        model.predict_interval(X_test[:1000])
    report = model.calibration_report(X_test, y_test)
    quality = [report[k] for k in ("coverage_95", "width_95", "interval_score_95", "crps")]
    return [fitting.cpu, predicting.cpu, *quality]


def main(
    rows: str = "200,400,800",
    repeats: int = 5,
    methods: str = "vanilla,kuleshov18,marx22,kuleshov22,paper,exact,loo,cv,cv+",
    base: str = "rbf",
) -> None:
    """Print the table."""
    header("rows", "`calibration=`", *COLUMNS)
    for n in numbers(rows):
        for method in methods.split(","):
            runs = measured(measure, [(method, n, seed, base) for seed in range(repeats)])
            fit, predict, coverage, width, score, crps = np.mean(runs, axis=0)
            cells = [f"{fit:.2f}", f"{predict:.3f}", f"{coverage:.1%}", f"{width:.2f}"]
            row(n, f"`{method}`", *cells, f"{score:.2f}", f"{crps:.3f}")
