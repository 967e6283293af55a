"""``sharpgp datasets`` and ``sharpgp bench`` as the library's command line finds them."""

import pytest
from typer.testing import CliRunner

from sharpgp.cli import app
from sharpgp_benchmarks import datasets

runner = CliRunner()


@pytest.fixture(autouse=True)
def _no_folder(monkeypatch):
    monkeypatch.delenv(datasets.ENVIRONMENT_VARIABLE, raising=False)


@pytest.mark.parametrize("arguments", [["datasets", "--help"], ["bench", "--help"]])
def test_help(arguments):
    result = runner.invoke(app, arguments)
    assert result.exit_code == 0
    assert f"sharpgp {arguments[0]}" in result.stdout


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
    ],
)
def test_bad_input_is_one_line_on_stderr_and_status_2(arguments):
    result = runner.invoke(app, arguments)
    assert result.exit_code == 2
    assert result.stdout == ""
    assert result.stderr.startswith("error: ")
    assert result.stderr.count("\n") == 1


def test_usage_errors_have_status_2():
    result = runner.invoke(app, ["datasets", "toy", "two"])
    assert result.exit_code == 2
    assert "Traceback" not in result.output
