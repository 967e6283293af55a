"""What changes beyond some thousands of rows, with the thresholds lowered to some dozens."""

from functools import cache

import numpy as np
import pytest
import torch
from sharpgp.gp.local.training import train_neighbours
from sharpgp.gp.sizes import MOST_CALIBRATING, approximation_for, drawn_rows

from helpers import wavy
from sharpgp import Exact, Neighbours, SharpGPRegressor, Sparse, persistence
from sharpgp._rows import holdout
from sharpgp.calibration.methods import exact
from sharpgp.gp import compute, sizes
from sharpgp.gp.local import posterior
from sharpgp.gp.local.posterior import LocalPosterior
from sharpgp.models import bases, folds, gaussian, splitters, trees
from sharpgp.models.bases import OF_MANY, pool_for
from sharpgp.models.folds import judging_rows
from sharpgp.models.gaussian import learn_gaussian
from sharpgp.models.model import Learner
from sharpgp.models.pool import PooledModel
from sharpgp.models.trees import TreeModel

MANY = 100
N = 160
X, Y = wavy(N, seed=3)
X_NEW, Y_NEW = wavy(40, seed=4)
POINTS, TARGETS = torch.from_numpy(X), torch.from_numpy(Y)


@pytest.fixture(autouse=True)
def _lowered(monkeypatch):
    for module in (bases, exact, gaussian, posterior, splitters, trees):
        monkeypatch.setattr(module, "MOST_LEFT_OUT", MANY)
    monkeypatch.setattr(exact, "MOST_WITHOUT_HOLDOUT", 50)
    monkeypatch.setitem(sizes.MOST_CONDITIONED, "cpu", MANY)


def fitted(**settings) -> SharpGPRegressor:
    """The default, from rows of its own to calibrate with."""
    return SharpGPRegressor(calibration="exact", random_state=0, **settings)


@cache
def trained() -> LocalPosterior:
    return train_neighbours(POINTS, TARGETS, m=12)[0]


def learned(size: int = 1) -> dict[str, Learner]:
    """A GP and trees, with rows that belong together in groups of a size."""
    labels = torch.arange(N) // size
    return {
        "matern32": learn_gaussian(trained(), 0, labels),
        "random_forest": TreeModel("random_forest", POINTS, TARGETS, 0, labels),
    }


# ------------------------------------------------------------------ sizes


def test_auto_takes_neighbours_where_they_can_be_found():
    def auto(n, **settings):
        return approximation_for(n, "cpu", **settings)

    assert auto(MANY, searched=False, n_features=8) is None
    assert auto(MANY + 1, searched=False, n_features=8) == Neighbours(128)
    assert auto(100_001, searched=False, n_features=8) == Neighbours(64)  # they are nearer
    assert auto(10**6, searched=False, n_features=11) == Sparse(300)  # trees look at every point
    assert auto(10**6, searched=False) == Sparse(300)  # no stationary kernel
    assert auto(10**6, n_features=8) == Sparse(300)  # a method searches with it
    assert approximation_for(10**6, "cuda", searched=False, n_features=30) == Neighbours(64)


def test_a_fraction_holds_out_no_more_than_calibration_needs():
    labels = torch.arange(5 * MOST_CALIBRATING)
    assert len(holdout(labels, 0.25, 0)[1]) == MOST_CALIBRATING - 1  # whole ranks
    assert len(holdout(labels, 2 * MOST_CALIBRATING, 0)[1]) == 2 * MOST_CALIBRATING


