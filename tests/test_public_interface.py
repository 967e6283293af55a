"""The public interface, name by name: what users type must go on working."""

import inspect
import pkgutil
import re
from importlib import import_module
from types import FunctionType

import numpy as np
import pytest
import torch
import typer.main

import sharpgp
from helpers import wavy
from sharpgp import PredictiveDistribution, SharpGPRegressor, policy
from sharpgp.bo import CalibratedUpperConfidenceBound
from sharpgp.calibration import Recalibrator
from sharpgp.cli import app
from sharpgp.gp.compute import MIN_ROWS_GPU

SETTINGS = {
    "base": "auto",
    "calibration": "auto",
    "approximation": "auto",
    "cal_size": 0.25,
    "effort": "auto",
    "y_bounds": "auto",
    "device": "auto",
    "random_state": None,
    "verbose": 0,
    "missing": (),
}
RECALIBRATORS = (
    *("Sharp", "Exact", "CrossValidated", "Vanilla", "Kuleshov18", "Vovk20", "Marx22"),
    *("LeaveOneOut", "CVPlus"),
)
COMMANDS = {
    "demo": [],
    "fit": [
        "--target",
        "--out",
        "--base",
        "--approximation",
        "--effort",
        "--calibration",
        "--y-bounds",
    ],
    "predict": ["--coverage", "--out", "--quiet"],
    "report": ["--target", "--out"],
}
n = 7


@pytest.fixture(scope="module")
def model():
    return SharpGPRegressor(calibration="kuleshov18", random_state=0).fit(*wavy(80))


def defaults(function):
    parameters = list(inspect.signature(function).parameters.values())
    return {p.name: p.default for p in parameters if p.name != "self"}


def test_numbers_of_the_docstring_are_those_of_the_policy():
    numbers = [policy.EXACT_ROWS, policy.SEARCHED_ROWS["cpu"], policy.SCORED_ROWS, MIN_ROWS_GPU]
    numbers += [policy.INDUCING, policy.NEIGHBOURS, policy.ONLY_NEIGHBOURS]
    numbers += [policy.MAX_ADDITIVE_FEATURES, policy.PRIOR_COLUMNS, policy.MOST_LEFT_OUT]
    found = re.findall(r"\b\d[\d,]*\b", SharpGPRegressor.__doc__)
    assert not {f"{number:,}" for number in numbers} - set(found)
    pools = [policy.Policy.choose(50, 2, effort=effort).pool for effort in ("low", "auto", "high")]
    assert [len(pool) for pool in pools] == [1, 5, 6]


def test_settings_are_keywords_with_these_defaults():
    assert defaults(SharpGPRegressor.__init__) == SETTINGS
    with pytest.raises(TypeError):
        SharpGPRegressor("matern32")


def test_arguments_of_the_estimator():
    assert list(defaults(SharpGPRegressor.fit))[:4] == ["X", "y", "X_cal", "y_cal"]
    assert defaults(SharpGPRegressor.predict)["return_std"] is False
    asked = defaults(SharpGPRegressor.predict_interval)
    assert (asked["coverage"], asked["symmetric"]) == (0.95, None)


def test_answers_of_the_estimator_are_numpy_of_these_shapes(model):
    X = wavy(n, seed=1)[0]
    mean, std = model.predict(X, return_std=True)
    answers = {
        (n,): [model.predict(X), mean, std, model.predict_quantiles(X, 0.3)],
        (n, 2): [model.predict_interval(X), model.predict_interval(X, coverage=0.8)],
        (n, 3): [model.predict_quantiles(X, [0.05, 0.5, 0.95])],
        (n, 2, 1): [model.predict_interval(X, coverage=[0.8])],
        (n, 2, 2): [model.predict_interval(X, coverage=np.array([0.8, 0.5]), symmetric=False)],
    }
    for shape, found in answers.items():
        for answer in found:
            assert isinstance(answer, np.ndarray)
            assert answer.shape == shape


def test_answers_of_the_distribution(model):
    X, y = wavy(n, seed=1)
    dist = model.predict_dist(X)
    assert isinstance(dist, PredictiveDistribution)
    shapes = {
        (n,): [
            dist.mean,
            dist.std,
            dist.quantile(0.3),
            dist.cdf(y),
            dist.log_prob(y),
            dist.crps(y),
        ],
        (n, 2): [dist.interval(0.9), dist.quantile([0.2, 0.9])],
        (n, 2, 3): [dist.interval([0.1, 0.5, 0.9])],
        (n, 5): [dist.sample(5, random_state=0)],
    }
    for shape, found in shapes.items():
        assert [np.shape(answer) for answer in found] == [shape] * len(found)
    np.testing.assert_allclose(dist.cdf(dist.quantile(0.37)), 0.37)


@pytest.mark.parametrize("name", RECALIBRATORS)
def test_recalibrators_share_one_interface(name):
    assert name in sharpgp.__all__
    method = getattr(sharpgp, name)
    assert issubclass(method, Recalibrator)
    assert list(inspect.signature(method.fit).parameters)[1:4] == ["base", "X_cal", "y_cal"]
    settings = inspect.signature(method.__init__).parameters
    assert all(p.kind is p.KEYWORD_ONLY for key, p in settings.items() if key != "self")
    assert "random_state" in settings
    assert ("levels" in settings) == (name == "Sharp")


def test_the_bound_is_the_quantile(model):
    assert defaults(CalibratedUpperConfidenceBound.__init__)["delta"] == 0.99
    X = torch.from_numpy(wavy(n, seed=1)[0])
    for fitted in (model, model.calibrated_):
        bound = CalibratedUpperConfidenceBound(fitted, delta=0.9)
        expected = model.predict_quantiles(X, 0.9)
        np.testing.assert_allclose(bound(X.unsqueeze(1)).detach(), expected, rtol=0, atol=1e-8)


@pytest.mark.parametrize("path", COMMANDS)
def test_commands_and_their_options(path):
    command = typer.main.get_command(app)
    for name in path.split():
        command = command.get_command(None, name)
    options = {option for parameter in command.params for option in parameter.opts}
    assert set(COMMANDS[path]) <= options


def test_every_public_method_is_documented_or_overrides_one_that_is():
    classes = set()
    for found in pkgutil.walk_packages(sharpgp.__path__, "sharpgp."):
        if found.name not in ("sharpgp.__main__", "sharpgp.for_skpro"):
            classes |= {
                cls for _, cls in inspect.getmembers(import_module(found.name), inspect.isclass)
            }
    own = [
        cls for cls in classes if cls.__module__.startswith("sharpgp.") and cls.__name__[0] != "_"
    ]
    assert len(own) > 100
    assert not [
        f"{cls.__module__}.{cls.__name__}.{name}"
        for cls in own
        for name, method in vars(cls).items()
        if not name.startswith("_")
        and isinstance(method, FunctionType | property | classmethod | staticmethod)
        and not inspect.getdoc(getattr(cls, name))
    ]
