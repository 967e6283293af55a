"""``sharpgp bench``."""

from pathlib import Path
from typing import Annotated

import typer

from sharpgp.cli._app import app

bench = typer.Typer(
    name="bench", no_args_is_help=True, help="Run the paper's experiments, and print their tables."
)
app.add_typer(bench)


@bench.command("regression")
def bench_regression(
    out: Annotated[Path, typer.Option(help="Folder of results; a run goes on where it stopped.")],
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
    base: Annotated[
        str, typer.Option(help="trained, or undertrained as the paper's figures imply.")
    ] = "trained",
    max_train: Annotated[
        int, typer.Option(help="Larger training parts are cut down to this size.")
    ] = 2000,
    data_home: Annotated[Path | None, typer.Option(help="Folder with your copies.")] = None,
    engine: Annotated[str, typer.Option(help="local, ray or dask.")] = "local",
    workers: Annotated[
        int | None, typer.Option(help="Tasks at a time. Default: one per core.")
    ] = None,
    threads: Annotated[int, typer.Option(help="Of each worker.")] = 1,
    address: Annotated[str | None, typer.Option(help="Of a ray or dask cluster.")] = None,
    retry_failed: Annotated[
        bool, typer.Option("--retry-failed", help="Also run those tasks again that failed.")
    ] = False,
    quiet: Annotated[bool, typer.Option("--quiet", help="No progress display.")] = False,
) -> None:
    """Compare all methods on the benchmark sets."""
    from sharpgp.experiments import commands, progress

    try:
        summary = commands.run_regression(
            out,
            names=names,
            methods=methods,
            repeats=repeats,
            repeats_of=repeats_of,
            base=base,
            max_train=max_train,
            data_home=data_home,
            engine=engine,
            workers=workers,
            threads=threads,
            address=address,
            retry_failed=retry_failed,
            display=progress.bar(not quiet),
        )
    except KeyboardInterrupt:
        typer.echo(commands.INTERRUPTED, err=True)
        raise typer.Exit(130) from None
    typer.echo(commands.closing(summary, out))


@bench.command("toy")
def bench_toy(
    out: Annotated[Path, typer.Option(help="Folder for the figures.")],
    bayes: Annotated[
        bool, typer.Option("--fully-bayesian", help="A seventh panel; takes a minute.")
    ] = False,
    seed: Annotated[int, typer.Option(help="Of the data.")] = 0,
) -> None:
    """Draw the paper's figures of the one-dimensional problem."""
    from sharpgp.experiments.toy import draw

    typer.echo(f"Wrote {', '.join(draw(out, fully_bayesian=bayes, seed=seed))} to {out}/")


@bench.command("table")
def bench_table(
    results: Annotated[Path, typer.Argument(help="Folder that a run has written.")],
    form: Annotated[str, typer.Option("--format", help="text, md, latex or csv.")] = "text",
) -> None:
    """Print the tables of a run, from its result files alone."""
    from sharpgp.experiments.tables import render

    typer.echo(render(results, form), nl=False)
