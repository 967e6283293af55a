"""Bad input: a one-line error of ours (or scikit-learn's own), or a finite answer and a warning."""

import warnings

import gpytorch
import numpy as np
import pytest
from sklearn.exceptions import NotFittedError
from sklearn.linear_model import Ridge

from helpers import marked, wavy
from sharpgp import (
    CalibrationWarning,
    CrossValidated,
    CVPlus,
    Exact,
    PredictiveDistribution,
    Sharp,
    SharpGPError,
    SharpGPRegressor,
    Sparse,
    Vovk20,
)
from sharpgp.exceptions import InvalidInputError
from sharpgp.models.bases import Bases
from tolerances import same_optimum

K = gpytorch.kernels
N = 40
X, Y = wavy(N)
X_TEST, _ = wavy(7, seed=1)

#: For what has nothing to do with how a GP is trained.
one_start = pytest.mark.usefixtures("one_start")


def model(**settings):
    settings = {"base": "rbf", "calibration": "kuleshov18", "random_state": 0, **settings}
    return SharpGPRegressor(**settings)


def changed(array, index, value, dtype=None):
    array = np.array(array, dtype=dtype)
    array[index] = value
    return array


def assert_clean_error(call):
    """The call raises a SharpGPError or a ValueError, on one line where the text is ours."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        with pytest.raises((SharpGPError, ValueError)) as caught:
            call()
    frame = caught.traceback[-1]
    if "sklearn" not in str(frame.path):
        assert "\n" not in str(caught.value)
    assert str(caught.value)
    return str(caught.value)


def answers(fitted, X_test=X_TEST):
    """Every kind of answer; warnings about unsupported levels are expected."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", CalibrationWarning)
        mean, std = fitted.predict(X_test, return_std=True)
        quantiles = fitted.predict_quantiles(X_test, [0.001, 0.05, 0.3, 0.5, 0.7, 0.95, 0.999])
        dist = fitted.predict_dist(X_test)
        out = {
            "mean": mean,
            "std": std,
            "quantiles": quantiles,
            "dist": np.column_stack([dist.mean, dist.std, dist.quantile([0.001, 0.5, 0.999])]),
            "density": np.column_stack([dist.log_prob(mean), dist.cdf(mean), dist.crps(mean)]),
        }
        for symmetric in (None, True, False):
            out[f"interval, symmetric={symmetric}"] = fitted.predict_interval(
                X_test, [0.5, 0.95], symmetric=symmetric
            )
    return out


def assert_sane(fitted, X_test=X_TEST):
    out = answers(fitted, X_test)
    for name, value in out.items():
        assert np.isfinite(value).all(), name
        if name.startswith("interval"):
            assert (value[:, 1] >= value[:, 0]).all(), name
    assert (np.diff(out["quantiles"], axis=1) >= 0).all()
    assert (out["std"] > 0).all()
    return out


# ------------------------------------------------------------------ training data


@one_start
@pytest.mark.parametrize("calibration", ["kuleshov18", "vanilla"])
@pytest.mark.parametrize("value", [np.inf, -np.inf])
def test_values_that_are_not_finite(calibration, value):
    m = model(calibration=calibration)
    assert_clean_error(lambda: m.fit(changed(X, (3, 1), value), Y))
    assert_clean_error(lambda: m.fit(X, changed(Y, 3, value)))
    assert_clean_error(lambda: m.fit(X, Y, X_cal=changed(X, (3, 1), value), y_cal=Y))
    assert_clean_error(lambda: m.fit(X, Y, X_cal=X, y_cal=changed(Y, 3, value)))


