"""One matrix worked on in place against the batched functions, and its memory."""

import numpy as np
import pytest
import torch
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

from helpers import wavy
from sharpgp.exceptions import NumericalError
from sharpgp.gp import compute
from sharpgp.gp.exact import in_blocks as inplace
from sharpgp.gp.exact.posterior import ExactPosterior
from sharpgp.gp.kernels.covariance import STATIONARY, Stationary
from sharpgp.gp.kernels.from_gpytorch import FromGPyTorch
from sharpgp.gp.training import train
from sharpgp.models.gaussian.gaussian_model import drawn_part, learn_gaussian
from sharpgp.policy import Policy
from sharpgp.rows import Rows


def problem(n: int = 90, d: int = 3, seed: int = 0):
    rng = np.random.default_rng(seed)
    X, S, y = rng.normal(size=(n, d)), rng.normal(size=(7, d)), rng.normal(size=n)
    theta = np.array([[0.7, 0.4, 0.2, 1.3, 0.05], [1.0, 0.5, 0.3, 0.8, 0.2]])
    return [torch.from_numpy(a) for a in (theta, X, S, y)]


def answers(covariance, theta, X, S, y):
    """All three quantities and the gradient of a mixture of them."""
    theta = theta.clone().requires_grad_()
    residual, variance = inplace.loo_of(covariance, theta, X, y)
    at_S = inplace.variance_of(covariance, theta, X, S, covariance.diag(theta, S) + theta[:, -1:])
    likelihood = inplace.likelihood_of(covariance, theta, X, y)
    weights = torch.linspace(-1.0, 2.0, len(y), dtype=torch.float64)
    parts = (residual @ weights, variance @ weights, at_S.sum(-1), likelihood)
    grads = [torch.autograd.grad(part.sum(), theta, retain_graph=True)[0] for part in parts[:3]]
    grads.append(torch.autograd.grad(likelihood.sum(), theta)[0])
    return [v.detach() for v in (residual, variance, at_S, likelihood)] + grads


@pytest.mark.parametrize(
    ("kind", "triangle", "entries"),
    [
        pytest.param(kind, *sizes, marks=() if quick else pytest.mark.slow)
        for kind in sorted(STATIONARY)
        for sizes, quick in (
            ((16, 2**20), True),
            ((16, 3), kind == "rbf"),
            ((1024, 2**20), False),
            ((1024, 3), False),
        )
    ],
)
def test_in_place_is_the_batched_answer(kind, triangle, entries, monkeypatch):
    given = Stationary(kind, 3), *problem()
    expected = answers(*given)
    monkeypatch.setattr(inplace, "MAX_ROWS_BATCHED", 10)
    monkeypatch.setattr(inplace, "_SMALL_TRIANGLE", triangle)
    monkeypatch.setattr(compute, "THREAD_ENTRIES", entries)
    # Distances of points from themselves are off by a rounding error, whose root matern12 takes.
    close = 1e-6 if kind == "matern12" else 1e-9
    for ours, theirs in zip(answers(*given), expected, strict=True):
        torch.testing.assert_close(ours, theirs, rtol=close, atol=close)


def test_kernels_of_gpytorch_too(monkeypatch):
    import gpytorch

    kernel = gpytorch.kernels.ScaleKernel(gpytorch.kernels.RBFKernel(ard_num_dims=3))
    given = FromGPyTorch(kernel), *problem(40)
    expected = answers(*given)
    monkeypatch.setattr(inplace, "MAX_ROWS_BATCHED", 10)
    for ours, theirs in zip(answers(*given), expected, strict=True):
        torch.testing.assert_close(ours, theirs, rtol=1e-9, atol=1e-9)


