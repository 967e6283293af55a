"""Uniform error bounds: boxes, factors and the theorem's inequalities, against slow checks."""

import math

import numpy as np
import pytest
import torch
from scipy.stats import norm

from helpers import FakePosterior, wavy
from sharpgp import Capone22
from sharpgp.exceptions import InvalidInputError
from sharpgp.gp.exact.posterior import ExactPosterior
from sharpgp.gp.kernels.covariance import Stationary
from sharpgp.gp.training import train
from sharpgp_benchmarks.methods.capone22 import BoundingBox, simultaneous_score
from sharpgp_benchmarks.methods.hyperposterior import laplace, prior, standardised
from sharpgp_benchmarks.methods.nuts import sample


def tensor(*values):
    return torch.tensor(values, dtype=torch.float64)


# ------------------------------------------------------------------ factors and boxes


def test_simultaneous_score_bounds_correlated_errors(rng):
    """Simulated: all of 30 errors inside with at least the coverage; exactly if independent."""
    b = float(simultaneous_score(tensor(0.9), 30))
    assert b == pytest.approx(norm.ppf((1 + 0.9 ** (1 / 30)) / 2))
    independent = rng.normal(size=(20_000, 30))
    common = (independent + 2 * rng.normal(size=(20_000, 1))) / math.sqrt(5)
    inside = [(np.abs(z) <= b).all(1).mean() for z in (independent, common)]
    assert inside[0] == pytest.approx(0.9, abs=0.01)
    assert inside[1] > 0.9


def test_simultaneous_score_at_its_ends():
    scores = simultaneous_score(tensor(1e-300, 1e-9, 0.5, 1 - 1e-12), 100)
    assert torch.isfinite(scores).all()
    assert (scores.diff() > 0).all()


def test_boxes_of_samples_hold_their_share(rng):
    theta = torch.from_numpy(np.exp(rng.normal(size=(199, 3)) * [0.1, 1.0, 2.0] + [0, 1, 2]))
    box = BoundingBox.of_samples(theta)
    shares = tensor(0.1, 0.5, 0.9, 0.995)
    lower, upper = box.bounds(shares)
    rounding = 1 + 1e-12  # one sample lies on each box's surface, up to exp(log(theta))
    inside = ((lower[:, None] / rounding <= theta) & (theta <= upper[:, None] * rounding)).all(-1)
    assert inside.sum(-1).tolist() == [20, 100, 180, 199]  # ceil(share * 200)
    assert (upper[1:] >= upper[:-1]).all()
    # Beyond the samples boxes go on growing.
    beyond = box.radius(tensor(0.995, 0.999, 0.99999))
    assert (beyond.diff() > 0).all()


def test_boxes_of_a_gaussian_hold_their_share(rng):
    covariance = np.array([[1.0, 0.8], [0.8, 1.0]])
    box = BoundingBox(tensor(0.0, 0.0), tensor(1.0, 1.0), None)
    log = rng.multivariate_normal([0, 0], covariance, 20_000)
    lower, upper = (bound[0].log().numpy() for bound in box.bounds(tensor(0.9)))
    assert ((lower <= log) & (log <= upper)).all(1).mean() > 0.9


# ------------------------------------------------------------------ hyperposterior


@pytest.fixture(scope="module")
def small():
    X, y = map(torch.from_numpy, wavy(40, noise=0.3))
    return train(X, y)[0]


def test_laplace_agrees_with_brute_force(small):
    """Mode and curvature against a dense grid of the unnormalised log posterior."""
    gp = standardised(small, "test")
    found = laplace(gp)
    location, scale = prior(2)

    def log_posterior(u):
        theta = torch.from_numpy(np.exp(u))[None]
        Ky = gp.covariance.matrix(theta, gp.X_standardised)[0] + theta[0, -1] * torch.eye(40)
        y = gp.y_standardised.numpy()
        _, log_det = np.linalg.slogdet(Ky.numpy())
        fit = -0.5 * y @ np.linalg.solve(Ky.numpy(), y) - 0.5 * log_det
        return fit - 0.5 * (((u - location) / scale) ** 2).sum()

    mode = found.mode.numpy()
    h, best = 0.02, log_posterior(mode)
    for axis in np.eye(4):
        around = [log_posterior(mode + h * step * axis) for step in (-1, 1)]
        assert max(around) < best
    precision = np.empty((4, 4))
    for i, a in enumerate(h * np.eye(4)):
        for j, b in enumerate(h * np.eye(4)):
            corners = [log_posterior(mode + s * a + t * b) for s in (1, -1) for t in (1, -1)]
            precision[i, j] = -np.dot(corners, [1, -1, -1, 1]) / (4 * h * h)
    np.testing.assert_allclose(np.linalg.inv(precision), found.covariance, rtol=0.02, atol=2e-3)


