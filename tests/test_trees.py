"""Tree models: arrays against scikit-learn's own trees, spreads against slow oracles, files."""

import copy
from functools import cache

import numpy as np
import pytest
import torch
from sklearn.ensemble import (
    ExtraTreesRegressor,
    HistGradientBoostingRegressor,
    RandomForestRegressor,
)

from helpers import marked
from sharpgp import persistence
from sharpgp.exceptions import SavedModelError
from sharpgp.models.trees import arrays as tree_arrays
from sharpgp.models.trees import boosting, forests
from sharpgp.models.trees import tree_model as trees
from sharpgp.models.trees import tree_sums as summed_trees
from sharpgp.models.trees.arrays import TreeArrays
from sharpgp.models.trees.boosting import BoostedTrees, ScaledBoosting
from sharpgp.models.trees.forests import ExtraTrees, LeafForest, TargetCells
from sharpgp.models.trees.tree_model import TREES, TreeModel
from sharpgp.models.trees.tree_sums import SummedTrees
from sharpgp.policy import drawn_rows

#: Everything that grows.
GROWN = (ExtraTrees, LeafForest, BoostedTrees, ScaledBoosting)


def problem(n: int, seed: int = 0):
    """A step, and noise that is ten times as large on its far side."""
    rng = np.random.default_rng(seed)
    X = rng.uniform(-1, 1, (n, 3))
    scale = np.where(X[:, 1] > 0, 1.0, 0.1)
    return X, 5.0 * (X[:, 0] > 0) + scale * rng.normal(size=n), scale


X, Y, _ = problem(120)
# Also the training points themselves, and points on a grid where thresholds can lie.
X_NEW = np.concatenate([problem(40, seed=1)[0], X[:20], np.round(X[20:40], 1)])


# ------------------------------------------------------------------ trees as arrays


@pytest.mark.parametrize("kind", [ExtraTreesRegressor, RandomForestRegressor])
@pytest.mark.parametrize("least", [1, 5])
def test_forests_as_arrays_answer_as_they_do(kind, least):
    forest = kind(20, min_samples_leaf=least, random_state=0).fit(X, Y)
    arrays = TreeArrays.of_trees(one.tree_ for one in forest.estimators_)
    found = arrays.value[arrays.leaves(X_NEW)]
    each = np.stack([tree.predict(X_NEW) for tree in forest.estimators_], 1)
    np.testing.assert_array_equal(found, each)
    np.testing.assert_allclose(found.mean(1), forest.predict(X_NEW), rtol=0, atol=1e-12)


@pytest.mark.parametrize("least", [1, 3])
def test_trees_without_their_forest_are_those_of_the_forest(least):
    forest = ExtraTreesRegressor(100, max_features=1.0, min_samples_leaf=least, random_state=7)
    ours = forests.extra_trees(X, Y, 7, least)
    for tree, estimator in zip(ours, forest.fit(X, Y).estimators_, strict=True):
        for name in ("feature", "threshold", "children_left", "value"):
            theirs = getattr(estimator.tree_, name)
            np.testing.assert_array_equal(getattr(tree, name), theirs)


def test_trees_that_nobody_asked_yet_are_saved_without_and_grow_alike(tmp_path):
    model = TreeModel("extra_trees", torch.from_numpy(X), torch.from_numpy(Y), seed=0)
    persistence.save(model, tmp_path / "trees.sgp")
    loaded = persistence.load(tmp_path / "trees.sgp")
    assert "grown" not in vars(model)
    assert "grown" not in vars(loaded)
    new = torch.from_numpy(X_NEW)
    assert torch.equal(loaded.location(new), model.location(new))
    assert torch.equal(loaded.law(new).spread, model.law(new).spread)


@pytest.mark.parametrize("settings", [{}, {"early_stopping": True}, {"max_leaf_nodes": 3}])
def test_boosting_as_arrays_answers_as_it_does(settings):
    boosting = HistGradientBoostingRegressor(random_state=0, **settings).fit(X, Y)
    arrays = TreeArrays.of_boosting(boosting)
    steps = np.stack(list(boosting.staged_predict(X_NEW)), 1)
    found = float(np.squeeze(boosting._baseline_prediction)) + np.cumsum(
        arrays.value[arrays.leaves(X_NEW)], 1
    )
    assert arrays.n_trees == boosting.n_iter_
    np.testing.assert_allclose(found, steps, rtol=0, atol=1e-12)


