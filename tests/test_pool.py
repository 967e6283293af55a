"""Pools of models: where their weights come from, and that a pool is a model like any other."""

import warnings

import numpy as np
import pandas as pd
import pytest
import torch
from botorch.optim import optimize_acqf
from sklearn.compose import ColumnTransformer
from sklearn.linear_model import LinearRegression
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import PolynomialFeatures

from helpers import marked, method, wavy
from sharpgp import (
    CalibrationWarning,
    CrossValidated,
    CVPlus,
    Exact,
    LeaveOneOut,
    Online,
    SharpGPRegressor,
)
from sharpgp.bo import CalibratedUpperConfidenceBound
from sharpgp.data.folds import split_parts
from sharpgp.exceptions import InvalidInputError
from sharpgp.gp.kernels.covariance import Stationary
from sharpgp.gp.training import train
from sharpgp.models import pool as pool_module
from sharpgp.models.bases import Bases
from sharpgp.models.gaussian import gaussian_model
from sharpgp.models.gaussian.gaussian_model import GaussianModel, fewest_alike
from sharpgp.models.gaussian.plain_gp import PosteriorModel
from sharpgp.models.pool import PooledModel, pooled_out_of_fold
from sharpgp.models.pool_weights import crps_of_scores, crps_products, pool_weights, unit_size
from sharpgp.models.splitters import complements
from sharpgp.models.trees.tree_model import TreeModel
from sharpgp.policy import POOLS, Policy

pytestmark = pytest.mark.filterwarnings("ignore::sharpgp.CalibrationWarning")

NAMES = ["rbf", "matern12", "extra_trees"]


def steps(n: int, seed: int = 0) -> tuple[np.ndarray, np.ndarray]:
    """A wave and a step: neither a smooth GP nor trees alone."""
    X, y = wavy(n, seed=seed)
    return X, y + 1.5 * (X[:, 1] > 0.3)


X, Y = steps(60)
X_NEW, Y_NEW = steps(12, seed=1)
METHODS = {
    "cv": CrossValidated(folds=3),
    "loo": LeaveOneOut(),
    "cv+": CVPlus(folds=3),
    "exact": Exact(),
}


@pytest.fixture(scope="module", params=marked(METHODS, slow={"loo"}))
def fitted(request):
    model = SharpGPRegressor(base=NAMES, calibration=METHODS[request.param], random_state=0)
    return model.fit(X, Y)


@pytest.fixture(scope="module")
def learned():
    """Models by name, learned from all rows; no test may change them."""
    return Bases(NAMES, seed=0).learned(torch.from_numpy(X), torch.from_numpy(Y))


@pytest.fixture(scope="module")
def learned_from_45():
    """Two models, with the last 15 rows left to calibrate them."""
    return Bases(NAMES[1:], seed=0).learned(*(torch.from_numpy(a[:45]) for a in (X, Y)))


# ------------------------------------------------------------------ weights


def test_weights_are_those_of_out_of_fold_predictions(learned):
    data, models = (torch.from_numpy(X), torch.from_numpy(Y)), learned
    pairs, labels = complements(60, split_parts(torch.arange(60), 3, 0)), torch.arange(60)
    model, held = pooled_out_of_fold(models, pairs, labels, 0)
    found = [one.out_of_fold(pairs, labels, 0) for one in models.values()]
    alone, y = [one.held for one in found], data[1]
    units = [unit_size(one.scores) for one in alone]
    laws = [one.law.changed(size=unit) for one, unit in zip(alone, units, strict=True)]
    weights = pool_weights(crps_products(laws, y), 60)
    np.testing.assert_allclose([one.weight for one in model.members], weights, atol=1e-9)
    assert [member.name for member in model.members] == NAMES
    below = sum(w * torch.special.ndtr(law.score(y)) for w, law in zip(weights, laws, strict=True))
    torch.testing.assert_close(torch.special.ndtr(held.scores), below)
    for member, one in zip(model.members, alone, strict=True):
        assert member.crps == pytest.approx(crps_of_scores(one.law, one.scores, y))
    # Of the pool, for points that no model has seen, no worse than the best of them.
    assert held.crps(y) <= min(one.crps for one in model.members)
    # What predicts is the average of the refits that were scored.
    at = torch.from_numpy(X_NEW)
    average = torch.stack(
        [torch.stack([refit.location(at) for refit in one.refits]).mean(0) for one in found]
    )
    torch.testing.assert_close(model.location(at), weights @ average)


