"""GPs of many features with few lengthscales: the kernel, the search, and what keeps the map."""

import numpy as np
import pytest
import torch

from sharpgp import SharpGPRegressor
from sharpgp.gp.dense import log_marginal_likelihood
from sharpgp.gp.direction_search import with_directions
from sharpgp.gp.directions import Directions
from sharpgp.gp.exact.likelihood import likelihood_at
from sharpgp.gp.kernels.by_name import NamedKernel, kernel_of, make_covariance
from sharpgp.gp.kernels.covariance import STATIONARY, Stationary
from sharpgp.gp.kernels.few_lengthscales import FewLengthscales
from sharpgp.gp.posterior import DataPosterior
from sharpgp.gp.sparse.training import train_sparse
from sharpgp.gp.training import train
from sharpgp.gp.wrappers.target_warp import warped
from sharpgp.metrics import interval_coverage
from sharpgp.models.gaussian.gaussian_model import learn_gaussian
from sharpgp.policy import Policy
from sharpgp.rows import Rows


def spectra(n, d=60, seed=0):
    rng, t = np.random.default_rng(seed), np.linspace(0, 1, d)
    peaks = np.stack([np.exp(-(((t - c) / 0.08) ** 2)) for c in (0.2, 0.4, 0.6, 0.8)])
    amounts = rng.gamma(2, 1, (n, 4))
    X = amounts @ peaks + 0.01 * rng.normal(size=(n, d))
    y = 1.5 * amounts[:, 0] - amounts[:, 2] + 0.05 * rng.normal(size=n)
    return torch.from_numpy(X), torch.from_numpy(y)


def few_of_many(n, d=60, seed=0):
    rng = np.random.default_rng(seed)
    X = rng.uniform(-1, 1, (n, d))
    y = np.sin(3 * X[:, 7 % d]) + 2 * X[:, 31 % d] ** 2 + 0.1 * rng.normal(size=n)
    return torch.from_numpy(X), torch.from_numpy(y)


def directions(Z, r=3, of_axes=(0, 1, 1), seed=0):
    generator = torch.Generator().manual_seed(seed)
    axes = torch.linalg.qr(torch.randn(Z.shape[1], r, generator=generator).double())[0]
    return Directions(2).learned(Z, axes, of_axes)


@pytest.mark.parametrize("kind", STATIONARY)
def test_the_kernel_is_one_of_distances_in_few_directions_and_in_the_rest(kind):
    X, _ = few_of_many(12, d=5)
    found = directions(X)
    theta = torch.tensor([[0.7, 1.3, 0.4, 2.0, 0.1]]).double()
    apart = X[:, None] - X
    along, w = apart @ found.axes, theta[0, [0, 1, 1]] / found.scale[:-1]
    rest = (apart - along @ found.axes.mT) * theta[0, 2] / found.scale[-1]
    distance = (along * w).square().sum(-1) + rest.square().sum(-1)
    at = torch.cat([torch.zeros(1, 1).double(), distance.sqrt().reshape(-1, 1)])
    expected = Stationary(kind, 1).matrix(torch.tensor([[1, 2.0, 0.1]]).double(), at)[0, 0, 1:]
    K = FewLengthscales(kind, 5, found).matrix(theta, X)[0]
    torch.testing.assert_close(K, expected.reshape(12, 12))


@pytest.mark.parametrize("kind", STATIONARY)
def test_gradients_through_the_map_are_those_of_differences(kind):
    X, _ = few_of_many(6, d=5)
    kernel = FewLengthscales(kind, 5, directions(X))
    theta = torch.tensor([[0.7, 1.3, 0.4, 2.0, 0.1]]).double().requires_grad_()
    asked = X[:2].clone().requires_grad_()
    assert torch.autograd.gradcheck(lambda t, x: kernel.matrix(t, x, X[2:]), (theta, asked))


@pytest.mark.parametrize("noisy", [False, True])
@pytest.mark.parametrize("kind", STATIONARY)
def test_training_sees_the_likelihood_and_its_gradient(kind, noisy):
    X, y = few_of_many(20, d=5)
    rows = Rows(X, 0.1 * X[:, 0].abs() if noisy else None)
    covariance = make_covariance(NamedKernel(kind, directions(X)), 5)
    theta = torch.tensor([0.7, 1.3, 0.4, 2.0, 0.1]).double().requires_grad_()
    fast = likelihood_at(covariance, rows)(theta, y)
    Ky = covariance.matrix(theta[None], X) + theta[-1] * torch.eye(20)
    if noisy:
        Ky = Ky + torch.diag(rows.noise)
    slow = log_marginal_likelihood(Ky, y)[0]
    torch.testing.assert_close(fast, slow)
    gradients = [torch.autograd.grad(value, theta)[0] for value in (fast, slow)]
    torch.testing.assert_close(*gradients)


@pytest.mark.parametrize("kind", ["rbf", "matern32"])
def test_the_search_finds_the_features_that_matter(kind):
    X, y = few_of_many(80)
    gp = train(X, y, NamedKernel(kind, Directions(4)))[0]
    chosen = gp.covariance.directions.axes.nonzero()[:, 0].tolist()
    assert {7, 31} <= set(chosen)
    X_new, y_new = few_of_many(200, seed=1)
    gps = gp, train(X, y, kind)[0]
    few, every = ((one.mean(X_new) - y_new).square().mean() for one in gps)
    assert few < 0.6 * every


