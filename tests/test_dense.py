"""Factorisations and the hand-written derivatives against slow, obvious oracles."""

import numpy as np
import pytest
import torch

from helpers import solve_slowly
from sharpgp.exceptions import NumericalError
from sharpgp.gp.dense import (
    JITTER_SCHEDULE,
    cholesky,
    leave_one_out,
    posterior_variance,
    variance_given_factor,
)
from tolerances import rounding


def random_problem(seed: int, noise: float, n: int = 30, t: int = 7):
    rng = np.random.default_rng(seed)
    X, S = rng.normal(size=(n, 2)), rng.normal(size=(t, 2))

    def k(a, b):
        return np.exp(-0.5 * ((a[:, None] - b[None]) ** 2).sum(-1))

    return k(X, X) + noise * np.eye(n), k(X, S), np.full(t, 1.0 + noise), rng.normal(size=n)


@pytest.mark.parametrize("noise", [1e-6, 1e-3, 1.0])
@pytest.mark.parametrize("seed", range(3))
def test_posterior_variance_matches_a_refined_solution(seed, noise):
    Ky, Ks, kss, _ = random_problem(seed, noise)
    expected = kss - (Ks * solve_slowly(Ky, Ks)).sum(0)
    found = posterior_variance(*map(torch.from_numpy, (Ky, Ks, kss)))
    np.testing.assert_allclose(found, expected, rtol=rounding(Ky))


@pytest.mark.parametrize("noise", [1e-6, 1e-3, 1.0])
@pytest.mark.parametrize("seed", range(3))
def test_leave_one_out_matches_refits(seed, noise):
    Ky, _, _, y = random_problem(seed, noise)
    residual, variance = leave_one_out(torch.from_numpy(Ky), torch.from_numpy(y))
    close, largest = rounding(Ky), float(residual.abs().max())
    for i in range(len(y)):
        rest = np.arange(len(y)) != i
        u = solve_slowly(Ky[np.ix_(rest, rest)], np.c_[y[rest], Ky[rest, i]])
        expected = y[i] - Ky[i, rest] @ u[:, 0]
        assert residual[i].item() == pytest.approx(expected, rel=close, abs=close * largest)
        expected = Ky[i, i] - Ky[i, rest] @ u[:, 1]
        assert variance[i].item() == pytest.approx(expected, rel=close)


def test_gradients_match_finite_differences():
    torch.manual_seed(0)
    Ky, Ks, kss, y = (torch.from_numpy(a) for a in random_problem(5, 0.1, n=6, t=4))
    batch = torch.stack([Ky, 2 * Ky]).requires_grad_()
    Ks2 = torch.stack([Ks, 1.5 * Ks]).requires_grad_()
    kss2 = torch.stack([kss, 4 * kss]).requires_grad_()

    def symmetric(A):
        return 0.5 * (A + A.mT)

    assert torch.autograd.gradcheck(
        lambda A, B, c: posterior_variance(symmetric(A), B, c), (batch, Ks2, kss2)
    )
    targets = torch.stack([y, -y]).requires_grad_()
    assert torch.autograd.gradcheck(lambda A, b: leave_one_out(symmetric(A), b), (batch, targets))


def test_known_factor_gives_the_same_variance_and_gradient():
    Ky, Ks, kss, _ = (torch.from_numpy(a) for a in random_problem(1, 0.1))
    Ks = Ks.requires_grad_()
    fresh = posterior_variance(Ky, Ks, kss)
    known = variance_given_factor(torch.linalg.cholesky(Ky), Ks, kss)
    (g_fresh,) = torch.autograd.grad(fresh.sum(), Ks)
    (g_known,) = torch.autograd.grad(known.sum(), Ks)
    torch.testing.assert_close(fresh, known)
    torch.testing.assert_close(g_fresh, g_known)


def test_jitter_is_the_least_that_works_and_is_reported():
    sound = torch.eye(3, dtype=torch.float64)
    singular = torch.ones(3, 3, dtype=torch.float64)
    L, jitter = cholesky(torch.stack([sound, singular]))
    assert jitter[0] == 0.0
    assert jitter[1] in [torch.tensor(j, dtype=torch.float64) for j in JITTER_SCHEDULE[1:]]
    torch.testing.assert_close(L[1] @ L[1].T, singular, atol=1e-5, rtol=0)


def test_an_indefinite_matrix_is_an_error_not_a_big_jitter():
    with pytest.raises(NumericalError, match="singular even with a relative jitter"):
        cholesky(torch.tensor([[1.0, 2.0], [2.0, 1.0]], dtype=torch.float64))


def test_a_matrix_with_nan_is_named_as_such():
    with pytest.raises(NumericalError, match="NaN or inf"):
        cholesky(torch.full((2, 2), float("nan"), dtype=torch.float64))
