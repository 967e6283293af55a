"""A pilot on some of many rows: what it drops, what it keeps, and where there is none."""

import pytest
import torch

from helpers import wavy
from sharpgp import SharpGPRegressor
from sharpgp.models import bases as bases_module
from sharpgp.models import pilot
from sharpgp.models.bases import Bases
from sharpgp.models.pilot import promising
from sharpgp.models.pool import Member, PooledModel
from sharpgp.policy import Policy
from sharpgp.rows import Rows

N = 240
X, Y = (torch.from_numpy(part) for part in wavy(N, seed=3))
EVERY = torch.arange(N)
LEARNED = EVERY[:160:4]


@pytest.fixture(autouse=True)
def few(monkeypatch):
    """A pilot of 100 rows."""
    for module in (pilot, bases_module):
        monkeypatch.setattr(module, "PILOT_ROWS", 100)


def promised(y=Y, labels=EVERY):
    models = Bases(["rbf", "extra_trees"], seed=0).learn(X[LEARNED], y[LEARNED])
    return promising(models, Rows(X), y, labels, LEARNED, 0)


def test_trees_far_behind_are_dropped_and_others_may_catch_up(monkeypatch):
    exact = torch.sin(2.0 * X[:, 0])
    assert promised(exact) == ["rbf"]
    monkeypatch.setattr(pilot, "PILOT_MARGIN", 1e9)
    assert promised(exact) == ["rbf", "extra_trees"]


def test_rows_that_a_gp_has_learned_from_do_not_judge_it(monkeypatch):
    asked = []

    def pooled(models, held):
        asked.extend(held)
        return PooledModel([], *torch.ones(3, 2), [Member("rbf", 1.0, 0.1)]), held[0]

    monkeypatch.setattr(pilot, "pooled", pooled)
    assert promised() == ["rbf"]
    # These come first among the rows of the pilot.
    assert [one.rows.tolist() for one in asked] == [list(range(len(LEARNED), 100))] * 2
    # Of pairs, one row takes part, and none whose other one was learned from.
    assert promised(labels=EVERY // 2) == ["rbf"]
    assert len(asked[-1].rows) == 60
    assert promised(labels=EVERY // 20) == ["rbf", "extra_trees"]  # too few are left
    assert len(asked) == 4


def test_a_gp_without_weight_is_dropped_however_close_it_is(monkeypatch):
    members = [Member("rbf", 0.0, 0.1), Member("extra_trees", 1.0, 0.1)]
    pool = PooledModel([], *torch.ones(3, 2), members)
    monkeypatch.setattr(pilot, "pooled", lambda models, held: (pool, held[0]))
    assert promised() == ["extra_trees"]


def test_named_models_sparse_gps_and_few_rows_have_no_pilot(monkeypatch):
    monkeypatch.setattr(bases_module, "promising", None)
    models = dict.fromkeys(("rbf", "extra_trees"))
    assert Bases(["rbf", "extra_trees"]).promising(models, X, Y) == models
    assert Bases().promising(models, X[:199], Y[:199]) == models
    assert Bases(approximation="sparse").promising(models, X, Y) == models
    with pytest.raises(TypeError):
        Bases().promising(models, X, Y)


def test_a_default_fit_learns_what_the_pilot_left(monkeypatch):
    monkeypatch.setattr(bases_module, "promising", lambda models, *_: ["rbf", "extra_trees"])
    pool = Policy.choose(N, X.shape[1]).pool
    assert {"additive", "prior"} < set(pool)
    model = SharpGPRegressor(random_state=0).fit(X.numpy(), Y.numpy())
    assert {one.name for one in model.members_} == {"rbf", "extra_trees"}
