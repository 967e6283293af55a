"""Coverage where rows repeat, over all new rows and within known and new inputs.

Worlds of two kinds.  In the first, rows are independent draws from a law in which some inputs are
common, and new rows have them, too.  In the second, distinct rows were repeated afterwards, and new
rows never are.  For each world, method and coverage: the share of new rows inside intervals, over
all rows, at inputs of the rows that trained, and at others, with standard errors over draws.  Cells
that fall short of the coverage by more than three standard errors are marked as in ``hostile``.
Widths are medians at 90 %.  The methods are those of ``calibration=``, with the model ``--base``;
``default`` is everything as it is without a setting.
"""

from collections.abc import Callable, Sequence
from csv import writer
from pathlib import Path
from typing import Any

import numpy as np
import torch

from sharpgp import SharpGPRegressor
from sharpgp_benchmarks.evidence.hostile import Draw, concerns, heard
from sharpgp_benchmarks.evidence.run import header, measured, row

METHODS = ("exact", "cv", "default")
COVERAGES = (0.8, 0.9, 0.95, 0.99)
N_TEST = 1500
CLASSES = ("all", "seen", "new")
COLUMNS = ["data", "method", "rows", "coverage", "covered", "error", "draws", "mark", "width"]


def _wave(X: np.ndarray) -> np.ndarray:
    return np.sin(2.0 * X[:, 0]) + X[:, 1]


def _plain(rng: np.random.Generator, n: int) -> tuple[np.ndarray, np.ndarray]:
    X = rng.uniform(-2.0, 2.0, (n, 2))
    return X, _wave(X) + 0.3 * rng.normal(size=n)


def _atoms(
    k: int, share: float, noise: float, power: float = 0.0, n: int = 200
) -> Callable[[np.random.Generator], Draw]:
    """Rows of which a share has one of ``k`` inputs, whose targets are unlike the rest."""

    def draw(rng: np.random.Generator) -> Draw:
        inputs = rng.uniform(-2.0, 2.0, (k, 2))
        targets = _wave(inputs) + rng.normal(size=k)
        frequency = 1.0 / np.arange(1, k + 1) ** power
        X, y = _plain(rng, n + N_TEST)
        which = rng.choice(k, len(y), p=frequency / frequency.sum())
        common = rng.random(len(y)) < share
        X[common] = inputs[which[common]]
        y[common] = targets[which[common]] + noise * rng.normal(size=common.sum())
        return Draw(X[:n], y[:n], X[n:], y[n:])

    return draw


def _discrete(rng: np.random.Generator) -> Draw:
    """Four features with four values each, an effect of every combination."""
    frequency = 1.0 / np.arange(1, 5) ** 0.5
    X = rng.choice(4, (200 + N_TEST, 4), p=frequency / frequency.sum())
    effects, cells = 0.7 * rng.normal(size=(4, 4)), 0.7 * rng.normal(size=256)
    y = effects[np.arange(4), X].sum(1) + cells[X @ [64, 16, 4, 1]] + 0.3 * rng.normal(size=len(X))
    X = X.astype(float)
    return Draw(X[:200], y[:200], X[200:], y[200:])


def _few_copies(rng: np.random.Generator) -> Draw:
    """A tenth of the rows repeat others; targets in steps of a half."""
    X = rng.uniform(-2.0, 2.0, (900, 2))
    y = np.round(2.0 * (_wave(X) + 0.5 * rng.normal(size=900))) / 2.0
    old, new = rng.integers(0, 900, 200), rng.integers(0, 900, N_TEST)
    return Draw(X[old], y[old], X[new], y[new])


def _with_replacement(rng: np.random.Generator, *, fresh: bool) -> Draw:
    X, y = _plain(rng, 130)
    old, new = rng.integers(0, 130, 200), rng.integers(0, 130, N_TEST)
    return Draw(X[old], y[old], *(_plain(rng, N_TEST) if fresh else (X[new], y[new])))


def _repeated(rng: np.random.Generator) -> Draw:
    X, y = _plain(rng, 70)
    return Draw(np.repeat(X, 3, 0), np.repeat(y, 3), *_plain(rng, N_TEST))


def _half_twice(rng: np.random.Generator) -> Draw:
    X, y = _plain(rng, 130)
    return Draw(np.r_[X, X[:65]], np.r_[y, y[:65]], *_plain(rng, N_TEST))


def _replicates(rng: np.random.Generator) -> Draw:
    """Fifty inputs with four measurements each and an effect of the input; new inputs follow."""
    X = rng.uniform(-2.0, 2.0, (50 + N_TEST, 2))
    y = _wave(X) + 0.5 * rng.normal(size=len(X))
    X_old, y_old = np.repeat(X[:50], 4, 0), np.repeat(y[:50], 4) + 0.3 * rng.normal(size=200)
    return Draw(X_old, y_old, X[50:], y[50:] + 0.3 * rng.normal(size=N_TEST))


