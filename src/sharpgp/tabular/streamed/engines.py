"""Where units are visited: threads of this machine, ray or dask.

Answers come in the order of the units, whoever gives them, and few of them wait at a time.
"""

from collections import deque
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from typing import Any, Protocol, TypeVar

import torch

from sharpgp._extras import need
from sharpgp._validation import as_count, check_choice
from sharpgp.exceptions import InvalidInputError, SharpGPError
from sharpgp.gp.compute import in_order
from sharpgp.tabular.cluster import dask_cluster, ray_cluster
from sharpgp.tabular.streamed.rows import Unit

ENGINES = ("local", "ray", "dask")
# How often a unit is tried again elsewhere after its worker is lost.
_RETRIES = 5
# Units that a worker is given ahead, so that it need not wait.
_AHEAD = 2

Answer = TypeVar("Answer")


class Visitors(Protocol):
    """Visits units: ``visit(unit)`` for all of them, in their order."""

    def __call__(self, visit: Callable[[Unit], Answer], units: Sequence[Unit]) -> Iterator[Answer]:
        """The answers, as they come."""


def visitors(
    engine: str, *, workers: int | None, address: str | None, device: torch.device
) -> AbstractContextManager[Visitors]:
    """Context manager that gives the function that visits units.

    Parameters
    ----------
    engine : {"local", "ray", "dask"}
    workers : int, optional
        Threads of this machine, or processes of the cluster; by default all that there are.
    address : str, optional
        Of a cluster; without one, ray and dask are started on this machine.
    device : torch device
        Where this machine computes; clusters use the CPU.
    """
    check_choice(engine, "engine", ENGINES)
    if workers is not None:
        as_count(workers, "workers", least=1)
    if engine == "local":
        if address is not None:
            raise InvalidInputError(
                f"address: expected none with the engine local, found {address!r}; choose the "
                "engine ray or dask"
            )
        return _local(workers, device)
    need(engine, *{"ray": ["ray"], "dask": ["dask", "distributed"]}[engine])
    return {"ray": _ray, "dask": _dask}[engine](workers, address)


@contextmanager
def _local(workers: int | None, device: torch.device) -> Iterator[Visitors]:
    before = torch.get_num_threads()
    torch.set_num_threads(workers or before)

    def visit_all(visit: Callable[[Unit], Any], units: Sequence[Unit]) -> Iterator[Any]:
        return in_order(visit, units, alone=device.type != "cpu")

    try:
        yield visit_all
    finally:
        torch.set_num_threads(before)


def alone(visit: Callable[[Unit], Answer], unit: Unit) -> Answer | SharpGPError:
    """``visit(unit)`` on one thread of a worker; an error of ours as an answer, in one piece."""
    try:
        return next(in_order(visit, [unit]))
    except SharpGPError as error:
        return error


@contextmanager
def _ray(workers: int | None, address: str | None) -> Iterator[Visitors]:
    with ray_cluster(address, workers) as found:
        import ray
        from ray.exceptions import RayError

        task: Any = ray.remote(num_cpus=1, max_retries=_RETRIES)(alone)

        def visit_all(visit: Callable[[Unit], Any], units: Sequence[Unit]) -> Iterator[Any]:
            held = ray.put(visit)

            def answer(reference: Any) -> Any:
                try:
                    return ray.get(reference)
                except RayError as error:
                    raise _failed("ray", error) from None

            return _windowed(lambda unit: task.remote(held, unit), answer, units, found)

        yield visit_all


@contextmanager
def _dask(workers: int | None, address: str | None) -> Iterator[Visitors]:
    # A cluster of this machine leaves an environment of one thread, which torch reads when first
    # asked; the driver's own work, on the sample, may take all.
    threads = torch.get_num_threads()
    with dask_cluster(address, workers) as (client, found):
        from distributed import CancelledError, KilledWorker

        torch.set_num_threads(threads)

        def visit_all(visit: Callable[[Unit], Any], units: Sequence[Unit]) -> Iterator[Any]:
            held = [client.scatter(visit, broadcast=True, hash=False)]

            def send(unit: Unit) -> Any:
                return unit, client.submit(alone, held[0], unit, pure=False, retries=_RETRIES)

            def answer(sent: Any) -> Any:
                unit, future = sent
                for _ in range(_RETRIES):
                    try:
                        return future.result()
                    except CancelledError:
                        # All workers that held the function are gone: others get it anew.
                        held[0] = client.scatter(visit, broadcast=True, hash=False)
                        _, future = send(unit)
                    except (KilledWorker, OSError, MemoryError) as error:
                        raise _failed("dask", error) from None
                raise _failed("dask", RuntimeError(f"workers were lost {_RETRIES} times"))

            return _windowed(send, answer, units, found)

        yield visit_all


def _windowed(
    send: Callable[[Unit], Any], answer: Callable[[Any], Any], units: Sequence[Unit], workers: int
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
    return SharpGPError(f"engine {engine}: expected sums of rows, found: {reason}")
