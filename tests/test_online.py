"""Online mode: the bound that holds for every sequence, and coverage on a series that drifts."""

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from helpers import FakePosterior, fake_data, method, wavy
from sharpgp import Online, SharpGPRegressor
from sharpgp.data.target_bounds import Bounds
from sharpgp.exceptions import InvalidInputError

X0, Y0 = fake_data(39)
KNOWN = method("kuleshov18").fit(FakePosterior(), X0, Y0)
ORIGIN = torch.zeros(1, 1, dtype=torch.float64)


def bound(alpha, gamma, T):
    return (max(alpha, 1 - alpha) + gamma) / (gamma * T)


# ------------------------------------------------------------------ for every sequence


@settings(max_examples=40, deadline=None)
@given(
    st.lists(st.sampled_from([0.0, 0.5, -1.5, 4.0, -40.0, 1e12]), min_size=1, max_size=120),
    st.floats(0.02, 0.98),
    st.floats(0.001, 2.0),
    st.sampled_from([None, 5]),
)
def test_long_run_errors_are_bounded_for_every_sequence(sequence, coverage, gamma, window):
    online = Online(KNOWN, coverage, gamma=gamma, window=window)
    alpha = 1 - coverage
    for t, y in enumerate(sequence, start=1):
        online.observe(ORIGIN, [y])
        assert -gamma - 1e-9 <= online.alpha <= 1 + gamma + 1e-9
        assert abs(online.missed / t - alpha) <= bound(alpha, gamma, t) + 1e-9
    assert online.steps == len(sequence)


def test_the_bound_is_reached_by_an_adversary():
    """Labels that always miss, while anything can miss: the slack is below two steps."""
    online = Online(KNOWN, 0.9, gamma=0.05, window=None)
    steps = 400
    for _ in range(steps):
        upper = online.predict_interval(ORIGIN)[0, 1]
        online.observe(ORIGIN, [float(upper) + 1 if torch.isfinite(upper) else 0.0])
    assert online.missed / steps > 0.1
    assert abs(online.alpha - (0.1 + 0.05 * (0.1 * steps - online.missed))) < 1e-9


def test_the_level_moves_as_stated():
    online = Online(KNOWN, 0.9, gamma=0.04, window=None)
    online.observe(ORIGIN, [100.0])
    assert online.alpha == pytest.approx(0.1 + 0.04 * (0.1 - 1))
    online.observe(ORIGIN, [0.0])
    assert online.alpha == pytest.approx(0.1 + 0.04 * (0.2 - 1))
    expected = KNOWN.predict_interval(X0, 1 - online.alpha)
    assert torch.equal(online.predict_interval(X0), expected)
    # Four rows at once are one step, with the share that was missed.
    online = Online(KNOWN, 0.9, gamma=0.04).observe(ORIGIN.repeat(4, 1), [0.0, 0.0, 9.0, 0.0])
    assert online.alpha == pytest.approx(0.1 + 0.04 * (0.1 - 0.25))
    assert (online.steps, online.missed) == (1, 0.25)


def test_beyond_the_ends():
    online = Online(KNOWN, 0.9, gamma=0.2)
    online.observe(ORIGIN, [100.0])
    assert online.alpha < 0
    assert online.predict_interval(X0[:2]).tolist() == [[-np.inf, np.inf]] * 2
    online.observe(ORIGIN, [1e250])
    assert online.missed == 1
    # Where everything is asked to be missed, the mean alone is left, and it counts as missed.
    online = Online(KNOWN, 0.1, gamma=0.5, window=None)
    online.observe(ORIGIN, [online.predict_interval(ORIGIN).mean()])
    assert online.alpha >= 1
    assert online.predict_interval(ORIGIN).tolist() == [[0.0, 0.0]]
    missed = online.missed
    online.observe(ORIGIN, [0.0])
    assert online.missed == missed + 1


# ------------------------------------------------------------------ drift


