"""The comparison with peers and the single studies run, and their tables say what they found."""

from importlib import import_module
from pathlib import Path

import numpy as np
import pytest
from typer.testing import CliRunner

from sharpgp import metrics
from sharpgp.cli import app
from sharpgp.exceptions import InvalidInputError
from sharpgp.studies import datasets, extra_sets
from sharpgp.studies.evidence import STUDIES
from sharpgp.studies.peers import experiment
from sharpgp.studies.peers.protocol import Prediction, make_case
from sharpgp.studies.task import Task, perform

cli = CliRunner()
ARCHIVE = Path(__file__).parents[1] / "docs" / "results" / "peers.csv"


def test_plan_leaves_out_what_would_take_too_long():
    methods = ["rk", "mapie-cv+gp"]
    tasks = experiment.plan(["yacht", "kin8nm"], methods, repeats=2)
    found = [(task.dataset, task.method) for task in tasks if task.seed == 1]
    assert found == [("yacht", "rk"), ("yacht", "mapie-cv+gp"), ("kin8nm", "rk")]
    further = experiment.plan(["further"], ["rk"], repeats=1)
    assert [task.dataset for task in further] == list(extra_sets.SETS)
    for wrong in ({"names": ["titanic"]}, {"methods": ["magic"]}, {"repeats": 0}, {"most": 0}):
        with pytest.raises(InvalidInputError, match="expected"):
            experiment.plan(**wrong)


def test_calibration_parts_end_at_whole_ranks():
    data = datasets.load("diabetes")
    parts = make_case(data, 0, 2000, "cpu").parts
    assert (len(parts.y_cal) + 1) % 20 == 0
    assert len(parts.y_train) + len(parts.y_cal) + len(parts.y_test) == len(data.y)


def test_what_is_measured_of_a_method(monkeypatch):
    from sharpgp.studies.peers import methods

    def method(case):
        y = case.parts.y_test
        narrow, wide = np.stack([y - 1, y], 1), np.stack([y - 3, y - 1], 1)
        bands = {"symmetric": np.stack([narrow, narrow], 2), "centred": np.stack([narrow, wide], 2)}
        return Prediction(bands, crps=5.0)

    monkeypatch.setitem(methods.METHODS, "rk", method)
    task = Task("peers", "diabetes", "rk", 0, {"most": 50})
    found = perform(task, {}).metrics
    unit = datasets.load("diabetes").y.std()
    y = np.zeros(1)
    score = metrics.interval_score(y, y - 3, y - 1, 0.95)
    assert found["width_95_symmetric"] == pytest.approx(1 / unit)
    assert (found["coverage_95_symmetric"], found["coverage_95"]) == (1.0, 0.0)
    assert (found["coverage_90"], found["width_90"]) == (1.0, pytest.approx(1 / unit))
    assert found["interval_score_95"] == pytest.approx(score / unit)
    assert found["crps"] == pytest.approx(5 / unit)


def test_tables_come_from_the_folder_and_from_its_csv(tmp_path):
    out = tmp_path / "out"
    command = ["bench", "peers", "--datasets", "diabetes", "--methods", "rk,mapie-split-gb,vanilla"]
    command += ["--repeats", "2", "--most", "120", "--workers", "1", "--out", str(out)]
    done = cli.invoke(app, command)
    assert done.exit_code == 0, done.output
    assert "6 tasks, 6 computed now" in done.stdout
    table = cli.invoke(app, ["bench", "peers-table", str(out), "--most", "120"])
    assert "diabetes: 120 training, 39 calibration, 283 test rows" in table.stdout
    assert "Geometric means over data sets, relative to RK" in table.stdout
    rows = cli.invoke(app, ["bench", "peers-table", str(out), "--format", "csv"])
    (tmp_path / "rows.csv").write_text(rows.stdout)
    again = cli.invoke(app, ["bench", "peers-table", str(tmp_path / "rows.csv"), "--most", "120"])
    assert again.stdout == table.stdout


def test_the_archived_results_are_read():
    asked = ["--datasets", "yacht,mpg,boston,concrete", "--methods", "rk,cv,loo", "--brief"]
    done = cli.invoke(app, ["bench", "peers-table", str(ARCHIVE), *asked])
    assert done.exit_code == 0
    assert [line.split()[0] for line in done.stdout.splitlines()[2:6]] == asked[1].split(",")


def test_every_study_is_listed_and_has_options_of_its_own():
    listed = cli.invoke(app, ["bench", "evidence"])
    assert [line.split()[0] for line in listed.stdout.splitlines()] == list(STUDIES)
    folder = Path(import_module("sharpgp.studies.evidence").__file__).parent
    assert {file.stem for file in folder.glob("*.py")} == {*STUDIES, "__init__", "common"}
    for name in STUDIES:
        done = cli.invoke(app, ["bench", "evidence", name, "--help"])
        assert done.exit_code == 0, name
        assert f"sharpgp bench evidence {name}" in done.stdout
    wrong = cli.invoke(app, ["bench", "evidence", "everything"])
    assert (wrong.exit_code, wrong.stderr.count("\n")) == (2, 1)


@pytest.mark.parametrize(
    ("name", "options"),
    [
        ("bo_designs", ["--repeats", "1"]),
        ("foreign", ["--datasets", "diabetes", "--rows", "100", "--seeds", "1", "--runs", "1"]),
        ("drift", ["--seeds", "1", "--steps", "60"]),
        ("search", ["--datasets=diabetes", "--seeds=1", "--kinds=one", "--restarts=0"]),
        ("monotonicity", ["--datasets=diabetes", "--kernels=rbf", "--seeds=1", "--pairs=3"]),
        ("warm_start", ["--datasets", "diabetes", "--rows", "40", "--seeds", "1"]),
        ("choosing", ["--rows", "60", "--repeats", "1", "--methods", "kuleshov18"]),
        pytest.param(
            "few_points",
            ["--cases", "smooth 2d 30", "--seeds", "1", "--workers", "1"],
            marks=pytest.mark.slow,
        ),
    ],
)
def test_small_studies_run(name, options):
    done = cli.invoke(app, ["bench", "evidence", name, *options])
    assert done.exit_code == 0, done.output
    assert len(done.stdout.splitlines()) >= 2
