"""Tree models: locations and spreads against slow oracles, seeds, small data."""

import numpy as np
import pytest

from sharpgp.exceptions import InvalidInputError
from sharpgp.models.trees import BoostedTrees, ExtraTrees


def with_spread() -> BoostedTrees:
    return BoostedTrees(share=0.5)


MODELS = [ExtraTrees, BoostedTrees, with_spread]


def problem(n: int, seed: int = 0):
    """A step, and noise that is ten times as large on its far side."""
    rng = np.random.default_rng(seed)
    X = rng.uniform(-1, 1, (n, 3))
    scale = np.where(X[:, 1] > 0, 1.0, 0.1)
    return X, 5.0 * (X[:, 0] > 0) + scale * rng.normal(size=n), scale


def slow_weights(model: ExtraTrees, X, X_new, trees=None):
    """Weights [T, N] of training points, one tree and one point at a time."""
    W = np.zeros((len(X_new), len(X)))
    samples = model.forest.estimators_samples_
    for t, tree in enumerate(model.forest.estimators_):
        counts = np.bincount(samples[t], minlength=len(X)) if model.bagged else np.ones(len(X))
        train, new = tree.apply(X.astype(np.float32)), tree.apply(X_new.astype(np.float32))
        for i in range(len(X_new)):
            if trees is None or trees[i, t]:
                inside = (train == new[i]) * counts
                W[i] += inside / inside.sum()
    return W / W.sum(1, keepdims=True)


def slow_quantile(values, weights, p):
    order = np.argsort(values, kind="stable")
    return np.interp(p, np.r_[0.0, weights[order].cumsum()], np.r_[values[order][0], values[order]])


@pytest.mark.parametrize("out_of_bag", [False, True])
@pytest.mark.parametrize("least", [1, 4])
def test_forest_is_that_of_weighted_targets(least, out_of_bag):
    X, y, _ = problem(60)
    X_new, *_ = problem(15, seed=1)
    model = ExtraTrees(trees=7, least_in_leaf=least, out_of_bag=out_of_bag).fit(X, y, seed=0)
    W = slow_weights(model, X, X_new)
    np.testing.assert_allclose(model.location(X_new), W @ y, rtol=1e-6)  # leaves are float32-split
    low, high = (np.array([slow_quantile(y, w, p) for w in W]) for p in (0.1, 0.9))
    expected = np.maximum((high - low) / (2 * 1.2815515655446004), 1e-3 * y.std())
    np.testing.assert_allclose(model.spread(X_new), expected, rtol=1e-9)


def test_out_of_bag_answers_come_from_trees_that_missed_the_point():
    X, y, _ = problem(50)
    model = ExtraTrees(trees=30, least_in_leaf=1, out_of_bag=True).fit(X, y, seed=0)
    missed = np.ones((50, 30), dtype=bool)
    for t, rows in enumerate(model.forest.estimators_samples_):
        missed[rows, t] = False
    location, spread = model.out_of_bag()
    np.testing.assert_allclose(location, slow_weights(model, X, X, missed) @ y, rtol=1e-9)
    assert (spread > 0).all()
    # Nothing of a point's own target is in its answer.
    assert np.abs(y - location).mean() > 1.5 * np.abs(y - model.location(X)).mean()


def test_out_of_bag_needs_bags():
    X, y, _ = problem(20)
    with pytest.raises(InvalidInputError, match="out_of_bag=True"):
        ExtraTrees(trees=5).fit(X, y, seed=0).out_of_bag()


def test_without_a_share_the_spread_is_constant():
    X, y, _ = problem(60)
    spread = BoostedTrees().fit(X, y, seed=0).spread(X)
    np.testing.assert_allclose(spread, y.std())


@pytest.mark.parametrize("model", [ExtraTrees, with_spread])
def test_location_finds_the_step_and_spread_the_noise(model):
    X, y, _ = problem(400)
    X_new, _, scale = problem(200, seed=1)
    fitted = model().fit(X, y, seed=0)
    truth = 5.0 * (X_new[:, 0] > 0)
    assert np.sqrt(np.mean((fitted.location(X_new) - truth) ** 2)) < 1.0
    spread = fitted.spread(X_new)
    assert np.median(spread[scale == 1.0]) > 2 * np.median(spread[scale == 0.1])


@pytest.mark.parametrize("model", MODELS)
def test_a_seed_fixes_everything(model):
    X, y, _ = problem(80)
    one, two = (model().fit(X, y, seed=3) for _ in range(2))
    np.testing.assert_array_equal(one.location(X), two.location(X))
    np.testing.assert_array_equal(one.spread(X), two.spread(X))


@pytest.mark.parametrize("model", MODELS)
@pytest.mark.parametrize("n", [5, 12])
def test_few_points_give_finite_answers(model, n):
    X, y, _ = problem(n)
    fitted = model().fit(X, y, seed=0)
    assert np.isfinite(fitted.location(X)).all()
    assert (fitted.spread(X) > 0).all()


@pytest.mark.parametrize("model", MODELS)
def test_units_of_the_target_carry_over(model):
    X, y, _ = problem(100)
    plain, scaled = model().fit(X, y, seed=0), model().fit(X, 1024.0 * y, seed=0)
    np.testing.assert_allclose(scaled.location(X), 1024.0 * plain.location(X), rtol=1e-6, atol=1e-3)
    np.testing.assert_allclose(scaled.spread(X), 1024.0 * plain.spread(X), rtol=1e-4)


@pytest.mark.parametrize("model", MODELS)
def test_a_constant_target_has_a_positive_spread(model):
    X, y, _ = problem(50)
    fitted = model().fit(X, np.full_like(y, 3.0), seed=0)
    np.testing.assert_allclose(fitted.location(X), 3.0)
    assert (fitted.spread(X) > 0).all()
