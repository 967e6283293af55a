"""Lengthscales of directions: the kernel, the searches, and what keeps the map."""

import numpy as np
import pytest
import torch

from sharpgp import SharpGPRegressor
from sharpgp.gp.dense import log_marginal_likelihood
from sharpgp.gp.direction_search import _slopes, with_directions
from sharpgp.gp.directions import Directions
from sharpgp.gp.exact.likelihood import likelihood_at
from sharpgp.gp.exact.posterior import ExactPosterior
from sharpgp.gp.kernels.by_name import NamedKernel, kernel_of, make_covariance
from sharpgp.gp.kernels.covariance import STATIONARY, Stationary
from sharpgp.gp.kernels.few_lengthscales import FewLengthscales
from sharpgp.gp.local.posterior import LocalPosterior
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


def test_tables_get_few_directions_or_all():
    assert Policy.choose(100, 20).directions == 20
    assert Policy.choose(100, 1).directions is None
    assert Policy.choose(201, 100).directions is None
    assert Policy.choose(200, 100).directions == 7
    assert Policy.choose(100_000, 700).directions == 11
    assert Policy.choose(100, 700, tied_columns=12).directions is None
    assert Policy.choose(100, 15, tied_columns=12).directions == 12
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


# ------------------------------------------------------------------ axes of gradients


def along_sums(n, seed=0, noise=0.05):
    """Of two sums of four features, as angles of a robot's arm add up."""
    rng = np.random.default_rng(seed)
    X = rng.uniform(-1, 1, (n, 4))
    y = np.sin(3 * (X[:, 0] + X[:, 1])) * np.cos(2 * (X[:, 2] - X[:, 3]))
    return torch.from_numpy(X), torch.from_numpy(y + noise * rng.normal(size=n))


@pytest.mark.parametrize("kind", ["rbf", "matern52", "laplace+matern32"])
def test_axes_turn_to_the_gradients(kind):
    X, y = along_sums(150)
    turned, plain = train(X, y, NamedKernel(kind, Directions(4)))[0], train(X, y, kind)[0]
    assert turned.covariance.sharing.are_whole
    assert turned.covariance.n_theta == plain.covariance.n_theta
    along = turned.covariance.sharing.axes
    sums = torch.tensor([[1.0, 1, 0, 0], [0, 0, 1, -1]]).double().mT / 2**0.5
    assert (along[:, :2].mT @ sums).square().sum() > 1.9  # of 2 in all
    X_new, y_new = along_sums(400, seed=1)
    errors = [(gp.mean(X_new) - y_new).square().mean() for gp in (turned, plain)]
    assert errors[0] < 0.6 * errors[1]
    again = turned.retrained(X[:100], y[:100])
    assert again.training.start == turned.training.start


def test_columns_stay_where_turned_axes_are_not_worth_their_angles():
    rng = np.random.default_rng(0)
    X = torch.from_numpy(rng.uniform(-1, 1, (150, 5)))
    y = (3 * X[:, 0]).sin() + X[:, 1] ** 2 + 0.5 * X[:, 2] + torch.from_numpy(rng.normal(size=150))
    for kind in ("rbf", "laplace+matern32"):
        asked, plain = train(X, y, NamedKernel(kind, Directions(5)))[0], train(X, y, kind)[0]
        torch.testing.assert_close(asked.theta_R, plain.theta_R, rtol=0, atol=0)
        assert kernel_of(asked.covariance) == kind  # refits of it do not ask again


def test_a_turned_kernel_is_one_of_turned_points():
    X, _ = along_sums(20)
    axes = torch.linalg.qr(torch.randn(4, 4, generator=torch.Generator().manual_seed(0)).double())[
        0
    ]
    found = Directions(4).learned(X, axes, (0, 1, 2, 3))
    kernel = make_covariance(NamedKernel("laplace+matern32", found), 4)
    plain = make_covariance("laplace+matern32", 4)
    theta = torch.linspace(0.3, 1.4, 11).double()
    at = X @ axes / found.scale[:-1]
    torch.testing.assert_close(kernel.matrix(theta[None], X), plain.matrix(theta[None], at))
    torch.testing.assert_close(kernel.scaled(theta, X), plain.scaled(theta, at))
    torch.testing.assert_close(kernel.diag(theta[None], X), plain.diag(theta[None], at))
    assert not any("shared" in name for name in kernel.names)
    y = X.sin().sum(1)
    slopes = []
    for covariance, points in ((kernel, X), (plain, at)):
        leaf = theta.clone().requires_grad_()
        slopes.append(torch.autograd.grad(likelihood_at(covariance, points)(leaf, y), leaf)[0])
    torch.testing.assert_close(*slopes)


def test_slopes_are_differences_of_the_mean():
    X, y = along_sums(40)
    gp = train(X, y, "laplace+matern32")[0]
    given = gp.covariance, gp.theta_R, gp.X_standardised, gp.y_standardised
    slopes = _slopes(*given[:2], Rows(given[2]), given[3])
    asked, step = gp.X_standardised, 1e-6 * torch.eye(4).double()
    again = ExactPosterior(asked, given[3], gp.covariance, gp.theta_R)
    # Rough parts have a kink at each point: differences to both sides have its mean slope.
    for j in range(4):
        ahead, behind = again.mean(asked + step[j]), again.mean(asked - step[j])
        torch.testing.assert_close(slopes[:, j], (ahead - behind) / 2e-6, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("extra", [{}, {"noise": 0.01}, {"sample_weight": 2.0}])
def test_a_turned_model_survives_a_file_and_an_update(extra, tmp_path):
    X, y = (values.numpy() for values in along_sums(140))
    given = {name: value * (1 + np.arange(100) % 2) for name, value in extra.items()}
    model = SharpGPRegressor(base="laplace+matern32", random_state=0).fit(X[:100], y[:100], **given)
    assert isinstance(model.posterior_.ties, Directions)
    model.save(tmp_path / "model.sharpgp")
    loaded = SharpGPRegressor.load(tmp_path / "model.sharpgp")
    np.testing.assert_array_equal(loaded.predict(X[100:]), model.predict(X[100:]))
    if not extra:
        before = np.abs(model.predict(X[100:]) - y[100:]).mean()
        model.update(X[100:], y[100:])
        assert np.abs(model.predict(X[100:]) - y[100:]).mean() < before


def test_neighbours_are_near_along_the_axes():
    X, y = along_sums(300)
    gp = train(X[:150], y[:150], NamedKernel("rbf", Directions(4)))[0]
    every = LocalPosterior.from_trained(gp, X, y, landmarks=0, neighbours=20)
    at = gp.covariance.scaled(gp.theta_R, every.X_standardised)
    nearest = torch.cdist(at[:5], at).argsort(1)[:, 1:21]
    assert torch.equal(every.others_of(torch.arange(5)).sort(1).values, nearest.sort(1).values)


def test_the_default_of_wide_tables_is_quick_and_covers():
    """A lengthscale for every feature has twice the error, and intervals that cover by chance."""
    X, y = (values.numpy() for values in spectra(460, d=120))
    model = SharpGPRegressor(random_state=0).fit(X[:60], y[:60])
    assert np.std(model.predict(X[60:]) - y[60:]) < 0.05 * y.std()
    assert 0.82 < interval_coverage(y[60:], *model.predict_interval(X[60:], 0.9).T) < 0.98
