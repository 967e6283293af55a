"""Where batches of tasks run: processes of this machine, or a ray or dask cluster, by joblib."""

import logging
import os
import re
import signal
import socket
import threading
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext, suppress
from importlib.util import find_spec
from multiprocessing import resource_tracker
from typing import Any, ClassVar

import joblib

from sharpgp._validation import check_choice
from sharpgp.exceptions import InvalidInputError, MissingExtraError, SharpGPError
from sharpgp.experiments.backends import dask_backend, ray_backend

Jobs = Iterable[Any]


class Engine(ABC):
    """A pool of workers that can be opened again after it broke.

    Parameters
    ----------
    workers : int, optional
        Tasks at a time; without it, as many as there are cores.
    address : str, optional
        Of a running cluster.
    threads : int
        That each worker may use.
    """

    name: ClassVar[str]
    #: Seconds to wait before each attempt at a task whose worker has died: a cluster takes a while
    #: to notice that a node is gone.
    pauses: ClassVar[tuple[float, ...]] = (0.0,)

    def __init__(self, workers: int | None, address: str | None, threads: int) -> None:
        self.workers, self.address, self.threads = workers, address, threads

    @property
    @abstractmethod
    def deaths(self) -> tuple[type[BaseException], ...]:
        """Errors that say that a worker, not a task, has failed."""

    @abstractmethod
    def open(self) -> Any:
        """Context manager that gives the number of workers and a function from jobs to answers."""

    def _answers(self, jobs: Jobs, n_jobs: int, at_once: int) -> Iterator[Any]:
        # joblib sends short jobs several at a time, and those of a second and more one by one.
        pool = joblib.Parallel(
            n_jobs=n_jobs,
            return_as="generator_unordered",
            batch_size="auto",
            pre_dispatch=at_once,
        )
        with self._starting():
            answers = pool(jobs)
        yield from answers

    def _starting(self) -> AbstractContextManager[None]:
        """What holds while joblib starts workers."""
        return nullcontext()


class Local(Engine):
    """Processes of this machine."""

    name = "local"

    def __init__(self, workers: int | None, address: str | None, threads: int) -> None:
        if address is not None:
            raise InvalidInputError(
                f"address: expected none with the engine local, found {address!r}; "
                "choose the engine ray or dask"
            )
        super().__init__(workers, address, threads)

    @property
    def deaths(self) -> tuple[type[BaseException], ...]:
        """A worker that crashed, or was killed."""
        from concurrent.futures.process import BrokenProcessPool

        return (BrokenProcessPool,)

    @contextmanager
    def open(self) -> Iterator[tuple[int, Callable[[Jobs], Iterator[Any]]]]:
        """See :meth:`Engine.open`; one worker is a process of its own, too."""
        workers = self.workers or max(1, joblib.cpu_count() // self.threads)
        _start_quiet_tracker()
        try:
            processes = joblib.parallel_config(backend="loky", inner_max_num_threads=self.threads)
        except AssertionError:  # joblib falls back to threads, which take no such setting
            raise SharpGPError(
                "workers: expected to start processes, found no semaphores for them; "
                "is /dev/shm full, or not there?"
            ) from None
        with processes:
            # joblib runs n_jobs=1 in this process, which a crash would take down.
            at_once = 2 * workers if workers > 1 else 1
            yield workers, lambda jobs: self._answers(jobs, max(2, workers), at_once)

    def _starting(self) -> AbstractContextManager[None]:
        return _without_ctrl_c()


@contextmanager
def _without_ctrl_c() -> Iterator[None]:
    """Ctrl-C waits for the end of the block, and never reaches processes started in it.

    A worker would print a traceback, and so would the threads of a cluster that is half there.
    """
    if not hasattr(signal, "pthread_sigmask"):
        yield
        return
    # Python's tracker of shared memory unblocks ctrl-C when it starts; so it starts before.
    resource_tracker.ensure_running()
    heard: list[int] = []
    handler = signal.getsignal(signal.SIGINT)
    mine = handler is not None and threading.current_thread() is threading.main_thread()
    if mine:  # other threads hear ctrl-C, and this one would answer it
        signal.signal(signal.SIGINT, lambda number, _: heard.append(number))
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)
        if mine:
            signal.signal(signal.SIGINT, handler)
        if heard:
            signal.raise_signal(signal.SIGINT)


def _start_quiet_tracker() -> None:
    """Start loky's process that removes what an interrupted run leaves in shared memory.

    After ctrl-C it finds some of it gone already and says so after the message for the user.
    """
    from joblib.externals.loky.backend import resource_tracker as loky_tracker

    before = os.environ.get("PYTHONWARNINGS")
    mine = f"ignore::UserWarning:{loky_tracker.__name__}"
    os.environ["PYTHONWARNINGS"] = mine if before is None else f"{before},{mine}"
    try:
        loky_tracker.ensure_running()
    finally:
        if before is None:
            del os.environ["PYTHONWARNINGS"]
        else:
            os.environ["PYTHONWARNINGS"] = before


