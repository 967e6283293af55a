"""``sharpgp bench evidence``."""

import shlex
from importlib import import_module
from pathlib import Path
from typing import Annotated

import typer

#: A study's own options pass through.
CONTEXT = {
    "allow_extra_args": True,
    "ignore_unknown_options": True,
    "help_option_names": [],
}


def evidence(
    context: typer.Context,
    name: Annotated[str | None, typer.Argument(help="Name of a study; without it, a list.")] = None,
    out: Annotated[
        Path | None,
        typer.Option(help="Folder for its tables and cases; the same command goes on there."),
    ] = None,
) -> None:
    """Run one of the small studies behind a claim or a constant; without a name, list them."""
    from sharpgp._validation import check_choice
    from sharpgp_benchmarks.evidence import STUDIES
    from sharpgp_benchmarks.evidence.run import recorded

    if name is None or name == "--help":
        width = max(map(len, STUDIES))
        for known, claim in STUDIES.items():
            typer.echo(f"{known:{width}}  {claim}")
        return
    check_choice(name, "evidence", STUDIES)
    study = typer.Typer(add_completion=False, pretty_exceptions_enable=False)
    study.command()(import_module(f"sharpgp_benchmarks.evidence.{name}").main)
    command = f"sharpgp bench evidence {name}"
    with recorded(name, out, shlex.join([*command.split(), *context.args])):
        study(context.args, prog_name=command, standalone_mode=False)
