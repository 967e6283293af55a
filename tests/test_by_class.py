"""Coverage within classes: finite-sample for exact, small classes pooled."""

import numpy as np
import pandas as pd
import pytest
import torch

from helpers import marked
from sharpgp import CalibrationWarning, Exact, SharpGPRegressor
from sharpgp.calibration.predictors.scored import ScoredPredictor
from sharpgp.exceptions import InvalidInputError
from sharpgp.gp.training import train
from sharpgp.models.gaussian.plain_gp import PosteriorModel

pytestmark = pytest.mark.usefixtures("one_start")

NOISE = np.array([0.05, 0.2, 0.8])


def data(per_class, seed=0):
    rng = np.random.default_rng(seed)
    kind = np.repeat([0, 1, 2], per_class)
    x = rng.uniform(-3, 3, len(kind))
    return np.column_stack([x, kind]), np.sin(x) + NOISE[kind] * rng.normal(size=len(kind))


@pytest.fixture(scope="module")
def model():
    """A GP that knows nothing of the classes."""
    X, y = data(20)
    X = torch.tensor(X)
    X[:, 1] = X[torch.randperm(60, generator=torch.Generator().manual_seed(0)), 1]
    return PosteriorModel(train(X, torch.tensor(y))[0])


@pytest.mark.parametrize("per_class", marked([20, 50, 200], slow={50, 200}))
def test_coverage_within_every_class(model, per_class):
    """Within three standard errors of the promise, over repeated calibration sets."""
    repeats, hits = 60, []
    test, target = data(200, seed=1)
    for seed in range(repeats):
        X, y = data(per_class, seed=seed + 2)
        found = ScoredPredictor.from_model(model, torch.tensor(X), torch.tensor(y))
        ends = found.within([1]).predict_interval(test, 0.8, symmetric=True).numpy()
        inside = (ends[:, 0] <= target) & (target <= ends[:, 1])
        hits.append(inside.reshape(3, 200).mean(1))
    coverage, error = np.mean(hits, 0), np.std(hits, 0) / np.sqrt(repeats)
    # All repeats share one test set.
    error = np.hypot(error, np.sqrt(0.16 / 200))
    promised = np.ceil(0.8 * (per_class + 1) - 1e-9) / (per_class + 1)
    assert (np.abs(coverage - promised) < 3 * error).all()


def test_ends_are_ranks_of_the_own_class(model):
    X, y = (torch.tensor(part) for part in data(30))
    found = ScoredPredictor.from_model(model, X, y)
    by_class = found.within([1])
    for k in range(3):
        own = ScoredPredictor.from_model(model, X[X[:, 1] == k], y[X[:, 1] == k])
        rows = X[X[:, 1] == k]
        ours = by_class.predict_interval(rows, 0.8, symmetric=True)
        assert torch.equal(ours, own.predict_interval(rows, 0.8, symmetric=True))
        quantiles = by_class.predict_quantiles(rows, [0.2, 0.5])
        assert torch.equal(quantiles, own.predict_quantiles(rows, [0.2, 0.5]))
    dist = by_class.predict_dist(X)
    assert torch.isfinite(dist.crps(y)).all()
    torch.testing.assert_close(dist.cdf(dist.quantile(0.3)), torch.full_like(y, 0.3))
    functional = found.within(lambda X: X[:, 1])
    assert torch.equal(functional.predict_interval(X, 0.8), by_class.predict_interval(X, 0.8))


def test_small_classes_are_one(model):
    X, y = data(30)
    X, y = np.r_[X, [[0.0, 7], [1.0, 8]]], np.r_[y, 0.0, 1.0]
    found = ScoredPredictor.from_model(model, torch.tensor(X), torch.tensor(y))
    with pytest.warns(CalibrationWarning, match="2 of 5 classes have fewer than 10 calibration"):
        by_class = found.within([1])
    # Two points are too few for a class of others: all points stand for them, and for new ones.
    new = torch.tensor([[0.5, 7.0], [0.5, 99.0]], dtype=torch.float64)
    assert by_class.part_of(new).tolist() == [3, 3]
    assert by_class.ranks_of[3].n == 92


