"""Noise of known variance: exact GP algebra, predictions for a given noise, replicates."""

import numpy as np
import pytest
import torch

from sharpgp import Online, SharpGPRegressor
from sharpgp.data.noise import as_variances, from_replicates, merge_replicates
from sharpgp.data.rows import LabelledRows
from sharpgp.exceptions import InvalidInputError
from sharpgp.gp.exact.posterior import ExactPosterior
from sharpgp.gp.kernels.by_name import make_covariance
from sharpgp.gp.training import train
from sharpgp.rows import Rows

pytestmark = pytest.mark.usefixtures("one_start")

RNG = np.random.default_rng(0)


def data(n=80, seed=0):
    rng = np.random.default_rng(seed)
    X = rng.uniform(-3, 3, (n, 1))
    v = np.where(rng.random(n) < 0.5, 0.01, 0.49)
    return X, np.sin(X[:, 0]) + np.sqrt(v) * rng.normal(size=n), v


def quick(**settings):
    return SharpGPRegressor(**{"base": "rbf", "calibration": "exact", "random_state": 0} | settings)


def posterior_with(X, y, v, theta):
    covariance = make_covariance("matern32", X.shape[1])
    return ExactPosterior(with_noise(X, v), torch.tensor(y), covariance, theta)


def with_noise(X, v):
    return Rows(torch.tensor(X), torch.tensor(v))


def test_the_posterior_is_that_of_the_textbook():
    X, y, v = data(25)
    theta = torch.tensor([0.7, 1.3, 0.05], dtype=torch.float64)
    gp = posterior_with(X, y, v, theta)
    free = make_covariance("matern32", 1)
    new, v_new = np.linspace(-2, 2, 7)[:, None], np.linspace(0.0, 0.5, 7)
    K = free.matrix(theta[None], torch.tensor(X))[0].numpy() + np.diag(v + 0.05)
    Ks = free.matrix(theta[None], torch.tensor(X), torch.tensor(new))[0].numpy()
    mean = Ks.T @ np.linalg.solve(K, y)
    variance = 1.3 + 0.05 + v_new - np.einsum("ij,ij->j", Ks, np.linalg.solve(K, Ks))
    points = with_noise(new, v_new)
    tolerance = 1e-12 * np.linalg.cond(K)
    np.testing.assert_allclose(gp.mean(points), mean, atol=tolerance)
    np.testing.assert_allclose(gp.sigma(theta[None], points)[0] ** 2, variance, atol=tolerance)
    inverse = np.linalg.inv(K)
    loo_mean, loo_sigma = gp.loo(theta[None])
    np.testing.assert_allclose(loo_sigma[0] ** 2, 1 / np.diag(inverse), atol=tolerance)
    np.testing.assert_allclose(loo_mean[0], y - inverse @ y / np.diag(inverse), atol=tolerance)


def test_training_finds_no_noise_beyond_what_is_known():
    X, y, v = data(150)
    gp, result = train(with_noise(X, v), torch.tensor(y))
    plain, without = train(torch.tensor(X), torch.tensor(y))
    assert result.log_likelihood > without.log_likelihood + 0.1
    # What is left is small beside the mean of the known variances, in units of the target's.
    assert float(gp.theta_R[-1] * gp.y_units.scale**2) < 0.2 * v.mean()
    assert float(plain.theta_R[-1] * plain.y_units.scale**2) > 0.5 * v.mean()


@pytest.mark.parametrize("calibration", ["exact", "loo", "kuleshov18", "vanilla"])
def test_intervals_are_for_the_noise_that_is_asked_for(calibration, tmp_path):
    X, y, v = data(120)
    model = quick(calibration=calibration).fit(X, y, noise=v)
    assert model.noise_ == np.median(v)
    quiet, loud = (np.diff(model.predict_interval(X, 0.8, noise=w)).mean() for w in (0.01, 0.49))
    assert 3 < loud / quiet < 12  # the noise alone is 7 times as large
    usual = model.predict_interval(X, 0.8)
    np.testing.assert_array_equal(usual, model.predict_interval(X, 0.8, noise=model.noise_))
    model.save(tmp_path / "model.sgp")
    again = SharpGPRegressor.load(tmp_path / "model.sgp")
    np.testing.assert_array_equal(
        again.predict_interval(X, 0.8, noise=v), model.predict_interval(X, 0.8, noise=v)
    )
    assert model.predict_quantiles(X, [0.1, 0.9], noise=v).shape == (120, 2)
    assert model.predict(X, return_std=True, noise=v)[1].shape == (120,)


def test_coverage_within_each_noise():
    """One calibration serves both kinds of observations."""
    X, y, v = data(240)
    X_test, y_test, v_test = data(2000, seed=1)
    ends = quick(calibration="loo").fit(X, y, noise=v).predict_interval(X_test, 0.8, noise=v_test)
    inside = (ends[:, 0] <= y_test) & (y_test <= ends[:, 1])
    for part in (v_test < 0.1, v_test > 0.1):
        # About half of 240 scores of each kind, and 1,000 test points.
        assert abs(inside[part].mean() - 0.8) < 4 * np.sqrt(0.16 / 120 + 0.16 / 1000)


