"""Engines that visit units of rows: threads of this machine, ray or dask.

Answers come in the order of the units, and few wait in memory at a time.  The engine's own retries
move the units of a lost worker to others.
"""

import logging
import os
import re
import socket
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import replace
from typing import Any, TypeVar

import torch

from sharpgp._extras import need
from sharpgp._validation import as_count, check_choice
from sharpgp.exceptions import InvalidInputError, SharpGPError
from sharpgp.tabular.sources import Unit, joined_dask, resolved

ENGINES = ("local", "ray", "dask")
# How often a unit is tried again elsewhere after its worker is lost.
_RETRIES = 5
# Units queued for each worker, so that it need not wait.
_AHEAD = 2

Answer = TypeVar("Answer")
#: The answers of ``visit(unit)`` for all units, in their order.
Visitors = Callable[[Callable[[Unit], Any], Iterable[Unit]], Iterator[Any]]


@contextmanager
def visitors(engine: str, *, workers: int | None, address: str | None) -> Iterator[Visitors]:
    """The function that visits units.

    Parameters
    ----------
    engine : {"local", "ray", "dask"}
    workers : int, optional
        Threads of this machine, or processes of the cluster; by default all.
    address : str, optional
        Address of a cluster.  Without one, the cluster that the caller has joined is used, or one
        is started on this machine.
    """
    check_choice(engine, "engine", ENGINES)
    if workers is not None:
        as_count(workers, "workers", least=1)
    if engine == "local" and address is not None:
        raise InvalidInputError(
            f"address: expected none with the engine local, found {address!r}; choose the engine "
            "ray or dask"
        )
    with {"local": _local, "ray": _ray, "dask": _dask}[engine](workers, address) as visit_all:
        yield visit_all


def alone(visit: Callable[[Unit], Answer], unit: Unit, rows: Any) -> Answer | SharpGPError:
    """``visit(unit)`` with these rows; the library's own errors are returned as answers."""
    try:
        return visit(replace(unit, rows=resolved(rows)))
    except SharpGPError as error:
        return error


def _alone_on_one_thread(visit: Any, unit: Unit, rows: Any) -> Any:
    torch.set_num_threads(1)  # one worker per core
    return alone(visit, unit, rows)


@contextmanager
def _local(workers: int | None, _: str | None) -> Iterator[Visitors]:
    found = workers or torch.get_num_threads()
    with ThreadPoolExecutor(found) as pool:

        def visit_all(visit: Callable[[Unit], Any], units: Iterable[Unit]) -> Iterator[Any]:
            return _windowed(
                lambda unit: pool.submit(alone, visit, unit, unit.rows),
                lambda future: future.result(),
                units,
                found,
            )

        try:
            yield visit_all
        finally:
            pool.shutdown(cancel_futures=True)


@contextmanager
def ray_cluster(address: str | None, workers: int | None) -> Iterator[int]:
    """Join a ray cluster, or without an address start one here; gives the workers to use.

    A cluster that the caller has already joined is used, and not left at the end.
    """
    need("ray", "ray")
    import ray

    mine = not ray.is_initialized()
    if mine:
        check_listening("ray", address)
        own: dict[str, Any] = {} if address else {"num_cpus": workers, "include_dashboard": False}
        try:
            ray.init(address=address, logging_level=logging.ERROR, log_to_driver=False, **own)
        except (ConnectionError, RuntimeError, ValueError) as error:
            raise unreachable("ray", address, error) from None
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
    check_listening("dask", address)
    try:
        client = joined or (Client(address, timeout=30) if address else Client(**own))
    except (OSError, ValueError) as error:
        raise unreachable("dask", address, error) from None
    try:
        cores = max(1, sum(client.nthreads().values()))
        yield client, min(workers or cores, cores)
    finally:
        if joined is None:
            client.close()


@contextmanager
def _ray(workers: int | None, address: str | None) -> Iterator[Visitors]:
    with ray_cluster(address, workers) as cores:
        import ray
        from ray.exceptions import RayError

        task: Any = ray.remote(num_cpus=1, max_retries=_RETRIES)(_alone_on_one_thread)

        def visit_all(visit: Callable[[Unit], Any], units: Iterable[Unit]) -> Iterator[Any]:
            held = ray.put(visit)

            def answer(reference: Any) -> Any:
                try:
                    return ray.get(reference)
                except RayError as error:
                    raise _failed("ray", error) from None

            def send(unit: Unit) -> Any:
                return task.remote(held, replace(unit, rows=None), unit.rows)

            return _windowed(send, answer, units, cores)

        yield visit_all


@contextmanager
def _dask(workers: int | None, address: str | None) -> Iterator[Visitors]:
    # A local cluster sets an environment of one thread, which torch reads on first use, and workers
    # may be threads of this process.  The driver's own work may use all threads.
    threads = torch.get_num_threads()
    with dask_cluster(address, workers) as (client, cores):
        from dask import delayed
        from distributed import CancelledError, KilledWorker

        torch.set_num_threads(threads)

        def visit_all(visit: Callable[[Unit], Any], units: Iterable[Unit]) -> Iterator[Any]:
            held = [client.scatter(visit, broadcast=True, hash=False)]

            def send(unit: Unit) -> Any:
                given = held[0], replace(unit, rows=None), unit.rows
                work = delayed(_alone_on_one_thread, pure=False)(*given)
                return unit, client.compute(work, retries=_RETRIES)

            def answer(sent: Any) -> Any:
                unit, future = sent
                for _ in range(_RETRIES):
                    try:
                        return future.result()
                    except CancelledError:
                        # All workers that held the function are gone: it is sent again.
                        held[0] = client.scatter(visit, broadcast=True, hash=False)
                        _, future = send(unit)
                    except (KilledWorker, OSError, MemoryError) as error:
                        raise _failed("dask", error) from None
                raise _failed("dask", RuntimeError(f"workers were lost {_RETRIES} times"))

            return _windowed(send, answer, units, cores)

        try:
            yield visit_all
        finally:
            torch.set_num_threads(threads)


def check_listening(engine: str, address: str | None) -> None:
    """Raise unless something listens at ``host:port``; ray itself would try for minutes."""
    found = re.fullmatch(r"(?:\w+://)?([^:/]+):(\d+)/?", address or "")
    if found is not None:
        try:
            socket.create_connection((found[1], int(found[2])), timeout=10).close()
        except OSError as error:
            raise unreachable(engine, address, error) from None


def unreachable(engine: str, address: str | None, error: Exception) -> SharpGPError:
    """One-line error about a cluster that cannot be joined."""
    reason = (str(error) or type(error).__name__).splitlines()[0]
    return SharpGPError(
        f"engine {engine}: expected a cluster at {address or 'this machine'}, found: {reason}"
    )


def _windowed(
    send: Callable[[Unit], Any], answer: Callable[[Any], Any], units: Iterable[Unit], workers: int
) -> Iterator[Any]:
    waiting: deque[Any] = deque()
    for unit in units:
        waiting.append(send(unit))
        if len(waiting) >= _AHEAD * workers:
            yield _given(answer(waiting.popleft()))
    while waiting:
        yield _given(answer(waiting.popleft()))


def _given(answer: Any) -> Any:
    if isinstance(answer, SharpGPError):
        raise answer
    return answer


def _failed(engine: str, error: Exception) -> SharpGPError:
    lines = str(error).strip().splitlines()
    reason = lines[-1] if lines else type(error).__name__
    return SharpGPError(f"engine {engine}: expected answers for all rows, found: {reason}")
