"""What changes beyond some thousands of rows, with a policy for some dozens."""

from dataclasses import replace
from functools import cache

import numpy as np
import pytest
import torch

from helpers import wavy
from sharpgp import CrossValidated, Exact, Neighbours, Sparse, persistence
from sharpgp.data.rows import holdout
from sharpgp.exceptions import InvalidInputError
from sharpgp.gp import train
from sharpgp.gp.conditioning import condition, train_chosen
from sharpgp.gp.exact.posterior import ExactPosterior
from sharpgp.gp.kernels.additive import Additive
from sharpgp.gp.kernels.covariance import Stationary
from sharpgp.gp.local import posterior
from sharpgp.gp.local.posterior import LocalPosterior
from sharpgp.gp.wrappers.target_warp import WarpedPosterior, train_warped
from sharpgp.metrics import interval_coverage
from sharpgp.models.bases import Bases
from sharpgp.models.gaussian import gaussian_model as gaussian
from sharpgp.models.gaussian.gaussian_model import drawn_part, learn_gaussian, magnitude
from sharpgp.models.model import Learner
from sharpgp.models.pool import PooledModel
from sharpgp.models.splitters import learning_pairs
from sharpgp.models.trees.tree_model import TreeModel
from sharpgp.policy import (
    EXACT_ROWS,
    FEW_LEARNINGS,
    LANDMARK_ENTRIES,
    LANDMARKS,
    LEARNINGS,
    MOST_LEFT_OUT,
    PRIOR_POOLED,
    SCORED_ROWS,
    SOME_LEARNINGS,
    Policy,
    as_approximation,
)

MANY = 100
N = 160
X, Y = wavy(N, seed=3)
X_NEW, Y_NEW = wavy(40, seed=4)
POINTS, TARGETS = torch.from_numpy(X), torch.from_numpy(Y)
#: Learned from 60 rows, exact up to 100.
FEW = Policy(learned_rows=60, exact_rows=MANY, landmarks=20, neighbours=12)


class SmallBases(Bases):
    """The same models under the sizes of :data:`FEW`."""

    def policy(self, n: int, d: int, device_type: str = "cpu") -> Policy:
        sizes = ("learned_rows", "exact_rows", "landmarks", "neighbours")
        few = {name: getattr(FEW, name) for name in sizes}
        return replace(super().policy(n, d, device_type), **few)


def lawful(models: dict[str, Learner], X: np.ndarray, y: np.ndarray) -> float:
    """Mean CRPS of ``cv`` from these models."""
    found = CrossValidated(random_state=0).fit(models)
    return float(found.predict_dist(X).crps(y).mean())


@cache
def trained() -> LocalPosterior:
    gp, _ = train(POINTS, TARGETS, "matern32", most=MANY)
    return LocalPosterior.from_trained(gp, POINTS, TARGETS, landmarks=0, neighbours=12)


def learned() -> dict[str, Learner]:
    """A GP and trees."""
    return {
        "matern32": learn_gaussian(trained(), 0, torch.arange(N), policy=FEW),
        "random_forest": TreeModel("random_forest", POINTS, TARGETS, 0),
    }


# ------------------------------------------------------------------ the policy


