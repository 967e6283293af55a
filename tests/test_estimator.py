"""The estimator: scikit-learn's own checks, its tools, and exactness from end to end."""

import logging
import math
import warnings
from weakref import WeakKeyDictionary

import gpytorch
import numpy as np
import pandas as pd
import pytest
import torch
from sklearn.base import clone
from sklearn.metrics import r2_score
from sklearn.model_selection import GridSearchCV, cross_val_score
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.utils.estimator_checks import parametrize_with_checks

from helpers import from_one_start, marked, wavy
from helpers import method as quick
from sharpgp import (
    CalibrationWarning,
    Kuleshov18,
    Sharp,
    SharpGPError,
    SharpGPRegressor,
    Vovk20,
)
from sharpgp._ranks import rank
from sharpgp.calibration import known_methods
from sharpgp.exceptions import InvalidInputError
from sharpgp.gp.posterior import Posterior
from sharpgp.models import law_memory
from tolerances import same_optimum

X, Y = wavy(80)
X_CAL, Y_CAL = wavy(39, seed=1)
X_TEST, Y_TEST = wavy(30, seed=2)
LEVELS = [0.025, 0.1, 0.25, 0.5, 0.8, 0.95]

pytestmark = pytest.mark.usefixtures("one_start")


def model(**settings):
    return SharpGPRegressor(**{"calibration": "kuleshov18", "random_state": 0, **settings})


@pytest.fixture(scope="module")
def fitted():
    with from_one_start():
        return model().fit(X, Y)


def test_calibration_data(fitted):
    """About a quarter of the rows is held out, such that no rank is wasted; the rest trains."""
    assert fitted.calibrated_.n_cal == 19
    assert fitted.posterior_.n_train == 61
    counted = model(cal_size=33).fit(X, Y)
    assert (counted.calibrated_.n_cal, counted.posterior_.n_train) == (33, 47)


# ------------------------------------------------------------------ scikit-learn


def not_met(estimator):
    """Repeated rows make a question of their own here: known inputs and new ones differ."""
    name = "check_sample_weight_equivalence_on_dense_data"
    return {name: "rows that repeat are split and calibrated as such, weights as weights"}


@parametrize_with_checks(
    [SharpGPRegressor(calibration="kuleshov18")], expected_failed_checks=not_met
)
def test_scikit_learn_checks(estimator, check):
    estimator.set_params(random_state=0)  # some checks have four rows, of which any may train
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", CalibrationWarning)
        check(estimator)


@pytest.mark.slow
@parametrize_with_checks(
    [
        SharpGPRegressor(calibration="kuleshov18"),
        SharpGPRegressor(calibration=Sharp(levels=5)),
        SharpGPRegressor(calibration="vanilla"),
        SharpGPRegressor(base="rbf"),
        SharpGPRegressor(base=["rbf", "extra_trees"], calibration="loo"),
    ],
    expected_failed_checks=not_met,
)
def test_scikit_learn_checks_from_all_starts_and_of_other_settings(estimator, check):
    test_scikit_learn_checks(estimator, check)


def test_pipeline():
    """The GP standardises by itself: a scaler before it changes nothing but rounding."""
    pipeline = make_pipeline(StandardScaler(), model()).fit(X, Y)
    mean, std = model().fit(X, Y).predict(X_TEST, return_std=True)
    assert (np.abs(pipeline.predict(X_TEST) - mean) < same_optimum(len(Y)) * std).all()
    scaled = pipeline[:-1].transform(X_TEST)
    assert pipeline[-1].predict_interval(scaled, 0.9).shape == (30, 2)


def test_grid_search_over_kernels():
    search = GridSearchCV(model(), {"base": ["rbf", "matern12"]}, cv=2).fit(X, Y)
    assert search.best_params_ == {"base": "rbf"}  # the function is smooth
    assert search.best_estimator_.predict_interval(X_TEST, 0.9).shape == (30, 2)


def test_cross_validation():
    scores = cross_val_score(model(), X, Y, cv=3)
    assert scores.shape == (3,)
    assert (scores > 0.9).all()


def test_score_is_r_squared(fitted):
    assert fitted.score(X_TEST, Y_TEST) == pytest.approx(
        r2_score(Y_TEST, fitted.predict(X_TEST)), abs=1e-12
    )


