"""``sharpgp bench bounds``."""

from typing import Annotated

import typer

from sharpgp_benchmarks.commands.options import Base, DataHome, Out, names_of
from sharpgp_benchmarks.commands.running import Engine, carry_out, on_an_engine


@on_an_engine
def bounds(
    out: Out,
    names: Annotated[
        str | None, typer.Option("--datasets", help="Names with commas. Default: boston,mpg,wine.")
    ] = None,
    methods: Annotated[
        str | None,
        typer.Option(
            help="Names with commas. Default: paper,kuleshov18,exact,capone22; cv is the fifth."
        ),
    ] = None,
    repeats: Annotated[int, typer.Option(help="Splits of each set.")] = 10,
    base: Base = "trained",
    data_home: DataHome = None,
    *,
    engine: Engine,
) -> None:
    """Compare 100 % intervals with uniform error bounds."""
    from sharpgp_benchmarks import datasets
    from sharpgp_benchmarks.bounds import plan

    tasks = plan(names_of(names), names_of(methods), repeats=repeats, base=base)
    carry_out(tasks, out, engine, require=datasets.require, data_home=data_home)
