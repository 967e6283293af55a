"""Copies that are not equal bit by bit, and copies that hide behind a column."""

import warnings

import numpy as np
import pandas as pd
import pytest
import torch

from sharpgp import SharpGPRegressor
from sharpgp.data.copies import HiddenCopies, Nearest, equal_rows


def _wave(rng, n):
    X = rng.uniform(-2, 2, (n, 2))
    return X, np.sin(2 * X[:, 0]) + X[:, 1] + 0.3 * rng.normal(size=n)


# ------------------------------------------------------------------ near copies


@pytest.mark.parametrize("n", [60, 3000])
@pytest.mark.parametrize("moved", ["jitter", "float32"])
def test_copies_that_differ_by_rounding_share_a_label(n, moved):
    rng = np.random.default_rng(0)
    X = rng.normal(size=(n, 3)) * [1.0, 1e6, 1e-4] + [0.0, 3e6, 0.0]
    again = X.astype(np.float32) if moved == "float32" else X + 1e-9 * X.std(0)
    labels = equal_rows(torch.from_numpy(np.concatenate([X, again])))
    assert torch.equal(labels, torch.arange(n).repeat(2))
    assert torch.equal(
        Nearest(torch.from_numpy(X)).find(torch.from_numpy(again.astype(float))), torch.arange(n)
    )


def test_pairs_at_the_border_of_a_cell_are_not_split():
    """Rounding to a grid would split pairs on two sides of a border of a cell."""
    rng = np.random.default_rng(1)
    X = np.round(rng.normal(size=(500, 2)), 6) + 5e-7
    both = np.concatenate([X - 1e-9, X + 1e-9])
    assert torch.equal(equal_rows(torch.from_numpy(both)), torch.arange(500).repeat(2))


@pytest.mark.parametrize("n", [200, 5000, 20000])
def test_dense_rows_are_no_copies(n):
    X = torch.from_numpy(np.random.default_rng(n).uniform(size=(n, 1)))
    assert torch.equal(equal_rows(X), torch.arange(n))


def test_an_outlier_makes_no_copies():
    X = torch.arange(40.0, dtype=torch.float64)[:, None].clone()
    X[7] = 1e12
    assert len(equal_rows(X).unique()) == 40


@pytest.mark.parametrize("calibration", ["cv", "exact"])
def test_jitter_changes_nothing(calibration):
    X, y = _wave(np.random.default_rng(0), 70)
    X, y = X.repeat(3, axis=0), y.repeat(3)
    Z, _ = _wave(np.random.default_rng(1), 50)
    found = []
    for noise in (0.0, 1e-9):
        X_near = X + noise * np.random.default_rng(2).normal(size=X.shape)
        model = SharpGPRegressor(base="rbf", calibration=calibration, random_state=0)
        with pytest.warns(UserWarning, match="140 of 210 rows are copies"):
            model.fit(X_near, y)
        found.append(model.predict_interval(Z, 0.9))
    np.testing.assert_allclose(*found, atol=1e-4)


def test_a_near_copy_of_a_known_input_is_known():
    X, y = _wave(np.random.default_rng(0), 80)
    X, y = np.concatenate([X, X[:40]]), np.concatenate([y, y[:40]])
    with pytest.warns(UserWarning, match="repeat others in X and y"):
        model = SharpGPRegressor(base="rbf", random_state=0).fit(X, y)
    model.update(X[:3] + 1e-9, y[:3])  # joins these inputs
    ends = model.predict_interval(X[:3] + 1e-9, 0.9)
    np.testing.assert_allclose(ends, model.predict_interval(X[:3], 0.9))
    assert np.ptp(ends, axis=1).max() < 1e-3


# ------------------------------------------------------------------ hidden copies


def _hidden(kind, rng):
    X, y = _wave(rng, 70)
    if kind == "number":
        rows = rng.permutation(210) % 70
        return np.c_[X[rows], np.arange(210)], y[rows], (2,)
    rows = np.r_[:70, :40]
    return np.c_[X[rows], np.r_[np.zeros(70), np.ones(40)]], y[rows], (2,)


@pytest.mark.parametrize("kind", ["number", "source"])
def test_a_column_that_hides_copies_is_named_and_each_is_used_once(kind):
    X, y, hides = _hidden(kind, np.random.default_rng(0))
    found = HiddenCopies.find(X, y, [[0], [1], [2]])
    assert found.columns == [hides]
    assert len(np.unique(found.units)) == 70
    with pytest.warns(UserWarning, match=r"columns but 'x2': each is used once"):
        model = SharpGPRegressor(base="rbf", random_state=0).fit(X, y)
    assert model.calibrated_.n_train == 70
    Z, t = _wave(np.random.default_rng(1), 2000)
    ends = model.predict_interval(np.c_[Z, np.zeros(2000)], 0.9)
    assert np.mean((ends[:, 0] <= t) & (t <= ends[:, 1])) > 0.84  # 0.5 otherwise


def test_copies_of_which_some_were_changed_stay_together():
    rng = np.random.default_rng(0)
    X, y, _ = _hidden("number", rng)
    y[::4] += rng.normal(size=len(y[::4]))
    with pytest.warns(UserWarning, match="they stay together"):
        model = SharpGPRegressor(base="rbf", random_state=0).fit(X, y)
    assert model.calibrated_.counted == "groups"
    with pytest.warns(UserWarning, match="intervals may cover much less"):
        SharpGPRegressor(base="rbf", calibration="loo").fit(X, y)


def test_all_features_of_a_column_count_as_one():
    X, y, _ = _hidden("number", np.random.default_rng(0))
    kinds = np.array(["a", "b", "c"])[np.unique(X[:, 2] // 70, return_inverse=True)[1]]
    table = pd.DataFrame({"u": X[:, 0], "v": X[:, 1], "kind": kinds})
    with pytest.warns(UserWarning, match="columns but 'kind'"):
        SharpGPRegressor(base="rbf", effort="low").fit(table, y)


@pytest.mark.parametrize("target", ["counts", "rounded", "replicates"])
def test_equal_targets_alone_make_no_copies(target):
    rng = np.random.default_rng(0)
    X = rng.integers(0, 3, (300, 6)).astype(float)
    y = rng.poisson(3 * np.exp(0.3 * X[:, 0])).astype(float)
    if target == "rounded":
        y = np.round(X[:, 0] + rng.normal(size=300), 1)
    if target == "replicates":  # a laboratory number beside measured values
        X = np.c_[rng.normal(size=100).repeat(3), np.tile([0.0, 1.0, 2.0], 100)]
        y = np.round(X[:, 0] + 0.3 * rng.normal(size=300), 2)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert not HiddenCopies.find(X, y, [[j] for j in range(X.shape[1])]).columns
