"""The network recalibrator: monotone by construction, unit-free, reproducible."""

import numpy as np
import pytest
import torch

from sharpgp import Kuleshov22, SharpGPRegressor
from sharpgp.exceptions import InvalidInputError
from sharpgp.gp.training import train
from sharpgp.metrics import pinball_loss
from sharpgp_benchmarks.methods.kuleshov22 import BASE_LEVELS, Network
from tolerances import same_optimum

LEVELS = torch.linspace(0.02, 0.98, 49, dtype=torch.float64)


def skewed(n, seed, scale=1.0, shift=0.0):
    """A target with skewed, heteroscedastic noise, which no Gaussian predictor describes."""
    rng = np.random.default_rng(seed)
    X = rng.uniform(-3, 3, (n, 1))
    y = np.sin(X[:, 0]) + 0.2 * (1 + np.tanh(X[:, 0])) * (rng.exponential(size=n) - 1)
    return torch.from_numpy(X), torch.from_numpy(scale * y + shift)


@pytest.fixture(scope="module")
def base():
    X, y = skewed(80, 0)
    return train(X, y)[0]


@pytest.fixture(scope="module")
def calibrated(base):
    return Kuleshov22(random_state=0).fit(base, *skewed(150, 1))


def random_network(seed):
    generator = torch.Generator().manual_seed(seed)
    weights = Network.fresh(6, generator).weights
    return Network(
        tuple(3 * torch.randn(w.shape, generator=generator, dtype=w.dtype) for w in weights)
    )


@pytest.mark.parametrize("seed", range(5))
def test_every_network_increases_in_the_level(seed):
    features = torch.randn(20, len(BASE_LEVELS), dtype=torch.float64) * 3
    u = torch.linspace(-6, 6, 301, dtype=torch.float64)[:, None]
    assert (random_network(seed).scores(features, u).diff(dim=0) > 0).all()


def test_scores_at_common_and_at_own_levels_agree():
    features = torch.randn(7, len(BASE_LEVELS), dtype=torch.float64)
    u = torch.linspace(-2, 2, 5, dtype=torch.float64)[:, None]
    network = random_network(0)
    expected = network.scores(features, u)
    torch.testing.assert_close(network.scores(features, u.expand(5, 7).contiguous()), expected)


@pytest.mark.slow
def test_an_untrained_network_gives_the_base_quantiles(base):
    X, y = skewed(30, 1)
    untrained = Kuleshov22(random_state=0, learning_rate=0.0).fit(base, X, y)
    sigma = base.sigma(base.theta_R[None], X)
    expected = base.mean(X) + torch.special.ndtri(LEVELS[5:-5])[:, None] * sigma
    torch.testing.assert_close(untrained.quantiles(X, LEVELS[5:-5]), expected)
    lower, upper = untrained.band(X, 0.9)
    torch.testing.assert_close(upper - lower, 2 * 1.6448536269514722 * sigma[0])


def test_shapes_order_and_distribution(calibrated):
    X, _ = skewed(12, 2)
    quantiles = calibrated.quantiles(X, LEVELS)
    assert quantiles.shape == (49, 12)
    assert (quantiles.diff(dim=0) > 0).all()
    assert calibrated.n_cal == 150
    assert calibrated.predict_interval(X, [0.5, 0.9]).shape == (12, 2, 2)
    dist = calibrated.predict_dist(X)
    torch.testing.assert_close(dist.cdf(dist.quantile(0.3)), torch.full((12,), 0.3).double())


def test_band_is_symmetric_and_holds_the_predicted_mass(calibrated):
    X, _ = skewed(12, 2)
    lower, upper = calibrated.band(X, 0.8)
    torch.testing.assert_close((lower + upper) / 2, calibrated.posterior.mean(X))
    fine = torch.linspace(1e-4, 1 - 1e-4, 20001, dtype=torch.float64)
    table = calibrated.quantiles(X, fine)
    mass = ((table >= lower) & (table <= upper)).double().mean(0)
    torch.testing.assert_close(mass, torch.full((12,), 0.8).double(), atol=5e-4, rtol=0)


def test_training_lowers_the_check_score_on_new_data(base):
    calibrated = Kuleshov22(random_state=0).fit(base, *skewed(400, 1))
    X, y = skewed(2000, 3)
    sigma = base.sigma(base.theta_R[None], X)
    plain = base.mean(X) + torch.special.ndtri(LEVELS)[:, None] * sigma
    trained = calibrated.quantiles(X, LEVELS)
    assert pinball_loss(y, trained.mT, LEVELS) < 0.97 * pinball_loss(y, plain.mT, LEVELS)


