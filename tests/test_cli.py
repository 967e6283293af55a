import pytest
from typer.testing import CliRunner

from processes import python
from sharpgp import __version__
from sharpgp.cli import app
from sharpgp.studies import datasets

runner = CliRunner()


@pytest.fixture(autouse=True)
def _no_folder(monkeypatch):
    monkeypatch.delenv(datasets.ENVIRONMENT_VARIABLE, raising=False)


def test_version():
    result = runner.invoke(app, ["--version"])
    assert result.exit_code == 0
    assert result.stdout == f"sharpgp {__version__}\n"


@pytest.mark.parametrize("arguments", [["--help"], ["demo", "--help"], ["datasets", "--help"]])
def test_help(arguments):
    result = runner.invoke(app, arguments)
    assert result.exit_code == 0
    assert "Usage: sharpgp" in result.stdout


def test_datasets_are_listed_with_size_and_source():
    result = runner.invoke(app, ["datasets"])
    assert result.exit_code == 0
    rows = {
        line.split()[0]: line.split()[1:] for line in result.stdout.splitlines() if line.strip()
    }
    assert set(datasets.names()) < set(rows)
    assert rows["toy"] == ["1240", "1", "generated"]
    assert rows["diabetes"] == ["442", "10", "scikit-learn"]


def test_one_dataset_is_described(tmp_path):
    (tmp_path / "yacht.csv").write_text("length,target\n1,2\n2,4\n")
    result = runner.invoke(app, ["datasets", "yacht", "--data-home", str(tmp_path)])
    assert result.exit_code == 0
    assert result.stdout.startswith("yacht: 2 rows, 1 features (length), target 3 ± 1, from ")


@pytest.mark.parametrize(
    "arguments",
    [
        ["datasets", "titanic"],
        ["datasets", "facebook2"],
        ["datasets", "--data-home", "/no/such/folder"],
        ["demo", "--out", __file__],
    ],
)
def test_bad_input_is_one_line_on_stderr_and_status_2(arguments):
    result = runner.invoke(app, arguments)
    assert result.exit_code == 2
    assert result.stdout == ""
    assert result.stderr.startswith("error: ")
    assert result.stderr.count("\n") == 1
    assert isinstance(result.exception, SystemExit)


@pytest.mark.parametrize("arguments", [["fly"], ["demo", "--fast"], ["datasets", "toy", "two"]])
def test_usage_errors_have_status_2(arguments):
    result = runner.invoke(app, arguments)
    assert result.exit_code == 2
    assert "Traceback" not in result.output


def test_ctrl_c_is_short_and_has_status_130(monkeypatch, tmp_path):
    def interrupted(*_, **__):
        raise KeyboardInterrupt

    monkeypatch.setattr("sharpgp.studies.demo.run", interrupted)
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
