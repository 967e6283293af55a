"""The adapter for skpro answers as the estimator does, and passes skpro's own checks."""

import numpy as np
import pandas as pd
import pytest

from helpers import wavy
from sharpgp import SharpGPRegressor
from sharpgp.exceptions import MissingExtraError
from sharpgp.for_skpro import SkproRegressor

pytestmark = pytest.mark.filterwarnings("ignore::sharpgp.CalibrationWarning")


def test_a_missing_package_is_named(monkeypatch):
    monkeypatch.setattr("sharpgp._extras.find_spec", lambda name: None)
    with pytest.raises(MissingExtraError, match=r"pip install \"sharpgp\[skpro\]\""):
        SkproRegressor()


@pytest.fixture(scope="module")
def adapted():
    pytest.importorskip("skpro", reason="no skpro; the extra of that name installs it")
    X, y = wavy(60, seed=3)
    table = pd.DataFrame(X, columns=[f"x{j}" for j in range(X.shape[1])])
    given = SharpGPRegressor(base="rbf", calibration="kuleshov18", random_state=0)
    model = SkproRegressor(given).fit(table, pd.DataFrame({"y": y}))
    return model, given.fit(table, y), table[:7]


def test_answers_are_those_of_the_estimator(adapted):
    model, ours, X = adapted
    np.testing.assert_array_equal(model.predict(X)["y"], ours.predict(X))
    ends = model.predict_interval(X, coverage=[0.5, 0.8])
    np.testing.assert_array_equal(ends.xs(0.8, axis=1, level=1), ours.predict_interval(X, 0.8))
    levels = [0.1, 0.5, 0.7]
    found = model.predict_quantiles(X, alpha=levels)
    np.testing.assert_array_equal(found, ours.predict_quantiles(X, levels))
    law, expected = model.predict_proba(X), ours.predict_dist(X)
    at = pd.DataFrame({"y": np.linspace(-1, 1, 7)}, index=X.index)
    np.testing.assert_allclose(law.cdf(at)["y"], expected.cdf(at["y"]))
    np.testing.assert_allclose(law.log_pdf(at)["y"], expected.log_prob(at["y"]))
    np.testing.assert_allclose(law.ppf(law.cdf(at)), at, atol=1e-8)
    np.testing.assert_allclose(law.mean()["y"], expected.mean)
    np.testing.assert_allclose(law.iloc[[2, 4]].var(), law.var().iloc[[2, 4]])


@pytest.mark.slow
def test_skpros_own_checks(adapted):
    from skpro.utils import check_estimator

    check_estimator(type(adapted[0]), raise_exceptions=True)
