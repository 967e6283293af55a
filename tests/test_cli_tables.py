"""The command line on tables: spreadsheets, groups, slips of the pen, totals."""

import re
from itertools import pairwise

import numpy as np
import pandas as pd
import pytest
from typer.testing import CliRunner

from sharpgp import CrossValidated, Exact, SharpGPRegressor
from sharpgp.cli import app
from sharpgp.exceptions import InvalidInputError
from sharpgp.tabular import fit_file, load_model
from sharpgp.tabular.files import rows_in
from sharpgp.tabular.models import read_whole

runner = CliRunner()


@pytest.fixture
def frame():
    rng = np.random.default_rng(0)
    frame = pd.DataFrame({"dose": rng.uniform(-2, 2, 60), "kind": rng.choice(["a", "b"], 60)})
    frame["patient"] = np.repeat([f"p{i}" for i in range(15)], 4)
    frame["response"] = np.sin(frame["dose"]) + 0.2 * rng.normal(size=60)
    return frame


def call(*arguments):
    quick = ["--base", "rbf", "--calibration", "exact"] if arguments[0] == "fit" else []
    return runner.invoke(app, [*map(str, arguments), *quick])


def test_a_spreadsheet_gives_the_model_that_the_csv_file_gives(frame, tmp_path):
    pytest.importorskip("openpyxl")
    columns = frame.drop(columns="patient")
    columns.to_csv(tmp_path / "data.csv", index=False)
    columns.to_excel(tmp_path / "data.xlsx", index=False)
    for name in ("csv", "xlsx"):
        data, out = tmp_path / f"data.{name}", tmp_path / f"{name}.sgp"
        result = call("fit", data, "--target", "response", "--out", out)
        assert result.exit_code == 0, result.output
        result = call("predict", out, data, "--out", tmp_path / f"{name}.csv")
        assert result.exit_code == 0, result.output
    of_csv, of_sheet = (pd.read_csv(tmp_path / f"{name}.csv") for name in ("csv", "xlsx"))
    pd.testing.assert_frame_equal(of_csv, of_sheet)
    result = call("predict", tmp_path / "csv.sgp", tmp_path / "data.csv", "--out", "x.xlsx")
    assert result.exit_code == 2
    assert "expected a .csv or .parquet file to write" in result.stderr


def test_marks_of_gaps_are_remembered(frame, tmp_path):
    path, out = tmp_path / "data.csv", tmp_path / "model.sgp"
    marked = frame.drop(columns="patient").astype({"dose": object})
    marked.loc[::12, "dose"] = "?"
    marked.loc[1, "dose"] = -999
    marked.to_csv(path, index=False)
    result = call("fit", path, "--target", "response", "--out", out)
    assert "found '?' in row 1; correct it, call it --missing '?', or leave" in result.stderr
    marks = ("--missing", "?", "--missing", "-999")
    result = call("fit", path, "--target", "response", "--out", out, *marks)
    assert "6 values missing" in result.stdout
    saved = load_model(out)
    assert saved.missing == ("?", "-999")
    assert saved.read(path).X.missing.sum() == 6
    result = call("predict", out, path, "--out", tmp_path / "predictions.csv")
    assert result.exit_code == 0, result.output
    assert read_whole(path, saved.missing)[0]["dose"].null_count == 6
    openpyxl = pytest.importorskip("openpyxl")
    book = openpyxl.Workbook()
    for row in (["a", "b"], [1, "x"], [-999, "?"], [-999.0, " ? "], [2.5, "y"]):
        book.active.append(row)
    book.save(tmp_path / "marked.xlsx")
    found = read_whole(tmp_path / "marked.xlsx", saved.missing)[0].to_pydict()
    assert found == {"a": [1.0, None, None, 2.5], "b": ["x", None, None, "y"]}


def test_none_is_a_category_and_no_gap(tmp_path):
    """A treatment called "none" is another one than a treatment that nobody wrote down."""
    path = tmp_path / "data.csv"
    path.write_text("treatment,dose\nnone,1\n,2\nNone,\nA,NA\n")
    found = read_whole(path)[0].to_pydict()
    assert found == {"treatment": ["none", None, "None", "A"], "dose": [1, 2, None, None]}


