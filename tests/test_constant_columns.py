"""Columns that are constant but for rounding have no influence; far away, the linear part ends."""

import numpy as np
import pandas as pd
import pytest
import torch

from sharpgp import Online, SharpGPRegressor
from sharpgp._validation import constant_columns
from sharpgp.gp.kernels.additive import Additive
from sharpgp.gp.training import train

pytestmark = [
    pytest.mark.usefixtures("one_start"),
    pytest.mark.filterwarnings("ignore::UserWarning"),
    pytest.mark.filterwarnings("ignore::sharpgp.CalibrationWarning"),
]


def data(n=60):
    rng = np.random.default_rng(0)
    X = rng.uniform(-2, 2, (n, 3))
    X[:, 2] = 5.0
    X[3, 2] += 1e-7
    return X, np.sin(2 * X[:, 0]) + X[:, 1] + 0.2 * rng.normal(size=n)


def moved(X, value):
    return np.column_stack([X[:, :2], np.full(len(X), value)])


# ------------------------------------------------------------------ constant columns


@pytest.mark.parametrize(
    "settings",
    [
        {"base": "rbf"},
        {"base": "additive"},
        {"base": ["rbf", "extra_trees", "boosted_trees"], "calibration": "exact"},
        {"base": "rbf", "calibration": "exact"},
        {"base": "additive", "approximation": "sparse"},
        {"base": "matern32", "approximation": "neighbours"},
    ],
    ids=str,
)
def test_a_constant_column_has_no_influence(settings, tmp_path):
    X, y = data()
    model = SharpGPRegressor(**{"calibration": "kuleshov18", "random_state": 0} | settings)
    model.fit(X, y).save(tmp_path / "model.sgp")
    again = SharpGPRegressor.load(tmp_path / "model.sgp")
    new = moved(X[:4], 5.0)
    ends, mean = model.predict_interval(new, 0.8), model.predict(new)
    for value in (5.0000001, 6.0, -1e3, 2.5e18):
        for one in (model, again):
            np.testing.assert_array_equal(one.predict_interval(moved(new, value), 0.8), ends)
            np.testing.assert_array_equal(one.predict(moved(new, value)), mean)
    online = Online(model, 0.8, window=None)
    np.testing.assert_array_equal(online.predict_interval(moved(new, 6.0)), ends)


def test_it_is_forgotten_by_the_next_fit():
    X, y = data()
    model = SharpGPRegressor(base="rbf", calibration="vanilla").fit(X, y)
    assert model.encoding_.unused == ("x2",)
    assert model.calibrated_.n_features == 2
    assert not hasattr(model.fit(np.column_stack([X[:, :2], X[:, 0] ** 2]), y), "encoding_")


def test_tables_leave_it_out():
    X, y = data()
    frame = pd.DataFrame(X, columns=["a", "b", "c"])
    with pytest.warns(UserWarning, match="'c' have the same value in every row; left out"):
        model = SharpGPRegressor(base="rbf", calibration="vanilla").fit(frame, y)
    assert model.encoding_.features == ["a", "b"]


@pytest.mark.parametrize(
    ("column", "constant"),
    [
        (np.full(50, 0.1), True),
        (np.zeros(50), True),
        (0.1 * (1 + 2.3e-16 * (np.arange(50) % 3)), True),
        (5.0 + 5e-7 * (np.arange(50) % 9 == 0), True),
        (np.full(50, 1e300), True),
        (5.0 + 1e-5 * (np.arange(50) % 9 == 0), False),  # more than single precision resolves
        (7.0 + 1e-9 * np.arange(50), False),  # rows that differ are no rounding
        ((np.arange(50) == 3).astype(float), False),
        (np.where(np.arange(50) == 3, 1e-300, 0.0), False),
        (np.array([-1.7e308, 1.7e308] * 25), False),
    ],
)
def test_what_rounding_means(column, constant):
    other = np.arange(50.0)
    found = constant_columns(np.column_stack([other, column]))
    assert found[0].tolist() == ([1.0] if constant else [])


# ------------------------------------------------------------------ far away


def trained_additive(monkeypatch, *, bounded):
    if not bounded:
        monkeypatch.setattr(Additive, "reaching", lambda self, Z: self)
    X, y = (torch.tensor(part) for part in data())
    return train(X[:, :2], y, "additive", start=0)[0]


def test_the_linear_part_ends_a_width_beyond_the_data(monkeypatch):
    gp = trained_additive(monkeypatch, bounded=True)
    low, high = (float(end[1]) for end in gp.input_range)
    edge = high + (high - low)
    points = torch.tensor([[0.0, x] for x in (edge, 1e4, 1e12)], dtype=torch.float64)
    prior = gp.covariance.diag(gp.theta_R[None], gp.x_units.forward(points))[0]
    assert torch.allclose(prior, prior[:1])
    mean, sigma = gp.mean_and_sigma(points)
    assert bool((mean.abs() < 10 * float(gp.y_train.abs().max())).all())
    assert float(sigma.max()) < 10 * float(gp.y_train.std())
    far = gp.conditioned_on(torch.cat([gp.X_train, points[1:2]]), torch.cat([gp.y_train, mean[:1]]))
    assert float(far.covariance.reach.max()) > 1e3  # the data reach farther now


def test_nothing_changes_within_reach(monkeypatch):
    inside = torch.tensor(np.random.default_rng(1).uniform(-5.5, 5.5, (40, 2)))
    bounded = trained_additive(monkeypatch, bounded=True)
    free = trained_additive(monkeypatch, bounded=False)
    assert torch.equal(bounded.theta_R, free.theta_R)
    assert torch.equal(bounded.mean(inside), free.mean(inside))
    theta = free.theta_R[None]
    assert torch.equal(bounded.sigma(theta, inside), free.sigma(theta, inside))
    outside = 1e4 * inside
    assert not torch.allclose(bounded.mean(outside), free.mean(outside))
