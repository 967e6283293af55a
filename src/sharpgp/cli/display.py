"""Output on standard error: warnings, and progress on a terminal."""

import re
import sys
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import typer

from sharpgp.cli.wording import worded


@contextmanager
def short_warnings() -> Iterator[None]:
    """Warnings as one line on standard error; equal ones, numbers apart, are shown once."""
    seen = set()

    def show(message: Warning | str, category: Any, *_: Any, **__: Any) -> None:
        text = worded(" ".join(str(message).split()))
        kind = re.sub(r"[\d.e+-]+", "", text)
        if issubclass(category, UserWarning) and kind not in seen:
            seen.add(kind)
            typer.echo(f"warning: {text}", err=True)

    with warnings.catch_warnings():
        warnings.simplefilter("always", UserWarning)
        warnings.showwarning = show
        yield


@contextmanager
def spinner(text: str, shown: bool) -> Iterator[None]:
    """A spinner on standard error while something is computed."""
    if not (shown and sys.stderr.isatty()):
        yield
        return
    from rich.console import Console

    with Console(stderr=True).status(text):
        yield


@contextmanager
def bar(shown: bool, total: int | None) -> Iterator[Callable[[int], None] | None]:
    """Rows done, rows per second and time left, on standard error."""
    if not (shown and sys.stderr.isatty()):
        yield None
        return
    from rich.console import Console
    from rich.progress import BarColumn, Progress, TextColumn, TimeRemainingColumn

    columns = (
        BarColumn(),
        TextColumn("{task.completed:,.0f}" + (" of {task.total:,.0f} rows" if total else " rows")),
        TextColumn("{task.fields[rate]}"),
        *([TimeRemainingColumn()] if total else []),
    )
    with Progress(*columns, console=Console(stderr=True), transient=True) as display:
        task = display.add_task("", total=total, rate="")

        def update(done: int) -> None:
            elapsed = display.tasks[0].elapsed or 0.0
            rate = f"{done / elapsed:,.0f} rows/s" if elapsed > 0 else ""
            display.update(task, completed=done, rate=rate)

        yield update
