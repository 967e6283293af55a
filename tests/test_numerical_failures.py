"""Factorisations that fail: a search steps back, a training run says so, nothing is swallowed."""

import math

import numpy as np
import pytest
import torch

from helpers import method, wavy
from sharpgp.calibration.methods.sharp.search.level_search import Budget, descend
from sharpgp.exceptions import CalibrationWarning, InvalidInputError, NumericalError
from sharpgp.gp.compute import choose_device
from sharpgp.gp.kernels.covariance import Stationary
from sharpgp.gp.sparse import elbo_training as bound_training
from sharpgp.gp.sparse.training import train_sparse
from sharpgp.gp.wrappers import target_warp as warped
from sharpgp.gp.wrappers.target_warp import train_warped

X, y = map(torch.from_numpy, wavy(50))


class Failing:
    """A function that fails at some of its calls, and counts them."""

    def __init__(self, function, fails):
        self.function, self.fails, self.calls = function, fails, 0

    def __call__(self, *args, **kwargs):
        self.calls += 1
        if self.fails(self.calls):
            raise NumericalError("the matrix is not positive definite")
        return self.function(*args, **kwargs)


def test_a_search_steps_back_from_points_that_fail():
    """The minimum of (v - 1)^2 is found although everything beyond 1.5 fails."""
    seen = []

    def evaluate(v):
        if v[0] > 1.5:
            raise NumericalError("beyond")
        seen.append(v[0])
        return float((v[0] - 1.0) ** 2), 2.0 * (v - 1.0)

    budget, ends = Budget(100), np.array([10.0])
    start = np.array([-3.0])
    descend(evaluate, start, -ends, ends, budget=budget, max_evaluations=50, tolerance=1e-12)
    assert min(abs(v - 1.0) for v in seen) < 1e-3
    assert budget.used + budget.left == 100
    descend(
        Failing(evaluate, lambda call: True),
        start,
        -ends,
        ends,
        budget=budget,
        max_evaluations=5,
        tolerance=1e-12,
    )
    assert 1 <= budget.failed <= 5


def test_a_search_without_budget_evaluates_nothing():
    def evaluate(v):
        raise AssertionError("no evaluation was left")

    one = np.ones(1)
    descend(evaluate, one, -one, one, budget=Budget(0), max_evaluations=9, tolerance=0.1)


def test_failures_of_the_papers_search_are_counted_in_a_warning(gp, monkeypatch):
    X_cal, y_cal = map(torch.from_numpy, wavy(30, seed=1))
    inside = type(gp).sigma

    def sigma(self, theta, X):
        if ((theta[:, 0] / gp.theta_R[0]).log().abs() > 0.1).any():
            raise NumericalError("far from theta_R")
        return inside(self, theta, X)

    monkeypatch.setattr(type(gp), "sigma", sigma)
    with pytest.warns(CalibrationWarning, match=r"at \d+ of \d+ points of the"):
        fitted = method("paper", levels=[0.25, 0.5, 0.75]).fit(gp, X_cal, y_cal)
    assert torch.isfinite(fitted.predict_quantiles(X_cal, [0.25, 0.75])).all()


# ------------------------------------------------------------------ training


def test_sparse_training_goes_on_after_a_failure_and_says_so(monkeypatch):
    bound = Failing(bound_training.variational_bound, lambda call: call == 2)
    monkeypatch.setattr(bound_training, "variational_bound", bound)
    posterior, result = train_sparse(X, y, n_inducing=8)
    assert result.status == "retried"
    assert result.failures == ("the matrix is not positive definite",)
    assert torch.isfinite(posterior.mean(X)).all()


@pytest.mark.parametrize("how", ["fails", "is NaN"])
def test_sparse_training_that_always_fails_is_an_error(monkeypatch, how):
    def bound(data, theta, Z):
        if how == "fails":
            raise NumericalError("the matrix is not positive definite")
        return theta.sum(-1) * math.nan

    monkeypatch.setattr(bound_training, "variational_bound", bound)
    reason = "positive definite" if how == "fails" else "NaN or inf"
    with pytest.raises(NumericalError, match=f"training of the sparse GP failed: .*{reason}"):
        train_sparse(X, y, n_inducing=8)


@pytest.mark.parametrize("value", [None, math.nan, math.inf])
def test_a_warped_gp_that_cannot_be_trained_is_none(monkeypatch, value):
    """None: without it, the GP as it was trained stays."""

    def likelihood(theta, y):
        if value is None:
            raise NumericalError("the matrix is not positive definite")
        return y.sum() * value

    monkeypatch.setattr(warped, "likelihood_at", lambda covariance, X: likelihood)
    assert train_warped(X, y.exp(), Stationary("rbf", 2)) is None


# ------------------------------------------------------------------ devices


@pytest.mark.parametrize("device", ["gpu", "meta", 3.5])
def test_devices_that_are_none_of_ours(device):
    with pytest.raises(InvalidInputError, match="device: expected 'auto', 'cpu' or 'cuda'"):
        choose_device(device, 10)


def test_a_gpu_that_is_not_there(monkeypatch):
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    with pytest.raises(InvalidInputError, match="expected a CUDA device, found none"):
        choose_device("cuda", 10)