def test_a_tree_that_is_one_leaf_and_rows_in_blocks(monkeypatch):
    forest = ExtraTreesRegressor(3, min_samples_leaf=100, random_state=0).fit(X, Y)
    arrays = TreeArrays.of_trees(one.tree_ for one in forest.estimators_)
    assert len(arrays.value) == 3
    np.testing.assert_allclose(arrays.value[arrays.leaves(X_NEW)].mean(1), Y.mean())
    more = ExtraTreesRegressor(7, random_state=0).fit(X, Y)
    grown = TreeArrays.of_trees(one.tree_ for one in more.estimators_)
    whole = grown.leaves(X_NEW)
    monkeypatch.setattr(tree_arrays, "_BLOCK", 50)
    np.testing.assert_array_equal(grown.leaves(X_NEW), whole)
    assert grown.leaves(X_NEW[:0]).shape == (0, 7)


# ------------------------------------------------------------------ location and spread


def slow_weights(arrays: TreeArrays, X_new):
    """Weights [T, N] of training points, one tree and one point at a time."""
    W = np.zeros((len(X_new), len(X)))
    train, new = arrays.leaves(X), arrays.leaves(X_new)
    for t in range(arrays.n_trees):
        for i in range(len(X_new)):
            inside = (train[:, t] == new[i, t]).astype(float)
            W[i] += inside / inside.sum()
    return W / arrays.n_trees


LIKE = torch.ones(1, dtype=torch.float64)


def moments(grown, X):
    """Location and spread of the law at rows."""
    law = grown.law(X, LIKE)
    np.testing.assert_allclose(grown.location(X), law.location)
    return law.location.numpy(), law.spread.numpy()


@pytest.mark.parametrize("least", [1, 4])
def test_extra_trees_are_weighted_targets(least, monkeypatch):
    monkeypatch.setattr(forests, "_TREES", 7)
    monkeypatch.setattr(forests, "_LEAST_IN_LEAF", least)
    model = ExtraTrees(X, Y, seed=0)
    W = slow_weights(model.trees, X_NEW)
    location, spread = moments(model, X_NEW)
    np.testing.assert_allclose(location, W @ Y, rtol=0, atol=1e-12)
    forest = ExtraTreesRegressor(7, min_samples_leaf=least, random_state=0).fit(X, Y)
    np.testing.assert_allclose(location, forest.predict(X_NEW), rtol=0, atol=1e-12)
    variance = W @ Y**2 - (W @ Y) ** 2
    np.testing.assert_allclose(spread**2, (7 * variance + Y.var()) / 8, rtol=1e-9)
    # At the edges of cells the distribution function is that of the targets, and of one more tree.
    law, edges = model.law(X_NEW, LIKE), torch.from_numpy(model.cells.edges)
    below = Y[:, None] < model.cells.edges
    root = (below.sum(0) + np.arange(len(edges)) / (len(edges) - 1)) / (len(Y) + 1)
    outside = 0.5 / (8 * (len(Y) + 1))
    expected = outside + (1 - 2 * outside) * (7 * W @ below + root) / 8
    found = torch.special.ndtr(law.score(edges.unsqueeze(-1).expand(-1, len(X_NEW)))).T
    np.testing.assert_allclose(found, expected, atol=1e-12)


def test_a_leaf_of_equal_targets_is_an_atom_that_other_targets_can_miss():
    """65 % of the targets are equal: intervals there have no width, and nothing is impossible."""
    rng = np.random.default_rng(0)
    X = rng.uniform(size=(300, 2))
    y = np.where(X[:, 0] < 0.65, 2.0, 5.0 + rng.normal(size=300))
    law = ExtraTrees(X, y, seed=0).law(np.array([[0.2, 0.5], [0.9, 0.5]]), LIKE)
    low, high = law.value(torch.tensor([[-1.0], [1.0]], dtype=torch.float64))
    assert float(high[0] - low[0]) < 1e-7
    assert abs(float(low[0]) - 2.0) < 1e-7
    assert float(high[1] - low[1]) > 0.5
    z = law.score(torch.linspace(-30, 40, 500, dtype=torch.float64).unsqueeze(-1).expand(-1, 2))
    assert bool(torch.isfinite(z).all() and (z.diff(dim=0) > 0).all())
    again = law.value(z)
    assert float((law.score(again) - z).abs().max()) < 1e-6