@pytest.mark.parametrize(
    ("bad_X", "bad_y"),
    [
        (changed(X, (0, 0), "a", object), Y),
        (X, changed(Y, 0, "a", object)),
        (X, ["a"] * N),
        (X[:0], Y[:0]),
        (X[:, :0], Y),
        (X[:1], Y[:1]),
        (X[:2], Y[:2]),
        (X[:3], Y[:3]),
        (X, Y[:-1]),
        (X, np.stack([np.column_stack([Y, Y])] * 2)),
        (X[:, :, None], Y),
        (X[:, 0], Y),
        (X, None),
        (X + 1j, Y),
    ],
    ids=[
        *("X string", "y string", "y strings", "no rows", "no columns", "one row", "two rows"),
        *("three rows", "y short", "y 3-D", "X 3-D", "X 1-D", "no y", "complex"),
    ],
)
def test_unusable_training_data(bad_X, bad_y):
    assert_clean_error(lambda: model().fit(bad_X, bad_y))


@one_start
@pytest.mark.parametrize(
    ("X_cal", "y_cal"),
    [
        (X, None),
        (None, Y),
        (X, Y[:-1]),
        (X, np.column_stack([Y, Y])),
        (X, ["a"] * N),
        (X[:, :1], Y),
        (X[:0], Y[:0]),
        (X[:, :, None], Y),
    ],
    ids=["X only", "y only", "short", "two columns", "strings", "features", "empty", "3-D"],
)
@pytest.mark.parametrize("calibration", ["paper", "kuleshov18"])
def test_unusable_calibration_data(calibration, X_cal, y_cal):
    assert_clean_error(lambda: model(calibration=calibration).fit(X, Y, X_cal=X_cal, y_cal=y_cal))


@one_start
def test_numbers_as_objects_are_accepted():
    plain, boxed = model().fit(X, Y), model().fit(X.astype(object), Y.astype(object))
    np.testing.assert_array_equal(plain.predict(X_TEST), boxed.predict(X_TEST.astype(object)))


@pytest.mark.parametrize("dtype", [bool, np.int32, np.float32])
def test_other_number_types(dtype):
    X_other, X_test = (3 * X).astype(dtype), (3 * X_TEST).astype(dtype)
    y_other = (Y > 0) if dtype is bool else (2 * Y).astype(dtype)
    assert_sane(model().fit(X_other, y_other), X_test)


@pytest.mark.parametrize("calibration", ["kuleshov18", "cv"])
@pytest.mark.parametrize("base", ["ridge", Ridge, 7, None, [], ["rbf", "oak"], [["rbf"]]], ids=repr)
def test_a_base_is_a_kernel_a_regressor_or_several(base, calibration):
    message = assert_clean_error(lambda: model(base=base, calibration=calibration).fit(X, Y))
    assert message.startswith("base: expected")


@pytest.mark.parametrize("m", [0, 2.5, "many"])
def test_inducing_inputs_are_counted(m):
    message = assert_clean_error(lambda: model(approximation=Sparse(m)).fit(X, Y))
    assert "m: expected a whole number of at least 1" in message


@pytest.mark.parametrize("approximation", ["dense", 40, None, ["exact"]])
def test_unknown_approximation(approximation):
    message = assert_clean_error(lambda: model(approximation=approximation).fit(X, Y))
    assert "approximation: expected 'auto', 'exact', 'sparse', 'neighbours'" in message


@pytest.mark.parametrize("effort", ["most", None, 3, ["high"]])
@pytest.mark.parametrize("base", ["rbf", "auto"])
def test_unknown_effort(base, effort):
    message = assert_clean_error(
        lambda: model(base=base, calibration="cv", effort=effort).fit(X, Y)
    )
    assert "effort: expected one of low, auto, high" in message


def test_constant_target():
    message = assert_clean_error(lambda: model().fit(X, np.full(N, 3.0)))
    assert "varies" in message


def test_target_constant_but_for_rounding():
    y = 1e150 * (1.0 + 2.3e-16 * (np.arange(N) % 2))
    assert len(np.unique(y)) == 2
    message = assert_clean_error(lambda: model().fit(X, y))
    assert "varies" in message


def test_target_that_varies_in_one_row_only():
    m = model(calibration="vanilla").fit(X, changed(np.zeros(N), 0, 1.0))
    assert_sane(m)


