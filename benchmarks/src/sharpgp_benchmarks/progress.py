"""Progress of a run: a bar on a terminal."""

import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager

from sharpgp_benchmarks.run import Progress


@contextmanager
def bar(shown: bool) -> Iterator[Progress | None]:
    """A bar on standard error with rate and time left; nothing if it is not to be shown."""
    if not (shown and sys.stderr.isatty()):
        yield None
        return
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, TextColumn
    from rich.progress import Progress as Bar

    columns = (BarColumn(), MofNCompleteColumn(), TextColumn("{task.description}"))
    with Bar(*columns, console=Console(stderr=True), transient=True) as display:
        task, start = display.add_task("", total=None), time.perf_counter()

        def update(done: int, total: int, failed: int) -> None:
            text = describe(done, total, failed, time.perf_counter() - start)
            display.update(task, completed=done, total=total, description=text)

        yield update


def describe(done: int, total: int, failed: int, seconds: float) -> str:
    """Rate, time left and failures in words.

    Examples
    --------
    >>> describe(50, 200, 1, 100.0)
    '0.50/s, 5 min left, 1 failed'
    """
    parts = []
    if done:
        rate = done / max(seconds, 1e-9)
        parts = [f"{rate:.2f}/s", f"{_duration((total - done) / rate)} left"]
    if failed:
        parts.append(f"{failed} failed")
    return ", ".join(parts)


def _duration(seconds: float) -> str:
    if seconds < 90:
        return f"{seconds:.0f} s"
    return f"{seconds / 60:.0f} min" if seconds < 5400 else f"{seconds / 3600:.1f} h"
