"""Honest limits: an answer without the usual promise says so, at the line that asked for it."""

import warnings

import numpy as np
import pandas as pd
import pytest
import torch

from helpers import method, wavy
from sharpgp import CalibrationWarning, SharpGPRegressor
from sharpgp.calibration import known_methods
from sharpgp.calibration.cautions import is_far
from sharpgp.exceptions import MissingExtraError
from sharpgp.gp.exact.posterior import ExactPosterior
from sharpgp.gp.kernels.covariance import Stationary
from sharpgp.gp.training import train

C = 15
X_CAL, Y_CAL = map(torch.from_numpy, wavy(C, seed=1))
X_TEST, _ = map(torch.from_numpy, wavy(6, seed=2))
FAR = X_TEST + torch.tensor([0.0, 50.0], dtype=torch.float64)


@pytest.fixture(scope="module", params=known_methods())
def calibrated(request, gp):
    settings = {"paper": {"levels": None}, "capone22": {"hyperposterior": "laplace"}}
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            return method(request.param, **settings.get(request.param, {})).fit(gp, X_CAL, Y_CAL)
    except MissingExtraError as error:
        pytest.skip(str(error))


def caught(call):
    with warnings.catch_warnings(record=True) as found:
        warnings.simplefilter("always")
        call()
    return [w for w in found if issubclass(w.category, CalibrationWarning)]


@pytest.mark.parametrize(
    "ask",
    [
        lambda m, X: m.predict_quantiles(X, [0.5, 0.999]),
        lambda m, X: m.predict_quantiles(X, 0.001),
        lambda m, X: m.predict_interval(X, 0.999),
        lambda m, X: m.predict_interval(X, 0.999, symmetric=True),
        lambda m, X: m.predict_interval(X, [0.5, 0.999], symmetric=False),
    ],
    ids=["upper level", "lower level", "coverage", "band", "centred"],
)
def test_levels_that_the_calibration_points_cannot_support(calibrated, ask):
    """A warning with the points needed, unless nothing is estimated from calibration points."""
    found = caught(lambda: ask(calibrated, X_TEST))
    if calibrated.n_cal is None:
        assert found == []
        return
    assert len(found) == 1
    message = str(found[0].message)
    assert "calibration points" in message
    assert f"found {calibrated.n_cal}" in message
    assert "0.999" in message or "0.001" in message


def test_levels_that_they_support_are_answered_in_silence(calibrated):
    assert caught(lambda: calibrated.predict_quantiles(X_TEST, [0.1, 0.5, 0.9])) == []
    assert caught(lambda: calibrated.predict_interval(X_TEST, 0.8)) == []
    assert caught(lambda: calibrated.predict_dist(X_TEST)) == []


@pytest.mark.parametrize("ask", ["quantiles", "interval", "dist"])
def test_far_from_the_data(calibrated, ask):
    """One warning that names a point and its feature; answers are finite and wide."""
    asks = {
        "quantiles": lambda X: calibrated.predict_quantiles(X, [0.1, 0.9]),
        "interval": lambda X: calibrated.predict_interval(X, 0.8),
        "dist": lambda X: calibrated.predict_dist(X).quantile([0.1, 0.9]),
    }
    mixed = torch.cat([X_TEST, FAR])
    found = caught(lambda: asks[ask](mixed))
    assert len(found) == 1
    assert str(found[0].message).startswith("6 of 12 points lie far outside the training data")
    assert "row 6: feature 1 is" in str(found[0].message)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", CalibrationWarning)
        near, far = asks[ask](X_TEST), asks[ask](FAR)
    assert torch.isfinite(far).all()
    model = getattr(calibrated, "model", None)
    if model is None or model.normalised:  # marx22 has one width everywhere
        assert (far.diff(dim=1).min() > near.diff(dim=1).mean()).all()


def test_the_estimator_warns_at_the_callers_line():
    X, y = wavy(60)
    model = SharpGPRegressor(calibration="kuleshov18", random_state=0).fit(X, y)
    for call in (
        lambda: model.predict_interval(X + 100.0, 0.8),
        lambda: model.predict_quantiles(X + 100.0, [0.1, 0.9]),
        lambda: model.predict_dist(X + 100.0),
        lambda: model.calibration_report(X + 100.0, y),
        lambda: model.predict_interval(X, 0.999),
    ):
        found = caught(call)
        assert len(found) == 1
        assert found[0].filename == __file__
    assert caught(lambda: model.predict_interval(X, 0.9)) == []


def test_the_prior_far_away(gp):
    """The mean returns to that of the target, sigma to the prior's, and no further."""
    signal, noise = gp.theta_R[-2:].tolist()
    for distance in (1e3, 1e150):
        far = distance * torch.ones(1, 2, dtype=torch.float64)
        assert gp.mean(far).item() == pytest.approx(gp.y_train.mean().item(), abs=1e-6)
        sigma = gp.sigma(gp.theta_R[None], far).item()
        assert sigma == pytest.approx((signal + noise) ** 0.5 * gp.y_units.scale.item())


def test_what_is_far():
    X = torch.tensor([[0.0, 5.0], [1.0, 5.0]], dtype=torch.float64)
    posterior = ExactPosterior(
        X, X[:, 0], Stationary("rbf", 2), torch.tensor([1.0, 1.0, 1.0, 0.1], dtype=torch.float64)
    )
    at = [[-0.9, 5.0], [-1.1, 5.0], [1.9, 5.0], [2.1, 5.0], [0.5, 5.0 + 1e-12], [0.5, 5.1]]
    far = is_far(posterior, torch.tensor(at, dtype=torch.float64)).any(-1)
    assert far.tolist() == [False, True, False, True, False, True]


