"""Weights of rows: in all that is averaged over rows, and in no law; none for zero."""

from dataclasses import replace

import numpy as np
import pandas as pd
import pytest
import torch
from sklearn.linear_model import LinearRegression, Ridge
from sklearn.neighbors import KNeighborsRegressor
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from helpers import wavy
from sharpgp import CalibrationWarning, CrossValidated, Online, SharpGPRegressor
from sharpgp.calibration.predictors.scored import HeldOutPredictor
from sharpgp.diagnostics import diagnose
from sharpgp.exceptions import InvalidInputError
from sharpgp.gp import train
from sharpgp.models.laws import Normal
from sharpgp.models.pool_weights import crps_of_scores, crps_products, unit_size
from sharpgp.models.trees.forests import ExtraTrees, LeafForest, TargetCells
from sharpgp.relevance import relevance
from sharpgp.report import verdict_of
from sharpgp.rows import Rows

pytestmark = [
    pytest.mark.usefixtures("one_start"),
    pytest.mark.filterwarnings("ignore::sharpgp.CalibrationWarning"),
]
X, Y = wavy(60, seed=3)
X_TEST, _ = wavy(30, seed=6)
WEIGHTS = np.random.default_rng(0).uniform(0.2, 4.0, 60)


def answers(model):
    return np.column_stack([model.predict(X_TEST), model.predict_interval(X_TEST, 0.8)])


# ------------------------------------------------------------------ the parts, by oracles


def test_a_gp_does_not_take_weights_for_precision():
    """A GP averages nothing over rows: its likelihood, mean and deviation know no weights."""
    plain, y = Rows(torch.from_numpy(X)), torch.from_numpy(Y)
    weighted = replace(plain, weight=torch.from_numpy(WEIGHTS))
    ours, theirs = (train(rows, y)[0] for rows in (weighted, plain))
    torch.testing.assert_close(ours.theta_R, theirs.theta_R, rtol=0, atol=0)
    asked = torch.from_numpy(X_TEST)
    for a, b in zip(ours.mean_and_sigma(asked), theirs.mean_and_sigma(asked), strict=True):
        torch.testing.assert_close(a, b, rtol=0, atol=0)
    assert ours.at_rows(torch.arange(5)).rows.weight.tolist() == WEIGHTS[:5].tolist()


@pytest.mark.parametrize("base", ["rbf", ["matern32", "extra_trees"], Ridge()])
def test_no_law_depends_on_the_weight_or_the_unit_of_a_row(base):
    model = SharpGPRegressor(base=base, calibration="cv", random_state=0)
    model.fit(X, Y, sample_weight=WEIGHTS)
    rows, inner = model.rows(X_TEST), model.calibrated_.model
    known = replace(rows, weight=torch.linspace(0.1, 9.0, 30).double(), unit=torch.arange(30))
    z = torch.tensor([[-1.0], [0.5]]).double()
    torch.testing.assert_close(inner.value(known, z), inner.value(rows, z), rtol=0, atol=0)


def test_the_scores_of_weights_are_those_of_repeated_points():
    rng = np.random.default_rng(2)
    m, s, y = (torch.from_numpy(part) for part in (rng.normal(size=9), rng.uniform(1, 2, 9), Y[:9]))
    counts = torch.tensor([1, 2, 3, 1, 1, 4, 2, 1, 1])
    each, often = torch.arange(9), torch.arange(9).repeat_interleave(counts)

    def products(rows, weights):
        laws = [Normal(m[rows], s[rows]), Normal(0.5 * m[rows], 2.0 * s[rows])]
        return crps_products(laws, y[rows], weights)

    torch.testing.assert_close(products(each, counts.double()), products(often, None))
    # Many rows of two weights: quantiles of scores, by which a model is sized and scored.
    z = torch.from_numpy(rng.normal(size=500)) * (1.0 + torch.arange(500) % 2)
    twice = torch.cat([z, z[1::2], z[1::2]])
    weights = 1.0 + 2.0 * (torch.arange(500) % 2).double()
    assert unit_size(z, weights) == pytest.approx(unit_size(twice), rel=5e-3)
    laws = [Normal(torch.zeros_like(one), torch.ones_like(one)) for one in (z, twice)]
    weighted = crps_of_scores(laws[0], z, z, weights)
    assert weighted == pytest.approx(crps_of_scores(laws[1], twice, twice), rel=5e-3)