def test_a_policy_says_how_models_are_learned():
    few, many = Policy.choose(EXACT_ROWS, 8), Policy.choose(EXACT_ROWS + 1, 8)
    assert Policy.choose(PRIOR_POOLED, 8).pool == (*many.pool, "prior")
    assert few.is_exact(EXACT_ROWS)
    assert not many.is_exact(EXACT_ROWS + 1)
    assert (few.learnings, many.learnings) == (SOME_LEARNINGS, FEW_LEARNINGS)
    assert [Policy.choose(rows, 8).learnings for rows in (625, 626)] == [LEARNINGS, SOME_LEARNINGS]
    assert many.landmarks == LANDMARKS
    assert Policy.choose(10**6, 8).landmarks == LANDMARK_ENTRIES // 10**6
    exact = Policy.choose(10**6, 8, approximation="exact")
    assert exact.is_exact(10**6)
    assert exact.learnings == LEARNINGS
    assert Policy().is_exact(10**6)
    sparse = Policy.choose(50, 8, approximation=Sparse(100))
    assert (sparse.inducing, sparse.is_exact(50)) == (50, True)
    near = Policy.choose(50, 8, approximation=Neighbours(7))
    assert (near.exact_rows, near.landmarks, near.neighbours) == (0, 0, 7)
    assert not near.is_exact(1)
    # What an additive GP is asked to learn depends on the lengthscales that differ.
    assert "additive" not in Policy.choose(50, 30).pool
    assert "additive" in Policy.choose(50, 30, tied_columns=20).pool
    # Boosted trees of few rows have a constant spread.
    pools = [Policy.choose(rows, 8).pool for rows in (MOST_LEFT_OUT, MOST_LEFT_OUT + 1)]
    assert ["boosted_trees" in pool for pool in pools] == [False, True]


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        ("auto", "auto"),
        ("exact", "exact"),
        ("sparse", Sparse(50)),
        (Sparse(7), Sparse(7)),
        ("neighbours", Neighbours(128)),
    ],
)
def test_approximations_by_name(given, expected):
    assert as_approximation(given, 50) == expected


@pytest.mark.parametrize("given", [Neighbours(0), Sparse(0), "fast", 7])
def test_other_approximations_are_refused(given):
    with pytest.raises(InvalidInputError, match=r"(approximation|Neighbours: m|Sparse: m): exp"):
        Policy.choose(50, 8, approximation=given)
    with pytest.raises(InvalidInputError, match="effort: expected"):
        Policy.choose(50, 8, effort="much")


def test_a_policy_prints_what_there_is():
    lines = str(Policy.choose(12_345, 8)).splitlines()
    shown = dict(line.split(maxsplit=1) for line in lines)
    assert (shown["rows"], shown["learned_rows"]) == ("12,345", "500")
    assert "inducing" not in shown
    assert "exact_rows" not in str(Policy())
    sparse = Policy.choose(99, 8, approximation=Sparse(30))
    assert ">30</td>" in sparse._repr_html_()


def test_more_rows_than_a_policy_scores_are_scored_in_part():
    pairs = learning_pairs(torch.arange(N), 0, Policy(scored_rows=30))
    assert [len(test) for _, test in pairs] == [6] * 5
    tested = torch.cat([test for _, test in pairs])
    assert len(tested.unique()) == 30
    assert all(len(rest) == N - 6 for rest, _ in pairs)
    again = learning_pairs(torch.arange(N), 1, Policy(scored_rows=30))
    other = torch.cat([test for _, test in again])
    assert len(other) == 30
    assert not torch.equal(tested.sort().values, other.sort().values)
    labels = torch.arange(N) // 4
    for rest, test in learning_pairs(labels, 0, Policy(scored_rows=30)):
        assert not torch.isin(labels[rest], labels[test]).any()


def test_a_fraction_holds_out_no_more_than_calibration_needs():
    labels = torch.arange(5 * SCORED_ROWS)
    assert len(holdout(labels, 0.25, 0)[1]) == SCORED_ROWS - 1  # whole ranks
    assert len(holdout(labels, 2 * SCORED_ROWS, 0)[1]) == 2 * SCORED_ROWS


# ------------------------------------------------------------------ conditioning


