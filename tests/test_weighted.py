"""Weighted scores: coverage under a known covariate shift, and equal weights are none."""

import numpy as np
import pytest
import torch

from helpers import FakePosterior, fake_data, marked, method, wavy
from sharpgp import CalibrationWarning, SharpGPError, SharpGPRegressor
from sharpgp.exceptions import InvalidInputError
from sharpgp.persistence import load, save

pytestmark = pytest.mark.usefixtures("one_start")

WEIGHTABLE = ("exact", "cv", "kuleshov18", "marx22")
X_TEST, _ = map(torch.from_numpy, wavy(30, seed=6))
X_CAL, Y_CAL = map(torch.from_numpy, wavy(39, seed=1))


def fitted(name, gp, weights=None):
    if name == "cv":
        return method(name).fit(gp, sample_weight=weights)
    return method(name).fit(gp, X_CAL, Y_CAL, sample_weight=weights)


# ------------------------------------------------------------------ by hand


def by_hand(scores, weights, level, w):
    """Smallest score with enough weight at or below it; infinite if there is none."""
    total = sum(weights) + w
    mass = 0.0
    for z, weight in sorted(zip(scores, weights, strict=True)):
        mass += weight / total
        if mass >= level - 1e-12:
            return z
    return np.inf


@pytest.mark.filterwarnings("ignore::sharpgp.CalibrationWarning")
def test_steps_by_hand():
    rng = np.random.default_rng(0)
    X = torch.zeros(30, 1, dtype=torch.float64)
    y, weights = rng.normal(size=30), rng.uniform(0, 3, 30)
    weights[4] = 0.0
    test = rng.uniform(0, 5, 12)
    predictor = method("marx22").fit(FakePosterior(), X, y, sample_weight=weights)
    backed = 0
    for c in (0.3, 0.5, 0.8, 0.9):
        band = predictor.predict_interval(X[:12], c, symmetric=True, sample_weight=test)
        centred = predictor.predict_interval(X[:12], c, symmetric=False, sample_weight=test)
        for i, w in enumerate(test):
            ends = [by_hand(s, weights, (1 + c) / 2, w) for s in (-y, y)]
            for found, right in (
                (band[i, 1], by_hand(np.abs(y), weights, c, w)),
                (-centred[i, 0], ends[0]),
                (centred[i, 1], ends[1]),
            ):
                if np.isfinite(right):
                    backed += 1
                    assert float(found) == pytest.approx(right, rel=1e-8)
                else:
                    assert float(found) >= np.abs(y).max() or float(found) >= y.max()
    assert backed > 100


def test_both_tails_are_treated_alike():
    """Mirrored scores give mirrored quantiles; weighted like the other tail, they would not."""
    rng = np.random.default_rng(1)
    X = torch.zeros(60, 1, dtype=torch.float64)
    y, weights = rng.normal(size=60), rng.uniform(0.1, 3, 60)
    levels = np.linspace(0.1, 0.9, 17)
    ours, mirrored = (
        method("marx22").fit(FakePosterior(), X, z, sample_weight=weights) for z in (y, -y)
    )
    torch.testing.assert_close(
        ours.predict_quantiles(X[:1], levels),
        -mirrored.predict_quantiles(X[:1], levels).flip(-1),
        rtol=1e-8,
        atol=1e-8,
    )


def test_effective_number_of_points():
    X, y = fake_data(40)
    weights = np.r_[np.ones(10), np.zeros(30)]
    predictor = method("kuleshov18").fit(FakePosterior(), X, y, sample_weight=weights)
    only = method("kuleshov18").fit(FakePosterior(), X[:10], y[:10])
    assert predictor.n_effective == pytest.approx(10)
    assert predictor.n_cal == 10
    levels = np.arange(1, 11) / 11
    torch.testing.assert_close(
        predictor.predict_quantiles(X, levels), only.predict_quantiles(X, levels)
    )
    with pytest.warns(CalibrationWarning, match="needs at least 19 calibration points, found 10"):
        predictor.predict_quantiles(X, 0.95)


# ------------------------------------------------------------------ equal weights are none


