"""``sharpgp demo``."""

from pathlib import Path
from typing import Annotated

import typer

from sharpgp._extras import need
from sharpgp.studies.commands.options import Quiet


def demo(
    out: Annotated[Path, typer.Option(help="Folder for tables, figures and report.")] = Path(
        "demo"
    ),
    quiet: Quiet = False,
    everything: Annotated[
        bool, typer.Option("--all", help="Also the methods that take minutes.")
    ] = False,
) -> None:
    """Compare every method on two small problems, in a few minutes."""
    need("plots", "matplotlib")
    from rich.console import Console

    from sharpgp.studies.demo import run

    run(out, console=Console(), quiet=quiet, everything=everything)
