"""Messages on the command line name its options, not arguments of Python."""

import ast
import re
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from typer.testing import CliRunner

import sharpgp
from sharpgp.cli import app
from sharpgp.cli.wording import worded

ARGUMENT = re.compile(r"\b(approximation|base|cal_size|calibration|device|effort|y_bounds)=\S")
VALUES = {"y_bounds=": "(0, None)", "cal_size=": "0.25"}


def messages():
    """Texts of the library's warnings and errors that name an argument with a value."""
    for path in Path(sharpgp.__file__).parent.rglob("*.py"):
        if {"bo", "cli"} & set(path.parts):
            continue
        for node in ast.walk(ast.parse(path.read_text())):
            said = isinstance(node, ast.Call) and isinstance(node.func, ast.Name)
            if said and (node.func.id == "warn" or node.func.id.endswith("Error")):
                for text in map(plain, node.args):
                    if ARGUMENT.search(text):
                        yield text


def plain(node):
    """A literal or formatted string, with a plausible value where one is put in."""
    if isinstance(node, ast.BinOp):
        return plain(node.left) + plain(node.right)
    text = ""
    for part in getattr(node, "values", [node]):
        known = [value for end, value in VALUES.items() if text.endswith(end)]
        text += str(part.value) if isinstance(part, ast.Constant) else (known or ["'x'"])[0]
    return text


def test_no_message_of_the_library_keeps_an_argument_of_python():
    found = list(messages())
    assert len(found) >= 10
    assert not [text for text in map(worded, found) if ARGUMENT.search(text)]


@pytest.mark.parametrize(
    ("said", "told"),
    [
        ("y_bounds=(None, -2.5) keeps", '--y-bounds ",-2.5" keeps'),
        ("use calibration='cv' or 'exact'", "use --calibration cv or exact"),
        ("fewer rows or approximation=Sparse(m=300)", "fewer rows or --approximation sparse:300"),
        ("cal_size: expected a fraction", "--cal-size: expected a fraction"),
        ("a.csv: X: column 'a' repeats", "a.csv: column 'a' repeats"),
        ("a.csv: y: expected a target", "a.csv: target: expected a target"),
        ("column 'y_bounds_2': expected", "column 'y_bounds_2': expected"),
        (
            "sort the rows by 'a day' and use calibration=CrossValidated(folds='ordered').",
            "use --time 'a day'.",
        ),
        ('Exact(by="city") keeps the coverage', "fit --by 'city' keeps the coverage"),
        (
            'fit again with calibration="cv" or "exact".',
            "fit again with --calibration cv or exact.",
        ),
        ("held out with cal_size=0.25; add data", "held out with --cal-size 0.25; add data"),
    ],
)
def test_words(said, told):
    assert worded(said) == told


def test_warnings_and_errors_of_a_fit(tmp_path):
    rng = np.random.default_rng(0)
    frame = pd.DataFrame({"x": rng.normal(size=80), "count": rng.poisson(0.7, 80)})
    frame.to_csv(tmp_path / "data.csv", index=False)
    fit = ["fit", tmp_path / "data.csv", "--target", "count", "--out", tmp_path / "model.sgp"]
    quick = ["--base", "rbf", "--calibration", "exact"]
    result = CliRunner().invoke(app, [*map(str, fit), *quick])
    assert (
        'as with --y-bounds "0,"; if targets can be smaller, use --y-bounds none' in result.stderr
    )
    result = CliRunner().invoke(app, [*map(str, fit), *quick, "--y-bounds", "none"])
    assert result.exit_code == 0
    assert "y-bounds" not in result.stderr
    result = CliRunner().invoke(app, [*map(str, fit), *quick, "--y-bounds", "0,1"])
    assert result.exit_code == 2
    assert "target: expected targets within --y-bounds, 0 to 1, found" in result.stderr


def test_a_base_that_is_not_known_is_answered_before_anything_is_read():
    fit = ["fit", "nowhere.csv", "--target", "y", "--out", "model.sgp", "--base"]
    for base in ("rfb", "matern32,rfb"):
        result = CliRunner().invoke(app, [*fit, base])
        assert result.exit_code == 2
        assert "--base: expected one of" in result.stderr
        assert "found 'rfb'; did you mean rbf?" in result.stderr


def test_what_is_said_of_order_in_time_can_be_followed(tmp_path):
    rng = np.random.default_rng(0)
    n = 150
    drift = np.cumsum(rng.normal(size=n))
    frame = pd.DataFrame({"day": pd.date_range("2024-01-01", periods=n), "x": rng.normal(size=n)})
    frame["y"] = drift + 0.1 * frame["x"]
    path, model = str(tmp_path / "data.csv"), str(tmp_path / "m.sgp")
    frame.sample(frac=1, random_state=0).to_csv(path, index=False)
    assert "use --time 'day'" in CliRunner().invoke(app, ["check", path, "--target", "y"]).stdout
    fit = ["fit", path, "--target", "y", "--base", "rbf", "--out", model]
    sparse = ["--drop", "x"]
    done = CliRunner().invoke(app, [*fit, *sparse, "--time", "day"])
    assert done.exit_code == 0, done.output
    assert "--time" not in done.stderr
