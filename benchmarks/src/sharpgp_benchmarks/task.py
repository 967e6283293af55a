"""What is to be computed: a task, its key, and the function that computes it."""

import hashlib
import importlib
import json
import math
import time
import warnings
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, fields
from functools import cached_property
from typing import Any

from sharpgp._validation import check_choice
from sharpgp.exceptions import CalibrationWarning, NumericalError

#: Part of every key: raise it when results of the same task are no longer comparable.
#: 2: the paper's method weighs its levels in place of giving each a veto.
SCHEMA = 2

#: Entry of a task's settings that its method gets, and no other.
OF_METHOD = "of_method"

#: Where each experiment's function lives; workers look it up by name, so any engine can.
EXPERIMENTS = {
    "bo": "sharpgp_benchmarks.bo:run_task",
    "bounds": "sharpgp_benchmarks.bounds:run_task",
    "evidence": "sharpgp_benchmarks.evidence.run:run_task",
    "optimisation": "sharpgp_benchmarks.optimisation.experiment:run_task",
    "peers": "sharpgp_benchmarks.peers.experiment:run_task",
    "published": "sharpgp_benchmarks.published_rows:run_task",
    "regression": "sharpgp_benchmarks.regression:run_task",
    "rehearsal": "sharpgp_benchmarks.rehearsal:run_task",
}


@dataclass(frozen=True)
class Task:
    """One computation whose result depends on nothing but these five entries.

    Attributes
    ----------
    experiment : str
        One of :data:`EXPERIMENTS`.
    dataset, method : str
    seed : int
        Of the split, and of whatever the method draws.
    settings : mapping
        Whatever else changes the result; JSON values.

    Examples
    --------
    >>> task = Task("regression", "boston", "kuleshov18", 0, {"base": "trained"})
    >>> task.canonical()
    '{"dataset":"boston","experiment":"regression","method":"kuleshov18","seed":0,...}'
    >>> task.key == Task(**json.loads(task.canonical())).key
    True
    """

    experiment: str
    dataset: str
    method: str
    seed: int
    settings: Mapping[str, Any] = field(default_factory=dict, hash=False)

    def canonical(self) -> str:
        """The task as JSON text, the same for equal tasks."""
        return canonical_json(self.entries())

    def entries(self) -> dict[str, Any]:
        """The five entries by name."""
        return {name: getattr(self, name) for name in _ENTRIES}

    @cached_property
    def key(self) -> str:
        """Name of the result: a hash of the task and of the results' schema."""
        return hashlib.sha256(f"{SCHEMA}\n{self.canonical()}".encode()).hexdigest()[:32]

    @property
    def group(self) -> tuple[str, str, int, str]:
        """Equal for tasks that share data and base model, and are best run by one worker."""
        shared = {name: value for name, value in self.settings.items() if name != OF_METHOD}
        return self.experiment, self.dataset, self.seed, canonical_json(shared)

    @property
    def column(self) -> str:
        """The method, with the settings that it has besides its defaults.

        Examples
        --------
        >>> Task("regression", "boston", "paper", 0, {"of_method": {"effort": 2}}).column
        'paper effort=2'
        """
        own = self.settings.get(OF_METHOD, {})
        return " ".join([self.method, *(f"{name}={_short(own[name])}" for name in sorted(own))])


def _short(value: Any) -> str:
    return "/".join(map(str, value)) if isinstance(value, list | tuple) else str(value)


_ENTRIES = tuple(entry.name for entry in fields(Task))


@dataclass(frozen=True)
class Outcome:
    """What an experiment's function returns: numbers to average, and facts to print as they are."""

    metrics: Mapping[str, float]
    info: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class Result:
    """What is known about a finished task; ``seconds`` never enters a table.

    ``status`` is ``"ok"`` or ``"failed"``; a failed task has an ``error`` and no metrics.
    """

    task: Task
    status: str
    metrics: Mapping[str, float] = field(default_factory=dict)
    info: Mapping[str, Any] = field(default_factory=dict)
    error: str | None = None
    seconds: float = 0.0


def canonical_json(value: Any) -> str:
    """JSON text with sorted keys and no blanks; refuses NaN and infinity."""
    return json.dumps(value, sort_keys=True, separators=(",", ":"), allow_nan=False)


def find_experiment(name: str) -> Callable[[Task, Mapping[str, Any]], Outcome]:
    """Function that computes tasks of an experiment, from its name.

    Examples
    --------
    >>> find_experiment("rehearsal").__module__
    'sharpgp_benchmarks.rehearsal'
    """
    check_choice(name, "experiment", EXPERIMENTS)
    module, function = EXPERIMENTS[name].split(":")
    found: Callable[[Task, Mapping[str, Any]], Outcome] = getattr(
        importlib.import_module(module), function
    )
    return found


def perform(task: Task, context: Mapping[str, Any]) -> Result:
    """Compute a task; whatever goes wrong is a failed result with the error in one line.

    Parameters
    ----------
    task : Task
    context : mapping
        Where to find things on this machine, such as ``data_home``, and the ``device`` to compute
        on: nothing that changes a result beyond rounding.

    Examples
    --------
    >>> perform(Task("rehearsal", "none", "fail", 0), {}).error
    'SharpGPError: this task fails on purpose'
    """
    start = time.perf_counter()
    try:
        with warnings.catch_warnings():
            # Few calibration points show in the ECE floor and in the coverage beside every width.
            warnings.simplefilter("ignore", CalibrationWarning)
            outcome = find_experiment(task.experiment)(task, context)
        metrics = {name: float(value) for name, value in outcome.metrics.items()}
        bad = [name for name, value in metrics.items() if not math.isfinite(value)]
        if bad:
            raise NumericalError(f"expected finite metrics, found {bad[0]} = {metrics[bad[0]]}")
    except Exception as error:  # one task's failure must not stop the others
        text = " ".join(f"{type(error).__name__}: {error}".split())
        return Result(task, "failed", error=text, seconds=time.perf_counter() - start)
    return Result(task, "ok", metrics, outcome.info, seconds=time.perf_counter() - start)