def test_beyond_exact_rows_landmarks_and_neighbours_are_conditioned_on():
    gp, _ = train(POINTS[:60], TARGETS[:60], "matern52")
    assert type(condition(gp, POINTS[:MANY], TARGETS[:MANY], FEW)) is ExactPosterior
    local = condition(gp, POINTS, TARGETS, FEW)
    assert (local.landmarks, local.n_neighbours, local.n_train) == (20, 12, N)
    assert torch.equal(local.theta_R, gp.theta_R)
    whole = condition(gp, POINTS, TARGETS, Policy())
    apart = (local.mean(POINTS) - whole.mean(POINTS)).abs().max()
    assert 0 < apart < 0.2 * TARGETS.std()
    every = condition(gp, POINTS, TARGETS, replace(FEW, landmarks=N - 1))
    torch.testing.assert_close(every.mean(POINTS), whole.mean(POINTS), rtol=1e-6, atol=1e-6)


def test_a_warp_stays_around_what_is_conditioned_on_more_rows():
    warped = train_warped(POINTS[:60], TARGETS[:60].exp(), Stationary("rbf", POINTS.shape[1]))
    local = condition(warped, POINTS, TARGETS.exp(), FEW)
    assert isinstance(local, WarpedPosterior)
    assert isinstance(local.base, LocalPosterior)
    assert local.warp == warped.warp
    torch.testing.assert_close(local.y_train, TARGETS.exp())
    inside = condition(warped.base, POINTS, warped.warp.forward(TARGETS.exp()), FEW)
    torch.testing.assert_close(local.base.mean(POINTS), inside.mean(POINTS))
    exact = condition(warped, POINTS, TARGETS.exp(), Policy())
    assert isinstance(exact.base, ExactPosterior)
    every = condition(warped, POINTS, TARGETS.exp(), replace(FEW, landmarks=N - 1))
    for ours, theirs in zip(
        every.mean_and_sigma(POINTS), exact.mean_and_sigma(POINTS), strict=True
    ):
        torch.testing.assert_close(ours, theirs, rtol=1e-5, atol=1e-5)


def test_what_is_trained_is_what_the_policy_says():
    few = {"tolerance": 1e-3, "most": 60}
    assert train_chosen(POINTS, TARGETS, policy=FEW, searched=False, **few).landmarks == 20
    assert train_chosen(POINTS, TARGETS, policy=FEW, searched=True).n_neighbours is None
    near = Policy.choose(N, 2, approximation=Neighbours(7))
    for searched in (True, False):
        assert train_chosen(POINTS, TARGETS, policy=near, searched=searched).n_neighbours == 7
    sparse = Policy.choose(N, 2, approximation=Sparse(7))
    assert train_chosen(POINTS, TARGETS, policy=sparse).n_inducing == 7


# ------------------------------------------------------------------ learned from a part


def test_what_is_learned_depends_on_the_part_and_the_part_on_the_seed():
    models = {seed: SmallBases("rbf", seed=seed).learned(POINTS, TARGETS)["rbf"] for seed in (0, 1)}
    every = torch.arange(N)
    part = drawn_part((every, every[:0]), 0, 60)
    assert torch.equal(models[0].learned_rows, part)
    other = TARGETS.clone()
    rest = ~torch.isin(every, part)
    other[rest] = other[rest].flip(0)
    again = SmallBases("rbf", seed=0).learned(POINTS, other)["rbf"]
    assert torch.equal(again.posterior.theta_R, models[0].posterior.theta_R)
    assert not torch.allclose(models[1].posterior.theta_R, models[0].posterior.theta_R)
    assert not torch.allclose(again.location(POINTS), models[0].location(POINTS))


@pytest.fixture
def every_learning(monkeypatch):
    """All learnings predict, so that each can be compared."""
    monkeypatch.setattr(gaussian, "QUICK_LOSS", 0.0)


