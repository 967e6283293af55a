"""GPs on a warped target: right in the user's units, and used where noise grows with the level."""

import numpy as np
import pytest
import torch

from sharpgp import Exact, SharpGPRegressor
from sharpgp.gp import train
from sharpgp.gp.exact.posterior import ExactPosterior
from sharpgp.gp.kernels.covariance import Stationary
from sharpgp.gp.kernels.from_gpytorch import FromGPyTorch
from sharpgp.gp.scaling import Affine
from sharpgp.gp.wrappers.target_warp import (
    Warp,
    WarpedPosterior,
    _Objective,
    train_warped,
    warped,
)
from sharpgp.models.gaussian.candidate_scores import scores_of
from sharpgp.models.gaussian.gaussian_model import learn_gaussian
from sharpgp.models.gaussian.spread_choice import Choice, _as_trained, _warped, same_spread
from tolerances import rounding_of_slopes, slopes


def multiplicative(n: int, seed: int) -> tuple[torch.Tensor, torch.Tensor]:
    rng = np.random.default_rng(seed)
    X = rng.uniform(-1, 1, (n, 2))
    y = 5 * np.exp(1.5 * X[:, 0] + X[:, 1] + 0.2 * rng.normal(size=n))
    return torch.from_numpy(X), torch.from_numpy(y)


@pytest.fixture(scope="module")
def posterior():
    X, y = multiplicative(80, seed=0)
    return train_warped(X, y, Stationary("rbf", 2))


def test_units(posterior):
    """Mean and deviation through the inverse map and its slope, by finite differences."""
    X, y = multiplicative(80, seed=0)
    new = multiplicative(10, seed=1)[0]
    torch.testing.assert_close(posterior.y_train, y)
    torch.testing.assert_close(posterior.X_train, X)
    u, theta = posterior.base.mean(new), posterior.theta_R[None]
    back = posterior.warp.back
    torch.testing.assert_close(posterior.mean(new), back(u))
    slope = (back(u + 1e-4) - back(u - 1e-4)) / 2e-4
    torch.testing.assert_close(
        posterior.sigma(theta, new)[0], slope * posterior.base.sigma(theta, new)[0]
    )


def test_leave_one_out_is_conditioning_on_the_others(posterior):
    X, y = posterior.X_train, posterior.y_train
    theta = torch.stack([posterior.theta_R, 2 * posterior.theta_R])
    mean, sigma = posterior.loo(theta)
    for i in (0, 7, 79):
        others = torch.arange(80) != i
        rest = posterior.conditioned_on(X[others], y[others])
        torch.testing.assert_close(mean[0, i], rest.mean(X[i : i + 1])[0], rtol=1e-6, atol=0)
        torch.testing.assert_close(sigma[0, i], rest.sigma(theta, X[i : i + 1])[0, 0])


def test_a_subset_is_warped_alike(posterior):
    part = posterior.subset(12, torch.Generator().manual_seed(0))
    assert part.n_train == 12
    assert part.warp is posterior.warp
    distance = (part.y_train[:, None] - posterior.y_train).abs().amin(1)
    assert (distance < 1e-12 * part.y_train).all()  # there and back through the warp


def overshooting(posterior: WarpedPosterior, by: float) -> WarpedPosterior:
    """The same with means of the warped target that are this much higher."""
    found = WarpedPosterior(posterior.base, posterior.warp)
    found.mean(torch.zeros(1, 2, dtype=torch.float64))  # decides on the range
    vars(found)["base"] = posterior.base.retargeted(posterior.base.y_train + by)
    return found


def test_means_stay_near_the_range_of_the_targets_and_the_spread_says_so(posterior):
    far = torch.full((1, 2), 3.0, dtype=torch.float64)
    top, back, theta = posterior.base.y_train.max(), posterior.warp.back, posterior.theta_R[None]
    limit = max(top + 0.5 * posterior.base.y_train.std(), torch.acosh(2 * torch.cosh(top)))
    assert posterior.mean(far).item() <= back(limit).item() + 1e-9
    held = overshooting(posterior, 100.0)
    assert held.mean(far).item() == pytest.approx(back(limit).item())
    beyond = held.base.mean(far) - limit
    assert beyond > 10
    expected = (held.base.sigma(theta, far)[0] + beyond) * posterior.warp.slope(limit)
    torch.testing.assert_close(held.sigma(theta, far)[0], expected)
    mean, sigma = held.loo(theta)
    assert (mean <= back(limit) * (1 + 1e-9)).all()
    assert (sigma > posterior.loo(theta)[1]).all()


def test_a_warp_next_to_linear_lets_means_go_far(posterior):
    """A target without noise, whose new points lie outside of the range that it was trained on."""
    X = torch.linspace(-1, 1, 30, dtype=torch.float64)[:, None]
    straight = Warp(torch.tensor(0.0).double(), torch.tensor(30.0).double())
    theta = torch.tensor([0.05, 1.0, 1e-8], dtype=torch.float64)
    base = ExactPosterior(X, straight.forward(X[:, 0]), Stationary("rbf", 1), theta)
    new = torch.tensor([[1.5], [-2.0]], dtype=torch.float64)
    torch.testing.assert_close(
        WarpedPosterior(base, straight).mean(new), new[:, 0], rtol=0, atol=0.02
    )


