"""What is wrong with a command is said at once: before the libraries that compute are loaded."""

import json
from inspect import signature

import pytest

from processes import python
from sharpgp import names
from sharpgp._extras import METHODS, entry_point_names
from sharpgp.calibration import known_methods
from sharpgp.cli import options
from sharpgp.cli.models import fit
from sharpgp.exceptions import InvalidInputError
from sharpgp.gp.kernels.sums import CLASSES
from sharpgp.models.bases import POOLS
from sharpgp.models.registry import known_bases
from sharpgp.tabular.files import MAX_ROWS_FITTED

FIT = ["fit", "t.csv", "--target", "y", "--out", "m.sgp"]
WRONG = {
    "misspelled target": (
        ["fit", "t.csv", "--target", "yy", "--out", "m.sgp"],
        "expected the column(s) yy, found x, site, y; did you mean y?",
    ),
    "no such column to drop": ([*FIT, "--drop", "sitte"], "did you mean site?"),
    "no such column of groups": ([*FIT, "--groups", "who"], "expected the column(s) who"),
    "no such file": (
        ["fit", "u.csv", "--target", "y", "--out", "m.sgp"],
        "found none at u.csv; did you mean t.csv?",
    ),
    "text among numbers": (
        ["fit", "odd.csv", "--target", "y", "--out", "m.sgp"],
        "odd.csv: column 'x': expected numbers, found 'n.a.?' in row 3; correct it, call it "
        "--missing 'n.a.?'",
    ),
    "calibration": ([*FIT, "--calibration", "papper"], "did you mean paper?"),
    "a method that is gone": ([*FIT, "--calibration", "paper_exact"], "it was removed; take exact"),
    "base": ([*FIT, "--base", "rbf,mattern32"], "did you mean matern32?"),
    "effort": ([*FIT, "--effort", "most"], "--effort: expected one of low, auto, high"),
    "approximation": ([*FIT, "--approximation", "sparse:0"], "--approximation: expected auto"),
    "cal_size": ([*FIT, "--cal-size", "30"], "--cal-size: expected a fraction in (0, 1)"),
    "seed": ([*FIT, "--seed", "-1"], "--seed: expected a whole number of at least 0, found -1"),
    "y_bounds": ([*FIT, "--y-bounds", "1,0"], "'low,high' with low < high"),
    "device": ([*FIT, "--device", "gpu"], "--device: expected 'auto', 'cpu' or 'cuda'"),
    "engine": ([*FIT, "--engine", "spark"], "engine: expected one of local, ray, dask"),
    "folder": (["fit", "t.csv", "--target", "y", "--out", "no/m.sgp"], "a folder that exists"),
    "coverage": (
        ["predict", "m.sgp", "t.csv", "--out", "p.csv", "--coverage", "90"],
        "coverage: expected numbers in (0, 1), found 90; did you mean 0.9?",
    ),
    "keep": (["predict", "m.sgp", "t.csv", "--out", "p.csv", "--keep", "sit"], "did you mean site"),
    "model": (["predict", "m.sgp", "t.csv", "--out", "p.csv"], "m.sgp: there is no such file"),
    "arguments the other way round": (
        ["predict", "t.csv", "m.sgp", "--out", "p.csv"],
        "expected a .csv, .csv.gz, .parquet or .xlsx file, found m.sgp",
    ),
    "report": (
        ["report", "m.sgp", "t.csv", "--target", "z", "--out", "r.html"],
        "expected the column(s) z",
    ),
}
#: Runs commands in one process, and says after each which slow libraries it has loaded.
COMMANDS = """
import json, sys
from typer.testing import CliRunner
from sharpgp.cli import app
said = {}
for name, arguments in json.load(sys.stdin).items():
    result = CliRunner().invoke(app, arguments)
    slow = sorted({"torch", "sklearn", "gpytorch", "scipy"} & set(sys.modules))
    said[name] = result.exit_code, result.stderr, slow
print(json.dumps(said))
"""


@pytest.fixture(scope="module")
def said(tmp_path_factory):
    folder = tmp_path_factory.mktemp("options")
    rows = [f"{k},{'ab'[k % 2]},{k % 5}" for k in range(30)]
    (folder / "t.csv").write_text("\n".join(["x,site,y", *rows, ""]))
    rows[2] = "n.a.?,a,1"
    (folder / "odd.csv").write_text("\n".join(["x,site,y", *rows, ""]))
    asked = {name: [*arguments] for name, (arguments, _) in WRONG.items()}
    done = python("-c", COMMANDS, cwd=folder, input=json.dumps(asked))
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


@pytest.mark.parametrize("name", WRONG)
def test_an_error_comes_before_the_libraries(said, name):
    status, message, slow = said[name]
    assert status == 2
    assert message.startswith("error: ")
    assert message.count("\n") == 1
    assert WRONG[name][1] in message
    assert slow == []


def test_names_are_those_of_the_library():
    assert set(names.KERNELS) == set(CLASSES)
    assert set(names.BASES) == {*CLASSES, *known_bases()}
    assert {*names.CALIBRATIONS, *entry_point_names(METHODS)} == {"auto", *known_methods()}
    assert tuple(POOLS) == names.EFFORTS
    assert signature(fit).parameters["rows"].default == MAX_ROWS_FITTED


@pytest.mark.parametrize("text", ["0", "a,1", "1,2,3", "2,1", "1,1", "nan,1"])
def test_bounds_that_are_none(text):
    with pytest.raises(InvalidInputError, match="y-bounds: expected"):
        options.bounds_of(text)
