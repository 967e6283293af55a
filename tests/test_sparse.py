"""The sparse posterior against the exact one, brute force and finite differences."""

import numpy as np
import pytest
import torch

from helpers import marked, wavy
from sharpgp import CrossValidated, Kuleshov18, Sharp, SharpGPRegressor, Sparse, Vanilla
from sharpgp.calibration.predictors import base as calibrated
from sharpgp.gp import compute, conditioning, train
from sharpgp.gp.exact.posterior import ExactPosterior
from sharpgp.gp.kernels.covariance import STATIONARY, Stationary
from sharpgp.gp.scaling import Affine
from sharpgp.gp.sparse import inducing
from sharpgp.gp.sparse import training as sparse_training
from sharpgp.gp.sparse.elbo import variational_bound
from sharpgp.gp.sparse.inducing import cluster_centres
from sharpgp.gp.sparse.posterior import SparsePosterior
from sharpgp.gp.sparse.training import train_sparse
from sharpgp.gp.sparse.whitening import JITTER, Data
from sharpgp.gp.sparse.woodbury import sparse_leave_one_out, sparse_variance
from sharpgp.persistence import load, save


def setting(kind: str = "rbf", n: int = 200, d: int = 3, noise: float = 0.01, seed: int = 0):
    """Keyword arguments of both posteriors, and test points."""
    draw = torch.Generator().manual_seed(seed)
    X = 3.0 + 2.0 * torch.randn(n, d, dtype=torch.float64, generator=draw)
    y = X[:, 0].sin() + 0.1 * torch.randn(n, dtype=torch.float64, generator=draw)
    theta = torch.tensor([*[0.8, 0.5, 0.3][:d], 1.3, noise], dtype=torch.float64)
    units = {"x_units": Affine.standardising(X), "y_units": Affine.standardising(y)}
    S = 3.0 + 2.0 * torch.randn(20, d, dtype=torch.float64, generator=draw)
    return (X, y, Stationary(kind, d), theta), units, S


@pytest.mark.parametrize("noise", [1e-3, 1e-2, 1.0])
@pytest.mark.parametrize("kind", sorted(STATIONARY))
def test_all_points_inducing_is_the_exact_gp(kind, noise):
    given, units, S = setting(kind, noise=noise)
    exact = ExactPosterior(*given, **units)
    sparse = SparsePosterior(*given, given[0], **units)
    thetas = torch.stack([given[3], 1.5 * given[3]])
    # The jitter of Kmm is to the noise as what it changes, times the weights of an extrapolation.
    share = max(1e-6, 1e3 * JITTER / noise)
    close = {"rtol": share, "atol": share * float(given[1].std())}
    torch.testing.assert_close(sparse.mean(S), exact.mean(S), **close)
    torch.testing.assert_close(sparse.sigma(thetas, S), exact.sigma(thetas, S), rtol=share, atol=0)
    for ours, expected in zip(sparse.loo(thetas), exact.loo(thetas), strict=True):
        torch.testing.assert_close(ours, expected, **close)
    near = exact.X_train[:9] + 0.01
    for ours, expected in zip(
        sparse.moments(thetas, near), exact.moments(thetas, near), strict=True
    ):
        torch.testing.assert_close(ours, expected, **close)


def test_leave_one_out_is_brute_force():
    given, units, _ = setting()
    X, y, covariance, theta = given
    Z = X[::6] + 0.1
    sparse = SparsePosterior(*given, Z, **units)
    thetas = torch.stack([theta, 1.5 * theta])
    mean, sigma = sparse.loo(thetas)
    close = {"rtol": 1e-6, "atol": 1e-6 * float(y.std())}  # means are zero somewhere
    for i in range(0, len(y), 4):
        rest = torch.arange(len(y)) != i
        for k in range(2):
            other = SparsePosterior(X[rest], y[rest], covariance, thetas[k], Z, **units)
            torch.testing.assert_close(other.mean(X[i : i + 1])[0], mean[k, i], **close)
            found = other.sigma(thetas[k : k + 1], X[i : i + 1])[0, 0]
            torch.testing.assert_close(found, sigma[k, i], rtol=1e-6, atol=0)


def test_bound_is_dense_and_below_the_likelihood():
    given, _, _ = setting(n=40)
    X, y, covariance, theta = given
    Z, y = X[:7], y - y.mean()
    Kmn = covariance.matrix(theta[None], Z, X)[0]
    Q = Kmn.T @ torch.linalg.solve(covariance.matrix(theta[None], Z)[0], Kmn)

    def density(K):
        Ky = K + theta[-1] * torch.eye(len(y), dtype=torch.float64)
        return torch.distributions.MultivariateNormal(torch.zeros_like(y), Ky).log_prob(y)

    expected = density(Q) - (len(y) * theta[-2] - Q.trace()) / (2 * theta[-1])
    found = variational_bound(Data(covariance, X, y), theta[None], Z)[0]
    torch.testing.assert_close(found, expected, rtol=1e-6, atol=0)
    assert found < density(covariance.matrix(theta[None], X)[0])


