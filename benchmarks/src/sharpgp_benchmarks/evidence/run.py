"""What every study does: measure cases by the one runner, print tables, keep both on request.

A study is a module with a function that measures one case, and a ``main`` that plans cases and
prints tables.  ``sharpgp bench evidence NAME --out FOLDER`` keeps every case, so that the same
command goes on where it stopped, and each table as a CSV file with a line in ``runs.csv`` that says
by which command, where and when it was made.
"""

import math
import platform
import subprocess
import tempfile
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime
from importlib import import_module
from pathlib import Path
from typing import Any

import joblib
import numpy as np
import pandas as pd

import sharpgp
from sharpgp._files import make_folder
from sharpgp.exceptions import SharpGPError
from sharpgp_benchmarks import progress
from sharpgp_benchmarks.evidence.common import without_warnings
from sharpgp_benchmarks.run import run
from sharpgp_benchmarks.store import Store
from sharpgp_benchmarks.task import Outcome, Task

#: File of a folder of results that says how each of the others was made.
RUNS = "runs.csv"


@dataclass
class Study:
    """The study that runs: its name, where results are kept, and its tables so far."""

    name: str
    out: Path | None = None
    tables: list[tuple[tuple[str, ...], list[tuple[object, ...]]]] = field(default_factory=list)


_running = Study("none")


@contextmanager
def recorded(name: str, out: Path | None, command: str) -> Iterator[None]:
    """Keep what a study measures and prints in the folder ``out``, if one is named."""
    global _running
    before, _running = _running, Study(name, out)
    if out is not None:
        make_folder(out)
    try:
        with without_warnings():
            yield
        if out is not None:
            _write(_running, out, command)
    finally:
        _running = before


def out_folder() -> Path | None:
    """Folder that the user has named for results."""
    return _running.out


def measured(
    function: Callable[..., Any], cases: Iterable[Sequence[Any]], *, workers: int = 1
) -> list[Any]:
    """What ``function(*case)`` gives for each case; those that are kept are not computed again.

    Parameters
    ----------
    function : callable
        Of a study's module; gives numbers, or lists and dictionaries of them.
    cases : iterable of sequences
        Arguments: texts, numbers, None, or lists of these.
    workers : int
        Cases at a time.

    Examples
    --------
    >>> from sharpgp_benchmarks.evidence.common import numbers
    >>> measured(numbers, [["1,2"], ["3"]])
    [[1, 2], [3]]
    """
    module, name = function.__module__.rpartition(".")[2], function.__name__
    tasks = [Task("evidence", module, name, 0, {"case": list(case)}) for case in cases]
    with _kept() as folder, progress.bar(True) as shown:
        run(tasks, folder, workers=workers, progress=shown, retry_failed=True)
        results = [Store(folder).read(task) for task in tasks]
    answers = []
    for result in results:
        if result is None or result.status != "ok":
            raise SharpGPError(f"{name}: {'no result' if result is None else result.error}")
        answers.append(_decoded(result.info["answer"]))
    return answers


def run_task(task: Task, context: Mapping[str, Any]) -> Outcome:
    """Measure one case of a study."""
    function = getattr(import_module(f"{__package__}.{task.dataset}"), task.method)
    with without_warnings():
        return Outcome({}, {"answer": _encoded(function(*task.settings["case"]))})


def header(*columns: str) -> None:
    """Begin a Markdown table whose rows are printed as they are known."""
    _running.tables.append((columns, []))
    print(f"| {' | '.join(columns)} |\n|{' --- |' * len(columns)}", flush=True)


def row(*cells: object) -> None:
    """A row of a Markdown table; numbers with four digits."""
    _running.tables[-1][1].append(cells)
    shown = [f"{cell:.4g}" if isinstance(cell, float) else str(cell) for cell in cells]
    print(f"| {' | '.join(shown)} |", flush=True)


def table(title: str, head: Sequence[str], rows: Sequence[Sequence[object]]) -> None:
    """Print a Markdown table."""
    print(f"\n{title}\n")
    header(*head)
    for cells in rows:
        row(*cells)


@contextmanager
def _kept() -> Iterator[Path]:
    if _running.out is not None:
        yield _running.out / f"{_running.name}_cases"
        return
    with tempfile.TemporaryDirectory() as folder:
        yield Path(folder)


def _encoded(value: Any) -> Any:
    """A value for a result file, which holds no NaN."""
    if isinstance(value, np.ndarray | np.generic):
        value = value.tolist()
    if isinstance(value, dict):
        return {key: _encoded(part) for key, part in value.items()}
    if isinstance(value, list | tuple):
        return [_encoded(part) for part in value]
    return None if isinstance(value, float) and math.isnan(value) else value


def _decoded(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _decoded(part) for key, part in value.items()}
    if isinstance(value, list):
        return [_decoded(part) for part in value]
    return math.nan if value is None else value


def _write(study: Study, out: Path, command: str) -> None:
    runs = out / RUNS
    known = pd.read_csv(runs, dtype=str).to_dict("records") if runs.is_file() else []
    for number, (columns, rows) in enumerate(study.tables):
        name = f"{study.name}{f'_{number + 1}' if number else ''}.csv"
        pd.DataFrame(rows, columns=list(columns)).to_csv(out / name, index=False)
        known = [one for one in known if one["file"] != name]
        known.append(
            {
                "file": name,
                "command": command,
                "machine": f"{joblib.cpu_count()} {platform.machine()} cores",
                "date": datetime.now(UTC).date().isoformat(),
                "version": _version(),
            }
        )
    if known:
        pd.DataFrame(known).to_csv(runs, index=False)


def _version() -> str:
    """The version, and in a checkout the revision, which says whether code has changed since."""
    where = Path(sharpgp.__file__).parent
    command = ["git", "describe", "--always", "--dirty"]
    try:
        said = subprocess.run(command, cwd=where, capture_output=True, text=True).stdout.strip()
    except OSError:  # there is no git
        said = ""
    return f"{sharpgp.__version__}+g{said}" if said else sharpgp.__version__
