"""The commands ``sharpgp bench``, ``sharpgp demo`` and ``sharpgp datasets``."""

from collections.abc import Callable, Sequence
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from sharpgp._extras import need
from sharpgp.exceptions import InvalidInputError

if TYPE_CHECKING:
    from sharpgp.studies.task import Task

app = typer.Typer(no_args_is_help=True, rich_markup_mode="markdown")
bench = typer.Typer(
    name="bench", no_args_is_help=True, help="Run the paper's experiments, and print their tables."
)
app.add_typer(bench)

INTERRUPTED = "interrupted; finished tasks are kept, and the same command goes on from there"

# Options that several experiments have.
Out = Annotated[Path, typer.Option(help="Folder of results; a run goes on where it stopped.")]
Base = Annotated[str, typer.Option(help="trained, or undertrained as the paper's figures imply.")]
Device = Annotated[str, typer.Option(help="cpu, cuda or auto: where the GPs compute.")]
DataHome = Annotated[
    Path | None,
    typer.Option(
        help="Folder with your own copies of the sets: NAME.csv or NAME.csv.gz, the last column "
        "'target'. Default: the environment variable SHARPGP_DATA."
    ),
]
EngineName = Annotated[str, typer.Option("--engine", help="local, ray or dask.")]
Workers = Annotated[int | None, typer.Option(help="Tasks at a time. Default: one per core.")]
Threads = Annotated[int, typer.Option(help="Threads of each worker.")]
Address = Annotated[str | None, typer.Option(help="Address of a ray or dask cluster.")]
PaperSettings = Annotated[
    str | None,
    typer.Option(
        "--paper",
        help="Settings of the paper's method, NAME=VALUE with commas: levels (a count, all, or "
        "levels with /), family, objective, subset, restarts, effort.",
    ),
]
RetryFailed = Annotated[
    bool, typer.Option("--retry-failed", help="Also run those tasks again that failed.")
]
Quiet = Annotated[bool, typer.Option("--quiet", help="No progress display.")]


def names_of(text: str | None) -> list[str] | None:
    """Comma-separated names as a list.

    Examples
    --------
    >>> names_of("boston, yacht")
    ['boston', 'yacht']
    """
    return None if text is None else [name.strip() for name in text.split(",") if name.strip()]


def counts_of(text: str | None) -> dict[str, int]:
    """``name=count`` pairs as a dictionary.

    Examples
    --------
    >>> counts_of("kuleshov22=20,fully_bayesian=5")
    {'kuleshov22': 20, 'fully_bayesian': 5}
    """
    counts = {}
    for pair in names_of(text) or []:
        name, _, count = pair.partition("=")
        if not count.strip().isdigit():
            raise InvalidInputError(f"repeats-of: expected METHOD=COUNT, found {pair!r}")
        counts[name.strip()] = int(count)
    return counts


def settings_of(text: str | None, known: Sequence[str], what: str) -> dict[str, Any]:
    """``name=value`` pairs as a dictionary; numbers become numbers, ``a/b`` a list.

    Examples
    --------
    >>> settings_of("effort=2,levels=0.025/0.975", ["effort", "levels"], "paper")
    {'effort': 2, 'levels': [0.025, 0.975]}
    """
    from sharpgp._validation import check_choice

    def value_of(part: str) -> Any:
        try:
            return float(part) if "." in part else int(part)
        except ValueError:
            return part

    settings: dict[str, Any] = {}
    for pair in names_of(text) or []:
        name, _, value = (part.strip() for part in pair.partition("="))
        if not value:
            raise InvalidInputError(f"{what}: expected NAME=VALUE, found {pair!r}")
        check_choice(name, what, known)
        parts = [value_of(part) for part in value.split("/")]
        settings[name] = parts if len(parts) > 1 else parts[0]
    return settings


def of_methods(paper: str | None, pretrained_on: str | None) -> dict[str, dict[str, Any]]:
    """Settings of single methods, of those that have some."""
    from sharpgp.studies.regression import PAPER_SETTINGS, PRETRAINED_ON

    of_method = {"paper": settings_of(paper, PAPER_SETTINGS, "paper")}
    if pretrained_on is not None:
        of_method["kuleshov22"] = {PRETRAINED_ON: pretrained_on}
    return {method: settings for method, settings in of_method.items() if settings}