@pytest.mark.usefixtures("every_learning")
def test_every_row_is_scored_by_the_average_of_the_learnings_that_have_not_seen_it():
    """By hand: GPs conditioned without the row, under the hyperparameters of each of these."""
    every = torch.arange(80)
    X, y = POINTS[:80], TARGETS[:80]
    model = learn_gaussian(train(X, y)[0], 0, every, policy=Policy(learned_rows=30))
    found = model.out_of_training(learning_pairs(every, 0), every, 0)
    assert torch.equal(found.held.rows, every)
    seen = torch.stack([torch.isin(every, fit.learned_rows) for fit in found.refits])
    assert seen.sum(1).tolist() == [30] * 5
    assert (~seen).sum(0).min() >= 1
    alone = torch.empty(2, 5, 80, dtype=torch.float64)
    for k, fit in enumerate(found.refits):
        for i in range(80):
            others = every != i
            gp = fit.posterior.conditioned_on(X[others], y[others])
            mean, sigma = gp.mean_and_sigma(X[i : i + 1])
            alone[:, k, i] = torch.stack([mean[0], sigma[0] * fit._factor(X[i : i + 1])[0]])
    mean, sigma = alone
    for k, fit in enumerate(found.refits):
        # Units are those of points that a learning has not seen.
        z = ((y - mean[k]) / sigma[k])[~seen[k]]
        torch.testing.assert_close(fit.unit, magnitude(z))
        sigma[k] *= fit.unit
    share = (~seen).double() / (~seen).sum(0)
    torch.testing.assert_close(found.held.law.location, (share * mean).sum(0))
    torch.testing.assert_close(found.held.law.spread, (share * sigma.square()).sum(0).sqrt())
    torch.testing.assert_close(
        found.held.scores, (y - found.held.law.location) / found.held.law.spread
    )


@pytest.mark.usefixtures("every_learning")
@pytest.mark.parametrize("few", [True, False])
def test_the_first_learning_is_the_one_of_the_first_part(few, monkeypatch):
    every = torch.arange(N)
    pairs = learning_pairs(every, 0)
    bases = (SmallBases if few else Bases)("rbf", seed=0)
    (model,) = bases.learned(POINTS, TARGETS, pair=pairs[0]).values()
    rows = drawn_part(pairs[0], 0, 60 if few else 500)
    assert len(rows) == (60 if few else 128)
    assert torch.equal(model.learned_rows, rows)
    assert not torch.isin(pairs[0][1], rows).any()
    learned, real = [], gaussian.same_spread
    monkeypatch.setattr(
        gaussian, "same_spread", lambda *given: learned.append(given) or real(*given)
    )
    found = model.out_of_training(pairs, every, 0)
    assert len(learned) == 4
    first = found.refits[0]
    assert torch.equal(first.posterior.theta_R, model.posterior.theta_R)
    assert torch.equal(first.learned_rows, rows)
    assert isinstance(first.posterior, LocalPosterior) == few


def uneven(n: int) -> tuple[torch.Tensor, torch.Tensor]:
    """Noise ten times as large for x > 0."""
    rng = np.random.default_rng(0)
    x = rng.uniform(-2, 2, (n, 2))
    noise = np.where(x[:, 0] > 0, 0.5, 0.05) * rng.normal(size=n)
    return torch.from_numpy(x), torch.from_numpy(np.sin(2 * x[:, 1]) + noise)


def test_a_scale_model_of_a_part_speaks_of_all_points(tmp_path):
    X, y = uneven(200)
    model = learn_gaussian(train(X, y, most=120)[0], policy=Policy(learned_rows=120))
    assert model.choice.share > 0
    held = model.leave_one_out(torch.arange(200), 0)
    mean, sigma = model.posterior.loo(model.posterior.theta_R[None])
    torch.testing.assert_close(held.law.spread, sigma[0] * model._factor(X) * model.unit)
    torch.testing.assert_close(held.scores, (y - mean[0]) / held.law.spread)
    more = model.extended(X[:3] + 0.1, y[:3])
    assert len(more.leave_one_out(torch.arange(203), 0).scores) == 203
    persistence.save(model, tmp_path / "model.sgp")
    again = persistence.load(tmp_path / "model.sgp")
    torch.testing.assert_close(again.leave_one_out(torch.arange(200), 0).scores, held.scores)


