"""Options that several commands have, and what their texts mean."""

from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Any

import typer

from sharpgp.exceptions import InvalidInputError

Out = Annotated[Path, typer.Option(help="Folder of results; a run goes on where it stopped.")]
Results = Annotated[Path, typer.Argument(help="Folder that a run has written.")]
Base = Annotated[str, typer.Option(help="trained, or undertrained as the paper's figures imply.")]
Device = Annotated[str, typer.Option(help="cpu, cuda or auto: where the GPs compute.")]
DataHome = Annotated[
    Path | None,
    typer.Option(
        help="Folder with your own copies of the sets: NAME.csv or NAME.csv.gz, the last column "
        "'target'. Default: the environment variable SHARPGP_DATA."
    ),
]
PaperSettings = Annotated[
    str | None,
    typer.Option(
        "--paper",
        help="Settings of the paper's method, NAME=VALUE with commas: levels (a count, all, or "
        "levels with /), family, objective, subset, restarts, effort.",
    ),
]
Quiet = Annotated[bool, typer.Option("--quiet", help="No progress display.")]


def names_of(text: str | None) -> list[str] | None:
    """Comma-separated names as a list.

    Examples
    --------
    >>> names_of("boston, yacht")
    ['boston', 'yacht']
    """
    return None if text is None else [name.strip() for name in text.split(",") if name.strip()]


def counts_of(text: str | None) -> dict[str, int]:
    """``name=count`` pairs as a dictionary.

    Examples
    --------
    >>> counts_of("kuleshov22=20,fully_bayesian=5")
    {'kuleshov22': 20, 'fully_bayesian': 5}
    """
    counts = {}
    for pair in names_of(text) or []:
        name, _, count = pair.partition("=")
        if not count.strip().isdigit():
            raise InvalidInputError(f"repeats-of: expected METHOD=COUNT, found {pair!r}")
        counts[name.strip()] = int(count)
    return counts


def settings_of(text: str | None, known: Sequence[str], what: str) -> dict[str, Any]:
    """``name=value`` pairs as a dictionary; numbers become numbers, ``a/b`` a list.

    Examples
    --------
    >>> settings_of("effort=2,levels=0.025/0.975", ["effort", "levels"], "paper")
    {'effort': 2, 'levels': [0.025, 0.975]}
    """
    from sharpgp._validation import check_choice  # loads NumPy, which --help need not

    def value_of(part: str) -> Any:
        try:
            return float(part) if "." in part else int(part)
        except ValueError:
            return part

    settings: dict[str, Any] = {}
    for pair in names_of(text) or []:
        name, _, value = (part.strip() for part in pair.partition("="))
        if not value:
            raise InvalidInputError(f"{what}: expected NAME=VALUE, found {pair!r}")
        check_choice(name, what, known)
        parts = [value_of(part) for part in value.split("/")]
        settings[name] = parts if len(parts) > 1 else parts[0]
    return settings


def of_methods(paper: str | None, pretrained_on: str | None) -> dict[str, dict[str, Any]]:
    """Settings of single methods, of those that have some."""
    from sharpgp_benchmarks.regression import PAPER_SETTINGS, PRETRAINED_ON

    of_method = {"paper": settings_of(paper, PAPER_SETTINGS, "paper")}
    if pretrained_on is not None:
        of_method["kuleshov22"] = {PRETRAINED_ON: pretrained_on}
    return {method: settings for method, settings in of_method.items() if settings}
