"""``sharpgp datasets``."""

from typing import Annotated

import typer

from sharpgp_benchmarks.commands.options import DataHome


def list_datasets(
    name: Annotated[str | None, typer.Argument(help="Load this set and describe it.")] = None,
    data_home: DataHome = None,
) -> None:
    """List the benchmark sets and where each would come from."""
    from rich.console import Console
    from rich.table import Table

    from sharpgp_benchmarks import datasets

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
    listed = Table("name", box=None)
    listed.add_column("rows", justify="right")
    listed.add_column("features", justify="right")
    listed.add_column("from", overflow="fold")
    for known in datasets.names():
        rows, features = datasets.size(known)
        listed.add_row(known, str(rows), str(features), datasets.source(known, data_home))
    console.print(listed)
