"""The fully Bayesian GP: exact mixture quantiles, and a sampler that finds the truth."""

import sys

import gpytorch
import numpy as np
import pytest
import torch
from scipy.optimize import brentq
from scipy.stats import norm

from helpers import FakePosterior
from sharpgp import FullyBayesian, SharpGPRegressor
from sharpgp.calibration.recalibrator import chosen_recalibrator
from sharpgp.exceptions import InvalidInputError, MissingExtraError
from sharpgp.gp import compute
from sharpgp.gp.kernels.covariance import STATIONARY, Stationary
from sharpgp.gp.training import train
from sharpgp_benchmarks.methods.fully_bayesian import MixturePredictor, mixture_quantiles
from sharpgp_benchmarks.methods.nuts import _correlation, _sampler

LEVELS = torch.from_numpy(np.array([1e-9, 1e-3, 0.05, 0.3, 0.5, 0.7, 0.95, 0.999, 1 - 1e-9]))
TINY = {"warmup": 8, "samples": 6, "max_tree_depth": 3, "random_state": 0}


def smooth(n=40, seed=0, noise=0.2):
    rng = np.random.default_rng(seed)
    X = rng.uniform(-3, 3, (n, 1))
    return torch.from_numpy(X), torch.from_numpy(np.sin(X[:, 0]) + noise * rng.normal(size=n))


def mixture_root(mu, sigma, level):
    """Reference: a bracketing root finder on the smaller tail of one mixture."""
    if level > 0.5:
        return -mixture_root(-mu, sigma, 1 - level)
    own = norm.ppf(level, mu, sigma)
    if np.ptp(own) == 0:
        return own[0]

    def excess(x):
        return norm.cdf(x, mu, sigma).mean() - level

    return brentq(excess, own.min(), own.max(), xtol=1e-14, rtol=1e-14, maxiter=500)


@pytest.fixture(scope="module")
def posterior():
    return train(*smooth())[0]


@pytest.fixture(scope="module")
def by_hand(posterior):
    """A mixture over three chosen hyperparameters; no sampler."""
    factors = torch.tensor([[1.0, 1.0, 1.0], [2.0, 0.5, 3.0], [0.5, 2.0, 0.5]]).double()
    return MixturePredictor(posterior, posterior, posterior.theta_R * factors)


@pytest.mark.parametrize("seed", range(4))
def test_mixture_quantiles_agree_with_brentq(seed):
    rng = np.random.default_rng(seed)
    mu = rng.normal(size=(5, 6)) * [0.1, 1, 10, 1, 1, 1]
    sigma = np.exp(rng.normal(size=(5, 6)) * [1, 1, 1, 0.1, 2, 3])
    found = mixture_quantiles(torch.from_numpy(mu), torch.from_numpy(sigma), LEVELS)
    for k, level in enumerate(LEVELS.tolist()):
        for t in range(mu.shape[1]):
            expected = mixture_root(mu[:, t], sigma[:, t], level)
            assert found[k, t] == pytest.approx(expected, rel=1e-10, abs=1e-10)


def test_one_component_is_gaussian_and_a_large_offset_costs_nothing():
    mu = torch.full((1, 1), 1e8).double()
    found = mixture_quantiles(mu, torch.full_like(mu, 2.0), LEVELS) - 1e8
    expected = 2 * torch.special.ndtri(LEVELS)[:, None]
    torch.testing.assert_close(found, expected, rtol=0, atol=1e-6)


def test_two_narrow_components_far_apart():
    mu = torch.tensor([[-1e3], [1e3]]).double()
    sigma = torch.full_like(mu, 1e-3)
    levels = torch.tensor([0.25, 0.5, 0.75]).double()
    low, middle, high = mixture_quantiles(mu, sigma, levels)[:, 0].tolist()
    assert low == pytest.approx(-1e3, abs=1e-9)
    assert -1e3 < middle < 1e3
    assert high == pytest.approx(1e3, abs=1e-9)


def test_mixture_quantiles_have_the_right_gradient():
    mu = torch.tensor([[0.0], [1.0]], dtype=torch.float64, requires_grad=True)
    sigma = torch.tensor([[1.0], [0.5]], dtype=torch.float64, requires_grad=True)
    levels = torch.tensor([0.1, 0.8], dtype=torch.float64)
    assert torch.autograd.gradcheck(lambda m, s: mixture_quantiles(m, s, levels), (mu, sigma))


def test_components_are_those_of_the_gp(by_hand, posterior):
    X, _ = smooth(7, seed=1)
    mu, sigma = by_hand.components(X)
    torch.testing.assert_close(mu[0], posterior.mean(X))
    torch.testing.assert_close(sigma, posterior.sigma(by_hand.theta, X))
    torch.testing.assert_close(by_hand.predict_mean(X), mu.mean(0))


def test_blocks_give_the_same_answer(by_hand, posterior, monkeypatch):
    X, _ = smooth(7, seed=1)
    expected = by_hand.quantiles(X, LEVELS)
    monkeypatch.setitem(compute.BLOCK_ENTRIES, "cpu", 400)
    blocked = MixturePredictor(posterior, posterior, by_hand.theta)
    torch.testing.assert_close(blocked.quantiles(X, LEVELS), expected)
    torch.testing.assert_close(blocked.predict_mean(X), by_hand.predict_mean(X))


