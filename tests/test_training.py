"""Marginal-likelihood training: right optimum, right gradient, failures said aloud."""

from functools import partial

import gpytorch
import numpy as np
import pytest
import torch
from scipy import stats

from sharpgp.exceptions import NumericalError
from sharpgp.gp import train, training
from sharpgp.gp.dense import log_marginal_likelihood
from sharpgp.gp.exact.posterior import ExactPosterior
from sharpgp.gp.kernels import from_gpytorch
from sharpgp.gp.kernels.covariance import Stationary
from sharpgp.gp.optimise import minimise
from sharpgp.gp.priors import LengthscalePrior
from sharpgp.gp.scaling import Affine
from sharpgp.gp.training import _Objective
from sharpgp.rows import Rows
from tolerances import same_optimum, slopes


def simulate(n: int = 60, d: int = 2, seed: int = 0) -> tuple[torch.Tensor, torch.Tensor]:
    rng = np.random.default_rng(seed)
    X = rng.uniform(-2, 2, (n, d))
    y = np.sin(2 * X[:, 0]) + 0.1 * rng.normal(size=n)
    return torch.from_numpy(X), torch.from_numpy(50 + 10 * y)


def test_log_likelihood_matches_torch_and_its_gradient_finite_differences():
    A = torch.randn(4, 4, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    Ky = (A @ A.T + torch.eye(4, dtype=torch.float64)).requires_grad_()
    y = torch.arange(4, dtype=torch.float64, requires_grad=True)
    expected = torch.distributions.MultivariateNormal(torch.zeros(4).double(), Ky).log_prob(y)
    torch.testing.assert_close(log_marginal_likelihood(Ky, y), expected)
    assert torch.autograd.gradcheck(
        lambda K, t: log_marginal_likelihood(0.5 * (K + K.mT), t), (Ky, y)
    )


def test_reaches_botorchs_likelihood():
    X, y = simulate()
    _, own = train(X, y, "matern52", prior=None)
    kernel = gpytorch.kernels.ScaleKernel(gpytorch.kernels.MaternKernel(nu=2.5, ard_num_dims=2))
    _, botorch = train(X, y, kernel)
    assert own.status == botorch.status == "converged"
    assert own.log_likelihood >= botorch.log_likelihood - 1e-3


def test_an_irrelevant_feature_gets_a_long_lengthscale():
    X, y = simulate(n=100)
    posterior, _ = train(X, y)
    relevant, irrelevant = posterior.theta_R[:2]
    assert relevant > 5 * irrelevant


def test_units_do_not_matter():
    X, y = simulate()
    posterior, _ = train(X, y)
    other, _ = train(1e6 * X - 3e5, 1e-3 * y + 7)
    spread = 1e-3 * posterior.sigma(posterior.theta_R[None], X)[0]
    close = same_optimum(len(y)) * spread
    difference = other.mean(1e6 * X - 3e5) - (1e-3 * posterior.mean(X) + 7)
    assert (difference.abs() < close).all()
    assert (other.sigma(other.theta_R[None], 1e6 * X - 3e5)[0] - spread).abs().le(close).all()


def test_a_warm_start_is_used():
    X, y = simulate()
    posterior, cold = train(X, y)
    _, warm = train(X, y, start=posterior.theta_R)
    assert warm.evaluations < cold.evaluations / 3
    assert warm.log_likelihood == pytest.approx(cold.log_likelihood, abs=1e-5)


def test_a_step_that_gains_nothing_does_not_end_a_descent():
    """On the way there is a ledge, where a step gains less than the tolerance."""

    def ledge(v):
        return float(v[0] - 0.9 * np.sin(v[0])), 1.0 - 0.9 * np.cos(v)

    start, ends = np.array([7.0]), (np.array([0.5]), np.array([9.0]))
    short, whole = (
        minimise(ledge, start, *ends, most=100, tolerance=0.1, steps=steps) for steps in (1, 5)
    )
    assert short.value > 6.0
    assert whole.value == pytest.approx(0.5 - 0.9 * np.sin(0.5))


def test_some_of_the_starts_are_tried_and_the_best_of_them_told():
    X, y = simulate(40)
    alone = {number: train(X, y, start=number)[1] for number in (1, 2)}
    _, result = train(X, y, start=[1, 2])
    assert result.start in alone
    found = alone[result.start].log_likelihood
    assert result.log_likelihood == pytest.approx(found, abs=1e-5)
    assert train(X, y, start=[2])[1] == alone[2]


def test_training_sees_some_points_at_most_and_conditions_on_all():
    X, y = simulate(90)
    posterior, result = train(X, y, most=40, random_state=3)
    assert (result.most, posterior.n_train) == (40, 90)
    rows = torch.from_numpy(np.random.default_rng(3).permutation(90)[:40])
    standard = posterior.x_units.forward(X[rows]), posterior.y_units.forward(y[rows])
    part = ExactPosterior(*standard, posterior.covariance, posterior.theta_R)
    assert result.log_likelihood == pytest.approx(part.log_likelihood(), abs=1e-6)
    assert posterior.retrained(X, y).training.most == 40
    other, _ = train(X, y, most=40, random_state=4)
    assert not torch.allclose(other.theta_R, posterior.theta_R)


def test_the_users_kernel_is_trained_but_left_alone():
    X, y = simulate(d=1)
    kernel = gpytorch.kernels.ScaleKernel(gpytorch.kernels.PeriodicKernel())
    before = kernel.base_kernel.period_length.item()
    posterior, result = train(X, y, kernel)
    assert kernel.base_kernel.period_length.item() == before
    assert np.isfinite(result.log_likelihood)
    assert posterior.theta_R.shape == (3,)


@pytest.mark.parametrize(
    "kernel", ["rbf", gpytorch.kernels.ScaleKernel(gpytorch.kernels.RBFKernel())]
)
def test_training_that_fails_everywhere_says_so(monkeypatch, kernel):
    def refuse(*args, **kwargs):
        raise NumericalError("singular on purpose")

    monkeypatch.setattr(training, "likelihood_at", lambda *given: refuse)
    monkeypatch.setattr(
        from_gpytorch,
        "_mean_log_likelihood",
        lambda *a: (_ for _ in ()).throw(ValueError("on purpose")),
    )
    with pytest.raises(NumericalError, match=r"training failed from \d starts.*on purpose"):
        train(*simulate(), kernel)


def test_a_failure_on_the_way_is_survived_and_reported(monkeypatch):
    calls = {"n": 0}
    real = training.likelihood_at

    def flaky(likelihood, *given):
        calls["n"] += 1
        if calls["n"] == 3:
            raise NumericalError("singular on purpose")
        return likelihood(*given)

    monkeypatch.setattr(training, "likelihood_at", lambda *given: partial(flaky, real(*given)))
    _, result = train(*simulate())
    assert result.status == "retried"
    assert result.failures == ("singular on purpose",)


def test_standardising_survives_extreme_units():
    values = torch.tensor([1e150, 2e150, 4e150], dtype=torch.float64)
    for scale in (1.0, 1e-300):
        units = Affine.standardising(values * scale)
        z = units.forward(values * scale)
        assert z.mean().abs() < 1e-12
        assert z.square().mean().item() == pytest.approx(1.0)
    constant = Affine.standardising(torch.full((5,), 0.1, dtype=torch.float64))
    assert constant.scale.item() == 1.0


def in_deviations(deviation: float) -> LengthscalePrior:
    return LengthscalePrior(deviation, in_ranges=False, fades=False)


def test_prior_on_lengthscales():
    """The penalty is a normal density of log inverse lengthscales, and the fit obeys it."""
    rng = np.random.default_rng(5)
    Z, t = torch.from_numpy(rng.normal(size=(60, 8))), torch.from_numpy(rng.normal(size=60))
    covariance = Stationary("rbf", 8)
    plain, penalised = (
        _Objective(Rows(Z), t, covariance),
        _Objective(Rows(Z), t, covariance, in_deviations(0.7)),
    )
    centre = -np.sqrt(2.0) - 0.5 * np.log(8)
    v, w = rng.normal(size=10), rng.normal(size=10)
    added = [penalised.evaluate(u)[0] - plain.evaluate(u)[0] for u in (v, w)]
    density = [stats.norm.logpdf(u[:8], centre, 0.7).sum() for u in (v, w)]
    assert added[1] - added[0] == pytest.approx((density[0] - density[1]) / 60)
    slope, error = slopes(lambda u: penalised.evaluate(u)[0], v)
    np.testing.assert_allclose(penalised.evaluate(v)[1], slope, rtol=0, atol=error.max() + 1e-9)

    def largest(prior: LengthscalePrior | None) -> float:
        return train(Z, t, prior=prior)[0].theta_R[:8].log().max().item()

    assert largest(in_deviations(0.3)) < centre + 1.0 < largest(None)
