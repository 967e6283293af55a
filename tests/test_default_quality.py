"""What all rules are for: the default's scores and coverage on three small sets, within a band."""

import warnings

import numpy as np
import pytest
from sklearn.datasets import load_diabetes, make_friedman1

from sharpgp import SharpGPRegressor
from sharpgp.metrics import interval_coverage, interval_score

N = 120


def diabetes():
    X, y = load_diabetes(return_X_y=True)
    order = np.random.default_rng(0).permutation(len(y))
    return X[order], y[order]


def friedman():
    return make_friedman1(1120, 6, noise=1.0, random_state=0)


def growing_noise():
    rng = np.random.default_rng(0)
    X = rng.uniform(-2, 2, (1120, 2))
    return X, np.sin(2 * X[:, 0]) + (0.1 + 0.2 * (X[:, 0] + 2)) * rng.normal(size=1120)


@pytest.mark.parametrize(
    ("data", "crps", "score"),
    [(diabetes, 31.5, 252.0), (friedman, 0.611, 5.10), (growing_noise, 0.303, 2.90)],
)
def test_the_default_is_as_good_as_it_was(data, crps, score):
    """CRPS and 95 % interval score of new rows, at most 5 % above the stored ones."""
    X, y = data()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        model = SharpGPRegressor(random_state=0).fit(X[:N], y[:N])
    ends = model.predict_interval(X[N:], 0.95)
    assert np.mean(model.predict_dist(X[N:]).crps(y[N:])) < 1.05 * crps
    assert interval_score(y[N:], *ends.T, coverage=0.95) < 1.05 * score
    assert 0.92 < interval_coverage(y[N:], *ends.T) < 0.985
