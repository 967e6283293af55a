"""Where batches of tasks run: processes of this machine, ray or dask, by joblib's own backends."""

from collections.abc import Callable, Iterable, Iterator
from contextlib import AbstractContextManager, contextmanager
from itertools import islice
from typing import Any

import joblib

from sharpgp._extras import need
from sharpgp._validation import check_choice
from sharpgp.exceptions import InvalidInputError
from sharpgp.tabular.cluster import dask_cluster, ray_cluster

#: Makes answers of jobs, in any order.
Pool = Callable[[Iterable[Any]], Iterator[Any]]
#: Jobs per worker between two looks at what ray has done: its backend answers all at once.
_ROUND = 8


def open_pool(
    engine: str,
    *,
    workers: int | None = None,
    threads: int = 1,
    address: str | None = None,
    initializer: Callable[[int], None] | None = None,
) -> AbstractContextManager[tuple[int, Pool]]:
    """Context manager that gives the number of workers, and the function that runs jobs on them.

    Examples
    --------
    >>> with open_pool("local", workers=1) as (workers, answers):
    ...     sorted(answers(joblib.delayed(abs)(x) for x in (-2, 1)))
    [1, 2]
    """
    check_choice(engine, "engine", ENGINES)
    for setting, value in {"workers": workers, "threads": threads}.items():
        if value is not None and value < 1:
            raise InvalidInputError(f"{setting}: expected at least 1, found {value}")
    if engine == "local":
        if address is not None:
            raise InvalidInputError(
                f"address: expected none with the engine local, found {address!r}; "
                "choose the engine ray or dask"
            )
        return _local(workers or max(1, joblib.cpu_count() // threads), threads, initializer)
    need(engine, *{"ray": ["ray"], "dask": ["dask", "distributed"]}[engine])
    return {"ray": _ray, "dask": _dask}[engine](workers, threads, address)


ENGINES = ("local", "ray", "dask")


@contextmanager
def _local(
    workers: int, threads: int, initializer: Callable[[int], None] | None
) -> Iterator[tuple[int, Pool]]:
    start = {} if initializer is None else {"initializer": initializer, "initargs": (threads,)}
    with joblib.parallel_config(backend="loky", inner_max_num_threads=threads, **start):
        yield workers, _as_they_come(workers)


@contextmanager
def _ray(workers: int | None, threads: int, address: str | None) -> Iterator[tuple[int, Pool]]:
    from ray.util.joblib import register_ray

    register_ray()
    with ray_cluster(address, workers) as found, joblib.parallel_config(backend="ray"):
        yield found, _in_rounds(found)


@contextmanager
def _dask(workers: int | None, threads: int, address: str | None) -> Iterator[tuple[int, Pool]]:
    own = workers or max(1, joblib.cpu_count() // threads)
    joined = dask_cluster(address, workers if address else own)
    with joined as (_, found), joblib.parallel_config(backend="dask"):
        yield found, _as_they_come(found)


def _as_they_come(workers: int) -> Pool:
    # joblib sends short jobs several at a time, and those of a second and more one by one.
    return joblib.Parallel(
        n_jobs=workers, return_as="generator_unordered", pre_dispatch=2 * workers
    )


def _in_rounds(workers: int) -> Pool:
    def answers(jobs: Iterable[Any]) -> Iterator[Any]:
        left = iter(jobs)
        while batch := list(islice(left, _ROUND * workers)):
            # With one job at a time, joblib would not ask the cluster.
            yield from joblib.Parallel(n_jobs=max(2, workers))(batch)

    return answers