def test_band_holds_exactly_the_mass_it_should(by_hand):
    X, _ = smooth(7, seed=1)
    mu, sigma = by_hand.components(X)
    for coverage in (0.5, 0.95):
        lower, upper = by_hand.band(X, coverage)
        torch.testing.assert_close((lower + upper) / 2, mu.mean(0))
        mass = torch.special.ndtr((upper - mu) / sigma) - torch.special.ndtr((lower - mu) / sigma)
        torch.testing.assert_close(mass.mean(0), torch.full((7,), coverage).double())


def test_interface(by_hand):
    X, _ = smooth(7, seed=1)
    assert by_hand.n_cal is None
    assert by_hand.predict_quantiles(X, [0.5, 0.001]).shape == (7, 2)
    assert by_hand.predict_interval(X, [0.5, 0.9], symmetric=False).shape == (7, 2, 2)
    dist = by_hand.predict_dist(X)
    torch.testing.assert_close(dist.mean, by_hand.predict_mean(X), rtol=0, atol=1e-4)
    assert (by_hand.quantiles(X, LEVELS).diff(dim=0) > 0).all()


@pytest.mark.slow
@pytest.mark.parametrize("kind", STATIONARY)
def test_the_sampler_uses_the_same_kernels(kind):
    enable_x64, jax, _ = _sampler()
    X = torch.tensor([[0.0], [1e-3], [0.4], [3.0]], dtype=torch.float64)
    expected = Stationary(kind, 1).matrix(torch.ones(1, 3).double(), X)[0]
    with enable_x64(True):
        squared = jax.numpy.asarray((X - X.mT).square().numpy())
        found = np.array(_correlation(squared, STATIONARY[kind]))
        slope = np.array(jax.grad(lambda s: _correlation(s, STATIONARY[kind]).sum())(squared))
    np.testing.assert_allclose(found, expected, atol=1e-11)
    assert np.isfinite(slope).all()


@pytest.mark.slow
def test_the_posterior_of_the_noise_covers_the_truth():
    theta = torch.tensor([[1.0, 1.0, 0.09]], dtype=torch.float64)
    rng = np.random.default_rng(0)
    X = torch.from_numpy(np.sort(rng.uniform(-5, 5, (60, 1)), axis=0))
    K = Stationary("rbf", 1).matrix(theta, X)[0] + 0.09 * torch.eye(60)
    y = torch.linalg.cholesky(K) @ torch.from_numpy(rng.normal(size=60))
    posterior, _ = train(X, y)
    calibrated = FullyBayesian(warmup=60, samples=60, random_state=0).fit(posterior, None, None)
    noise = calibrated.theta[:, -1] * calibrated.gp.y_units.scale**2
    low, high = torch.quantile(noise, torch.tensor([0.025, 0.975]).double())
    assert low < 0.09 < high
    assert high / low < 6  # the prior alone spans a factor of 2500
    lengthscale = calibrated.gp.x_units.scale / calibrated.theta[:, 0]
    assert lengthscale.quantile(0.025) < 1.0 < lengthscale.quantile(0.975)


@pytest.mark.slow
def test_same_seed_same_answer_and_jax_keeps_its_precision(posterior):
    _, jax, _ = _sampler()
    before = jax.numpy.ones(1).dtype
    method = FullyBayesian(**TINY, chains=2)
    first, again = (method.fit(posterior, None, None).theta for _ in range(2))
    assert torch.equal(first, again)
    assert first.shape == (12, 3)
    assert first.dtype == torch.float64
    assert jax.numpy.ones(1).dtype == before


@pytest.mark.slow
def test_works_through_the_estimator():
    X, y = smooth(40)
    model = SharpGPRegressor(calibration=FullyBayesian(**TINY), base="matern52")
    model.fit(X.numpy(), y.numpy())
    assert model.posterior_.n_train == 40  # nothing is held out
    interval = model.predict_interval(X.numpy(), 0.95)
    assert np.mean((interval[:, 0] <= y.numpy()) & (y.numpy() <= interval[:, 1])) > 0.8
    by_name = chosen_recalibrator("fully_bayesian", 40, 0, guarantee=False)
    assert isinstance(by_name, FullyBayesian)


@pytest.mark.parametrize("package", ["jax", "numpyro.infer.hmc"])
def test_a_missing_extra_is_named(posterior, monkeypatch, package):
    monkeypatch.setitem(sys.modules, package, None)
    with pytest.raises(MissingExtraError, match=r"sharpgp-benchmarks\[bayes\]"):
        FullyBayesian(**TINY).fit(posterior, None, None)


def test_other_models_are_refused():
    X, y = smooth(20)
    kernel = gpytorch.kernels.ScaleKernel(gpytorch.kernels.PeriodicKernel())
    with pytest.raises(InvalidInputError, match="expected one of the kernels rbf"):
        FullyBayesian(**TINY).fit(train(X, y, kernel)[0], None, None)
    with pytest.raises(InvalidInputError, match="training data and its own mean, found Fake"):
        FullyBayesian(**TINY).fit(FakePosterior(), None, None)


def test_impossible_settings_are_refused():
    with pytest.raises(
        InvalidInputError, match="samples: expected a whole number of at least 1, found 0"
    ):
        FullyBayesian(samples=0)