def test_an_interval_evaluates_each_kernel_once(monkeypatch):
    X, y = map(torch.from_numpy, wavy(60))
    model = PosteriorModel(train(X, y, start=0)[0])
    expected = model.location(X), model.law(X).spread
    evaluated, matrix = [], Stationary.matrix

    def counted(*given):
        evaluated.append(given)
        return matrix(*given)

    monkeypatch.setattr(Stationary, "matrix", counted)
    torch.testing.assert_close(model.location_and_spread(X), expected)
    assert len(evaluated) == 1


def test_a_pool_is_the_mixture_of_its_models(learned):
    weights, units = torch.tensor([[0.25, 0.75], [2.0, 0.5]], dtype=torch.float64)
    models = [learned[name] for name in ("rbf", "matern12")]
    model = PooledModel(models, weights, units, torch.zeros(1, dtype=torch.float64), [])
    at = torch.from_numpy(X_NEW)
    (m0, s0), (m1, s1) = (one.location_and_spread(at) for one in models)
    torch.testing.assert_close(model.location(at), 0.25 * m0 + 0.75 * m1)
    y = model.value(at, torch.tensor([[-2.0], [0.0], [1.0]], dtype=torch.float64))
    below = 0.25 * torch.special.ndtr((y - m0) / (2 * s0))
    below = below + 0.75 * torch.special.ndtr((y - m1) / (0.5 * s1))
    expected = torch.special.ndtr(torch.tensor([[-2.0], [0.0], [1.0]], dtype=torch.float64))
    torch.testing.assert_close(below, expected.expand(-1, len(at)))
    assert model.gp is models[1].posterior


def test_weights_of_exact_do_not_see_the_calibration_targets(learned_from_45):
    models = learned_from_45
    order = np.random.default_rng(0).permutation(15)
    found = [Exact(random_state=0).fit(models, X[45:], y) for y in (Y[45:], 9 * Y[45:][order])]
    assert torch.equal(found[0].model.weights, found[1].model.weights)
    assert torch.equal(found[0].model.units, found[1].model.units)
    assert not torch.equal(found[0].scores, found[1].scores)
    z = found[0].model.score(found[0].X_cal, torch.from_numpy(Y[45:]))
    torch.testing.assert_close(found[0].scores, z)


def test_models_of_one_name_are_numbered():
    bases = Bases(["rbf", LinearRegression(), LinearRegression(), "rbf"])
    names = bases.model_names(80, 2, one_gp=False)
    assert names == ["rbf", "LinearRegression", "LinearRegression 2", "rbf 2"]


@pytest.mark.slow
def test_models_that_say_the_same_share_their_weight():
    model = SharpGPRegressor(base=["rbf", "rbf", "rbf"], calibration=METHODS["cv"], random_state=0)
    members = model.fit(X[:40], Y[:40]).base_
    assert [one.name for one in members] == ["rbf", "rbf 2", "rbf 3"]
    np.testing.assert_allclose([one.weight for one in members], 1 / 3, atol=1e-3)
    two = SharpGPRegressor(base=["rbf", "rbf"], calibration=METHODS["cv"], random_state=0)
    np.testing.assert_allclose(
        model.predict(X_NEW), two.fit(X[:40], Y[:40]).predict(X_NEW), atol=1e-9
    )


def test_fewer_learnings_predict_about_as_well(monkeypatch):
    few = SharpGPRegressor(base=["rbf", "matern32"], random_state=0).fit(X, Y)
    assert min(len(one.refits) for one in few.calibrated_.model.models) < 5
    monkeypatch.setattr(gaussian_model, "QUICK_LOSS", 0.0)
    every = SharpGPRegressor(base=["rbf", "matern32"], random_state=0).fit(X, Y)
    assert {len(one.refits) for one in every.calibrated_.model.models} == {5}
    crps = [np.mean(one.predict_dist(X_NEW).crps(Y_NEW)) for one in (few, every)]
    assert crps[0] == pytest.approx(crps[1], rel=0.02)


