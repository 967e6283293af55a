"""``sharpgp bench peers`` and ``sharpgp bench peers-table``."""

from pathlib import Path
from typing import Annotated

import typer

from sharpgp_benchmarks.commands.options import DataHome, Device, Out, names_of
from sharpgp_benchmarks.commands.running import Engine, carry_out, on_an_engine


@on_an_engine
def peers(
    out: Out,
    names: Annotated[
        str | None,
        typer.Option(
            "--datasets",
            help="Names with commas, or further for thirty other sets. Default: seven benchmark "
            "sets.",
        ),
    ] = None,
    methods: Annotated[str | None, typer.Option(help="Names with commas. Default: all.")] = None,
    repeats: Annotated[int, typer.Option(help="Splits of each set.")] = 20,
    most: Annotated[int, typer.Option(help="Training rows at most.")] = 2000,
    device: Device = "cpu",
    data_home: DataHome = None,
    *,
    engine: Engine,
) -> None:
    """Compare this library with MAPIE, crepes, BoTorch, scikit-learn and more; takes hours."""
    from sharpgp_benchmarks import extra_sets
    from sharpgp_benchmarks.peers.experiment import plan

    tasks = plan(names_of(names), names_of(methods), repeats=repeats, most=most)
    carry_out(tasks, out, engine, require=extra_sets.require, data_home=data_home, device=device)


def peers_table(
    results: Annotated[Path, typer.Argument(help="Folder that a run has written, or its CSV.")],
    names: Annotated[str | None, typer.Option("--datasets", help="Names with commas.")] = None,
    methods: Annotated[str | None, typer.Option(help="Names with commas.")] = None,
    repeats: Annotated[int | None, typer.Option(help="Only the first splits.")] = None,
    most: Annotated[int, typer.Option(help="Training rows at most, as in the run.")] = 2000,
    brief: Annotated[bool, typer.Option("--brief", help="One line for each set.")] = False,
    form: Annotated[str, typer.Option("--format", help="text, or csv for all rows.")] = "text",
) -> None:
    """Print what sharpgp bench peers found, relative to RK."""
    from sharpgp._validation import check_choice
    from sharpgp_benchmarks.peers import tables

    check_choice(form, "format", ("text", "csv"))
    rows = tables.read(results)
    if form == "csv":
        typer.echo(tables.as_csv(rows), nl=False)
        return
    text = tables.render(
        rows, names_of(names), names_of(methods), most=most, repeats=repeats, brief=brief
    )
    typer.echo(text, nl=False)