def test_replicates_are_merged_exactly():
    X, _, _ = data(20)
    X = np.repeat(X, 3, axis=0)
    y, v = np.sin(X[:, 0]) + RNG.normal(0, 0.3, 60), RNG.uniform(0.01, 0.5, 60)
    few = merge_replicates(LabelledRows(X, y, noise=v))
    assert len(few) == 20
    theta = torch.tensor([0.7, 1.3, 1e-300], dtype=torch.float64)  # no noise beyond the known
    new = with_noise(np.linspace(-2, 2, 9)[:, None], np.zeros(9))
    whole = posterior_with(X, y, v, theta)
    short = posterior_with(few.X, few.y, few.noise, theta)
    tolerance = 1e-13 * 60 * 1.3 / v.min()
    np.testing.assert_allclose(short.mean(new), whole.mean(new), atol=tolerance)
    ours, theirs = (gp.sigma(theta[None], new) ** 2 for gp in (short, whole))
    np.testing.assert_allclose(ours, theirs, atol=tolerance)
    assert quick(calibration="vanilla").fit(X, y, noise=v).posterior_.n_train == 20


def test_variances_from_replicates():
    X = np.repeat(np.arange(6.0), 40)[:, None]
    scale = np.where(X[:, 0] < 3, 0.1, 0.5)
    y = X[:, 0] + scale * RNG.normal(size=240)
    found = from_replicates(X, y)
    # The relative error of a variance from 40 points is sqrt(2 / 39).
    np.testing.assert_allclose(found, scale**2, rtol=4 * np.sqrt(2 / 39))
    few = from_replicates(X[::8], y[::8])
    assert len(np.unique(few)) == 1
    model = quick(calibration="vanilla").fit(X, y, noise="replicates")
    assert model.posterior_.n_train == 6
    with pytest.raises(InvalidInputError, match="noise: expected rows with equal X"):
        quick().fit(data()[0], data()[1], noise="replicates")


def test_noise_with_categories_and_calibration_data():
    import pandas as pd

    X, y, v = data(90)
    frame = pd.DataFrame({"x": X[:, 0], "kind": RNG.choice(["a", "b", "c"], 90)})
    model = quick(base="additive").fit(
        frame[:60], y[:60], frame[60:], y[60:], noise=v[:60], noise_cal=v[60:]
    )
    # Two for each of x, the commonest kind and the other kinds: none for the noise.
    assert model.posterior_.n_inverse == 6
    assert model.predict_interval(frame, noise=v).shape == (90, 2)


@pytest.mark.parametrize(
    ("settings", "noise", "message"),
    [
        ({}, -1.0, "noise: expected finite variances of at least 0, found -1"),
        ({}, [1.0, 2.0], r"noise: expected one variance, or 80, one per row, found shape \(2,\)"),
        ({}, np.nan, "noise: expected finite variances"),
        ({}, "loud", "noise: expected variances or 'replicates', found 'loud'"),
        ({"approximation": "sparse"}, 0.1, "noise: expected a GP that is not sparse"),
    ],
)
def test_unusable_noise(settings, noise, message):
    X, y, _ = data()
    with pytest.raises(InvalidInputError, match=message):
        quick(**settings).fit(X, y, noise=noise)


def test_noise_has_to_be_known_at_the_fit():
    X, y, _ = data()
    model = quick(calibration="vanilla").fit(X, y)
    with pytest.raises(InvalidInputError, match="fitted with noise, found one without"):
        model.predict_interval(X, noise=0.1)
    np.testing.assert_array_equal(as_variances(0.1, 2), [0.1, 0.1])


def test_a_stream_knows_the_noise_of_the_model_and_of_its_rows():
    X, y, v = data(90)
    model = quick().fit(X[:60], y[:60], noise=v[:60])
    stream = Online(model, coverage=0.8)
    quiet, loud = (np.ptp(stream.predict_interval(X[60:], noise=w), axis=1) for w in (0.01, 0.49))
    assert (loud > 2 * quiet).all()
    np.testing.assert_array_equal(
        stream.predict_interval(X[60:]), model.predict_interval(X[60:], 0.8)
    )
    assert stream.track(X[60:], y[60:], noise=v[60:]).shape == (30, 2)


def test_noise_goes_with_as_many_columns_as_the_network_takes():
    """The variance was a column more, and 45 columns with noise were refused."""
    rng = np.random.default_rng(0)
    X = rng.normal(size=(40, 45))
    y = X[:, 0] + 0.1 * rng.normal(size=40)
    model = SharpGPRegressor(effort="low", random_state=0).fit(X, y, noise=0.01)
    assert "prior" not in [one.name for one in model.base_]
    assert np.isfinite(model.predict_interval(X, 0.8, noise=0.5)).all()


def test_a_base_that_cannot_use_noise_is_refused_by_name():
    X, y, v = data(40)
    with pytest.raises(
        InvalidInputError, match="noise: expected bases that use it, found 'extra_tr"
    ):
        SharpGPRegressor(base=["rbf", "extra_trees"]).fit(X, y, noise=v)
