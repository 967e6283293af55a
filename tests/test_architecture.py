"""The walk on the architecture page, beside a trace of the program."""

import inspect
import re
import sys
from pathlib import Path

import pytest

import sharpgp
from helpers import wavy
from sharpgp import CrossValidated, SharpGPRegressor

PAGE = (Path(__file__).parents[1] / "docs" / "architecture.md").read_text(encoding="utf-8")
SOURCE = Path(sharpgp.__file__).parent
#: The most that the way of one interval may pass.
MOST_MODULES = 9


def walk():
    """Modules of the table, in its order, and those that stand beside the way."""
    text = re.search(r"## An interval of `cv`.*?(?=\n## )", PAGE, re.S)[0]
    table, beside = text.split("\nBeside the way", 1)
    on = re.findall(r"^\| *\d+ \| `([\w/]+\.py)`", table, re.M)
    return on, set(re.findall(r"`([\w/]+\.py)`", beside))


@pytest.fixture(scope="module")
def trace():
    """Modules that one interval of a pool passes, and the methods called: (object, class)."""
    X, y = wavy(40)
    method = CrossValidated(folds=2, random_state=0)
    model = SharpGPRegressor(base=["rbf", "matern12"], calibration=method).fit(X, y)
    modules, methods = [], []

    def look(frame, event, _):
        path = Path(frame.f_code.co_filename)
        if event != "call" or not path.is_relative_to(SOURCE):
            return
        name = path.relative_to(SOURCE).as_posix()
        if name not in modules:
            modules.append(name)
        mine = frame.f_locals.get("self")
        if mine is not None:
            methods.append((type(mine), frame.f_code.co_name))

    sys.setprofile(look)
    try:
        model.predict_interval(X[:5], 0.9)
    finally:
        sys.setprofile(None)
    return modules, methods


def test_the_way_of_an_interval_is_as_the_page_says(trace):
    on, beside = walk()
    passed, _ = trace
    assert len(on) <= MOST_MODULES
    assert set(on) <= set(passed)
    assert set(passed) - set(on) <= beside
    assert [name for name in passed if name in on] == on


def test_on_that_way_no_class_inherits_from_a_concrete_one(trace):
    """Methods are an object's own class's, or those of an abstract one."""
    _, methods = trace
    assert len(methods) > 20
    for cls, name in methods:
        home = next((base for base in cls.__mro__ if name in vars(base)), cls)
        assert home is cls or inspect.isabstract(home), (cls, name)
