"""``sharpgp bench bo``."""

from typing import Annotated

import typer

from sharpgp.studies.commands.options import Out, names_of
from sharpgp.studies.commands.running import Engine, carry_out, on_an_engine


@on_an_engine
def bo(
    out: Out,
    names: Annotated[
        str | None,
        typer.Option(
            "--datasets",
            help="Functions with commas. Default: ackley,rosenbrock,branin,hartmann6.",
        ),
    ] = None,
    methods: Annotated[
        str | None,
        typer.Option(
            help="Names with commas. Default: "
            "calibrated,calibrated_1,recalibrated,ucb,ucb_retrained,logei,random."
        ),
    ] = None,
    repeats: Annotated[int, typer.Option(help="Initial designs of each function.")] = 20,
    iterations: Annotated[int, typer.Option(help="Points to ask for.")] = 100,
    *,
    engine: Engine,
) -> None:
    """Optimise test functions with calibrated and other acquisition functions."""
    from sharpgp.studies.bo import plan

    tasks = plan(names_of(names), names_of(methods), repeats=repeats, iterations=iterations)
    carry_out(tasks, out, engine)
