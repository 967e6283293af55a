"""Models on tables: reading, encoding, prediction as a stream, and the commands around them."""

import os
import signal
import subprocess
import sys

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest
from typer.testing import CliRunner

from processes import PATIENCE, environment, wait_for
from sharpgp import SharpGPRegressor, Sparse
from sharpgp.cli import app
from sharpgp.data import Column, TableEncoding
from sharpgp.exceptions import InvalidInputError
from sharpgp.gp.dense import add_to_diagonal
from sharpgp.tabular import load_model, prediction
from sharpgp.tabular.models import read_whole
from sharpgp.tabular.prediction import Request, predict_file
from tolerances import rounding

runner = CliRunner()


def frame(n, seed=0):
    rng = np.random.default_rng(seed)
    x, kind = rng.uniform(-3, 3, n), rng.choice(["red", "blue", "dark, green"], n)
    y = np.sin(x) + (kind == "red") + 0.1 * rng.normal(size=n)
    return pd.DataFrame({"id": np.arange(n), "x": x, "kind": kind, "on": x > 0, "y": y})


def alike(model):
    """By how much answers may differ that are computed with other rows beside them."""
    gp = model.posterior_
    theta = gp.theta_R.unsqueeze(0)
    K = gp.covariance.matrix(theta, gp.x_units.forward(gp.X_train))
    error = rounding(add_to_diagonal(K, theta[:, -1])[0])
    return {"rtol": error, "atol": error * float(gp.y_train.std())}


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """Training data, new data and a model, as the command line makes them."""
    folder = tmp_path_factory.mktemp("tables")
    frame(80).to_csv(folder / "train.csv", index=False)
    new = frame(500, seed=1).drop(columns="y")
    new.to_csv(folder / "new.csv", index=False)
    new.to_parquet(folder / "new.parquet")
    result = runner.invoke(
        app,
        [
            *("fit", str(folder / "train.csv"), "--target", "y", "--drop", "id"),
            *("--calibration", "kuleshov18", "--out", str(folder / "model.sgp")),
        ],
    )
    assert result.exit_code == 0, result.output
    assert "3 columns (5 features), " in result.stdout
    assert " training rows, calibration kuleshov18; wrote " in result.stdout
    return folder


@pytest.fixture(scope="module")
def saved(folder):
    return load_model(folder / "model.sgp")


def ask(*arguments):
    result = runner.invoke(app, [str(argument) for argument in arguments])
    if result.exit_code == 2:
        assert result.stderr.count("\n") == 1, result.stderr
    return result


# ------------------------------------------------------------------ prediction


def test_predictions_are_those_of_the_model_on_encoded_columns(folder, saved, tmp_path):
    out = tmp_path / "pred.parquet"
    result = ask(
        *("predict", folder / "model.sgp", folder / "new.csv", "--out", out, "--keep", "id"),
        *("--coverage", 0.9, "--coverage", 0.625, "--quantiles", "0.1,0.5"),
    )
    assert result.exit_code == 0, result.output
    assert "Predicted 500 rows" in result.stdout
    answer = pd.read_parquet(out)
    new = frame(500, seed=1)
    X, model = new[["x", "kind", "on"]], saved.model
    expected = {
        "id": new["id"],
        "mean": model.predict(X),
        "lower_90": model.predict_interval(X, [0.9, 0.625])[:, 0, 0],
        "upper_90": model.predict_interval(X, [0.9, 0.625])[:, 1, 0],
        "lower_62.5": model.predict_interval(X, [0.9, 0.625])[:, 0, 1],
        "upper_62.5": model.predict_interval(X, [0.9, 0.625])[:, 1, 1],
        "quantile_0.1": model.predict_quantiles(X, 0.1),
        "quantile_0.5": model.predict_quantiles(X, 0.5),
    }
    assert list(answer.columns) == list(expected)
    for name, values in expected.items():
        np.testing.assert_allclose(answer[name], values, **alike(model))


def test_formats_and_batches_agree(folder, saved, tmp_path, monkeypatch):
    request = Request([0.9], [0.25])
    predict_file(saved, folder / "new.csv", tmp_path / "a.parquet", request)
    expected = pd.read_parquet(tmp_path / "a.parquet")
    predict_file(saved, folder / "new.parquet", tmp_path / "b.csv", request)
    # Six digits of the target's deviation are more than people read.
    step = 1e-5 * 10 ** np.floor(np.log10(saved.model.calibrated_.labelled_data()[1].std().item()))
    written = pd.read_csv(tmp_path / "b.csv", dtype=str)
    np.testing.assert_allclose(written.astype(float), expected, rtol=0, atol=0.51 * step)
    assert written["mean"].str.len().max() <= 9
    new = frame(500, seed=1)
    new.to_csv(tmp_path / "new.csv.gz", index=False, sep=";")
    done = []
    monkeypatch.setattr(prediction, "ROWS", 64)
    monkeypatch.setattr(prediction.progress, "advance", done.append)
    predict_file(saved, tmp_path / "new.csv.gz", tmp_path / "c.parquet", request)
    np.testing.assert_allclose(
        pd.read_parquet(tmp_path / "c.parquet"), expected, **alike(saved.model)
    )
    assert [n for n in done if n > 1] == [64] * 7 + [52]


