"""Figures, verdict and reports speak of the user's own columns, and need no test set."""

import warnings

import numpy as np
import pandas as pd
import pytest
from matplotlib.figure import Figure
from typer.testing import CliRunner

from sharpgp import SharpGPRegressor, Vanilla
from sharpgp.cli import app
from sharpgp.diagnostics import diagnose
from sharpgp.exceptions import InvalidInputError
from sharpgp.report import render_report, verdict_of, write_report
from sharpgp.tabular import fit_file


def draw(n, seed):
    rng = np.random.default_rng(seed)
    X = pd.DataFrame(
        {
            "dose_mg": rng.uniform(0, 100, n),
            "sex": rng.choice(["f", "m"], n),
            "seen": pd.Timestamp("2024-01-01") + pd.to_timedelta(rng.integers(0, 500, n), "D"),
            "smoker": rng.choice([True, False], n),
        }
    )
    y = np.sin(X["dose_mg"] / 15) + 0.6 * (X["sex"] == "m") + 0.4 * rng.normal(size=n)
    return X, y.rename("response")


@pytest.fixture(scope="module")
def model():
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return SharpGPRegressor(base="rbf", calibration="loo", random_state=0).fit(*draw(150, 0))


def said(model, X, y):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        verdict = verdict_of(diagnose(model, X, y))
    return f"{verdict.heading} {verdict.says}"


def test_a_category_is_named_by_its_column(model):
    X, y = draw(300, 1)
    noise = np.random.default_rng(2).normal(0, 1.5, 300)
    assert "sex = m: 95 % intervals cover" in said(model, X, y + noise * (X["sex"] == "m"))


@pytest.mark.parametrize(
    ("change", "says"),
    [
        (lambda dose: dose / 1000, "dose_mg is about 1/1,000 of what it was in training; predict"),
        (lambda dose: 1000 * dose, "dose_mg is about 1,000 times what it was in training"),
        (lambda dose: dose + 60, "dose_mg is outside of its range in training ("),
    ],
)
def test_inputs_that_moved_are_the_first_suspect(model, change, says):
    X, y = draw(300, 1)
    assert f": {says}" in said(model, X.assign(dose_mg=change(X["dose_mg"])), y)


def test_time_comes_before_the_columns_that_it_moves(model):
    X, y = draw(300, 1)
    moved = X.assign(seen=X["seen"] + pd.Timedelta(900, "D"), dose_mg=X["dose_mg"] + 200)
    assert ": seen is later than in training" in said(model, moved, y + 2)


def test_few_points_and_leaks_are_not_called_calibrated(model):
    assert said(model, *draw(20, 3)).startswith("Too few points to tell: 20 test points")
    X, y = draw(150, 0)
    leaking = SharpGPRegressor(base="rbf", calibration="loo").fit(X.assign(yearly=12 * y), y)
    X, y = draw(200, 4)
    assert said(leaking, X.assign(yearly=12 * y), y).startswith(
        "Too good to be true? 'yearly' alone explains 100.00 % of response."
    )


def test_coverage_by_any_column(model):
    X, y = draw(200, 5)
    labels = {
        "sex": {"f", "m"},
        "smoker": {"true", "false"},
    }
    for name, expected in labels.items():
        ax = model.plot(X, y, "coverage", feature=name, ax=Figure().subplots())
        assert {tick.get_text() for tick in ax.get_xticklabels()} == expected
        assert ax.get_xlabel() == name
    ax = model.plot(X, y, "intervals", feature="sex", ax=Figure().subplots())
    assert {tick.get_text() for tick in ax.get_xticklabels()} == {"f", "m"}
    found = diagnose(model, X, y)
    inside = (found.lower[:, -2] <= y) & (y <= found.upper[:, -2])
    sex = found.groupings[2]
    share = {name: found.covered[sex.inside(j), -2].mean() for j, (name, _) in enumerate(sex.ends)}
    assert share == pytest.approx(inside.groupby(X["sex"]).mean().to_dict())
    with pytest.raises(InvalidInputError, match="one of dose_mg, sex, seen, smoker, found 'sexx'"):
        model.plot(X, y, "coverage", feature="sexx", ax=Figure().subplots())


