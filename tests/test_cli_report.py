import json
import re

import numpy as np
import pandas as pd
import pytest
from typer.testing import CliRunner

from sharpgp import SharpGPRegressor
from sharpgp.cli import app

runner = CliRunner()


@pytest.fixture(scope="module")
def files(tmp_path_factory):
    """A model of a number and a category, and files to judge it by."""
    folder = tmp_path_factory.mktemp("files")
    rng = np.random.default_rng(0)
    frame = pd.DataFrame({"x": rng.uniform(-2, 2, 140), "kind": rng.choice(["a <b>", "c"], 140)})
    frame["y"] = np.sin(frame["x"]) + (frame["kind"] == "c") + 0.2 * rng.normal(size=140)
    frame[:100].to_csv(folder / "train.csv", index=False)
    frame[100:].to_csv(folder / "test.csv", index=False)
    frame[100:].rename(columns={"y": "came"}).to_parquet(folder / "test.parquet")
    frame[100:].drop(columns="y").to_csv(folder / "unlabelled.csv", index=False)
    model = SharpGPRegressor(calibration="kuleshov18", random_state=0)
    model.fit(frame.loc[:99, ["x"]], frame.loc[:99, "y"]).save(folder / "plain.sgp")
    arguments = ["fit", f"{folder}/train.csv", "--target", "y", "--out", f"{folder}/model.sgp"]
    result = runner.invoke(app, [*arguments, "--calibration", "kuleshov18"])
    assert result.exit_code == 0, result.output
    return folder


def report(files, model, data, *more):
    out = files / "report.html"
    out.unlink(missing_ok=True)
    result = runner.invoke(
        app, ["report", f"{files / model}", f"{files / data}", *more, "--out", f"{out}"]
    )
    return result, out


@pytest.mark.parametrize(
    ("data", "more"),
    [("test.csv", []), ("test.csv", ["--target", "y"]), ("test.parquet", ["--target", "came"])],
)
def test_it_writes_the_page_and_two_lines(files, data, more):
    result, out = report(files, "model.sgp", data, *more)
    assert result.exit_code == 0, result.output
    assert result.stderr == ""
    assert re.fullmatch(
        r"(Calibrated|Not calibrated:) .*\.\n(.*\n)?"
        r"40 rows: 95 % intervals cover [\d.]+ % at mean width [\d.]+, CRPS [\d.]+, "
        r"calibration error [\d.]+ times chance; wrote .*report\.html\n",
        result.stdout,
    )
    page = out.read_text()
    assert f"<h1>Calibration report: {data}</h1>" in page
    numbers = json.loads(re.search(r'id="numbers">(.*?)</script>', page, re.DOTALL)[1])
    assert numbers["features"] == ["x", "kind", "row", "distance from training"]
    assert numbers["target"] == (more[1] if more else "y")


def test_a_model_fitted_on_a_frame_has_its_names(files):
    result, out = report(files, "plain.sgp", "test.csv", "--target", "y", "--title", "Mine & yours")
    assert result.exit_code == 0, result.output
    assert result.stderr == ""
    assert "<h1>Mine &amp; yours</h1>" in out.read_text()


def test_rows_of_the_training_table_are_left_out(files):
    train, test = (pd.read_csv(files / f"{name}.csv") for name in ("train", "test"))
    pd.concat([test, train[:9]]).to_csv(files / "mixed.csv", index=False)
    result, out = report(files, "model.sgp", "mixed.csv")
    assert result.exit_code == 0, result.output
    assert "\n40 rows: " in result.stdout
    assert "<h1>Calibration report: mixed.csv</h1>" in out.read_text()


@pytest.mark.parametrize(
    ("model", "data", "more", "message"),
    [
        ("model.sgp", "unlabelled.csv", [], "y"),
        ("model.sgp", "test.csv", ["--target", "z"], "z"),
        ("model.sgp", "none.csv", [], "none.csv"),
        ("none.sgp", "test.csv", [], "none.sgp"),
        ("train.csv", "test.csv", [], "train.csv"),
        ("plain.sgp", "test.csv", [], "target"),
    ],
)
def test_bad_input_is_one_line_and_leaves_no_page(files, model, data, more, message):
    result, out = report(files, model, data, *more)
    assert result.exit_code == 2
    assert result.stdout == ""
    assert result.stderr.startswith("error: ")
    assert result.stderr.count("\n") == 1
    assert message in result.stderr
    assert not out.exists()


def test_a_folder_that_is_not_there_is_named_before_any_work(files):
    arguments = ["report", "no.sgp", "no.csv", "--out", f"{files}/none/report.html"]
    result = runner.invoke(app, arguments)
    assert result.exit_code == 2
    assert "out: expected a folder that exists" in result.stderr
