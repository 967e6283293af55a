"""``sharpgp bench regression``."""

from typing import Annotated

import typer

from sharpgp_benchmarks.commands.options import (
    Base,
    DataHome,
    Device,
    Out,
    PaperSettings,
    counts_of,
    names_of,
    of_methods,
)
from sharpgp_benchmarks.commands.running import Engine, carry_out, on_an_engine


@on_an_engine
def regression(
    out: Out,
    names: Annotated[
        str | None,
        typer.Option("--datasets", help="Names with commas. Default: the five small sets."),
    ] = None,
    methods: Annotated[
        str | None,
        typer.Option(help="Names with commas, or all. Default: all but those that take minutes."),
    ] = None,
    repeats: Annotated[int, typer.Option(help="Splits of each set.")] = 100,
    repeats_of: Annotated[
        str | None,
        typer.Option(
            help="Splits of single methods, METHOD=COUNT with commas. "
            "Default: kuleshov22=20,fully_bayesian=5."
        ),
    ] = None,
    base: Base = "trained",
    max_train: Annotated[
        int | None,
        typer.Option(
            help="Larger training parts are cut down to this size. Default: only those of hardly "
            "trained GPs, to 2,000."
        ),
    ] = None,
    inducing: Annotated[
        int | None,
        typer.Option(
            help="Inducing inputs of sparse GPs. Default: exact up to 3,000 training points, "
            "300 beyond."
        ),
    ] = None,
    split: Annotated[
        str | None, typer.Option(help="Such as 60/20/20. Default: the paper's.")
    ] = None,
    paper: PaperSettings = None,
    pretrained_on: Annotated[
        str | None,
        typer.Option(help="Set that the network of kuleshov22 is pretrained on, as in the paper."),
    ] = None,
    device: Device = "cpu",
    data_home: DataHome = None,
    *,
    engine: Engine,
) -> None:
    """Compare all methods on the benchmark sets."""
    from sharpgp_benchmarks import datasets
    from sharpgp_benchmarks.regression import SMALL, plan

    tasks = plan(
        names_of(names) or SMALL,
        names_of(methods),
        repeats=repeats,
        repeats_of=counts_of(repeats_of),
        base=base,
        max_train=max_train,
        inducing=inducing,
        split=split,
        of_method=of_methods(paper, pretrained_on),
    )
    carry_out(tasks, out, engine, require=datasets.require, data_home=data_home, device=device)