def test_same_seed_same_answer_and_the_global_generator_is_untouched(base):
    data = skewed(60, 1)
    X, _ = skewed(9, 2)
    state = torch.random.get_rng_state()
    first, again, other = (
        Kuleshov22(random_state=seed, epochs=30).fit(base, *data).quantiles(X, LEVELS)
        for seed in (0, 0, 1)
    )
    assert torch.equal(first, again)
    assert not torch.equal(first, other)
    assert torch.equal(torch.random.get_rng_state(), state)


@pytest.mark.parametrize("max_points", [pytest.param(500, marks=pytest.mark.slow), 40])
def test_order_of_the_calibration_points_does_not_matter(base, max_points):
    X_cal, y_cal = skewed(90, 1)
    order = torch.randperm(90, generator=torch.Generator().manual_seed(0))
    X, _ = skewed(9, 2)
    method = Kuleshov22(random_state=0, max_points=max_points)
    first = method.fit(base, X_cal, y_cal)
    second = method.fit(base, X_cal[order], y_cal[order])
    assert first.n_cal == second.n_cal == min(90, max_points)
    torch.testing.assert_close(
        first.quantiles(X, LEVELS), second.quantiles(X, LEVELS), rtol=0, atol=1e-9
    )


def test_shift_and_scale_of_the_target_carry_over():
    X, _ = skewed(9, 2)
    plain, moved = (
        Kuleshov22(random_state=0)
        .fit(train(*skewed(60, 0, *units))[0], *skewed(60, 1, *units))
        .quantiles(X, LEVELS)
        for units in [(1.0, 0.0), (1e4, 5e5)]
    )
    close = same_optimum(60) * float(plain.diff(dim=0).sum(0).max()) / 4  # of about four deviations
    torch.testing.assert_close((moved - 5e5) / 1e4, plain, rtol=0, atol=close)


def test_pretraining_gives_a_new_method_that_starts_elsewhere(base):
    other = train(*skewed(50, 7, 100.0, -3.0))[0]
    method = Kuleshov22(random_state=0, epochs=1, learning_rate=1e-12)
    pretrained = Kuleshov22(random_state=0, epochs=1).pretrained_on(
        other, *skewed(80, 8, 100.0, -3.0), epochs=100
    )
    assert pretrained.epochs == 1
    assert method.start is None
    assert pretrained.start is not None
    X, _ = skewed(9, 2)
    X_cal, y_cal = skewed(30, 1)
    near_base = method.fit(base, X_cal, y_cal).quantiles(X, LEVELS[3:-3])
    moved = pretrained.fit(base, X_cal, y_cal).quantiles(X, LEVELS[3:-3])
    assert (near_base - moved).abs().max() > 0.01


def test_fits_inside_no_grad_and_answers_with_gradients(base):
    with torch.no_grad():
        calibrated = Kuleshov22(random_state=0, epochs=5).fit(base, *skewed(30, 1))
    X = skewed(4, 2)[0].requires_grad_()
    calibrated.quantiles(X, LEVELS[20:22]).sum().backward()
    assert torch.isfinite(X.grad).all()
    assert (X.grad != 0).all()


def test_few_points_and_ties(base):
    X, _ = skewed(5, 2)
    X_cal = torch.zeros(3, 1, dtype=torch.float64)
    few = Kuleshov22(random_state=0).fit(base, X_cal, X_cal[:, 0])
    assert torch.isfinite(few.predict_quantiles(X, [0.3, 0.5, 0.7])).all()
    with pytest.warns(UserWarning, match="calibration points"):
        assert torch.isfinite(few.predict_interval(X, 0.95)).all()


def test_impossible_settings_are_refused():
    with pytest.raises(
        InvalidInputError, match="epochs: expected a whole number of at least 1, found 0"
    ):
        Kuleshov22(epochs=0)


def test_works_through_the_estimator():
    X, y = skewed(120, 0)
    model = SharpGPRegressor(calibration="kuleshov22", random_state=0).fit(X.numpy(), y.numpy())
    assert model.calibrated_.n_cal == 30
    quantiles = model.predict_quantiles(X.numpy(), [0.1, 0.5, 0.9])
    assert (np.diff(quantiles) > 0).all()
    assert np.isfinite(model.calibration_report(X.numpy(), y.numpy())["crps"])