@pytest.mark.slow
def test_laplace_and_samples_agree_roughly(small):
    gp = standardised(small, "test")
    try:
        theta = sample(gp, seed=0, warmup=40, samples=80, chains=1, max_tree_depth=4, name="test")
    except ImportError:
        pytest.skip("needs jax and numpyro")
    drawn, gaussian = BoundingBox.of_samples(theta), laplace(gp)
    assert ((drawn.centre - gaussian.mode).abs() < 1.5 * gaussian.scale).all()
    ratio = drawn.spread / gaussian.scale
    assert (ratio > 0.5).all()
    assert (ratio < 2.0).all()


def test_standardised_is_the_same_gp_in_other_units():
    X, y = map(torch.from_numpy, wavy(30))
    theta = tensor(0.7, 0.4, 2.0, 0.3)
    raw = ExactPosterior(3 * X + 1, 10 * y - 4, Stationary("rbf", 2), theta)
    gp = standardised(raw, "test")
    torch.testing.assert_close(
        gp.sigma(gp.theta_R[None], raw.X_train[:5]), raw.sigma(theta[None], raw.X_train[:5])
    )


# ------------------------------------------------------------------ the bound


@pytest.mark.parametrize("kind", ["rbf", "matern12", "matern52"])
def test_the_theorem_bounds_every_theta_in_the_box(kind, rng):
    """sigma and mean of random members of the box against gamma and the difference of means."""
    X, y = map(torch.from_numpy, wavy(25, noise=0.2))
    theta_R = tensor(1.0, 0.5, 1.0, 0.04)
    gp = standardised(ExactPosterior(X, y, Stationary(kind, 2), theta_R), "test")
    centre = gp.theta_R.log()
    bounds = Capone22(hyperposterior="laplace", scaling="theorem", points=3)._fit(gp, X, y)
    bounds.box = BoundingBox(centre, torch.full_like(centre, 0.15), None)
    new = torch.from_numpy(rng.uniform(-3, 3, (40, 2)))
    lower, upper = (t[0] for t in bounds.box.bounds(tensor(0.9**0.5)))
    b = simultaneous_score(tensor(0.9**0.5), 3)
    half = bounds.bound(new, tensor(0.9))[0]
    for share in torch.from_numpy(rng.uniform(size=(30, 4))):
        theta = lower + share * (upper - lower)
        member = ExactPosterior(X, y, gp.covariance, theta, x_units=gp.x_units, y_units=gp.y_units)
        error = (member.mean(new) - gp.mean(new)).abs() + b * member.sigma(theta[None], new)[0]
        assert (error <= half).all()


def test_practical_bound_by_hand():
    X, y = map(torch.from_numpy, wavy(30))
    posterior = train(X, y)[0]
    bounds = Capone22(hyperposterior="laplace", points=7, scaling="practical").fit(
        posterior, None, None
    )
    lower, upper = bounds.predict_interval(X, 0.9).T
    share = tensor(math.sqrt(0.9))
    top = torch.maximum(bounds.box.bounds(share)[1], bounds.gp.theta_R)
    expected = 2 * simultaneous_score(share, 7) * bounds.gp.sigma(top, X)[0]
    torch.testing.assert_close(upper - lower, expected)


def test_theorem_by_hand():
    X, y = map(torch.from_numpy, wavy(30))
    theorem = Capone22(hyperposterior="laplace", points=7, scaling="theorem")
    bounds = theorem.fit(train(X, y)[0], None, None)
    lower, upper = bounds.predict_interval(X, 0.9).T
    share = tensor(math.sqrt(0.9))
    low, top = (bound[0] for bound in bounds.box.bounds(share))
    low, top = low.minimum(bounds.gp.theta_R), top.maximum(bounds.gp.theta_R)
    gamma = math.sqrt(float(top[0] / low[0] * top[1] / low[1]))
    norm_of_y = math.sqrt(30)  # standardised
    beta_bar = gamma * (float(simultaneous_score(share, 7)) + 2 * norm_of_y / math.sqrt(low[-1]))
    torch.testing.assert_close(upper - lower, 2 * beta_bar * bounds.gp.sigma(top[None], X)[0])


def test_large_data_take_the_laplace_approximation(monkeypatch, small):
    monkeypatch.setattr("sharpgp_benchmarks.methods.capone22.MOST_SAMPLED", 39)
    monkeypatch.setattr("sharpgp_benchmarks.methods.capone22.sample", None)
    assert Capone22().fit(small, None, None).box.radii is None


def test_what_is_refused():
    for wrong, message in (
        ({"hyperposterior": "vi"}, "hyperposterior: expected one of auto, nuts, laplace, found"),
        ({"scaling": 2}, "scaling: expected one of practical, theorem, found 2"),
        ({"points": 0}, "points: expected a whole number of at least 1, found 0"),
    ):
        with pytest.raises(InvalidInputError, match=message):
            Capone22(**wrong)
    with pytest.raises(
        InvalidInputError, match="capone22: expected a GP with its training data and its own"
    ):
        Capone22().fit(FakePosterior(), None, None)
