"""How many threads a computation is worth, and independent computations side by side."""

from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from contextvars import ContextVar
from typing import TypeVar

import torch

#: Training points from which more than one thread pays.
MANY_POINTS = 1000

# Threads that the caller had before an outer block took them away.
_given: ContextVar[int | None] = ContextVar("given", default=None)
Item = TypeVar("Item")
Result = TypeVar("Result")


@contextmanager
def threads_for(n_points: int) -> Iterator[None]:
    """Run small problems on one thread, and put the setting back afterwards.

    With a few hundred points one operation takes less than a millisecond, and threads spend their
    time waiting for one another, most of all on a busy machine.

    Examples
    --------
    >>> with threads_for(100):
    ...     torch.get_num_threads()
    1
    """
    before = torch.get_num_threads()
    token = _given.set(_given.get() or before)
    if n_points < MANY_POINTS:
        torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(before)
        _given.reset(token)


def side_by_side(
    function: Callable[[Item], Result], items: Iterable[Item], *, alone: bool = False
) -> list[Result]:
    """``[function(item) for item in items]``, as many at once as there are threads, one each.

    Every call runs on one thread, however many run at once, so that results are the same to the
    last bit.  ``alone`` runs one after the other with all threads, for functions that change global
    settings or are large.

    Examples
    --------
    >>> side_by_side(lambda n: n * n, [1, 2, 3])
    [1, 4, 9]
    """
    items = list(items)
    if alone:
        return [function(item) for item in items]
    workers = min(len(items), _given.get() or torch.get_num_threads())

    def one(item: Item) -> Result:
        token = _given.set(1)
        before = torch.get_num_threads()
        torch.set_num_threads(1)
        try:
            return function(item)
        finally:
            torch.set_num_threads(before)
            _given.reset(token)

    if workers <= 1:
        return [one(item) for item in items]
    with ThreadPoolExecutor(workers) as pool:
        return list(pool.map(one, items))
