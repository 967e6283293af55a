"""The application: its name, its version, and how errors look."""

from typing import Annotated, Any

import typer
from typer.core import TyperGroup

from sharpgp import __version__
from sharpgp._extras import (
    COMMANDS,
    LABORATORY,
    LABORATORY_COMMANDS,
    entry_point,
    loadable_entry_points,
    need_distribution,
)
from sharpgp.cli.wording import worded
from sharpgp.exceptions import SharpGPError


class _Commands(TyperGroup):
    """Turns expected errors into one line and status 2, and ctrl-C into status 130."""

    def list_commands(self, ctx: Any) -> list[str]:
        return [*super().list_commands(ctx), *loadable_entry_points(COMMANDS)]

    def get_command(self, ctx: Any, cmd_name: str) -> Any:
        own = super().get_command(ctx, cmd_name)
        if own is not None:
            return own
        found = entry_point(COMMANDS, cmd_name)
        if found is not None:
            return typer.main.get_command(found)
        if cmd_name in LABORATORY_COMMANDS:
            need_distribution(LABORATORY, f"sharpgp {cmd_name}")
        return None

    def invoke(self, ctx: Any) -> Any:
        try:
            return super().invoke(ctx)
        except SharpGPError as error:
            text = " ".join(str(error).split())
            told = worded(text) if ctx.invoked_subcommand in self.commands else text
            typer.echo(f"error: {told}", err=True)
            raise typer.Exit(2) from None
        except KeyboardInterrupt:
            typer.echo("interrupted", err=True)
            raise typer.Exit(130) from None


app = typer.Typer(
    name="sharpgp",
    cls=_Commands,
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    rich_markup_mode="markdown",  # paragraphs flow; otherwise lines of the source end lines
    help="Gaussian-process regression with sharp, calibrated predictive distributions.",
)


def _show_version(asked: bool) -> None:
    if asked:
        typer.echo(f"sharpgp {__version__}")
        raise typer.Exit


@app.callback()
def main(
    version: Annotated[
        bool,
        typer.Option(
            "--version", callback=_show_version, is_eager=True, help="Show the version and exit."
        ),
    ] = False,
) -> None:
    """Gaussian-process regression with sharp, calibrated predictive distributions."""