WORLDS: dict[str, Callable[[np.random.Generator], Draw]] = {
    "atoms, equal y": _atoms(20, 0.45, 0.0),
    "atoms, noisy y": _atoms(20, 0.45, 0.15),
    "atoms, equal y, 400 rows": _atoms(20, 0.45, 0.0, n=400),
    "light atoms, equal y": _atoms(150, 0.6, 0.0, power=0.7),
    "light atoms, noisy y": _atoms(150, 0.6, 0.3, power=0.7),
    "discrete features": _discrete,
    "few copies": _few_copies,
    "with replacement": lambda rng: _with_replacement(rng, fresh=False),
    "with replacement, fresh rows": lambda rng: _with_replacement(rng, fresh=True),
    "np.repeat": _repeated,
    "half of the rows twice": _half_twice,
    "replicates with an effect": _replicates,
}


def answers(world: str, method: str, seed: int, base: str) -> dict[str, Any]:
    """Fit to a draw and judge the intervals by new rows.

    Gives shares inside [class, coverage], whether each coverage was warned of, median widths of the
    classes at 90 %, and the mean CRPS of all rows.
    """
    data = WORLDS[world](np.random.default_rng([seed, list(WORLDS).index(world)]))
    with heard() as at_fit:
        chosen = {} if method == "default" else {"base": base, "calibration": method}
        model = SharpGPRegressor(random_state=seed, **chosen)
        model.fit(data.X, data.y)
    known = getattr(model.calibrated_, "known", None)
    seen = np.zeros(N_TEST, dtype=bool)
    if known is not None:
        seen = known.find(torch.from_numpy(data.X_new)).numpy() >= 0
    rows = {"all": np.ones(N_TEST, dtype=bool), "seen": seen, "new": ~seen}
    covered = np.full((len(CLASSES), len(COVERAGES)), np.nan)
    warned = np.zeros(len(COVERAGES), dtype=bool)
    widths = np.full(len(CLASSES), np.nan)
    for k, c in enumerate(COVERAGES):
        with heard() as at_answer:
            lower, upper = model.predict_interval(data.X_new, c).T
        warned[k] = any(concerns(message, c) for message in at_fit + at_answer)
        inside = (lower <= data.y_new) & (data.y_new <= upper)
        for j, name in enumerate(CLASSES):
            if rows[name].any():
                covered[j, k] = inside[rows[name]].mean()
                if c == 0.9:
                    widths[j] = np.median((upper - lower)[rows[name]])
    crps = float(np.mean(model.predict_dist(data.X_new).crps(data.y_new)))
    return {"covered": covered, "warned": warned, "widths": widths, "crps": crps}


def main(
    repeats: int = 24,
    processes: int = 2,
    base: str = "rbf",
    worlds: str = ";".join(WORLDS),
    methods: str = ",".join(METHODS),
    csv: Path | None = None,
) -> None:
    """Print the table and count the cells that fall short; ``--csv`` writes a row for each."""
    cases = [(world, method) for world in worlds.split(";") for method in methods.split(",")]
    tasks = [(*case, seed) for case in cases for seed in range(repeats)]
    found = measured(answers, [(*task, base) for task in tasks], workers=processes)
    header("data", "method", "rows", *(f"{c:.0%}" for c in COVERAGES), "width", "CRPS")
    lines: list[list[Any]] = []
    short = {"w": 0, "!": 0}
    for i, (world, method) in enumerate(cases):
        own = found[i * repeats : (i + 1) * repeats]
        said = np.array([one["warned"] for one in own]).all(0)
        crps = np.mean([one["crps"] for one in own])
        for j, name in enumerate(CLASSES):
            covered = np.array([one["covered"][j] for one in own])
            covered = covered[~np.isnan(covered[:, 0])]
            if len(covered) < 2 or (name == "new" and not _has_seen(own)):
                continue
            mean, error = covered.mean(0), covered.std(0, ddof=1) / np.sqrt(len(covered))
            width = np.nanmean([one["widths"][j] for one in own])
            cells = []
            for k, c in enumerate(COVERAGES):
                mark = ""
                if mean[k] < c - 3.0 * error[k]:
                    mark = "w" if said[k] else "!"
                    short[mark] += 1
                cells.append(f"{100 * mean[k]:.1f} ± {100 * error[k]:.1f} {mark}".strip())
                lines.append([world, method, name, c, mean[k], error[k], len(covered), mark, width])
            row(world, method, name, *cells, f"{width:.3g}", f"{crps:.4g}")
    print(
        f"\n{len(lines)} cells: {short['w']} short with a warning that concerns them (w), "
        f"{short['!']} without (!)"
    )
    if csv is not None:
        with csv.open("w", encoding="utf-8", newline="") as file:
            writer(file, lineterminator="\n").writerows([COLUMNS, *lines])


def _has_seen(own: Sequence[dict[str, Any]]) -> bool:
    """Whether any new row had a known input; else all rows are new."""
    return any(not np.isnan(one["covered"][1][0]) for one in own)
