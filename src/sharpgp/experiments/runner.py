"""Runs tasks on any engine: resumable, whatever stops it, and past tasks and workers that fail."""

import gc
import itertools
import logging
import multiprocessing
import os
import signal
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any

import joblib

from sharpgp.exceptions import SharpGPError
from sharpgp.experiments.engines import Engine, make_engine
from sharpgp.experiments.store import Store
from sharpgp.experiments.task import Result, Task, find_experiment, perform

logger = logging.getLogger("sharpgp")

#: Tasks done, tasks to do, and how many of the done ones failed.
Progress = Callable[[int, int, int], None]
#: Methods that take minutes: each such task is a batch of its own, and starts first.
SLOW = ("fully_bayesian", "capone22")
#: How often all workers may die without a trace of the task that did it.
_MOST_DEATHS = 3
_DIED = "WorkerDied: the process that computed this task ended (out of memory, or a crash)"


@dataclass(frozen=True)
class Summary:
    """What a run did: tasks asked for, computed now, and failed (now or before)."""

    tasks: int
    computed: int
    failed: int


def run(
    tasks: Iterable[Task],
    out: str | Path,
    *,
    engine: str = "local",
    workers: int | None = None,
    threads: int = 1,
    address: str | None = None,
    retry_failed: bool = False,
    context: Mapping[str, Any] | None = None,
    progress: Progress | None = None,
) -> Summary:
    """Compute those tasks that have no result in the folder ``out`` yet.

    Every result is written as soon as it is there, so that whatever ends the run costs no more
    than the tasks in flight; the same call then goes on with what is missing.  A task that fails
    is recorded with its error; one that takes its worker down is, too, after another attempt in
    the pool and one with a worker of its own.

    Parameters
    ----------
    tasks : iterable of Task
    out : path
        Folder of results, made if it is not there.  Workers on other machines write there
        themselves where they see it; otherwise their answers are written here.
    engine : {"local", "ray", "dask"}
    workers : int, optional
        Tasks at a time; without it, one per core.
    threads : int
        Of each worker.  More than one can change the last digits of a result.
    address : str, optional
        Of a running ray or dask cluster.
    retry_failed : bool
        Compute those tasks again that have failed before.
    context : mapping, optional
        Passed to the experiment; says where things are and where to compute, and changes no
        result beyond rounding.
    progress : callable, optional
        Told of every step.

    Examples
    --------
    >>> import tempfile
    >>> tasks = [Task("rehearsal", "none", "draw", seed) for seed in range(3)]
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     first = run(tasks, folder, workers=1)
    ...     again = run(tasks, folder, workers=1)
    >>> first.computed, again.computed
    (3, 0)
    """
    unique = list({task.key: task for task in tasks}.values())
    for experiment in {task.experiment for task in unique}:
        find_experiment(experiment)
    chosen = make_engine(engine, workers=workers, address=address, threads=threads)
    store = Store(out).prepare()
    pending, failed = [], 0
    for task in unique:
        known = store.read(task)
        if known is None or (known.status == "failed" and retry_failed):
            pending.append(task)
        else:
            failed += known.status == "failed"
    sweep = _Sweep(store, chosen, dict(context or {}), progress, pending)
    store.take_notes()  # of a run that was killed
    sweep.run()
    store.take_notes()
    return Summary(len(unique), len(pending), failed + sweep.failed)