def test_constant_column_warns():
    with pytest.warns(UserWarning, match=r"column\(s\) 'x1' have the same value"):
        m = model().fit(np.column_stack([X[:, 0], np.full(N, 7.0)]), Y)
    assert_sane(m)


def test_all_columns_constant_warns():
    with pytest.warns(UserWarning, match="constant"):
        m = model().fit(np.ones((N, 2)), Y)
    assert_sane(m)


def test_column_constant_but_for_rounding():
    jittered = 1e150 * (1.0 + 2.3e-16 * (np.arange(N) % 2))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        m = model().fit(np.column_stack([X[:, 0], jittered]), Y)
    assert_sane(m, np.column_stack([X_TEST[:, 0], np.full(7, 1e150)]))


def test_duplicate_column_warns():
    with pytest.warns(UserWarning, match="column 1 repeats column 0"):
        m = model().fit(X[:, [0, 0]], Y)
    assert_sane(m)


# ------------------------------------------------------------------ few calibration points


@one_start
@pytest.mark.parametrize("calibration", ["paper", "kuleshov18", "marx22", "vovk20"])
@pytest.mark.parametrize("C", marked([2, 3, 5, 6, 13], slow={3, 6, 13}))
def test_few_calibration_points(calibration, C):
    m = model(calibration=calibration)
    assert_sane(m.fit(X, Y, X_cal=X_TEST.repeat(2, 0)[:C], y_cal=Y[:C]))


@one_start
@pytest.mark.parametrize("calibration", ["paper", "kuleshov18", "marx22", "vovk20"])
def test_a_single_calibration_point_cannot_give_a_distribution(calibration):
    m = model(calibration=calibration)
    message = assert_clean_error(lambda: answers(m.fit(X, Y, X_cal=X[:1], y_cal=Y[:1])))
    assert "calibration points" in message


@one_start
def test_levels_beyond_the_calibration_points():
    message = assert_clean_error(lambda: model(calibration=Sharp(levels=[0.001, 0.5])).fit(X, Y))
    assert "999 calibration points" in message


def test_asking_beyond_the_calibration_points_warns():
    m = model().fit(X, Y)
    for ask in (
        lambda: m.predict_quantiles(X_TEST, 0.99),
        lambda: m.predict_interval(X_TEST, 0.99),
        lambda: m.predict_interval(X_TEST, 0.99, symmetric=False),
        lambda: m.predict_interval(X_TEST, 0.99, symmetric=True),
    ):
        with pytest.warns(CalibrationWarning, match=r"needs at least \d+ calibration points"):
            ask()


# ------------------------------------------------------------------ settings


@one_start
@pytest.mark.parametrize(
    "levels",
    [[0, 0.5], [0.5, 1], [-1], [1.5], [np.nan], "half", [], [[0.1, 0.5]], True, 0, -3, 3.0, ["a"]],
    ids=repr,
)
def test_unusable_trained_levels(levels):
    assert_clean_error(lambda: model(calibration=Sharp(levels=levels)).fit(X, Y))


@one_start
@pytest.mark.parametrize(
    "size", [0, 1.0, 0.0, -0.1, -3, 1.5, True, "a", None, N, N - 1, np.nan, 0.999, [0.5]], ids=repr
)
def test_unusable_holdout(size):
    assert_clean_error(lambda: model(cal_size=size).fit(X, Y))


