"""Parts of mean and width: they sum to them, and name the column that matters."""

import sys
from types import SimpleNamespace

import numpy as np
import pandas as pd
import pytest
import torch
from matplotlib.figure import Figure

from sharpgp import SharpGPRegressor
from sharpgp.exceptions import MissingExtraError
from sharpgp.explanations import _typical, explain
from sharpgp.rows import Rows


@pytest.fixture(scope="module")
def problem():
    """Noise grows along "noise"; "far" matters for the mean alone; "idle" for nothing."""
    rng = np.random.default_rng(0)
    frame = pd.DataFrame(rng.uniform(-1, 1, (150, 3)), columns=["noise", "far", "idle"])
    frame["kind"] = rng.choice(["a", "b", "c"], 150)
    scale = 0.05 + 0.6 * (frame["noise"] > 0)
    y = np.sin(3 * frame["far"]) + scale * rng.normal(size=150)
    return SharpGPRegressor(base="rbf", calibration="exact", random_state=0).fit(frame, y), frame


def test_parts_sum_to_the_width(problem):
    model, frame = problem
    found = model.explain_width(frame[:20], coverage=0.8)
    ends = model.predict_interval(frame[:20], 0.8)
    np.testing.assert_allclose(found.total, ends[:, 1] - ends[:, 0], rtol=1e-9)
    assert np.asarray(found).shape == (20, 4)
    assert found.columns == ("noise", "far", "idle", "kind")


def test_the_column_that_widens_is_named(problem):
    model, frame = problem
    found = model.explain_width(frame[:40], coverage=0.9)
    size = np.abs(found.parts).mean(axis=0)
    assert size.argmax() == 0
    assert size[0] > 3 * size[2:].max()
    loud = frame["noise"][:40] > 0.2
    assert (found.parts[loud, 0] > 0).all()
    away = frame[:1].assign(noise=-0.5, far=4.0)
    assert model.explain_width(away, coverage=0.9).parts[0].argmax() == 1


def test_parts_of_the_mean_sum_to_it_and_name_the_column_that_matters(problem):
    model, frame = problem
    found = model.explain(frame[:20])
    np.testing.assert_allclose(found.mean.total, model.predict(frame[:20]), rtol=1e-9)
    assert np.abs(found.mean.parts).mean(axis=0).argmax() == 1
    np.testing.assert_array_equal(found.width, model.explain_width(frame[:20]))


class Known:
    """What an explanation asks of a model, with a mean and a width that are known."""

    def __init__(self, X, mean):
        self.own, self.mean, self.asked = Rows(torch.tensor(X)), mean, 0
        self.calibrated_ = self
        self.n_features_in_ = X.shape[1]

    def rows(self, X):
        return Rows(torch.as_tensor(X))

    def labelled_data(self):
        return self.own, self.mean(self.own.X)

    def predict_mean(self, rows):
        self.asked += len(rows)
        return self.mean(rows.X)

    def predict_interval(self, rows, coverage):
        mean = self.mean(rows.X)
        return torch.stack([mean, 2 * mean], dim=-1)


def test_effects_of_columns_and_pairs_come_out_exactly():
    """x0 + x1 x2: the Shapley values of a product are known."""
    X = np.random.default_rng(0).normal(size=(200, 4))
    model = Known(X, lambda X: X[:, 0] + X[:, 1] * X[:, 2])
    found = explain(model, X[:30])
    chosen = _typical(X, model.mean(model.own.X).numpy())
    centre = chosen[0]

    def of_pair(X):
        return (X[:, 1] - centre[1]) * (X[:, 2] + centre[2]) / 2

    known = np.stack([X[:30, 0] - chosen[:, 0].mean(), of_pair(X[:30]) - of_pair(chosen).mean()], 1)
    np.testing.assert_allclose(found.mean.parts[:, :2], known, atol=1e-12)
    np.testing.assert_allclose(found.mean.parts[:, 3], 0, atol=1e-12)
    np.testing.assert_allclose(found.width.total, model.mean(torch.tensor(X[:30])), atol=1e-12)


def test_a_row_takes_a_few_predictions():
    X = np.random.default_rng(0).normal(size=(200, 4))
    model = Known(X, lambda X: X[:, 0])
    explain(model, X[:1])
    first, model.asked = model.asked, 0
    explain(model, X[:101])
    assert model.asked - first == 100 * 2 * (4 + 1)


def test_typical_rows_have_the_moments_of_all():
    X = np.random.default_rng(1).normal(size=(500, 3))
    chosen = _typical(X, X[:, 0])
    assert np.abs(chosen.mean(0)).max() < 0.2  # 0.25 is the deviation of a random draw's mean
    assert np.abs(chosen[0]).max() < 0.5


def test_a_frame_has_the_users_values(problem):
    model, frame = problem
    found = model.explain(frame[3:5]).frame()
    assert list(found.columns) == ["row", "column", "value", "mean", "width"]
    assert found["value"][3] == frame["kind"].iloc[3]
    assert len(found) == 8


def test_shap_gets_its_own_explanation(problem, monkeypatch):
    model, frame = problem
    found = model.explain(frame[:2])
    monkeypatch.setitem(sys.modules, "shap", SimpleNamespace(Explanation=SimpleNamespace))
    asked = found.shap("width")
    np.testing.assert_allclose(asked.base_values + asked.values.sum(1), found.width.total)
    assert asked.feature_names == list(frame)
    monkeypatch.setitem(sys.modules, "shap", None)
    with pytest.raises(MissingExtraError, match="pip install shap"):
        found.shap()


def test_it_prints_and_draws(problem):
    model, frame = problem
    found = model.explain_width(frame[:2])
    assert str(found).splitlines()[2].startswith("noise")
    ax = found.plot(0, Figure().subplots())
    assert len(ax.patches) == 4
    assert "width of 95 % intervals" in ax.get_title(loc="left")
    axes = model.explain(frame[:1]).plot(0, Figure().subplots(1, 2))
    assert any(label.get_text().startswith("kind = ") for label in axes[0].get_yticklabels())
    assert "typical rows" in model.explain(frame[:1])._repr_html_()