def test_boosted_trees_are_scikit_learns_with_a_constant_spread():
    model = BoostedTrees(X, Y, seed=0)
    reference = HistGradientBoostingRegressor(
        max_iter=300,
        min_samples_leaf=8,
        early_stopping=True,
        validation_fraction=0.15,
        n_iter_no_change=15,
        random_state=0,
    ).fit(X, Y)
    location, spread = moments(model, X_NEW)
    np.testing.assert_allclose(location, reference.predict(X_NEW), rtol=0, atol=1e-12)
    np.testing.assert_allclose(spread, Y.std())


def test_location_finds_the_step_and_all_but_few_boosted_trees_the_noise():
    new, _, scale = problem(200, seed=1)
    for kind in GROWN:
        data, target, _ = problem(3000 if kind is ScaledBoosting else 400)
        grown = kind(data, target, seed=0)
        location, spread = moments(grown, new)
        if kind is not BoostedTrees:
            ends = grown.law(new, LIKE).value(torch.tensor([[-1.0], [1.0]], dtype=torch.float64))
            spread = ends.diff(dim=0)[0].numpy()
        assert np.sqrt(np.mean((location - 5.0 * (new[:, 0] > 0)) ** 2)) < 1.0
        if kind is not BoostedTrees:
            assert np.median(spread[scale == 1.0]) > 1.5 * np.median(spread[scale == 0.1])


@pytest.mark.parametrize("kind", GROWN)
def test_a_seed_fixes_everything(kind):
    one, two = (moments(kind(X, Y, seed=3), X_NEW) for _ in range(2))
    np.testing.assert_array_equal(one, two)


@pytest.mark.parametrize("kind", [few for few, _ in TREES.values()])
@pytest.mark.parametrize("n", [2, 5, 12])
def test_few_points_give_finite_answers(kind, n):
    location, spread = moments(kind(X[:n], Y[:n], seed=0), X_NEW)
    assert np.isfinite(location).all()
    assert (np.isfinite(spread) & (spread > 0)).all()


@pytest.mark.parametrize("kind", GROWN)
def test_units_of_the_target_carry_over(kind):
    """By a power of two, so that splits and roundings are the same."""
    plain, scaled = (moments(kind(X, unit * Y, seed=0), X) for unit in (1.0, 1024.0))
    np.testing.assert_allclose(scaled, 1024.0 * np.array(plain), rtol=1e-9)


@pytest.mark.parametrize("kind", GROWN)
def test_a_constant_target_has_a_positive_spread(kind):
    location, spread = moments(kind(X, np.full_like(Y, 3.0), seed=0), X)
    np.testing.assert_allclose(location, 3.0)
    assert (spread > 0).all()


def test_leaves_that_are_averaged_have_the_variance_of_a_random_target(monkeypatch):
    """Against one tree and one point at a time; every row is in the leaves of every tree."""
    monkeypatch.setattr(forests, "_LEAF_TREES", 7)
    monkeypatch.setattr(forests, "MOST_GROWN_ON", 60)
    for kind in ("random_forest", "extra_trees"):
        model = LeafForest(X, Y, 0, kind=kind)
        train, new = model.trees.leaves(X), model.trees.leaves(X_NEW)
        inside = train[None, :, :] == new[:, None, :]  # [T, N, trees]
        W = (inside / inside.sum(1, keepdims=True)).mean(2)
        location, spread = moments(model, X_NEW)
        np.testing.assert_allclose(location, W @ Y, rtol=0, atol=1e-12)
        variance = W @ Y**2 - (W @ Y) ** 2
        np.testing.assert_allclose(spread**2, (7 * variance + Y.var()) / 8, rtol=1e-9)
        monkeypatch.setattr(tree_arrays, "_BLOCK", 20)
        np.testing.assert_array_equal(moments(model, X_NEW), (location, spread))
        assert all(len(part) == 0 for part in moments(model, X_NEW[:0]))


def test_leaves_of_very_many_rows_average_some_of_them(monkeypatch):
    rows = drawn_rows(len(Y), 60).numpy()
    expected = moments(LeafForest(X[rows], Y[rows], 0, TargetCells(Y)), X_NEW)
    monkeypatch.setattr(forests, "MOST_IN_LEAVES", 60)
    np.testing.assert_array_equal(moments(LeafForest(X, Y, 0), X_NEW), expected)