def test_a_spreadsheet_s_oddities_are_read_or_named(tmp_path):
    openpyxl = pytest.importorskip("openpyxl")
    book = openpyxl.Workbook()
    for row in (["a", "b", "c"], [1, "x", True], [2.5, None, False], [3, "NA", None], [None]):
        book.active.append(row)
    book.save(tmp_path / "odd.xlsx")
    assert read_whole(tmp_path / "odd.xlsx")[0].to_pydict() == {
        "a": [1.0, 2.5, 3.0], "b": ["x", None, None], "c": [True, False, None],
    }  # fmt: skip
    (tmp_path / "none.xlsx").write_bytes(b"not a spreadsheet")
    with pytest.raises(InvalidInputError, match="expected an Excel file, found: "):
        read_whole(tmp_path / "none.xlsx")
    openpyxl.Workbook().save(tmp_path / "empty.xlsx")
    with pytest.raises(InvalidInputError, match="expected a header, found an empty sheet"):
        read_whole(tmp_path / "empty.xlsx")
    with pytest.raises(InvalidInputError, match="expected a file, found none at"):
        read_whole(tmp_path / "absent.xlsx")


def test_groups_reach_the_model_and_the_report(frame, tmp_path):
    frame.to_csv(tmp_path / "data.csv", index=False)
    arguments = ("--target", "response", "--groups", "patient", "--out", tmp_path / "m.sgp")
    result = call("fit", tmp_path / "data.csv", *arguments)
    assert result.exit_code == 0, result.output
    saved = load_model(tmp_path / "m.sgp")
    assert saved.model.grouped_
    assert saved.model.encoding_.names == ["dose", "kind"]
    rows = saved.read(tmp_path / "data.csv", groups="patient")
    assert rows.groups == frame["patient"].tolist()
    result = call(
        "report", tmp_path / "m.sgp", tmp_path / "data.csv", "--groups", "patient", "--unit", "mg",
        "--out", tmp_path / "report.html",
    )  # fmt: skip
    assert result.exit_code == 0, result.output
    assert "Target response (mg);" in (tmp_path / "report.html").read_text()
    frame.loc[3, "patient"] = None
    frame.to_csv(tmp_path / "gap.csv", index=False)
    result = call("fit", tmp_path / "gap.csv", *arguments)
    assert "column 'patient': expected a group in every row, found none in row 4" in result.stderr


def test_known_groups_are_predicted_from_what_is_known_of_them(frame, tmp_path):
    frame["response"] += 5.0 * (frame["patient"] == frame["patient"][0])
    frame.to_csv(tmp_path / "data.csv", index=False)
    model, data = tmp_path / "m.sgp", tmp_path / "data.csv"
    fit = ("fit", data, "--target", "response", "--base", "rbf", "--seed", "0", "--out", model)
    assert call(*fit, "--groups", "patient").exit_code == 0
    # Without a word, the column of the fit says who is known.
    for options in (("--groups", "patient"), ("--groups", "none"), ()):
        done = call("predict", model, data, "--out", tmp_path / "p.csv", *options)
        assert done.exit_code == 0, done.output
        found = pd.read_csv(tmp_path / "p.csv")[["lower_95", "upper_95"]]
        groups = None if "none" in options else frame["patient"]
        expected = load_model(model).model.predict_interval(frame[["dose", "kind"]], groups=groups)
        np.testing.assert_allclose(found, expected, atol=1e-5)  # six digits
    assert call("predict", model, data, "--out", "-", "--groups", "who").exit_code == 2
    assert call(*fit, "--drop", "patient").exit_code == 0
    refused = call("predict", model, data, "--out", "-", "--groups", "patient")
    assert refused.exit_code == 2
    assert "groups" in refused.stderr


@pytest.mark.parametrize(
    ("more", "meant"),
    [
        (["--target", "respnse"], "did you mean response?"),
        (["--target", "response", "--drop", "patiant"], "did you mean patient?"),
        (["--target", "response", "--effort", "hgh"], "did you mean high?"),
    ],
)
def test_names_that_are_nearly_right_are_guessed(frame, tmp_path, more, meant):
    frame.to_csv(tmp_path / "data.csv", index=False)
    result = call("fit", tmp_path / "data.csv", "--out", tmp_path / "m.sgp", *more)
    assert result.exit_code == 2
    assert result.stderr.rstrip().endswith(meant), result.stderr


@pytest.mark.parametrize("end", ["", "\n"])
def test_rows_of_a_csv_file_are_counted_for_the_bar(tmp_path, end):
    (tmp_path / "data.csv").write_text("a,b\n1,2\n3,4\n5,6" + end)
    assert rows_in(tmp_path / "data.csv") == 3