@pytest.mark.parametrize("kind", marked(["rbf", "matern32"], slow={"matern32"}))
@pytest.mark.parametrize("entries", [16, 2**20])
def test_gradients_are_finite_differences_in_blocks_of_any_size(kind, entries, monkeypatch):
    monkeypatch.setattr(compute, "THREAD_ENTRIES", entries)
    (X, y, covariance, theta), _, S = setting(kind, n=10, noise=0.1)
    data = Data(covariance, X, y)
    thetas = torch.stack([theta, 1.5 * theta]).requires_grad_()
    Z, S = (X[:4] + 0.05).requires_grad_(), S[:3].requires_grad_()

    def variance(theta, Z, S):
        return sparse_variance(data, theta, Z, S, covariance.diag(theta, S) + theta[:, -1:])

    def loo(theta, Z):
        return sparse_leave_one_out(data, theta, Z, covariance.diag(theta, X))

    assert torch.autograd.gradcheck(variance, (thetas, Z, S))
    assert torch.autograd.gradcheck(loo, (thetas, Z))
    assert torch.autograd.gradcheck(lambda t, Z: variational_bound(data, t, Z), (thetas, Z))


def test_known_factors_give_the_same_sigma_and_gradients_of_inputs(monkeypatch):
    given, units, S = setting()
    sparse = SparsePosterior(*given, given[0][::9], **units)
    thetas = torch.stack([given[3] * s for s in (0.5, 1.0, 2.0)])
    whole = sparse.mean(S), sparse.sigma(thetas, S)
    torch.testing.assert_close(sparse.sigma(thetas.requires_grad_(), S).detach(), whole[1])
    monkeypatch.setattr(compute, "THREAD_ENTRIES", 60)
    blocks = SparsePosterior(*given, given[0][::9], **units)
    torch.testing.assert_close(blocks.mean(S), whole[0])
    torch.testing.assert_close(blocks.sigma(thetas.detach(), S), whole[1])
    S = S[:3].requires_grad_()
    assert torch.autograd.gradcheck(sparse.mean, (S,))
    assert torch.autograd.gradcheck(lambda a: sparse.sigma(given[3][None], a), (S,))


def test_training_comes_close_to_the_exact_gp():
    X, y = map(torch.from_numpy, wavy(400))
    S, truth = map(torch.from_numpy, wavy(200, seed=1))
    exact, likelihood = train(X, y)
    sparse, bound = train_sparse(X, y, n_inducing=40)
    assert bound.status == "converged"
    assert likelihood.log_likelihood - 0.01 < bound.log_likelihood < likelihood.log_likelihood
    error = [float((gp.mean(S) - truth).square().mean().sqrt()) for gp in (exact, sparse)]
    assert error[1] < 1.02 * error[0]
    ratio = sparse.sigma(sparse.theta_R[None], S) / exact.sigma(exact.theta_R[None], S)
    assert (ratio.log().abs() < 0.1).all()


@pytest.mark.slow
def test_few_inducing_inputs_do_not_make_noise_of_everything():
    rng = np.random.default_rng(0)
    X = rng.uniform(-1, 1, (600, 8))
    y = np.sin(3 * X[:, 0]) * X[:, 1] + X[:, 2] ** 2 + np.cos(3 * X[:, 3] + X[:, 4] * X[:, 5])
    y += 0.1 * rng.normal(size=len(y))
    posterior, _ = train_sparse(*map(torch.from_numpy, (X, y)), n_inducing=20)
    missed = posterior.mean(posterior.X_train) - posterior.y_train
    assert float(missed.std()) < 0.6 * y.std()  # a GP that calls everything noise misses all


def test_cluster_centres_spend_nothing_on_features_that_do_not_matter():
    draw = torch.Generator().manual_seed(0)
    X = torch.rand(500, 2, dtype=torch.float64, generator=draw)
    Z = cluster_centres(X, 10, torch.tensor([1.0, 1e-9]))
    nearest = (X[:, :1] - Z[:, 0]).abs().amin(1)
    assert float(nearest.max()) < 0.1
    few = cluster_centres(X[:3].repeat(5, 1), 10, torch.ones(2))
    assert torch.equal(few.sort(0).values, X[:3].sort(0).values)


def test_cluster_centres_of_many_rows_come_from_a_part_of_them(monkeypatch):
    monkeypatch.setattr(inducing, "_ROWS_PER_CENTRE", 20)
    X = torch.linspace(0, 1, 2000, dtype=torch.float64)[:, None]
    Z = cluster_centres(X, 8, torch.ones(1))
    assert Z.shape == (8, 1)
    assert float((X - Z[:, 0]).abs().amin(1).max()) < 0.25


