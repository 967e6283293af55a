"""Damaged files: tables, models and results are read, or refused in one line."""

import gzip
import tempfile
import traceback
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np

from helpers import method, wavy
from random_models import damaged, forged
from sharpgp import SharpGPError, SharpGPRegressor
from sharpgp.tabular.models import read_whole
from sharpgp_benchmarks import datasets
from sharpgp_benchmarks.run import run
from sharpgp_benchmarks.store import Store
from sharpgp_benchmarks.task import Task

Step = tuple[str, Callable[[], Any]]

#: Things that people and programs put into a table.
CELLS = (
    *("", " ", "NA", "nan", "inf", "-inf", "1e999", "1,5", "0x10", "١٢", "1_000", '"', '""', "a"),
    *(
        "\x00",
        "\ufeff1",
        "1\r2",
        "'1'",
        "=1+1",
        "TRUE",
        "2020-01-01",
        "9" * 400,
        "-",
        "+",
        "1e",
        ".",
    ),
)


def broken_table(rng: np.random.Generator) -> bytes:
    """A numeric CSV file with one to three faults."""
    X, y = wavy(int(rng.integers(1, 30)), seed=int(rng.integers(1000)))
    rows = [[f"{v:.6g}" for v in row] for row in np.column_stack([X, y])]
    lines = [["a", "b", "target"], *rows]
    for _ in range(rng.integers(1, 4)):
        line = lines[rng.integers(len(lines))] if lines else []
        fault = rng.integers(9)
        if fault <= 3 and line:
            line[rng.integers(len(line))] = CELLS[rng.integers(len(CELLS))]
        elif fault == 4 and line:
            del line[rng.integers(len(line))]
        elif fault == 5:
            line.append("1")
        elif fault == 6 and lines:
            del lines[rng.integers(len(lines))]
        elif fault == 7:
            lines.insert(int(rng.integers(len(lines) + 1)), [])
        else:
            lines = lines[:1] if rng.random() < 0.3 else [list(map(str.strip, r)) for r in lines]
    end = ["\n", "\r\n", "\r"][rng.integers(3)]
    text = end.join(",".join(line) for line in lines)
    data = text.encode(["utf-8", "utf-16", "latin-1"][rng.integers(3)], errors="replace")
    return damaged(data, rng) if data and rng.random() < 0.3 else data


def tables(count: int, seed: int) -> Iterator[Step]:
    """The reader of benchmark sets and the one of the command line, on the same broken tables."""
    rng = np.random.default_rng([seed, 1])
    with tempfile.TemporaryDirectory() as folder:
        for number in range(count):
            data = broken_table(rng)
            packed = rng.random() < 0.2
            file = Path(folder) / ("yacht.csv.gz" if packed else "yacht.csv")
            content = gzip.compress(data) if packed else data
            if packed and rng.random() < 0.5:
                content = damaged(content, rng)
            file.write_bytes(content)
            yield f"table {number}: datasets", lambda: _checked_set(Path(folder))
            yield f"table {number}: tables", lambda f=file: read_whole(f)
            file.unlink()


def _checked_set(folder: Path) -> None:
    data = datasets.load("yacht", folder)
    assert np.isfinite(data.X).all(), "a set with values that are not finite"
    assert np.isfinite(data.y).all(), "a target that is not finite"


def models(count: int, seed: int) -> Iterator[Step]:
    """Models with random damage, and with values changed under a checksum that is right."""
    rng = np.random.default_rng([seed, 2])
    X, y = wavy(30)
    with tempfile.TemporaryDirectory() as folder, warnings.catch_warnings():
        warnings.simplefilter("ignore")
        files = []
        for name in ("kuleshov18", "exact", "cv", "paper", "vovk20"):
            file = Path(folder) / f"{name}.sgp"
            model = SharpGPRegressor(base="rbf", calibration=method(name), random_state=0)
            model.fit(X, y).save(file)
            files.append(file.read_bytes())
        for number in range(count):
            change = damaged if number % 2 else forged
            file = Path(folder) / "changed.sgp"
            file.write_bytes(change(files[rng.integers(len(files))], rng))
            yield f"model {number}: {change.__name__}", lambda f=file: _ask(f, X)


def _ask(file: Path, X: np.ndarray) -> None:
    ends = SharpGPRegressor.load(file).predict_interval(X[:3], 0.5)
    assert not np.isnan(ends).any(), "NaN from a model that was loaded"


def results(count: int, seed: int) -> Iterator[Step]:
    """Results with random damage: each is found, and computed again to the same numbers."""
    rng = np.random.default_rng([seed, 3])
    tasks = [Task("rehearsal", "none", "draw", s) for s in range(20)]
    with tempfile.TemporaryDirectory() as folder:
        run(tasks, folder, workers=1)
        store = Store(folder)
        whole = {task.key: store.read(task) for task in tasks}
        for number in range(count):
            task = tasks[rng.integers(len(tasks))]
            file = Path(folder) / f"{task.key}.json"
            good = file.read_bytes()
            file.write_bytes(damaged(good, rng))
            yield f"result {number}", lambda t=task: _found(store, t, whole[t.key])
            file.write_bytes(good)


def _found(store: Store, task: Task, right: Any) -> None:
    read = store.read(task)
    assert read is None or read == right, "a damaged result was taken for a good one"


def judge(step: Step) -> tuple[bool, str | None]:
    """Whether the file was refused, and what is wrong if anything is."""
    name, call = step
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            call()
        except SharpGPError as error:
            several = "\n" in str(error)
            return True, f"{name}: an error of several lines: {error!r}" if several else None
        except Exception as error:
            place = traceback.extract_tb(error.__traceback__)[-1]
            text = f"{type(error).__name__}: {error}".splitlines()[0]
            return True, f"{name}: {text} ({place.filename}:{place.lineno})"
    return False, None
