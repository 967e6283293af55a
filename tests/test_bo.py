"""Calibrated bounds as acquisition functions: values, gradients, searches, pending points."""

import warnings

import numpy as np
import pytest
import torch
from botorch.acquisition import UpperConfidenceBound
from botorch.optim import optimize_acqf

from helpers import FakePosterior, fake_data, marked, wavy
from sharpgp import (
    CalibrationWarning,
    Exact,
    Kuleshov18,
    Sharp,
    SharpGPRegressor,
    Vanilla,
)
from sharpgp.bo import CalibratedUpperConfidenceBound, as_botorch
from sharpgp.calibration.methods.sharp.predictor import SharpPredictor
from sharpgp.exceptions import InvalidInputError
from sharpgp.gp.exact.posterior import ExactPosterior
from sharpgp.gp.kernels.covariance import Stationary
from sharpgp.gp.training import train

X_NEW = torch.from_numpy(wavy(12, seed=5)[0])
#: Level of a Gaussian quantile one standard deviation above the mean.
ONE_SIGMA = float(torch.special.ndtr(torch.tensor(1.0).double()))


@pytest.fixture(scope="module")
def data():
    X, y = map(torch.from_numpy, wavy(160))
    return X[:60], y[:60], X[60:], y[60:]


@pytest.fixture(
    scope="module",
    params=marked(["paper", "paper, one level", "kuleshov18", "exact"], slow={"paper, one level"}),
)
def calibrated(request, data):
    X, y, X_cal, y_cal = data
    method = {
        "paper": Sharp(levels=7),
        "paper, one level": Sharp(levels=0.99),
        "kuleshov18": Kuleshov18(),
        "exact": Exact(),
    }[request.param]
    return method.fit(train(X, y)[0], X_cal, y_cal)


# ------------------------------------------------------------------ values


@pytest.mark.parametrize("delta", [0.99, 0.9, 0.3])
def test_value_is_the_calibrated_quantile(calibrated, delta):
    bound = CalibratedUpperConfidenceBound(calibrated, delta)(X_NEW.unsqueeze(1))
    expected = calibrated.predict_quantiles(X_NEW, delta)
    torch.testing.assert_close(bound, expected, rtol=0, atol=1e-8)
    lower = CalibratedUpperConfidenceBound(calibrated, delta, maximize=False)(X_NEW.unsqueeze(1))
    expected = -calibrated.predict_quantiles(X_NEW, 1 - delta)
    torch.testing.assert_close(lower, expected, rtol=0, atol=1e-8)


def test_value_under_the_estimator(data):
    X, y = torch.cat(data[::2]).numpy(), torch.cat(data[1::2]).numpy()
    model = SharpGPRegressor(calibration="kuleshov18", cal_size=99, random_state=0).fit(X, y)
    bound = CalibratedUpperConfidenceBound(model, delta=0.99)(X_NEW.unsqueeze(1))
    np.testing.assert_allclose(bound, model.predict_quantiles(X_NEW.numpy(), 0.99), atol=1e-8)


def test_gaussian_quantile_is_botorchs_bound_up_to_the_noise(data):
    """Vanilla GP, noise taken out: the same numbers as BoTorch's own UCB."""
    theta = torch.tensor([1.0, 0.7, 1.0, 1e-7], dtype=torch.float64)
    gp = ExactPosterior(data[0][:20], data[1][:20], Stationary("rbf", 2), theta)
    delta = float(torch.special.ndtr(torch.tensor(2.0).double()))
    ours = CalibratedUpperConfidenceBound(Vanilla().fit(gp, None, None), delta)
    theirs = UpperConfidenceBound(as_botorch(gp), beta=4.0)
    X = X_NEW.unsqueeze(1)
    torch.testing.assert_close(ours(X), theirs(X), rtol=1e-4, atol=1e-4)