@pytest.mark.parametrize("leaves", [2, 15, 31])
def test_sums_by_bits_are_scikit_learns(leaves, monkeypatch):
    boosting = HistGradientBoostingRegressor(
        max_iter=30, max_leaf_nodes=leaves, min_samples_leaf=2, random_state=0
    ).fit(X, Y)
    found, reference = SummedTrees(boosting), boosting.predict(X_NEW)
    np.testing.assert_allclose(found.sums(X_NEW), reference, rtol=0, atol=1e-12)
    monkeypatch.setattr(summed_trees, "_BLOCK", 7)
    np.testing.assert_allclose(found.sums(X_NEW), reference, rtol=0, atol=1e-12)
    beyond = np.array([[-np.inf, np.inf, 0.0], [9.0, -9.0, 9.0], [np.nan, 0.0, 0.0]])
    walked = found.baseline + found.trees.value[found.trees.leaves(beyond)].sum(1)
    np.testing.assert_allclose(found.sums(beyond), walked, rtol=0, atol=1e-12)
    assert found.sums(X_NEW[:0]).shape == (0,)


def test_trees_with_more_leaves_than_bits_are_walked():
    boosting = HistGradientBoostingRegressor(
        max_iter=5, max_leaf_nodes=40, min_samples_leaf=1, random_state=0
    ).fit(X, Y)
    found = SummedTrees(boosting)
    assert found._tables is None
    np.testing.assert_allclose(found.sums(X_NEW), boosting.predict(X_NEW), rtol=0, atol=1e-12)


def test_a_boosted_spread_stays_within_what_was_seen():
    data, target, _ = problem(1000)
    model = ScaledBoosting(data, target, seed=0)
    _, spread = moments(model, 1e3 * data)
    assert ((spread >= model.least) & (spread <= model.most)).all()


# ------------------------------------------------------------------ many rows


# ------------------------------------------------------------------ files


@cache
def grown_once(kind: str, many: bool) -> TreeModel:
    with pytest.MonkeyPatch.context() as patch:
        if many:
            patch.setattr(trees, "MOST_LEFT_OUT", 100)
        return TreeModel(kind, torch.from_numpy(X), torch.from_numpy(Y), seed=0)


def grown(kind: str, many: bool = False) -> TreeModel:
    """A copy that a test may spoil."""
    return copy.deepcopy(grown_once(kind, many))


@pytest.mark.parametrize("many", [False, True])
@pytest.mark.parametrize("kind", TREES)
def test_saved_and_loaded(kind, many, tmp_path):
    model, points = grown(kind, many), torch.from_numpy(X_NEW)
    persistence.save(model, tmp_path / "trees.sgp")
    again = persistence.load(tmp_path / "trees.sgp")
    assert torch.equal(again.location(points), model.location(points))
    assert torch.equal(again.law(points).spread, model.law(points).spread)
    assert torch.equal(again.X_train, model.X_train)
    assert (again.kind, again.seed) == (kind, 0)


def last_inner(arrays: TreeArrays) -> int:
    return int(np.flatnonzero(arrays.left != np.arange(len(arrays.left)))[-1])


def changed(name, value):
    """A change of one entry of an array: of a node with children where there is a choice."""

    def change(model):
        arrays = model.grown.trees
        getattr(arrays, name)[0 if name == "roots" else last_inner(arrays)] = value(arrays)

    return change


def replaced(name, convert):
    def change(model):
        arrays = model.grown.trees
        setattr(arrays, name, convert(getattr(arrays, name)))

    return change


HOSTILE = {
    "a cycle": changed("left", lambda arrays: 0),
    "a leaf on one side only": changed("right", last_inner),
    "a child beyond the table": changed("right", lambda arrays: len(arrays.value)),
    "a negative child": changed("left", lambda arrays: -1),
    "a root beyond the table": changed("roots", lambda arrays: len(arrays.value)),
    "a negative root": changed("roots", lambda arrays: -1),
    "a feature beyond the inputs": changed("feature", lambda arrays: 3),
    "a negative feature": changed("feature", lambda arrays: -1),
    "a value that is not finite": changed("value", lambda arrays: np.nan),
    "a threshold that is not finite": changed("threshold", lambda arrays: np.inf),
    "fewer thresholds": replaced("threshold", lambda values: values[:-1]),
    "children that are no whole numbers": replaced("left", lambda values: values.astype(float)),
    "nodes in two dimensions": replaced("value", lambda values: values[None]),
    "another kind": lambda model: setattr(model, "kind", "oak"),
}


