"""cv: likelihoods in the user's units, training without a part, and what predicts."""

import warnings
from dataclasses import replace

import numpy as np
import pandas as pd
import pytest
import torch
from scipy.stats import multivariate_normal
from sklearn.linear_model import LinearRegression
from sklearn.model_selection import TimeSeriesSplit

from helpers import wavy
from sharpgp import CrossValidated, SharpGPRegressor
from sharpgp.data.folds import row_labels, split_parts
from sharpgp.gp import SparsePosterior, train
from sharpgp.gp.sparse.training import train_sparse
from sharpgp.gp.wrappers.target_warp import train_warped
from sharpgp.metrics import interval_coverage
from sharpgp.models.gaussian import gaussian_model as gaussian
from sharpgp.models.gaussian.spread_choice import Choice, same_spread
from sharpgp.models.splitters import complements, learning_pairs


def density(gp):
    """Log density per point of a GP's targets, from its covariance matrix alone."""
    theta = gp.theta_R.unsqueeze(0)
    K = gp.covariance.matrix(theta, gp.X_standardised)[0] + theta[0, -1] * torch.eye(gp.n_train)
    scale, shift = gp.y_units.scale.numpy(), gp.y_units.shift.numpy()
    centre = np.full(gp.n_train, shift)
    found = multivariate_normal(centre, scale**2 * K.numpy()).logpdf(gp.y_train.numpy())
    return found / gp.n_train


def test_log_likelihood_is_the_density_in_the_users_units():
    X, y = (torch.from_numpy(v) for v in wavy(40))
    gp, result = train(X, 100.0 + 7.0 * y)
    np.testing.assert_allclose(gp.log_likelihood(), density(gp), rtol=1e-9)
    expected = result.log_likelihood - float(gp.y_units.scale.log())
    np.testing.assert_allclose(gp.log_likelihood(), expected, rtol=1e-9)
    units = {"x_units": gp.x_units, "y_units": gp.y_units}
    given = X, 100.0 + 7.0 * y, gp.covariance, gp.theta_R
    all_inducing, few = (SparsePosterior(*given, Z, **units) for Z in (X, X[::4]))
    np.testing.assert_allclose(all_inducing.log_likelihood(), gp.log_likelihood(), atol=1e-6)
    assert few.log_likelihood() < gp.log_likelihood() - 1e-3


def test_log_likelihood_of_a_warped_gp_counts_the_warp():
    X = torch.from_numpy(wavy(40)[0])
    y = (1.5 * X[:, 0]).exp() + 0.1
    gp = train_warped(X, y, train(X, y)[0].covariance)
    step = 1e-5
    slopes = (gp.warp.forward(y + step) - gp.warp.forward(y - step)) / (2 * step)
    expected = density(gp.base) + float(slopes.log().mean())
    np.testing.assert_allclose(gp.log_likelihood(), expected, rtol=1e-6)


# ------------------------------------------------------------------ trained without a part only


def learned_gp(X, y):
    """A GP with its learned spread, and the parts whose points its learnings score."""
    labels = row_labels(X)
    return gaussian.learn_gaussian(train(X, y)[0], 0, labels), labels, learning_pairs(labels, 0)


@pytest.fixture
def every_learning(monkeypatch):
    """All learnings predict, so that each can be compared."""
    monkeypatch.setattr(gaussian, "QUICK_LOSS", 0.0)


@pytest.mark.usefixtures("every_learning")
def test_points_out_of_training_are_predicted_from_all_others():
    X, y = (torch.from_numpy(v) for v in wavy(60))
    model, labels, pairs = learned_gp(X, y)
    found = model.out_of_training(pairs, labels, 0)
    assert len(found.refits) == 5
    for fit, (rest, left_out) in zip(found.refits, pairs, strict=True):
        trained = gaussian.GaussianModel(
            same_spread(model.choice, model.trained, X[rest], y[rest])
        ).posterior
        # Hyperparameters come from the other parts, ...
        torch.testing.assert_close(fit.posterior.theta_R, trained.theta_R)
        # ... the data are all points but one, ...
        for i in left_out.tolist():
            others = torch.arange(60) != i
            alone = trained.conditioned_on(X[others], y[others])
            torch.testing.assert_close(found.held.law.location[i], alone.mean(X[i : i + 1])[0])
        # ... and what predicts knows all of them.
        whole = trained.conditioned_on(X, y)
        torch.testing.assert_close(fit.location(X), whole.mean(X))


