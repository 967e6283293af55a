"""A test of whether new rows are like those that calibrated the model."""

import warnings

import numpy as np
import pandas as pd
import pytest
import torch
from matplotlib.figure import Figure
from scipy.stats import binom, kstest

from helpers import marked
from sharpgp import CalibrationWarning, Online, SharpGPRegressor, plots
from sharpgp.calibration.predictors.scored import ScoredPredictor
from sharpgp.diagnostics import diagnose
from sharpgp.exceptions import InvalidInputError
from sharpgp.exchangeability import Martingale, compare, moved_features
from sharpgp.report.page import render_report


def data(n, seed=0, shift=0.0, noise=0.1):
    rng = np.random.default_rng(seed)
    X = rng.uniform(-3, 3, (n, 2)) + np.array([shift, 0.0])
    return X, np.sin(X[:, 0]) + noise * rng.normal(size=n)


@pytest.fixture(scope="module")
def model():
    settings = {"base": "rbf", "calibration": "kuleshov18", "random_state": 0}
    return SharpGPRegressor(**settings).fit(*data(120))


@pytest.mark.filterwarnings("ignore::sharpgp.CalibrationWarning")
@pytest.mark.parametrize("draws", marked([80, 200], slow={200}))
def test_p_values_are_uniform_where_nothing_changed(model, draws):
    """Calibration rows are drawn again with the new ones, as the test supposes."""
    found = []
    for seed in range(draws):
        X, y = (torch.tensor(part) for part in data(80, seed=seed + 1))
        again = ScoredPredictor.from_model(model.calibrated_.model, X[:40], y[:40])
        one = compare(again, X[40:], y[40:])
        found.append([one.centre, one.size])
    for p in np.transpose(found):
        assert kstest(p, "uniform").pvalue > 1e-3


@pytest.mark.parametrize("change", [{"noise": 0.3}, {"shift": 2.0, "noise": 0.3}])
def test_changes_are_found_and_named(model, change):
    with pytest.warns(CalibrationWarning, match="new rows differ from the calibration data"):
        found = compare(model, *data(120, seed=1, **change))
    assert found.p_value < 0.01
    assert list(found.moved) == (["x0"] if "shift" in change else [])
    assert str(found).startswith("the data have changed: p = ")


def test_frames_and_methods_without_scores(model):
    X, y = data(80)
    frame = pd.DataFrame(X, columns=["a", "b"])
    settings = {"base": "rbf", "random_state": 0}
    fitted = SharpGPRegressor(calibration="kuleshov18", **settings).fit(frame, y)
    new = frame.assign(b=frame["b"] + 4)
    assert list(compare(fitted, new, y).moved) == ["b"]
    with pytest.raises(InvalidInputError, match="a method that ranks scores"):
        compare(SharpGPRegressor(calibration="vanilla", **settings).fit(X, y), X, y)


@pytest.mark.filterwarnings("ignore::sharpgp.CalibrationWarning")
def test_groups_raise_no_more_false_alarms_than_rows(model):
    """New groups of the same law: p < 0.05 in at most 5 %; the rows themselves would in half."""
    alarms, by_row = 0, 0
    settings = {"groups": torch.arange(30).repeat_interleave(5)}
    for seed in range(60):
        X, y = data(250, seed=seed)
        y = y + np.random.default_rng(seed + 1000).normal(size=50).repeat(5)
        X, y = torch.tensor(X), torch.tensor(y)
        old = ScoredPredictor.from_model(model.calibrated_.model, X[:150], y[:150])
        of_groups = old.for_groups(settings["groups"])
        new = np.repeat([f"g{k}" for k in range(20)], 5)
        found = compare(of_groups, X[150:], y[150:], groups=new)
        assert (found.n_old, found.n_new) == (30, 20)
        alarms += found.p_value < 0.05
        by_row += compare(old, X[150:], y[150:]).p_value < 0.05
    assert alarms <= binom.ppf(0.999, 60, 0.05) < by_row


