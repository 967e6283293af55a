"""Tables with categories and gaps: as they are, and encoded by hand.

Sets with categories kept as text (``mpg``: cylinders and origin; ``boston``: the index of highways
and the river; ``shop``: made, with a column of thirty categories) lose a share of their values at
random. On each split the same estimator is fitted on the frame, and on what a scikit-learn
pipeline makes of it: one-hot columns with a lengthscale each, and medians. Beside them,
scikit-learn's gradient boosting, which takes categories and gaps, with conformal intervals of
constant width. 90 % intervals; means over the splits, in units of the target's standard deviation.
"""

from typing import Any

import numpy as np
from sklearn.compose import make_column_selector, make_column_transformer
from sklearn.ensemble import HistGradientBoostingRegressor
from sklearn.impute import SimpleImputer
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import OneHotEncoder

from sharpgp import SharpGPRegressor, through
from sharpgp.metrics import interval_coverage, interval_score
from sharpgp.studies.evidence.common import Clock, calm, header, row, sets

CATEGORIES = {"mpg": ("cylinders", "origin"), "boston": ("rad", "chas")}
COVERAGE = 0.9


def shop(n: int, seed: int) -> tuple[Any, np.ndarray]:
    """Sales of thirty shops that differ, by price and by kind of day."""
    import pandas as pd

    rng = np.random.default_rng(seed)
    names = np.array([f"shop {k:02}" for k in range(30)])
    level = np.random.default_rng(0).normal(0, 1, 30)
    which = rng.integers(0, 30, n)
    days = np.array(["work", "work", "Saturday", "Sunday"])[rng.integers(0, 4, n)]
    frame = pd.DataFrame(
        {"price": rng.uniform(1, 5, n), "shop": names[which], "day": days, "x": rng.normal(size=n)}
    )
    effect = {"work": 0.0, "Saturday": 1.0, "Sunday": -0.5}
    y = level[which] + np.sin(frame["price"]) + frame["day"].map(effect) + rng.normal(0, 0.3, n)
    return frame, y.to_numpy()


def table(name: str, data_home: str | None) -> tuple[Any, np.ndarray]:
    """A frame with categories as text, and its target in standard deviations."""
    import pandas as pd

    if name == "shop":
        frame, y = shop(500, seed=1)
    else:
        (data,) = sets(name, data_home)
        frame, y = pd.DataFrame(data.X, columns=list(data.feature_names)), data.y
        for column in CATEGORIES[name]:
            frame[column] = [f"{value:g}!" for value in frame[column]]
    return frame, (y - y.mean()) / y.std()


def with_gaps(frame: Any, share: float, seed: int) -> Any:
    """The frame without a share of its values."""
    rng = np.random.default_rng(seed)
    out = frame.copy()
    for column in out.columns:
        out.loc[rng.random(len(out)) < share, column] = None
    return out


def by_hand() -> Any:
    """What a careful user would write without this library's frames."""
    text = make_pipeline(
        SimpleImputer(strategy="constant", fill_value="none"),
        OneHotEncoder(handle_unknown="ignore", sparse_output=False),
    )
    return make_column_transformer(
        (text, make_column_selector(dtype_exclude="number")),
        (SimpleImputer(strategy="median"), make_column_selector(dtype_include="number")),
    )


def judge(model: Any, X: Any, y: np.ndarray) -> list[float]:
    """CRPS, coverage and interval score, and the number of hyperparameters."""
    found = through(model)
    lower, upper = found.predict_interval(X, COVERAGE).T
    crps = float(np.mean(found.predict_dist(X).crps(y)))
    scores = [interval_coverage(y, lower, upper), interval_score(y, lower, upper, COVERAGE)]
    return [crps, *scores, float(len(found.model.posterior_.names))]


def boosted(train: Any, y: np.ndarray, test: Any, target: np.ndarray, seed: int) -> list[float]:
    """Gradient boosting with split conformal intervals."""
    typed = [part.copy() for part in (train, test)]
    for column in train.columns:
        if train[column].dtype.kind not in "fi":
            known = sorted(train[column].dropna().unique())
            for part in typed:
                part[column] = part[column].astype("category").cat.set_categories(known)
    rows = np.random.default_rng(seed).permutation(len(y))
    cal, fit = rows[: len(y) // 4], rows[len(y) // 4 :]
    settings: dict[str, Any] = {"categorical_features": "from_dtype", "random_state": 0}
    model = HistGradientBoostingRegressor(**settings).fit(typed[0].iloc[fit], y[fit])
    errors = np.sort(np.abs(y[cal] - model.predict(typed[0].iloc[cal])))
    radius = errors[min(len(cal), int(np.ceil(COVERAGE * (len(cal) + 1)))) - 1]
    mean = model.predict(typed[1])
    lower, upper = mean - radius, mean + radius
    score = interval_score(target, lower, upper, COVERAGE)
    return [float("nan"), interval_coverage(target, lower, upper), score, float("nan")]


def main(
    datasets: str = "mpg,boston,shop",
    base: str = "rbf",
    calibration: str = "exact",
    repeats: int = 5,
    data_home: str | None = None,
) -> None:
    """Print the table."""
    columns = ("CRPS", "coverage", "score", "hyperparameters", "fit, s")
    header("set", "gaps", "fit on", *columns)
    for name in datasets.split(","):
        whole, y = table(name, data_home)
        for share in (0.0, 0.1, 0.3):
            found: dict[str, list[list[float]]] = {}
            for seed in range(repeats):
                frame = with_gaps(whole, share, seed)
                rows = np.random.default_rng(seed).permutation(len(y))
                fit, test = rows[: int(0.8 * len(y))], rows[int(0.8 * len(y)) :]
                estimator = {"base": base, "calibration": calibration, "random_state": seed}
                models = {
                    "the frame": SharpGPRegressor(**estimator),
                    "a pipeline": make_pipeline(by_hand(), SharpGPRegressor(**estimator)),
                }
                for kind, model in models.items():
                    with calm(), Clock() as clock:
                        model.fit(frame.iloc[fit], y[fit])
                        figures = judge(model, frame.iloc[test], y[test])
                    found.setdefault(kind, []).append([*figures, clock.cpu])
                with calm(), Clock() as clock:
                    parts = frame.iloc[fit], y[fit], frame.iloc[test], y[test]
                    figures = boosted(*parts, seed)
                found.setdefault("boosting", []).append([*figures, clock.cpu])
            for kind, runs in found.items():
                crps, covered, score, size, cpu = np.mean(runs, axis=0)
                cells = [f"{crps:.3f}", f"{covered:.1%}", f"{score:.3f}", f"{size:.0f}"]
                row(name, f"{share:.0%}", kind, *cells, f"{cpu:.1f}")
