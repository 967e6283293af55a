"""Progress of a run: a bar on a terminal, now and then a line elsewhere."""

import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager

from sharpgp_benchmarks.run import Progress

#: Seconds between two lines where there is no terminal.
SECONDS_A_LINE = 10.0


@contextmanager
def bar(shown: bool) -> Iterator[Progress | None]:
    """Rate and time left on standard error: a bar on a terminal, lines in a pipe or file."""
    if not shown:
        yield None
        return
    if not sys.stderr.isatty():
        yield _lines()
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


def _lines() -> Progress:
    """A line at most every :data:`SECONDS_A_LINE`, and none for a run that ends before."""
    start = last = time.monotonic()

    def update(done: int, total: int, failed: int) -> None:
        nonlocal last
        now = time.monotonic()
        if now - last >= SECONDS_A_LINE:
            last = now
            told = describe(done, total, failed, now - start)
            print(f"{done} of {total} tasks, {told}", file=sys.stderr, flush=True)  # noqa: T201

    return update


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
