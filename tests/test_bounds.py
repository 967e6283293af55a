"""Bounded targets: answers stay within, with probability at the bounds, and coverage is kept."""

import warnings

import numpy as np
import pytest
import torch
from sklearn.linear_model import BayesianRidge

from sharpgp import Online, SharpGPRegressor, calibrate, metrics, persistence
from sharpgp._tail import Tail
from sharpgp.calibration import intervals
from sharpgp.calibration.intervals import bands_pay_within, prefers_band
from sharpgp.calibration.recalibrator import known_methods
from sharpgp.data.target_bounds import BoundedDistribution, Bounds, bounds_for
from sharpgp.diagnostics import diagnose
from sharpgp.distribution import PredictiveDistribution
from sharpgp.exceptions import InvalidInputError, SavedModelError
from sharpgp.models.laws import Normal
from sharpgp.models.model import HeldOut

LEVELS = [0.1, 0.3, 0.5, 0.8, 0.9]
TABLE = np.array([[-2.0, -0.5, 0.1, 0.9, 4.0], [3.0, 3.5, 4.0, 5.0, 6.0], [-9, -8, -7, -6, -5.0]])
TAILS = [None, Tail(torch.tensor([0.8, 0.3, 1.0], dtype=torch.float64), 6.0)]
BOUNDS = [Bounds(0.0), Bounds(high=1.0), Bounds(-0.2, 3.7), Bounds(-30.0, 30.0)]


def law(tail, bounds):
    dist = PredictiveDistribution(LEVELS, TABLE.T, tail=tail, numpy=True)
    return dist, BoundedDistribution(dist, bounds)


# ------------------------------------------------------------------ the distribution


@pytest.mark.parametrize("bounds", BOUNDS, ids=str)
@pytest.mark.parametrize("tail", TAILS, ids=["continued", "given"])
def test_moments_and_scores_are_those_of_the_clipped_variable(tail, bounds):
    dist, bounded = law(tail, bounds)
    # The oracle: the quantile function, clipped, integrated by Gauss's rule between its kinks.
    kinks = [dist.cdf(np.full(3, end)) for end in (bounds.least, bounds.most) if np.isfinite(end)]
    observed = [-0.2, 0.0, 0.6, 1.0, 3.7]
    kinks += [dist.cdf(np.full(3, y)) for y in observed]
    outer = np.geomspace(1e-13, 0.1, 40)
    node, weight = np.polynomial.legendre.leggauss(10)
    for row in range(3):
        breaks = np.unique([*outer, *LEVELS, *(1 - outer), *(kink[row] for kink in kinks)])
        breaks = breaks[(breaks > 1e-13) & (breaks < 1 - 1e-13)]
        half = np.diff(breaks)[:, None] / 2
        p, w = (breaks[:-1, None] + half * (1 + node)).ravel(), (half * weight).ravel()
        q = dist.quantile(p)[row].clip(bounds.least, bounds.most)
        assert bounded.mean[row] == pytest.approx(w @ q, abs=1e-6)
        variance = w @ (q - w @ q) ** 2
        assert bounded.std[row] == pytest.approx(np.sqrt(variance), abs=1e-5)
        for y in observed:
            crps = w @ (2 * ((y <= q) - p) * (q - y))  # twice the pinball loss, over all levels
            assert bounded.crps(np.full(3, y))[row] == pytest.approx(crps, abs=1e-6)


@pytest.mark.parametrize("bounds", BOUNDS, ids=str)
def test_quantiles_cdf_and_draws_agree(bounds):
    dist, bounded = law(TAILS[1], bounds)
    p = np.linspace(0.001, 0.999, 333)
    q = bounded.quantile(p)
    np.testing.assert_array_equal(q, np.clip(dist.quantile(p), bounds.least, bounds.most))
    for level, column in zip(p, q.T, strict=True):
        assert (bounded.cdf(column) >= level - 1e-12).all()
    ends = bounded.interval([0.5, 0.99])
    for values in (ends, bounded.sample(200, random_state=0), bounded.quantile([0.0, 1.0])):
        assert values.min() >= bounds.least
        assert values.max() <= bounds.most
    draws = bounded.sample(4000, random_state=1)
    tolerance = 5 * bounded.std / np.sqrt(4000) + 1e-12
    assert (np.abs(draws.mean(1) - bounded.mean) < tolerance).all()


