"""A series whose noise doubles in the middle: coverage before and after, for four ways to go on.

A GP is fitted with ``calibration="exact"`` on 300 points, 100 of them for calibration.  Then
points arrive one by one, each predicted before it is seen: by the model as it is; updated after
every 50 points; with the level adapted (``Online``); and with the level adapted and scores from a
window of the newest 200 points.  "just after" are the first 200 points after the change.
Infinite intervals count as covering, and their share is shown; widths and interval scores are means
over the finite ones.  Averages over seeds; "worst seed" is the largest distance of a seed's
coverage over all steps from the nominal one.
"""

from collections.abc import Callable

import numpy as np

from sharpgp import Online, SharpGPRegressor, metrics
from sharpgp_benchmarks.evidence.run import header, measured, row

COVERAGE = 0.95
START, NEW = 300, 50


def series(steps: int, seed: int) -> tuple[np.ndarray, np.ndarray]:
    """A wave in two features; noise of 0.1, and of 0.2 from the middle of the stream on."""
    rng = np.random.default_rng(seed)
    X = rng.uniform(-2, 2, (START + steps, 2))
    noise = np.where(np.arange(START + steps) < START + steps // 2, 0.1, 0.2)
    return X, np.sin(2 * X[:, 0]) + 0.3 * X[:, 1] + noise * rng.normal(size=len(X))


def fixed(model: SharpGPRegressor, X: np.ndarray, y: np.ndarray) -> np.ndarray:
    """Intervals of the model as it is."""
    return model.predict_interval(X, COVERAGE)


def updated(model: SharpGPRegressor, X: np.ndarray, y: np.ndarray) -> np.ndarray:
    """Intervals of the model that is updated now and then."""
    ends = []
    for i in range(0, len(y), NEW):
        ends.append(model.predict_interval(X[i : i + NEW], COVERAGE))
        model.update(X[i : i + NEW], y[i : i + NEW])
    return np.concatenate(ends)


def online(gamma: float, window: int | None) -> Callable[..., np.ndarray]:
    """Intervals with the level adapted."""

    def run(model: SharpGPRegressor, X: np.ndarray, y: np.ndarray) -> np.ndarray:
        return Online(model, COVERAGE, gamma=gamma, window=window).track(X, y)

    return run


WAYS = {
    "as fitted": fixed,
    "updated": updated,
    "online, gamma 0.005": online(0.005, None),
    "online, gamma 0.01": online(0.01, None),
    "online, gamma 0.02": online(0.02, None),
    "online, gamma 0.01, window": online(0.01, 200),
}


def figures(ends: np.ndarray, y: np.ndarray) -> dict[str, float]:
    """Coverage by part of the series, width and interval score."""
    low, high = ends.T
    inside = (low <= y) & (y <= high)
    half = len(y) // 2
    finite = np.isfinite(low)
    return {
        "before": inside[:half].mean(),
        "just after": inside[half : half + 200].mean(),
        "after": inside[half:].mean(),
        "all": inside.mean(),
        "infinite": 1 - finite.mean(),
        "width": metrics.interval_width(low[finite], high[finite]),
        "score": metrics.interval_score(y[finite], low[finite], high[finite], COVERAGE),
    }


def main(seeds: int = 6, steps: int = 2000) -> None:
    """Print a line for each way to go on."""
    print(f"{COVERAGE:.0%} intervals, {steps} steps, {seeds} seeds")
    columns = ("before", "just after", "after", "all", "worst seed", "infinite", "width", "score")
    header("way", *columns)
    for name in WAYS:
        runs = measured(went, [(name, steps, seed) for seed in range(seeds)])
        mean = {key: np.mean([run[key] for run in runs]) for key in runs[0]}
        mean["worst seed"] = max(abs(run["all"] - COVERAGE) for run in runs)
        cells = (f"{mean[c]:.3f}" if c in ("width", "score") else f"{mean[c]:.1%}" for c in columns)
        row(name, *cells)


def went(name: str, steps: int, seed: int) -> dict[str, float]:
    """Figures of one way to go on, on one series."""
    X, y = series(steps, seed)
    model = SharpGPRegressor(base="rbf", calibration="exact", cal_size=100, random_state=seed)
    model.fit(X[:START], y[:START])
    return figures(WAYS[name](model, X[START:], y[START:]), y[START:])
