"""How many threads a computation is worth, and independent computations side by side."""

import os
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor, wait
from contextlib import contextmanager
from contextvars import ContextVar
from functools import cache
from typing import TypeVar

import torch

#: Training points up to which every operation runs on one thread: what the defaults fit exactly.
MOST_ON_ONE_THREAD = 3000

# Threads that the caller had before an outer block took them away.
_given: ContextVar[int | None] = ContextVar("given", default=None)
Item = TypeVar("Item")
Result = TypeVar("Result")


@contextmanager
def threads_for(n_points: int, n_inducing: int | None = None) -> Iterator[None]:
    """One thread for an operation, but in large exact GPs; the setting comes back afterwards.

    An operation that is spread over threads adds up in another order for every number of threads,
    and searches make much of that: rounding errors can end in another minimum.  Threads are used
    for independent work instead, see :func:`in_order`: starts, folds, candidates, and blocks of
    rows of a sparse GP.  That also wastes less time on a busy machine, where the threads of one
    operation wait for one another.  A large exact GP has too little of such work.

    Examples
    --------
    >>> with threads_for(100):
    ...     torch.get_num_threads()
    1
    """
    before = torch.get_num_threads()
    token = _given.set(_given.get() or before)
    if n_points <= MOST_ON_ONE_THREAD or n_inducing is not None:
        torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(before)
        _given.reset(token)


def in_order(
    function: Callable[[Item], Result], items: Iterable[Item], *, alone: bool = False
) -> Iterator[Result]:
    """``function(item)`` for all items, in their order, as many at once as there are threads.

    Every call runs on one thread, however many run at once, so that results are the same to the
    last bit; there are never many more results than threads.  ``alone`` runs one after the other
    with all threads, for functions that change global settings, are large or use a GPU.

    Examples
    --------
    >>> list(in_order(lambda n: n * n, [1, 2, 3]))
    [1, 4, 9]
    """
    if alone:
        yield from map(function, items)
        return
    items = list(items)
    before, gradients = torch.get_num_threads(), torch.is_grad_enabled()
    workers = min(_given.get() or before, len(items))

    def one(item: Item) -> Result:
        torch.set_num_threads(1)  # this, and whether gradients are recorded, belongs to a thread
        token = _given.set(1)  # what it calls must not wait for the threads that it holds
        try:
            with torch.set_grad_enabled(gradients):
                return function(item)
        finally:
            _given.reset(token)

    running: deque[Future[Result]] = deque()
    try:
        for item in items:
            if workers > 1:
                running.append(_pool(workers).submit(one, item))
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
    function: Callable[[Item], Result], items: Iterable[Item], *, alone: bool = False
) -> list[Result]:
    """``[function(item) for item in items]``, computed by :func:`in_order`.

    Examples
    --------
    >>> side_by_side(lambda n: n * n, [1, 2, 3])
    [1, 4, 9]
    """
    return list(in_order(function, items, alone=alone))


@cache
def _pool(workers: int) -> ThreadPoolExecutor:
    """Threads that wait for work: new ones take milliseconds to set up their algebra."""
    return ThreadPoolExecutor(workers, thread_name_prefix="sharpgp")


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_pool.cache_clear)  # threads stay with the parent