def test_probability_of_a_bound():
    dist, bounded = law(None, Bounds(0.0, 3.7))
    zero, top = np.zeros(3), np.full(3, 3.7)
    np.testing.assert_allclose(bounded.cdf(zero), dist.cdf(zero), rtol=1e-12)
    assert (bounded.cdf(zero - 1e-9) == 0).all()
    assert (bounded.cdf(top) == 1).all()
    np.testing.assert_allclose(np.exp(bounded.log_prob(zero)), dist.cdf(zero), rtol=1e-9)
    np.testing.assert_allclose(np.exp(bounded.log_prob(top)), 1 - dist.cdf(top), rtol=1e-6)
    assert (bounded.log_prob(zero - 1) == -np.inf).all()
    inside = np.full(3, 0.5)
    np.testing.assert_array_equal(bounded.log_prob(inside), dist.log_prob(inside))
    # An observation beyond a bound, against all that was said, costs its distance from it.
    np.testing.assert_allclose(bounded.crps(zero - 2), bounded.crps(zero) + 2, rtol=1e-9)


def test_an_interval_at_a_bound_holds_targets_that_rounding_moved():
    dist = PredictiveDistribution([0.25, 0.75], [[-3.0], [-1.0]], numpy=True)
    (lower, upper) = BoundedDistribution(dist, Bounds(low=0.0)).interval(0.4)[0]
    assert lower == 0.0
    assert 1e-15 < upper < 1e-9


def test_wide_bounds_change_nothing():
    dist, bounded = law(TAILS[1], Bounds(-1e9, 1e9))
    y = np.array([0.3, 4.0, -20.0])
    for name in ("cdf", "crps", "log_prob"):
        np.testing.assert_allclose(getattr(bounded, name)(y), getattr(dist, name)(y), rtol=1e-12)
    np.testing.assert_allclose(bounded.mean, dist.mean, rtol=1e-7)
    np.testing.assert_allclose(bounded.std, dist.std, rtol=1e-3)  # a heavy tail is cut off
    assert type(bounded.numpy()) is BoundedDistribution


# ------------------------------------------------------------------ arguments


@pytest.mark.parametrize("wrong", [0, "01", (0,), (1, 0), (2, 2), ("a", None), (float("nan"), 1)])
def test_bounds_that_are_none(wrong):
    with pytest.raises(InvalidInputError, match="y_bounds: expected"):
        Bounds.from_pair(wrong)


def test_no_bounds_at_all():
    assert (
        Bounds.from_pair(None)
        is Bounds.from_pair((None, None))
        is Bounds.from_pair((-np.inf, np.inf))
        is None
    )


def test_bounds_are_assumed_where_targets_pile_up():
    y = np.concatenate([np.zeros(20), np.arange(1.0, 100.0)])
    with pytest.warns(UserWarning, match=r"20 of 119 targets are 0.*y_bounds=\(0, None\)"):
        assert bounds_for("auto", y) == Bounds(low=0.0, assumed=True)
    with pytest.warns(UserWarning, match=r"y_bounds=\(None, 0\)"):
        assert bounds_for("auto", -y) == Bounds(high=0.0, assumed=True)
    # Censored at 50: fewer than 5 %, but no value is more frequent.
    rare = np.concatenate([np.full(12, 500.0), np.repeat(np.arange(250.0), 2)])
    with pytest.warns(UserWarning, match="12 of 512"):
        assert bounds_for("auto", rare) == Bounds(high=500.0, assumed=True)


