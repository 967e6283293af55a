import numpy as np
import pandas as pd
import pytest
import torch
from sklearn.linear_model import LinearRegression
from sklearn.model_selection import GridSearchCV
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from sharpgp import Exact, Marx22, Sharp, SharpGPRegressor, Vanilla
from sharpgp.diagnostics import diagnose, level_curves
from sharpgp.exceptions import InvalidInputError
from sharpgp.metrics import interval_coverage, interval_width


@pytest.fixture(scope="module")
def data():
    rng = np.random.default_rng(0)
    X = rng.uniform(-2, 2, (140, 2))
    y = np.sin(2 * X[:, 0]) + 0.2 * rng.normal(size=140)
    return X[:100], y[:100], X[100:], y[100:]


@pytest.fixture(scope="module")
def model(data):
    X, y, _, _ = data
    return SharpGPRegressor(calibration="kuleshov18", random_state=0).fit(X, y)


def test_it_agrees_with_the_model_asked_one_by_one(model, data):
    _, _, X, y = data
    found = diagnose(model, X, y)
    ends = model.predict_interval(X, coverage=0.95)
    k = found.coverages.tolist().index(0.95)
    np.testing.assert_array_equal(found.lower[:, k], ends[:, 0])
    np.testing.assert_array_equal(found.upper[:, k], ends[:, 1])
    np.testing.assert_array_equal(found.mean, model.predict(X))
    np.testing.assert_array_equal(found.pit, model.predict_dist(X).cdf(y))
    assert found.report["coverage_95"] == interval_coverage(y, *ends.T)
    assert found.report["width_95"] == interval_width(*ends.T)
    assert (found.method, found.n_cal) == ("kuleshov18", model.calibrated_.n_cal)
    assert found.n_train + found.n_cal == 100
    assert found.feature_names == ("x0", "x1")
    # About 20 calibration points back 95 % but not 99 %; the warning became a mark.
    assert dict(zip(found.coverages.tolist(), found.backed, strict=True)) == {
        0.5: True, 0.6: True, 0.7: True, 0.8: True, 0.9: True, 0.95: True, 0.99: False,
    }  # fmt: skip


def test_every_way_to_hold_a_model_gives_the_same(model, data):
    X_train, y_train, X, y = data
    plain = diagnose(model, X, y)
    torch_level = diagnose(model.calibrated_, torch.from_numpy(X), torch.from_numpy(y))
    np.testing.assert_array_equal(torch_level.upper, plain.upper)
    assert torch_level.method == type(model.calibrated_).__name__
    pipeline = make_pipeline(StandardScaler(), SharpGPRegressor(calibration="kuleshov18"))
    search = GridSearchCV(pipeline, {"sharpgpregressor__cal_size": [0.3]}, cv=2)
    searched = diagnose(search.fit(X_train, y_train), X, y)
    best = search.best_estimator_
    np.testing.assert_array_equal(searched.mean, best[-1].predict(best[:-1].transform(X)))
    np.testing.assert_allclose(searched.mean, search.predict(X))


def test_feature_names_come_from_the_fit_the_frame_or_the_caller(model, data):
    X_train, y_train, X, y = data
    frame = pd.DataFrame(X, columns=["a", "b"])
    fitted = SharpGPRegressor(calibration="kuleshov18", random_state=0)
    fitted.fit(pd.DataFrame(X_train, columns=["a", "b"]), y_train)
    assert diagnose(fitted, frame, y).feature_names == ("a", "b")
    assert diagnose(model.calibrated_, frame, y).feature_names == ("a", "b")
    found = diagnose(model, X, y, feature_names=["u", "v"])
    assert found.feature_names == ("u", "v")
    assert found.curves.names[:2] == ("1/lengthscale of u", "1/lengthscale of v")
    with pytest.raises(InvalidInputError, match="feature_names: expected 2"):
        diagnose(model, X, y, feature_names=["u"])


@pytest.mark.parametrize("wrong", [SharpGPRegressor(), LinearRegression(), None])
def test_what_is_no_fitted_model_is_named(wrong, data):
    with pytest.raises(InvalidInputError, match=f"found {type(wrong).__name__}"):
        diagnose(wrong, *data[2:])


def test_curves_are_those_of_the_predictor(gp):
    rng = np.random.default_rng(1)
    X = torch.from_numpy(rng.uniform(-3, 3, (60, gp.n_features)))
    y = gp.mean(X) + 0.3 * torch.from_numpy(rng.normal(size=60))
    sharp = Sharp(levels=5).fit(gp, X, y)
    curves = level_curves(sharp)
    np.testing.assert_array_equal(curves.delta, sharp.curves.delta.numpy())
    np.testing.assert_array_equal(curves.beta, sharp.curves.beta.numpy())
    np.testing.assert_array_equal(curves.theta, (sharp.curves.theta / gp.theta_R).numpy())
    assert curves.scores
    exact = level_curves(Exact().fit(gp, X, y))
    assert not exact.moved.any()  # one theta serves all levels, that of the GP
    assert not level_curves(Marx22().fit(gp, X, y)).scores
    assert level_curves(Vanilla().fit(gp, None, None)) is None