def test_standard_output(folder):
    result = ask("predict", folder / "model.sgp", folder / "new.parquet", "--out", "-")
    lines = result.stdout.splitlines()
    assert lines[0] == '"mean","lower_95","upper_95"'
    assert len(lines) == 501


def test_models_saved_from_python(tmp_path):
    data = frame(60)[["x", "y"]].assign(z=lambda d: d["x"] ** 2)
    by_name = SharpGPRegressor(calibration="vanilla").fit(data[["z", "x"]], data["y"])
    by_name.save(tmp_path / "named.sgp")
    data.to_csv(tmp_path / "data.csv", index=False)
    saved = load_model(tmp_path / "named.sgp")
    X, y, *_ = saved.read(tmp_path / "data.csv", target="y")
    assert X.encoding.names == ["z", "x"]
    np.testing.assert_allclose(X.features, data[["z", "x"]], rtol=1e-12)
    np.testing.assert_allclose(y, data["y"], rtol=1e-12)
    by_order = SharpGPRegressor(calibration="vanilla").fit(data[["x", "z"]].to_numpy(), data["y"])
    by_order.save(tmp_path / "unnamed.sgp")
    saved = load_model(tmp_path / "unnamed.sgp")
    X, *_ = saved.read(tmp_path / "data.csv", target="y")
    np.testing.assert_allclose(X, data[["x", "z"]], rtol=1e-12)
    with pytest.raises(InvalidInputError, match=r"expected 2 columns, .* found 3"):
        saved.open(tmp_path / "data.csv")


# ------------------------------------------------------------------ bad input


GOOD = "x,kind,on\n1,red,true\n2,blue,false\n3,red,true\n"


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (GOOD.replace("2,blue", "two,blue"), "column 'x': expected numbers, found 'two' in row 2"),
        (GOOD.replace("2,blue", "inf,blue"), "column 'x': expected finite numbers, found inf in"),
        (
            GOOD.replace("false", "maybe"),
            "column 'on': expected true or false, found 'maybe'",
        ),
        (GOOD.replace("2,blue,false", "2,blue"), "expected 3 values, found 2 in row 2"),
        (GOOD.replace("x,kind", "u,kind"), "expected the column(s) x, found u, kind, on"),
        (GOOD.replace("on", "x"), "expected distinct names, found 'x' twice"),
        (GOOD.splitlines()[0] + "\n", "expected rows, found only a header"),
        ("", "expected a header and rows, found an empty file"),
    ],
)
def test_bad_rows_are_named(folder, tmp_path, text, message):
    source, out = tmp_path / "new.csv", tmp_path / "pred.csv"
    source.write_text(text)
    cores = pa.cpu_count()
    pa.set_cpu_count(2)  # Arrow names no rows when it reads on several
    try:
        result = ask("predict", folder / "model.sgp", source, "--out", out)
    finally:
        pa.set_cpu_count(cores)
    assert result.exit_code == 2
    assert message in result.stderr
    assert str(source) in result.stderr
    assert os.listdir(tmp_path) == ["new.csv"]


TRAIN = "x,kind,y\n" + "".join(f"{i},{'ab'[i % 2]},{i % 5}\n" for i in range(40))


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (TRAIN.replace("7,b,2", "?,b,2"), "column 'x': expected numbers, found '?' in row 8"),
        (TRAIN.replace("7,b,2", "7,b,?"), "column 'y': expected numbers, found '?' in row 8"),
        (TRAIN.replace("7,b,2", "7,b,inf"), "column 'y': expected finite numbers, found inf in"),
        (TRAIN.replace("y\n", "z\n", 1), "expected the column(s) y, found x, kind, z"),
        ("y\n1\n2\n", "expected at least one column besides the target"),
        (
            "name,y\n" + "".join(f"name {i},{i}\n" for i in range(150)),
            "expected a column that varies and can be learned from, found only 'name'",
        ),
        ("x,y\n" + "1,red\n2,blue\n" * 20, "column 'y': expected numbers to predict, found text"),
        ("x,x,y\n1,2,3\n", "expected distinct names, found 'x' twice"),
    ],
)
def test_bad_training_tables_are_explained(tmp_path, text, message):
    (tmp_path / "train.csv").write_text(text)
    result = ask("fit", tmp_path / "train.csv", "--target", "y", "--out", tmp_path / "model.sgp")
    assert result.exit_code == 2
    assert message in result.stderr
    assert os.listdir(tmp_path) == ["train.csv"]