def test_learnings_that_differ_all_predict():
    shift = torch.from_numpy(np.random.default_rng(0).normal(size=(3, 200)))
    assert sorted(fewest_alike(shift, torch.ones_like(shift))) == [0, 1, 2]
    assert len(fewest_alike(0.01 * shift, torch.ones_like(shift))) == 1
    shift[2] = 0.5 * (shift[0] + shift[1])  # alone it has the mean of all
    assert fewest_alike(shift, torch.ones_like(shift)) == [2]


# ------------------------------------------------------------------ the estimator


def test_pools(fitted):
    table = fitted.base_
    assert sorted(one.name for one in table) == sorted(NAMES)
    weights = [one.weight for one in table]
    assert sum(weights) == pytest.approx(1.0)
    assert weights == sorted(weights, reverse=True)
    assert str(table).splitlines()[0].split() == ["model", "weight", "held-out", "CRPS"]
    assert len(str(table).splitlines()) == 4
    model = fitted.calibrated_.model
    assert isinstance(model, PooledModel)
    assert fitted.posterior_ is model.gp is fitted.calibrated_.posterior
    assert len(model.models) == len(model.weights) >= sum(weight > 0 for weight in weights)
    lower, upper = fitted.predict_interval(X_NEW, 0.8).T
    assert (lower < upper).all()
    assert fitted.score(X_NEW, Y_NEW) > 0.5


def test_saved_and_loaded(fitted, tmp_path):
    fitted.save(tmp_path / "pool.sgp")
    again = SharpGPRegressor.load(tmp_path / "pool.sgp")
    for ask in (
        lambda m: m.predict(X_NEW),
        lambda m: m.predict_interval(X_NEW, [0.5, 0.9]),
        lambda m: m.predict_quantiles(X_NEW, [0.05, 0.5, 0.8]),
    ):
        np.testing.assert_array_equal(ask(again), ask(fitted))
    assert again.base_ == fitted.base_
    assert again.base == NAMES
    assert again.posterior_ is again.calibrated_.posterior


@pytest.mark.slow
def test_random_state_decides(fitted):
    again = SharpGPRegressor(base=NAMES, calibration=fitted.calibration, random_state=0).fit(X, Y)
    np.testing.assert_array_equal(again.predict_interval(X_NEW), fitted.predict_interval(X_NEW))
    assert again.base_ == fitted.base_


@pytest.mark.parametrize("calibration", marked(["cv", "exact", "loo"], slow={"cv", "loo"}))
def test_one_name_in_a_list_is_that_model_alone(calibration):
    settings = {"calibration": method(calibration), "random_state": 0}
    listed = SharpGPRegressor(base=["matern32"], **settings).fit(X[:40], Y[:40])
    alone = SharpGPRegressor(base="matern32", **settings).fit(X[:40], Y[:40])
    assert not isinstance(listed.calibrated_.model, PooledModel)
    np.testing.assert_array_equal(listed.predict_interval(X_NEW), alone.predict_interval(X_NEW))
    assert listed.base_ == alone.base_
    assert [(one.name, one.weight) for one in alone.base_] == [("matern32", 1.0)]


@pytest.mark.slow
def test_order_of_the_names_does_not_matter_much():
    """Trees first: the GP behind them is found all the same."""
    for calibration in (METHODS["loo"], METHODS["cv"]):
        one, other = (
            SharpGPRegressor(base=base, calibration=calibration, random_state=0).fit(X, Y)
            for base in (NAMES[1:], NAMES[1:][::-1])
        )
        np.testing.assert_allclose(one.predict(X_NEW), other.predict(X_NEW), atol=1e-3)


