"""Runs tasks on any engine; whatever stops a run, the same call goes on with what is missing."""

import multiprocessing
import os
import signal
import threading
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any

import joblib

from sharpgp.exceptions import SharpGPError
from sharpgp_benchmarks.engines import open_pool
from sharpgp_benchmarks.store import Store
from sharpgp_benchmarks.task import Result, Task, find_experiment, perform

#: Tasks done, tasks to do, and how many of the done ones failed.
Progress = Callable[[int, int, int], None]
#: Methods that take minutes: each such task is a batch of its own, and starts first.
SLOW = ("fully_bayesian", "capone22")
#: Experiments whose tasks share nothing: each is a batch of its own, too.
UNSHARED = ("optimisation",)


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

    Every result is written as soon as it is there, so that whatever ends the run, a lost worker
    too, costs no more than the tasks in flight.  A task that fails is recorded with its error.

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
    pool = open_pool(engine, workers=workers, threads=threads, address=address, initializer=prepare)
    store = Store(out).prepare()
    pending, failed = [], 0
    for task in unique:
        known = store.read(task)
        if known is None or (known.status == "failed" and retry_failed):
            pending.append(task)
        else:
            failed += known.status == "failed"
    done = now_failed = 0
    tell = progress or (lambda done, total, failed: None)
    tell(0, len(pending), 0)
    if pending:
        with pool as (workers, answers):
            jobs = (
                joblib.delayed(work)(batch, store.folder, dict(context or {}), threads)
                for batch in make_batches(pending, workers)
            )
            for results, written in _without_tracebacks(answers(jobs)):
                for result in results:
                    if not written:
                        store.write(result)
                    done, now_failed = done + 1, now_failed + (result.status == "failed")
                    tell(done, len(pending), now_failed)
    return Summary(len(unique), len(pending), failed + now_failed)


def _without_tracebacks(answers: Iterable[Any]) -> Iterable[Any]:
    """Answers; a lost worker is an error of one line, whatever the engine calls it."""
    try:
        yield from answers
    except SharpGPError:
        raise
    except Exception as error:
        text = str(error).strip().splitlines()
        raise SharpGPError(
            f"workers: expected answers, found that one was lost "
            f"({type(error).__name__}: {text[0] if text else 'no reason given'}); "
            "finished tasks are kept, and the same command goes on from there"
        ) from error


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
    alone = [task.method in SLOW or task.experiment in UNSHARED for task in tasks]
    slow = [[task] for task, own in zip(tasks, alone, strict=True) if own]
    groups: dict[tuple[str, str, int, str], list[Task]] = {}
    for task, own in zip(tasks, alone, strict=True):
        if not own:
            groups.setdefault(task.group, []).append(task)
    batches = list(groups.values())
    while len(slow) + len(batches) < workers and any(len(batch) > 1 for batch in batches):
        longest = max(batches, key=len)
        batches.remove(longest)
        half = len(longest) // 2
        batches += [longest[:half], longest[half:]]
    return slow + batches


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
        prepare(threads)
        store, results = Store(folder), []
        shared = store.present
        for task in tasks:
            results.append(perform(task, context))
            if shared:
                store.write(results[-1])
    return results, shared


@lru_cache(maxsize=1)
def prepare(threads: int) -> None:
    """Keep a worker, and libraries that it has yet to load, to some threads."""
    started = multiprocessing.current_process().name != "MainProcess"
    if started and threading.current_thread() is threading.main_thread():
        # ctrl-C reaches every process of a terminal; the one that started this one answers it.
        signal.signal(signal.SIGINT, signal.SIG_IGN)
    import torch
    from threadpoolctl import threadpool_limits  # comes with scikit-learn

    for variable in ("OMP", "MKL", "OPENBLAS"):
        os.environ[f"{variable}_NUM_THREADS"] = str(threads)
    os.environ.setdefault("NPROC", str(threads))  # of XLA, which jax runs on
    torch.set_num_threads(threads)
    threadpool_limits(threads)
