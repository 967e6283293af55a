"""Blocks of rows whose factors are kept: by hand, left out, and chosen where they are as good."""

from dataclasses import replace

import numpy as np
import pytest
import torch

from helpers import wavy
from sharpgp import SharpGPRegressor, persistence
from sharpgp.gp import conditioning, train
from sharpgp.gp.conditioning import condition, shares_factors
from sharpgp.gp.exact.posterior import ExactPosterior
from sharpgp.gp.local import posterior as local_module
from sharpgp.gp.local.blocks import Layout
from sharpgp.gp.local.posterior import LocalPosterior
from sharpgp.models.gaussian.gaussian_model import learn_gaussian
from sharpgp.models.splitters import learning_pairs
from sharpgp.policy import Policy
from test_local import COVARIANCES, levels, same, setting, tolerance


def blocks_of(given, units, **more):
    settings = {"landmarks": 12, "neighbours": 7, "block_rows": 15, **more}
    return LocalPosterior(*given, **settings, **units)


def by_hand(gp, x, without=()):
    """The exact GP of the landmarks and of the rows that the cell of one row ``x`` sees."""
    cell = int(gp._layout.cell_of(gp._inward(x).X))
    rows = torch.cat([gp.landmark_rows, gp._layout.near[cell]])
    rows = rows[[int(i) not in without for i in rows]]
    X, y, units = gp.rows[rows], gp.y_train[rows], {"x_units": gp.x_units, "y_units": gp.y_units}
    return ExactPosterior(X, y, gp.covariance, gp.theta_R, **units)


@pytest.mark.parametrize("kind", COVARIANCES)
def test_cells_that_see_all_rows_are_the_exact_gp(kind):
    given, units, S = setting(kind)
    exact, gp = ExactPosterior(*given, **units), blocks_of(given, units)
    close, theta = tolerance(exact), levels(gp)
    torch.testing.assert_close(gp.mean(S), exact.mean(S), **close)
    torch.testing.assert_close(gp.sigma(theta, S), exact.sigma(theta, S), **close)
    same(gp.moments(theta, S), exact.moments(theta, S), **close)
    same(gp.mean_and_sigma(S), exact.mean_and_sigma(S), **close)
    same(gp.loo(theta), exact.loo(theta), **close)
    rows = torch.tensor([3, 40, 7])
    same(gp.left_out(rows), exact.left_out(rows), **close)


@pytest.mark.parametrize("kind", ["matern32", "additive", "known noise"])
def test_predictions_are_conditioning_by_hand(kind, monkeypatch):
    monkeypatch.setattr(local_module, "HALO", 20)
    given, units, S = setting(kind)
    gp = blocks_of(given, units)
    assert gp._layout.near.shape == (4, 20)
    assert gp.n_neighbours == 20
    close, theta = tolerance(gp), levels(gp)
    each = [S[i : i + 1] for i in range(len(S))]
    expected = [by_hand(gp, x).moments(theta, x) for x in each]
    same(gp.moments(theta, S), (torch.cat(p, -1) for p in zip(*expected, strict=True)), **close)
    torch.testing.assert_close(gp.mean(S), gp.moments(theta, S)[0][0], **close)


@pytest.mark.parametrize("kind", ["matern32", "known noise"])
def test_leaving_out_is_predicting_without(kind, monkeypatch):
    """Landmarks, rows that their cell sees, and rows that it does not see."""
    monkeypatch.setattr(local_module, "HALO", 6)
    given, units, _ = setting(kind)
    gp = blocks_of(given, units)
    close, theta, found = tolerance(gp), levels(gp), gp.loo(levels(gp))
    seen = torch.cat([gp._layout.near.flatten(), gp.landmark_rows])
    assert len(seen.unique()) < 60
    for i in range(0, 60, 3):
        x = gp.rows[i : i + 1]
        expected = by_hand(gp, x, without=(i,)).moments(theta, x)
        same([part[:, i] for part in found], [part[:, 0] for part in expected], **close)


def test_gradients_in_theta_and_inputs(monkeypatch):
    monkeypatch.setattr(local_module, "HALO", 4)
    given, units, S = setting("matern52", n=12)
    gp = blocks_of(given, units, landmarks=3, block_rows=6)
    S = S[:2].clone().requires_grad_()
    theta = levels(gp).requires_grad_()
    assert torch.autograd.gradcheck(gp.moments, (theta, S))
    assert torch.autograd.gradcheck(gp.mean, (S,))
    assert torch.autograd.gradcheck(gp.loo, (theta,))


def test_other_targets_keep_factors_and_nothing_else():
    given, units, S = setting()
    gp = blocks_of(given, units)
    gp.mean(S)
    y = given[1] + given[0][:, 1]
    other = gp.retargeted(y)
    again = gp.conditioned_on(given[0], y)
    close = tolerance(gp)
    torch.testing.assert_close(other.mean(S), again.mean(S), **close)
    same(other.mean_and_sigma(S), again.mean_and_sigma(S), **close)
    assert other._blocks(gp.theta_R)._kept.keys() == gp._blocks(gp.theta_R)._kept.keys()


def test_a_file_has_the_landmarks_and_no_factors(tmp_path):
    given, units, S = setting()
    gp = blocks_of(given, units)
    persistence.save(gp, tmp_path / "new.sgp")
    before = gp.mean_and_sigma(S)
    persistence.save(gp, tmp_path / "asked.sgp")
    assert (tmp_path / "new.sgp").read_bytes() == (tmp_path / "asked.sgp").read_bytes()
    same(persistence.load(tmp_path / "new.sgp").mean_and_sigma(S), before, rtol=0.0, atol=0.0)