@pytest.mark.parametrize("name", marked(WEIGHTABLE, slow={"cv"}))
@pytest.mark.filterwarnings("ignore::sharpgp.CalibrationWarning")
def test_equal_weights_change_nothing(name, gp):
    plain = fitted(name, gp)
    weighted = fitted(name, gp, np.full(plain.n_cal, 1e200))
    assert weighted.weights is not None
    assert weighted.n_cal == plain.n_cal
    for symmetric in (True, False, None):
        for c in (0.5, 0.8, 0.9, 0.95, 0.999):
            torch.testing.assert_close(
                weighted.predict_interval(X_TEST, c, symmetric=symmetric),
                plain.predict_interval(X_TEST, c, symmetric=symmetric),
                rtol=1e-8,
                atol=1e-8,
            )
    levels = [0.001, 0.05, 0.31, 0.9, 0.999]
    torch.testing.assert_close(
        weighted.predict_quantiles(X_TEST, levels), plain.predict_quantiles(X_TEST, levels)
    )
    torch.testing.assert_close(weighted.predict_dist(X_TEST).std, plain.predict_dist(X_TEST).std)


@pytest.mark.filterwarnings("ignore::sharpgp.CalibrationWarning")
def test_other_weights_take_the_place_of_the_first(gp):
    """A predictor weighted twice forgets its first weights."""
    X_cal, y_cal = map(torch.from_numpy, wavy(40, seed=1))
    X_new = torch.from_numpy(wavy(10, seed=2)[0])
    plain = method("kuleshov18").fit(gp, X_cal, y_cal)
    first, second = torch.linspace(0.1, 2, 40), torch.linspace(2, 0.1, 40)
    again = plain.weighted(first).weighted(second)
    expected = plain.weighted(second).predict_interval(X_new, 0.8, symmetric=True)
    torch.testing.assert_close(again.predict_interval(X_new, 0.8, symmetric=True), expected)


def test_larger_test_weights_give_wider_intervals(gp):
    weights = torch.rand(39, generator=torch.Generator().manual_seed(0)).double()
    predictor = fitted("kuleshov18", gp, weights)
    for symmetric in (True, False):
        ends = [
            predictor.predict_interval(
                X_TEST, 0.5, symmetric=symmetric, sample_weight=torch.full((30,), w)
            )
            for w in (0.0, 0.3, 1.0, 4.0, 12.0)
        ]
        low, high = torch.stack(ends).unbind(-1)
        assert (low.diff(dim=0) <= 0).all()
        assert (high.diff(dim=0) >= 0).all()
        assert (high[-1] > high[0]).all()
    default = predictor.predict_interval(X_TEST, 0.5)
    largest = predictor.predict_interval(X_TEST, 0.5, sample_weight=weights.max().expand(30))
    assert torch.equal(default, largest)


# ------------------------------------------------------------------ coverage


def drawn(n, shift, seed):
    """Inputs around ``shift``, noise that grows with them: constant widths are wrong."""
    rng = np.random.default_rng(seed)
    x = rng.normal(shift, 1.0, size=(n, 1))
    return torch.from_numpy(x), torch.from_numpy(np.exp(0.5 * x[:, 0]) * rng.normal(size=n))


def ratio(X):
    """Density of N(1, 1) over that of N(0, 1)."""
    return np.exp(X[:, 0] - 0.5)


