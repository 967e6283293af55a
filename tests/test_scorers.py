"""scikit-learn's conventions: scorers, searches, pipelines, frames, logging."""

import logging
import pickle
from importlib.resources import files

import numpy as np
import pandas as pd
import pytest
from sklearn.base import clone
from sklearn.compose import make_column_transformer
from sklearn.linear_model import LinearRegression
from sklearn.model_selection import GridSearchCV, KFold, cross_validate
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import OneHotEncoder, StandardScaler

from sharpgp import SharpGPRegressor, scorers
from sharpgp.exceptions import InvalidInputError
from sharpgp.metrics import interval_coverage, interval_score, interval_width
from sharpgp.pipelines import through

ALL = {
    "crps": scorers.crps_scorer,
    "nll": scorers.nll_scorer,
    "pinball": scorers.pinball_scorer,
    "ece": scorers.ece_scorer,
    "interval_score": scorers.interval_score_scorer,
    "coverage": scorers.coverage_scorer,
    "width": scorers.width_scorer,
}


@pytest.fixture(scope="module")
def data():
    rng = np.random.default_rng(0)
    X = rng.uniform(-2, 2, (90, 2))
    return X, np.sin(2 * X[:, 0]) + 0.2 * rng.normal(size=90)


def regressor(**settings):
    return SharpGPRegressor(calibration="kuleshov18", random_state=0, **settings)


def test_each_scorer_is_its_metric_and_larger_is_better(data):
    X, y = data
    model = regressor().fit(X[:60], y[:60])
    report = model.calibration_report(X[60:], y[60:])
    ends = model.predict_interval(X[60:], coverage=0.95).T
    expected = {name: -report[name] for name in ("crps", "nll", "pinball", "ece")}
    expected["interval_score"] = -interval_score(y[60:], *ends, 0.95)
    expected["coverage"] = interval_coverage(y[60:], *ends)
    expected["width"] = -interval_width(*ends)
    assert {name: scorer(model, X[60:], y[60:]) for name, scorer in ALL.items()} == expected
    narrow = scorers.IntervalScorer("width", coverage=0.5)(model, X[60:], y[60:])
    assert narrow > expected["width"]


def test_cross_validate_takes_all_of_them_at_once(data):
    found = cross_validate(regressor(), *data, scoring=ALL, cv=3, error_score="raise")
    assert {key for key in found if key.startswith("test_")} == {f"test_{name}" for name in ALL}
    assert all(np.isfinite(found[f"test_{name}"]).all() for name in ALL)


def test_scorers_can_travel_to_other_processes():
    for scorer in ALL.values():
        assert pickle.loads(pickle.dumps(scorer)) == scorer
    assert repr(scorers.crps_scorer) == "ReportScorer(metric='crps')"


@pytest.mark.slow
def test_a_search_over_calibrations_chooses_by_the_scorer(data):
    X, y = data
    pipeline = make_pipeline(StandardScaler(), regressor())
    grid = {"sharpgpregressor__calibration": ["kuleshov18", "marx22"]}
    scoring = scorers.interval_score_scorer
    search = GridSearchCV(pipeline, grid, scoring=scoring, cv=KFold(3), error_score="raise")
    search.fit(X, y)
    by_hand = []
    for method in ("kuleshov18", "marx22"):
        scores = []
        for train, test in KFold(3).split(X):
            fitted = clone(pipeline).set_params(sharpgpregressor__calibration=method)
            fitted.fit(X[train], y[train])
            Z = fitted[:-1].transform(X[test])
            scores.append(-interval_score(y[test], *fitted[-1].predict_interval(Z).T, 0.95))
        by_hand.append(np.mean(scores))
    np.testing.assert_allclose(search.cv_results_["mean_test_score"], by_hand)
    assert search.best_index_ == int(np.argmax(by_hand))
    assert scoring(search, X, y) == pytest.approx(scoring(search.best_estimator_, X, y))


def test_frames_go_through_a_pipeline_with_their_names(data):
    X, y = data
    frame = pd.DataFrame({"a": X[:, 0], "b": X[:, 1], "kind": np.where(X[:, 1] > 0, "up", "down")})
    encoder = make_column_transformer(
        (OneHotEncoder(sparse_output=False), ["kind"]),
        remainder="passthrough",
        verbose_feature_names_out=False,
    )
    pipeline = make_pipeline(encoder, regressor()).set_output(transform="pandas")
    pipeline.fit(frame, pd.Series(y))
    names = list(pipeline[-1].feature_names_in_)
    assert names == ["kind_down", "kind_up", "a", "b"]
    assert pipeline.predict(frame).shape == (90,)
    model, encoded = pipeline[-1], through(pipeline).features(frame)
    assert list(encoded.columns) == names
    assert model.predict_interval(encoded).shape == (90, 2)
    with pytest.raises(ValueError, match="feature names"):
        model.predict(encoded.rename(columns={"a": "other"}))


@pytest.mark.parametrize("scorer", ALL.values(), ids=ALL)
def test_an_estimator_without_intervals_is_named(scorer, data):
    with pytest.raises(InvalidInputError, match="found LinearRegression"):
        scorer(make_pipeline(StandardScaler(), LinearRegression()).fit(*data), *data)


@pytest.mark.parametrize("settings", [{"kind": "depth"}, {"coverage": 1.5}, {"coverage": "wide"}])
def test_settings_of_an_interval_scorer_are_checked(settings):
    with pytest.raises(InvalidInputError, match="expected"):
        scorers.IntervalScorer(**settings)


def test_progress_is_logged_and_nothing_is_printed(data, caplog, capfd):
    with caplog.at_level(logging.INFO, logger="sharpgp"):
        regressor().fit(*data)
        assert not caplog.records
        regressor(verbose=1).fit(*data)
    assert any("rows" in record.message for record in caplog.records)
    assert capfd.readouterr() == ("", "")


def test_the_package_is_marked_as_typed():
    assert files("sharpgp").joinpath("py.typed").is_file()
