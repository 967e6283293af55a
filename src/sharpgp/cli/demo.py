"""``sharpgp demo``."""

from pathlib import Path
from typing import Annotated

import typer

from sharpgp._extras import need
from sharpgp.cli._app import app
from sharpgp.cli.models import QUIET


@app.command()
def demo(
    out: Annotated[Path, typer.Option(help="Folder for tables, figures and report.")] = Path(
        "demo"
    ),
    quiet: QUIET = False,
    everything: Annotated[
        bool,
        typer.Option("--all", help="Also methods of other packages, some of which take minutes."),
    ] = False,
) -> None:
    """Compare every method on two small problems, in a few minutes."""
    need("plots", "matplotlib")
    from rich.console import Console

    from sharpgp.cli.demonstration import run

    run(out, console=Console(), quiet=quiet, everything=everything)