SETTINGS = {
    "kernel name": {"base": "x"},
    "kernel number": {"base": 3},
    "kernel None": {"base": None},
    "kernel of more features": {"base": K.RBFKernel(ard_num_dims=5)},
    "kernel on a missing feature": {"base": K.RBFKernel(active_dims=[5])},
    "kernel with a batch": {"base": K.RBFKernel(batch_shape=(2,))},
    "calibration name": {"calibration": "x"},
    "calibration number": {"calibration": 3},
    "calibration None": {"calibration": None},
    "calibration class": {"calibration": Sharp},
    "family": {"calibration": Sharp(family="x")},
    "objective": {"calibration": Sharp(objective="x")},
    "subset 0": {"calibration": Sharp(subset=0)},
    "subset -1": {"calibration": Sharp(subset=-1)},
    "subset a": {"calibration": Sharp(subset="a")},
    "subset 2.5": {"calibration": Sharp(subset=2.5)},
    "restarts -1": {"calibration": Sharp(restarts=-1)},
    "restarts 2.5": {"calibration": Sharp(restarts=2.5)},
    "restarts a": {"calibration": Sharp(restarts="a")},
    "effort 0": {"calibration": Sharp(effort=0)},
    "effort 1.5": {"calibration": Sharp(effort=1.5)},
    "seed of Sharp": {"calibration": Sharp(random_state="a")},
    "seed of Vovk20": {"calibration": Vovk20(random_state="a")},
    "fractional seed": {"calibration": Vovk20(random_state=2.5)},
    "seed": {"random_state": "a"},
    "negative seed": {"random_state": -1},
    "device name": {"device": "x"},
    "device None": {"device": None},
    "device number": {"device": 3.5},
    "device without data": {"device": "meta"},
    "device that is not there": {"device": "mps"},
}


@one_start
@pytest.mark.parametrize("setting", SETTINGS.values(), ids=SETTINGS)
def test_unusable_settings(setting):
    assert_clean_error(lambda: model(**setting).fit(X, Y))


def test_unknown_names_list_the_known_ones():
    known = {
        "base": "matern52",
        "calibration": "kuleshov18",
    }
    for name, example in known.items():
        message = assert_clean_error(lambda name=name: model(**{name: "no such"}).fit(X, Y))
        assert example in message
        assert "no such" in message
    message = assert_clean_error(lambda: model(calibration=Sharp(family="no such")).fit(X, Y))
    assert "scaled" in message
    message = assert_clean_error(lambda: model(calibration=Sharp(objective="no such")).fit(X, Y))
    assert "pinball" in message


# ------------------------------------------------------------------ prediction


@pytest.fixture(scope="module")
def fitted():
    return model().fit(X, Y)


@pytest.mark.parametrize("ask", ["predict", "predict_interval", "predict_dist"])
@pytest.mark.parametrize(
    "X_bad",
    [
        X_TEST[:, :1],
        np.column_stack([X_TEST, X_TEST]),
        X_TEST[0],
        X_TEST[:, :, None],
        changed(X_TEST, (0, 0), np.nan),
        changed(X_TEST, (0, 0), np.inf),
        changed(X_TEST, (0, 0), "a", object),
    ],
    ids=["fewer features", "more features", "1-D", "3-D", "nan", "inf", "string"],
)
def test_unusable_test_points(fitted, ask, X_bad):
    assert_clean_error(lambda: getattr(fitted, ask)(X_bad))
    # The torch-level predictor has no scikit-learn in front of it.
    if ask != "predict":
        assert_clean_error(lambda: getattr(fitted.calibrated_, ask)(X_bad))


@pytest.mark.parametrize(
    "value", [0, 1, -0.5, 95, np.nan, np.inf, "a", [], [0.5, 1.0], [[0.1, 0.5]], None], ids=repr
)
def test_probabilities_outside_the_unit_interval(fitted, value):
    assert_clean_error(lambda: fitted.predict_quantiles(X_TEST, value))
    assert_clean_error(lambda: fitted.predict_interval(X_TEST, value))


@pytest.mark.parametrize(
    "ask", ["predict", "predict_interval", "predict_dist", "calibration_report", "score"]
)
def test_not_fitted(ask):
    arguments = (X, Y) if ask in ("calibration_report", "score") else (X,)
    with pytest.raises(NotFittedError):
        getattr(SharpGPRegressor(), ask)(*arguments)


def test_not_fitted_quantiles():
    with pytest.raises(NotFittedError):
        SharpGPRegressor().predict_quantiles(X, 0.5)


@pytest.mark.parametrize(
    "y_bad", [Y[:-1], changed(Y, 0, np.nan), changed(Y, 0, "a", object)], ids=["short", "nan", "a"]
)
def test_unusable_report_data(fitted, y_bad):
    assert_clean_error(lambda: fitted.calibration_report(X, y_bad))