@pytest.mark.parametrize("calibration", ["cv", "loo", "exact", "cv+"])
@pytest.mark.parametrize("base", ["extra_trees", ["extra_trees", "boosted_trees"]])
def test_trees_need_no_gp(base, calibration, tmp_path):
    model = SharpGPRegressor(base=base, calibration=calibration, random_state=0).fit(X, Y)
    ends = model.predict_interval(X_NEW, 0.8)
    assert np.mean((ends[:, 0] <= Y_NEW) & (ends[:, 1] >= Y_NEW)) > 0.5
    assert np.isfinite(model.predict_dist(X_NEW).crps(Y_NEW)).all()
    assert model.training_ is None
    assert "calibration points" in repr(model.calibrated_)
    model.save(tmp_path / "trees.sgp")
    again = SharpGPRegressor.load(tmp_path / "trees.sgp")
    np.testing.assert_array_equal(again.predict_interval(X_NEW, 0.8), ends)
    with pytest.raises(InvalidInputError, match=r"expected a model with a GP.*add a kernel"):
        CalibratedUpperConfidenceBound(model, delta=0.9).posterior  # noqa: B018
    if calibration != "cv+":
        model.update(X_NEW, Y_NEW)


@pytest.mark.parametrize(
    "calibration", marked(["paper", "kuleshov18", "vanilla"], slow={"paper", "vanilla"})
)
def test_methods_that_take_one_gp(calibration):
    settings = {"calibration": method(calibration), "random_state": 0}
    auto = SharpGPRegressor(**settings).fit(X, Y)
    rbf = SharpGPRegressor(base="rbf", **settings).fit(X, Y)
    np.testing.assert_array_equal(
        auto.predict_interval(X_NEW, 0.8), rbf.predict_interval(X_NEW, 0.8)
    )
    assert [one.name for one in auto.base_] == ["rbf"]
    for base in (NAMES, "extra_trees"):
        with pytest.raises(InvalidInputError, match="expected one kernel or regressor"):
            SharpGPRegressor(base=base, **settings).fit(X, Y)


def test_columns_decide_what_is_pooled():
    few, many = (set(Policy.choose(50_000, d, effort="high").pool) for d in (20, 21))
    assert few == set(POOLS["high"]) - {"prior"}
    assert few - many == {"additive"}


def test_effort_decides_what_is_pooled():
    for effort, names in POOLS.items():
        of_many = Policy.choose(50_000, 3, effort=effort).pool
        assert of_many == tuple(name for name in names if name != "prior")
    assert set(POOLS["auto"]) < set(POOLS["high"])
    low = SharpGPRegressor(effort="low", calibration=METHODS["cv"], random_state=0).fit(X, Y)
    assert [one.name for one in low.base_] == list(POOLS["low"])


@pytest.mark.slow
def test_the_default():
    model = SharpGPRegressor(random_state=0).fit(X, Y)
    assert {one.name for one in model.base_} == set(POOLS["auto"]) - {"boosted_trees"}
    lower, upper = model.predict_interval(X_NEW, 0.9).T
    assert np.mean((lower <= Y_NEW) & (upper >= Y_NEW)) > 0.6


# ------------------------------------------------------------------ what reaches the models


def test_groups_reach_every_model(monkeypatch):
    g, seen = np.arange(60) // 3, []
    for cls in (GaussianModel, TreeModel):

        def spy(self, pairs, labels, seed, real=cls.out_of_fold):
            seen.append((type(self), pairs, labels))
            return real(self, pairs, labels, seed)

        monkeypatch.setattr(cls, "out_of_fold", spy)
    model = SharpGPRegressor(base=NAMES[1:], calibration=METHODS["cv"], random_state=0)
    model.fit(X, Y, groups=g)
    assert {cls for cls, *_ in seen} == {GaussianModel, TreeModel}
    for _, pairs, labels in seen:
        assert len(labels.unique()) == 20
        for rest, test in pairs:
            assert not set(g[rest.numpy()]) & set(g[test.numpy()])


def test_regressors_in_a_list_get_columns_by_name():
    columns = ColumnTransformer(
        [("wave", PolynomialFeatures(5), ["length"])], remainder="passthrough"
    )
    pipeline = make_pipeline(columns, LinearRegression())
    frame = pd.DataFrame(X[:40], columns=["length", "width"])
    model = SharpGPRegressor(base=["rbf", pipeline], calibration=METHODS["cv"], random_state=0)
    model.fit(frame, Y[:40])
    assert {one.name for one in model.base_} == {"rbf", "Pipeline"}
    assert model.predict_interval(frame[:3]).shape == (3, 2)


# ------------------------------------------------------------------ a pool is a model