@pytest.mark.usefixtures("every_learning")
def test_the_scale_at_a_point_does_not_know_its_target():
    # Clusters of three, each at a level of its own, with more noise in the middle.
    rng = np.random.default_rng(0)
    cluster = np.repeat(np.arange(24), 3)
    noise = np.where(cluster // 8 == 1, 0.5, 0.05) * rng.normal(size=72)
    X = torch.from_numpy(cluster + rng.uniform(-0.02, 0.02, 72))[:, None]
    y = torch.from_numpy(rng.normal(size=24)[cluster] + noise)
    labels, asked = row_labels(X), 10
    pairs = learning_pairs(labels, 0)
    posterior = train(X, y)[0]
    scales, among_neighbours = [], []
    for change in (0.0, 0.5):
        moved = y.clone()
        moved[asked] += change
        gp = posterior.conditioned_on(X, moved)
        scaled = same_spread(Choice(share=1.0), gp, X, y)
        model = gaussian.GaussianModel(replace(scaled, posterior=gp), gp)
        found = model.out_of_training(pairs, labels, 0)
        (fit,) = (
            refit
            for refit, (_, rows) in zip(found.refits, pairs, strict=True)
            if asked in rows.tolist()
        )
        scales.append(found.held.law.spread[asked] / fit.unit)
        fit = fit.conditioned(fit.posterior)
        among_neighbours.append(fit.leave_one_out(labels, 0).law.spread[asked] / fit.unit)
    torch.testing.assert_close(*scales)
    # The z-scores of its neighbours do.
    assert among_neighbours[1] > 1.05 * among_neighbours[0]


def test_copies_are_not_predicted_from_each_other():
    X, y = (torch.from_numpy(v) for v in wavy(40))
    X, y = X.repeat(2, 1), torch.cat([y, y + 0.1])
    model, labels, pairs = learned_gp(X, y)
    found = model.out_of_training(pairs, labels, 0)
    for fit, (rest, test) in zip(found.refits, pairs, strict=True):
        without = fit.posterior.conditioned_on(X[rest], y[rest])
        torch.testing.assert_close(found.held.law.location[test], without.mean(X[test]))


def test_what_cannot_be_conditioned_is_fitted_without_each_part():
    X, y = (torch.from_numpy(v) for v in wavy(40))
    model, labels = gaussian.learn_gaussian(train_sparse(X, y, n_inducing=9)[0]), row_labels(X)
    pairs = complements(40, split_parts(labels, 10, 0))
    found, expected = (one(pairs, labels, 0) for one in (model.out_of_training, model.out_of_fold))
    assert len(found.refits) == 10
    torch.testing.assert_close(found.held.scores, expected.held.scores, rtol=0, atol=0)


def test_folds_of_ones_own_are_left_out_as_a_whole():
    X, y = (torch.from_numpy(v) for v in wavy(40))
    posterior, _ = train(X, y)
    model = gaussian.learn_gaussian(posterior, 0, row_labels(X))
    pairs = complements(40, split_parts(row_labels(X), 10, 0))
    own = CrossValidated(folds=10, random_state=0).fit(posterior).scores
    torch.testing.assert_close(own, model.out_of_fold(pairs, row_labels(X), 0).held.scores)
    drawn, pairs = (
        CrossValidated(random_state=0).fit(posterior).scores,
        learning_pairs(row_labels(X), 0),
    )
    torch.testing.assert_close(drawn, model.out_of_training(pairs, row_labels(X), 0).held.scores)
    assert not torch.allclose(own, drawn)


# ---------------------------------------------------------------- what predicts is what was scored


@pytest.mark.usefixtures("every_learning")
def test_one_gp_predicts_with_the_refits_that_were_scored():
    X, y = wavy(60)
    for folds in ("auto", 5):
        found = CrossValidated(folds=folds).fit(train(*map(torch.from_numpy, (X, y)))[0])
        at = torch.from_numpy(wavy(20, seed=1)[0])
        assert len(found.model.refits) == 5
        each = [refit.location_and_spread(at) for refit in found.model.refits]
        mean = torch.stack([location for location, _ in each]).mean(0)
        square = torch.stack([spread.square() for _, spread in each]).mean(0)
        torch.testing.assert_close(found.model.location(at), mean)
        torch.testing.assert_close(found.model.law(at).spread, square.sqrt())


def test_intervals_for_spectra_cover_what_they_claim():
    """Few rows of many correlated features: a fit to all rows overfits by more than its refits."""
    rng = np.random.default_rng(0)
    t = np.linspace(0, 1, 200)
    peaks = np.stack([np.exp(-(((t - c) / 0.07) ** 2)) for c in (0.2, 0.4, 0.6, 0.8)])
    amounts = rng.gamma(2, 1, (500, 4))
    X = amounts @ peaks + 0.01 * rng.normal(size=(500, 200))
    y = 1.5 * amounts[:, 0] - amounts[:, 2] + 0.05 * rng.normal(size=500)
    model = SharpGPRegressor(base="rbf", calibration="cv", random_state=0).fit(X[:100], y[:100])
    ends = model.predict_interval(X[100:], 0.9)
    assert 0.82 < interval_coverage(y[100:], *ends.T) < 0.98
    # What is shown as held out is: within a factor of what new rows have.
    new = model.predict_dist(X[100:]).crps(y[100:]).mean()
    assert 0.5 < model.base_[0].crps / new < 2.0


@pytest.mark.parametrize("calibration", ["cv", "exact"])
def test_the_crps_of_one_model_is_that_of_points_that_its_learnings_have_not_seen(calibration):
    X, y = wavy(80)
    model = SharpGPRegressor(base="rbf", calibration=calibration, random_state=0).fit(X, y)
    shown, average = model.base_[0].crps, model.calibrated_.model
    rows = learning_pairs(row_labels(average.X_train), 0)
    held = average.model.out_of_training(rows, row_labels(average.X_train), 0).held
    assert shown == pytest.approx(held.crps(average.y_train))
    X_new, y_new = wavy(500, seed=1)
    assert shown == pytest.approx(model.predict_dist(X_new).crps(y_new).mean(), rel=0.3)


def test_ordered_folds_are_consecutive_tests_of_earlier_rows_and_are_stored(tmp_path):
    X = np.linspace(0, 10, 62)[:, None]
    y = np.sin(2 * X[:, 0]) + 0.1 * np.cos(37 * X[:, 0])
    X[40:50], y[40:50] = X[10:20], y[10:20]  # rows come again
    own, splitter = (
        SharpGPRegressor(base="rbf", calibration=CrossValidated(folds=folds), random_state=0)
        .fit(X, y)
        .predict_interval(X)
        for folds in ("ordered", TimeSeriesSplit(5))
    )
    np.testing.assert_array_equal(own, splitter)
    model = SharpGPRegressor(base="rbf", calibration=CrossValidated(folds="ordered")).fit(X, y)
    assert model.calibrated_.n_cal == 50
    model.save(tmp_path / "model.sgp")
    again = SharpGPRegressor.load(tmp_path / "model.sgp")
    np.testing.assert_array_equal(again.predict_interval(X), model.predict_interval(X))


@pytest.mark.parametrize("base", ["rbf", ["rbf", "extra_trees"]])
def test_splits_in_order_of_time_predict_with_fits_to_all_rows(base):
    X = np.linspace(0, 10, 60)[:, None]
    y = 0.3 * X[:, 0] + np.sin(2 * X[:, 0])
    method = CrossValidated(folds=TimeSeriesSplit(4))
    model = SharpGPRegressor(base=base, calibration=method, random_state=0).fit(X, y)
    changed = y.copy()
    changed[-12:] += 5.0  # the newest rows, which no refit trains on
    again = SharpGPRegressor(base=base, calibration=method, random_state=0).fit(X, changed)
    assert abs(again.predict(X[-3:]) - model.predict(X[-3:])).min() > 2.0


@pytest.mark.parametrize("correlated", [True, False])
def test_rows_in_order_of_a_date_with_correlated_errors_are_warned_of(correlated):
    rng = np.random.default_rng(0)
    noise = rng.normal(size=120)
    if correlated:
        noise = np.convolve(noise, np.ones(12) / 3, mode="same")
    dates = pd.date_range("2024-01-01", periods=120, freq="D")
    table = pd.DataFrame({"day": dates, "x": rng.uniform(size=120)})
    y = 3.0 * table["x"] + noise
    model = SharpGPRegressor(base=LinearRegression(), calibration="cv", random_state=0)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        model.fit(table, y)
    assert any("neighbouring rows by 'day'" in str(one.message) for one in caught) == correlated