def test_reports_without_a_test_set(model, tmp_path):
    report = model.calibration_report(coverage=0.8)
    assert report["coverage_80"] == pytest.approx(0.8, abs=0.03)
    assert "80 % width" in str(report)
    assert ">80 % width</td>" in report._repr_html_()
    found = diagnose(model)
    assert found.out_of_fold
    assert [column.name for column in found.columns] == ["dose_mg", "sex", "seen", "smoker"]
    # Held-out errors are larger than those of the fit to all rows.
    fitted = np.sqrt(np.mean((model.predict(draw(150, 0)[0]) - draw(150, 0)[1]) ** 2))
    assert report["rmse"] > 1.02 * fitted
    assert "each by fits that have not seen it" in render_report(found)
    assert write_report(model, None, None, tmp_path / "report.html").exists()
    model.save(tmp_path / "model.sgp")
    again = SharpGPRegressor.load(tmp_path / "model.sgp")
    assert again.calibration_report(coverage=0.8) == report
    plain = SharpGPRegressor(base="rbf", calibration=Vanilla()).fit(*draw(40, 0))
    with pytest.raises(InvalidInputError, match=r"expected test data, found none; .*'cv' or 'ex"):
        plain.calibration_report()
    with pytest.raises(InvalidInputError, match="expected both X and y, or neither"):
        model.calibration_report(draw(5, 0)[0])


def test_a_held_out_report_is_that_of_the_calibration_points():
    """With a holdout, the model has not seen them, and predicts them as any other rows."""
    X, y = draw(160, 0)
    model = SharpGPRegressor(base="rbf", calibration="exact")
    model.fit(X[:100], y[:100], X[100:], y[100:])
    own, given = model.calibration_report(), model.calibration_report(X[100:], y[100:])
    assert own["rmse"] == pytest.approx(given["rmse"])
    # Each point is ranked among the others only, which is what a new one would be.
    assert given["crps"] < own["crps"] < 1.2 * given["crps"]
    assert "ece" in given
    assert "ece" not in own, "these very points fixed the levels"


def test_the_command_reports_without_data(tmp_path):
    X, y = draw(80, 0)
    X.assign(response=y).to_csv(tmp_path / "data.csv", index=False)
    one = SharpGPRegressor(base="rbf", calibration="loo")
    fit_file(tmp_path / "data.csv", "response", one).save(tmp_path / "m.sgp")
    asked = ["report", str(tmp_path / "m.sgp"), "--out", str(tmp_path / "report.html")]
    result = CliRunner().invoke(app, asked)
    assert result.exit_code == 0, result.output
    assert "80 rows: 95 % intervals cover" in result.stdout


def test_a_summary_speaks_of_columns_in_their_units(model):
    found = model.summary()
    assert found.columns["sex"] == "category"
    assert found.report == model.calibration_report()
    assert 5 < found.lengthscales["dose_mg"] < 200
    # In other units, the lengthscale is another number for the same distance.
    X, y = draw(150, 0)
    grams = SharpGPRegressor(base="rbf", calibration="loo", random_state=0)
    grams.fit(X.assign(dose_mg=X["dose_mg"] / 1000, constant=1.0), y)
    other = grams.summary()
    assert other.lengthscales["dose_mg"] == pytest.approx(
        found.lengthscales["dose_mg"] / 1000, rel=1e-3
    )
    assert other.columns["constant"] == "not used"
    assert "150 training rows, calibration loo" in str(found)
    shown = found._repr_html_()
    assert shown.count("<table") == 3  # columns, pool, report
    assert ">dose_mg</td>" in shown


def test_notebooks_show_rows_columns_coverage_and_pool(model):
    shown = model._repr_mimebundle_()["text/html"]
    for cell in ("training rows", "150", "loo, 150 rows", "90 % intervals cover", "rbf"):
        assert f">{cell}</td>" in shown
    X, y = draw(40, 0)
    two = SharpGPRegressor(base="rbf", calibration="loo", random_state=0).fit(X, np.c_[y, -y])
    assert two._repr_mimebundle_()["text/html"].count(">rbf 1.00</td>") == 2


def test_what_users_hold_says_what_it_is(model):
    assert repr(model.posterior_) == "<ExactPosterior: 150 training points, 9 features>"
    assert repr(model.calibrated_).startswith("<ScoredPredictor: 150 calibration points, <Exact")
    assert "dose_mg" in model.encoding_._repr_html_()
    assert repr(model.calibration_report()).startswith("metric")