def test_crps_falls_with_rows_beyond_exact_conditioning():
    """Twice the rows, from 300 to 1,200 of a smooth function, make nothing worse."""
    generator = np.random.default_rng(0)

    def rows(n):
        x = generator.uniform(-2, 2, (n, 3))
        y = np.sin(2 * x[:, 0]) * x[:, 1] + 0.5 * x[:, 2] ** 2 + 0.1 * generator.normal(size=n)
        return x, y

    x, y = rows(1200)
    test = rows(500)
    found = []
    for n in (300, 600, 1200):
        given = torch.from_numpy(x[:n]), torch.from_numpy(y[:n])
        pair = learning_pairs(torch.arange(n), 0)[0]
        models = SmallBases("rbf", seed=0, effort="low").learned(*given, pair=pair)
        assert isinstance(models["rbf"].posterior, LocalPosterior)
        found.append(lawful(models, *test))
    assert found[1] < 1.03 * found[0]
    assert found[2] < 1.03 * found[1]
    assert found[2] < 0.9 * found[0]


def test_a_pool_beyond_exact_conditioning_covers_and_is_saved(tmp_path):
    names = ["rbf", "additive", "extra_trees"]
    pair = learning_pairs(torch.arange(N), 0)[0]
    models = SmallBases(names, seed=0).learned(POINTS, TARGETS, pair=pair)
    assert isinstance(models["additive"].posterior.covariance, Additive)
    assert all(isinstance(models[name].posterior, LocalPosterior) for name in names[:2])
    found = CrossValidated(random_state=0).fit(models)
    assert found.n_cal == N
    new, y_new = wavy(500, seed=5)
    ends = found.predict_interval(new, 0.9)
    assert 0.78 < interval_coverage(y_new, *ends.T) < 0.97
    persistence.save(found, tmp_path / "pool.sgp")
    again = persistence.load(tmp_path / "pool.sgp")
    assert torch.equal(again.predict_interval(new, 0.9), ends)


# ------------------------------------------------------------------ a GP of many points


def test_leave_one_out_of_some_points_is_that_of_all(monkeypatch):
    monkeypatch.setattr(posterior, "SCORED_ROWS", MANY)
    gp = trained()
    rows, theta = gp.scored_rows, gp.theta_R[None]
    assert len(rows) == len(rows.unique()) == MANY
    for ours, all_of_them in zip(gp.left_out(rows), gp.loo(theta), strict=True):
        torch.testing.assert_close(ours, all_of_them[0, rows])
    held = learn_gaussian(gp, policy=FEW).leave_one_out(torch.arange(N), 0)
    assert torch.equal(held.rows, rows)
    torch.testing.assert_close(held.law.location, gp.loo(theta)[0][0, rows])


def test_what_has_learned_from_many_rows_can_be_extended_and_updated():
    model = learn_gaussian(trained(), policy=FEW)
    more, targets = torch.from_numpy(X_NEW), torch.from_numpy(Y_NEW)
    for other in (model.extended(more, targets), model.updated(more, targets)):
        assert other.posterior.n_train == N + len(Y_NEW)
        assert torch.isfinite(other.law(more).spread).all()


# ------------------------------------------------------------------ pools


def test_members_that_score_other_rows_are_pooled_by_those_of_all(monkeypatch):
    """A default fit to more than 5,000 targets with a bound stopped here."""
    monkeypatch.setattr(posterior, "SCORED_ROWS", MANY)
    models = learned()
    pool = PooledModel(list(models.values()), *torch.ones(3, len(models)).double(), [])
    held = pool.leave_one_out(torch.arange(N), 0)
    assert MANY <= len(held.rows) < N
    assert len(held.law) == len(held.scores) == len(held.rows)


@pytest.mark.parametrize("size", [1, 3])
def test_nothing_but_scores_comes_from_the_calibration_rows(size):
    """What keeps the guarantee: other targets there change no location, spread or weight."""
    models = learned()
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