def test_no_line_of_the_help_ends_in_mid_sentence(monkeypatch):
    """Paragraphs fill the width: a line is short only where a paragraph ends."""
    monkeypatch.setenv("COLUMNS", "80")
    for command in ("fit", "predict", "report"):
        text = runner.invoke(app, [command, "--help"]).stdout
        intro = text.split("╭")[0].splitlines()[3:]
        lines = [line.strip() for line in intro]
        for line, following in pairwise(lines):
            if line and following:
                assert len(line) + 1 + len(following.split()[0]) > 70, (command, line)


def test_fit_file_refuses_groups_that_are_not_there(frame, tmp_path):
    frame.to_csv(tmp_path / "data.csv", index=False)
    with pytest.raises(InvalidInputError, match=re.escape("expected the column(s) clinic")):
        fit_file(tmp_path / "data.csv", "response", SharpGPRegressor(), groups="clinic")


def test_a_text_among_numbers_is_named_by_its_row_in_the_file(frame, tmp_path):
    frame = frame.astype({"dose": object})
    frame.loc[[3, 40], "response"] = None
    frame.loc[40, "dose"] = "n.a.?"  # in a row without a target, which would be left out
    frame.to_csv(tmp_path / "data.csv", index=False)
    result = call("fit", tmp_path / "data.csv", "--target", "response", "--out", tmp_path / "m.sgp")
    assert result.exit_code == 2
    assert "column 'dose': expected numbers, found 'n.a.?' in row 41; correct it, " in result.stderr


def test_dates_with_a_zone_are_read_as_in_the_fit(tmp_path):
    rng = np.random.default_rng(0)
    days = pd.date_range("2021-01-01", periods=60, freq="D", tz="UTC")
    frame = pd.DataFrame({"day": days.strftime("%Y-%m-%dT%H:%M:%SZ"), "x": rng.normal(size=60)})
    frame["y"] = frame["x"] + 0.2 * rng.normal(size=60)
    frame[:40].to_csv(tmp_path / "a.csv", index=False)
    frame[40:].to_csv(tmp_path / "b.csv", index=False)
    model, out = tmp_path / "model.sgp", tmp_path / "out.csv"
    assert call("fit", tmp_path / "a.csv", "--target", "y", "--out", model).exit_code == 0
    result = call("predict", model, tmp_path / "b.csv", "--out", out)
    assert result.exit_code == 0, result.output
    assert len(pd.read_csv(out)) == 20


def test_alike_warnings_are_one_and_a_line_of_names(capsys):
    from sharpgp.cli.display import short_warnings
    from sharpgp.exceptions import warn

    with short_warnings():
        for name, n in (("a", 3), ("b", 7), ("c", 9)):
            warn(f"column {name!r}: {n} of 9 values are missing")
        warn("something else")
    assert capsys.readouterr().err.splitlines() == [
        "warning: column 'a': 3 of 9 values are missing",
        "warning: something else",
        "warning: the same of 'b', 'c', as for 'a'",
    ]


def test_rows_are_put_in_order_of_time(frame, tmp_path):
    columns = frame.drop(columns="patient").assign(when=pd.date_range("2024-01-01", periods=60))
    path, out = tmp_path / "data.csv", tmp_path / "model.sgp"
    columns.sample(frac=1, random_state=0).to_csv(path, index=False)
    fit = ["fit", str(path), "--target", "response", "--out", str(out), "--base", "rbf"]
    result = runner.invoke(app, [*fit, "--time", "when"])
    assert result.exit_code == 0, result.output
    columns.to_csv(tmp_path / "sorted.csv", index=False)
    ordered = CrossValidated(folds="ordered")
    expected = fit_file(
        tmp_path / "sorted.csv",
        "response",
        SharpGPRegressor(base="rbf", calibration=ordered, random_state=0),
    )
    X = columns.drop(columns="response")
    found = load_model(out).model.predict_interval(X)
    np.testing.assert_array_equal(found, expected.model.predict_interval(X))
    result = runner.invoke(app, [*fit, "--time", "kind"])
    assert "time: expected a column of dates or numbers, found 'kind'" in result.stderr
    result = runner.invoke(app, [*fit, "--time", "when", "--by", "kind"])
    assert "by and time: expected one of them" in result.stderr


