"""Mistakes of somebody who comes from another library: one line with cause and cure."""

import numpy as np
import pandas as pd
import pytest
from sklearn.linear_model import Ridge

from helpers import wavy
from sharpgp import SharpGPRegressor
from sharpgp.exceptions import SavedModelError

X, Y = wavy(30)

CALLS = {
    "alpha": (lambda m: m.predict_interval(X, alpha=0.1), "use coverage="),
    "confidence_level": (lambda m: m.predict_interval(X, confidence_level=0.9), "use coverage="),
    "output_type": (lambda m: m.predict(X, output_type="quantiles"), "use predict_quantiles"),
    "n_jobs": (lambda _: SharpGPRegressor(n_jobs=-1), "OMP_NUM_THREADS"),
    "kernel": (lambda _: SharpGPRegressor(kernel="rbf"), "use base="),
    "cv": (lambda _: SharpGPRegressor(cv=5), r"CrossValidated\(folds="),
    "eval_set": (lambda m: m.fit(X, Y, eval_set=[(X, Y)]), "use X_cal= and y_cal="),
    "same name": (
        lambda m: m.fit(pd.DataFrame(X, columns=["a", "a"]), Y),
        "found 'a' twice; rename one",
    ),
    "class": (lambda _: SharpGPRegressor(base=Ridge).fit(X, Y), r"use Ridge\(\)"),
    "by name": (lambda _: SharpGPRegressor(base="xgboost").fit(X, Y), r"XGBRegressor\(\)"),
    "no rows": (lambda _: SharpGPRegressor().fit(X[:0], Y[:0]), "at least two rows, found none"),
    "dicts": (lambda _: SharpGPRegressor().fit([{"a": 1}, {"a": 2}], [1, 2]), "DataFrame"),
    "complex": (lambda _: SharpGPRegressor().fit(X + 1j, Y), "expected real numbers"),
    "one column": (lambda _: SharpGPRegressor().fit(X[:, 0], Y), r"X.reshape\(-1, 1\)"),
    "dates": (
        lambda _: SharpGPRegressor().fit(np.datetime64("2020-01-01") + np.arange(30)[:, None], Y),
        "use a data frame",
    ),
}


@pytest.fixture(scope="module")
def model():
    return SharpGPRegressor(base="rbf", calibration="loo", random_state=0).fit(X, Y)


@pytest.mark.parametrize("name", CALLS)
def test_one_line_says_what_to_do(model, name):
    call, cure = CALLS[name]
    with pytest.raises((TypeError, ValueError), match=cure) as found:
        call(model)
    assert "\n" not in str(found.value)
    assert len(str(found.value)) < 300


def test_numbers_as_text_in_an_array_are_named():
    model = SharpGPRegressor(base="rbf", calibration="loo")
    with pytest.warns(UserWarning, match=r"X: text is read as numbers, such as '-?[\d.]+' = "):
        model.fit(X.round(2).astype(str), Y)


def test_a_text_file_is_no_model(tmp_path):
    (tmp_path / "readme.py").write_text("print('hello')\n" * 9)
    with pytest.raises(
        SavedModelError, match=r"readme\.py: it is not a sharpgp model, or damaged$"
    ):
        SharpGPRegressor.load(tmp_path / "readme.py")


def test_an_argument_that_nobody_knows_is_refused_as_usual():
    with pytest.raises(TypeError, match="unexpected keyword argument 'flavour'"):
        SharpGPRegressor(flavour="sweet")


def test_settings_are_those_of_the_constructor():
    assert set(SharpGPRegressor().get_params()) >= {"base", "calibration", "effort"}


def test_a_target_with_the_rows_in_another_order_is_named():
    frame = pd.DataFrame(X, columns=["a", "b"])
    model = SharpGPRegressor(base="rbf", calibration="loo")
    with pytest.warns(UserWarning, match="in another order"):
        model.fit(frame, pd.Series(Y, index=np.arange(30)[::-1]))