def test_saved_and_loaded(tmp_path):
    X, y = map(torch.from_numpy, wavy(60))
    posterior, _ = train_sparse(X, y, n_inducing=12)
    calibrated = Kuleshov18().fit(posterior, X[::2] + 0.01, y[::2])
    save(calibrated, tmp_path / "a.sgp")
    again = load(tmp_path / "a.sgp")
    assert again.posterior.n_inducing == 12
    assert torch.equal(again.predict_interval(X), calibrated.predict_interval(X))
    for ours, expected in zip(
        again.posterior.loo(2 * posterior.theta_R[None]),
        posterior.loo(2 * posterior.theta_R[None]),
        strict=True,
    ):
        assert torch.equal(ours, expected)


# ------------------------------------------------------------------ moved inducing inputs


def uneven(n: int, seed: int) -> tuple[torch.Tensor, torch.Tensor]:
    """A flat function whose noise is ten times as large on one side."""
    draw = torch.Generator().manual_seed(seed)
    X = 4.0 * torch.rand(n, 1, dtype=torch.float64, generator=draw) - 2.0
    noise = torch.where(X[:, 0] > 0, 1.0, 0.1)
    return X, noise * torch.randn(n, dtype=torch.float64, generator=draw)


# ------------------------------------------------------------------ many rows


@pytest.mark.parametrize("method", [Kuleshov18(), Sharp(levels=5), Vanilla()])
def test_predictions_in_blocks_are_the_same(method, gp, monkeypatch):
    X, y = map(torch.from_numpy, wavy(39, seed=1))
    predictor = method.fit(gp, X, y)
    asked = (
        lambda: predictor.predict_interval(X, [0.5, 0.8], symmetric=True),
        lambda: predictor.predict_interval(X, 0.8, symmetric=False),
        lambda: predictor.predict_quantiles(X, [0.2, 0.5, 0.9]),
        lambda: predictor.predict_std(X),
    )
    whole = [ask() for ask in asked]
    torch.testing.assert_close(whole[-1], predictor.predict_dist(X).std)
    rows = []
    real = type(predictor).quantiles
    monkeypatch.setattr(
        type(predictor),
        "quantiles",
        lambda self, X, delta: rows.append(len(X)) or real(self, X, delta),
    )
    monkeypatch.setattr(calibrated, "ROWS_PER_BLOCK", 10)
    for ask, expected in zip(asked, whole, strict=True):
        torch.testing.assert_close(ask(), expected)
    assert max(rows) == 10


# ------------------------------------------------------------------ in the estimator


@pytest.mark.parametrize("calibration", marked(["exact", "cv"], slow={"cv"}))
def test_estimator(calibration, caplog):
    X, y = wavy(120)
    method = CrossValidated(folds=2) if calibration == "cv" else calibration
    model = SharpGPRegressor(
        base="rbf", calibration=method, approximation=Sparse(30), random_state=0, verbose=1
    )
    with caplog.at_level("INFO", logger="sharpgp"):
        model.fit(X, y)
    assert "30 inducing" in caplog.text
    assert model.inducing_ == model.posterior_.n_inducing == 30
    X_test, y_test = wavy(400, seed=1)
    lower, upper = model.predict_interval(X_test, 0.9).T
    assert 0.8 < ((lower <= y_test) & (y_test <= upper)).mean() < 0.99
    assert SharpGPRegressor(calibration="vanilla").fit(X, y).inducing_ is None


def test_estimator_follows_the_rule(monkeypatch):
    """A method that searches asks for a sparse GP beyond its own number of rows."""
    monkeypatch.setitem(conditioning.SEARCHED_ROWS, "cpu", 50)
    monkeypatch.setattr(conditioning, "INDUCING", 20)
    X, y = wavy(70)
    assert SharpGPRegressor(calibration="vanilla").fit(X[:50], y[:50]).inducing_ is None
    assert SharpGPRegressor(calibration="vanilla").fit(X, y).inducing_ == 20


@pytest.mark.slow
def test_large_sets_are_trained_in_batches(monkeypatch):
    monkeypatch.setitem(sparse_training._MOST_FULL_BATCH, "cpu", 300)
    monkeypatch.setitem(sparse_training._BATCH_ROWS, "cpu", 150)
    seen = []
    real = sparse_training.maximise_bound

    def spy(data, *args, **settings):
        seen.append((len(data.y), settings["most"]))
        return real(data, *args, **settings)

    monkeypatch.setattr(sparse_training, "maximise_bound", spy)
    X, y = map(torch.from_numpy, wavy(600))
    posterior, _ = train_sparse(X, y, n_inducing=30)
    assert seen == [(150, 40)] * 4 + [(600, 20)]
    S, truth = map(torch.from_numpy, wavy(200, seed=1))
    assert float((posterior.mean(S) - truth).square().mean().sqrt()) < 0.115  # the noise is 0.1
    seen.clear()
    posterior.retrained(X, y, start="warm")
    assert seen == [(150, 12)] * 4 + [(600, 6)]  # fewer where a fit goes on from another


# ------------------------------------------------------------------ devices


def test_auto_takes_a_gpu_for_many_rows_only(monkeypatch):
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    assert compute.choose_device("auto", 1999).type == "cpu"
    assert compute.choose_device("auto", 2000).type == "cuda"
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    assert compute.choose_device("auto", 10**6).type == "cpu"