def test_nothing_is_assumed_without_a_pile_or_against_the_user():
    y = np.concatenate([np.zeros(20), np.arange(1.0, 100.0)])
    grades = np.repeat([3.0, 4.0, 5.0, 6.0, 7.0, 8.0], [10, 53, 600, 500, 200, 18])
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert bounds_for((0, None), y) == Bounds(low=0.0)
        assert bounds_for(None, y) is None
        assert bounds_for("auto", np.arange(100.0)) is None
        assert bounds_for("auto", grades) is None
        assert bounds_for("auto", np.zeros(50)) is None
        # Calibration data count: below the pile there is a target.
        assert bounds_for("auto", y, np.array([-1.0])) is None


def test_assumed_bounds_give_way_to_later_targets():
    bounds = Bounds(low=0.0, high=9.0, assumed=True)
    assert bounds.revise(np.array([0.0, 9.0])) is bounds
    with pytest.warns(UserWarning, match="0 to 9 were assumed.*1 of 2 outside, such as -1"):
        assert bounds.revise(np.array([-1.0, 3.0])) == Bounds(high=9.0, assumed=True)
    with pytest.warns(UserWarning, match="were assumed"):
        assert bounds.revise(np.array([-1.0, 30.0])) is None


# ------------------------------------------------------------------ models


def counts(n=120, seed=0):
    rng = np.random.default_rng(seed)
    X = rng.uniform(-2, 2, (n, 1))
    return X, rng.poisson(np.exp(X[:, 0])).clip(max=9).astype(float)


SETTINGS = {"base": "rbf", "calibration": "kuleshov18", "random_state": 0}
QUICK = {"kuleshov18", "marx22", "vovk20", "vanilla"}
METHODS = [
    pytest.param(name, marks=() if name in QUICK else pytest.mark.slow)
    for name in known_methods()
    if name not in ("fully_bayesian", "capone22")  # these need an extra
]


@pytest.mark.parametrize("method", METHODS)
def test_every_method_stays_within_and_covers_as_before(method):
    X_test, y_test = counts(seed=1)
    model = SharpGPRegressor(base="rbf", calibration=method, random_state=0, y_bounds=(0, 9))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        bounded = model.fit(*counts(60)).calibrated_
        free = bounded.with_bounds(None)
        before, after = (p.predict_interval(X_test, [0.5, 0.9]) for p in (free, bounded))
        quantiles = bounded.predict_quantiles(X_test, [0.02, 0.5, 0.98])
        dist = model.predict_dist(X_test)
        mean, std = model.predict(X_test, return_std=True)
        ours, theirs = (p.calibration_report(X_test, y_test) for p in (bounded, free))
    assert before.min() < 0
    torch.testing.assert_close(after, before.clamp(0, 9), rtol=0, atol=0)
    for values in (quantiles.numpy(), dist.sample(20, random_state=0), mean, dist.mean):
        assert values.min() >= 0
        assert values.max() <= 9
    np.testing.assert_allclose(std, dist.std)
    assert ours["coverage_95"] == theirs["coverage_95"]
    for name in ("interval_score_95", "width_95", "crps"):
        assert ours[name] < theirs[name]
    assert ours["rmse"] <= theirs["rmse"]
    assert ours["ece"] == theirs["ece"]


def test_piles_are_found_in_targets_that_were_brought_back():
    y = torch.tensor([0.0, 1e-14, -1e-15] * 10 + [1.0, 50.0], dtype=torch.float64)
    assert Bounds(low=0.0).has_pile(y)
    assert not Bounds(low=-1.0, high=60.0).has_pile(y)


def test_piles_at_a_bound_make_bands():
    X, y = counts()
    model = SharpGPRegressor(**SETTINGS, y_bounds=(0, None))
    assert model.fit(X, y).calibrated_.prefers_band
    assert model.update(*counts(200, seed=5)).calibrated_.prefers_band


