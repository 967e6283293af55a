"""Output on standard error: warnings, and progress on a terminal."""

import re
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import typer

from sharpgp._progress import show_progress
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
def shown(quiet: bool = False) -> Iterator[None]:
    """Short warnings, and progress on a terminal unless ``quiet``."""
    with short_warnings(), show_progress(-1 if quiet else 1):
        yield