class Ray(Engine):
    """A ray cluster; without an address, one that lives as long as the run."""

    name = "ray"
    pauses = (2.0, 10.0, 20.0)

    def __init__(self, workers: int | None, address: str | None, threads: int) -> None:
        _need("ray", "ray")
        super().__init__(workers, address, threads)

    @property
    def deaths(self) -> tuple[type[BaseException], ...]:
        """A node that went away, or a worker on it."""
        from ray.exceptions import RayError

        return (RayError,)

    @contextmanager
    def open(self) -> Iterator[tuple[int, Callable[[Jobs], Iterator[Any]]]]:
        """See :meth:`Engine.open`."""
        joblib.register_parallel_backend("ray", ray_backend())
        with (
            ray_cluster(self.address, self.workers) as workers,
            joblib.parallel_config(backend="ray"),
        ):
            yield workers, lambda jobs: self._answers(jobs, workers, 2 * workers)


@contextmanager
def ray_cluster(address: str | None, workers: int | None) -> Iterator[int]:
    """Join a ray cluster, or start one of this machine without an address; workers to use.

    A cluster that the caller has joined already is used, and not left at the end.
    """
    _need("ray", "ray")
    import ray

    mine = not ray.is_initialized()
    if mine:
        _knock("ray", address)
        own: dict[str, Any] = {} if address else {"num_cpus": workers, "include_dashboard": False}
        try:
            ray.init(address=address, logging_level=logging.ERROR, log_to_driver=False, **own)
        except (ConnectionError, RuntimeError, ValueError) as error:
            raise _unreachable("ray", address, error) from None
    try:
        cores = int(ray.cluster_resources().get("CPU", 1))
        yield min(workers or cores, cores)
    finally:
        if mine:
            ray.shutdown()


class Dask(Engine):
    """A dask cluster; without an address, one that lives as long as the run."""

    name = "dask"
    pauses = (1.0, 5.0)

    def __init__(self, workers: int | None, address: str | None, threads: int) -> None:
        _need("dask", "dask", "distributed")
        super().__init__(workers, address, threads)

    @property
    def deaths(self) -> tuple[type[BaseException], ...]:
        """A task whose workers died several times, or a scheduler that went away."""
        from concurrent.futures import CancelledError

        from distributed.comm.core import CommClosedError
        from distributed.scheduler import KilledWorker

        return (KilledWorker, CommClosedError, CancelledError)

    @contextmanager
    def open(self) -> Iterator[tuple[int, Callable[[Jobs], Iterator[Any]]]]:
        """See :meth:`Engine.open`."""
        from distributed import Client

        own: dict[str, Any] = {
            "n_workers": self.workers or max(1, joblib.cpu_count() // self.threads),
            "threads_per_worker": 1,
            "dashboard_address": None,
            "silence_logs": logging.ERROR,  # it warns of workers that a ctrl-C has ended
        }
        _knock("dask", self.address)
        try:
            if self.address:
                client = Client(self.address, timeout=30)
            else:
                with _without_ctrl_c():
                    client = Client(**own)
        except (OSError, ValueError) as error:
            raise _unreachable("dask", self.address, error) from None
        with client, joblib.parallel_config(backend=dask_backend(client)):
            cores = max(1, sum(client.nthreads().values()))
            workers = min(self.workers or cores, cores)
            try:
                yield workers, lambda jobs: self._answers(jobs, workers, 2 * workers)
            except KeyboardInterrupt:
                if not self.address:
                    _kill(client.cluster)
                raise


def _kill(cluster: Any) -> None:
    """End a local cluster's workers at once: left to itself, dask waits for their tasks.

    It also speaks of connections that are gone, even after the cluster has been closed.
    """
    logging.getLogger("distributed").setLevel(logging.ERROR)
    for nanny in cluster.workers.values():
        nanny.auto_restart = False
        if nanny.pid is not None:
            with suppress(ProcessLookupError):
                os.kill(nanny.pid, signal.SIGKILL)


ENGINES: dict[str, type[Engine]] = {engine.name: engine for engine in (Local, Ray, Dask)}


def make_engine(
    name: str, *, workers: int | None = None, address: str | None = None, threads: int = 1
) -> Engine:
    """Engine by name.

    Examples
    --------
    >>> make_engine("local", workers=2).workers
    2
    """
    check_choice(name, "engine", ENGINES)
    for setting, value in {"workers": workers, "threads": threads}.items():
        if value is not None and value < 1:
            raise InvalidInputError(f"{setting}: expected at least 1, found {value}")
    return ENGINES[name](workers, address, threads)


def _need(extra: str, *packages: str) -> None:
    for package in packages:
        if find_spec(package) is None:
            raise MissingExtraError(
                f"engine {extra}: expected the package {package}, found none; "
                f"pip install 'sharpgp[{extra}]'"
            )


def _knock(name: str, address: str | None) -> None:
    """See whether somebody listens at ``host:port``; ray alone would try for minutes."""
    found = re.fullmatch(r"(?:\w+://)?([^:/]+):(\d+)/?", address or "")
    if found is not None:
        try:
            socket.create_connection((found[1], int(found[2])), timeout=10).close()
        except OSError as error:
            raise _unreachable(name, address, error) from None


def _unreachable(name: str, address: str | None, error: Exception) -> SharpGPError:
    reason = (str(error) or type(error).__name__).splitlines()[0]
    return SharpGPError(
        f"engine {name}: expected a cluster at {address or 'this machine'}, found: {reason}"
    )