def test_clone_keeps_parameters_and_forgets_the_fit():
    method = Sharp(levels=5, family="scaled")
    copy = clone(model(calibration=method, cal_size=0.5, effort="low").fit(X, Y))
    assert not hasattr(copy, "calibrated_")
    assert (copy.cal_size, copy.effort) == (0.5, "low")
    assert repr(copy.calibration) == repr(method)


# ------------------------------------------------------------------ kinds of input


def test_pandas(fitted):
    frame = pd.DataFrame(X, columns=["a", "b"])
    m = model().fit(frame, pd.Series(Y))
    assert m.feature_names_in_.tolist() == ["a", "b"]
    test = pd.DataFrame(X_TEST, columns=["a", "b"])
    np.testing.assert_array_equal(m.predict(test), fitted.predict(X_TEST))
    with pytest.raises(ValueError, match="feature names"):
        m.predict(test.rename(columns={"a": "c"}))
    assert not hasattr(fitted, "feature_names_in_")


def test_torch(fitted):
    m = model().fit(torch.from_numpy(X), torch.from_numpy(Y))
    answers = m.predict_quantiles(torch.from_numpy(X_TEST), LEVELS[1:])
    assert isinstance(answers, np.ndarray)
    np.testing.assert_array_equal(answers, fitted.predict_quantiles(X_TEST, LEVELS[1:]))
    m.calibration_report(torch.from_numpy(X_TEST), torch.from_numpy(Y_TEST))


def test_own_split():
    m = model().fit(X, Y, X_cal=X_CAL, y_cal=Y_CAL)
    assert (m.posterior_.n_train, m.calibrated_.n_cal) == (80, 39)
    ends = m.predict_interval(X_CAL, 0.9, symmetric=True)
    inside = (ends[:, 0] <= Y_CAL) & (ends[:, 1] >= Y_CAL)
    assert inside.sum() == 36  # ceil(0.9 * 40)


def test_vanilla_trains_on_all_rows_and_ignores_calibration_data():
    alone = model(calibration="vanilla").fit(X, Y)
    beside = model(calibration="vanilla").fit(X, Y, X_cal=X_CAL, y_cal=Y_CAL + 100.0)
    assert alone.posterior_.n_train == beside.posterior_.n_train == 80
    np.testing.assert_array_equal(
        alone.predict_quantiles(X_TEST, LEVELS), beside.predict_quantiles(X_TEST, LEVELS)
    )


def test_recalibrator_instance():
    method = Vovk20(random_state=3)
    by_hand = model(calibration=method).fit(X, Y)
    assert by_hand.calibration is method
    direct = method.fit(by_hand.posterior_, by_hand.calibrated_.X_cal, _cal_target(by_hand))
    np.testing.assert_allclose(
        by_hand.predict_quantiles(X_TEST, LEVELS[1:]),
        direct.predict_quantiles(X_TEST, LEVELS[1:]),
        rtol=1e-9,
        atol=1e-9,
    )


def _cal_target(m):
    return m.calibrated_.y_cal


def test_unknown_calibration_lists_the_known_ones():
    with pytest.raises(SharpGPError, match="'isotonic'") as caught:
        model(calibration="isotonic").fit(X, Y)
    assert all(name in str(caught.value) for name in known_methods())


def test_own_kernel_is_as_good_as_the_named_one():
    own = gpytorch.kernels.ScaleKernel(gpytorch.kernels.RBFKernel(ard_num_dims=2))
    named, custom = model().fit(X, Y), model(base=own).fit(X, Y)
    spread = named.predict(X_TEST, return_std=True)[1]
    difference = np.abs(custom.predict(X_TEST) - named.predict(X_TEST))
    assert (difference < 0.1 * spread).all()
    width = [np.ptp(m.predict_interval(X_TEST, 0.8), axis=1) for m in (named, custom)]
    np.testing.assert_allclose(*width, rtol=0.05)


# ------------------------------------------------------------------ answers


