"""The exact posterior against a naive dense GP, refits, gpytorch and finite differences."""

import gpytorch
import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from helpers import marked, solve_slowly
from sharpgp.exceptions import InvalidInputError
from sharpgp.gp import compute
from sharpgp.gp.exact.posterior import ExactPosterior
from sharpgp.gp.kernels.covariance import STATIONARY, Stationary
from sharpgp.gp.scaling import Affine
from tolerances import rounding, rounding_of_slopes, slopes


def make(
    kind: str, d: int, noise: float, seed: int, n: int = 25
) -> tuple[ExactPosterior, torch.Tensor]:
    generator = torch.Generator().manual_seed(seed)
    draw = lambda *shape: torch.randn(*shape, dtype=torch.float64, generator=generator)  # noqa: E731
    X, y = 3.0 + 2.0 * draw(n, d), -5.0 + 7.0 * draw(n)
    inverse_lengthscales = torch.exp(0.3 * draw(d)) / d**0.5
    theta = torch.cat([inverse_lengthscales, torch.tensor([1.3, noise], dtype=torch.float64)])
    units = Affine.standardising(X), Affine.standardising(y)
    gp = ExactPosterior(X, y, Stationary(kind, d), theta, x_units=units[0], y_units=units[1])
    return gp, 3.0 + 2.0 * draw(8, d)


def naive(gp: ExactPosterior, theta: torch.Tensor, X: torch.Tensor, rest: np.ndarray | None = None):
    """Mean and standard deviation by a refined dense solution, in user's units."""
    keep = np.arange(gp.n_train) if rest is None else rest
    A, B = gp._X[keep], gp.x_units.forward(X)
    k = gp.covariance.matrix
    Ky = k(theta[None], A)[0].numpy() + float(theta[-1]) * np.eye(len(keep))
    Ks = k(theta[None], A, B)[0].numpy()
    solved = solve_slowly(Ky, np.c_[gp._y[keep].numpy(), Ks])
    prior = float(theta[-2] + theta[-1])
    mean = Ks.T @ solved[:, 0]
    sigma = np.sqrt(prior - (Ks * solved[:, 1:]).sum(0))
    scale, shift = float(gp.y_units.scale), float(gp.y_units.shift)
    return mean * scale + shift, sigma * scale


def covariance_of(gp: ExactPosterior, theta: torch.Tensor) -> torch.Tensor:
    """Of the training targets, noise included."""
    K = gp.covariance.matrix(theta[None], gp._X)[0]
    return K + theta[-1] * torch.eye(gp.n_train, dtype=torch.float64)


@settings(max_examples=25, deadline=None)
@given(
    kind=st.sampled_from(sorted(STATIONARY)),
    d=st.integers(1, 20),
    log_noise=st.floats(-6, 0),
    seed=st.integers(0, 10_000),
)
def test_mean_sigma_and_leave_one_out_match_the_naive_gp(kind, d, log_noise, seed):
    gp, X = make(kind, d, 10.0**log_noise, seed)
    thetas = torch.stack([gp.theta_R, gp.theta_R * 1.5])
    close = max(rounding(covariance_of(gp, theta)) for theta in thetas)
    # Means are sums of terms as large as the weights times the prior: of many targets.
    near = {"rtol": close, "atol": close * gp.n_train * float(gp.y_units.scale)}
    mean, _ = naive(gp, gp.theta_R, X)
    np.testing.assert_allclose(gp.mean(X), mean, **near)
    found = gp.sigma(thetas, X)
    for k in range(2):
        np.testing.assert_allclose(found[k], naive(gp, thetas[k], X)[1], rtol=close)
    loo_mean, loo_sigma = gp.loo(thetas)
    train = gp.x_units.back(gp._X)
    for i in (0, gp.n_train - 1):
        rest = np.flatnonzero(np.arange(gp.n_train) != i)
        for k in range(2):
            mean_i, sigma_i = naive(gp, thetas[k], train[i : i + 1], rest)
            np.testing.assert_allclose(loo_mean[k, i], mean_i[0], **near)
            np.testing.assert_allclose(loo_sigma[k, i], sigma_i[0], rtol=close)