def test_cells_hold_about_the_same_number_of_rows():
    X = torch.rand(1000, 3, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    layout = Layout.of_rows(X, lambda X: X, torch.arange(1000), 7, 30)
    count = layout.cell_of(X).bincount(minlength=7)
    assert layout.near.shape == (7, 30)
    assert int(count.min()) > 60
    assert int(count.max()) < 300


def many(n=1600):
    X, y = map(torch.from_numpy, wavy(n))
    return train(X[:120], y[:120])[0], X, y


POLICY = Policy(exact_rows=100, landmarks=60, neighbours=20)


def test_blocks_predict_where_they_leave_out_as_well(monkeypatch):
    trained, X, y = many()
    monkeypatch.setattr(conditioning, "QUICK_LOSS", 1.05)
    chosen = condition(trained, X, y, POLICY)
    assert chosen.block_rows == 160
    monkeypatch.setattr(conditioning, "QUICK_LOSS", 0.0)
    own = condition(trained, X, y, POLICY)
    assert own.block_rows == 0
    rows = torch.arange(0, 1600, 7)
    both = [conditioning.normal_crps(y[rows], *gp.left_out(rows)) for gp in (chosen, own)]
    assert both[0] < 1.05 * both[1]


def test_an_exact_gp_answers_from_blocks_where_these_leave_out_as_well(monkeypatch):
    trained, X, y = many()
    exact = replace(POLICY, exact_rows=1600)
    monkeypatch.setattr(conditioning, "QUICK_LOSS", 1.05)
    assert condition(trained, X, y, exact).block_rows == 160
    monkeypatch.setattr(conditioning, "QUICK_LOSS", 0.0)
    chosen = condition(trained, X, y, exact)
    assert isinstance(chosen, ExactPosterior)
    # Asked for by name, or with no more rows than landmarks, it is exact without a comparison.
    for few in (replace(exact, exact_rows=None), replace(exact, landmarks=1600)):
        assert isinstance(condition(trained, X, y, few), ExactPosterior)
    monkeypatch.setattr(conditioning, "_cheaper", None)  # nothing is compared again
    assert isinstance(condition(chosen, X[:1560], y[:1560], exact), ExactPosterior)


def test_learnings_share_factors_where_the_first_one_does(monkeypatch):
    """Each comparison takes as long as conditioning on all rows."""
    trained, X, y = many()
    policy = replace(POLICY, learned_rows=120, learnings=2)
    monkeypatch.setattr(conditioning, "QUICK_LOSS", 1.05)
    part = learn_gaussian(trained, policy=policy)
    model = part.conditioned_on_all(X, y, torch.arange(120))
    assert shares_factors(model.posterior)
    monkeypatch.setattr(conditioning, "_cheaper", None)
    every = torch.arange(len(y))
    found = model.out_of_training(learning_pairs(every, 0), every, 0)
    assert all(shares_factors(fit.posterior) for fit in found.refits)


def test_what_was_chosen_stays_for_further_rows(monkeypatch):
    trained, X, y = many()
    monkeypatch.setattr(conditioning, "QUICK_LOSS", 1.05)
    chosen = condition(trained, X, y, POLICY)
    monkeypatch.setattr(conditioning, "_cheaper", None)  # nothing is compared again
    assert condition(chosen, X[:1560], y[:1560], POLICY).block_rows
    assert chosen.extended(X[:3] + 0.1, y[:3]).block_rows


def test_neighbours_that_were_asked_for_by_name_are_each_points_own():
    trained, X, y = many()
    assert condition(trained, X, y, Policy(exact_rows=0, landmarks=0)).block_rows == 0


def testnormal_crps_is_the_one_of_a_distribution():
    y, mean, sigma = torch.tensor([[0.3, -2.0], [0.0, 1.0], [1.0, 2.5]]).double()
    at = torch.linspace(-40, 40, 400_001, dtype=torch.float64)
    law = torch.distributions.Normal(mean[:, None], sigma[:, None])
    square = (law.cdf(at) - (at >= y[:, None]).double()).square()
    expected = torch.trapezoid(square, at).mean()
    assert conditioning.normal_crps(y, mean, sigma) == pytest.approx(float(expected), rel=1e-4)


def test_answers_do_not_depend_on_threads():
    given, units, S = setting(n=90)
    gp, before = blocks_of(given, units), torch.get_num_threads()
    try:
        torch.set_num_threads(1)
        one = gp.mean_and_sigma(S)
        torch.set_num_threads(2)
        same(blocks_of(given, units).mean_and_sigma(S), one, rtol=1e-13, atol=1e-13)
    finally:
        torch.set_num_threads(before)


@pytest.mark.slow
def test_the_default_beyond_exact_rows_answers_from_blocks():
    X, y = wavy(2600)
    model = SharpGPRegressor(base="matern32", random_state=0).fit(X[:2400], y[:2400])
    assert model.posterior_.n_neighbours == 768
    ends = model.predict_interval(X[2400:], 0.9)
    covered = np.mean((ends[:, 0] <= y[2400:]) & (y[2400:] <= ends[:, 1]))
    assert 0.82 < covered < 0.97
