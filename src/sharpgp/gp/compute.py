"""Which device to compute on, in blocks of what size, and on how many threads."""

import copy
import gc
import logging
import os
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor, wait
from contextlib import contextmanager
from contextvars import ContextVar, copy_context
from functools import cache
from typing import Any, TypeVar

import torch

from sharpgp.exceptions import InvalidInputError, warn

logger = logging.getLogger("sharpgp")

#: Matrix entries per block: 256 MiB on a CPU; 512 MiB on a GPU, as smaller blocks leave it idle.
BLOCK_ENTRIES = {"cpu": 2**25, "cuda": 2**26}
#: Matrix entries per block and CPU thread: 2 MiB, which fit into its cache.
THREAD_ENTRIES = 2**18
#: ``device="auto"`` uses an available GPU from this many training rows.
MIN_ROWS_GPU = 2000
#: Up to this many training points every operation runs on one thread: with several, different
#: rounding moves searches by 2e-2 (``test_determinism``).
MAX_ROWS_ONE_THREAD = 3000
#: With more training points, matrices are processed one at a time, in place.
MAX_ROWS_BATCHED = 5000
# Blocks shrink by these factors when GPU memory runs out; then the CPU takes over.
_BLOCK_DIVISORS = (1, 8, 64)

# Block factors in force, one for each call of within_memory.  Global, as GPU memory is: backward
# passes on a GPU run on autograd's own thread, which sees no ContextVar.
_in_force: list[int] = []
# Number of threads of the caller, before an outer block reduced it.
_given: ContextVar[int | None] = ContextVar("given", default=None)
T = TypeVar("T")
Item = TypeVar("Item")
Result = TypeVar("Result")


# ------------------------------------------------------------------ devices and memory


def choose_device(device: Any, n_rows: int) -> torch.device:
    """The requested device; ``"auto"`` is a GPU from :data:`MIN_ROWS_GPU` rows on.

    Examples
    --------
    >>> choose_device("auto", 100)
    device(type='cpu')
    """
    if isinstance(device, str) and device == "auto":
        large = n_rows >= MIN_ROWS_GPU and torch.cuda.is_available()
        return torch.device("cuda" if large else "cpu")
    try:
        chosen = torch.device(device)
    except (RuntimeError, TypeError):
        raise InvalidInputError(
            f"device: expected 'auto', 'cpu' or 'cuda', found {device!r}"
        ) from None
    if chosen.type not in ("cpu", "cuda"):
        raise InvalidInputError(f"device: expected 'auto', 'cpu' or 'cuda', found {device!r}")
    if chosen.type == "cuda" and not torch.cuda.is_available():
        raise InvalidInputError("device: expected a CUDA device, found none; use device='cpu'")
    return chosen