@pytest.mark.parametrize("kind", [ExtraTrees, LeafForest])
def test_trees_of_equal_weights_are_those_of_none(kind):
    def law(weights):
        found = kind(X, Y, 0, weights=weights).law(X_TEST, torch.ones(1).double())
        return found, found.value(torch.tensor([[-1.0], [0.0], [1.0]]).double())

    plain, quantiles = law(None)
    ones = law(np.full(60, 1.0))
    if kind is ExtraTrees:  # a random forest draws its rows in another way with weights
        torch.testing.assert_close(ones[1], quantiles)
    other, higher = law(np.where(Y > 0, 10.0, 0.01))
    assert bool((other.location > plain.location - 0.2).all())
    assert float((higher - quantiles).mean()) > 0.1


def test_laws_of_trees_have_weighted_shares():
    """One leaf of all rows: a tree, and the root beside it, give each target its weight."""
    y, weights = np.repeat([0.0, 1.0, 5.0], 20), np.repeat([1.0, 0.5, 1.5], 20)
    cells = TargetCells(y, weights)
    flat, like = np.zeros((60, 1)), torch.ones(1).double()
    values = torch.tensor([[0.5], [3.0]]).double()
    for kind in (ExtraTrees, LeafForest):
        law = kind(flat, y, 0, cells, weights=weights).law(flat[:1], like)
        share = torch.special.ndtr(law.score(values))[:, 0]
        np.testing.assert_allclose(share, [1 / 3, 1 / 2], atol=0.03)
        assert law.location.item() == pytest.approx(8.0 / 3.0, rel=0.05)


# ------------------------------------------------------------------ the estimator

METHODS = ("cv", "loo", "exact", "kuleshov18")


@pytest.mark.parametrize("calibration", METHODS)
def test_equal_weights_are_none_and_zero_weights_are_rows_left_out(calibration):
    model = SharpGPRegressor(base="rbf", calibration=calibration, random_state=0)
    plain = answers(model.fit(X, Y))
    np.testing.assert_array_equal(answers(model.fit(X, Y, sample_weight=np.full(60, 7.0))), plain)
    some = np.where(np.arange(60) % 5 > 0, WEIGHTS, 0.0)
    weighted = answers(model.fit(X, Y, sample_weight=some))
    kept = some > 0
    np.testing.assert_array_equal(
        answers(model.fit(X[kept], Y[kept], sample_weight=some[kept])), weighted
    )
    # Only ratios matter.
    scaled = answers(model.fit(X, Y, sample_weight=1000.0 * some))
    np.testing.assert_allclose(scaled, weighted, rtol=1e-6, atol=1e-6)
    levels = np.linspace(0.2, 0.8, 7)
    quantiles = model.predict_quantiles(X_TEST, levels)
    without = model.fit(X[kept], Y[kept]).predict_quantiles(X_TEST, levels)
    assert np.abs(quantiles - without).max() > 1e-3


@pytest.mark.parametrize(
    "base",
    [
        ["rbf", "extra_trees", "boosted_trees"],
        ["matern32", "random_forest"],
        "extra_trees",
        LinearRegression(),
        make_pipeline(StandardScaler(), Ridge()),
    ],
)
def test_weights_pull_predictions_where_they_are(base):
    """Two laws for one input: with weights on one of them, that one is learned and covered."""
    rng = np.random.default_rng(0)
    x = rng.uniform(-2, 2, (80, 1))
    upper = np.arange(80) % 2 == 0
    y = np.where(upper, 3.0, 0.0) + 0.2 * x[:, 0] + 0.1 * rng.normal(size=80)
    weights = np.where(upper, 1.0, 0.02)
    model = SharpGPRegressor(base=base, calibration="cv", random_state=0)
    model.fit(x, y, sample_weight=weights)
    assert 2.4 < model.predict(x).mean() < 3.1
    ends = model.predict_interval(x[upper], 0.9)
    assert np.mean((ends[:, 0] <= y[upper]) & (y[upper] <= ends[:, 1])) > 0.85
    assert abs(SharpGPRegressor(base=base, random_state=0).fit(x, y).predict(x).mean() - 1.5) < 0.4