# ------------------------------------------------------------------ nasty but legal data


@pytest.mark.parametrize(
    "calibration", marked(["paper", "kuleshov18", "vanilla"], slow={"paper", "vanilla"})
)
@pytest.mark.parametrize("scale", [1e-150, 1e150])
def test_extreme_units_change_nothing_but_units(calibration, scale):
    plain = answers(model(calibration=calibration).fit(X, Y))
    scaled_y = answers(model(calibration=calibration).fit(X, scale * Y))
    scaled_X = answers(model(calibration=calibration).fit(scale * X, Y), scale * X_TEST)
    # Rounding of the units changes the starting point of two optimisers in the last digit.
    close = same_optimum(N) * plain["std"].max()
    for name in ("mean", "std", "quantiles"):
        np.testing.assert_allclose(scaled_y[name] / scale, plain[name], rtol=0, atol=close)
        np.testing.assert_allclose(scaled_X[name], plain[name], rtol=0, atol=close)


def test_columns_of_very_different_scale():
    scales = np.array([1e-150, 1e150])
    out = assert_sane(model().fit(scales * X, Y), scales * X_TEST)
    mean, std = model().fit(X, Y).predict(X_TEST, return_std=True)
    assert (np.abs(out["mean"] - mean) < same_optimum(N) * std).all()


_RNG = np.random.default_rng(3)
NASTY = {
    "duplicate rows": (np.repeat(X[:10], 4, 0), np.repeat(Y[:10], 4)),
    "duplicate rows, other targets": (np.repeat(X[:10], 4, 0), Y),
    "one point, four rows": (X[:4], Y[:4]),
    "collinear": (np.column_stack([X, X @ [1.0, 2.0]]), Y),
    "noiseless": (X, np.sin(X[:, 0])),
    "noiseless and linear": (X, X @ [1.0, 2.0]),
    "more features than rows": (_RNG.normal(size=(N, 60)), Y),
    "outlier in y": (X, changed(Y, 3, 1e6)),
    "outlier in X": (changed(X, (3, 0), 1e6), Y),
    "pure noise": (X, _RNG.normal(size=N)),
    "two values": (X, (Y > 0).astype(float)),
    "far from zero": (X + 1e8, Y - 1e8),
}


@pytest.mark.parametrize("calibration", marked(["paper", "kuleshov18"], slow={"paper"}))
@pytest.mark.parametrize("name", list(NASTY))
def test_nasty_data_get_finite_answers(name, calibration):
    X_nasty, y_nasty = NASTY[name]
    rng = np.random.default_rng(0)
    X_test = X_nasty[rng.integers(0, len(X_nasty), 7)] + 0.1 * rng.normal(size=(7, 1))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        m = model(calibration=calibration).fit(X_nasty, y_nasty)
    assert_sane(m, X_test)


@pytest.mark.parametrize("kernel", ["rbf", "matern12", "matern32", "matern52"])
def test_far_from_the_data_the_answer_is_the_prior(kernel):
    m = model(calibration="vanilla", base=kernel).fit(X, Y)
    directions = np.array([[1.0, 0.0], [0.0, -1.0], [1.0, 1.0]])
    far = np.concatenate([distance * directions for distance in (1e3, 1e20, 1e100, 1e200, 1e300)])
    assert_sane(m, far)
    np.testing.assert_allclose(m.predict(far), Y.mean(), atol=1e-6)


@pytest.mark.parametrize(
    "make",
    [
        lambda: CrossValidated(folds=1),
        lambda: CrossValidated(folds="a"),
        lambda: Exact(random_state=-1),
    ],
)
def test_settings_of_the_methods(gp, make):
    X_cal, y_cal = wavy(20, seed=1)
    assert_clean_error(lambda: make().fit(gp, X_cal, y_cal))


# ------------------------------------------------------------------ what NumPy would let pass


