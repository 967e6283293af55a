"""Baselines that the library finds by entry points: names, files, settings, failures."""

import warnings

import numpy as np
import pytest
import torch
from torch import Tensor

import sharpgp
from helpers import FakePosterior, fake_data, method, wavy
from processes import python
from sharpgp import CalibrationWarning, SharpGPError, SharpGPRegressor
from sharpgp._extras import LABORATORY_METHODS, METHODS, entry_point_names
from sharpgp.exceptions import MissingExtraError, NumericalError, SavedModelError
from sharpgp.gp.training import train
from sharpgp_benchmarks.methods import hyperposterior
from sharpgp_benchmarks.methods.capone22 import BoundingBox, Capone22, UniformBoundPredictor
from sharpgp_benchmarks.methods.fully_bayesian import FullyBayesian, MixturePredictor
from sharpgp_benchmarks.methods.kuleshov22 import Kuleshov22

X_NEW = torch.from_numpy(wavy(12, seed=5)[0])


# ------------------------------------------------------------------ the registry


def test_the_library_finds_them_under_their_names():
    assert set(LABORATORY_METHODS.values()) <= set(entry_point_names(METHODS))
    assert (sharpgp.Capone22, sharpgp.FullyBayesian) == (Capone22, FullyBayesian)
    assert sharpgp.calibration.Kuleshov22 is Kuleshov22
    for name in LABORATORY_METHODS.values():
        assert method(name).name == name


def test_a_saved_model_is_loaded_by_a_process_that_has_imported_none_of_them(tmp_path):
    X, y = wavy(60)
    model = SharpGPRegressor(base="rbf", calibration=method("kuleshov22"), random_state=0)
    model.fit(X, y).save(tmp_path / "model.sgp")
    code = (
        "import sys, numpy as np; from sharpgp import SharpGPRegressor\n"
        f"model = SharpGPRegressor.load({str(tmp_path / 'model.sgp')!r})\n"
        "print(model.predict_quantiles(np.zeros((1, 2)), 0.3)[0].item(), model.calibration_)"
    )
    done = python("-c", code)
    assert done.returncode == 0, done.stderr
    expected = model.predict_quantiles(np.zeros((1, 2)), 0.3)[0].item()
    assert done.stdout.split() == [repr(expected), "kuleshov22"]


WITHOUT = """
import sharpgp, sharpgp._extras, sys
sharpgp._extras.entry_points = lambda **_: ()
from sharpgp import SharpGPRegressor
for ask in (
    lambda: SharpGPRegressor(calibration="capone22").fit([[0.0], [1.0], [2.0]], [0.0, 1.0, 2.0]),
    lambda: sharpgp.Capone22,
    lambda: sharpgp.calibration.Kuleshov22,
    lambda: SharpGPRegressor.load(sys.argv[1]),
):
    try:
        ask()
    except sharpgp.SharpGPError as error:
        print(type(error).__name__, error)
"""


def test_without_the_package_one_line_says_what_to_install(tmp_path):
    X, y = wavy(40)
    model = SharpGPRegressor(base="rbf", calibration=method("kuleshov22"), random_state=0)
    model.fit(X, y).save(tmp_path / "model.sgp")
    done = python("-c", WITHOUT, tmp_path / "model.sgp")
    assert done.returncode == 0, done.stderr
    lines = done.stdout.splitlines()
    kinds = [MissingExtraError] * 3 + [SavedModelError]
    assert [line.split()[0] for line in lines] == [kind.__name__ for kind in kinds]
    assert all("sharpgp-benchmarks" in line for line in lines)
    assert all("pip install" in line for line in lines[:3])


# ------------------------------------------------------------------ settings and failures


@pytest.mark.parametrize(
    "make",
    [
        lambda: Kuleshov22(epochs=2.5),
        lambda: Kuleshov22(epochs="a"),
        lambda: Kuleshov22(hidden=2.5),
        lambda: Kuleshov22(max_points=2.5),
        lambda: Kuleshov22(learning_rate=-1.0),
        lambda: Kuleshov22(random_state=-1),
        lambda: Kuleshov22(start="x"),
        lambda: FullyBayesian(warmup=2.5),
        lambda: FullyBayesian(samples="a"),
        lambda: FullyBayesian(random_state=-1, warmup=2, samples=2),
    ],
)
def test_settings(gp, make):
    X_cal, y_cal = wavy(20, seed=1)
    with pytest.raises(SharpGPError) as caught:
        make().fit(gp, X_cal, y_cal)
    assert "\n" not in str(caught.value)


def test_a_posterior_of_hyperparameters_that_is_nowhere_finite(gp, monkeypatch):
    def fails(*_: Tensor) -> Tensor:
        raise NumericalError("the matrix is not positive definite")

    monkeypatch.setattr(hyperposterior, "log_marginal_likelihood", fails)
    with pytest.raises(NumericalError, match="expected a finite posterior"):
        method("capone22", hyperposterior="laplace").fit(gp, None, None)


@pytest.mark.slow
def test_a_network_says_that_it_does_not_hold_its_own_points():
    X, y = fake_data(50)
    sure, right = FakePosterior(scale=0.05), FakePosterior()
    with pytest.warns(
        CalibrationWarning, match="80% intervals cover only .*% of the 50 .*cover much less"
    ):
        network = method("kuleshov22").fit(sure, X, y)
    X_new, y_new = fake_data(400, seed=1)
    lower, upper = network.predict_interval(X_new, 0.8, symmetric=True).T
    assert ((lower <= y_new) & (y_new <= upper)).double().mean() < 0.3
    with warnings.catch_warnings():
        warnings.simplefilter("error", CalibrationWarning)
        method("kuleshov22").fit(right, X, y)


def test_conditioning_of_predictors_with_a_gp_of_their_own():
    data = [*map(torch.from_numpy, wavy(60)), *map(torch.from_numpy, wavy(30, seed=1))]
    gp = train(data[0], data[1])[0]
    box = BoundingBox(gp.theta_R.log(), torch.full_like(gp.theta_R, 0.1), None)
    X, y = data[2][:5], data[3][:5]
    for make in (
        lambda gp: MixturePredictor(gp, gp, gp.theta_R[None]),
        lambda gp: UniformBoundPredictor(gp, gp, box, 1, "practical"),
    ):
        predictor, fresh = make(gp), make(gp.extended(X, y))
        later = predictor.condition_on_observations(X, y)
        for level in (0.1, 0.9):
            torch.testing.assert_close(
                later.predict_quantiles(X_NEW, level), fresh.predict_quantiles(X_NEW, level)
            )
        assert predictor.gp.n_train == 60
