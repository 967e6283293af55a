"""Output on standard error: warnings, and progress on a terminal."""

import re
import shutil
import sys
import textwrap
import warnings
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from sharpgp._progress import show_progress
from sharpgp.cli.wording import worded

#: Classes that ``sharpgp report --by`` prints.
_MAX_CLASSES = 20


@contextmanager
def short_warnings() -> Iterator[None]:
    """Warnings on standard error: one block on a terminal, a line for each in a pipe.

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
            _tell(text, heading=not others)
            others[kind] = text, []
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
                    _tell(f"the same of {told}")


def _tell(text: str, heading: bool = False) -> None:
    """A warning, above the line of progress: ``sys.stderr`` is then rich's, which click evades."""
    if not sys.stderr.isatty():
        sys.stderr.write(f"warning: {text}\n")
        return
    wide = shutil.get_terminal_size().columns
    block = textwrap.fill(text, wide, initial_indent="- ", subsequent_indent="  ")
    sys.stderr.write(f"Worth a look:\n{block}\n" if heading else f"{block}\n")


@contextmanager
def shown(quiet: bool = False) -> Iterator[None]:
    """Short warnings, and progress on a terminal unless ``quiet``."""
    with short_warnings(), show_progress(-1 if quiet else 1):
        yield


def by_class(name: str, classes: Sequence[str], found: Any) -> str:
    """A table of what the first interval of a diagnosis covers in each class, the largest first."""
    from sharpgp._numbers import number, percent

    inside, width = found.covered[:, found.first], (found.upper - found.lower)[:, found.first]
    rows = [(name, "rows", f"{percent(found.coverages[found.first])} cover", "mean width")]
    for one, n in Counter(classes).most_common(_MAX_CLASSES):
        own = [k for k, label in enumerate(classes) if label == one]
        rows.append((one, f"{n:,}", percent(inside[own].mean()), number(width[own].mean(), 3)))
    wide = [max(len(row[k]) for row in rows) for k in range(4)]
    lines = (
        "  ".join([row[0].ljust(wide[0]), *(row[k].rjust(wide[k]) for k in (1, 2, 3))])
        for row in rows
    )
    more = len(set(classes)) - _MAX_CLASSES
    return "\n".join([*lines, *([f"and {more} smaller ones"] if more > 0 else [])])
