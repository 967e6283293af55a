"""The likelihood as training asks for it: the dense one, value and gradients."""

import gpytorch
import pytest
import torch

from sharpgp.exceptions import NumericalError
from sharpgp.gp.dense import add_to_diagonal, log_marginal_likelihood
from sharpgp.gp.exact import likelihood
from sharpgp.gp.exact.likelihood import likelihood_at
from sharpgp.gp.kernels import additive, stationary
from sharpgp.gp.kernels.by_name import NamedKernel, make_covariance
from sharpgp.gp.kernels.covariance import Named
from sharpgp.names import KERNELS
from sharpgp.rows import Rows
from tolerances import rounding

TIED = (0, 1, 1)


def dense(covariance, X, noise=None):
    """The same function by autograd of the dense one."""

    def value(theta, y):
        Ky = add_to_diagonal(covariance.matrix(theta[None], X), theta[None, -1])
        Ky = Ky if noise is None else Ky + torch.diag(noise)
        return log_marginal_likelihood(Ky, y[None])[0]

    return value


@pytest.mark.parametrize(
    "kernel",
    [
        *KERNELS,
        "rbf+matern12",
        "laplace+matern32",
        "additive+laplace+matern52",
        NamedKernel("laplace+matern32", TIED),
        NamedKernel("rbf", TIED),
        NamedKernel("additive", TIED),
        gpytorch.kernels.ScaleKernel(gpytorch.kernels.RBFKernel()),
    ],
    ids=str,
)
@pytest.mark.parametrize("noisy", [False, True])
@pytest.mark.parametrize("d", [1, 3])
def test_value_and_gradients_are_those_of_the_dense_function(kernel, d, noisy):
    if isinstance(kernel, NamedKernel) and d < len(TIED):
        pytest.skip("needs three features")
    generator = torch.Generator().manual_seed(d)
    covariance = make_covariance(kernel, d)
    X = torch.rand(40, d, dtype=torch.float64, generator=generator)
    X[3] = X[2]  # coinciding inputs
    noise = X[:, 0].square() if noisy else None
    if noisy and not isinstance(covariance, Named):
        pytest.skip("a gpytorch kernel takes no noise")
    ask, oracle = likelihood_at(covariance, Rows(X, noise)), dense(covariance, X, noise)
    for _ in range(2):  # the second time in memory that has been used
        theta = 0.1 + torch.rand(covariance.n_theta, dtype=torch.float64, generator=generator)
        y = torch.randn(40, dtype=torch.float64, generator=generator)
        leaves = theta.requires_grad_(), y.requires_grad_()
        Ky = add_to_diagonal(covariance.matrix(theta[None], X), theta[None, -1])[0].detach()
        tolerance = rounding(Ky)
        found, expected = ask(*leaves), oracle(*leaves)
        torch.testing.assert_close(found, expected, rtol=tolerance, atol=tolerance)
        for one, other in zip(
            torch.autograd.grad(found, leaves),
            torch.autograd.grad(expected, leaves),
            strict=True,
        ):
            size = float(other.abs().max())
            torch.testing.assert_close(one, other, rtol=0.0, atol=40 * tolerance * size)


@pytest.mark.parametrize("kernel", KERNELS)
def test_blocks_give_what_one_block_does(kernel, monkeypatch):
    generator = torch.Generator().manual_seed(0)
    covariance = make_covariance(kernel, 3)
    X = torch.rand(40, 3, dtype=torch.float64, generator=generator)
    theta = 0.1 + torch.rand(covariance.n_theta, dtype=torch.float64, generator=generator)
    theta.requires_grad_()
    whole = likelihood_at(covariance, X)(theta, X[:, 0])
    # Blocks of 7 rows, the last of which are fewer; and of 33 pairs of points.
    monkeypatch.setattr(stationary, "block_entries", lambda *_, **__: 2 * 40 * 7)
    monkeypatch.setattr(additive, "_BLOCK", 100)
    parts = likelihood_at(covariance, X)(theta, X[:, 0])
    Ky = add_to_diagonal(covariance.matrix(theta[None], X), theta[None, -1])[0].detach()
    tolerance = rounding(Ky)
    torch.testing.assert_close(parts, whole, rtol=tolerance, atol=tolerance)
    (found,), (expected,) = (torch.autograd.grad(one, theta) for one in (parts, whole))
    size = float(expected.abs().max())
    torch.testing.assert_close(found, expected, rtol=0.0, atol=40 * tolerance * size)


def test_a_matrix_that_needs_jitter_gets_it_and_a_hopeless_one_is_an_error():
    X = torch.zeros(6, 1, dtype=torch.float64)
    y = torch.ones(6, dtype=torch.float64)
    ask = likelihood_at(make_covariance("rbf", 1), X)
    assert torch.isfinite(ask(torch.tensor([1.0, 1.0, 0.0], dtype=torch.float64), y))
    with pytest.raises(NumericalError, match="finite"):
        ask(torch.tensor([1.0, torch.nan, 0.1], dtype=torch.float64), y)


def test_large_sets_are_asked_in_place(monkeypatch):
    monkeypatch.setattr(likelihood, "MAX_ROWS_BATCHED", 10)
    covariance = make_covariance("matern52", 2)
    generator = torch.Generator().manual_seed(0)
    X = torch.rand(20, 2, dtype=torch.float64, generator=generator)
    theta = torch.tensor([1.0, 2.0, 1.0, 0.1], dtype=torch.float64)
    found = likelihood_at(covariance, X)(theta, X[:, 0])
    torch.testing.assert_close(found, dense(covariance, X)(theta, X[:, 0]))


def test_what_is_below_the_diagonal_does_not_count():
    upper = torch.tensor([[2.0, 1.0], [float("nan"), 3.0]], dtype=torch.float64)
    assert likelihood._symmetric(upper).tolist() == [[2.0, 1.0], [1.0, 3.0]]