ODD = {
    "complex": (X + 1j, Y + 1j),
    "dates": (np.full(X.shape, np.datetime64("2020-01-01")), np.full(N, np.datetime64("2020"))),
    "durations": (np.ones(X.shape, "m8[s]"), np.ones(N, "m8[s]")),
    "masked": (np.ma.masked_greater(X, 1.0), np.ma.masked_greater(Y, 0.5)),
    "whole numbers of 400 digits": ([[10**400, 1]] * N, [10**400] * N),
}


@one_start
@pytest.mark.parametrize("name", list(ODD))
def test_values_that_would_lose_their_meaning_as_floats(fitted, name):
    odd_X, odd_y = ODD[name]
    for call in (
        lambda: model().fit(odd_X, Y),
        lambda: model().fit(X, odd_y),
        lambda: model().fit(X, Y, X_cal=odd_X, y_cal=Y),
        lambda: model().fit(X, Y, X_cal=X, y_cal=odd_y),
        lambda: fitted.predict_interval(odd_X),
        lambda: fitted.calibration_report(X, odd_y),
        lambda: fitted.calibrated_.predict_interval(odd_X),
    ):
        assert_clean_error(call)


@pytest.mark.parametrize("junk", [10**400, {}, object(), 1j, "a", np.array([1j])])
def test_levels_and_tables_that_are_no_numbers(fitted, junk):
    dist = fitted.predict_dist(X_TEST)
    for call in (
        lambda: fitted.predict_interval(X_TEST, junk),
        lambda: fitted.predict_quantiles(X_TEST, junk),
        lambda: dist.quantile(junk),
        lambda: dist.cdf(junk),
        lambda: PredictiveDistribution(junk, [[0.0], [1.0]]),
        lambda: PredictiveDistribution([0.1, 0.9], junk),
    ):
        assert_clean_error(call)


def test_the_largest_features_are_far_away(fitted):
    """Units that overflow do not make NaN of an answer."""
    far = np.array([[1.7e308, -1.7e308], [-1.7e308, 0.0]])
    assert_sane(fitted, far)
    assert_sane(model().fit(np.where(X > 0, 1.7e308, -1.7e308), Y), far)


@one_start
@pytest.mark.parametrize("calibration", ["kuleshov18", "vanilla", "cv"])
@pytest.mark.parametrize("unit", [5e-324, 1e-290, 1e300])
def test_targets_next_to_the_ends_of_the_numbers(calibration, unit):
    message = assert_clean_error(lambda: model(calibration=calibration).fit(X, unit * np.sign(Y)))
    assert "choose other units" in message or "varies" in message
    assert_clean_error(lambda: model().fit(X, Y, X_cal=X, y_cal=np.where(Y > 0, 1.7e308, -1.7e308)))


@pytest.mark.parametrize(
    ("method", "message"),
    [
        (Sharp(levels=[0.5, 1.5]), "levels"),
        (Sharp(levels=[0.001]), "needs at least 999 calibration points"),
        (Sharp(family="no such"), "family"),
        (Sharp(effort=0), "effort"),
        (CrossValidated(folds=1), "folds"),
        (CVPlus(folds=0), "folds"),
    ],
    ids=repr,
)
def test_settings_of_a_method_are_refused_before_anything_is_learned(method, message, monkeypatch):
    def learn(*_):
        raise AssertionError("a model was learned first")

    monkeypatch.setattr(Bases, "one_gp", learn)
    monkeypatch.setattr(Bases, "learned", learn)
    with pytest.raises(InvalidInputError, match=message):
        SharpGPRegressor(calibration=method).fit(X, Y)


def test_a_handful_of_rows_is_warned_of():
    with pytest.warns(CalibrationWarning, match="cv: 7 rows are too few"):
        model(calibration="cv").fit(X[:7], Y[:7])
    with warnings.catch_warnings(record=True) as seen:
        warnings.simplefilter("always")
        model(calibration="cv").fit(X[:12], Y[:12])
    assert not [one for one in seen if "too few" in str(one.message)]