@pytest.mark.filterwarnings("ignore::sharpgp.CalibrationWarning")
@pytest.mark.parametrize(
    ("symmetric", "sets"),
    [(False, 100), *(pytest.param(how, 250, marks=pytest.mark.slow) for how in (True, False))],
)
def test_coverage_under_covariate_shift(symmetric, sets):
    """At least nominal, at most the largest share of one point more; off without weights."""
    C, points, c = 150, 150, 0.8
    found = {"plain": [], "weighted": []}
    largest = []
    for seed in range(sets):
        X, y = drawn(C, 0.0, [2, seed])
        X_test, y_test = drawn(points, 1.0, [3, seed])
        for kind, weights in (("plain", None), ("weighted", ratio)):
            predictor = method("marx22").fit(FakePosterior(), X, y, sample_weight=weights)
            lower, upper = predictor.predict_interval(X_test, c, symmetric=symmetric).T
            inside = (lower <= y_test) & (y_test <= upper)
            found[kind].append(float(inside.double().mean()))
        w, w_test = ratio(X.numpy()), ratio(X_test.numpy())
        largest.append(np.mean(np.maximum(w.max(), w_test) / (w.sum() + w_test)))
    # Sets are independent of one another: the error of their mean is that of a mean.
    error = np.std(found["weighted"]) / sets**0.5
    tails = 1 if symmetric else 2
    assert np.mean(found["weighted"]) > c - 3 * error
    assert np.mean(found["weighted"]) < c + tails * np.mean(largest) + 3 * error
    assert np.mean(found["plain"]) < c - 0.08
    assert error < 0.01


@pytest.mark.filterwarnings("ignore::sharpgp.CalibrationWarning")
@pytest.mark.parametrize("sets", marked([120, 300], slow={300}))
def test_the_largest_weight_is_enough_where_weights_are_bounded(sets):
    """Test inputs thinned with probability ``w(x) <= 1``; the predictor knows ``w_i`` alone."""
    c, shares = 0.8, []
    for seed in range(sets):
        rng = np.random.default_rng([4, seed])
        X, y = drawn(80, 0.0, [5, seed])
        weights = 1.0 / (1.0 + np.exp(-2.0 * X[:, 0].numpy()))
        predictor = method("marx22").fit(FakePosterior(), X, y, sample_weight=weights)
        X_test, y_test = drawn(300, 0.0, [6, seed])
        kept = rng.uniform(size=300) < 1.0 / (1.0 + np.exp(-2.0 * X_test[:, 0].numpy()))
        lower, upper = predictor.predict_interval(X_test[kept], c, symmetric=True).T
        shares.append(float(((lower <= y_test[kept]) & (y_test[kept] <= upper)).double().mean()))
    error = np.std(shares) / sets**0.5
    assert c - 3 * error < np.mean(shares) < c + 0.04


# ------------------------------------------------------------------ too little weight, errors


def test_points_beyond_the_weights_are_named(gp):
    predictor = fitted("kuleshov18", gp, np.ones(39))
    weights = np.ones(30)
    weights[7] = 1e6
    with pytest.warns(CalibrationWarning, match="not backed at 1 of 30 points.* 39.0 effective"):
        ends = predictor.predict_interval(X_TEST, 0.9, sample_weight=weights)
    assert torch.isfinite(ends).all()
    usual = predictor.predict_interval(X_TEST, 0.9, sample_weight=np.ones(30))
    assert (ends[7].diff() > usual[7].diff()).all()
    assert torch.equal(ends[:7], usual[:7])


BAD = {
    "negative": (np.r_[-1.0, np.ones(38)], "at least 0, found -1"),
    "nan": (np.r_[np.nan, np.ones(38)], "finite numbers, found nan at row 0"),
    "none": (np.zeros(39), "some positive weights, found none among the 39"),
    "short": (np.ones(38), r"expected 39 numbers, one per row, found shape \(38,\)"),
    "text": (["a"] * 39, "expected numbers"),
    "function": (lambda X: np.ones(3), r"expected 39 numbers, one per row, found shape \(3,\)"),
}


@pytest.mark.parametrize("kind", BAD)
def test_wrong_weights(kind, gp):
    weights, message = BAD[kind]
    with pytest.raises(InvalidInputError, match=message) as caught:
        fitted("kuleshov18", gp, weights)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("name", ["vanilla", "vovk20", "paper"])
def test_methods_without_ranks_say_so(name, gp):
    with pytest.raises(InvalidInputError, match="expected a method that ranks scores"):
        fitted(name, gp, np.ones(39))


def test_weights_without_weighted_calibration(gp):
    with pytest.raises(InvalidInputError, match="found one without"):
        fitted("kuleshov18", gp).predict_interval(X_TEST, sample_weight=np.ones(30))