@pytest.mark.parametrize("noise", [1e-6, 1e-3, 1.0])
@pytest.mark.parametrize("d", marked([1, 6, 20], slow={20}))
@pytest.mark.parametrize("kind", sorted(STATIONARY))
def test_gradients_match_finite_differences(kind, d, noise):
    gp, X = make(kind, d, noise, seed=3)
    log_theta = gp.theta_R.log()[None].requires_grad_()
    weights = torch.linspace(0.5, 2.0, 8, dtype=torch.float64)
    loo_weights = torch.linspace(-1.0, 2.0, gp.n_train, dtype=torch.float64)

    def total(u: torch.Tensor) -> torch.Tensor:
        mean, sigma = gp.loo(u.exp())
        return gp.sigma(u.exp(), X) @ weights + (sigma + 0.1 * mean) @ loo_weights

    (analytic,) = torch.autograd.grad(total(log_theta).sum(), log_theta)
    Ky, u = covariance_of(gp, gp.theta_R), log_theta[0].detach().numpy()
    with torch.no_grad():
        numeric, error = slopes(lambda v: total(torch.from_numpy(v)[None]), u)
        mean, sigma = gp.loo(gp.theta_R[None])
        values = float(sigma.sum() + mean.abs().sum() + gp.sigma(gp.theta_R[None], X).sum())
    error += rounding_of_slopes(Ky, values)
    assert (np.abs(analytic[0].numpy() - numeric) <= error).all()
    assert error.max() < 1e-2 * np.abs(numeric).max()  # close enough to tell


def test_agrees_with_gpytorch():
    gp, X = make("matern52", 3, 0.05, seed=1)

    class Model(gpytorch.models.ExactGP):
        def __init__(self) -> None:
            likelihood = gpytorch.likelihoods.GaussianLikelihood().double()
            likelihood.noise = gp.theta_R[-1]
            super().__init__(gp._X, gp._y, likelihood)
            self.mean_module = gpytorch.means.ZeroMean()
            self.covar_module = gp.covariance.as_gpytorch()
            self.covar_module.outputscale = gp.theta_R[-2]
            self.covar_module.base_kernel.lengthscale = 1.0 / gp.theta_R[:-2]

        def forward(self, x: torch.Tensor) -> gpytorch.distributions.MultivariateNormal:
            return gpytorch.distributions.MultivariateNormal(
                self.mean_module(x), self.covar_module(x)
            )

    model = Model().eval()
    with torch.no_grad(), gpytorch.settings.fast_computations(False, False, False):
        prediction = model.likelihood(model(gp.x_units.forward(X)))
    torch.testing.assert_close(gp.mean(X), gp.y_units.back(prediction.mean), rtol=1e-6, atol=1e-6)
    sigma = prediction.variance.sqrt() * gp.y_units.scale
    torch.testing.assert_close(gp.sigma(gp.theta_R[None], X)[0], sigma, rtol=1e-6, atol=0)


def test_inputs_have_gradients_too():
    gp, X = make("rbf", 3, 0.1, seed=2)
    X = X.requires_grad_()
    assert torch.autograd.gradcheck(gp.mean, (X,))
    assert torch.autograd.gradcheck(lambda a: gp.sigma(gp.theta_R[None], a), (X,))


def test_small_blocks_change_nothing(monkeypatch):
    gp, X = make("rbf", 2, 0.1, seed=4)
    thetas = torch.stack([gp.theta_R * s for s in (0.5, 1.0, 2.0)])
    whole = gp.mean(X), gp.sigma(thetas, X)
    monkeypatch.setitem(compute.BLOCK_ENTRIES, "cpu", 60)
    other, _ = make("rbf", 2, 0.1, seed=4)
    torch.testing.assert_close(other.mean(X), whole[0])
    torch.testing.assert_close(other.sigma(thetas, X), whole[1])


def test_subset_conditions_on_fewer_points():
    gp, X = make("rbf", 2, 0.1, seed=5)
    part = gp.subset(10, torch.Generator().manual_seed(0))
    assert part.n_train == 10
    less = 1 - rounding(covariance_of(gp, gp.theta_R))
    assert (part.sigma(gp.theta_R[None], X) >= less * gp.sigma(gp.theta_R[None], X)).all()
    with pytest.raises(InvalidInputError, match="between 1 and 25"):
        gp.subset(26, torch.Generator())


def test_noise_is_part_of_sigma():
    gp, _ = make("rbf", 2, 0.5, seed=6)
    at_training_point = gp.sigma(gp.theta_R[None], gp.x_units.back(gp._X))
    assert (at_training_point >= (0.5**0.5) * gp.y_units.scale).all()


def test_moments_are_mean_and_sigma_noise_included(gp):
    X = gp.X_train[:7] + 0.1
    mean, sigma = gp.moments(gp.theta_R.unsqueeze(0), X)
    torch.testing.assert_close(mean[0], gp.mean(X))
    torch.testing.assert_close(sigma, gp.sigma(gp.theta_R.unsqueeze(0), X))