def test_a_model_whose_classes_are_all_small_can_be_saved(tmp_path):
    rng = np.random.default_rng(0)
    table = pd.DataFrame({"x": rng.normal(size=40), "kind": np.repeat(["a", "b"], 20)})
    settings = {"base": "rbf", "calibration": Exact(by="kind"), "random_state": 0}
    with pytest.warns(CalibrationWarning, match="2 of 2 classes have fewer"):
        model = SharpGPRegressor(**settings).fit(table, table["x"] + rng.normal(size=40))
    model.save(tmp_path / "model.sgp")
    again = SharpGPRegressor.load(tmp_path / "model.sgp")
    ends = again.predict_interval(table, 0.5)
    np.testing.assert_array_equal(ends, model.predict_interval(table, 0.5))


@pytest.mark.parametrize("by", marked(["kind", 1], slow={1}))
def test_in_the_estimator(by, tmp_path):
    X, y = data(80)
    frame = pd.DataFrame({"x": X[:, 0], "kind": np.array(list("abc"))[X[:, 1].astype(int)]})
    settings = {"base": "rbf", "random_state": 0, "cal_size": 0.5}
    model = SharpGPRegressor(calibration=Exact(by=by), **settings).fit(frame, y)
    assert model.calibration_ == "exact"
    assert len(model.calibrated_.parts) == 4
    widths = np.diff(model.predict_interval(frame, 0.8))[:, 0]
    by_kind = pd.Series(widths).groupby(frame["kind"]).mean()
    assert by_kind["a"] < by_kind["b"] < by_kind["c"]
    model.save(tmp_path / "model.sgp")
    again = SharpGPRegressor.load(tmp_path / "model.sgp")
    np.testing.assert_array_equal(again.predict_interval(frame), model.predict_interval(frame))
    before = [ranks.n for ranks in model.calibrated_.ranks_of]
    model.update(frame[:5], y[:5])
    assert sum(ranks.n for ranks in model.calibrated_.ranks_of) == sum(before) + 5


def test_positions_are_those_of_the_table():
    X, y = data(30)
    frame = pd.DataFrame(
        {"one": 1.0, "kind": ["kind " + "abc"[int(k)] for k in X[:, 1]], "x": X[:, 0]}
    )
    settings = {"base": "rbf", "random_state": 0, "cal_size": 0.5}
    by_position, of_nothing = (
        SharpGPRegressor(calibration=Exact(by=by), **settings) for by in (1, 0)
    )
    with pytest.warns(UserWarning, match="'one' have the same value in every row"):
        by_position.fit(frame, y)
    assert len(by_position.calibrated_.parts.columns) == 3
    with (
        pytest.warns(UserWarning, match="'one' have the same value in every row"),
        pytest.raises(InvalidInputError, match="found 'one', which the model does not use"),
    ):
        of_nothing.fit(frame, y)


def test_a_misspelled_column_is_refused_before_the_fit(monkeypatch):
    X, y = data(30)
    frame = pd.DataFrame({"x": X[:, 0], "kind": X[:, 1].astype(int).astype(str)})
    monkeypatch.setattr("sharpgp._fit.within_memory", None)
    with pytest.raises(InvalidInputError, match="x, kind, found 'knd'; did you mean kind"):
        SharpGPRegressor(base="rbf", calibration=Exact(by="knd")).fit(frame, y)


def test_unusable_classes(model):
    X, y = data(30)
    with pytest.raises(InvalidInputError, match="by: expected classes that calibration points"):
        ScoredPredictor.from_model(model, torch.tensor(X), torch.tensor(y)).within([0])
    for by, message in (("nope", "by: expected a column's name"), (5, "its position below 2")):
        with pytest.raises(InvalidInputError, match=message):
            SharpGPRegressor(base="rbf", calibration=Exact(by=by)).fit(X, y)
    found = ScoredPredictor.from_model(model, torch.tensor(X), torch.tensor(y))
    with pytest.raises(InvalidInputError, match="by: expected a function that gives a number"):
        found.within(lambda X: ["a"] * len(X))
