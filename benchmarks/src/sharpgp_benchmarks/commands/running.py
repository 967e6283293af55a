"""How every experiment is run: the options of its engine, and what follows from them."""

import inspect
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, fields
from functools import wraps
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from sharpgp_benchmarks.commands.options import Quiet

if TYPE_CHECKING:
    from sharpgp_benchmarks.task import Task

INTERRUPTED = "interrupted; finished tasks are kept, and the same command goes on from there"


@dataclass(frozen=True)
class Engine:
    """Where tasks run; each entry is an option of every experiment (see :func:`on_an_engine`)."""

    engine: Annotated[str, typer.Option(help="local, ray or dask.")] = "local"
    workers: Annotated[int | None, typer.Option(help="Tasks at a time. Default: one per core.")] = (
        None
    )
    threads: Annotated[int, typer.Option(help="Threads of each worker.")] = 1
    address: Annotated[str | None, typer.Option(help="Address of a ray or dask cluster.")] = None
    retry_failed: Annotated[
        bool, typer.Option("--retry-failed", help="Also run those tasks again that failed.")
    ] = False
    quiet: Quiet = False


def on_an_engine(command: Callable[..., None]) -> Callable[..., None]:
    """A command with an option for each entry of :class:`Engine` in place of its ``engine``.

    Examples
    --------
    >>> @on_an_engine
    ... def experiment(out: Path, engine: Engine) -> None:
    ...     print(out, engine.workers)
    >>> experiment(out="results", workers=2)
    results 2
    """
    named = {entry.name for entry in fields(Engine)}

    @wraps(command)
    def with_options(**options: Any) -> None:
        own = {name: value for name, value in options.items() if name not in named}
        engine = Engine(**{name: options[name] for name in named & set(options)})
        command(**own, engine=engine)

    kept = [
        parameter
        for parameter in inspect.signature(command).parameters.values()
        if parameter.name != "engine"
    ]
    options = [*kept, *inspect.signature(Engine).parameters.values()]
    with_options.__signature__ = inspect.Signature(  # type: ignore[attr-defined]
        [option.replace(kind=inspect.Parameter.KEYWORD_ONLY) for option in options]
    )
    with_options.__annotations__ = {option.name: option.annotation for option in options}
    return with_options


def carry_out(
    tasks: Sequence["Task"],
    out: Path,
    engine: Engine,
    *,
    show: Callable[[Path], str] | None = None,
    require: Callable[..., None] | None = None,
    data_home: Path | None = None,
    device: str = "cpu",
) -> None:
    """Look for device and data, run tasks, print their table; status 1 if any task failed."""
    from sharpgp.gp.compute import choose_device
    from sharpgp_benchmarks import formats, progress
    from sharpgp_benchmarks.run import run

    if engine.address is None:  # the machines of a cluster need not be like this one
        choose_device(device, n_rows=0)
        if require is not None:
            require([task.dataset for task in tasks], data_home)
    home = None if data_home is None else str(data_home.absolute())
    settings = asdict(engine)
    quiet = settings.pop("quiet")
    try:
        with progress.bar(not quiet) as shown:
            context = {"data_home": home, "device": device}
            summary = run(tasks, out, context=context, progress=shown, **settings)
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