def test_settings_of_a_fit(folder, tmp_path):
    fit = ["fit", folder / "train.csv", "--target", "y", "--drop", "id"]
    fit += ["--out", tmp_path / "model.sgp"]
    settings = ["--approximation", "sparse:9", "--effort", "low", "--calibration", "loo"]
    done = ask(*fit, "--base", "rbf,extra_trees", *settings)
    assert done.exit_code == 0, done.stderr
    model = load_model(tmp_path / "model.sgp").model
    assert (model.base, model.effort) == (["rbf", "extra_trees"], "low")
    assert {one.name for one in model.base_} == {"rbf", "extra_trees"}
    assert model.approximation == Sparse(9)
    assert model.inducing_ == 9
    for wrong, message in (
        (["--approximation", "sparse:few"], "neighbours, sparse:500 or neighbours:100"),
        (["--approximation", "exact:9"], "neighbours, sparse:500 or neighbours:100"),
        (["--approximation", "dense"], "approximation: expected"),
        (["--base", "oak"], "base: expected one of auto, rbf"),
        (["--effort", "some"], "effort: expected one of low, auto, high"),
    ):
        result = ask(*fit, *wrong)
        assert result.exit_code == 2
        assert message in result.stderr


def test_other_bad_arguments(folder, tmp_path):
    model, new = folder / "model.sgp", folder / "new.csv"
    for arguments, message in (
        (["predict", model, new, "--out", "pred.xlsx"], "expected a .csv"),
        (["predict", model, new, "--out", tmp_path / "no" / "p.csv"], "a folder that exists"),
        (["predict", model, new, "--out", "p.csv", "--coverage", 95], "coverage: expected numbers"),
        (["predict", model, new, "--out", "p.csv", "--quantiles", "a"], "quantiles: expected"),
        (
            ["predict", model, new, "--out", "p.csv", "--keep", "mean"],
            "expected the column(s) mean",
        ),
        (
            ["predict", model, new, "--out", "p.csv", "--engine", "slurm"],
            "engine: expected one of local",
        ),
        (["predict", model, new, "--out", "p.csv", "--address", "a:1"], "expected the engine ray"),
        (["predict", new, new, "--out", "p.csv"], "cannot load"),
        (
            ["predict", model, tmp_path / "none.csv", "--out", "p.csv"],
            "expected a file, found none",
        ),
        (["predict", model, tmp_path / "none.parquet", "--out", "p.csv"], "found none at"),
        (["fit", tmp_path / "none.csv", "--target", "y", "--out", "m.sgp"], "found none at"),
        (["fit", new, "--target", "x", "--out", tmp_path], "found the folder"),
    ):
        result = ask(*arguments)
        assert result.exit_code == 2, arguments
        assert message in result.stderr, arguments
    assert not os.path.exists("p.csv")


def test_parquet_with_other_types(saved, tmp_path):
    new = frame(20, seed=1)
    new["x"] = "red"
    new.to_parquet(tmp_path / "new.parquet")
    with pytest.raises(InvalidInputError, match=r"column 'x': expected numbers .* found text"):
        predict_file(saved, tmp_path / "new.parquet", tmp_path / "a.csv", Request())
    (tmp_path / "damaged.parquet").write_bytes(b"PAR1 and no more")
    with pytest.raises(InvalidInputError, match=r"damaged.parquet: "):
        predict_file(saved, tmp_path / "damaged.parquet", tmp_path / "a.csv", Request())


def test_categories_may_be_arrow_dictionaries():
    table = pa.table({"k": pa.array(["a", "b", "a"]).dictionary_encode(), "y": [1, 2, 3]})
    encoding = TableEncoding.learn(table.drop_columns("y"))
    assert encoding.columns == (Column("k", "category", ("a", "b"), commonest="a"),)
    assert encoding.encode(table).features.tolist() == [[1, 0], [0, 1], [1, 0]]


def test_warnings_are_short_and_come_once(folder, tmp_path):
    result = ask(
        *("predict", folder / "model.sgp", folder / "new.csv", "--coverage", 0.99),
        *("--out", tmp_path / "a.csv"),
    )
    assert result.exit_code == 0
    assert result.stderr.count("warning: coverage 0.99 needs at least") == 1
    assert result.stderr.count("\n") == 1


