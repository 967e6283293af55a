"""The prior on lengthscales: its density, its weight, and that refits have the same."""

import gpytorch
import numpy as np
import pytest
import torch
from scipy import stats

from sharpgp import CrossValidated, SharpGPRegressor, persistence
from sharpgp.gp import train
from sharpgp.gp.kernels.covariance import Stationary
from sharpgp.gp.priors import LengthscalePrior, penalty_of
from sharpgp.gp.scaling import Affine
from sharpgp.gp.sparse.training import train_sparse
from sharpgp.gp.training import _Objective
from sharpgp.gp.wrappers.target_warp import _Objective as WarpedObjective
from sharpgp.gp.wrappers.target_warp import train_warped
from sharpgp.models.gaussian.spread_choice import Choice, same_spread
from sharpgp.rows import Rows

EPS = np.finfo(np.float64).eps
FULL = LengthscalePrior(fades=False)


def two_of_many(n: int, d: int, seed: int = 0) -> tuple[torch.Tensor, torch.Tensor]:
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(n, d))
    y = X[:, 0] + 0.5 * X[:, 1] + 0.7 * rng.normal(size=n)
    return torch.from_numpy(X), torch.from_numpy(y)


def test_density_is_that_of_lengthscales_in_ranges():
    """Whatever units training works in, it is log-normal in units of the user's range."""
    rng = np.random.default_rng(0)
    X = torch.from_numpy(rng.normal(size=(30, 3)) * [1.0, 1e5, 1e-4] + [0.0, 7.0, 1e-3])
    units = Affine.standardising(X)
    Z, ranges = units.forward(X), (X.amax(0) - X.amin(0)).numpy()
    lengths = np.exp(rng.normal(size=(2, 3))) * ranges  # in the user's units
    mean = np.sqrt(2) + np.log(3) / 2
    density = stats.norm.logpdf(np.log(lengths / ranges), mean, np.sqrt(3)).sum(1)
    inverse = units.scale / torch.from_numpy(lengths)
    theta = torch.cat([inverse, torch.ones(2, 2, dtype=torch.float64)], 1).log()
    half = LengthscalePrior(fades=False, weight=0.5)
    for prior in (FULL, half):
        penalty = penalty_of(prior, Z)
        found = float(penalty(theta[0]) - penalty(theta[1]))
        assert found == pytest.approx(prior.weight * (density[1] - density[0]), rel=1e-10)


@pytest.mark.parametrize("constant", [0.0, 0.1, 1e9])
def test_a_constant_feature_has_a_finite_prior(constant):
    """0.1 is no constant to rounding once its mean is taken off."""
    X, y = two_of_many(30, 3)
    X[:, 2] = constant
    Z = Affine.standardising(X).forward(X)
    centre = FULL.centre(Z)
    assert torch.isfinite(centre).all()
    assert centre[2] == pytest.approx(-np.sqrt(2) - np.log(3) / 2 - np.log(2))
    posterior, result = train(X, y)
    assert result.status == "converged"
    assert torch.isfinite(posterior.mean(X)).all()


def test_gradient():
    """A quadratic: central differences are off by rounding alone, and so are the objectives'."""
    X, y = two_of_many(25, 4)
    Z, t = Affine.standardising(X).forward(X), Affine.standardising(y).forward(y)
    u = np.random.default_rng(1).normal(size=6)
    penalty, step = penalty_of(FULL, Z), 1e-3
    leaf = torch.tensor(u, requires_grad=True)
    (gradient,) = torch.autograd.grad(penalty(leaf), leaf)
    value = float(penalty(leaf.detach()))
    slopes = [
        float(penalty(torch.from_numpy(u + h)) - penalty(torch.from_numpy(u - h))) / (2 * step)
        for h in step * np.eye(6)
    ]
    np.testing.assert_allclose(gradient, slopes, rtol=0, atol=8 * EPS * value / step)
    assert (gradient[4:] == 0).all()
    # The likelihood's part comes out the same to the last bit with and without the prior.
    warp = np.r_[u, -0.5, -0.7]
    for kind, at, inputs in ((_Objective, u, Rows(Z)), (WarpedObjective, warp, Z)):
        covariance = Stationary("rbf", 4)
        given = inputs, t, covariance
        plain, penalised = kind(*given), kind(*given, FULL)
        (f, g), (fp, gp) = plain.evaluate(at), penalised.evaluate(at)
        atol = 8 * EPS * (abs(f) + abs(fp))
        np.testing.assert_allclose(fp - f, value / 25, rtol=0, atol=atol)
        atol = 8 * EPS * (np.abs(g).max() + np.abs(gp).max())
        np.testing.assert_allclose((gp - g)[:6], gradient / 25, rtol=0, atol=atol)


