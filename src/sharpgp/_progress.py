"""Progress of a long computation: announced steps, and a line that shows them.

Computations always call :func:`start_phase`, :func:`name_step` and :func:`advance`;
:func:`show_progress` shows their progress.
"""

import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from threading import Lock, Timer
from typing import Any, TextIO

#: Seconds between two updates of the line; before it appears where it is asked for, and elsewhere.
_EVERY, _ASKED, _UNASKED = 0.2, 0.5, 3.0


class Watch:
    """Counts steps, from several threads, for a display."""

    def __init__(self) -> None:
        self.phase, self.step, self.at, self.done, self.total = "", "", "", 0, 0
        self.start = self._phase_start = time.monotonic()
        self._lock = Lock()

    def start_phase(self, phase: str, step: str, total: int) -> None:
        """Start a phase of ``total`` steps; 0 if unknown."""
        with self._lock:
            self.phase, self.step, self.at, self.done, self.total = phase, step, "", 0, total
            self._phase_start = time.monotonic()

    def advance(self, steps: int = 1) -> None:
        """Count steps as done."""
        with self._lock:
            self.done += steps

    def __str__(self) -> str:
        now = time.monotonic()
        place = f"{self.step} {min(self.done + 1, self.total)} of {self.total}"
        phase = f"{self.phase}: {place}" if self.total else self.phase
        share = self.done / self.total if self.total else 0.0
        return describe(
            f"{phase} ({self.at})" if self.at else phase,
            now - self.start,
            (now - self._phase_start) * (1 / share - 1) if share else None,
        )


def describe(phase: str, elapsed: float, left: float | None) -> str:
    """Progress, time so far and time left, in words.

    Examples
    --------
    >>> describe("cross-validating: fit 4 of 50 (rbf)", 40.0, 470.0)
    'cross-validating: fit 4 of 50 (rbf), 40 s, about 8 min left'
    """
    parts = [part for part in (phase, duration(elapsed)) if part]
    if left is not None:
        parts.append(f"about {duration(max(left, 0.0))} left")
    return ", ".join(parts)


def duration(seconds: float) -> str:
    """Seconds in everyday units.

    Examples
    --------
    >>> duration(41.3), duration(400), duration(9000)
    ('41 s', '7 min', '2.5 h')
    """
    if seconds < 90:
        return f"{seconds:.0f} s"
    return f"{seconds / 60:.0f} min" if seconds < 5400 else f"{seconds / 3600:.1f} h"


_watch: ContextVar[Watch | None] = ContextVar("sharpgp_watch", default=None)


def start_phase(phase: str, step: str = "", total: int = 0) -> None:
    """Announce a phase of ``total`` steps, or of unknown length."""
    if (watch := _watch.get()) is not None:
        watch.start_phase(phase, step, total)


def name_step(name: str) -> None:
    """Announce the present step by name."""
    if (watch := _watch.get()) is not None:
        watch.at = name


def advance(steps: int = 1) -> None:
    """Announce that steps of the present phase are done."""
    if (watch := _watch.get()) is not None:
        watch.advance(steps)


@contextmanager
def show_progress(verbose: int = 0, stream: TextIO | None = None) -> Iterator[None]:
    """Show the progress of the computation inside the block on one line of standard error.

    The line appears after three seconds, with ``verbose=1`` after half a second, with -1 never.
    Nothing is shown if standard error is neither a terminal nor a notebook, or if another line is
    being shown already.
    """
    stream = stream or sys.stderr
    if verbose < 0 or _watch.get() is not None or not (_is_terminal(stream) or _in_notebook()):
        yield
        return
    watch = Watch()
    token = _watch.set(watch)
    line = _line_of(watch, stream)
    timer = Timer(_ASKED if verbose else _UNASKED, line.start)
    timer.daemon = True
    timer.start()
    try:
        yield
    finally:
        _watch.reset(token)
        timer.cancel()
        timer.join()
        line.stop()


def _line_of(watch: Watch, stream: TextIO) -> Any:
    """A line that shows a watch; what is written to standard error meanwhile stands above it."""
    from rich.console import Console
    from rich.live import Live
    from rich.text import Text

    console = Console(file=stream, force_jupyter=_in_notebook() or None)
    return Live(
        get_renderable=lambda: Text(str(watch), no_wrap=True, overflow="ellipsis"),
        console=console,
        transient=True,
        refresh_per_second=1.0 / _EVERY,
        redirect_stdout=False,
    )


def _is_terminal(stream: Any) -> bool:
    return bool(getattr(stream, "isatty", lambda: False)())


def _in_notebook() -> bool:
    """Whether this runs in a notebook's kernel."""
    shell = getattr(sys.modules.get("IPython"), "get_ipython", lambda: None)()
    return type(shell).__name__ == "ZMQInteractiveShell"
