"""Progress of a run: a bar on a terminal, now and then a line elsewhere."""

import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager

from sharpgp_benchmarks.run import Progress

#: Seconds between two lines where there is no terminal.
SECONDS_A_LINE = 30.0


@contextmanager
def bar(shown: bool) -> Iterator[Progress | None]:
    """Rate and time left on standard error: a bar on a terminal, lines in a pipe or file."""
    if not shown:
        yield None
        return
    if not sys.stderr.isatty():
        with _lines() as update:
            yield update
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


@contextmanager
def _lines() -> Iterator[Progress]:
    """A line every :data:`SECONDS_A_LINE`, however long a task takes; none for a shorter run."""
    start, ended, state = time.monotonic(), threading.Event(), [(0, 0, 0)]

    def tell() -> None:
        while not ended.wait(SECONDS_A_LINE):
            done, total, failed = state[0]
            words = describe(done, total, failed, time.monotonic() - start)
            line = ", ".join(filter(None, [f"{done} of {total} tasks", words]))
            print(line, file=sys.stderr, flush=True)  # noqa: T201

    def update(done: int, total: int, failed: int) -> None:
        state[0] = done, total, failed

    teller = threading.Thread(target=tell, daemon=True)
    teller.start()
    try:
        yield update
    finally:
        ended.set()
        teller.join()


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
