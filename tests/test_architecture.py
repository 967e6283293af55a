"""The walk on the architecture page, beside a trace of the program."""

import inspect
import re
import sys
from pathlib import Path

import pytest
from sklearn.utils import validation as sklearn_validation

import sharpgp
from helpers import wavy
from sharpgp import CrossValidated, SharpGPRegressor, _validation

PAGE = (Path(__file__).parents[1] / "docs" / "architecture.md").read_text(encoding="utf-8")
SOURCE = Path(sharpgp.__file__).parent
#: The most that the way of one interval may pass.
MOST_MODULES = 10


def walk():
    """Modules of the table, in its order; those of several models; those beside the way."""
    text = re.search(r"## An interval of `cv`.*?(?=\n## )", PAGE, re.S)[0]
    table, rest = text.split("\nWith several models", 1)
    pooled, beside = rest.split("\nBeside the way", 1)
    on = re.findall(r"^\| *\d+ \| `([\w/]+\.py)`", table, re.M)
    return on, *(re.findall(r"`([\w/]+\.py)`", part) for part in (pooled, beside))


def traced(base):
    """Modules that one interval passes, in order, and the methods called: (class, name)."""
    X, y = wavy(24)
    method = CrossValidated(folds=2, random_state=0)
    model = SharpGPRegressor(base=base, calibration=method).fit(X, y)
    modules, methods = [], []

    def look(frame, event, _):
        path = Path(frame.f_code.co_filename)
        if event != "call" or not path.is_relative_to(SOURCE):
            return
        name = path.relative_to(SOURCE).as_posix()
        if name not in modules:
            modules.append(name)
        if "self" in frame.f_locals:
            methods.append((type(frame.f_locals["self"]), frame.f_code.co_name))

    sys.setprofile(look)
    try:
        model.predict_interval(X[:5], 0.9)
    finally:
        sys.setprofile(None)
    return modules, methods


@pytest.mark.parametrize("base", ["rbf", ["rbf", "matern12"]], ids=["one", "several"])
def test_the_way_of_an_interval_is_as_the_page_says(base):
    on, pooled, beside = walk()
    modules, methods = traced(base)
    assert len(on) <= MOST_MODULES
    assert [name for name in modules if name in on] == on
    others = set(modules) - set(on) - set(beside)
    assert others <= set(pooled if isinstance(base, list) else [])
    assert len(methods) > 20
    for cls, name in methods:
        home = next((above for above in cls.__mro__ if name in vars(above)), cls)
        assert home is cls or inspect.isabstract(home), f"{cls.__name__} inherits {name}"


def test_inputs_are_looked_at_by_the_estimator_and_by_its_predictor_only(monkeypatch):
    """As the conventions say: nothing behind these two edges looks for NaN again."""
    X, y = wavy(24)
    model = SharpGPRegressor(base="rbf", calibration="vanilla").fit(X, y)
    looked = []
    for module, name in (
        (sklearn_validation, "_assert_all_finite"),
        (_validation, "_check_finite"),
    ):
        once = getattr(module, name)

        def check(*args, once=once, name=name, **settings):
            looked.append(name)
            return once(*args, **settings)

        monkeypatch.setattr(module, name, check)
    model.predict_interval(X[:3])
    assert looked == ["_assert_all_finite", "_check_finite"]
