"""``compact()``: the same answers from a smaller file, and one line for what needs more."""

import numpy as np
import pandas as pd
import pytest

from helpers import wavy
from sharpgp import SharpGPRegressor
from sharpgp.exceptions import InvalidInputError

pytestmark = pytest.mark.filterwarnings("ignore::UserWarning")

X, Y = wavy(80)
X_NEW, Y_NEW = wavy(25, seed=1)
GROUPS = np.arange(80) // 4


def answers(model, X=X_NEW, **how):
    found = [model.predict(X, **how), model.predict_interval(X, [0.5, 0.9], **how)]
    return [*found, model.predict_quantiles(X, [0.1, 0.8], **how)]


def same(compact, model, X=X_NEW, **how):
    for one, other in zip(answers(compact, X, **how), answers(model, X, **how), strict=True):
        assert np.array_equal(one, other)


@pytest.fixture(scope="module")
def pooled():
    return SharpGPRegressor(base=["rbf", "matern32", "extra_trees"], random_state=0).fit(X, Y)


@pytest.mark.parametrize(
    "model",
    [
        SharpGPRegressor(base="rbf", calibration="exact", random_state=0),
        SharpGPRegressor(base="matern32", calibration="paper", random_state=0),
        SharpGPRegressor(base=["rbf", "random_forest"], y_bounds=(-9, None), random_state=0),
    ],
)
def test_answers_are_the_same(model):
    same(model.fit(X, Y).compact(), model)


def test_a_file_is_smaller_and_answers_alike(pooled, tmp_path):
    compact = pooled.compact()
    pooled.save(tmp_path / "whole.sgp")
    compact.save(tmp_path / "compact.sgp")
    sizes = [(tmp_path / name).stat().st_size for name in ("compact.sgp", "whole.sgp")]
    assert sizes[0] < 0.75 * sizes[1]
    again = SharpGPRegressor.load(tmp_path / "compact.sgp")
    same(again, pooled)
    same(again.compact(), pooled)
    dist, whole = again.predict_dist(X_NEW), pooled.predict_dist(X_NEW)
    assert np.array_equal(dist.crps(Y_NEW), whole.crps(Y_NEW))
    report, of_whole = (one.calibration_report(X_NEW, Y_NEW) for one in (again, pooled))
    assert report["crps"] == of_whole["crps"]


def test_what_needs_labelled_rows_says_so_in_one_line(pooled):
    compact, before = pooled.compact(), pooled.predict(X_NEW)
    for ask in (
        lambda: compact.update(X_NEW, Y_NEW),
        lambda: compact.calibration_report(),
        lambda: compact.select(X_NEW, above=0.0),
    ):
        with pytest.raises(InvalidInputError, match=r"a compact one; use the model") as found:
            ask()
        assert "\n" not in str(found.value)
    assert np.array_equal(pooled.predict(X_NEW), before)
    assert pooled.update(X_NEW, Y_NEW).calibrated_.n_cal == 105  # the whole one still learns


def test_trees_keep_no_rows(tmp_path):
    model = SharpGPRegressor(base="random_forest", random_state=0).fit(X, Y)
    compact = model.compact()
    assert len(compact.calibrated_.model.X_train) == 1
    compact.save(tmp_path / "model.sgp")
    same(SharpGPRegressor.load(tmp_path / "model.sgp"), model)


def test_known_groups_repeats_categories_and_several_outputs(tmp_path):
    grouped = SharpGPRegressor(base="rbf", random_state=0).fit(X, Y, groups=GROUPS)
    same(grouped.compact(), grouped)
    same(grouped.compact(), grouped, groups=np.repeat(GROUPS[:5], 5))
    twice = np.repeat(X[:40], 2, axis=0)
    repeated = SharpGPRegressor(base="rbf", random_state=0).fit(twice, Y)
    same(repeated.compact(), repeated, np.r_[twice[:5], X_NEW])
    table = pd.DataFrame(X, columns=["a", "b"]).assign(kind=np.array(list("abcd"))[GROUPS % 4])
    named = SharpGPRegressor(base="rbf", random_state=0).fit(table, Y)
    new = pd.DataFrame(X_NEW, columns=["a", "b"]).assign(kind="e")
    same(named.compact(), named, new)
    two = SharpGPRegressor(base="rbf", random_state=0).fit(X, np.c_[Y, -Y])
    two.compact().save(tmp_path / "two.sgp")
    again = SharpGPRegressor.load(tmp_path / "two.sgp")
    assert np.array_equal(again.predict_region(X_NEW), two.predict_region(X_NEW))
    same(again, two)