def test_the_search_takes_components_for_spectra():
    X, y = spectra(60)
    gp = train(X, y, NamedKernel("rbf", Directions(4)))[0]
    axes = gp.covariance.directions.axes
    assert axes.shape == (60, 4)
    assert axes.abs().max() < 0.9
    torch.testing.assert_close(axes.mT @ axes, torch.eye(4).double())


def test_features_of_one_column_are_chosen_together():
    X, y = few_of_many(80, d=40)
    ties = (*range(7), *[7] * 3, *range(8, 38))
    found = with_directions(make_covariance(NamedKernel("rbf", Directions(3, ties)), 40), X, y)
    rows = found.sharing.axes.nonzero()[:, 0].tolist()
    assert {7, 8, 9, 31} <= set(rows)
    assert found.sharing.of_axes[rows.index(7)] == found.sharing.of_axes[rows.index(9)]


def test_the_map_is_learned_from_the_rows_of_a_learning_only():
    X, y = few_of_many(80)
    gp = train(X, y, NamedKernel("rbf", Directions(3)))[0]
    again = gp.retrained(X[:50], y[:50])
    alone = train(X[:50], y[:50], NamedKernel("rbf", Directions(3)), start=gp.training.start)[0]
    torch.testing.assert_close(again.covariance.directions.scale, alone.covariance.sharing.scale)
    # More rows, or other ones, leave it as it is; and so does a warm start.
    axes = gp.covariance.directions.axes
    for other in (gp.extended(X[:5] + 1, y[:5]), gp.at_rows(torch.arange(30)), gp.retargeted(-y)):
        assert other.covariance.directions.axes is axes
    assert gp.retrained(X[:50], y[:50], start="warm").covariance.directions.axes is axes
    assert kernel_of(gp.covariance).ties.are_learned is False


def test_other_parts_of_a_model_share_the_map():
    X, y = few_of_many(80)
    y = (1.5 * y).exp()
    model = learn_gaussian(train(X, y, NamedKernel("rbf", Directions(3)))[0])
    other = warped(train(X, y, NamedKernel("rbf", Directions(3)))[0])
    assert other.ties.n_lengthscales == 4
    refit = other.retrained(X[:60], y[:60])
    assert refit.ties.axes is not other.ties.axes
    assert len(model.posterior.theta_R) == 6
    if model.scale is not None:
        assert len(model.scale.gp.theta_R) == 6


def test_a_sparse_gp_learns_the_map_too():
    X, y = few_of_many(120)
    gp = train_sparse(X, y, NamedKernel("rbf", Directions(3)), n_inducing=20, most=20)[0]
    assert isinstance(gp, DataPosterior)
    assert {7, 31} <= set(gp.covariance.directions.axes.nonzero()[:, 0].tolist())
    assert gp.retrained(X[:90], y[:90], start="warm").covariance.sharing is gp.covariance.sharing


def test_only_wide_tables_get_directions():
    assert Policy.choose(100, 20).directions is None
    assert Policy.choose(201, 100).directions is None
    assert Policy.choose(200, 100).directions == 7
    assert Policy.choose(100_000, 700).directions == 11
    assert Policy.choose(100, 700, tied_columns=12).directions is None
    assert "boosted_trees" not in Policy.choose(100, 700).pool


@pytest.mark.parametrize("calibration", ["cv", "exact", "paper"])
def test_predictions_of_spectra_survive_a_file_and_an_update(calibration, tmp_path):
    X, y = (values.numpy() for values in spectra(140))
    model = SharpGPRegressor(base="rbf", calibration=calibration, random_state=0)
    model.fit(X[:60], y[:60])
    model.save(tmp_path / "model.sharpgp")
    loaded = SharpGPRegressor.load(tmp_path / "model.sharpgp")
    np.testing.assert_array_equal(loaded.predict(X[100:]), model.predict(X[100:]))
    ends = model.predict_interval(X[100:], 0.9)
    np.testing.assert_array_equal(loaded.predict_interval(X[100:], 0.9), ends)
    before = np.abs(model.predict(X[100:]) - y[100:]).mean()
    assert before < 0.15 * y.std()
    model.update(X[60:100], y[60:100])
    assert np.abs(model.predict(X[100:]) - y[100:]).mean() < 1.1 * before


@pytest.mark.parametrize("extra", ["noise", "sample_weight"])
def test_noise_and_weights_go_with_many_features(extra):
    X, y = (values.numpy() for values in few_of_many(60))
    given = {extra: np.where(np.arange(60) % 2, 1.0, 0.5)}
    model = SharpGPRegressor(base="rbf", random_state=0).fit(X, y, **given)
    assert np.isfinite(model.predict(X)).all()
    assert len(model.posterior_.theta_R) == 6


def test_the_default_of_wide_tables_is_quick_and_covers():
    """A lengthscale for every feature has twice the error, and intervals that cover by chance."""
    X, y = (values.numpy() for values in spectra(460, d=120))
    model = SharpGPRegressor(random_state=0).fit(X[:60], y[:60])
    assert np.std(model.predict(X[60:]) - y[60:]) < 0.05 * y.std()
    assert 0.82 < interval_coverage(y[60:], *model.predict_interval(X[60:], 0.9).T) < 0.98
