"""Published figures: controls, protocols, and the command that sets ours beside them."""

import json
from dataclasses import replace

import numpy as np
import pandas as pd
import pytest
from scipy import stats
from typer.testing import CliRunner

from sharpgp.exceptions import InvalidInputError, SharpGPError
from sharpgp_benchmarks import datasets, published_rows
from sharpgp_benchmarks.commands import bench

runner = CliRunner()


@pytest.fixture(autouse=True)
def _packaged_figures(monkeypatch):
    monkeypatch.delenv(published_rows.ENVIRONMENT_VARIABLE, raising=False)
    monkeypatch.delenv(datasets.ENVIRONMENT_VARIABLE, raising=False)


def test_the_control_of_diabetes_comes_out_as_published():
    case = next(case for case in published_rows.read_cases() if case.name == "diabetes")
    assert published_rows.check_control(case) < 1e-9


@pytest.mark.parametrize(
    "case",
    [case for case in published_rows.read_cases() if case.d and case.control],
    ids=lambda case: case.rows,
)
def test_a_function_has_the_published_mean_and_deviation(case):
    assert published_rows.check_control(case) < 1e-9


def test_every_function_has_a_control_and_four_settings_for_each_size():
    functions = [case for case in published_rows.read_cases() if case.table == "functions"]
    assert len(functions) == 36
    assert {case.rows for case in functions} == {case.rows for case in functions if case.control}
    assert all(set(case.methods) >= {"GP+", "TabPFN-2.5"} for case in functions)


def test_scores_of_functions_are_in_deviations_of_the_test_targets():
    class Constant:
        def predict(self, X):
            return np.zeros(len(X))

        def predict_interval(self, X, coverage):
            return np.tile([-2.0, 2.0], (len(X), 1))

    y = np.array([-1.0, 1.0, -1.0, 1.0])
    parts = (np.zeros((2, 1)), np.zeros(2), np.zeros((4, 1)), 10 * y)
    found = published_rows.PROTOCOLS["functions"].judge(Constant(), parts)
    assert found["rrmse"] == pytest.approx(1)
    assert found["coverage_95"] == 0
    assert found["score_95"] == pytest.approx((4 + 40 * 8) / 10)


def test_other_rows_are_refused():
    case = next(case for case in published_rows.read_cases() if case.name == "diabetes")
    other = replace(case, control=tuple(1.00001 * value for value in case.control))
    with pytest.raises(SharpGPError, match="not the published rows"):
        published_rows.check_control(other)


def test_folds_leave_out_a_sixth_of_the_rows_each_and_none_twice(monkeypatch):
    X, y = np.arange(20.0)[:, None], np.arange(20.0)
    monkeypatch.setattr(published_rows, "load_rows", lambda name, home: (X, y))
    draw = published_rows.PROTOCOLS["folds"].parts
    parts = [draw({"rows": "small"}, k, None) for k in range(6)]
    assert sorted(np.concatenate([part[3] for part in parts])) == list(y)
    assert all(not set(part[1]) & set(part[3]) for part in parts)


def test_grid_crps_is_that_of_a_normal_law():
    grid, y = np.linspace(-8, 8, 4001), np.array([0.3, -1.2])
    F = np.tile(stats.norm.cdf(grid), (2, 1))
    known = y * (2 * stats.norm.cdf(y) - 1) + 2 * stats.norm.pdf(y) - 1 / np.sqrt(np.pi)
    assert published_rows.grid_crps(F, grid, y) == pytest.approx(
        known.mean(), rel=2e-3
    )  # the jump at y


def test_climatological_crps_is_the_mean_over_all_pairs():
    rng = np.random.default_rng(0)
    y, new = rng.normal(size=30), rng.normal(size=7)
    pairs = np.abs(y[:, None] - y).mean() / 2
    known = np.abs(new[:, None] - y).mean() - pairs
    assert published_rows.climatological_crps(y, new) == pytest.approx(known)


def test_figures_that_are_none_get_one_line(tmp_path):
    with pytest.raises(InvalidInputError, match="found none"):
        published_rows.read_cases(tmp_path)
    (tmp_path / "a.json").write_text('{"protocol": "folds"}')
    with pytest.raises(InvalidInputError, match=r"a\.json"):
        published_rows.read_cases(tmp_path)


def test_a_table_from_a_folder_has_its_categories_as_indicators(tmp_path):
    frame = pd.DataFrame({"a": [1.0, 2.0], "b": ["x", "y"], "target": [3.0, 4.0]})
    frame.to_csv(tmp_path / "diamonds.csv.gz", index=False)
    X, y = published_rows.load_rows("diamonds", str(tmp_path))
    assert X.tolist() == [[1, 1, 0], [2, 0, 1]]
    assert y.tolist() == [3, 4]


@pytest.fixture
def figures(tmp_path):
    """A table with one case of 40 rows of diabetes, and one whose rows are other ones."""
    rows = {"title": "T", "protocol": "subsamples", "reference": ""}
    theirs = {"a method": {"crps": 35.0, "coverage_90": 0.8, "width_90": 150.0}}
    case = {"name": "diabetes", "rows": "diabetes", "n": 40, "control": [1.0], "methods": theirs}
    folder = tmp_path / "figures"
    folder.mkdir()
    (folder / "small.json").write_text(json.dumps(rows | {"sets": [case]}))
    (known,) = published_rows.read_cases(folder)
    case = case | {"control": published_rows.control_values(known).tolist()}
    other = case | {"name": "other", "control": [1.0]}
    (folder / "small.json").write_text(json.dumps(rows | {"sets": [case, other]}))
    return folder


def test_the_command_checks_the_control_runs_resumes_and_prints_both(figures, tmp_path):
    out = tmp_path / "out"
    arguments = ["published", "--published", str(figures), "--splits", "1", "--out", str(out)]
    arguments += ["--workers", "1", "--quiet"]
    first = runner.invoke(bench, arguments)
    assert first.exit_code == 0, first.output
    assert "left out: other, n = 40" in first.output
    assert "1 tasks, 1 computed now" in first.output
    assert "1 tasks, 0 computed now" in runner.invoke(bench, arguments).output

    asked = ["published-table", str(out), "--published", str(figures)]
    text = runner.invoke(bench, [*asked, "--format", "csv"]).output
    (tmp_path / "found.csv").write_text(text)
    found = pd.read_csv(tmp_path / "found.csv").set_index("method")
    assert 20 < found.loc["sharpgp", "crps"] < 60
    assert found.loc["a method", "crps"] == 35
    chart = tmp_path / "chart.svg"
    drawn = ["published-table", str(tmp_path / "found.csv"), "--published", str(figures)]
    assert runner.invoke(bench, [*drawn, "--figure", str(chart)]).exit_code == 0
    assert "a method" in runner.invoke(bench, drawn).output
    assert chart.read_text().count("<svg") == 1