def carry_out(
    tasks: Sequence["Task"],
    out: Path,
    *,
    show: Callable[[Path], str] | None = None,
    require: Callable[..., None] | None = None,
    data_home: Path | None = None,
    device: str = "cpu",
    quiet: bool = False,
    **engine: Any,
) -> None:
    """Look for device and data, run tasks, print their table; status 1 if any task failed."""
    from sharpgp.gp.compute import choose_device
    from sharpgp.studies import formats, progress
    from sharpgp.studies.run import run

    if engine["address"] is None:  # the machines of a cluster need not be like this one
        choose_device(device, n_rows=0)
        if require is not None:
            require([task.dataset for task in tasks], data_home)
    home = None if data_home is None else str(data_home.absolute())
    try:
        with progress.bar(not quiet) as shown:
            context = {"data_home": home, "device": device}
            summary = run(tasks, out, context=context, progress=shown, **engine)
    except KeyboardInterrupt:
        typer.echo(INTERRUPTED, err=True)
        raise typer.Exit(130) from None
    typer.echo((show or formats.render)(out))
    typer.echo(
        f"{summary.tasks} tasks, {summary.computed} computed now; see sharpgp bench table {out}"
    )
    if summary.failed:
        typer.echo(
            f"{summary.failed} of {summary.tasks} tasks failed; the same command with "
            "--retry-failed runs them again",
            err=True,
        )
        raise typer.Exit(1)


@bench.command()
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
    engine: EngineName = "local",
    workers: Workers = None,
    threads: Threads = 1,
    address: Address = None,
    retry_failed: RetryFailed = False,
    quiet: Quiet = False,
) -> None:
    """Compare all methods on the benchmark sets."""
    from sharpgp.studies import datasets
    from sharpgp.studies.regression import SMALL, plan

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
    carry_out(
        tasks, out, require=datasets.require, data_home=data_home, device=device, quiet=quiet,
        engine=engine, workers=workers, threads=threads, address=address, retry_failed=retry_failed,
    )  # fmt: skip


@bench.command()
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
    engine: EngineName = "local",
    workers: Workers = None,
    threads: Threads = 1,
    address: Address = None,
    retry_failed: RetryFailed = False,
    quiet: Quiet = False,
) -> None:
    """Compare 100 % intervals with uniform error bounds."""
    from sharpgp.studies import datasets
    from sharpgp.studies.bounds import plan

    tasks = plan(names_of(names), names_of(methods), repeats=repeats, base=base)
    carry_out(
        tasks, out, require=datasets.require, data_home=data_home, quiet=quiet,
        engine=engine, workers=workers, threads=threads, address=address, retry_failed=retry_failed,
    )  # fmt: skip


@bench.command()
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
            "small logei,ucb,thompson,botorch_logei,botorch_ucb,paper,random."
        ),
    ] = None,
    repeats: Annotated[int, typer.Option(help="Initial designs of each function.")] = 20,
    iterations: Annotated[
        int | None, typer.Option(help="Points to ask for. Default: 100, of the suite small 60.")
    ] = None,
    data_home: DataHome = None,
    engine: EngineName = "local",
    workers: Workers = None,
    threads: Threads = 1,
    address: Address = None,
    retry_failed: RetryFailed = False,
    quiet: Quiet = False,
) -> None:
    """Optimise test functions with calibrated and other acquisition functions."""
    from sharpgp._validation import check_choice
    from sharpgp.studies import bo as of_paper
    from sharpgp.studies.optimisation import experiment as small
    from sharpgp.studies.regret import compare

    check_choice(suite, "suite", ("paper", "small"))
    chosen, how = names_of(names), {"repeats": repeats}
    if suite == "paper":
        how["iterations"] = iterations or of_paper.ITERATIONS
        tasks, show = of_paper.plan(chosen, names_of(methods), **how), None
    else:
        how["iterations"] = iterations or small.ITERATIONS
        tasks = small.plan(chosen or small.available(data_home), names_of(methods), **how)
        show = compare
    carry_out(
        tasks, out, show=show, data_home=data_home, quiet=quiet,
        engine=engine, workers=workers, threads=threads, address=address, retry_failed=retry_failed,
    )  # fmt: skip


@bench.command("paper")
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
    paper: PaperSettings = None,
    device: Device = "cpu",
    data_home: DataHome = None,
    engine: EngineName = "local",
    workers: Workers = None,
    threads: Threads = 1,
    address: Address = None,
    retry_failed: RetryFailed = False,
    quiet: Quiet = False,
) -> None:
    """Run every table and figure of the paper, and write a page that says what reproduces."""
    from sharpgp.studies import paper as whole

    sets, missing = whole.available(names_of(names), data_home)
    tasks = whole.plan(
        sets, quick=quick, repeats=repeats, of_paper=of_methods(paper, None).get("paper")
    )
    carry_out(
        tasks, out, show=lambda folder: whole.write_page(folder, missing), data_home=data_home,
        device=device, quiet=quiet, engine=engine, workers=workers, threads=threads,
        address=address, retry_failed=retry_failed,
    )  # fmt: skip


