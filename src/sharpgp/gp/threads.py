"""How many threads a computation is worth."""

from collections.abc import Iterator
from contextlib import contextmanager

import torch

#: Training points from which more than one thread pays.
MANY_POINTS = 1000


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
    if n_points < MANY_POINTS:
        torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(before)
