"""Any mean: predictions are the regressor's, and nothing that calibrates has been seen by it."""

import numpy as np
import pandas as pd
import pytest
import torch
from sklearn.base import BaseEstimator, RegressorMixin, clone
from sklearn.compose import ColumnTransformer, make_column_transformer
from sklearn.dummy import DummyRegressor
from sklearn.ensemble import GradientBoostingRegressor
from sklearn.impute import SimpleImputer
from sklearn.linear_model import LinearRegression, Ridge, RidgeClassifier
from sklearn.model_selection import GridSearchCV, KFold, cross_val_predict
from sklearn.neighbors import KNeighborsRegressor
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import (
    FunctionTransformer,
    OneHotEncoder,
    PolynomialFeatures,
    StandardScaler,
)
from sklearn.tree import DecisionTreeRegressor

from helpers import wavy
from sharpgp import CrossValidated, Kuleshov18, SharpGPRegressor
from sharpgp.exceptions import InvalidInputError, SavedModelError
from sharpgp.gp import train
from sharpgp.gp.wrappers.external_mean import CentredPosterior
from sharpgp.models.regressor import ScikitMean, names_for

X, Y = wavy(120, seed=5)
X_TEST, Y_TEST = wavy(400, seed=6)

pytestmark = pytest.mark.usefixtures("one_start")


class Recording(RegressorMixin, BaseEstimator):
    """A line that writes down the targets of every fit."""

    fits: list = []  # noqa: RUF012 (shared by all clones on purpose)

    def fit(self, X, y):
        self.fits.append(set(y.tolist()))
        self.line_ = LinearRegression().fit(X, y)
        return self

    def predict(self, X):
        return self.line_.predict(X)


@pytest.fixture
def fits():
    Recording.fits.clear()
    return Recording.fits


def centred(regressor, X, y, seed=0):
    X, y = torch.as_tensor(X), torch.as_tensor(y)
    mean, centre = ScikitMean(regressor, seed=seed).fitted(X, y)
    return CentredPosterior(mean, train(X, y - centre)[0], centre)


# ------------------------------------------------------------------ the right splits


@pytest.mark.parametrize("calibration", ["exact", "kuleshov18"])
def test_calibration_points_are_not_seen(calibration, fits):
    model = SharpGPRegressor(
        calibration=calibration, base=Recording(), cal_size=30, random_state=0
    ).fit(X, Y)
    calibrated = model.calibrated_
    held_out = set(calibrated.y_cal.tolist())
    assert len(held_out) == 30
    seen = {round(y, 9) for fit in fits for y in fit}
    assert not seen & {round(y, 9) for y in held_out}
    # Each learning of the default holds out parts of its own rows in turn, and fits to them all.
    rows = [90, *[72] * 5] if calibration == "exact" else [90]
    assert [len(fit) for fit in fits if len(fit) in (90, 72)].count(90) == 1
    assert len(fits) == 6 * len(rows)
    assert not hasattr(model.base, "line_")  # the one that was given is not fitted


def test_cv_fits_the_mean_without_each_part(fits, monkeypatch):
    posterior = centred(Recording(), X[:60], Y[:60])
    parts, retrained = [], CentredPosterior.retrained

    def spy(self, X, y, **settings):
        parts.append((len(fits), set(y.tolist())))
        return retrained(self, X, y, **settings)

    monkeypatch.setattr(CentredPosterior, "retrained", spy)
    calibrated = CrossValidated(folds=3).fit(posterior)
    assert len(fits) == 6 * (3 + 1)
    for first, rest in parts:
        assert len(rest) == 40
        assert all(fit <= rest for fit in fits[first : first + 6])
        assert fits[first + 5] == rest
    assert calibrated.posterior is posterior


def test_the_gp_is_trained_on_out_of_fold_residuals():
    forest = GradientBoostingRegressor(n_estimators=20, random_state=0)
    posterior = centred(forest, X, Y, seed=3)
    parts = KFold(5, shuffle=True, random_state=3)
    honest = Y - cross_val_predict(clone(forest), X, Y, cv=parts)
    np.testing.assert_allclose(posterior.base.y_train, honest, atol=1e-12)
    np.testing.assert_allclose(posterior.y_train, Y, atol=1e-12)
    in_sample = Y - clone(forest).fit(X, Y).predict(X)
    assert np.mean(honest**2) > 1.5 * np.mean(in_sample**2)


def test_a_mean_that_interpolates_is_not_believed():
    """One nearest neighbour has no residuals where it was fitted; new ones are as large as ever."""
    model = SharpGPRegressor(calibration="vanilla", base=KNeighborsRegressor(1)).fit(X, Y)
    lower, upper = model.predict_interval(X_TEST, 0.9).T
    assert abs(np.mean((lower <= Y_TEST) & (upper >= Y_TEST)) - 0.9) < 0.07


