"""Intervals, distributions, reports and files through scikit-learn's own constructions."""

import numpy as np
import pandas as pd
import pytest
from scipy.special import expit, logit
from sklearn.compose import (
    TransformedTargetRegressor,
    make_column_selector,
    make_column_transformer,
)
from sklearn.linear_model import LinearRegression
from sklearn.model_selection import GridSearchCV
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import FunctionTransformer, OneHotEncoder, StandardScaler

from sharpgp import SharpGPRegressor, through
from sharpgp.diagnostics import diagnose
from sharpgp.exceptions import InvalidInputError, SavedModelError
from sharpgp.pipelines import load
from sharpgp.report import write_report

pytestmark = pytest.mark.usefixtures("one_start")


def regressor():
    return SharpGPRegressor(base="rbf", calibration="loo", random_state=0)


@pytest.fixture(scope="module")
def data():
    rng = np.random.default_rng(0)
    X = rng.uniform(0, 6, (120, 2))
    return X, np.exp(np.sin(X[:, 0]) + 0.2 * rng.normal(size=120))


@pytest.fixture(scope="module")
def logged(data):
    """A pipeline on the logarithm of the target, and the same model by hand."""
    X, y = data
    inside = make_pipeline(StandardScaler(), regressor())
    model = TransformedTargetRegressor(inside, func=np.log, inverse_func=np.exp)
    by_hand = regressor().fit(StandardScaler().fit_transform(X[:80]), np.log(y[:80]))
    return model.fit(X[:80], y[:80]), by_hand, StandardScaler().fit(X[:80])


def test_answers_are_those_of_the_model_inside_brought_back(logged, data):
    model, by_hand, scaler = logged
    X, Z = data[0][80:], scaler.transform(data[0][80:])
    outside = through(model)
    np.testing.assert_allclose(outside.predict(X), model.predict(X))
    for coverage in (0.9, [0.5, 0.9]):
        np.testing.assert_allclose(
            outside.predict_interval(X, coverage), np.exp(by_hand.predict_interval(Z, coverage))
        )
    for levels in (0.3, [0.1, 0.5, 0.9]):
        np.testing.assert_allclose(
            outside.predict_quantiles(X, levels), np.exp(by_hand.predict_quantiles(Z, levels))
        )
    dist, plain = outside.predict_dist(X), by_hand.predict_dist(Z)
    y = data[1][80:]
    inner = (plain.cdf(np.log(y)) > 0.02) & (plain.cdf(np.log(y)) < 0.98)
    # Between the levels of the table one distribution is linear in y and the other in log y.
    np.testing.assert_allclose(dist.cdf(y)[inner], plain.cdf(np.log(y))[inner], atol=0.01)
    assert outside.calibration_report(X, y)["coverage_95"] == pytest.approx(
        by_hand.calibration_report(Z, np.log(y))["coverage_95"]
    )


def test_a_decreasing_target_swaps_the_ends(data):
    X, y = data
    model = TransformedTargetRegressor(
        regressor(), func=np.reciprocal, inverse_func=np.reciprocal, check_inverse=False
    ).fit(X, 1 + y)
    table = through(model).predict_quantiles(X, [0.1, 0.5, 0.9])
    assert (np.diff(table, axis=1) > 0).all()
    np.testing.assert_allclose(
        table[:, 0], 1 / model.regressor_.predict_quantiles(X, 0.9), rtol=1e-12
    )
    ends = through(model).predict_interval(X, 0.8)
    assert (ends[:, 0] < ends[:, 1]).all()
    dist = through(model).predict_dist(X)
    np.testing.assert_allclose(dist.quantile(0.5), table[:, 1], rtol=0.01)


def test_a_target_in_the_unit_interval_stays_there(data):
    X, _ = data
    y = expit(np.sin(X[:, 0]) + 0.3 * np.random.default_rng(1).normal(size=120))
    model = TransformedTargetRegressor(regressor(), func=logit, inverse_func=expit).fit(X, y)
    ends = through(model).predict_interval(X, 0.99)
    assert ((ends > 0) & (ends < 1)).all()