def test_the_first_row_of_a_category_is_not_far():
    """Its mark is 0 in all training rows; any other value of such a column is far."""
    X = torch.tensor([[0.0, 0.0], [1.0, 0.0]], dtype=torch.float64)
    posterior = ExactPosterior(
        X, X[:, 0], Stationary("rbf", 2), torch.tensor([1.0, 1.0, 1.0, 0.1], dtype=torch.float64)
    )
    new = torch.tensor([[0.5, 1.0], [0.5, 0.0], [0.5, 0.5], [0.5, 2.0]], dtype=torch.float64)
    assert is_far(posterior, new)[:, 1].tolist() == [False, False, True, True]


@pytest.mark.parametrize("draw", ["normal", "uniform", "exponential"])
def test_points_like_the_training_points_are_hardly_ever_called_far(draw):
    rng = np.random.default_rng(0)
    X = torch.from_numpy(getattr(rng, draw)(size=(200, 5)))
    posterior, _ = train(X, X.sum(-1))
    new = torch.from_numpy(getattr(rng, draw)(size=(20_000, 5)))
    assert is_far(posterior, new).any(-1).double().mean() < 0.001


# ------------------------------------------------------------------ coverage below what is asked


def many_features(n, d=20):
    """So many lengthscales that 40 points fit them too well: a GP that is far too sure."""
    rng = np.random.default_rng(3)
    X = rng.normal(size=(n, d))
    return torch.from_numpy(X), torch.from_numpy(np.sin(X.sum(1)) + 0.2 * rng.normal(size=n))


@pytest.mark.slow
def test_loo_says_that_its_points_have_trained_too_many_hyperparameters():
    X, y = many_features(240)
    posterior, _ = train(X[:40], y[:40])
    message = "22 hyperparameters overfit 40 training points.*cover much less"
    with pytest.warns(CalibrationWarning, match=message):
        loo = method("loo").fit(posterior)
    lower, upper = loo.predict_interval(X[40:], 0.8).T
    assert ((lower <= y[40:]) & (y[40:] <= upper)).double().mean() < 0.7  # the warning is true
    some, _ = train(X[:40, :1], y[:40])
    with pytest.warns(CalibrationWarning, match="cover a few points less"):
        method("loo").fit(some)
    enough, _ = train(X[:100, :1], y[:100])
    assert caught(lambda: method("loo").fit(enough)) == []
    assert caught(lambda: method("cv").fit(posterior)) == []  # refits, and has nothing to confess


# ------------------------------------------------------------------ numerics that show


def test_jitter_is_reported(monkeypatch):
    """A covariance that is singular to rounding: the answer comes with a warning."""
    X, y = wavy(30)
    X = torch.from_numpy(np.repeat(X, 2, 0))
    y = torch.from_numpy(np.repeat(y, 2))
    theta = torch.tensor([0.01, 0.01, 1.0, 1e-18], dtype=torch.float64)
    posterior = ExactPosterior(X, y, Stationary("rbf", 2), theta)
    found = caught(lambda: posterior.sigma(theta[None], X[:3]))
    assert len(found) == 1
    assert "jitter" in str(found[0].message)
    assert posterior.jitter(theta[None]).item() > 0
    # The paper's search keeps to its box; a level whose theta needs jitter is named.
    calibrated = None

    def fit():
        nonlocal calibrated
        calibrated = method("paper", levels=[0.25, 0.75]).fit(posterior, X[:20], y[:20] + 0.1)

    monkeypatch.setattr(
        ExactPosterior,
        "jitter",
        lambda self, theta: torch.full((len(theta),), 1e-10, dtype=torch.float64),
    )
    messages = [str(w.message) for w in caught(fit)]
    assert any("level(s) 0.25, 0.75 needed a jitter of 1e-10" in m for m in messages)
    assert [r.jitter for r in calibrated.results] == [1e-10, 1e-10]


def test_well_conditioned_data_need_no_jitter(gp):
    assert gp.jitter(gp.theta_R[None]).item() == 0.0
    assert caught(lambda: gp.sigma(gp.theta_R[None], X_TEST)) == []


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda X, y: y.__setitem__(3, 1e6), "^y: row 3 is 1e.06"),
        (lambda X, y: X.__setitem__((3, 1), 1e6), "^X: col.*a few values are so extreme"),
    ],
)
def test_outliers_that_hide_everything_else(change, message):
    X, y = wavy(60)
    change(X, y)
    with pytest.warns(UserWarning, match=message):
        SharpGPRegressor(calibration="kuleshov18", random_state=0).fit(X, y)


@pytest.mark.parametrize("draw", ["normal", "standard_cauchy", "lognormal"])
def test_heavy_tails_alone_are_no_reason_to_warn(draw):
    rng = np.random.default_rng(0)
    X = getattr(rng, draw)(size=(200, 3))
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        SharpGPRegressor(calibration="vanilla").fit(X, np.sin(X[:, 0]) + rng.normal(size=200))


def test_far_points_are_named_as_in_the_frame():
    rng = np.random.default_rng(0)
    frame = pd.DataFrame({"dose": rng.uniform(0, 1, 30), "age": rng.uniform(20, 60, 30)})
    model = SharpGPRegressor(base="rbf", calibration="vanilla").fit(frame, frame["dose"] + 1.0)
    far = frame.head(2).assign(age=[30.0, 900.0])
    (found,) = caught(lambda: model.predict_interval(far))
    assert "(row 1: 'age' is 900, in training" in str(found.message)