def test_batches_of_any_shape(calibrated):
    bound = CalibratedUpperConfidenceBound(calibrated, 0.9)
    flat = bound(X_NEW.unsqueeze(1))
    assert flat.shape == (12,)
    torch.testing.assert_close(bound(X_NEW.reshape(3, 2, 2, 1, 2)), flat.reshape(3, 2, 2))
    torch.testing.assert_close(bound(X_NEW[:1]), flat[:1])
    assert bound(X_NEW.float().unsqueeze(1)).dtype == torch.float32
    with pytest.raises(AssertionError):
        bound(X_NEW.unsqueeze(0))  # q = 12


def test_levels_that_few_points_do_not_support(data):
    X, y, X_cal, y_cal = data
    few = Kuleshov18().fit(train(X, y)[0], X_cal[:20], y_cal[:20])
    with pytest.warns(CalibrationWarning, match="delta 0.99 needs at least 99 calibration points"):
        bound = CalibratedUpperConfidenceBound(few, 0.99)
    with pytest.warns(CalibrationWarning):
        expected = few.predict_quantiles(X_NEW, 0.99)
    with warnings.catch_warnings():
        warnings.simplefilter("error")  # said once, not at every evaluation
        value = bound(X_NEW.unsqueeze(1))
    torch.testing.assert_close(value, expected, rtol=0, atol=1e-8)
    assert torch.autograd.gradcheck(lambda X: bound(X.unsqueeze(1)), X_NEW[:3].requires_grad_())


# ------------------------------------------------------------------ gradients and searches


def test_gradient(calibrated):
    bound = CalibratedUpperConfidenceBound(calibrated, 0.95)
    X = X_NEW.clone().requires_grad_()
    assert torch.autograd.gradcheck(lambda X: bound(X.unsqueeze(1)), X, rtol=1e-4)


def one_observation(value):
    """A noiseless GP that knows its value at 0."""
    theta = torch.tensor([1.0, 1.0, 1e-10], dtype=torch.float64)
    X, y = torch.zeros(1, 1).double(), torch.full((1,), value).double()
    return ExactPosterior(X, y, Stationary("rbf", 1), theta)


@pytest.mark.parametrize("maximize", [True, False])
def test_search_finds_the_optimum_of_a_known_posterior(maximize):
    """One observation: the bound is a known curve around it."""
    gp = one_observation(1.0 if maximize else -1.0)
    bound = CalibratedUpperConfidenceBound(
        Vanilla().fit(gp, None, None), ONE_SIGMA, maximize=maximize
    )
    # k + sqrt(1 - k^2) is largest, sqrt(2), where k = exp(-x^2/2) is 1/sqrt(2): x^2 = log 2.
    box = torch.tensor([[0.0], [4.0]], dtype=torch.float64)
    best, found = optimize_acqf(bound, box, q=1, num_restarts=3, raw_samples=32)
    assert best.item() == pytest.approx(np.sqrt(np.log(2.0)), abs=1e-3)
    assert found.item() == pytest.approx(np.sqrt(2.0), abs=1e-6)


# ------------------------------------------------------------------ more data


def test_conditioning_is_training_data_from_the_start(calibrated, data):
    """The same theta and beta on a GP that has the new points among its training data."""
    X, y = map(torch.from_numpy, wavy(15, seed=9))
    later = calibrated.condition_on_observations(X, y)
    assert type(later) is type(calibrated)
    gp = calibrated.posterior
    whole = gp.conditioned_on(torch.cat([gp.X_train, X]), torch.cat([gp.y_train, y]))
    torch.testing.assert_close(later.predict_mean(X_NEW), whole.mean(X_NEW))
    level = torch.tensor([0.95], dtype=torch.float64)
    if isinstance(calibrated, SharpPredictor):
        theta, beta = calibrated.curves.theta_at(level), calibrated.curves.beta_at(level)
        expected = whole.mean(X_NEW) + beta * whole.sigma(theta, X_NEW)[0]
        torch.testing.assert_close(later.predict_quantiles(X_NEW, 0.95), expected)
    near = X.unsqueeze(1) + 1e-3
    width = later.predict_quantiles(near[:, 0], 0.95) - later.predict_mean(near[:, 0])
    before = calibrated.predict_quantiles(near[:, 0], 0.95) - calibrated.predict_mean(near[:, 0])
    assert (width < before + 1e-9).all()
    assert calibrated.posterior.n_train == 60