@pytest.mark.parametrize("kind", marked(TREES, slow={"random_forest"}))
@pytest.mark.parametrize("name", HOSTILE)
def test_hostile_files_are_refused(kind, name, tmp_path):
    model = grown(kind)
    HOSTILE[name](model)
    persistence.save(model, tmp_path / "trees.sgp")
    with pytest.raises(SavedModelError, match="cannot load") as caught:
        persistence.load(tmp_path / "trees.sgp")
    assert "damaged" not in str(caught.value)  # found by a check, not by chance
    assert "\n" not in str(caught.value)


OWN = {
    "fewer variances": ("random_forest", "variances", lambda a: a[:-1]),
    "negative variances": ("random_forest", "variances", lambda a: a - 1.0 - a.max()),
    "a point in no leaf": ("extra_trees", "members", lambda a: np.where(a == a.max(), 10**6, a)),
    "fewer points": ("extra_trees", "members", lambda a: a[:-1]),
    "targets without a cell": ("extra_trees", "targets", lambda a: a[:-1]),
    "no spread": ("boosted_trees", "size", lambda a: -1.0),
    "no baseline": ("boosted_trees", "baseline", lambda a: float("nan")),
}


@pytest.mark.parametrize("name", OWN)
def test_hostile_parts_of_either_kind_are_refused(name, tmp_path):
    kind, attribute, convert = OWN[name]
    model = grown(kind)
    setattr(model.grown, attribute, convert(getattr(model.grown, attribute)))
    persistence.save(model, tmp_path / "trees.sgp")
    with pytest.raises(SavedModelError, match="cannot load"):
        persistence.load(tmp_path / "trees.sgp")


def test_many_targets_of_which_few_are_huge_are_boosted_as_their_arcsinh(monkeypatch):
    """Location and spread in relative terms, as they were made, and none beyond what was seen."""
    rng = np.random.default_rng(0)
    x = rng.uniform(size=(4000, 2))
    y = np.exp(6.0 * x[:, 0] + rng.normal(size=4000))
    found = boosting.ScaledBoosting(x, y, seed=0)
    location, spread = moments(found, x)
    assert found.warp is not None
    # Half the deviation of the noise, which is 1 in these terms.
    assert np.abs(np.log(location / np.exp(6.0 * x[:, 0])))[x[:, 0] > 0.5].mean() < 0.5
    assert np.corrcoef(np.log(spread), x[:, 0])[0, 1] > 0.9
    assert location.max() <= y.max() * (1 + 1e-9)
    monkeypatch.setattr(boosting, "heavy_warp", lambda y: None)
    plain, _ = moments(boosting.ScaledBoosting(x, y, seed=0), x)
    true = np.exp(6.0 * x[:, 0])
    assert np.abs(location - true).mean() < np.abs(plain - true).mean()


def test_a_few_huge_targets_do_not_decide_where_trees_split(monkeypatch):
    """Locations are those of the targets themselves; only splits are not by them."""
    rng = np.random.default_rng(0)
    inputs = rng.uniform(size=(300, 4))
    y = 3.0 * (inputs[:, 0] > 0.5)
    huge = inputs[:, 1] > 0.97
    y[huge] = rng.uniform(1e3, 1e5, huge.sum())
    asked = rng.uniform(size=(200, 4)) * [1.0, 0.8, 1.0, 1.0]  # where none is huge

    def found():
        grown = ExtraTrees(inputs, y, seed=0)
        location, _ = moments(grown, asked)
        return grown, location, np.abs(location - 3.0 * (asked[:, 0] > 0.5)).mean()

    grown, location, tamed = found()
    assert grown.targets.max() == y.max()
    turned, _ = moments(ExtraTrees(inputs, 8.0 - 4.0 * y, seed=0), asked)
    np.testing.assert_allclose(turned, 8.0 - 4.0 * location, rtol=1e-9, atol=1e-6)
    monkeypatch.setattr(forests, "_HEAVY", np.inf)
    assert 2.0 * tamed < found()[-1]
