"""``sharpgp bench bo``."""

from typing import Annotated

import typer

from sharpgp_benchmarks.commands.options import DataHome, Out, names_of
from sharpgp_benchmarks.commands.running import Engine, carry_out, on_an_engine


@on_an_engine
def bo(
    out: Out,
    suite: Annotated[
        str,
        typer.Option(
            help="paper: bounds that were calibrated once on 149 points. small: this library and "
            "BoTorch from designs of 2.5 points an input, retrained at every step."
        ),
    ] = "paper",
    names: Annotated[
        str | None,
        typer.Option(
            "--datasets",
            help="Functions with commas. Default: ackley,rosenbrock,branin,hartmann6; of the "
            "suite small all, tables where their data can be had.",
        ),
    ] = None,
    methods: Annotated[
        str | None,
        typer.Option(
            help="Names with commas. Default: "
            "calibrated,calibrated_1,recalibrated,ucb,ucb_retrained,logei,random; of the suite "
            "small logei,ucb,botorch_logei,botorch_ucb,turbo,paper,random."
        ),
    ] = None,
    repeats: Annotated[int, typer.Option(help="Initial designs of each function.")] = 20,
    iterations: Annotated[
        int | None, typer.Option(help="Points to ask for. Default: 100, of the suite small 60.")
    ] = None,
    batch: Annotated[
        int,
        typer.Option(help="Points that are run at the same time, of logei, ucb, botorch_logei."),
    ] = 1,
    data_home: DataHome = None,
    *,
    engine: Engine,
) -> None:
    """Optimise test functions with calibrated and other acquisition functions."""
    from sharpgp._validation import check_choice
    from sharpgp_benchmarks import bo as of_paper
    from sharpgp_benchmarks.optimisation import experiment as small
    from sharpgp_benchmarks.regret import compare

    check_choice(suite, "suite", ("paper", "small"))
    chosen, how = names_of(names), {"repeats": repeats}
    if suite == "paper":
        how["iterations"] = iterations or of_paper.ITERATIONS
        tasks, show = of_paper.plan(chosen, names_of(methods), **how), None
    else:
        how["iterations"] = iterations or small.ITERATIONS
        chosen = chosen or small.available(data_home)
        tasks = small.plan(chosen, names_of(methods), batch=batch, **how)
        show = compare
    carry_out(tasks, out, engine, show=show, data_home=data_home)
