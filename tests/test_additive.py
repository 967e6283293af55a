"""The additive kernel against the sum that it stands for, and what training makes of it."""

import itertools
import math

import pytest
import torch

from helpers import marked
from sharpgp.exceptions import InvalidInputError
from sharpgp.gp.additive import Additive
from sharpgp.gp.kernels import make_covariance
from sharpgp.gp.training import train
from sharpgp.gp.warped import train_warped

DIMENSIONS = (1, 2, 5)


def random_inputs(d: int, seed: int = 0):
    generator = torch.Generator().manual_seed(seed)
    draw = lambda *shape: torch.randn(*shape, dtype=torch.float64, generator=generator)  # noqa: E731
    return torch.exp(0.5 * draw(3, 2 * d + 5)), draw(9, d), draw(6, d)


def matern(squared: torch.Tensor) -> torch.Tensor:
    r = (5.0 * squared).sqrt()
    return (1.0 + r + r.square() / 3.0) * torch.exp(-r)


def slow_matrix(theta, X1, X2):
    """One ``theta`` [P], pair by pair of features."""
    d = X1.shape[1]
    squares = (X1[:, None] - X2).square()
    full, e = (
        matern((squares * theta[:d].square()).sum(-1)),
        matern(squares * theta[d : 2 * d] ** 2),
    )
    s_0, s_1, s_2, s_l = theta[2 * d : -1]
    K = s_0 * full + s_1 / d * e.sum(-1) + s_l / d * X1 @ X2.T
    for i, j in itertools.combinations(range(d), 2):
        K = K + s_2 / math.comb(d, 2) * e[..., i] * e[..., j]
    return K


@pytest.mark.parametrize("d", DIMENSIONS)
def test_matrix_is_the_sum_over_features_and_pairs(d):
    theta, X1, X2 = random_inputs(d)
    covariance = make_covariance("additive", d)
    cross, square = covariance.matrix(theta, X1, X2), covariance.matrix(theta, X1)
    for k in range(len(theta)):
        torch.testing.assert_close(cross[k], slow_matrix(theta[k], X1, X2))
        torch.testing.assert_close(square[k], slow_matrix(theta[k], X1, X1), rtol=1e-6, atol=1e-7)
        torch.testing.assert_close(covariance.diag(theta, X1)[k], square[k].diagonal())


@pytest.mark.parametrize("d", marked(DIMENSIONS, slow={1, 5}))
def test_gradients_match_finite_differences(d):
    leaves = [a.requires_grad_() for a in random_inputs(d, seed=1)]
    theta, X1, _ = leaves
    covariance = Additive("additive", d)
    assert torch.autograd.gradcheck(covariance.matrix, leaves)
    assert torch.autograd.gradcheck(lambda t, X: covariance.matrix(t, X), (theta, X1))
    assert torch.autograd.gradcheck(lambda t: covariance.matrix(t, X1.detach()), (theta,))
    assert torch.autograd.gradcheck(covariance.diag, (theta, X1))


def test_coinciding_and_far_points_have_finite_gradients():
    theta, X, _ = random_inputs(2)
    X[1], X[2] = X[0], 1e6
    theta.requires_grad_()
    K = Additive("additive", 2).matrix(theta, X)
    (gradient,) = torch.autograd.grad(K.sum(), theta)
    assert torch.isfinite(gradient).all()


def test_every_variance_but_the_first_is_searched():
    covariance = Additive("additive", 2)
    held = [n for n, s in zip(covariance.names, covariance.searched, strict=True) if not s]
    assert held == ["signal_variance"]


def waves(n: int, seed: int):
    X = torch.rand(n, 6, dtype=torch.float64, generator=torch.Generator().manual_seed(seed))
    return X, (math.pi * torch.arange(1.0, 7.0) * X).sin().sum(1)


def test_a_sum_of_waves_is_learned_where_a_full_kernel_fails():
    X, f = waves(120, 0)
    X_new, truth = waves(200, 1)
    error = {}
    for kernel in ("matern52", "additive"):
        posterior, _ = train(X, f, kernel)
        error[kernel] = float((posterior.mean(X_new) - truth).square().mean().sqrt())
    assert error["additive"] < 0.2 * error["matern52"]


def test_it_is_retrained_and_warped_like_other_named_kernels():
    X, f = waves(60, 0)
    posterior, _ = train(X, f.exp(), "additive")
    again = posterior.retrained(X[:50], f[:50].exp())
    assert isinstance(again.covariance, Additive)
    assert again.n_train == 50
    assert train_warped(X, f.exp(), posterior.covariance, start=0) is not None


def test_unknown_names_are_told_all_known_ones():
    with pytest.raises(InvalidInputError, match="matern52, additive or a gpytorch kernel"):
        make_covariance("cubic", 2)
