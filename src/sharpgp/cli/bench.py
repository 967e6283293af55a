"""``sharpgp bench``."""

from pathlib import Path
from typing import Annotated, Any

import typer

from sharpgp.cli._app import app

bench = typer.Typer(
    name="bench", no_args_is_help=True, help="Run the paper's experiments, and print their tables."
)
app.add_typer(bench)


# Options that all experiments have.
Out = Annotated[Path, typer.Option(help="Folder of results; a run goes on where it stopped.")]
Base = Annotated[str, typer.Option(help="trained, or undertrained as the paper's figures imply.")]
DataHome = Annotated[
    Path | None,
    typer.Option(
        help="Folder with your own copies of the sets, NAME.csv. "
        "Default: the environment variable SHARPGP_DATA."
    ),
]
EngineName = Annotated[str, typer.Option("--engine", help="local, ray or dask.")]
Workers = Annotated[int | None, typer.Option(help="Tasks at a time. Default: one per core.")]
Threads = Annotated[int, typer.Option(help="Threads of each worker.")]
Address = Annotated[str | None, typer.Option(help="Address of a ray or dask cluster.")]
RetryFailed = Annotated[
    bool, typer.Option("--retry-failed", help="Also run those tasks again that failed.")
]
Quiet = Annotated[bool, typer.Option("--quiet", help="No progress display.")]


def _run(command: str, out: Path, *, quiet: bool, **settings: Any) -> None:
    from sharpgp.experiments import commands, progress

    try:
        summary = getattr(commands, f"run_{command}")(
            out, display=progress.bar(not quiet), **settings
        )
    except KeyboardInterrupt:
        typer.echo(commands.INTERRUPTED, err=True)
        raise typer.Exit(130) from None
    typer.echo(commands.closing(summary, out))


@bench.command("regression")
def bench_regression(
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
    device: Annotated[str, typer.Option(help="cpu, cuda or auto: where the GPs compute.")] = "cpu",
    data_home: DataHome = None,
    engine: EngineName = "local",
    workers: Workers = None,
    threads: Threads = 1,
    address: Address = None,
    retry_failed: RetryFailed = False,
    quiet: Quiet = False,
) -> None:
    """Compare all methods on the benchmark sets."""
    _run("regression", **locals())


@bench.command("bounds")
def bench_bounds(
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
    engine: EngineName = "local",
    workers: Workers = None,
    threads: Threads = 1,
    address: Address = None,
    retry_failed: RetryFailed = False,
    quiet: Quiet = False,
) -> None:
    """Compare 100 % intervals with uniform error bounds."""
    _run("bounds", **locals())


@bench.command("bo")
def bench_bo(
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
            "calibrated,recalibrated,ucb,ucb_retrained,logei,random."
        ),
    ] = None,
    repeats: Annotated[int, typer.Option(help="Initial designs of each function.")] = 20,
    iterations: Annotated[int, typer.Option(help="Points to ask for.")] = 100,
    engine: EngineName = "local",
    workers: Workers = None,
    threads: Threads = 1,
    address: Address = None,
    retry_failed: RetryFailed = False,
    quiet: Quiet = False,
) -> None:
    """Optimise test functions with calibrated and other acquisition functions."""
    _run("bo", **locals())


@bench.command("toy")
def bench_toy(
    out: Annotated[Path, typer.Option(help="Folder for the figures.")],
    bayes: Annotated[
        bool, typer.Option("--fully-bayesian", help="A seventh panel; takes a minute.")
    ] = False,
    seed: Annotated[int, typer.Option(help="Seed of the data.")] = 0,
) -> None:
    """Draw the paper's figures of the one-dimensional problem."""
    from sharpgp.experiments.toy import draw

    typer.echo(f"Wrote {', '.join(draw(out, fully_bayesian=bayes, seed=seed))} to {out}/")


@bench.command("table")
def bench_table(
    results: Annotated[Path, typer.Argument(help="Folder that a run has written.")],
    form: Annotated[str, typer.Option("--format", help="text, md, latex or csv.")] = "text",
    figures: Annotated[
        Path | None, typer.Option(help="Folder for the figures of optimisations.")
    ] = None,
) -> None:
    """Print the tables of a run, from its result files alone."""
    from sharpgp.experiments.tables import render

    typer.echo(render(results, form), nl=False)
    if figures is not None:
        from sharpgp.experiments.regret import draw

        typer.echo(f"Wrote {', '.join(draw(results, figures))} to {figures}/", err=True)