def test_weights_with_groups_frames_outputs_files_and_updates(tmp_path):
    table = pd.DataFrame({"x": X[:, 0], "kind": np.where(X[:, 0] > 0, "a", "b")})
    model = SharpGPRegressor(base=["rbf", "extra_trees"], calibration="cv", random_state=0)
    model.fit(table, pd.Series(Y), sample_weight=pd.Series(WEIGHTS))
    model.save(tmp_path / "model.sgp")
    again = SharpGPRegressor.load(tmp_path / "model.sgp")
    np.testing.assert_array_equal(again.predict(table), model.predict(table))
    assert again.weight_ == WEIGHTS.mean()
    assert model.calibration_report()["coverage_95"] > 0.85
    parts = model.explain_width(table[:4])
    ends = model.predict_interval(table[:4])
    np.testing.assert_allclose(parts.total, ends[:, 1] - ends[:, 0], rtol=1e-9)
    assert parts.columns == ("x", "kind")
    assert relevance(model, table).shape == (2,)
    assert list(model.summary().lengthscales) == ["x", "kind", "kind=a"][:2]
    grouped = SharpGPRegressor(base="rbf", calibration="exact", random_state=0)
    grouped.fit(X, Y, groups=np.arange(60) // 3, sample_weight=WEIGHTS)
    assert grouped.predict_interval(X_TEST, 0.5).shape == (30, 2)
    both = SharpGPRegressor(base="rbf", calibration="exact", random_state=0)
    both.fit(X, np.column_stack([Y, -Y]), sample_weight=np.where(np.arange(60) % 7, WEIGHTS, 0))
    one = both.outputs_[0]
    np.testing.assert_allclose(both.predict(X_TEST)[:, 0], one.predict(X_TEST))
    assert one.weight_ > 0
    before = grouped.fit(X, Y, sample_weight=WEIGHTS).calibrated_.n_effective
    grouped.update(X_TEST, X_TEST[:, 0], sample_weight=np.linspace(0, 3, 30))
    assert grouped.calibrated_.n_effective > before
    with pytest.raises(InvalidInputError, match="expected weights for the new points, found none"):
        grouped.update(X_TEST, X_TEST[:, 0])


@pytest.mark.parametrize("given", [{"sample_weight": WEIGHTS}, {"noise": WEIGHTS / 100}])
def test_reports_speak_of_columns_and_know_their_training_rows(given):
    model = SharpGPRegressor(base="rbf", calibration="loo", random_state=0).fit(X, Y, **given)
    found = diagnose(model, X, Y)
    assert found.n_seen == 60
    assert verdict_of(found).heading == "Cannot be judged:"
    if "sample_weight" in given:
        assert diagnose(model).X.shape == X.shape


def test_rows_that_repeat_stay_together():
    """Copies with other weights are on one side of a split: their scores are no better."""
    rng = np.random.default_rng(0)
    X2, y2 = np.repeat(X, 2, axis=0), np.repeat(Y, 2) + 0.01 * rng.normal(size=120)
    model = SharpGPRegressor(base="rbf", calibration=CrossValidated(folds=5), random_state=0)
    alone = np.diff(model.fit(X, Y).predict_interval(X_TEST, 0.8)).mean()
    weighted = model.fit(X2, y2, sample_weight=rng.uniform(0.9, 1.1, 120))
    assert np.diff(weighted.predict_interval(X_TEST, 0.8)).mean() > 0.7 * alone


REFUSED = {
    "negative": ({}, {"sample_weight": -WEIGHTS}, "at least 0, found -"),
    "short": ({}, {"sample_weight": WEIGHTS[:-1]}, "expected 60 numbers, one per row"),
    "none": ({}, {"sample_weight": np.zeros(60)}, "some above zero, found none"),
    "noise": ({}, {"sample_weight": WEIGHTS, "noise": 0.1}, "weights or noise, found both"),
    "two": (
        {},
        {"sample_weight": WEIGHTS, "sample_weight_cal": WEIGHTS},
        "expected it or sample_weight_cal, found both",
    ),
    "draw": ({"calibration": "vovk20"}, {"sample_weight": WEIGHTS}, "a method that ranks scores"),
    "vanilla": ({"calibration": "vanilla"}, {"sample_weight": WEIGHTS}, "method that ranks scores"),
    "base": ({"base": KNeighborsRegressor()}, {"sample_weight": WEIGHTS}, "takes sample_weight, f"),
}


@pytest.mark.parametrize("name", REFUSED)
def test_what_cannot_be_weighted_is_refused_in_one_line(name):
    settings, given, message = REFUSED[name]
    model = SharpGPRegressor(**{"base": "rbf", "calibration": "exact"} | settings)
    with pytest.raises(InvalidInputError, match=message) as caught:
        model.fit(X, Y, **given)
    assert "\n" not in str(caught.value)
    assert str(caught.value).startswith("sample_weight: ")


@pytest.mark.parametrize("approximation", ["sparse", "neighbours"])
def test_weights_go_with_every_approximation(approximation):
    model = SharpGPRegressor(base="rbf", calibration="cv", approximation=approximation)
    model.fit(X, Y, sample_weight=WEIGHTS)
    assert np.isfinite(model.predict_interval(X_TEST, 0.8)).all()


def test_weights_are_not_known_of_all_rows_after_the_fit():
    model = SharpGPRegressor(base="rbf", calibration="kuleshov18", random_state=0)
    model.fit(X, Y, sample_weight=WEIGHTS)
    with pytest.raises(InvalidInputError, match="fitted without sample_weight"):
        model.update(X_TEST, X_TEST[:, 0], sample_weight=np.ones(30), refit=True)


def test_own_calibration_data_have_weights_of_their_own():
    model = SharpGPRegressor(base="rbf", calibration="exact", random_state=0)
    cal = X[40:], Y[40:]
    given = {"sample_weight": WEIGHTS[:40], "sample_weight_cal": WEIGHTS[40:]}
    fitted = model.fit(X[:40], Y[:40], *cal, **given)
    np.testing.assert_array_equal(fitted.calibrated_.weights, WEIGHTS[40:])
    plain = model.fit(X[:40], Y[:40], *cal, sample_weight=WEIGHTS[:40])
    assert plain.calibrated_.weights is None
    assert issubclass(CalibrationWarning, UserWarning)


def test_the_report_of_a_weighted_fit_is_of_the_weighted_population():
    """By hand: means with the weights, where loud rows count more."""
    model = SharpGPRegressor(base="rbf", calibration="loo", random_state=0)
    model.fit(X, Y, sample_weight=WEIGHTS)
    report = model.calibration_report(coverage=0.8)
    view = HeldOutPredictor(model.calibrated_)
    ends = view.predict_interval(view.X_cal, 0.8).numpy()
    y, w = view.y_cal.numpy(), model.calibrated_.weights.numpy()
    inside = (ends[:, 0] <= y) & (y <= ends[:, 1])
    assert report["coverage_80"] == pytest.approx(np.average(inside, weights=w))
    assert report["width_80"] == pytest.approx(np.average(np.ptp(ends, axis=1), weights=w))
    crps = view.predict_dist(view.X_cal).numpy().crps(y)
    assert report["crps"] == pytest.approx(np.average(crps, weights=w))
    assert report["crps"] != pytest.approx(crps.mean(), rel=1e-3)


def test_a_stream_of_a_weighted_model_goes_on_with_the_usual_weight():
    model = SharpGPRegressor(base="rbf", calibration="exact", random_state=0)
    model.fit(X, Y, sample_weight=WEIGHTS)
    stream = Online(model, coverage=0.8, window=10)
    ends = stream.track(X_TEST[:4], X_TEST[:4, 0])
    assert np.isfinite(ends).all()
    known = model.calibrated_.weights
    assert stream.calibrated.weights[-4:].tolist() == pytest.approx(
        [float(known.mean())] * 4, rel=0.3
    )
