"""Engines that visit units of rows: threads of this machine, ray or dask.

Answers come in the order of the units, and few wait in memory at a time.  The engine's own retries
move the units of a lost worker to others.
"""

import logging
import os
import re
import socket
import warnings
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

from sharpgp._extras import need
from sharpgp._validation import as_count, check_choice
from sharpgp.exceptions import InvalidInputError, SharpGPError
from sharpgp.tabular.sources import Unit, joined_dask

ENGINES = ("local", "ray", "dask")
# How often a unit is tried again elsewhere after its worker is lost.
_RETRIES = 5
# Units queued for each worker, so that it need not wait.
_AHEAD = 2

#: The answers of ``visit(unit)`` for all units, in their order.
Visitors = Callable[[Callable[[Unit], Any], Iterable[Unit]], Iterator[Any]]


@contextmanager
def visitors(engine: str, *, workers: int | None, address: str | None) -> Iterator[Visitors]:
    """The function that visits units; see :func:`sharpgp.tabular.fit_files` for the settings."""
    check_choice(engine, "engine", ENGINES)
    if workers is not None:
        as_count(workers, "workers", least=1)
    if engine == "local" and address is not None:
        raise InvalidInputError(
            f"address: expected none with the engine local, found {address!r}; choose the engine "
            "ray or dask"
        )
    if engine == "local" and workers in (None, 1):
        yield map
        return
    engines: dict[str, Any] = {"local": _local, "ray": _ray, "dask": _dask}
    with engines[engine](workers, address) as (share, submit, cores):

        def visit_all(visit: Callable[[Unit], Any], units: Iterable[Unit]) -> Iterator[Any]:
            held = share(visit)

            def send(unit: Unit) -> Any:
                return submit(held, replace(unit, rows=None), unit.rows)

            return _checked(engine, in_order(send, units, cores))

        yield visit_all


# Each engine gives: a function that shares what visits units, one that submits it, a unit and its
# rows, for a future, and the number of its workers.


@contextmanager
def _local(workers: int, _: str | None) -> Iterator[Any]:
    with ThreadPoolExecutor(workers) as pool:
        try:
            yield _itself, lambda *given: pool.submit(visited, *given), workers
        finally:
            pool.shutdown(cancel_futures=True)


@contextmanager
def _ray(workers: int | None, address: str | None) -> Iterator[Any]:
    with ray_cluster(address, workers) as cores:
        import ray

        task: Any = ray.remote(num_cpus=1, max_retries=_RETRIES)(_visited_alone)
        yield ray.put, lambda *given: task.remote(*given).future(), cores


@contextmanager
def _dask(workers: int | None, address: str | None) -> Iterator[Any]:
    import torch

    # A local cluster sets an environment of one thread, which torch reads on first use, and workers
    # may be threads of this process.  The driver's own work may use all threads.
    threads = torch.get_num_threads()
    with dask_cluster(address, workers) as (client, cores):
        from dask import delayed

        torch.set_num_threads(threads)

        def share(visit: Any) -> Any:
            # The answer of a task is made again if all workers that held it are lost.
            with warnings.catch_warnings(action="ignore", category=UserWarning):  # of large models
                return client.submit(_itself, visit, pure=False)

        def submit(*given: Any) -> Any:
            return client.compute(delayed(_visited_alone, pure=False)(*given), retries=_RETRIES)

        try:
            yield share, submit, cores
        finally:
            torch.set_num_threads(threads)


def _itself(given: Any) -> Any:
    return given


def visited(visit: Callable[[Unit], Any], unit: Unit, rows: Any) -> Any:
    """``visit(unit)`` with these rows; the library's own errors are returned as answers."""
    try:
        return visit(replace(unit, rows=rows))
    except SharpGPError as error:
        return error


def _visited_alone(visit: Callable[[Unit], Any], unit: Unit, rows: Any) -> Any:
    import torch

    torch.set_num_threads(1)  # one worker per core
    return visited(visit, unit, rows)


def in_order(send: Callable[[Unit], Any], units: Iterable[Unit], workers: int) -> Iterator[Any]:
    """The results of the futures that ``send`` gives, few of which wait at a time."""
    waiting: deque[Any] = deque()
    for unit in units:
        waiting.append(send(unit))
        if len(waiting) >= _AHEAD * workers:
            yield waiting.popleft().result()
    while waiting:
        yield waiting.popleft().result()


def _checked(engine: str, answers: Iterator[Any]) -> Iterator[Any]:
    """Answers, of which errors are raised; failures of a cluster become one-line errors."""
    try:
        for answer in answers:
            if isinstance(answer, SharpGPError):
                raise answer
            yield answer
    except Exception as error:
        if engine == "local" or isinstance(error, SharpGPError):
            raise
        reason = [type(error).__name__, *str(error).strip().splitlines()][-1]
        found = f"engine {engine}: expected answers for all rows, found: {reason}"
        raise SharpGPError(found) from error


@contextmanager
def ray_cluster(address: str | None, workers: int | None) -> Iterator[int]:
    """Join a ray cluster, or without an address start one here; gives the workers to use.

    A cluster that the caller has already joined is used, and not left at the end.
    """
    need("ray", "ray")
    import ray

    mine = not ray.is_initialized()
    if mine:
        own: dict[str, Any] = {} if address else {"num_cpus": workers, "include_dashboard": False}
        with joining("ray", address):
            ray.init(address=address, logging_level=logging.ERROR, log_to_driver=False, **own)
    try:
        cores = int(ray.cluster_resources().get("CPU", 1))
        yield min(workers or cores, cores)
    finally:
        if mine:
            ray.shutdown()


@contextmanager
def dask_cluster(address: str | None, workers: int | None) -> Iterator[tuple[Any, int]]:
    """The same for dask: client and workers."""
    need("dask", "dask", "distributed")
    from distributed import Client

    own: dict[str, Any] = {
        "n_workers": workers or os.cpu_count(),
        "threads_per_worker": 1,
        "dashboard_address": None,
        "silence_logs": logging.ERROR,
    }
    joined = joined_dask() if address is None else None
    with joining("dask", address):
        client = joined or (Client(address, timeout=30) if address else Client(**own))
    try:
        cores = max(1, sum(client.nthreads().values()))
        yield client, min(workers or cores, cores)
    finally:
        if joined is None:
            client.close()


@contextmanager
def joining(engine: str, address: str | None) -> Iterator[None]:
    """One-line errors about a cluster that cannot be joined, or where nothing listens."""
    try:
        found = re.fullmatch(r"(?:\w+://)?([^:/]+):(\d+)/?", address or "")
        if found is not None:  # ray itself would try for minutes
            socket.create_connection((found[1], int(found[2])), timeout=10).close()
        yield
    except (OSError, RuntimeError, ValueError) as error:
        reason = (str(error) or type(error).__name__).splitlines()[0]
        raise SharpGPError(
            f"engine {engine}: expected a cluster at {address or 'this machine'}, found: {reason}"
        ) from None
