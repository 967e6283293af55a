"""Tables with columns of categories, kept as text: what users bring, rather than clean numbers."""

from collections.abc import Callable
from typing import Any

import numpy as np

from sharpgp_benchmarks import datasets
from sharpgp_benchmarks.extra_sets import table

#: A data frame and its target.
Frame = tuple[Any, np.ndarray]


def load(name: str, data_home: str | None = None) -> Frame:
    """A frame with categories as text, and its target in standard deviations."""
    frame, y = SETS[name](data_home)
    y = np.asarray(y, dtype=np.float64)
    return frame, (y - y.mean()) / y.std()


def with_gaps(frame: Any, share: float, seed: int) -> Any:
    """The frame without a share of its values."""
    rng = np.random.default_rng(seed)
    out = frame.copy()
    for column in out.columns:
        out[column] = out[column].mask(rng.random(len(out)) < share)
    return out


def of_benchmark(name: str, categories: tuple[str, ...], data_home: str | None) -> Frame:
    """A set of the benchmark, with some of its numbers as categories."""
    import pandas as pd

    data = datasets.load(name, data_home)
    frame = pd.DataFrame(data.X, columns=list(data.feature_names))
    return as_text(frame, *categories), data.y


def as_text(frame: Any, *columns: str) -> Any:
    """The same frame, with the numbers of some columns as text that is no number."""
    return frame.assign(**{name: [f"{value:g}!" for value in frame[name]] for name in columns})


def bikes(_: str | None) -> Frame:
    """Bicycles hired in a day: season, month, weekday and weather are categories."""
    frame = table("boom_bikes/day.csv")
    used = frame.drop(columns=["instant", "dteday", "casual", "registered", "cnt"])
    return as_text(used, "season", "mnth", "weekday", "weathersit"), frame["cnt"].to_numpy()


def insurance(_: str | None) -> Frame:
    """Charges of a health insurance: sex, smoker and region are categories."""
    frame = table("insurance/insurance.csv")
    return frame.drop(columns="charges"), frame["charges"].to_numpy()


def servo(_: str | None) -> Frame:
    """Rise time of a servomechanism: motor and screw are categories."""
    frame = table("servo/servo.data", header=None)
    frame.columns = ["motor", "screw", "proportional", "velocity", "time"]
    return frame.drop(columns="time"), frame["time"].to_numpy()


def shop(_: str | None) -> Frame:
    """Made: sales of thirty shops that differ, by price and by kind of day."""
    import pandas as pd

    n, rng = 500, np.random.default_rng(1)
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


SETS: dict[str, Callable[[str | None], Frame]] = {
    "servo": servo,
    "mpg": lambda home: of_benchmark("mpg", ("cylinders", "origin"), home),
    "boston": lambda home: of_benchmark("boston", ("rad", "chas"), home),
    "shop": shop,
    "bikes": bikes,
    "insurance": insurance,
}