def test_bands_or_centred_by_what_scores_better_in_units_of_the_target():
    e = torch.randn(800, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    small = torch.arange(800) < 600
    # Skewed scores where the spread is small: their upper tail would widen all large predictions.
    z = torch.where(small, (1.5 * e).exp() - 1, e)
    location, spread = (torch.where(small, *pair).double() for pair in ((0.2, 10.0), (0.1, 5.0)))
    held = HeldOut(torch.arange(800), Normal(location, spread), z)
    even = HeldOut(torch.arange(800), Normal(location, torch.ones_like(e)), z)
    assert not prefers_band(z, 400)
    assert bands_pay_within(held, Bounds(low=0.0), 400)
    assert not bands_pay_within(even, Bounds(low=0.0), 400)


def test_intervals_are_judged_by_the_interval_score_of_what_the_bound_leaves():
    rng = np.random.default_rng(0)
    location, spread = rng.normal(1, 1, 40), rng.uniform(0.5, 2, 40)
    y = np.maximum(location + spread * rng.normal(size=40), 0.0)
    z, low = (y - location) / spread, -location / spread
    rows = intervals._Rows(*map(torch.tensor, (z, spread, low)))
    lower, upper = (np.maximum(location + end * spread, 0.0) for end in (-0.7, 1.2))
    expected = metrics.interval_score(y, lower, upper, 0.8)
    ends = torch.tensor([[-0.7], [1.2]], dtype=torch.float64)
    assert rows.loss(*ends, 0.8) == pytest.approx(expected, rel=1e-12)


@pytest.mark.parametrize("pay", [True, False])
def test_a_fit_decides_by_held_out_predictions(monkeypatch, pay):
    asked = []

    def decided(held, bounds, n_cal):
        asked.append((len(held.rows), bounds.low, n_cal))
        return pay

    monkeypatch.setattr(intervals, "bands_pay_within", decided)
    X, y = counts()
    model = SharpGPRegressor(base="rbf", calibration="exact", random_state=0).fit(X, y)
    assert model.calibrated_.prefers_band is pay
    assert asked == [(model.posterior_.n_train, 0.0, model.calibrated_.n_cal)]


def test_updates_keep_the_decision_between_bands_and_centred(monkeypatch):
    X, y = counts()
    model = SharpGPRegressor(base="rbf", calibration="exact", random_state=0).fit(X, y)
    predictor = model.calibrated_
    monkeypatch.setattr(type(predictor.model), "leave_one_out", None)  # too slow for a stream
    predictor.bands = [not predictor.prefers_band]
    for later in (
        predictor.updated(*counts(7, seed=5)),
        predictor.rescored(*counts(7, seed=5)),
        predictor.condition_on_observations(*counts(7, seed=5)),
    ):
        assert later.prefers_band == predictor.prefers_band
        assert later.bounds == Bounds(low=0.0, assumed=True)


def test_by_default_piles_are_bounds_until_a_target_lies_beyond(tmp_path):
    X, y = counts()
    with pytest.warns(UserWarning, match="predictions keep to this bound"):
        model = SharpGPRegressor(**SETTINGS).fit(X, y)
    given = SharpGPRegressor(**SETTINGS, y_bounds=(0, None)).fit(X, y)
    np.testing.assert_array_equal(model.predict_interval(X), given.predict_interval(X))
    assert model.predict_interval(X).min() == 0.0
    model.save(tmp_path / "model.sgp")
    again = SharpGPRegressor.load(tmp_path / "model.sgp")
    with pytest.warns(UserWarning, match="no longer keep to them"):
        again.update(X[:1], [-1.0])
    assert again.calibrated_.bounds is None
    assert again.predict_interval(X).min() < 0.0


def test_targets_outside_are_refused_everywhere():
    X, y = counts()
    model = SharpGPRegressor(base="rbf", calibration="kuleshov18", y_bounds=(1, None))
    with pytest.raises(InvalidInputError, match="y: expected targets within y_bounds, 1 to inf"):
        model.fit(X, y)
    model = model.set_params(y_bounds=(0, None)).fit(X, y)
    with pytest.raises(InvalidInputError, match="within y_bounds"):
        model.update(X[:2], [-1.0, 2.0])
    with pytest.raises(InvalidInputError, match="within y_bounds"):
        model.fit(X[:90], y[:90], X[90:], y[90:] - 5)


def test_bounds_stay_through_updates_files_streams_and_groups(tmp_path):
    X, y = counts()
    model = SharpGPRegressor(**SETTINGS, y_bounds=(0, None))
    model.fit(X, y, groups=np.arange(120) // 2)
    model.save(tmp_path / "model.sgp")
    again = SharpGPRegressor.load(tmp_path / "model.sgp")
    assert again.y_bounds == (0, None)
    model.update(*counts(20, seed=3), groups=100 + np.arange(20) // 2)
    stream = Online(again, window=20).observe(*counts(4, seed=4))
    stream.alpha = -1.0
    answers = [
        model.predict_interval(X),
        again.predict_interval(X),
        again.predict_band(X),
        stream.predict_interval(X),
        again.calibrated_.condition_on_observations(X, y).predict_interval(X).numpy(),
    ]
    for ends in answers:
        assert ends.min() == 0.0


def test_a_file_with_bounds_in_disorder_is_refused(tmp_path):
    X, y = counts(40)
    model = SharpGPRegressor(base="rbf", calibration="vanilla", y_bounds=(0, None)).fit(X, y)
    object.__setattr__(model.calibrated_.bounds, "high", -1.0)
    persistence.save(model.calibrated_, tmp_path / "model.sgp")
    with pytest.raises(SavedModelError, match="bounds in order"):
        persistence.load(tmp_path / "model.sgp")


def test_outputs_have_bounds_of_their_own():
    X, y = counts(60)
    Y = np.stack([y, -y], 1)
    model = SharpGPRegressor(**SETTINGS, y_bounds=[(0, None), (None, 0)]).fit(X, Y)
    for ends in (model.predict_region(X, 0.8), model.predict_interval(X, 0.8)):
        assert ends[..., 0].min() == 0.0
        assert ends[..., 1].max() == 0.0
    with pytest.raises(InvalidInputError, match="one for each of 2 outputs, found 3"):
        SharpGPRegressor(**SETTINGS, y_bounds=[(0, 1)] * 3).fit(X, Y)


def test_diagnostics_share_what_lies_at_a_bound():
    """A target at a bound has a probability of its own: its PIT is drawn from all of it."""
    X, y = counts(90)
    model = SharpGPRegressor(**SETTINGS, y_bounds=(0, 9)).fit(X, y)
    for fitted in (model, model.calibrated_):
        found = diagnose(fitted, *counts(300, seed=2), coverages=[0.5, 0.8])
        zero = found.y == 0
        assert zero.sum() > 20
        assert found.atoms[zero].all()
        up_to = model.predict_dist(found.X[zero]).cdf(np.zeros(zero.sum()))
        assert (found.pit[zero] <= up_to).all()
        assert 0.35 < (found.pit[zero] / up_to).mean() < 0.65
        closed = (found.lower <= found.y[:, None]) & (found.y[:, None] <= found.upper)
        assert found.covered.mean() < closed.mean()


def test_models_of_other_kinds_keep_to_bounds():
    X, y = counts()
    line = BayesianRidge().fit(X[:60], y[:60])
    bounded = calibrate(line, X[60:], y[60:], y_bounds=(0, None))
    ends = bounded.predict_interval(X, 0.9)
    assert ends.min() == 0
    free = bounded.with_bounds(None)
    np.testing.assert_array_equal(ends, free.predict_interval(X, 0.9).clip(min=0))
    assert type(bounded.predict_dist(X)) is BoundedDistribution
    assert bounded.predict_mean(X).min() >= 0