# ------------------------------------------------------------------ update, estimator


def test_update():
    X, y = fake_data(60)
    weights = np.random.default_rng(0).uniform(size=60)
    whole = method("kuleshov18").fit(FakePosterior(), X, y, sample_weight=weights)
    part = method("kuleshov18").fit(FakePosterior(), X[:20], y[:20], sample_weight=weights[:20])
    later = part.updated(X[20:], y[20:], sample_weight=weights[20:])
    ask = {"coverage": [0.5, 0.8], "symmetric": False}
    torch.testing.assert_close(
        later.predict_interval(X, **ask), whole.predict_interval(X, **ask), rtol=1e-12, atol=1e-12
    )
    with pytest.raises(InvalidInputError, match="expected weights for the new points, found none"):
        part.updated(X[20:], y[20:])
    known = method("kuleshov18").fit(FakePosterior(), X[:20], y[:20], sample_weight=ratio)
    assert len(known.updated(X[20:], y[20:]).weights) == 60


def test_estimator():
    X, y = wavy(100, seed=3)
    model = SharpGPRegressor(calibration="kuleshov18", cal_size=25, random_state=0)
    weights = np.exp(X[:, 0])
    given = model.fit(X, y, sample_weight_cal=weights).calibrated_
    # Each held-out row got its own weight.
    np.testing.assert_allclose(given.weights, given.X_cal[:, 0].exp())
    with pytest.raises(InvalidInputError, match="refit: expected weights of all points"):
        model.update(X, y, sample_weight=weights, refit=True)
    model.update(X[:5], y[:5], sample_weight=weights[:5])
    assert len(model.calibrated_.weights) == 30

    asked = model.fit(X, y, sample_weight_cal=lambda X: np.exp(X[:, 0])).calibrated_
    assert torch.equal(asked.weights, given.weights)
    np.testing.assert_allclose(
        model.predict_interval(X_TEST, 0.5),
        given.predict_interval(X_TEST, 0.5, sample_weight=X_TEST[:, 0].exp()),
    )
    assert len(model.update(X[:5] + 0.01, y[:5], refit=True).calibrated_.weights) == 25
    auto = SharpGPRegressor(base="rbf", random_state=0).fit(X, y, sample_weight_cal=weights)
    assert auto.calibration_ == "exact"  # weights ask for a guarantee
    own = model.fit(X[:70], y[:70], X[70:], y[70:], sample_weight_cal=weights[70:]).calibrated_
    np.testing.assert_array_equal(own.weights, weights[70:])
    with pytest.raises(InvalidInputError, match="expected 30 numbers, one per row"):
        model.fit(X[:70], y[:70], X[70:], y[70:], sample_weight_cal=weights)


def test_saving(gp, tmp_path):
    weights = np.linspace(0, 1, 39)
    predictor = fitted("kuleshov18", gp, weights)
    save(predictor, tmp_path / "a.sgp")
    again = load(tmp_path / "a.sgp")
    ask = {"coverage": 0.8, "sample_weight": np.linspace(0, 1, 30)}
    assert torch.equal(
        again.predict_interval(X_TEST, **ask), predictor.predict_interval(X_TEST, **ask)
    )
    assert torch.equal(
        again.predict_quantiles(X_TEST, 0.3), predictor.predict_quantiles(X_TEST, 0.3)
    )
    assert again.n_cal == predictor.n_cal
    with pytest.raises(SharpGPError, match="function objects cannot be stored without code"):
        save(fitted("kuleshov18", gp, ratio), tmp_path / "b.sgp")


def test_a_conditioned_gp_keeps_the_weights(gp):
    predictor = fitted("kuleshov18", gp, np.linspace(0, 1, 39))
    later = predictor.condition_on_observations(X_CAL[:5], Y_CAL[:5])
    assert later.posterior is later.model.posterior
    assert later.posterior.n_train == gp.n_train + 5
    assert torch.equal(later.weights, predictor.weights)
    difference = later.predict_quantiles(X_TEST, 0.5) - predictor.predict_quantiles(X_TEST, 0.5)
    assert difference.abs().max() > 0