def test_reports_know_groups_and_order_of_the_fit_and_count_by_class(frame, tmp_path):
    frame = frame.assign(when=pd.date_range("2024-01-01", periods=60)[::-1])
    frame[:40].to_csv(tmp_path / "a.csv", index=False)
    frame[40:].to_csv(tmp_path / "b.csv", index=False)
    model, page = tmp_path / "m.sgp", tmp_path / "r.html"
    fit = ("fit", tmp_path / "a.csv", "--target", "response", "--out", model, "--base", "rbf")
    done = runner.invoke(app, [*map(str, fit), "--time", "when", "--drop", "patient"])
    assert done.exit_code == 0, done.output
    assert load_model(model).read(tmp_path / "b.csv").numbers == [*range(20, 0, -1)]
    result = call("report", model, tmp_path / "b.csv", "--out", page, "--by", "kind")
    assert result.exit_code == 0, result.output
    counts = frame["kind"][40:].value_counts()
    for kind, n in counts.items():
        assert re.search(rf"^{kind} +{n} +[\d.]+ % +[\d.]+$", result.stdout, re.M), result.stdout
    assert call("fit", *fit[1:], "--groups", "patient").exit_code == 0
    saved = load_model(model)
    assert saved.read(tmp_path / "b.csv").groups == frame["patient"][40:].tolist()
    assert saved.read(tmp_path / "b.csv", groups="none").groups is None
    frame[40:].drop(columns="patient").to_csv(tmp_path / "b.csv", index=False)
    assert saved.read(tmp_path / "b.csv").groups is None


def test_what_ends_a_file_is_no_row_for_any_command(frame, tmp_path):
    frame = frame.drop(columns="patient")[["kind", "dose", "response"]]
    clean, noted = tmp_path / "clean.csv", tmp_path / "noted.csv"
    frame.to_csv(clean, index=False)
    noted.write_text(clean.read_text() + ",,\nTotal,99,12.5\nSource: own survey\n\n")
    model, out = tmp_path / "m.sgp", tmp_path / "p.csv"
    assert call("fit", noted, "--target", "response", "--out", model).exit_code == 0
    assert load_model(model).read(noted).y.tolist() == frame["response"].tolist()
    result = call("predict", model, noted, "--out", out)
    assert "read without 3 line(s) at its end that hold no row" in result.stderr
    assert len(pd.read_csv(out)) == len(frame)
    # A word for totals that other rows have, too, is a category; a value may span lines.
    rows = "a,b,c\n" + "total,1,2\n" * 3
    for text, n in ((rows, 3), (rows + '1,2,"x\ny"\n', 4), ("a,b,c\n1,2,3\n4,5", 1)):
        clean.write_text(text)
        assert len(read_whole(clean)[0]) == n


def test_check_and_fit_learn_from_the_same_rows(frame, tmp_path):
    """Rows without a target, empty ones among them, have no part in what columns become."""
    lines = frame.drop(columns="patient").to_csv(index=False).splitlines()
    lines.insert(9, "nan,c,nan")
    lines.insert(30, ",,")
    path, out = tmp_path / "data.csv", tmp_path / "m.sgp"
    path.write_text("\n".join(lines) + "\n")
    assert call("fit", path, "--target", "response", "--out", out).exit_code == 0
    features = len(load_model(out).model.encoding_.features)
    checked = runner.invoke(app, ["check", str(path), "--target", "response"])
    assert f"({features} features)" in checked.stdout
    assert re.search(r"^dose +number +1 +0 ", checked.stdout, re.M), checked.stdout


def test_classes_are_calibrated_by_a_column(frame, tmp_path):
    path, out = tmp_path / "data.csv", tmp_path / "model.sgp"
    frame.drop(columns="patient").to_csv(path, index=False)
    result = call("fit", path, "--target", "response", "--out", out, "--by", "kind")
    assert result.exit_code == 0, result.output
    by_kind = SharpGPRegressor(base="rbf", calibration=Exact(by="kind"), random_state=0)
    expected, X = fit_file(path, "response", by_kind).model, frame[["dose", "kind"]]
    found = load_model(out).model.predict_interval(X)
    np.testing.assert_array_equal(found, expected.predict_interval(X))
    fit = ["fit", str(path), "--target", "response", "--out", str(out)]
    result = runner.invoke(app, [*fit, "--by", "kind", "--calibration", "cv"])
    assert "by: expected --calibration exact, found cv" in result.stderr