def test_weight_fades():
    """One point more never changes the weight by more than its share of the way down."""
    weights = [LengthscalePrior().for_size(n, 6).weight for n in range(1, 200)]
    assert weights[:60] == [1.0] * 60
    assert weights[119:] == [0.0] * 80
    assert np.abs(np.diff(weights)).max() == pytest.approx(1 / 60)
    assert FULL.for_size(10**6, 6).weight == 1.0


def test_used_where_points_are_few_and_off_where_they_are_many():
    few, many = two_of_many(60, 10), two_of_many(250, 10)
    assert train(*few)[1].prior_weight == 1.0
    assert "weight=1.0" in repr(train(*few)[1])
    assert train(*few, prior=None)[1].prior_weight == 0.0
    posterior, result = train(*many)
    assert result.prior_weight == 0.0
    assert torch.equal(posterior.theta_R, train(*many, prior=None)[0].theta_R)
    kernel = gpytorch.kernels.ScaleKernel(gpytorch.kernels.RBFKernel())
    assert train(*few, kernel)[1].prior_weight == 0.0


def test_likelihood_of_the_result_is_without_the_prior():
    X, y = two_of_many(40, 5)
    for posterior, result in (train(X, y), train_sparse(X, y, n_inducing=15)):
        expected = posterior.log_likelihood() + posterior.y_units.scale.log().item()
        assert result.log_likelihood == pytest.approx(expected, abs=1e-9)


@pytest.mark.slow
def test_it_keeps_many_features_from_fitting_noise():
    """60 points, 20 features of which two matter: errors and spreads on new points."""
    ratios = []
    for seed in range(3):
        X, y = two_of_many(60, 20, seed)
        new, truth = two_of_many(400, 20, 100 + seed)
        scores = []
        for prior in ("auto", None):
            posterior, _ = train(X, y, prior=prior)
            mean, sigma = posterior.mean(new), posterior.sigma(posterior.theta_R[None], new)[0]
            density = torch.distributions.Normal(mean, sigma).log_prob(truth)
            scores.append(-density.mean().item())
        ratios.append(scores[0] - scores[1])
    assert np.mean(ratios) < -0.2


@pytest.mark.parametrize("fit", [train, lambda X, y, **o: train_sparse(X, y, n_inducing=20, **o)])
def test_refits_have_the_prior_of_the_fit_they_stand_for(fit):
    X, y = two_of_many(60, 2)  # 15 points per hyperparameter: weight 1/2
    full = fit(X, y)[0]
    assert full.training.prior.weight == 0.5
    assert full.retrained(X[:54], y[:54]).training.prior == full.training.prior
    # A warm start goes on to another full fit, of another size.
    assert full.retrained(X[:40], y[:40], start="warm").training.prior.weight == 1.0
    assert full.conditioned_on(X[:9], y[:9]).training.prior == full.training.prior
    never = fit(X, y, prior=None)[0]
    for start in ("same", "warm"):
        assert never.retrained(X[:30], y[:30], start=start).training.prior is None


def test_refits_on_a_warped_target_have_it_too():
    X, y = two_of_many(60, 2)
    full = train(X, y.exp())[0]
    again = same_spread(Choice(warped=True), full, X[:54], y[:54].exp()).posterior
    assert again.base.training.prior == full.training.prior
    strong = LengthscalePrior(deviation=0.05, fades=False)
    kernel = Stationary("rbf", 2)
    held, free = (train_warped(X, y.exp(), kernel, prior=prior) for prior in (strong, None))
    distance = (held.theta_R[:2].log() - strong.centre(held.base.X_standardised)).abs().max()
    assert distance < 0.5 < (free.theta_R.log()[0] - held.theta_R.log()[0]).abs()


def test_cv_uses_it_throughout(monkeypatch):
    """All five learnings have one and the same weight: that for as many rows as each sees."""
    from sharpgp.gp import training

    seen, real = [], training._train_named

    def spy(Z, t, covariance, start, rng, tolerance, prior=None):
        if prior is not None and prior.in_ranges:  # the scale model's is in deviations
            seen.append((len(t), prior.weight))
        return real(Z, t, covariance, start, rng, tolerance, prior)

    monkeypatch.setattr(training, "_train_named", spy)
    X, y = two_of_many(60, 2)
    model = SharpGPRegressor(base="rbf", calibration="cv", random_state=0).fit(X.numpy(), y.numpy())
    assert model.training_.prior_weight == 0.8
    assert set(seen) == {(48, 0.8)}
    assert len(seen) == 10  # along the features, and along the axes of gradients


def test_files(tmp_path):
    X, y = two_of_many(30, 2)
    posterior = train(X, y)[0]
    persistence.save(CrossValidated(folds=3).fit(posterior), tmp_path / "model")
    again = persistence.load(tmp_path / "model").posterior
    assert again.training.prior == posterior.training.prior
