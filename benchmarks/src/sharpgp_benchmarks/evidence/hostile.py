"""Coverage on data that are exchangeable and hostile: ties, zeros, copies, groups, heavy tails.

For each kind of data and each method: the share of new points inside the intervals of
``predict_interval`` and of ``predict_dist``, with standard errors over repetitions, against what
was asked for. A cell that falls short by more than three standard errors is marked ``w`` where in
every repetition a warning said so, of that very coverage or of all, and ``!`` otherwise. ``loo``
refuses groups.
"""

import re
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from csv import writer
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from sharpgp import SharpGPRegressor
from sharpgp.exceptions import CalibrationWarning
from sharpgp_benchmarks.evidence.run import header, measured, row

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


def _spectra(n: int, d: int, noise: float = 0.05) -> Callable[[np.random.Generator], Draw]:
    """Spectra of ``d`` correlated wavelengths: four peaks, of which two make the target."""
    t = np.linspace(0.0, 1.0, d)
    places = ((0.2, 0.05), (0.4, 0.1), (0.6, 0.07), (0.8, 0.04))
    peaks = np.stack([np.exp(-(((t - centre) / width) ** 2)) for centre, width in places])

    def draw(rng: np.random.Generator) -> Draw:
        amounts = rng.gamma(2.0, 1.0, (n + N_TEST, 4))
        X = amounts @ peaks + 0.01 * rng.normal(size=(n + N_TEST, d))
        y = 1.5 * amounts[:, 0] - amounts[:, 2] + noise * rng.normal(size=n + N_TEST)
        return Draw(X[:n], y[:n], X[n:], y[n:])

    return draw


def _wide(rng: np.random.Generator) -> Draw:
    """Features that are smooth functions of few hidden ones, and a target without noise."""
    n, kinds = 200 + N_TEST, 6
    kind = rng.integers(0, kinds, n)
    hidden = np.c_[rng.gamma(2.0, 1.0, n), np.eye(kinds)[kind], 0.3 * rng.normal(size=(n, 2))]
    X = np.tanh(0.3 * hidden @ rng.normal(size=(9, 128))) + 0.02 * rng.normal(size=(n, 128))
    y = np.log1p(hidden[:, 0]) * (1.0 + 0.3 * kind) + 0.1 * np.sin(3.0 * hidden[:, 0])
    return Draw(X[:200], y[:200], X[200:], y[200:])


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
    "few spectra": _spectra(50, 100),
    "spectra": _spectra(100, 300),
    "spectra without noise": _spectra(100, 100, noise=0.0),
    "wide": _wide,
}


#: Columns of the file that ``--csv`` writes, and what it says for a mark of the table.
COLUMNS = ["data", "method", "asked", "coverage", "covered", "standard_error", "mark"]
MARKS = {"": "", "w": "short, warned", "!": "short"}


def concerns(message: str, coverage: float) -> bool:
    """Whether a warning says that intervals of this coverage may hold less.

    It names the coverage, or says so of all intervals.

    Examples
    --------
    >>> told = "coverage 0.99 needs at least 99 calibration points, found 39: the answer comes ..."
    >>> concerns(told, 0.99), concerns(told, 0.95)
    (True, False)
    """
    named = [float(number) for number in re.findall(r"\bcoverage (\d*\.?\d+)", message)]
    if named:
        return coverage in named
    return re.search(r"\bintervals\b.*\bcover (much |a few points )?less\b", message) is not None


@contextmanager
def heard() -> Iterator[list[str]]:
    """Collect what the library warns of; the list is full when the block ends."""
    messages: list[str] = []
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always", CalibrationWarning)
        yield messages
    messages += [str(one.message) for one in caught if one.category is CalibrationWarning]


def answers(kind: str, method: str, seed: int, base: str) -> dict[str, np.ndarray]:
    """Fit to a draw, ask every question by itself and judge the answers by new points.

    Gives coverages, and whether a warning concerns each: of intervals, then of the distribution.
    """
    data = KINDS[kind](np.random.default_rng([seed, list(KINDS).index(kind)]))
    with heard() as at_fit:
        model = SharpGPRegressor(base=base, calibration=method, random_state=seed)
        model.fit(data.X, data.y, groups=data.groups)
    dist = model.predict_dist(data.X_new)
    asked = (lambda c: model.predict_interval(data.X_new, c), dist.interval)
    covered, warned = np.empty((2, len(COVERAGES))), np.empty((2, len(COVERAGES)), dtype=bool)
    for i, ask in enumerate(asked):
        for k, c in enumerate(COVERAGES):
            with heard() as at_answer:
                lower, upper = ask(c).T
            covered[i, k] = np.mean((lower <= data.y_new) & (data.y_new <= upper))
            warned[i, k] = any(concerns(message, c) for message in at_fit + at_answer)
    return {"covered": covered, "warned": warned}


def marks(covered: np.ndarray, warned: np.ndarray) -> list[str]:
    """Mark of each coverage, from those [R, K] of the repetitions and whether they were warned of.

    Examples
    --------
    >>> short = np.array([[0.5, 0.7, 0.8, 0.9, 0.9], [0.5, 0.7, 0.8, 0.9, 0.9]])
    >>> marks(short, np.array([[0, 0, 1, 1, 0], [0, 0, 1, 1, 1]], dtype=bool))
    ['', '!', 'w', 'w', '!']
    """
    mean, error = _mean_and_error(covered)
    short = mean < np.array(COVERAGES) - 3.0 * error
    said = warned.all(0)
    return [("w" if s else "!") if bad else "" for bad, s in zip(short, said, strict=True)]


def _mean_and_error(covered: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    return covered.mean(0), covered.std(0, ddof=1) / np.sqrt(len(covered))


def main(
    repeats: int = 24,
    workers: int = 2,
    base: str = "rbf",
    kinds: str = ",".join(KINDS),
    methods: str = ",".join(METHODS),
    csv: Path | None = None,
) -> None:
    """Print the table and how many cells have which mark; ``--csv`` writes a row for each cell."""
    cases = [
        (kind, method)
        for kind in kinds.split(",")
        for method in methods.split(",")
        if (kind, method) != ("groups", "loo")
    ]
    tasks = [(*case, seed) for case in cases for seed in range(repeats)]
    found = measured(answers, [(*task, base) for task in tasks], workers=workers)
    header("data", "method", "asked of", *(f"{c:.0%}" for c in COVERAGES))
    given: list[str] = []
    lines: list[list[object]] = []
    for i, (kind, method) in enumerate(cases):
        own = found[i * repeats : (i + 1) * repeats]
        for part, how in enumerate(("interval", "distribution")):
            covered = np.array([one["covered"][part] for one in own])
            mark = marks(covered, np.array([one["warned"][part] for one in own]))
            given += mark
            judged = list(zip(COVERAGES, *_mean_and_error(covered), mark, strict=True))
            cells = [f"{100 * m:.1f} ± {100 * e:.1f} {sign}".strip() for _, m, e, sign in judged]
            lines += [
                [kind, method, how, c, f"{m:.3f}", f"{e:.3f}", MARKS[sign]]
                for c, m, e, sign in judged
            ]
            row(kind, method, how, *cells)
    if csv is not None:
        with csv.open("w", encoding="utf-8", newline="") as file:
            writer(file, lineterminator="\n").writerows([COLUMNS, *lines])
    print(
        f"\n{len(given)} cells: {given.count('w')} short with a warning that concerns them (w), "
        f"{given.count('!')} without (!)"
    )
