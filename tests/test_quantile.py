"""q_lin, its support, and the piecewise-linear curves."""

import math

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from sharpgp._ranks import points_needed, q_lin, rank, supported
from sharpgp.calibration.methods.sharp.curves import Curves
from sharpgp.exceptions import InvalidInputError


def levels(*values: float) -> torch.Tensor:
    return torch.tensor(values, dtype=torch.float64)


@given(C=st.integers(1, 400), seed=st.integers(0, 1000))
def test_rank_levels_are_the_order_statistics_themselves(C, seed):
    z = torch.randn(C, dtype=torch.float64, generator=torch.Generator().manual_seed(seed))
    delta = torch.arange(1, C + 1, dtype=torch.float64) / (C + 1)
    assert torch.equal(q_lin(delta, z), z.sort().values)


def test_linear_between_ranks():
    z = torch.tensor([10.0, 0.0, 30.0, 100.0], dtype=torch.float64)
    assert q_lin(levels(0.3, 0.5), z).tolist() == pytest.approx([5.0, 20.0])


def test_each_level_may_have_its_own_scores():
    z = torch.tensor([[1.0, 2.0, 3.0], [10.0, 20.0, 30.0]], dtype=torch.float64)
    assert q_lin(levels(0.25, 0.75), z).tolist() == [1.0, 30.0]


def test_gradient_goes_to_the_two_scores_in_use():
    z = torch.tensor([3.0, 1.0, 2.0], dtype=torch.float64, requires_grad=True)
    (gradient,) = torch.autograd.grad(q_lin(levels(0.3125), z).sum(), z)
    assert gradient.tolist() == pytest.approx([0.0, 0.75, 0.25])


def test_levels_without_support_are_refused_with_the_count_that_they_need():
    with pytest.raises(InvalidInputError, match=r"level 0.95 needs at least 19 .* found 18"):
        q_lin(levels(0.5, 0.95), torch.zeros(18, dtype=torch.float64))


@given(C=st.integers(1, 2000))
def test_points_needed_is_the_least_that_is_supported(C):
    delta = C / (C + 1)
    needed = points_needed(delta)
    assert supported(levels(delta), needed).all()
    assert needed == C


@given(j=st.integers(1, 100), scale=st.sampled_from([19, 20, 99, 100, 999]))
def test_ranks_survive_floating_point(j, scale):
    whole = float(rank(levels(j / (scale + 1)), scale))
    assert whole == j
    assert math.ceil(whole) == j


def test_theta_is_least_where_beta_is_zero():
    delta, beta = levels(0.1, 0.4, 0.6, 0.9), levels(-2.0, -0.5, 1.0, 3.0)
    theta = torch.tensor([[5.0, 5.0], [1.0, 4.0], [3.0, 2.0], [6.0, 6.0]], dtype=torch.float64)
    curves = Curves.through(delta, beta, theta)
    zero = 0.4 + 0.2 * 0.5 / 1.5
    assert curves.beta_at(levels(zero)).item() == pytest.approx(0.0, abs=1e-9)
    assert curves.theta_at(levels(zero)).tolist() == [pytest.approx([1.0, 2.0])]
    fine = torch.linspace(0.05, 0.95, 301, dtype=torch.float64)
    assert (curves.beta_at(fine).diff() >= 0).all()
    steps = curves.theta_at(fine).diff(dim=0)
    assert (steps[fine[1:] <= zero] <= 1e-12).all()
    assert (steps[fine[:-1] >= zero] >= -1e-12).all()


def test_all_scores_on_one_side_need_no_zero():
    curves = Curves.through(levels(0.2, 0.8), levels(1.0, 2.0), torch.ones(2, 1).double())
    assert len(curves.delta) == 2
    assert curves.beta_at(levels(0.1, 0.9)).tolist() == pytest.approx([1.0, 2.0])
