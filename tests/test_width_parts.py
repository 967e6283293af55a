"""Parts of a width: they sum to it, and name the column that widens."""

import numpy as np
import pandas as pd
import pytest
from matplotlib.figure import Figure

from sharpgp import SharpGPRegressor


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
    np.testing.assert_allclose(found.width, ends[:, 1] - ends[:, 0], rtol=1e-9)
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


def test_it_prints_and_draws(problem):
    model, frame = problem
    found = model.explain_width(frame[:2])
    assert str(found).splitlines()[1].startswith("noise")
    ax = found.plot(0, Figure().subplots())
    assert len(ax.patches) == 4
    assert "95 % interval, width" in ax.get_title(loc="left")