def test_posterior_and_training_use_it(monkeypatch):
    X, y = map(torch.from_numpy, wavy(80))
    expected, result = train(X, y)
    theta = torch.stack([expected.theta_R, 1.5 * expected.theta_R])
    S = X[:9] + 0.1
    for module in ("in_blocks", "posterior"):
        monkeypatch.setattr(f"sharpgp.gp.exact.{module}.MAX_ROWS_BATCHED", 10)
    _, again = train(X, y)
    assert again.log_likelihood == pytest.approx(result.log_likelihood, abs=1e-5)
    data = X, y, expected.covariance, expected.theta_R
    ours = ExactPosterior(*data, x_units=expected.x_units, y_units=expected.y_units)
    torch.testing.assert_close(ours.mean(S), expected.mean(S))
    torch.testing.assert_close(ours.sigma(theta, S), expected.sigma(theta, S))
    for a, b in zip(ours.loo(theta), expected.loo(theta), strict=True):
        torch.testing.assert_close(a, b)


def test_a_large_gp_is_learned_from_a_part_and_conditioned_on_all():
    """Hyperparameters and the choice of a spread are those of the part; predictions are not."""
    few = Policy(learned_rows=80)
    X, y = map(torch.from_numpy, wavy(160))
    y = (1.5 * y).exp()
    posterior, _ = train(X, y, most=80)
    every = torch.arange(160)
    rows = drawn_part((every, every[:0]), 0, 80)
    model = learn_gaussian(posterior, policy=few)
    chosen = learn_gaussian(posterior.at_rows(rows), policy=few)
    assert torch.equal(model.learned_rows, rows)
    assert model.choice == chosen.choice
    assert model.choice.warped
    assert torch.equal(model.scores, chosen.scores)
    assert model.posterior.n_train == 160
    torch.testing.assert_close(model.y_train, y)
    X_new, y_new = map(torch.from_numpy, wavy(200, seed=1))
    errors = [
        (one.location(X_new) - (1.5 * y_new).exp()).square().mean() for one in (model, chosen)
    ]
    assert errors[0] < errors[1]


def test_jitter_and_failure():
    theta, X, _, _ = problem(12)
    twice = X.repeat(2, 1)
    row = theta[0].clone()
    row[-1] = 0.0
    _, jitter = inplace.factor_of(Stationary("rbf", 3), row, Rows(twice))
    assert 0 < float(jitter) < 1e-5
    row[-1] = -0.1
    with pytest.raises(NumericalError, match="singular even with a relative jitter"):
        inplace.factor_of(Stationary("rbf", 3), row, Rows(twice))


class LargeStorages(TorchDispatchMode):
    """Remembers every piece of memory of a given size that an operation returns."""

    def __init__(self, bytes_: int) -> None:
        super().__init__()
        self.bytes, self.seen = bytes_, set()

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        out = func(*args, **(kwargs or {}))
        for tensor in tree_leaves(out):
            if isinstance(tensor, torch.Tensor) and tensor.untyped_storage().nbytes() >= self.bytes:
                self.seen.add(tensor.untyped_storage().data_ptr())
        return out


def test_each_quantity_with_its_gradient_holds_one_matrix(monkeypatch):
    """Of 20,000 points seven matrices fit in 24 GiB, of 40,000 ten in 139 GiB."""
    monkeypatch.setattr(inplace, "MAX_ROWS_BATCHED", 10)
    monkeypatch.setattr(inplace, "_SMALL_TRIANGLE", 16)
    monkeypatch.setattr(compute, "THREAD_ENTRIES", 25)
    n, covariance = 90, Stationary("rbf", 3)
    theta, X, S, y = problem(n)
    theta = theta[:1].requires_grad_()
    prior = covariance.diag(theta, S)
    for ask in (
        lambda: inplace.loo_of(covariance, theta, X, y)[1],
        lambda: inplace.variance_of(covariance, theta, X, S, prior),
        lambda: inplace.likelihood_of(covariance, theta, X, y),
    ):
        with LargeStorages(8 * n * n // 2) as large_storages:
            torch.autograd.grad(ask().sum(), theta, retain_graph=True)
        assert len(large_storages.seen) == 1
