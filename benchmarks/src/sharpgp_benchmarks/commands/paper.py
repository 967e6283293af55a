"""``sharpgp bench paper``: all of it; ``sharpgp bench toy``: its figures in one dimension."""

from pathlib import Path
from typing import Annotated

import typer

from sharpgp_benchmarks.commands.options import (
    DataHome,
    Device,
    Out,
    PaperSettings,
    names_of,
    of_methods,
)
from sharpgp_benchmarks.commands.running import Engine, carry_out, on_an_engine


@on_an_engine
def whole_paper(
    out: Out,
    quick: Annotated[
        bool, typer.Option("--quick", help="Few repetitions of what takes minutes.")
    ] = False,
    names: Annotated[
        str | None, typer.Option("--datasets", help="Names with commas. Default: all there are.")
    ] = None,
    repeats: Annotated[
        int | None, typer.Option(help="Splits of each set. Default: as printed, 100.")
    ] = None,
    parts: Annotated[
        str | None,
        typer.Option(help="Of regression, bounds and bo, with commas. Default: all three."),
    ] = None,
    only_page: Annotated[
        bool, typer.Option("--only-page", help="Run nothing, write the page of what is there.")
    ] = False,
    summary: Annotated[
        str | None,
        typer.Option(
            help="Run nothing, write the page of these summaries, files of bench table "
            "--format csv, with commas."
        ),
    ] = None,
    paper: PaperSettings = None,
    device: Device = "cpu",
    data_home: DataHome = None,
    *,
    engine: Engine,
) -> None:
    """Run every table and figure of the paper, and write a page that says what reproduces."""
    from sharpgp_benchmarks import paper as whole
    from sharpgp_benchmarks.paper_page import write_page

    sets, missing = whole.available(names_of(names), data_home)
    if only_page or summary:
        typer.echo(write_page(out, missing, names_of(summary) or ()))
        return
    tasks = whole.plan(
        sets,
        parts=names_of(parts),
        quick=quick,
        repeats=repeats,
        of_paper=of_methods(paper, None).get("paper"),
    )
    carry_out(
        tasks,
        out,
        engine,
        show=lambda folder: write_page(folder, missing),
        data_home=data_home,
        device=device,
    )


def toy(
    out: Annotated[Path, typer.Option(help="Folder for the figures.")],
    bayes: Annotated[
        bool, typer.Option("--fully-bayesian", help="A seventh panel; takes a minute.")
    ] = False,
    seed: Annotated[int, typer.Option(help="Seed of the data.")] = 0,
) -> None:
    """Draw the paper's figures of the one-dimensional problem."""
    from sharpgp_benchmarks.toy import draw

    typer.echo(f"Wrote {', '.join(draw(out, fully_bayesian=bayes, seed=seed))} to {out}/")