def test_searches_and_nested_constructions_are_opened(data):
    X, y = data
    pipeline = make_pipeline(StandardScaler(), regressor())
    target = TransformedTargetRegressor(pipeline, func=np.log, inverse_func=np.exp)
    grid = {"regressor__sharpgpregressor__calibration": ["loo"]}
    search = GridSearchCV(target, grid, cv=2).fit(X, y)
    ends = through(search).predict_interval(X[:5])
    np.testing.assert_array_equal(ends, through(search.best_estimator_).predict_interval(X[:5]))
    assert through(through(search)).model is search.best_estimator_.regressor_[-1]


def test_diagnostics_and_report_are_in_the_units_of_the_outside(logged, data, tmp_path):
    model, X, y = logged[0], data[0][80:], data[1][80:]
    found = diagnose(model, X, y, coverages=[0.9])
    np.testing.assert_allclose(found.lower[:, 0], through(model).predict_interval(X, 0.9)[:, 0])
    np.testing.assert_allclose(found.mean, model.predict(X))
    page = write_report(model, X, y, tmp_path / "report.html", target="dose").read_text()
    assert "Target dose;" in page


def test_what_has_no_intervals_is_named(data):
    fitted = make_pipeline(StandardScaler(), LinearRegression()).fit(*data)
    with pytest.raises(InvalidInputError, match="found LinearRegression"):
        through(fitted)


def test_a_transform_without_an_inverse_everywhere_is_named(data):
    X, y = data
    model = TransformedTargetRegressor(
        regressor(), func=np.log, inverse_func=lambda t: np.where(t > 1, np.nan, np.exp(t)),
        check_inverse=False,
    ).fit(X, y)  # fmt: skip
    with pytest.raises(InvalidInputError, match="target: expected a transform whose inverse"):
        through(model).predict_interval(X)


@pytest.fixture(scope="module")
def frame(data):
    X, y = data
    kinds = np.where(X[:, 1] > 3, "up", "down")
    return pd.DataFrame({"a": X[:, 0], "b": X[:, 1], "kind": kinds}), y


@pytest.fixture(scope="module")
def saved(frame, tmp_path_factory):
    pytest.importorskip("skops", reason="no skops; the extra of that name installs it")
    X, y = frame
    numbers, kinds = (
        make_column_selector(**{f"dtype_{how}clude": "number"}) for how in ("in", "ex")
    )
    encoder = make_column_transformer((StandardScaler(), numbers), (OneHotEncoder(), kinds))
    inside = make_pipeline(encoder, regressor())
    model = TransformedTargetRegressor(inside, func=np.log1p, inverse_func=np.expm1).fit(X, y)
    path = tmp_path_factory.mktemp("models") / "pipeline.sgp"
    through(model).save(path)
    return model, path


def test_a_pipeline_comes_back_from_its_file_bit_for_bit(saved, frame):
    model, path = saved
    again = load(path)
    X = frame[0]
    np.testing.assert_array_equal(again.predict(X), model.predict(X))
    np.testing.assert_array_equal(again.predict_interval(X), through(model).predict_interval(X))
    assert b"pickle" not in path.read_bytes()


def test_transformers_with_code_are_refused_at_loading(data, tmp_path):
    pytest.importorskip("skops", reason="no skops; the extra of that name installs it")
    X, y = data
    model = make_pipeline(FunctionTransformer(_own), regressor()).fit(X, y)
    path = tmp_path / "own.sgp"
    through(model).save(path)
    with pytest.raises(SavedModelError, match=r"expected types that skops trusts, found .*_own"):
        load(path)


def _own(X):
    return 2 * X


def test_a_plain_model_needs_no_skops(data, tmp_path):
    model = regressor().fit(*data)
    through(model).save(tmp_path / "plain.sgp")
    again = load(tmp_path / "plain.sgp")
    np.testing.assert_array_equal(again.predict_interval(data[0]), model.predict_interval(data[0]))
    np.testing.assert_array_equal(
        SharpGPRegressor.load(tmp_path / "plain.sgp").predict(data[0]), again.predict(data[0])
    )
