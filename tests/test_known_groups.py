"""Groups that the model was given: sharper answers, calibrated, beside new groups in one call."""

import warnings

import numpy as np
import pytest

from sharpgp import CalibrationWarning, SharpGPRegressor
from sharpgp.exceptions import InvalidInputError

pytestmark = pytest.mark.usefixtures("one_start")


def world(seed, constant=True):
    """Groups with an effect; their features are constant, or say nothing of the group."""
    rng = np.random.default_rng(seed)
    of_group, effect = rng.normal(size=(240, 1)), 0.7 * rng.normal(size=240)

    def rows(g):
        own = rng.normal(size=(len(g), 2))
        X = np.c_[of_group[g], own[:, :1]] if constant else own
        return X, np.sin(X[:, 0]) + 0.3 * X[:, 1] + effect[g] + 0.3 * rng.normal(size=len(g)), g

    train = np.repeat(np.arange(40), rng.integers(2, 7, 40))
    asked = np.r_[rng.integers(0, 40, 300), rng.integers(40, 240, 300)]
    return rows(train), rows(asked)


def fitted(calibration, X, y, g, seed=0, **settings):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", CalibrationWarning)
        model = SharpGPRegressor(
            base="rbf", calibration=calibration, cal_size=0.4, random_state=seed, **settings
        )
        return model.fit(X, y, groups=g)


@pytest.mark.parametrize("constant", [True, False])
@pytest.mark.parametrize("calibration", ["exact", "cv"])
def test_known_groups_are_sharper_and_covered(calibration, constant):
    shares, widths = [], []
    for seed in range(4):
        (X, y, g), (X_new, y_new, g_new) = world(seed, constant)
        model = fitted(calibration, X, y, g, seed)
        lower, upper = model.predict_interval(X_new, 0.8, groups=g_new).T
        inside = (lower <= y_new) & (y_new <= upper)
        shares.append([inside[:300].mean(), inside[300:].mean()])
        widths.append([(upper - lower)[:300].mean(), (upper - lower)[300:].mean()])
        # New groups are answered as ever.
        np.testing.assert_allclose(
            np.c_[lower, upper][300:], model.predict_interval(X_new[300:], 0.8)
        )
    mean, error = np.mean(shares, 0), np.std(shares, 0, ddof=1) / 2
    assert (mean > 0.8 - 3 * error - 0.01).all()
    known, new = np.mean(widths, 0)
    assert known < 0.7 * new


def test_noise_within_a_group_is_its_own():
    """One variance for all groups gave quiet ones 0.85 of the width of loud ones."""
    rng = np.random.default_rng(0)
    quiet, effect = np.arange(30) < 8, rng.normal(size=30)

    def rows(g):
        X, noise = rng.uniform(-2, 2, (len(g), 1)), np.where(quiet, 0.1, 1.0)[g]
        return X, np.sin(2 * X[:, 0]) + effect[g] + noise * rng.normal(size=len(g))

    g, g_new = np.repeat(np.arange(30), np.where(quiet, 20, 3)), rng.integers(0, 30, 600)
    (X, y), (X_new, y_new) = rows(g), rows(g_new)
    lower, upper = fitted("cv", X, y, g).predict_interval(X_new, 0.9, groups=g_new).T
    width = upper - lower
    assert width[quiet[g_new]].mean() < 0.5 * width[~quiet[g_new]].mean()
    assert ((lower <= y_new) & (y_new <= upper)).mean() > 0.85


def test_every_question_takes_groups(tmp_path):
    (X, y, g), (X_new, y_new, g_new) = world(0, constant=False)
    names = np.array([f"patient {k}" for k in range(240)])
    model = fitted("cv", X, y, names[g])
    asked = {"groups": names[g_new]}
    quantiles = model.predict_quantiles(X_new, [0.1, 0.5, 0.9], **asked)
    assert (np.diff(quantiles) >= 0).all()
    dist = model.predict_dist(X_new, **asked)
    assert dist.crps(y_new)[:300].mean() < 0.8 * model.predict_dist(X_new).crps(y_new)[:300].mean()
    mean, std = model.predict(X_new, return_std=True, **asked)
    assert std[:300].mean() < std[300:].mean()
    assert mean.shape == (600,)
    model.save(tmp_path / "model.sgp")
    again = SharpGPRegressor.load(tmp_path / "model.sgp")
    np.testing.assert_allclose(again.predict_quantiles(X_new, [0.1, 0.5, 0.9], **asked), quantiles)
    # Rows that come later are of new groups, and what is known of the others stays.
    again.update(X_new[300:350], y_new[300:350], groups=[f"new {k}" for k in range(50)])
    ends = again.predict_interval(X_new, 0.8, **asked)
    np.testing.assert_allclose(ends[300:], again.predict_interval(X_new[300:], 0.8))
    inside = (ends[:300, 0] <= y_new[:300]) & (y_new[:300] <= ends[:300, 1])
    assert inside.mean() > 0.7
    again.save(tmp_path / "again.sgp")
    third = SharpGPRegressor.load(tmp_path / "again.sgp")
    np.testing.assert_allclose(third.predict_interval(X_new, 0.8, **asked), ends)


def test_a_pool_knows_groups():
    (X, y, g), (X_new, y_new, g_new) = world(1, constant=False)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", CalibrationWarning)
        model = SharpGPRegressor(base=["rbf", "extra_trees"], random_state=0).fit(X, y, groups=g)
    errors = [
        np.sqrt(np.mean((model.predict(X_new, groups=of)[:300] - y_new[:300]) ** 2))
        for of in (g_new, None)
    ]
    assert errors[0] < 0.7 * errors[1]


def test_groups_of_one_row_each_have_nothing_to_tell(tmp_path):
    (X, y, g), _ = world(0)
    first = np.unique(g, return_index=True)[1][:20]
    rows = np.r_[first, first[:2] + 1]  # two groups with two rows
    model = fitted("cv", X[rows], y[rows], g[rows])
    model.save(tmp_path / "model.sgp")
    with pytest.raises(InvalidInputError, match="groups: expected a model that was fitted with"):
        SharpGPRegressor.load(tmp_path / "model.sgp").predict(X, groups=g)


def test_groups_need_a_model_with_groups():
    (X, y, g), _ = world(0)
    model = fitted("cv", X, y, None)
    with pytest.raises(InvalidInputError, match="groups: expected a model that was fitted with"):
        model.predict(X, groups=g)
    model = fitted("cv", X, y, g)
    with pytest.raises(InvalidInputError, match=r"groups: expected \d+ labels"):
        model.predict(X, groups=g[:3])