@pytest.mark.slow
def test_ctrl_c_leaves_no_half_file(folder, tmp_path):
    new = pd.concat([frame(500, seed=1)] * 400).drop(columns="y")
    new.to_parquet(tmp_path / "new.parquet")
    command = [sys.executable, "-m", "sharpgp", "predict", str(folder / "model.sgp")]
    process = subprocess.Popen(
        [*command, "new.parquet", "--out", "pred.csv"],
        cwd=tmp_path,
        stderr=subprocess.PIPE,
        env=environment(),
    )
    wait_for(lambda: any(tmp_path.glob(".pred*")), process)
    process.send_signal(signal.SIGINT)
    assert process.wait(PATIENCE) == 130
    assert process.stderr.read() == b"interrupted\n"
    assert os.listdir(tmp_path) == ["new.parquet"]


def test_the_encoding_is_that_of_the_model(folder, saved):
    assert saved.target == "y"
    encoding = saved.model.encoding_
    assert encoding.names == ["x", "kind", "on"]
    names, commonest = ("blue", "dark, green", "red"), encoding.columns[1].commonest
    assert encoding.columns[1] == Column("kind", "category", names, commonest=commonest)
    # The commonest has a lengthscale of its own.
    shared = [tie for tie, name in zip(encoding.ties[1:4], names, strict=True) if name != commonest]
    assert len(shared) == 2
    assert len(set(shared)) == 1
    # A data frame goes the same way as a file.
    new = frame(20, seed=1)
    model = SharpGPRegressor.load(folder / "model.sgp")
    np.testing.assert_array_equal(
        model.predict(new[["x", "kind", "on"]]), saved.model.predict(new[["x", "kind", "on"]])
    )


def test_gaps_and_new_categories_are_answered_with_a_warning(folder, tmp_path):
    source, out = tmp_path / "new.csv", tmp_path / "pred.csv"
    source.write_text("x,kind,on\n,red,true\n2,pink,false\n3,NA,true\n4,red,\n")
    result = ask("predict", folder / "model.sgp", source, "--out", out)
    assert result.exit_code == 0, result.stderr
    assert "column(s) 'x', 'on': values are missing in 2 of 4 rows, though" in result.stderr
    assert (
        "column 'kind': 'pink' in 1 of 4 rows, but in no training row; treated as" in result.stderr
    )
    assert np.isfinite(pd.read_csv(out)).all().all()


def test_gaps_and_dates_in_training_tables(tmp_path):
    text = "x,day,y\n" + "".join(f"{i % 9},2020-01-{i % 28 + 1:02},{i % 5}\n" for i in range(60))
    (tmp_path / "train.csv").write_text(text.replace("7,2020-01-08,2", ",2020-01-08,"))
    fit = ["fit", tmp_path / "train.csv", "--target", "y", "--out", tmp_path / "model.sgp"]
    result = ask(*fit, "--base", "rbf", "--calibration", "vanilla")
    assert result.exit_code == 0, result.stderr
    assert "column 'y': 1 of 60 values are missing; row(s) 8 are left out" in result.stderr
    assert [c.kind for c in load_model(tmp_path / "model.sgp").model.encoding_.columns] == [
        "number",
        "date",
    ]
    done = ask("predict", tmp_path / "model.sgp", tmp_path / "train.csv", "--out", "-")
    assert done.exit_code == 0, done.stderr
    assert len(done.stdout.splitlines()) == 61


def test_help_names_every_option():
    for command in ("fit", "predict"):
        result = ask(command, "--help")
        assert result.exit_code == 0
        assert "--out" in result.stdout


def test_completion():
    environment = {"_SHARPGP_COMPLETE": "complete_bash", "COMP_WORDS": "sharpgp pre"}
    result = runner.invoke(app, env={**environment, "COMP_CWORD": "1"}, prog_name="sharpgp")
    assert result.stdout.split() == ["predict"]


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (b"a,b\n1,2,3\n", "expected 2 values, found 3 in row 1"),
        (b"\xff\xfe\x00,b,y\n1,2,3\n", "expected (a header and rows|the column)"),
        (b"a,y\n1,2\n3\n4,5\n", "expected 2 values, found 1 in row 2"),
    ],
    ids=["short header", "odd header", "short row"],
)
def test_files_whose_header_cannot_be_read_either_get_one_line(tmp_path, data, message):
    file = tmp_path / "broken.csv"
    file.write_bytes(data)
    with pytest.raises(InvalidInputError, match=message) as caught:
        read_whole(file)
    assert "\n" not in str(caught.value)