class _Sweep:
    """One pass over tasks, with as many pools as it takes."""

    def __init__(
        self,
        store: Store,
        engine: Engine,
        context: dict[str, Any],
        progress: Progress | None,
        pending: Sequence[Task],
    ) -> None:
        self.store, self.engine, self.context = store, engine, context
        self.progress = progress or (lambda done, total, failed: None)
        self.left = {task.key: task for task in pending}
        self.total, self.failed = len(pending), 0
        #: How often each task was in flight when a worker died.
        self.suspected: Counter[str] = Counter()

    def run(self) -> None:
        deaths = 0
        self.progress(0, self.total, 0)
        while self.left:
            try:
                self._compute(list(self.left.values()))
            except self.engine.deaths as error:
                logger.warning("a worker died; going on with a new pool (%s)", _first_line(error))
                deaths += not self._examine()
                if deaths >= _MOST_DEATHS:
                    raise SharpGPError(
                        f"workers died {deaths} times ({_first_line(error)}) with {len(self.left)} "
                        "tasks to go; the same command goes on from here"
                    ) from error

    def _compute(self, tasks: Sequence[Task]) -> None:
        with self.engine.open() as (workers, answers):
            jobs = (
                joblib.delayed(work)(batch, self.store.folder, self.context, self.engine.threads)
                for batch in make_batches(tasks, workers)
            )
            for results, written in answers(jobs):
                for result in results:
                    self._receive(result, written)

    def _receive(self, result: Result, written: bool) -> None:
        if self.left.pop(result.task.key, None) is None:
            return
        if not written:
            self.store.write(result)
        self.failed += result.status == "failed"
        self.progress(self.total - len(self.left), self.total, self.failed)

    def _examine(self) -> bool:
        """Take what was finished before a death; what was in flight twice is tried alone.

        Returns whether anything was in flight.
        """
        time.sleep(self.engine.pauses[0])
        noted, suspects = self.store.take_notes(), []
        for task in list(self.left.values()):
            if (result := self.store.read(task)) and result.status == "ok":
                self._receive(result, written=True)
            elif task.key in noted:
                suspects.append(task)
        self.suspected.update(task.key for task in suspects)
        for task in suspects:
            if self.suspected[task.key] > 1:
                self._try_alone(task)
        return bool(suspects)

    def _try_alone(self, task: Task) -> None:
        for pause in self.engine.pauses:
            time.sleep(pause)
            try:
                self._compute([task])
                return
            except self.engine.deaths:
                continue
        self._receive(Result(task, "failed", error=_DIED), written=False)


def make_batches(tasks: Sequence[Task], workers: int) -> list[list[Task]]:
    """Tasks that share a base model together, slow ones alone and first; enough for all workers.

    Examples
    --------
    >>> tasks = [Task("regression", "boston", m, s) for s in (0, 1) for m in ("paper", "exact")]
    >>> [len(batch) for batch in make_batches(tasks, workers=2)]
    [2, 2]
    >>> [len(batch) for batch in make_batches(tasks, workers=4)]
    [1, 1, 1, 1]
    """
    slow = [[task] for task in tasks if task.method in SLOW]
    groups: dict[tuple[str, str, int, str], list[Task]] = {}
    for task in tasks:
        if task.method not in SLOW:
            groups.setdefault(task.group, []).append(task)
    batches = list(groups.values())
    while len(slow) + len(batches) < workers and any(len(batch) > 1 for batch in batches):
        longest = max(batches, key=len)
        batches.remove(longest)
        half = len(longest) // 2
        batches += [longest[:half], longest[half:]]
    return list(itertools.chain(slow, batches))


# A dask worker may have several threads, but torch and the cached base model are for one.
_busy = threading.Lock()


def work(
    tasks: Sequence[Task], folder: Path, context: dict[str, Any], threads: int
) -> tuple[list[Result], bool]:
    """Compute a batch in a worker, writing each result at once where the folder can be seen.

    Returns
    -------
    results : list of Result
    written : bool
        Whether the folder could be seen.
    """
    with _busy:
        settle(threads)
        store, results = Store(folder), []
        shared = store.present
        for task in tasks:
            if shared:
                store.note(task)
            result = perform(task, context)
            if shared:
                store.write(result)
            results.append(result)
    return results, shared


@lru_cache(maxsize=1)
def settle(threads: int) -> None:
    """Prepare a worker, once: keep it, and libraries that it has yet to load, to some threads."""
    import torch
    from threadpoolctl import threadpool_limits

    for variable in ("OMP", "MKL", "OPENBLAS"):
        os.environ[f"{variable}_NUM_THREADS"] = str(threads)
    os.environ.setdefault("NPROC", str(threads))  # of XLA, which jax runs on
    torch.set_num_threads(threads)
    threadpool_limits(threads)
    gc.freeze()  # loky collects garbage every second; what is loaded by now is none
    started = multiprocessing.current_process().name != "MainProcess"
    if started and threading.current_thread() is threading.main_thread():
        # ctrl-C reaches every process of a terminal; the one that started this one answers it.
        signal.signal(signal.SIGINT, signal.SIG_IGN)


def _first_line(error: BaseException) -> str:
    text = str(error).strip().splitlines()
    return text[0] if text else type(error).__name__
