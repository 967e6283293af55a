"""The additive kernel against the sum that it stands for, and what training makes of it."""

import itertools
import math

import pytest
import torch

from helpers import marked
from sharpgp.exceptions import InvalidInputError
from sharpgp.gp.kernels import additive
from sharpgp.gp.kernels.additive import Additive
from sharpgp.gp.kernels.by_name import make_covariance, named
from sharpgp.gp.ties import members
from sharpgp.gp.training import train
from sharpgp.gp.wrappers.target_warp import train_warped

# Features, and which of them count as one.
CASES = ((1, None), (2, None), (5, None), (5, (0, 1, 1, 2, 1)), (3, (0, 0, 0)))


def random_inputs(d: int, ties=None, seed: int = 0):
    generator = torch.Generator().manual_seed(seed)
    draw = lambda *shape: torch.randn(*shape, dtype=torch.float64, generator=generator)  # noqa: E731
    return torch.exp(0.5 * draw(3, 2 * len(members(ties, d)) + 5)), draw(9, d), draw(6, d)


def matern(squared: torch.Tensor) -> torch.Tensor:
    r = (5.0 * squared).sqrt()
    return (1.0 + r + r.square() / 3.0) * torch.exp(-r)


def slow_matrix(theta, X1, X2, ties):
    """One ``theta`` [P], pair by pair of features."""
    parts = members(ties, X1.shape[1])
    d = len(parts)
    squares = torch.stack(
        [(X1[:, None, part] - X2[:, part]).square().sum(-1) for part in parts], dim=-1
    )
    full, e = (
        matern((squares * theta[:d].square()).sum(-1)),
        matern(squares * theta[d : 2 * d] ** 2),
    )
    s_0, s_1, s_2, s_l = theta[2 * d : -1]
    K = s_0 * full + s_1 / d * e.sum(-1) + s_l / X1.shape[1] * X1 @ X2.T
    for i, j in itertools.product(range(d), repeat=2):
        K = K + s_2 / d**2 * e[..., i] * e[..., j]
    return K


@pytest.mark.parametrize(("d", "ties"), CASES)
def test_matrix_is_the_sum_over_features_and_pairs(d, ties):
    theta, X1, X2 = random_inputs(d, ties)
    covariance = make_covariance(named("additive", ties), d)
    cross, square = covariance.matrix(theta, X1, X2), covariance.matrix(theta, X1)
    for k in range(len(theta)):
        torch.testing.assert_close(cross[k], slow_matrix(theta[k], X1, X2, ties))
        slow = slow_matrix(theta[k], X1, X1, ties)
        torch.testing.assert_close(square[k], slow, rtol=1e-6, atol=1e-7)
        torch.testing.assert_close(covariance.diag(theta, X1)[k], square[k].diagonal())


@pytest.mark.parametrize(("d", "ties"), CASES)
def test_blocks_and_gradients_do_not_change_the_matrix(d, ties, monkeypatch):
    theta, X1, X2 = random_inputs(d, ties)
    covariance = make_covariance(named("additive", ties), d)
    sets = X1.view(3, 3, d), X2[:6].view(3, 2, d)
    once = covariance.matrix(theta, X1, X2), covariance.blocks(theta, *sets)
    for k in range(3):  # sets are blocks of the matrix between all
        alone = covariance.matrix(theta, sets[0][k], sets[1][k])
        torch.testing.assert_close(once[1][:, k], alone, rtol=1e-12, atol=1e-12)
    monkeypatch.setattr(additive, "_BLOCK", 8)
    for leaf in (theta, theta.clone().requires_grad_()):
        again = covariance.matrix(leaf, X1, X2), covariance.blocks(leaf, *sets)
        torch.testing.assert_close(again, once, rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("case", marked(CASES, slow={(1, None), (5, None), (3, (0, 0, 0))}))
def test_gradients_match_finite_differences(case):
    d, ties = case
    leaves = [a.requires_grad_() for a in random_inputs(d, ties, seed=1)]
    theta, X1, _ = leaves
    covariance = Additive("additive", d, ties)
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
    with pytest.raises(InvalidInputError, match="additive, laplace, a sum such as"):
        make_covariance("cubic", 2)