def test_shapes(fitted):
    assert fitted.predict(X_TEST).shape == (30,)
    assert fitted.predict_quantiles(X_TEST, 0.3).shape == (30,)
    assert fitted.predict_quantiles(X_TEST, [0.3]).shape == (30, 1)
    assert fitted.predict_interval(X_TEST, 0.8).shape == (30, 2)
    assert fitted.predict_interval(X_TEST, [0.8]).shape == (30, 2, 1)
    assert fitted.predict_interval(X_TEST, np.array([0.8, 0.5, 0.9])).shape == (30, 2, 3)
    assert fitted.predict_dist(X_TEST).quantile(LEVELS).shape == (30, 6)


@pytest.mark.parametrize("symmetric", [None, True, False])
def test_several_coverages_are_the_single_ones(fitted, symmetric):
    coverages = [0.8, 0.5, 0.9]
    together = fitted.predict_interval(X_TEST, coverages, symmetric=symmetric)
    for k, coverage in enumerate(coverages):
        alone = fitted.predict_interval(X_TEST, coverage, symmetric=symmetric)
        np.testing.assert_allclose(together[..., k], alone, rtol=1e-9, atol=1e-9)


@pytest.mark.parametrize("calibration", marked(["kuleshov18", "vanilla", "paper"], slow={"paper"}))
def test_std_is_that_of_the_distribution(calibration):
    m = model(calibration=quick(calibration)).fit(X, Y)
    mean, std = m.predict(X_TEST, return_std=True)
    np.testing.assert_array_equal(mean, m.predict(X_TEST))
    np.testing.assert_allclose(std, m.predict_dist(X_TEST).std, rtol=1e-9)


def test_report(fitted):
    report = fitted.calibration_report(X_TEST, Y_TEST)
    assert isinstance(report, dict)
    assert list(report) == [
        *("ece", "ece_floor", "std", "nll", "width_95", "coverage_95", "interval_score_95"),
        *("excess_risk_95", "excess_risk_chance_95", "crps", "pinball", "rmse"),
    ]
    assert all(math.isfinite(value) for value in report.values())
    assert report["rmse"] == pytest.approx(
        np.sqrt(np.mean((fitted.predict(X_TEST) - Y_TEST) ** 2)), rel=1e-12
    )
    # mean of p (1 - p) (1/C + 1/T) over 21 levels
    p = np.linspace(0, 1, 21)
    floor = np.mean(p * (1 - p)) * (1 / 20 + 1 / 30)
    assert report["ece_floor"] == pytest.approx(floor, rel=0.15)
    lines = str(report).splitlines()
    assert len(lines) == 1 + len(report)
    assert any(line.startswith("ECE floor") for line in lines)


@pytest.mark.parametrize(
    "calibration", marked(["kuleshov18", "vovk20", "paper"], slow={"kuleshov18", "paper"})
)
def test_same_seed_same_answer(calibration):
    a, b, c = (
        model(calibration=quick(calibration), random_state=seed).fit(X, Y) for seed in (4, 4, 5)
    )
    answers = [m.predict_quantiles(X_TEST, LEVELS[1:]) for m in (a, b, c)]
    np.testing.assert_array_equal(answers[0], answers[1])
    assert (answers[0] != answers[2]).any()


def test_random_state_instance():
    seeds = [np.random.RandomState(7) for _ in range(2)]
    a, b = (model(random_state=seed).fit(X, Y).predict(X_TEST) for seed in seeds)
    np.testing.assert_array_equal(a, b)


# ------------------------------------------------------------------ exactness, end to end


@pytest.mark.parametrize(
    "levels",
    [9, *(pytest.param(rare, marks=pytest.mark.slow) for rare in ("all", [0.05, 0.31, 0.9]))],
)
def test_every_trained_level_holds_exactly_its_share(levels):
    m = model(calibration=Sharp(levels=levels)).fit(X, Y, X_cal=X_CAL, y_cal=Y_CAL)
    delta = np.array([r.delta for r in m.calibrated_.results])
    below = (Y_CAL[:, None] <= m.predict_quantiles(X_CAL, delta)).sum(0)
    expected = rank(torch.from_numpy(delta), 39).floor()
    assert below.tolist() == expected.long().tolist()
    if levels == "all":
        assert below.tolist() == list(range(1, 40))


# beta from a sigma with noise and the width from one without is the mistake to catch: the width
# then falls below beta times the noise, and the calibration points drop out of the band.


