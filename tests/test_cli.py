from importlib.metadata import EntryPoint

import pytest
import typer
from typer.testing import CliRunner

from processes import python
from sharpgp import __version__
from sharpgp.cli import app

runner = CliRunner()


def test_version():
    result = runner.invoke(app, ["--version"])
    assert result.exit_code == 0
    assert result.stdout == f"sharpgp {__version__}\n"


@pytest.mark.parametrize("arguments", [["--help"], ["demo", "--help"], ["fit", "--help"]])
def test_help(arguments):
    result = runner.invoke(app, arguments)
    assert result.exit_code == 0
    assert "Usage: sharpgp" in result.stdout


@pytest.mark.parametrize(
    "arguments",
    [
        ["demo", "--out", __file__],
        ["predict", "nowhere.sgp", "nowhere.csv", "--out", "nothing.csv"],
    ],
)
def test_bad_input_is_one_line_on_stderr_and_status_2(arguments):
    result = runner.invoke(app, arguments)
    assert result.exit_code == 2
    assert result.stdout == ""
    assert result.stderr.startswith("error: ")
    assert result.stderr.count("\n") == 1
    assert isinstance(result.exception, SystemExit)


@pytest.mark.parametrize("arguments", [["fly"], ["demo", "--fast"]])
def test_usage_errors_have_status_2(arguments):
    result = runner.invoke(app, arguments)
    assert result.exit_code == 2
    assert "Traceback" not in result.output


def test_ctrl_c_is_short_and_has_status_130(monkeypatch, tmp_path):
    def interrupted(*_, **__):
        raise KeyboardInterrupt

    monkeypatch.setattr("sharpgp.cli.demonstration.run", interrupted)
    result = runner.invoke(app, ["demo", "--out", str(tmp_path)])
    assert result.exit_code == 130
    assert result.stderr == "interrupted\n"


def test_ctrl_c_while_libraries_are_loaded_is_one_line():
    code = (
        "import os, signal, sys; from sharpgp.__main__ import main\n"
        "class Loading:\n"
        "    def find_spec(self, name, path, target=None):\n"
        "        if name == 'sharpgp.cli': os.kill(os.getpid(), signal.SIGINT)\n"
        "sys.meta_path.insert(0, Loading())\n"
        "sys.argv = ['sharpgp', 'demo']; main()"
    )
    done = python("-c", code)
    assert done.returncode == 130
    assert done.stderr.strip() == "interrupted"


@pytest.mark.parametrize("command", ["bench", "datasets"])
@pytest.mark.parametrize("arguments", [[], ["--help"], ["paper", "--out", "x"]])
def test_commands_of_the_laboratory_say_how_to_get_it(command, arguments, monkeypatch):
    monkeypatch.setattr("sharpgp._extras.entry_points", lambda **_: ())
    result = runner.invoke(app, [command, *arguments])
    assert result.exit_code == 2
    assert result.stdout == ""
    assert result.stderr.startswith(f"error: sharpgp {command}: ")
    assert "pip install sharpgp-benchmarks" in result.stderr
    assert result.stderr.count("\n") == 1
    assert "bench" not in runner.invoke(app, ["--help"]).stdout


def test_commands_of_other_distributions_are_found_by_entry_points(monkeypatch):
    def greet(name: str) -> None:
        typer.echo(f"hello {name}")

    added = typer.Typer()
    added.command()(greet)

    class Point:
        name = "greet"

        def load(self):
            return added

    def entry_points(group, name="greet"):
        return [Point()] if (group, name) == ("sharpgp.commands", "greet") else []

    monkeypatch.setattr("sharpgp._extras.entry_points", entry_points)
    assert runner.invoke(app, ["greet", "you"]).stdout == "hello you\n"
    assert "greet" in runner.invoke(app, ["--help"]).stdout


def test_a_command_that_cannot_be_imported_breaks_no_other(monkeypatch):
    broken = EntryPoint("greet", "no_such_module:app", "sharpgp.commands")
    monkeypatch.setattr("sharpgp._extras.entry_points", lambda **_: [broken])
    result = runner.invoke(app, ["greet"])
    assert result.exit_code == 2
    assert result.stderr.count("\n") == 1
    assert "no_such_module" in result.stderr
    shown = runner.invoke(app, ["--help"])
    assert shown.exit_code == 0
    assert "greet" not in shown.stdout
