"""``sharpgp bench table`` and ``sharpgp bench regret``: what result files say."""

from pathlib import Path
from typing import Annotated

import typer

from sharpgp_benchmarks.commands.options import Results


def table(
    results: Results,
    form: Annotated[str, typer.Option("--format", help="text, md, latex or csv.")] = "text",
    figures: Annotated[
        Path | None, typer.Option(help="Folder for the figures of optimisations.")
    ] = None,
) -> None:
    """Print the tables of a run, from its result files alone."""
    from sharpgp_benchmarks.formats import render

    typer.echo(render(results, form), nl=False)
    if figures is not None:
        from sharpgp_benchmarks.regret import draw

        typer.echo(f"Wrote {', '.join(draw(results, figures))} to {figures}/", err=True)


def regret(results: Results) -> None:
    """Compare optimisations repetition by repetition, from the files of sharpgp bench bo."""
    from sharpgp_benchmarks.regret import compare

    typer.echo(compare(results))