def least_distance(m, delta):
    """``|beta| sqrt(noise)`` at a level, in the user's units."""
    at = torch.tensor([delta], dtype=torch.float64)
    if m.calibration_ == "paper":
        beta, theta = m.calibrated_.curves.beta_at(at), m.calibrated_.curves.theta_at(at)
    else:
        beta, theta = m.calibrated_.ranks.beta(at), m.posterior_.theta_R[None]
    return float(beta.abs() * theta[0, -1].sqrt() * m.posterior_.y_units.scale)


def points_between(m, coverage):
    """Calibration points up to the upper and below the lower end of the centred interval."""
    lower, upper = m.predict_interval(X_CAL, coverage, symmetric=False).T
    return (upper >= Y_CAL).sum(), (lower > Y_CAL).sum()


@pytest.mark.parametrize("calibration", ["paper", "kuleshov18"])
def test_noise_is_in_the_width(monkeypatch, calibration):
    m = model(calibration=quick(calibration)).fit(X, Y, X_cal=X_CAL, y_cal=Y_CAL)
    deltas = (0.1, 0.25, 0.75, 0.9)

    def shortest():
        mean = m.predict(X_TEST)
        distances = [np.abs(m.predict_quantiles(X_TEST, d) - mean).min() for d in deltas]
        return np.divide(distances, [least_distance(m, d) for d in deltas])

    assert (shortest() >= 1 - 1e-9).all()
    counts = points_between(m, 0.8)

    # The mistake, planted after the fit: both checks see it.
    monkeypatch.setattr(law_memory, "_memory", WeakKeyDictionary())  # what was asked is forgotten
    posterior = type(m.posterior_)
    noisy = posterior._variance
    monkeypatch.setattr(posterior, "_variance", lambda self, t, Z: noisy(self, t, Z) - t[:, -1:])
    monkeypatch.setattr(posterior, "mean_and_sigma", Posterior.mean_and_sigma)
    assert (shortest() < 1 - 1e-9).all()
    assert points_between(m, 0.8) != counts


@pytest.mark.parametrize("calibration", ["kuleshov18", "marx22", "vovk20"])
def test_centred_interval_holds_the_calibration_points_between_its_ranks(calibration):
    m = model(calibration=calibration).fit(X, Y, X_cal=X_CAL, y_cal=Y_CAL)
    for coverage in (0.25, 0.5, 0.8, 0.95):
        up_to_upper, below_lower = points_between(m, coverage)
        assert up_to_upper == math.ceil(20 * (1 + coverage) - 1e-9)
        low = math.floor(20 * (1 - coverage) + 1e-9)
        assert below_lower == low - 1  # the interval is closed: a score lies on its lower end


def test_paper_interval_holds_the_calibration_points_between_its_ranks():
    # Whole ranks at both ends of each interval asked for.
    levels = [0.025, 0.1, 0.25, 0.375, 0.625, 0.75, 0.9, 0.975]
    m = model(calibration=Sharp(levels=levels)).fit(X, Y, X_cal=X_CAL, y_cal=Y_CAL)
    for coverage in (0.25, 0.5, 0.8, 0.95):
        lower, upper = m.predict_interval(X_CAL, coverage, symmetric=False).T
        assert (upper >= Y_CAL).sum() == round(20 * (1 + coverage))
        assert (lower >= Y_CAL).sum() == round(20 * (1 - coverage)) - 1  # one lies on the end


# ------------------------------------------------------------------ manners


def test_verbose_logs(caplog):
    with caplog.at_level(logging.INFO, logger="sharpgp"):
        model().fit(X[:20], Y[:20])
        assert not caplog.records
        model(verbose=1).fit(X[:20], Y[:20])
    assert [r.name for r in caplog.records] == ["sharpgp"] * len(caplog.records)
    assert any("Kuleshov18" in r.getMessage() for r in caplog.records)


def test_a_method_of_the_users_own_needs_no_registration():
    class Mine(Kuleshov18):
        name = ""

    X, y = wavy(40)
    model = SharpGPRegressor(base="rbf", calibration=Mine(), random_state=0).fit(X, y)
    assert model.calibration_ == "Mine"


def test_a_class_of_a_method_is_answered_with_the_instance():
    with pytest.raises(InvalidInputError, match=r"found the class Sharp; use Sharp\(\)"):
        model(calibration=Sharp).fit(X, Y)