@bench.command()
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
    engine: EngineName = "local",
    workers: Workers = None,
    threads: Threads = 1,
    address: Address = None,
    retry_failed: RetryFailed = False,
    quiet: Quiet = False,
) -> None:
    """Compare this library with MAPIE, crepes, BoTorch, scikit-learn and more; takes hours."""
    from sharpgp.studies import extra_sets
    from sharpgp.studies.peers.experiment import plan

    tasks = plan(names_of(names), names_of(methods), repeats=repeats, most=most)
    carry_out(
        tasks, out, require=extra_sets.require, data_home=data_home, device=device, quiet=quiet,
        engine=engine, workers=workers, threads=threads, address=address, retry_failed=retry_failed,
    )  # fmt: skip


Results = Annotated[Path, typer.Argument(help="Folder that a run has written.")]


@bench.command()
def table(
    results: Results,
    form: Annotated[str, typer.Option("--format", help="text, md, latex or csv.")] = "text",
    figures: Annotated[
        Path | None, typer.Option(help="Folder for the figures of optimisations.")
    ] = None,
) -> None:
    """Print the tables of a run, from its result files alone."""
    from sharpgp.studies.formats import render

    typer.echo(render(results, form), nl=False)
    if figures is not None:
        from sharpgp.studies.regret import draw

        typer.echo(f"Wrote {', '.join(draw(results, figures))} to {figures}/", err=True)


@bench.command("peers-table")
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
    need("studies", "crepes", "mapie", "pandas")
    from sharpgp._validation import check_choice
    from sharpgp.studies.peers import tables

    check_choice(form, "format", ("text", "csv"))
    rows = tables.read(results)
    if form == "csv":
        typer.echo(tables.as_csv(rows), nl=False)
        return
    text = tables.render(
        rows, names_of(names), names_of(methods), most=most, repeats=repeats, brief=brief
    )
    typer.echo(text, nl=False)


@bench.command()
def regret(results: Results) -> None:
    """Compare optimisations repetition by repetition, from the files of sharpgp bench bo."""
    from sharpgp.studies.regret import compare

    typer.echo(compare(results))


@bench.command()
def toy(
    out: Annotated[Path, typer.Option(help="Folder for the figures.")],
    bayes: Annotated[
        bool, typer.Option("--fully-bayesian", help="A seventh panel; takes a minute.")
    ] = False,
    seed: Annotated[int, typer.Option(help="Seed of the data.")] = 0,
) -> None:
    """Draw the paper's figures of the one-dimensional problem."""
    from sharpgp.studies.toy import draw

    typer.echo(f"Wrote {', '.join(draw(out, fully_bayesian=bayes, seed=seed))} to {out}/")


@bench.command(
    context_settings={
        "allow_extra_args": True,
        "ignore_unknown_options": True,
        "help_option_names": [],  # of the study itself
    }
)
def evidence(
    context: typer.Context,
    name: Annotated[str | None, typer.Argument(help="Name of a study; without it, a list.")] = None,
) -> None:
    """Run one of the small studies behind a claim or a constant; without a name, list them."""
    from sharpgp._validation import check_choice
    from sharpgp.studies.evidence import STUDIES
    from sharpgp.studies.evidence.common import calm

    if name is None or name == "--help":
        width = max(map(len, STUDIES))
        for known, claim in STUDIES.items():
            typer.echo(f"{known:{width}}  {claim}")
        return
    check_choice(name, "evidence", STUDIES)
    study = typer.Typer(add_completion=False, pretty_exceptions_enable=False)
    study.command()(import_module(f"sharpgp.studies.evidence.{name}").main)
    with calm():
        study(context.args, prog_name=f"sharpgp bench evidence {name}", standalone_mode=False)


@app.command()
def demo(
    out: Annotated[Path, typer.Option(help="Folder for tables, figures and report.")] = Path(
        "demo"
    ),
    quiet: Quiet = False,
    everything: Annotated[
        bool, typer.Option("--all", help="Also the methods that take minutes.")
    ] = False,
) -> None:
    """Compare every method on two small problems, in a minute or two."""
    need("plots", "matplotlib")
    from rich.console import Console

    from sharpgp.studies.demo import run

    run(out, console=Console(), quiet=quiet, everything=everything)


@app.command("datasets")
def list_datasets(
    name: Annotated[str | None, typer.Argument(help="Load this set and describe it.")] = None,
    data_home: DataHome = None,
) -> None:
    """List the benchmark sets and where each would come from."""
    from rich.console import Console
    from rich.table import Table

    from sharpgp.studies import datasets

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
