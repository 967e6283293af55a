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
    """Warnings as one line each on standard error.

    Of those that differ in names and numbers only the first is shown at once; what the others are
    about follows at the end.
    """
    others: dict[str, tuple[str, list[str]]] = {}

    def show(message: Warning | str, category: Any, *_: Any, **__: Any) -> None:
        text = worded(" ".join(str(message).split()))
        if not issubclass(category, UserWarning):
            return
        kind = re.sub(r"'[^']*'|[\d.e+-]+", "", text)
        if kind not in others:
            others[kind] = text, []
            typer.echo(f"warning: {text}", err=True)
        elif text != others[kind][0] and (name := re.search(r"'[^']*'", text)):
            others[kind][1].append(name[0])

    with warnings.catch_warnings():
        warnings.simplefilter("always", UserWarning)
        warnings.showwarning = show
        try:
            yield
        finally:
            for text, names in others.values():
                more = [name for name in dict.fromkeys(names) if name not in text]
                if more:
                    about = re.search(r"'[^']*'", text)
                    told = f"{', '.join(more)}, as for {about[0] if about else 'the first'}"
                    typer.echo(f"warning: the same of {told}", err=True)


@contextmanager
def shown(quiet: bool = False) -> Iterator[None]:
    """Short warnings, and progress on a terminal unless ``quiet``."""
    with short_warnings(), show_progress(-1 if quiet else 1):
        yield