def test_further_points(fitted):
    calibrated = fitted.calibrated_
    later = calibrated.condition_on_observations(X_NEW, Y_NEW)
    assert later.n_cal == calibrated.n_cal
    assert later.posterior.n_train == calibrated.posterior.n_train + 12
    error = [
        (torch.from_numpy(Y_NEW) - one.predict_mean(X_NEW)).abs().mean()
        for one in (calibrated, later)
    ]
    assert error[1] < error[0]
    if fitted.calibration_ == "cv+":
        return
    updated = calibrated.updated(X_NEW, Y_NEW)
    assert updated.n_cal == calibrated.n_cal + 12
    trained = 12 if fitted.calibration_ in ("cv", "loo") else 0
    assert updated.posterior.n_train == calibrated.posterior.n_train + trained
    torch.testing.assert_close(updated.model.weights, calibrated.model.weights)


def test_online(fitted):
    if fitted.calibration_ == "cv+":
        pytest.skip("cannot take new calibration points")
    online = Online(fitted, coverage=0.8, window=30)
    ends = online.track(X_NEW, Y_NEW)
    assert ends.shape == (12, 2)
    assert online.steps == 12
    np.testing.assert_allclose(ends[:1], fitted.predict_interval(X_NEW[:1], 0.8))


def test_acquisition(fitted):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", CalibrationWarning)
        bound = CalibratedUpperConfidenceBound(fitted, delta=0.9)
    value = bound(torch.from_numpy(X_NEW).unsqueeze(1))
    np.testing.assert_allclose(value.detach(), fitted.predict_quantiles(X_NEW, 0.9))
    limits = torch.tensor([[-2.0, -2.0], [2.0, 2.0]], dtype=torch.float64)
    best, found = optimize_acqf(
        bound, limits, q=1, num_restarts=1, raw_samples=8, options={"maxiter": 3}
    )
    assert best.shape == (1, 2)
    assert found >= value.max() - 1.0
    bound.set_X_pending(torch.from_numpy(X_NEW[:2]))
    assert bool((bound(torch.from_numpy(X_NEW[:2]).unsqueeze(1)) < value[:2]).any())


def test_a_gp_without_weight_stays_for_what_only_it_knows(monkeypatch):
    monkeypatch.setattr(
        pool_module, "pool_weights", lambda products, n: torch.tensor([0.0, 1.0]).double()
    )
    model = SharpGPRegressor(base=["rbf", "extra_trees"], calibration=METHODS["cv"])
    model.fit(X[:40], Y[:40])
    assert [one.weight for one in model.base_] == [1.0, 0.0]
    pooled = model.calibrated_.model
    assert len(pooled.models) == 2
    assert pooled.gp is model.posterior_
    trees = pooled.models[1].location(torch.from_numpy(X_NEW))
    np.testing.assert_allclose(model.predict(X_NEW), trees, rtol=1e-12)


def test_targets_that_are_mostly_equal_leave_trees_a_spread():
    """Leaves of equal targets have none; errors there must not blow up that of all other points."""
    rng = np.random.default_rng(0)
    X = rng.uniform(-1, 1, (150, 3))
    y = np.where(X[:, 0] + 0.3 * rng.normal(size=150) > 0.4, 40.0 + 20.0 * X[:, 1], 0.0)
    model = SharpGPRegressor(base=["rbf", "extra_trees"], calibration="cv", random_state=0)
    trees = next(one for one in model.fit(X, y).base_ if one.name == "extra_trees")
    assert trees.crps < 0.4 * y.std()


def test_members_that_score_some_rows_and_members_that_score_all(monkeypatch):
    """A bound asks a pool to leave out its rows; a GP of many rows scores a sample, trees all."""
    monkeypatch.setattr("sharpgp.gp.local.posterior.SCORED_ROWS", 50)
    rng = np.random.default_rng(0)
    X = rng.uniform(-2, 2, (80, 2))
    y = np.maximum(X[:, 0] + 0.3 * rng.normal(size=80), 0.0)
    model = SharpGPRegressor(
        base=["rbf", "extra_trees"], approximation="neighbours", random_state=0
    )
    model.fit(X, y)
    assert model.calibrated_.bounds is not None
    held = model.calibrated_.model.leave_one_out(torch.arange(80), 0)
    assert len(held.rows) == 50