def test_a_report_without_groups_does_not_compare_new_groups():
    X, y = data(90)
    groups = np.repeat(np.arange(30), 3)
    settings = {"base": "rbf", "calibration": "kuleshov18", "cal_size": 0.7, "random_state": 0}
    fitted = SharpGPRegressor(**settings).fit(X, y, groups=groups)
    assert diagnose(fitted, X[:30], y[:30]).exchangeability is None
    found = diagnose(fitted, X[:30], y[:30], groups=groups[:30]).exchangeability
    assert (found.n_old, found.n_new) == (21, 10)
    assert len(Online(fitted).martingale._bets[0].known) == 21


# ------------------------------------------------------------------ streams


def test_a_martingale_seldom_grows_where_nothing_changes():
    """Ville's inequality: capital of 20 in at most 5 % of streams, however long."""
    rng = np.random.default_rng(0)
    large = 0
    for _ in range(200):
        bets = Martingale(rng.normal(size=40))
        bets.observe(rng.normal(size=150))
        large += bets.p_value <= 0.05
    assert large <= binom.ppf(0.999, 200, 0.05)


@pytest.mark.parametrize("change", [lambda z: 3 * z, lambda z: z + 1.5, lambda z: 0.3 * z])
def test_a_martingale_grows_where_scores_change(change):
    rng = np.random.default_rng(1)
    bets = Martingale(rng.normal(size=100))
    bets.observe(rng.normal(size=100))
    before = bets.p_value
    bets.observe(change(rng.normal(size=300)))
    assert bets.p_value < 1e-3 < before
    assert len(bets.log_path) == 400


def test_ties_are_no_evidence():
    bets = Martingale(np.zeros(50))
    bets.observe(np.zeros(300))
    assert bets.p_value > 0.01


@pytest.mark.parametrize("window", [30, None])
def test_a_stream_that_changes_is_noticed_once_with_what_moved(model, window):
    def follow(online, X, y):
        for part in np.split(np.arange(len(y)), 4):
            online.observe(X[part], y[part])

    online = Online(model, window=window)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        follow(online, *data(40, seed=5))
    with pytest.warns(CalibrationWarning, match="differs.*features that moved: x0") as seen:
        follow(online, *data(160, seed=6, shift=2.0, noise=0.8))
    assert sum("stream differs" in str(one.message) for one in seen) == 1
    assert list(online.moved()) == ["x0"]
    ax = plots.martingale(Figure().subplots(), online)
    assert len(ax.lines[0].get_ydata()) == 201


def test_streams_of_other_models_have_no_martingale():
    X, y = data(40)
    vanilla = SharpGPRegressor(base="rbf", calibration="vanilla").fit(X, y)
    online = Online(vanilla, window=None).observe(X[:2], y[:2])
    assert online.martingale is None
    assert online.moved() == {}
    with pytest.raises(InvalidInputError, match="without a martingale"):
        plots.martingale(Figure().subplots(), online)


# ------------------------------------------------------------------ the figure and the report


@pytest.mark.filterwarnings("ignore::sharpgp.CalibrationWarning")
def test_figure_and_report_tell_the_same(model):
    for settings, state in (({}, "well"), ({"noise": 0.5}, "fault")):
        X, y = data(100, seed=8, **settings)
        found = diagnose(model, X, y)
        ax = plots.exchangeability(Figure().subplots(), found.exchangeability)
        assert f'class="verdict {state}"' in render_report(found)
        changed = state == "fault"
        assert ax.get_title(loc="left").startswith("The data have changed") == changed


def test_the_report_counts_gaps():
    X, y = data(160)
    frame = pd.DataFrame(X, columns=["a", "b"])
    frame.loc[::4, "b"] = np.nan
    settings = {"base": "rbf", "calibration": "kuleshov18", "random_state": 0}
    fitted = SharpGPRegressor(**settings).fit(frame[:80], y[:80])
    page = render_report(diagnose(fitted, frame[80:], y[80:]))
    assert "20 values are missing, in 20 of 80 test points; see coverage by gaps" in page


def test_rounding_moves_no_feature():
    rng = np.random.default_rng(0)
    before, after = (rng.integers(0, 2, (n, 2)).astype(float) for n in (400, 300))
    before = np.where(before == 0, 5.6e-17, before * (1 - 2e-16))
    assert moved_features(before, after, ["a", "b"]) == {}
    assert list(moved_features(before, after + np.array([0.0, 1.0]), ["a", "b"])) == ["b"]