@pytest.mark.parametrize("size", [1, 3])
def test_judging_rows_are_a_part_in_whole_labels(size):
    labels = torch.arange(N) // size
    rest, judging = judging_rows(labels)
    assert torch.equal(torch.cat([rest, judging]).sort().values, torch.arange(N))
    assert abs(len(judging) - N // 10) < size
    assert not torch.isin(labels[rest], labels[judging]).any()
    assert len(judging_rows(torch.arange(10**6))[1]) == sizes.MOST_JUDGING
    if size == 1:
        assert set(judging.tolist()) == set(drawn_rows(N, N // 10).tolist())


# ------------------------------------------------------------------ a GP of many points


def test_leave_one_out_of_some_points_is_that_of_all():
    gp = trained()
    some, rows = gp.sampled
    theta = torch.stack([gp.theta_R, 1.5 * gp.theta_R])
    assert len(rows) == some.n_train == MANY
    torch.testing.assert_close(some.X_train, POINTS[rows])
    torch.testing.assert_close(some.y_train, TARGETS[rows])
    for ours, all_of_them in zip(some.loo(theta), gp.loo(theta), strict=True):
        torch.testing.assert_close(ours, all_of_them[:, rows])
    fewer = some.at_rows(torch.tensor([4, 2]))
    torch.testing.assert_close(fewer.loo(theta)[0], gp.loo(theta)[0][:, rows[[4, 2]]])
    assert torch.equal(some.mean(POINTS[:3]), gp.mean(POINTS[:3]))


def test_a_gp_is_judged_by_the_rows_that_judge_all_models():
    gp = trained()
    model = learn_gaussian(gp)
    assert len(model.scores) == MANY
    held = model.leave_one_out(torch.arange(N), 0)
    _, judging = judging_rows(torch.arange(N))
    assert torch.equal(held.rows, judging)
    expected = gp.loo(gp.theta_R[None])[0][0, judging]
    torch.testing.assert_close(held.law.location, expected)
    torch.testing.assert_close(held.scores, (TARGETS[judging] - expected) / held.law.spread)
    # Rows that share a label are left out together: as a GP without them predicts.
    labels = torch.arange(N) // 2
    held = model.leave_one_out(labels, 0)
    rest, judging = judging_rows(labels)
    assert torch.equal(held.rows, judging)
    torch.testing.assert_close(held.law.location, gp.at_rows(rest).mean(POINTS[judging]))


def test_what_has_learned_from_many_rows_can_be_extended_and_updated():
    gp = trained()
    model = learn_gaussian(gp)
    more, targets = torch.from_numpy(X_NEW), torch.from_numpy(Y_NEW)
    for other in (model.extended(more, targets), model.updated(more, targets)):
        assert other.posterior.n_train == N + len(Y_NEW)
        assert torch.isfinite(other.law(more).spread).all()
    assert len(model.updated(more, targets).scores) == MANY


# ------------------------------------------------------------------ the estimator


def test_the_default_pools_trees_of_many_rows(tmp_path):
    model = fitted(cal_size=39).fit(X, Y)
    assert {one.name for one in model.base_} == set(OF_MANY)
    gps = [one.gp for one in model.calibrated_.model.models if one.gp is not None]
    assert all((gp.n_inducing is None) == (gp.covariance.kind == "matern32") for gp in gps)
    ends = model.predict_interval(X_NEW, 0.8)
    assert np.mean((ends[:, 0] <= Y_NEW) & (ends[:, 1] >= Y_NEW)) > 0.5
    persistence.save(model, tmp_path / "model")
    again = persistence.load(tmp_path / "model")
    np.testing.assert_array_equal(again.predict_interval(X_NEW, 0.8), ends)
    for one in (model, again):
        one.update(X_NEW, Y_NEW)
        assert one.calibrated_.n_cal == 39 + len(Y_NEW)
    np.testing.assert_array_equal(
        again.predict_interval(X_NEW, 0.8), model.predict_interval(X_NEW, 0.8)
    )
    assert np.isfinite(
        model.calibrated_.condition_on_observations(X_NEW, Y_NEW).predict_mean(POINTS)
    ).all()


@pytest.mark.slow
def test_trees_that_grow_beside_the_gps_are_the_same(monkeypatch):
    """As they do where a GPU trains these."""
    names = ["matern32", "random_forest", "boosted_trees"]
    one_by_one = bases.Bases(names, seed=0).learned(POINTS, TARGETS)
    monkeypatch.setattr(bases, "beside", lambda apart: compute.beside(True))
    side_by_side = bases.Bases(names, seed=0).learned(POINTS, TARGETS)
    assert list(side_by_side) == list(one_by_one) == names
    for name, model in one_by_one.items():
        for found in ("location", "spread"):
            expected = getattr(model.law(POINTS), found)
            assert torch.equal(getattr(side_by_side[name].law(POINTS), found), expected)


def test_what_is_pooled():
    assert pool_for(20_000) == pool_for(10**6, device_type="cuda") == OF_MANY
    assert set(OF_MANY) - set(pool_for(10**6)) == {"rbf"}
    assert set(OF_MANY) - set(pool_for(20_000, n_features=11)) == {"matern32"}
    assert pool_for(10**6, n_features=11) == pool_for(20_000, n_features=11)
    assert pool_for(20_000, "high") == OF_MANY
    assert pool_for(20_000, "low") == ("matern32",)


@pytest.mark.parametrize("size", [1, 3])
def test_nothing_but_scores_comes_from_the_calibration_rows(size):
    """What keeps the guarantee: other targets there change no location, spread or weight."""
    models = learned(size)
    groups = {} if size == 1 else {"groups": np.arange(N) // size, "groups_cal": np.arange(40) // 2}
    one, other = (
        Exact().fit(models, X_NEW, Y_NEW + shift, **groups).model
        for shift in (0.0, np.arange(40.0))
    )
    assert torch.equal(one.weights, other.weights)
    points = torch.from_numpy(X_NEW)
    assert torch.equal(one.location(points), other.location(points))
    assert torch.equal(one.law(points).spread, other.law(points).spread)


def test_models_without_weight_are_asked_only_for_gradients(monkeypatch):
    models = learned()
    numbers = torch.tensor([[0.0, 1.0], [1.0, 2.0]], dtype=torch.float64)
    both = PooledModel(list(models.values()), *numbers, torch.zeros(3), [])
    monkeypatch.setattr(type(both.gp), "mean", None)
    trees_alone = models["random_forest"]
    assert torch.equal(both.location(POINTS), trees_alone.location(POINTS))
    torch.testing.assert_close(both.law(POINTS).spread, 2.0 * trees_alone.law(POINTS).spread)
    monkeypatch.undo()
    inputs = POINTS[:5].clone().requires_grad_()
    both.location(inputs).sum().backward()
    assert torch.equal(inputs.grad, torch.zeros_like(inputs))


def test_folds_judge_as_many_rows_as_they_say(monkeypatch):
    monkeypatch.setattr(folds, "MOST_JUDGING", 7)
    assert len(judging_rows(torch.arange(N))[1]) == 7
