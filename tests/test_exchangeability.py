"""A test of whether new rows are like those that calibrated the model."""

import numpy as np
import pandas as pd
import pytest
import torch
from scipy.stats import kstest

from sharpgp import CalibrationWarning, SharpGPRegressor
from sharpgp.calibration.scored import ScoredPredictor
from sharpgp.exceptions import InvalidInputError
from sharpgp.exchangeability import compare


def data(n, seed=0, shift=0.0, noise=0.1):
    rng = np.random.default_rng(seed)
    X = rng.uniform(-3, 3, (n, 2)) + np.array([shift, 0.0])
    return X, np.sin(X[:, 0]) + noise * rng.normal(size=n)


@pytest.fixture(scope="module")
def model():
    settings = {"base": "rbf", "calibration": "kuleshov18", "random_state": 0}
    return SharpGPRegressor(**settings).fit(*data(120))


@pytest.mark.filterwarnings("ignore::sharpgp.CalibrationWarning")
def test_p_values_are_uniform_where_nothing_changed(model):
    """Calibration rows are drawn again with the new ones, as the test supposes."""
    found = []
    for seed in range(200):
        X, y = (torch.tensor(part) for part in data(80, seed=seed + 1))
        again = ScoredPredictor.of(model.calibrated_.model, X[:40], y[:40])
        one = compare(again, X[40:], y[40:])
        found.append([one.centre, one.size])
    for p in np.transpose(found):
        assert kstest(p, "uniform").pvalue > 1e-3


@pytest.mark.parametrize("change", [{"noise": 0.3}, {"shift": 2.0, "noise": 0.3}])
def test_changes_are_found_and_named(model, change):
    with pytest.warns(CalibrationWarning, match="new rows are unlike those"):
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