def test_conditioning_keeps_the_scores_of_bands(calibrated):
    """Bands rest on scores of points held out then, not on those that the GP knows by now."""
    later = calibrated.condition_on_observations(calibrated.X_cal, calibrated.y_cal)
    if isinstance(calibrated, SharpPredictor):
        theta = calibrated.curves.theta_at(torch.tensor([0.95], dtype=torch.float64))
        torch.testing.assert_close(
            later.calibration_scores(theta), calibrated.calibration_scores(theta)
        )
    else:
        assert torch.equal(later.scores, calibrated.scores)
    assert torch.equal(later.labelled_data()[1][-len(calibrated.y_cal) :], calibrated.y_cal)
    assert (later.predict_interval(X_NEW, 0.9, symmetric=True).diff(dim=1) > 0).all()


def test_pending_points_shrink_the_bound_around_them(calibrated):
    bound = CalibratedUpperConfidenceBound(calibrated, 0.95)
    before = bound(X_NEW.unsqueeze(1))
    bound.set_X_pending(X_NEW[:3])
    after = bound(X_NEW.unsqueeze(1))
    assert (after[:3] < before[:3]).all()
    torch.testing.assert_close(
        bound._now.predict_mean(X_NEW), calibrated.predict_mean(X_NEW), rtol=1e-5, atol=1e-6
    )
    bound.set_X_pending(None)
    torch.testing.assert_close(bound(X_NEW.unsqueeze(1)), before)


def test_a_batch_is_spread_out():
    """Symmetric about the one observation: two best points, and a batch takes both."""
    bound = CalibratedUpperConfidenceBound(
        Vanilla().fit(one_observation(1.0), None, None), ONE_SIGMA
    )
    box = torch.tensor([[-4.0], [4.0]], dtype=torch.float64)
    batch, _ = optimize_acqf(bound, box, q=2, sequential=True, num_restarts=4, raw_samples=64)
    first, second = sorted(batch[:, 0].tolist())
    assert first < -0.5
    assert second > 0.5


# ------------------------------------------------------------------ as BoTorch's models


def test_botorch_model_is_the_same_gp(data):
    for kernel in ("rbf", "matern52"):
        gp = train(100 * data[0], 10 * data[1] + 50, kernel)[0]
        model = as_botorch(gp)
        found = model.posterior(100 * X_NEW, observation_noise=True)
        torch.testing.assert_close(found.mean[:, 0], gp.mean(100 * X_NEW))
        sigma = gp.sigma(gp.theta_R[None], 100 * X_NEW)[0]
        torch.testing.assert_close(found.variance[:, 0].sqrt(), sigma)


def test_what_is_refused(calibrated):
    with pytest.raises(InvalidInputError, match="model: expected a fitted SharpGPRegressor"):
        CalibratedUpperConfidenceBound(SharpGPRegressor())
    with pytest.raises(InvalidInputError, match="delta: expected numbers in"):
        CalibratedUpperConfidenceBound(calibrated, delta=1.5)
    with pytest.raises(InvalidInputError, match="one number"):
        CalibratedUpperConfidenceBound(calibrated, delta=[0.5, 0.9])
    with pytest.raises(InvalidInputError, match="expected an exact GP with one of the kernels"):
        as_botorch(FakePosterior())
    with pytest.raises(InvalidInputError, match="y: expected 2 values"):
        calibrated.condition_on_observations(X_NEW[:2], [1.0])


def test_fake_posterior_stays_itself():
    X, y = fake_data(120)
    later = Kuleshov18().fit(FakePosterior(), X, y).condition_on_observations([[0.0]], [1.0])
    assert isinstance(later.posterior, FakePosterior)