def test_sigma_is_the_root_mean_square_about_the_mean():
    posterior = centred(Ridge(), X, Y)
    points = torch.as_tensor(X_TEST)
    theta = 2 * posterior.theta_R[None]
    g, s = posterior.base.mean(points), posterior.base.sigma(theta, points)
    torch.testing.assert_close(posterior.sigma(theta, points), (g**2 + s**2).sqrt())
    # Leave-one-out, the slow way: the same GP without a point.
    _, sigma = posterior.loo(theta)
    for i in (0, 50):
        rest = torch.arange(120) != i
        without = posterior.base.at_rows(rest.nonzero()[:, 0])
        g, s = (
            without.mean(points.new_tensor(X[i : i + 1])),
            without.sigma(theta, torch.as_tensor(X[i : i + 1])),
        )
        torch.testing.assert_close(
            sigma[0, i], (g[0] ** 2 + s[0, 0] ** 2).sqrt(), rtol=1e-6, atol=0
        )


# ------------------------------------------------------------------ coverage


def test_coverage_does_not_depend_on_the_mean():
    """Rank 32 of 40 at 80 %, with a mean that is nonsense."""
    posterior = centred(DummyRegressor(strategy="constant", constant=-3.0), X, Y)
    shares = []
    for seed in range(60):
        X_new, y_new = map(torch.from_numpy, wavy(39 + 200, seed=1000 + seed))
        fitted = Kuleshov18().fit(posterior, X_new[:39], y_new[:39])
        lower, upper = fitted.predict_interval(X_new[39:], 0.8, symmetric=True).T
        shares.append(float(((lower <= y_new[39:]) & (y_new[39:] <= upper)).double().mean()))
    error = (0.16 / (60 * 200) * (1 + 199 / 41)) ** 0.5
    assert abs(np.mean(shares) - 0.8) < 3 * error


@pytest.mark.parametrize(
    "calibration",
    ["exact", pytest.param(CrossValidated(folds=2), marks=pytest.mark.slow)],
    ids=str,
)
def test_intervals_of_gradient_boosting(calibration):
    forest = GradientBoostingRegressor(n_estimators=30, random_state=0)
    model = SharpGPRegressor(calibration=calibration, base=forest, random_state=0)
    model.fit(X, Y)
    lower, upper = model.predict_interval(X_TEST, 0.9).T
    # 30 scores: coverage given the calibration set has a standard deviation of 5 points.
    assert abs(np.mean((lower <= Y_TEST) & (upper >= Y_TEST)) - 0.9) < 3 * 0.06
    dist = model.predict_dist(X_TEST)
    assert np.mean(dist.crps(Y_TEST)) < 0.2


# ------------------------------------------------------------------ updates, large data


def test_update_of_cv_keeps_the_mean_and_extends_its_gp():
    posterior = centred(Ridge(), X[:60], Y[:60])
    calibrated = CrossValidated(folds=2).fit(posterior)
    later = calibrated.updated(X[60:], Y[60:])
    assert later.posterior.regression is calibrated.posterior.regression
    torch.testing.assert_close(later.posterior.y_train, torch.as_tensor(Y))
    torch.testing.assert_close(later.posterior.centre[60:], posterior.mean(torch.as_tensor(X[60:])))
    assert torch.equal(later.posterior.centre[:60], posterior.centre)
    assert later.n_cal == 120


def test_a_perfect_mean_gives_no_nan():
    line = X @ np.array([1.0, -2.0])
    for calibration in ("exact", "kuleshov18", CrossValidated(folds=2)):
        model = SharpGPRegressor(calibration=calibration, base=LinearRegression(), random_state=0)
        ends = model.fit(X[:60], line[:60]).predict_interval(X_TEST, 0.8)
        assert np.isfinite(ends).all()
        assert np.ptp(ends, axis=1).max() < 1e-9
    zero = SharpGPRegressor(calibration="exact", base=DummyRegressor(), random_state=0)
    rng = np.random.default_rng(0)
    y = rng.permutation(np.repeat([0.0, 1.0], 60))  # nothing to learn
    assert np.isfinite(zero.fit(X, y).predict_interval(X_TEST, 0.8)).all()


# ------------------------------------------------------------------ scikit-learn's ways


def test_parameters_of_the_mean_can_be_searched():
    model = SharpGPRegressor(calibration="kuleshov18", base=Ridge(alpha=3.0), random_state=0)
    assert model.get_params()["base__alpha"] == 3.0
    copy = clone(model).set_params(base__alpha=5.0)
    assert (copy.base.alpha, model.base.alpha) == (5.0, 3.0)
    search = GridSearchCV(model, {"base__alpha": [1e-3, 1e6]}, cv=2).fit(X[:80], Y[:80])
    assert search.best_params_ == {"base__alpha": 1e-3}
    assert search.predict(X_TEST).shape == (400,)


def test_pipelines_get_the_columns_by_name():
    frame = pd.DataFrame(X, columns=["length", "width"])
    columns = ColumnTransformer(
        [("wave", PolynomialFeatures(5), ["length"])], remainder="passthrough"
    )
    pipeline = make_pipeline(columns, StandardScaler(), LinearRegression())
    model = SharpGPRegressor(calibration="kuleshov18", base=pipeline, random_state=0)
    model.fit(frame[:90], Y[:90], frame[90:], Y[90:])
    expected = clone(pipeline).fit(frame[:90], Y[:90]).predict(frame)
    np.testing.assert_allclose(model.predict(frame), expected)
    assert model.predict_interval(frame[:3]).shape == (3, 2)


