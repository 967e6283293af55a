"""``sharpgp demo`` and ``sharpgp datasets``."""

from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console
from rich.table import Table

from sharpgp import datasets
from sharpgp.cli._app import app


@app.command()
def demo(
    out: Annotated[Path, typer.Option(help="Folder for tables, figures and report.")] = Path(
        "demo"
    ),
    quiet: Annotated[bool, typer.Option("--quiet", help="No progress display.")] = False,
    everything: Annotated[
        bool, typer.Option("--all", help="Also the methods that take minutes.")
    ] = False,
) -> None:
    """Compare every method on two small problems, in less than a minute."""
    from sharpgp.demo import run

    run(out, console=Console(), quiet=quiet, everything=everything)


@app.command("datasets")
def list_datasets(
    name: Annotated[str | None, typer.Argument(help="Load this set and describe it.")] = None,
    data_home: Annotated[
        Path | None,
        typer.Option(
            help="Folder with your own copies: NAME.csv or NAME.csv.gz, the last column 'target'. "
            f"Default: the environment variable {datasets.ENVIRONMENT_VARIABLE}.",
        ),
    ] = None,
) -> None:
    """List the benchmark sets and where each would come from."""
    console = Console()
    if name is not None:
        data = datasets.load(name, data_home)
        console.print(
            f"{data.name}: {data.X.shape[0]} rows, {data.X.shape[1]} features "
            f"({', '.join(data.feature_names)}), target {data.y.mean():.4g} ± {data.y.std():.4g}, "
            f"from {data.origin}",
            markup=False,
            soft_wrap=True,
            highlight=False,
        )
        return
    table = Table("name", box=None)
    table.add_column("rows", justify="right")
    table.add_column("features", justify="right")
    table.add_column("from", overflow="fold")
    for known in datasets.names():
        rows, features = datasets.size(known)
        table.add_row(known, str(rows), str(features), datasets.source(known, data_home))
    console.print(table)
