"""Categories that no training row has: levels are new units, and intervals say so."""

import numpy as np
import pandas as pd
import pytest
import torch
from scipy.stats import t as student

from sharpgp import SharpGPRegressor
from sharpgp.calibration.predictors.unseen_levels import level_of

pytestmark = [
    pytest.mark.usefixtures("one_start"),
    pytest.mark.filterwarnings("ignore::UserWarning"),
    pytest.mark.filterwarnings("ignore::sharpgp.CalibrationWarning"),
]
LEVELS = 8


def world(seed, n=120, n_new=600):
    """Rows of known levels, new rows of these, and rows of four other levels."""
    rng = np.random.default_rng(seed)
    effects = rng.normal(size=LEVELS + 4)

    def draw(n, levels):
        k, x = rng.choice(levels, n), rng.uniform(-2, 2, n)
        table = pd.DataFrame({"x": x, "c": [f"c{i:02d}" for i in k]})
        return table, np.sin(x) + effects[k] + 0.2 * rng.normal(size=n)

    known, new = np.arange(LEVELS), np.arange(LEVELS, LEVELS + 4)
    return draw(n, known), draw(n_new, known), draw(n_new, new)


def fitted(seed=0, **settings):
    (X, y), known, new = world(seed)
    settings = {"base": "rbf", "calibration": "kuleshov18", "random_state": 0} | settings
    return SharpGPRegressor(**settings).fit(X, y), known, new


def widths(model, X):
    return np.diff(model.predict_interval(X, 0.9)).ravel()


@pytest.mark.parametrize("calibration", ["cv", "exact"])
def test_new_levels_are_covered(calibration):
    """They were covered in 56 of 100 cases, on average."""
    covered = []
    for seed in range(4):
        model, _, (X, y) = fitted(seed, calibration=calibration)
        ends = model.predict_interval(X, 0.9)
        covered.append(((ends[:, 0] <= y) & (y <= ends[:, 1])).mean())
    assert np.mean(covered) > 0.78


def test_rows_of_known_levels_are_untouched():
    model, (known, _), (new, _) = fitted(calibration="cv")
    both = pd.concat([known[:5], new[:5]])
    after = model.predict_interval(both, 0.9)
    means = model.predict(both)
    model.calibrated_.unseen = None
    before = model.predict_interval(both, 0.9)
    np.testing.assert_array_equal(before[:5], after[:5])
    assert (np.diff(after[5:]) > 1.5 * np.diff(before[5:])).all()
    np.testing.assert_array_equal(model.predict(both), means)


def test_the_factor_is_that_of_leaving_out_each_level():
    model, _, (new, _) = fitted(calibration="cv")
    known, unseen = model.calibrated_.model, model.calibrated_.unseen
    features, other = list(unseen.columns[0]), unseen.other[0]
    level, squares = level_of(known.rows, features, other), []
    for k in range(LEVELS):
        rest, test = (level != k).nonzero()[:, 0], (level == k).nonzero()[:, 0]
        X = known.rows.X[test].clone()
        X[:, features] = other
        laws = [fit.with_data(known.rows[rest], known.y_train[rest]).law(X) for fit in known.refits]
        m = torch.stack([law.location for law in laws]).mean(0)
        s2 = torch.stack([law.spread.square() for law in laws]).mean(0)
        squares.append(float(((known.y_train[test] - m).square() / s2).mean()))
    expected = student.ppf(0.95, LEVELS - 1) * np.mean(squares) ** 0.5 / unseen.radius
    found = unseen.factor(known, model.rows(new))
    np.testing.assert_allclose(found, expected, rtol=0.05)


@pytest.mark.parametrize("base", ["rbf", "extra_trees", "prior", ["rbf", "extra_trees"]])
def test_every_base_has_them_and_keeps_them_in_files(base, tmp_path):
    model, (known, y), (new, _) = fitted(base=base, calibration="cv")
    assert widths(model, new).mean() > 1.5 * widths(model, known).mean()
    model.save(tmp_path / "model.sgp")
    again = SharpGPRegressor.load(tmp_path / "model.sgp")
    np.testing.assert_array_equal(widths(again, new), widths(model, new))
    later = again.update(known[:20], y[:20])
    assert widths(later, new).mean() > 1.5 * widths(later, known).mean()
    assert np.isfinite(later.predict_quantiles(new[:3], [0.01, 0.5, 0.99])).all()


def test_a_common_other_is_no_new_category():
    """Beyond the most categories, training rows are of the others, too."""
    rng = np.random.default_rng(0)
    X = pd.DataFrame({"x": rng.normal(size=620), "c": [f"c{i // 2}" for i in range(620)]})
    model = SharpGPRegressor(base="extra_trees", random_state=0).fit(
        X, X["x"] + rng.normal(size=620)
    )
    assert model.calibrated_.unseen is None


def test_few_categories_are_named():
    model, _, (new, _) = fitted()
    with pytest.warns(UserWarning, match="other; intervals there rest on 8 categories at most"):
        model.predict(new[:4])