# ------------------------------------------------------------------ errors


class Broken(Recording):
    def predict(self, X):
        return np.full((len(X), 2), np.nan)


class Unsure(Recording):
    def predict(self, X):
        return np.full(len(X), np.nan)


BAD = {
    "name": ("ridge", r"found 'ridge'; pass the regressor, such as base=Ridge\(\)"),
    "auto in a list": (["auto", "rbf"], "expected 'auto' alone, found it in a list"),
    "classifier": (RidgeClassifier(), "expected a regressor, found the classifier RidgeClassifier"),
    "classifier in a list": (["rbf", make_pipeline(RidgeClassifier())], "classifier Pipeline"),
    "class": (Ridge, r"found the class Ridge; use Ridge\(\)"),
    "transformer": (StandardScaler(), "found StandardScaler"),
    "shape": (Broken(), r"expected 120 finite predictions, one per row, found shape \(120, 2\)"),
    "nan": (Unsure(), "expected 120 finite predictions, one per row, found NaN or inf"),
}


@pytest.mark.parametrize("kind", BAD)
def test_means_that_cannot_be_used(kind):
    mean, message = BAD[kind]
    with pytest.raises(InvalidInputError, match=message) as caught:
        SharpGPRegressor(calibration="vanilla", base=mean).fit(X, Y)
    assert "\n" not in str(caught.value)


def test_no_gradients():
    model = SharpGPRegressor(calibration="vanilla", base=Ridge()).fit(X, Y)
    points = torch.as_tensor(X_TEST[:3]).requires_grad_()
    with pytest.raises(InvalidInputError, match="where gradients are needed, found Ridge"):
        model.posterior_.mean(points)


def saved(base, path):
    pytest.importorskip("skops", reason="no skops; the extra of that name installs it")
    model = SharpGPRegressor(calibration="exact", base=base, random_state=0).fit(X[:60], Y[:60])
    model.save(path)
    assert b"pickle" not in path.read_bytes()
    return model


def test_a_scikit_learn_base_comes_back_from_its_file_bit_for_bit(tmp_path):
    model = saved(make_pipeline(StandardScaler(), Ridge()), tmp_path / "model")
    again = SharpGPRegressor.load(tmp_path / "model")
    np.testing.assert_array_equal(again.predict(X_TEST), model.predict(X_TEST))
    np.testing.assert_array_equal(again.predict_interval(X_TEST), model.predict_interval(X_TEST))
    more = X[60:], Y[60:]
    np.testing.assert_array_equal(again.update(*more).predict(X), model.update(*more).predict(X))
    assert again.get_params()["base__ridge__alpha"] == 1.0


def test_parts_that_skops_does_not_trust_are_named(tmp_path):
    path, untrusted = tmp_path / "model", "sklearn.tree._tree.Tree"
    model = saved(DecisionTreeRegressor(max_depth=2), path)
    with pytest.raises(SavedModelError, match=f"found {untrusted}; if you trust the file, name"):
        SharpGPRegressor.load(path)
    again = SharpGPRegressor.load(path, trusted=[untrusted])
    np.testing.assert_array_equal(again.predict_interval(X_TEST), model.predict_interval(X_TEST))


def days(table):
    return (table - pd.Timestamp("2024-01-01")) / pd.Timedelta("1D")


def test_a_pipeline_that_selects_columns_is_given_the_columns():
    """A base that encodes categories by itself predicts as it does alone on the frame."""
    rng = np.random.default_rng(0)
    frame = pd.DataFrame(
        {
            "a": rng.normal(size=90),
            "k": rng.choice(["u", "v", "w"], 90),
            "day": pd.Timestamp("2024-01-01") + pd.to_timedelta(rng.integers(0, 90, 90), "D"),
            "size": pd.Categorical(rng.choice(["S", "L"], 90), ["S", "L"], ordered=True),
        }
    )
    frame.loc[::9, "a"] = np.nan
    y = frame["a"].fillna(0) + (frame["k"] == "u") + 0.1 * rng.normal(size=90)
    alone = make_pipeline(
        make_column_transformer(
            (OneHotEncoder(), ["k", "size"]),
            (SimpleImputer(), ["a"]),
            (FunctionTransformer(days), ["day"]),
        ),
        Ridge(),
    )
    model = SharpGPRegressor(base=alone, calibration="vanilla", random_state=0).fit(frame, y)
    np.testing.assert_allclose(model.predict(frame), alone.fit(frame, y).predict(frame))
    # One that names no column gets features, and so does one that names these.
    encoding = model.encoding_
    assert names_for(Ridge(), encoding) == encoding.features
    by_feature = make_pipeline(make_column_transformer((StandardScaler(), ["k=u"])), Ridge())
    assert names_for(by_feature, encoding) == encoding.features