def drifting(n, seed):
    """Noise as the posterior says, and twice that from the middle on."""
    X, y = fake_data(n, seed=[7, seed])
    return X, torch.where(torch.arange(n) < n // 2, y, 2 * y)


@pytest.mark.slow
@pytest.mark.parametrize("window", [100, None])
def test_coverage_when_the_noise_doubles(window):
    """Within one point of nominal in the long run, for every seed, where a fixed model is off.

    The bound leaves 0.92 / (0.02 * 1000) = 5 points; the steps taken at the end are known, so
    that what is left is the distance of the last level from the first.
    """
    n = 1000
    for seed in range(2):
        X, y = drifting(n, seed)
        online = Online(KNOWN, 0.9, gamma=0.02, window=window)
        lower, upper = online.track(X, y).T
        inside = (lower <= y) & (y <= upper)
        assert abs(float(inside.double().mean()) - 0.9) < 0.01
        assert abs(float(inside[n // 2 :].double().mean()) - 0.9) < 0.015
        assert float(inside.double().mean()) == pytest.approx(1 - online.missed / online.steps)
        fixed = KNOWN.predict_interval(X[n // 2 :], 0.9)
        inside = (fixed[:, 0] <= y[n // 2 :]) & (y[n // 2 :] <= fixed[:, 1])
        assert float(inside.double().mean()) < 0.75
    if window:  # fresh scores make do with few infinite intervals
        assert torch.isfinite(lower).double().mean() > 0.98


def test_the_window_holds_the_newest_points():
    X, y = drifting(120, 0)
    online = Online(KNOWN, 0.9, window=50)
    online.track(X, y)
    direct = method("kuleshov18").fit(FakePosterior(), X[-50:], y[-50:])
    torch.testing.assert_close(online.calibrated.scores, direct.scores)
    assert KNOWN.n_cal == 39
    still = Online(KNOWN, 0.9, window=None)
    still.track(X[:5], y[:5])
    assert still.calibrated is KNOWN


def test_track_predicts_before_it_learns():
    X, y = drifting(30, 1)
    one, other = Online(KNOWN, 0.8, gamma=0.1), Online(KNOWN, 0.8, gamma=0.1)
    ends = one.track(X, y)
    for i in range(30):
        assert torch.equal(other.predict_interval(X[i : i + 1])[0], ends[i])
        other.observe(X[i : i + 1], y[i : i + 1])
    assert one.alpha == other.alpha


# ------------------------------------------------------------------ models, errors


def test_estimators_answer_in_numpy():
    X, y = wavy(60)
    for calibration in ("kuleshov18", "vanilla"):
        model = SharpGPRegressor(base="rbf", calibration=calibration, random_state=0).fit(
            X[:50], y[:50]
        )
        window = None if calibration == "vanilla" else 20
        online = Online(model, 0.8, window=window)
        assert isinstance(online.predict_interval(X[50:]), np.ndarray)
        assert online.track(X[50:], y[50:]).shape == (10, 2)
    with pytest.raises(InvalidInputError, match="can take new calibration points"):
        Online(model, 0.8, window=20)


WRONG = {
    "model": ({"model": 3}, "found int"),
    "unfitted": ({"model": SharpGPRegressor()}, "found SharpGPRegressor, which is not fitted"),
    "coverage": ({"coverage": 1.0}, r"numbers in \(0, 1\), found 1"),
    "coverages": ({"coverage": [0.5, 0.9]}, "expected one number"),
    "gamma": ({"gamma": 0.0}, "gamma: expected a positive number, found 0.0"),
    "gamma nan": ({"gamma": float("nan")}, "gamma: expected a positive number"),
    "gamma text": ({"gamma": "fast"}, "gamma: expected a positive number"),
    "window": ({"window": 1}, "window: expected a whole number of at least 2"),
}


@pytest.mark.parametrize("kind", WRONG)
def test_wrong_settings(kind):
    settings, message = WRONG[kind]
    with pytest.raises(InvalidInputError, match=message):
        Online(**{"model": KNOWN, **settings})


def test_wrong_data_change_nothing():
    online = Online(KNOWN)
    for X, y in ((X0[:, [0, 0]], Y0), (X0, Y0[:3]), (X0, Y0 * np.nan)):
        with pytest.raises(InvalidInputError):
            online.observe(X, y)
    assert (online.steps, online.alpha) == (0, pytest.approx(0.05))


@pytest.mark.filterwarnings("ignore::UserWarning")
@pytest.mark.parametrize("window", [None, 60])
def test_an_assumed_bound_gives_way_to_the_stream(window):
    """Targets pile up at 0 in training, and the stream goes below."""
    rng = np.random.default_rng(0)
    X = rng.uniform(-2, 2, (120, 1))
    y = np.maximum(0.0, X[:, 0] + 0.3 * rng.normal(size=120))
    model = SharpGPRegressor(base="rbf", calibration="kuleshov18", random_state=0).fit(X, y)
    assert model.calibrated_.bounds.assumed
    online = Online(model, 0.9, gamma=0.02, window=window)
    X = rng.uniform(-2, 2, (300, 1))
    y = np.maximum(-1.0, X[:, 0] - 0.5 + 0.3 * rng.normal(size=300))
    for x, target in zip(X[:, None], y[:, None], strict=True):
        online.observe(x, target)
        assert -0.02 - 1e-9 <= online.alpha <= 1.02 + 1e-9
    assert abs(online.missed / 300 - 0.1) <= bound(0.1, 0.02, 300)
    assert online.calibrated.bounds is None


def test_infinite_intervals_keep_to_given_bounds_only():
    for assumed, low in ((True, -np.inf), (False, 0.0)):
        online = Online(
            KNOWN.with_bounds(Bounds(low=0.0, assumed=assumed)), 0.9, gamma=0.2, window=None
        )
        online.observe(ORIGIN, [100.0])
        assert online.alpha < 0
        assert online.predict_interval(ORIGIN).tolist() == [[low, np.inf]]
    with pytest.raises(InvalidInputError, match="y: expected targets within y_bounds"):
        online.observe(ORIGIN, [-1.0])