def test_gradient_of_the_likelihood():
    X, y = multiplicative(30, seed=2)
    Z, t = Affine.standardising(X).forward(X), Affine.standardising(y).forward(y)
    objective = _Objective(Z, t, Stationary("rbf", 2)).evaluate
    v = np.log([0.7, 0.9, 1.3, 0.05, 1.0, 0.4])
    v[-2] = -0.6
    value, gradient = objective(v)
    theta = torch.from_numpy(np.exp(v[:-2]))
    Ky = Stationary("rbf", 2).matrix(theta[None], Z)[0] + theta[-1] * torch.eye(30)
    numeric, error = slopes(lambda u: objective(u)[0], v)
    error += rounding_of_slopes(Ky, abs(value))
    assert (np.abs(gradient - numeric) <= error).all()
    assert error.max() < 1e-4 * np.abs(numeric).max()
    # The density of the data: that of the plain GP, where the warp is as good as linear.
    plain = v.copy()
    plain[-2:] = 0.0, np.log(1e4)
    normal = torch.distributions.MultivariateNormal(torch.zeros(30, dtype=torch.float64), Ky)
    assert objective(plain)[0] == pytest.approx(-normal.log_prob(t).item() / 30, rel=1e-5)


def test_it_is_used_where_noise_grows_with_the_level():
    X, y = multiplicative(120, seed=3)
    gp = train(X, y)[0]
    spread = learn_gaussian(gp, seed=0)
    assert spread.choice.warped
    assert spread.choice.score < 0.9
    even = learn_gaussian(train(X, y.log())[0], seed=0)
    assert not even.choice.warped
    X_cal, y_cal = multiplicative(99, seed=4)
    X_new, y_new = multiplicative(2000, seed=5)
    low, high = Exact().fit(gp, X_cal, y_cal).predict_interval(X_new, 0.9).T
    assert abs(((low <= y_new) & (y_new <= high)).double().mean().item() - 0.9) < 3 * 0.03
    assert (high - low)[y_new > 20].mean() > 4 * (high - low)[y_new < 4].mean()


def test_kernels_of_the_users_own_are_not_warped():
    import gpytorch

    X, y = multiplicative(20, seed=6)
    kernel = FromGPyTorch(gpytorch.kernels.ScaleKernel(gpytorch.kernels.RBFKernel()))
    assert train_warped(X, y, kernel) is None


def test_saving(tmp_path):
    X, y = multiplicative(100, seed=7)
    model = SharpGPRegressor(base="rbf", calibration="loo", random_state=0).fit(X, y)
    assert isinstance(model.posterior_, WarpedPosterior)
    model.save(tmp_path / "model.sgp")
    again = SharpGPRegressor.load(tmp_path / "model.sgp")
    np.testing.assert_array_equal(again.predict_interval(X), model.predict_interval(X))


def test_warp_is_odd_about_its_centre():
    warp = Warp(torch.tensor(2.0).double(), torch.tensor(0.5).double())
    u = torch.linspace(-4, 4, 9, dtype=torch.float64)
    torch.testing.assert_close(warp.back(u) - 2.0, -(warp.back(-u) - 2.0))
    torch.testing.assert_close(warp.forward(warp.back(u)), u)


def falling(n: int) -> tuple[torch.Tensor, torch.Tensor]:
    """Targets below zero whose noise grows with their distance to it."""
    generator = torch.Generator().manual_seed(0)
    X = torch.rand(n, 2, generator=generator, dtype=torch.float64)
    noise = torch.randn(n, generator=generator, dtype=torch.float64)
    log = 1.5 - 2.5 * X[:, 0] ** 2 + 0.5 * torch.sin(6.0 * X[:, 1]) + 0.15 * noise
    return X, -log.exp()


def test_the_search_from_the_median_finds_a_tail_on_either_side():
    X, y = falling(100)
    gp = train(X, y)[0]
    found = warped(gp)
    # The log density of targets without noise's growth: that of the logarithms, with the slopes.
    logs = train(X, (-y).log())[0]
    assert found.log_likelihood() > gp.log_likelihood() + 0.3
    assert found.log_likelihood() > logs.log_likelihood() - float((-y).log().mean()) - 0.02
    # Mirrored targets, mirrored warp.
    mirrored = warped(train(X, -y)[0])
    assert mirrored.log_likelihood() == pytest.approx(found.log_likelihood(), abs=0.01)
    # What is fitted again is warped again.
    plain = _as_trained(gp, Choice())
    choice = _warped(gp, scores_of(plain.residuals, plain.sigma)).choice
    assert choice.warped
    again = same_spread(choice, gp, X[:80], y[:80]).posterior
    assert isinstance(again, WarpedPosterior)
    assert isinstance(again.retrained(X[10:], y[10:]), WarpedPosterior)
