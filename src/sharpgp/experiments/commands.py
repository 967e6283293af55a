"""The benchmark's commands with plain ``argparse``, for machines without typer and rich."""

import argparse
import sys
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path
from typing import Any

from sharpgp.exceptions import InvalidInputError, SharpGPError
from sharpgp.experiments import bounds, progress, regression, tables
from sharpgp.experiments.runner import Progress, Summary, run
from sharpgp.experiments.task import Task
from sharpgp.gp.compute import choose_device


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


def run_regression(
    out: Path,
    *,
    names: str | None = None,
    methods: str | None = None,
    repeats: int = 100,
    repeats_of: str | None = None,
    base: str = "trained",
    max_train: int | None = None,
    inducing: int | None = None,
    split: str | None = None,
    device: str = "cpu",
    engine: str = "local",
    **how: Any,
) -> Summary:
    """Plan and run the regression benchmark; names and counts are given as on a command line."""
    if engine == "local":  # the machines of a cluster need not be like this one
        choose_device(device, n_rows=0)
    tasks = regression.plan(
        names_of(names) or regression.SMALL,
        names_of(methods),
        repeats=repeats,
        repeats_of=counts_of(repeats_of),
        base=base,
        max_train=max_train,
        inducing=inducing,
        split=split,
    )
    return run_tasks(tasks, out, device=device, engine=engine, **how)


def run_bounds(
    out: Path,
    *,
    names: str | None = None,
    methods: str | None = None,
    repeats: int = 10,
    base: str = "trained",
    **how: Any,
) -> Summary:
    """Plan and run the comparison of uniform error bounds."""
    tasks = bounds.plan(names_of(names), names_of(methods), repeats=repeats, base=base)
    return run_tasks(tasks, out, **how)


def run_bo(
    out: Path,
    *,
    names: str | None = None,
    methods: str | None = None,
    repeats: int = 20,
    iterations: int = 100,
    **how: Any,
) -> Summary:
    """Plan and run the optimisation of test functions."""
    from sharpgp.experiments import bo  # BoTorch's optimisers take a second to import

    tasks = bo.plan(names_of(names), names_of(methods), repeats=repeats, iterations=iterations)
    return run_tasks(tasks, out, **how)


def run_tasks(
    tasks: Sequence[Task],
    out: Path,
    *,
    data_home: Path | None = None,
    device: str = "cpu",
    display: AbstractContextManager[Progress | None] | None = None,
    **engine: Any,
) -> Summary:
    """Run tasks, with the settings of an engine as in :func:`sharpgp.experiments.runner.run`."""
    with display or nullcontext() as shown:
        return run(
            tasks,
            out,
            context={
                "data_home": None if data_home is None else str(data_home.absolute()),
                "device": device,
            },
            progress=shown,
            **engine,
        )


def closing(summary: Summary, out: Path) -> str:
    """What to say at the end of a run.

    Examples
    --------
    >>> closing(Summary(tasks=9, computed=3, failed=0), Path("results"))
    '9 tasks, 3 computed now; see sharpgp bench table results'
    """
    said = f"{summary.tasks} tasks, {summary.computed} computed now"
    if summary.failed:
        said += f", {summary.failed} failed (try again with --retry-failed)"
    return f"{said}; see sharpgp bench table {out}"


INTERRUPTED = "interrupted; finished tasks are kept, and the same command goes on from there"


def main(command: str, arguments: Sequence[str] | None = None) -> None:
    """Entry of ``python -m sharpgp.experiments.regression``, ``bounds``, ``bo`` and ``tables``."""
    try:
        _COMMANDS[command](arguments)
    except SharpGPError as error:
        print(f"error: {' '.join(str(error).split())}", file=sys.stderr)
        raise SystemExit(2) from None
    except KeyboardInterrupt:
        print(INTERRUPTED, file=sys.stderr)
        raise SystemExit(130) from None


def _regression(arguments: Sequence[str] | None) -> None:
    parser = _parser("regression", 100, f"default: {','.join(regression.SMALL)}")
    parser.add_argument("--repeats-of", help="other numbers by method, METHOD=COUNT,...")
    parser.add_argument("--base", choices=regression.BASES, default="trained")
    parser.add_argument("--max-train", type=int, help="larger training parts are cut down")
    parser.add_argument("--inducing", type=int, help="of sparse GPs; default: by size")
    parser.add_argument("--split", help="such as 60/20/20; default: the paper's")
    parser.add_argument("--device", default="cpu", help="cpu (default), cuda or auto")
    parser.add_argument("--data-home", type=Path)
    _run(run_regression, parser, arguments)


def _bounds(arguments: Sequence[str] | None) -> None:
    parser = _parser("bounds", 10, f"default: {','.join(bounds.DATASETS)}")
    parser.add_argument("--base", choices=regression.BASES, default="trained")
    parser.add_argument("--data-home", type=Path)
    _run(run_bounds, parser, arguments)


def _bo(arguments: Sequence[str] | None) -> None:
    parser = _parser("bo", 20, "functions; default: all")
    parser.add_argument("--iterations", type=int, default=100)
    _run(run_bo, parser, arguments)


def _parser(name: str, repeats: int, datasets: str) -> argparse.ArgumentParser:
    """Arguments that all experiments have."""
    parser = argparse.ArgumentParser(prog=f"python -m sharpgp.experiments.{name}")
    add = parser.add_argument
    add("--out", type=Path, required=True, help="folder of results")
    add("--datasets", dest="names", help=datasets)
    add("--methods", help="default: all but the slow ones; 'all' for all")
    add("--repeats", type=int, default=repeats)
    add("--engine", default="local")
    add("--workers", type=int)
    add("--threads", type=int, default=1)
    add("--address")
    add("--retry-failed", action="store_true")
    add("--quiet", action="store_true")
    return parser


def _run(
    command: Callable[..., Summary],
    parser: argparse.ArgumentParser,
    arguments: Sequence[str] | None,
) -> None:
    given = vars(parser.parse_args(arguments))
    quiet = given.pop("quiet")
    summary = command(**given, display=nullcontext(progress.lines(not quiet)))
    print(closing(summary, given["out"]))


def _tables(arguments: Sequence[str] | None) -> None:
    parser = argparse.ArgumentParser(prog="python -m sharpgp.experiments.tables")
    parser.add_argument("results", type=Path)
    parser.add_argument("--format", choices=tables.FORMATS, default="text")
    parser.add_argument("--figures", type=Path, help="folder for figures of optimisations")
    given = parser.parse_args(arguments)
    sys.stdout.write(tables.render(given.results, given.format))
    if given.figures is not None:
        from sharpgp.experiments.regret import draw

        draw(given.results, given.figures)


def _regret(arguments: Sequence[str] | None) -> None:
    from sharpgp.experiments.regret import compare

    parser = argparse.ArgumentParser(prog="python -m sharpgp.experiments.regret")
    parser.add_argument("results", type=Path)
    sys.stdout.write(compare(parser.parse_args(arguments).results) + "\n")


_COMMANDS = {
    "regression": _regression,
    "bounds": _bounds,
    "bo": _bo,
    "tables": _tables,
    "regret": _regret,
}