def block_entries(device: torch.device, *, in_threads: bool = False) -> int:
    """The most matrix entries that one block of work may have on a device.

    ``in_threads`` is for blocks that the threads of a CPU work on side by side.  When GPU memory
    runs out, :func:`within_memory` makes blocks smaller for everything computed inside it.

    Examples
    --------
    >>> block_entries(torch.device("cpu")) > block_entries(torch.device("cpu"), in_threads=True)
    True
    """
    if device.type == "cpu":
        return THREAD_ENTRIES if in_threads else BLOCK_ENTRIES["cpu"]
    return max(2**16, BLOCK_ENTRIES[device.type] // max(_in_force, default=1))


def moved_to(value: Any, device: torch.device, known: dict[int, Any] | None = None) -> Any:
    """A copy of a model with its tensors on another device; shared objects stay shared.

    Examples
    --------
    >>> moved_to([torch.ones(2), "a"], torch.device("meta"))[0].device
    device(type='meta')
    """
    known = {} if known is None else known
    if id(value) in known:
        return known[id(value)]
    other = value
    if isinstance(value, torch.Tensor):
        other = value.to(device)
    elif isinstance(value, torch.nn.Module):
        other = copy.deepcopy(value).to(device)
    elif isinstance(value, dict):
        other = {key: moved_to(part, device, known) for key, part in value.items()}
    elif isinstance(value, list | tuple):
        parts = [moved_to(part, device, known) for part in value]
        other = type(value)(*parts) if hasattr(value, "_fields") else type(value)(parts)
    elif type(value).__module__.startswith("sharpgp."):
        other = known[id(value)] = copy.copy(value)
        vars(other).update({k: moved_to(v, device, known) for k, v in vars(value).items()})
    known[id(value)] = other
    return other


def within_memory(device: torch.device, work: Callable[[torch.device], T]) -> T:
    """``work(device)``; if GPU memory runs out, again in smaller blocks, and then on the CPU.

    Smaller blocks give the same answers, more slowly.
    """
    for times in _BLOCK_DIVISORS if device.type == "cuda" else ():
        _in_force.append(times)
        try:
            return work(device)
        except torch.cuda.OutOfMemoryError:
            logger.info("out of GPU memory with blocks of %d entries", block_entries(device))
        finally:
            _in_force.remove(times)
        gc.collect()  # the failed work may hold tensors in reference cycles
        torch.cuda.empty_cache()
    if device.type == "cuda":
        warn(
            "out of GPU memory, even in small blocks: continuing on the CPU, which is slower; use "
            "fewer rows or approximation=Sparse(m=300)",
            UserWarning,
        )
    return work(torch.device("cpu") if device.type == "cuda" else device)


# ------------------------------------------------------------------ threads


@contextmanager
def threads_for(n_dense: int) -> Iterator[None]:
    """One thread per operation, except in large exact GPs; the setting is restored afterwards.

    ``n_dense`` is the number of points whose covariance is one dense matrix, 0 for a sparse GP.

    An operation spread over several threads sums in an order that depends on their number, and
    searches amplify that: rounding errors can lead to another minimum.  Threads are used for
    independent work instead (see :func:`in_order`): starts, folds, candidates, and blocks of rows
    of a sparse GP.  This also wastes less time on a busy machine, where the threads of one
    operation wait for each other.  A large exact GP has too little independent work.

    Examples
    --------
    >>> with threads_for(100):
    ...     torch.get_num_threads()
    1
    """
    before = torch.get_num_threads()
    token = _given.set(_given.get() or before)
    if n_dense <= MAX_ROWS_ONE_THREAD:
        torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(before)
        _given.reset(token)


def in_order(
    function: Callable[[Item], Result], items: Iterable[Item], *, in_turn: bool = False
) -> Iterator[Result]:
    """``function(item)`` for all items, in order, one per thread at a time.

    Every call runs on one thread, so that results do not depend on the number of threads; about one
    result per thread waits at a time.  ``in_turn`` runs one call after another with all threads,
    for functions that change global settings, are large or use a GPU.

    Examples
    --------
    >>> list(in_order(lambda n: n * n, [1, 2, 3]))
    [1, 4, 9]
    """
    if in_turn:
        yield from map(function, items)
        return
    items = list(items)
    before, gradients = torch.get_num_threads(), torch.is_grad_enabled()
    workers = min(_given.get() or before, len(items))

    def one(item: Item) -> Result:
        torch.set_num_threads(1)  # this, and whether gradients are recorded, belongs to a thread
        token = _given.set(1)  # what it calls must not wait for the threads it occupies
        try:
            with torch.set_grad_enabled(gradients):
                return function(item)
        finally:
            _given.reset(token)

    running: deque[Future[Result]] = deque()
    try:
        for item in items:
            if workers > 1:
                # A copy each, so that the caller's context also applies in its threads.
                running.append(_pool(workers).submit(copy_context().run, one, item))
            else:
                result = one(item)
                torch.set_num_threads(before)
                yield result
            if len(running) > workers:
                yield running.popleft().result()
        while running:
            yield running.popleft().result()
    finally:
        torch.set_num_threads(before)
        for future in running:  # after an error
            future.cancel()
        wait(running)


def side_by_side(
    function: Callable[[Item], Result], items: Iterable[Item], *, in_turn: bool = False
) -> list[Result]:
    """``[function(item) for item in items]``, computed by :func:`in_order`.

    Examples
    --------
    >>> side_by_side(lambda n: n * n, [1, 2, 3])
    [1, 4, 9]
    """
    return list(in_order(function, items, in_turn=in_turn))


@cache
def _pool(workers: int) -> ThreadPoolExecutor:
    """Idle threads, kept because new ones take milliseconds to set up linear algebra."""
    return ThreadPoolExecutor(workers, thread_name_prefix="sharpgp")


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_pool.cache_clear)  # threads are not inherited by a fork
