"""Models of other kinds: how they are asked, what calibration promises for them, the pool."""

from types import SimpleNamespace

import numpy as np
import pandas as pd
import pytest
import torch
from scipy.special import ndtr, ndtri
from sklearn.base import BaseEstimator
from sklearn.compose import ColumnTransformer
from sklearn.ensemble import GradientBoostingRegressor, HistGradientBoostingRegressor
from sklearn.linear_model import BayesianRidge, LinearRegression, QuantileRegressor, Ridge
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import OneHotEncoder, StandardScaler

import sharpgp
from sharpgp.calibration.ranks import Ranks
from sharpgp.distribution import PredictiveDistribution
from sharpgp.exceptions import CalibrationWarning, InvalidInputError, SavedModelError
from sharpgp.models.bases import Bases
from sharpgp.models.foreign import LEVELS, ForeignModel, gives_quantiles, quantile_source
from sharpgp.models.laws import Table
from sharpgp.persistence import save


def skewed(X, levels):
    """Quantiles of ``x + exp(N(0, 1) / 2) (1 + |x|)``: neither symmetric nor homoscedastic."""
    x = np.asarray(X)[:, :1]
    return x + np.exp(ndtri(np.asarray(levels)) / 2) * (1 + np.abs(x))


def draws(n, seed, size=1.0):
    """Points whose scores under ``skewed`` are normal with a standard deviation ``size``."""
    rng = np.random.default_rng(seed)
    X = rng.uniform(-1, 1, (n, 2))
    return X, X[:, 0] + np.exp(size * rng.normal(size=n) / 2) * (1 + np.abs(X[:, 0]))


class Fitted(BaseEstimator):
    def fit(self, X, y):
        self.fitted_ = True
        return self


class NGBoostLike(Fitted):
    def pred_dist(self, X):
        class Dist:
            def ppf(self, q):
                return skewed(X, [q])[:, 0]

        return Dist()


class ForestLike(Fitted):
    def predict(self, X, quantiles="default", interpolation="linear"):
        return skewed(X, quantiles)


class SkproLike(Fitted):
    def predict_quantiles(self, X, alpha=None):
        pandas = pytest.importorskip("pandas")
        columns = pandas.MultiIndex.from_product([["y"], alpha])
        return pandas.DataFrame(skewed(X, alpha), columns=columns)


class PlainLike(Fitted):
    def predict_quantiles(self, X, levels):
        return skewed(X, levels)


class TabPFNLike(Fitted):
    def predict(self, X, *, output_type="mean", quantiles=None):
        assert output_type == "quantiles"
        return [skewed(X, [q])[:, 0] for q in quantiles]


class TabICLLike(Fitted):
    def predict(self, X, output_type="mean", alphas=None):
        assert output_type == "quantiles"
        return skewed(X, alphas).astype(np.float32)


LIKE = (NGBoostLike, ForestLike, SkproLike, PlainLike, TabPFNLike, TabICLLike)


@pytest.mark.parametrize("kind", LIKE)
def test_every_convention_gives_the_same_quantiles(kind):
    X = draws(7, 0)[0]
    source = quantile_source(kind())
    single = np.finfo(np.float32).eps if kind is TabICLLike else 1e-15
    np.testing.assert_allclose(source.table(X), skewed(X, LEVELS), rtol=8 * single)
    assert source.name == kind.__name__
    assert gives_quantiles(kind())


def test_functions_are_asked_with_tensors_as_arrays():
    X = draws(7, 0)[0]
    table = quantile_source(skewed).table(torch.from_numpy(X))
    np.testing.assert_array_equal(table, skewed(X, LEVELS))


def test_a_mean_and_a_deviation_are_a_gaussian():
    X, y = draws(50, 0)
    model = BayesianRidge().fit(X, y)
    mean, std = model.predict(X, return_std=True)
    table = quantile_source(model).table(X)
    np.testing.assert_allclose(table, mean[:, None] + std[:, None] * ndtri(LEVELS), rtol=1e-12)


def test_a_pipeline_is_asked_as_its_last_step():
    X, y = draws(50, 0)
    model = make_pipeline(StandardScaler(), ForestLike()).fit(X, y)
    expected = skewed(StandardScaler().fit_transform(X), LEVELS)
    np.testing.assert_allclose(quantile_source(model).table(X), expected, rtol=1e-12)


def test_regressors_by_level_in_any_order():
    X, y = draws(200, 0)
    fitted = [
        QuantileRegressor(quantile=0.9, alpha=0.0).fit(X, y),
        HistGradientBoostingRegressor(loss="quantile", quantile=0.1, max_iter=5).fit(X, y),
        make_pipeline(GradientBoostingRegressor(loss="quantile", alpha=0.5, n_estimators=5)).fit(
            X, y
        ),
    ]
    expected = np.sort([fitted[k].predict(X) for k in (1, 2, 0)], axis=0).T
    for model in (fitted, {0.9: fitted[0], 0.1: fitted[1], 0.5: fitted[2]}):
        source = quantile_source(model)
        assert source.levels.tolist() == [0.1, 0.5, 0.9]
        np.testing.assert_array_equal(source.table(X), expected)


@pytest.mark.parametrize(
    ("model", "said"),
    [
        (BayesianRidge, "found the class BayesianRidge"),
        (3.0, "found float"),
        ("cv", "found str"),
        ({}, "found 0 at none"),
        ({0.5: LinearRegression()}, "found 1 at 0.5"),
        ({0.0: LinearRegression(), 0.5: LinearRegression()}, "at 0.0, 0.5"),
        ({"low": LinearRegression(), "high": LinearRegression()}, "at low, high"),
        ([LinearRegression(), LinearRegression()], "quantile loss"),
        ([Ridge(alpha=0.1), Ridge(alpha=0.9)], "quantile loss"),
        ([GradientBoostingRegressor(), GradientBoostingRegressor()], "quantile loss"),
        (SimpleNamespace(pred_dist=lambda X: torch.distributions.Normal(0.0, 1.0)), "with a ppf"),
        (lambda X, levels: np.zeros(len(X)), r"shape \(20, 47\).*found shape \(20,\)"),
        (lambda X, levels: [[0.0], [0.0, 1.0]], r"found shape \(\)"),
        (lambda X, levels: skewed(X, [0.0, *levels[1:]]) * np.inf, "finite quantiles.*940"),
    ],
)
def test_what_cannot_be_asked_is_named_in_one_line(model, said):
    X, y = draws(20, 0)
    with pytest.raises(InvalidInputError, match=said) as error:
        sharpgp.calibrate(model, X, y)
    assert "\n" not in str(error.value)


def noisy_line(n, seed):
    """Targets about ``2 x`` whose deviation grows tenfold with the second feature."""
    rng = np.random.default_rng(seed)
    X = rng.uniform(-1, 1, (n, 2))
    return X, 2 * X[:, 0] + np.exp(1.15 * X[:, 1]) * rng.normal(size=n)


def test_few_rows_give_a_regressor_intervals_of_constant_width():
    X, y = noisy_line(160, 0)
    model = Ridge().fit(X[:60], y[:60])
    calibrated = sharpgp.calibrate(model, X[60:159], y[60:159])
    ends = calibrated.predict_interval(X, 0.9)
    # The 90th of 99 absolute residuals: a split-conformal interval.
    expected = np.sort(np.abs(y[60:159] - model.predict(X[60:159])))[89]
    np.testing.assert_allclose(ends.T, model.predict(X) + np.array([[-1], [1]]) * expected)


def test_a_regressor_gets_a_width_where_calibration_rows_suffice():
    (X, y), (X_new, y_new) = noisy_line(700, 1), noisy_line(4000, 2)
    model = HistGradientBoostingRegressor(max_iter=30).fit(X[:300], y[:300])
    calibrated = sharpgp.calibrate(model, X[300:], y[300:])
    lower, upper = calibrated.predict_interval(X_new, 0.9).T
    inside, wide = (lower <= y_new) & (y_new <= upper), X_new[:, 1] > 0
    assert len(calibrated.scores) == 200
    assert 0.86 <= inside.mean() <= 0.95
    assert (upper - lower)[wide].mean() > 2 * (upper - lower)[~wide].mean()
    assert abs(inside[wide].mean() - inside[~wide].mean()) < 0.05
    constant = sharpgp.calibrate(
        lambda X, levels: model.predict(X)[:, None] + ndtri(levels), X[300:], y[300:]
    )
    crps = [one.predict_dist(X_new).crps(y_new).mean() for one in (calibrated, constant)]
    assert crps[0] < 0.95 * crps[1]


def test_columns_without_numbers_give_a_regressor_a_constant_width():
    X, y = noisy_line(500, 3)
    frame = pd.DataFrame(X, columns=["a", "b"]).assign(c=np.where(X[:, 1] > 0, "p", "q"))
    encode = ColumnTransformer([("c", OneHotEncoder(), ["c"])], remainder="passthrough")
    model = make_pipeline(encode, Ridge()).fit(frame[:200], y[:200])
    calibrated = sharpgp.calibrate(model, frame[200:], y[200:])
    assert len(calibrated.scores) == 300
    assert np.ptp(np.diff(calibrated.predict_interval(frame, 0.9), axis=1)) < 1e-9


def test_bad_calibration_data():
    X, y = draws(20, 0)
    with pytest.raises(InvalidInputError, match="expected 20 values"):
        sharpgp.calibrate(skewed, X, y[:-1])
    with pytest.raises(InvalidInputError, match="finite"):
        sharpgp.calibrate(skewed, X, y * np.nan)
    with pytest.raises(InvalidInputError, match="two or more calibration points, found 0"):
        sharpgp.calibrate(skewed, X[:0], y[:0])
    with pytest.raises(InvalidInputError, match="found a function"):
        sharpgp.calibrate(skewed, X, y, sample_weight=lambda X: X[:, 0])


# ------------------------------------------------------------------ the shape


def shape_of(table):
    levels = torch.tensor([0.05, 0.3, 0.5, 0.7, 0.95], dtype=torch.float64)
    return Table.of_quantiles(levels, table, 1.0), levels


def test_the_shape_is_linear_between_normal_scores_and_beyond():
    rng = np.random.default_rng(0)
    table = torch.from_numpy(np.sort(rng.normal(size=(6, 5)), axis=1))
    shape, levels = shape_of(table)
    z = torch.special.ndtri(levels).numpy()
    beta = np.linspace(-4, 4, 41)
    found = shape.value(torch.from_numpy(beta).unsqueeze(-1)).T.numpy()
    for row, q in zip(found, table.numpy(), strict=True):
        mean = (q[-1] - q[0]) / (z[-1] - z[0])
        low = max(mean, (q[1] - q[0]) / (z[1] - z[0]))
        high = max(mean, (q[-1] - q[-2]) / (z[-1] - z[-2]))
        expected = np.interp(beta, z, q)
        expected += high * np.maximum(beta - z[-1], 0) - low * np.maximum(z[0] - beta, 0)
        np.testing.assert_allclose(row, expected, rtol=1e-12, atol=1e-12)
    for k, b in enumerate(beta):
        scores = shape.score(torch.from_numpy(found[:, k]))
        np.testing.assert_allclose(scores, b, rtol=1e-9, atol=1e-9)


@pytest.mark.parametrize("offset", [0.0, 1e6])
def test_ties_and_sure_rows_can_be_inverted(offset):
    table = torch.tensor(
        [[0.0, 0.0, 0.0, 1.0, 2.0], [3.0] * 5, [-1.0, 0.0, 0.5, 1.0, 2.0]], dtype=torch.float64
    )
    shape, _ = shape_of(table + offset)
    beta = torch.linspace(-5, 5, 21, dtype=torch.float64).unsqueeze(-1)
    assert bool((shape.value(beta).diff(dim=0) > 0).all())
    at_tie = shape.score(table[:, 0] + offset)
    assert bool(torch.isfinite(at_tie).all())
    assert abs(float(at_tie[1])) < 1e-3  # the middle of a row that is sure


# ------------------------------------------------------------------ what is promised


def uneven(X, levels):
    """Quantiles of a Gaussian whose deviation grows with ``|x|``."""
    x = np.asarray(X)[:, :1]
    return x + (1 + np.abs(x)) * ndtri(levels)


@pytest.mark.parametrize(
    ("model", "of_score", "symmetric", "coverages"),
    [
        (uneven, lambda z: z, True, (0.8, 0.9, 0.95)),
        pytest.param(uneven, lambda z: z, False, (0.8, 0.9), marks=pytest.mark.slow),
        (skewed, lambda z: np.exp(z / 2), False, (0.8, 0.9)),
    ],
)
def test_coverage_is_exact_at_whole_ranks_for_a_wrong_model(model, of_score, symmetric, coverages):
    # With 99 points these are whole ranks.  Scores are those of a model that is biased and too
    # sure; rows of either model are affine images of each other, so that ranks are those of z.
    C, sets, asked = 99, 20_000, 100
    rng = np.random.default_rng(0)
    Z = 0.4 + 1.7 * rng.normal(size=(sets, C + 1))
    for z in Z[:asked]:
        X = rng.uniform(-1, 1, (C + 1, 1))
        y = X[:, 0] + (1 + np.abs(X[:, 0])) * of_score(z)
        calibrated = sharpgp.calibrate(model, X[:C], y[:C])
        lower, upper = calibrated.predict_interval(X[C:], coverages, symmetric=symmetric)[0]
        held = (lower <= y[C]) & (y[C] <= upper)
        np.testing.assert_array_equal(held, by_ranks(z[:C], z[C], coverages, symmetric))
    promised = np.array(coverages)
    found = np.mean(by_ranks(Z[:, :C], Z[:, C], coverages, symmetric), axis=1)
    assert (abs(found - promised) < 4 * np.sqrt(promised * (1 - promised) / sets)).all()


def by_ranks(z, new, coverages, symmetric):
    """Whether new scores [...] are inside, by the definition; scores are [..., C]."""
    C, z, size = z.shape[-1], np.sort(z), np.sort(abs(z))
    if symmetric:
        return [abs(new) <= size[..., round(c * (C + 1)) - 1] for c in coverages]
    ranks = [(round((1 - c) / 2 * (C + 1)), round((1 + c) / 2 * (C + 1))) for c in coverages]
    return [(z[..., low - 1] <= new) & (new <= z[..., high - 1]) for low, high in ranks]


def test_closed_intervals_keep_their_coverage_with_ties():
    # Whole numbers of a model that is sure of many of them, at few different inputs.
    def steps(X, levels):
        return np.floor(3 * np.asarray(X)[:, :1] + 1.3 * ndtri(levels))

    rng = np.random.default_rng(0)
    inside = np.zeros(2)
    for _ in range(100):
        X = rng.integers(0, 2, (200, 1)).astype(float)
        y = np.floor(3 * X[:, 0] + rng.normal(size=200))
        model = sharpgp.calibrate(steps, X[:100], y[:100])
        for k, symmetric in enumerate((True, False)):
            ends = model.predict_interval(X[100:], 0.9, symmetric=symmetric)
            inside[k] += ((ends[:, 0] <= y[100:]) & (y[100:] <= ends[:, 1])).mean()
    # Three standard errors of 100 sets of 100 calibration and 100 test points.
    assert (inside / 100 > 0.9 - 0.013).all()


def test_quantiles_are_those_of_ranks():
    X, y = draws(199, 0, size=1.4)
    model = sharpgp.calibrate(skewed, X, y)
    scores = 2 * np.log((y - X[:, 0]) / (1 + np.abs(X[:, 0])))
    # The shape is tabulated; between its levels it is close to the curve that it stands for.
    np.testing.assert_allclose(np.sort(model.scores)[5:-5], np.sort(scores)[5:-5], atol=0.02)
    found = model.predict_quantiles(X[:5], [0.05, 0.5, 0.9])
    beta = Ranks(model.scores).beta(torch.tensor([0.05, 0.5, 0.9], dtype=torch.float64))
    expected = model.model.value(quantile_source(skewed).table(X[:5]), beta.unsqueeze(-1)).T
    torch.testing.assert_close(torch.from_numpy(found), expected)


# ------------------------------------------------------------------ the distribution


def crps(table, y):
    return float(PredictiveDistribution(LEVELS, table.T).crps(y).mean())


@pytest.mark.parametrize("size", [1.0, 0.6, 1.8])
def test_a_calibrated_model_keeps_its_distribution_and_others_gain(size):
    X, y = draws(200, 1, size)
    X_new, y_new = draws(2000, 2, size)
    model = sharpgp.calibrate(skewed, X, y)
    own = crps(quantile_source(skewed).table(X_new), y_new)
    calibrated = float(model.predict_dist(X_new).crps(y_new).mean())
    if size == 1.0:
        assert model.trust <= 0.2
        assert calibrated < 1.002 * own
    else:
        assert model.trust >= 0.8
        assert calibrated < 0.99 * own


def test_scores_of_unlike_laws_do_not_cost_crps():
    # Sure of a half where it should not be, and right where most of the CRPS comes from: ranks of
    # all scores would widen both.
    def half_right(X, levels):
        return np.where(np.asarray(X)[:, :1] > 0, 10.0, 0.02) * ndtri(levels)

    rng = np.random.default_rng(0)
    X = rng.uniform(-1, 1, (2300, 1))
    y = np.where(X[:, 0] > 0, 10.0, 0.2) * rng.normal(size=2300)
    model = sharpgp.calibrate(half_right, X[:300], y[:300])
    own = crps(quantile_source(half_right).table(X[300:]), y[300:])
    assert float(model.predict_dist(X[300:]).crps(y[300:]).mean()) < 1.005 * own
    ends = model.predict_interval(X[300:], 0.9)
    inside = ((ends[:, 0] <= y[300:]) & (y[300:] <= ends[:, 1])).mean()
    assert abs(inside - 0.9) < 0.06  # three standard errors of 300 calibration points


def test_few_points_leave_the_distribution_to_the_model():
    X, y = draws(9, 0, size=3.0)
    model = sharpgp.calibrate(skewed, X, y)
    assert model.trust == 0.0
    with pytest.warns(CalibrationWarning, match="calibration points"):
        model.predict_interval(X, 0.95)


# ------------------------------------------------------------------ the rest of the object


def test_answers_have_the_usual_shapes():
    X, y = draws(120, 0)
    model = sharpgp.calibrate(skewed, X, y)
    assert model.predict_quantiles(X[:4], 0.5).shape == (4,)
    assert model.predict_quantiles(X[:4], [0.2, 0.8]).shape == (4, 2)
    assert model.predict_interval(X[:4]).shape == (4, 2)
    assert model.predict_interval(X[:4], [0.5, 0.9]).shape == (4, 2, 2)
    assert model.predict_mean(X[:4]).shape == model.predict_std(X[:4]).shape == (4,)
    report = model.calibration_report(*draws(500, 1))
    assert report["ece"] < 0.05
    assert report["crps"] > 0


def test_missing_values_and_frames_are_the_models_business():
    pandas = pytest.importorskip("pandas")
    rng = np.random.default_rng(0)
    frame = pandas.DataFrame({"a": rng.normal(size=300), "b": rng.normal(size=300)})
    frame.loc[::7, "b"] = np.nan
    y = frame["a"].to_numpy() + rng.normal(size=300)
    fitted = [
        HistGradientBoostingRegressor(loss="quantile", quantile=p, max_iter=20).fit(
            frame[:150], y[:150]
        )
        for p in (0.1, 0.5, 0.9)
    ]
    model = sharpgp.calibrate(fitted, frame[150:], y[150:])
    assert bool(np.isfinite(model.predict_interval(frame[:20], 0.9)).all())


def test_further_points_join():
    X, y = draws(300, 0, size=1.5)
    whole = sharpgp.calibrate(skewed, X, y)
    grown = sharpgp.calibrate(skewed, X[:100], y[:100]).updated(X[100:], y[100:])
    assert grown.n_cal == 300
    # The typical slope stays that of the first points, and only sure rows depend on it.
    torch.testing.assert_close(
        grown.predict_interval(X, 0.9), whole.predict_interval(X, 0.9), rtol=1e-5, atol=1e-5
    )
    window = whole.rescored(X[:50], y[:50], keep=60)
    assert window.n_cal == 60


def test_weights_of_calibration_points():
    X, y = draws(300, 0)
    # Points without weight do not count.
    some = sharpgp.calibrate(skewed, X, y, sample_weight=(np.arange(300) < 150).astype(float))
    alone = sharpgp.calibrate(skewed, X[:150], y[:150], sample_weight=np.ones(150))
    for coverage in (0.8, 0.9):
        torch.testing.assert_close(
            some.predict_interval(X, coverage, symmetric=True),
            alone.predict_interval(X, coverage, symmetric=True),
            rtol=1e-5,
            atol=1e-5,
        )


def test_what_needs_a_gp_says_so(tmp_path):
    model = sharpgp.calibrate(skewed, *draws(50, 0))
    for ask in (
        lambda: model.posterior,
        lambda: model.labelled_data(),
        lambda: model.condition_on_observations(*draws(3, 1)),
    ):
        with pytest.raises(InvalidInputError, match=r"with a GP|found skewed"):
            ask()
    with pytest.raises(SavedModelError):
        save(model, tmp_path / "model.sgp")


# ------------------------------------------------------------------ the pool


def test_location_and_spread_of_a_candidate():
    X, y = (torch.from_numpy(part) for part in draws(60, 0))
    model = ForeignModel(ForestLike(), X, y)
    low, middle, high = skewed(X, ndtr([-1.0, 0.0, 1.0])).T
    np.testing.assert_allclose(model.location(X), middle, atol=1e-5)
    np.testing.assert_allclose(model.law(X).spread, (high - low) / 2, rtol=0.03)  # of a table


class Remembering(ForestLike):
    """Knows the targets that it was fitted to."""

    def fit(self, X, y):
        self.seen_ = {tuple(row): value for row, value in zip(X, y, strict=True)}
        return self

    def predict(self, X, quantiles):
        middle = np.array([[self.seen_.get(tuple(row), 0.0)] for row in X])
        return middle + ndtri(quantiles)


def test_candidates_are_judged_by_fits_without_the_points():
    X, y = (torch.from_numpy(part) for part in draws(60, 0))
    model = ForeignModel(Remembering(), X, y)
    torch.testing.assert_close(model.location(X), y, rtol=0.0, atol=1e-5)
    held = model.leave_one_out(torch.arange(60), 0)
    assert bool((held.law.location.abs() < 1e-5).all())
    assert torch.equal(held.rows, torch.arange(60))


def test_estimators_with_quantiles_are_candidates_and_others_means():
    X, y = (torch.from_numpy(part) for part in draws(60, 0))
    found = Bases(["rbf", ForestLike(), BayesianRidge()]).learned(X, y)
    assert isinstance(found["ForestLike"], ForeignModel)
    assert not isinstance(found["BayesianRidge"], ForeignModel)
    with pytest.raises(InvalidInputError, match="one kernel or regressor"):
        Bases(ForestLike()).one_gp(X, y)


def test_a_good_candidate_gets_weight():
    X, y = draws(150, 0)
    model = sharpgp.SharpGPRegressor(
        base=["rbf", ForestLike()], calibration="exact", random_state=0
    ).fit(X, y)
    weights = {one.name: one.weight for one in model.members_}
    assert weights["ForestLike"] > 0.3


class ManyQuantiles(BaseEstimator):
    """Several quantiles at once, with the settings by which XGBoost and CatBoost name them."""

    def __init__(self, quantile_alpha=None, loss_function=None, levels=()):
        self.quantile_alpha, self.loss_function, self.levels = quantile_alpha, loss_function, levels

    def predict(self, X):
        return np.asarray(X)[:, :1] + ndtri(self.levels)


@pytest.mark.parametrize(
    "settings",
    [
        {"quantile_alpha": [0.9, 0.1, 0.5], "levels": (0.9, 0.1, 0.5)},
        {"loss_function": "MultiQuantile:alpha=0.1,0.5,0.9", "levels": (0.1, 0.5, 0.9)},
    ],
    ids=["XGBoost", "CatBoost"],
)
def test_a_regressor_of_several_quantiles_is_calibrated_by_name(settings):
    rng = np.random.default_rng(0)
    X = rng.normal(size=(300, 1))
    y = X[:, 0] + 2 * rng.normal(size=300)
    found = sharpgp.calibrate(ManyQuantiles(**settings), X[:200], y[:200])
    report = found.calibration_report(X[200:], y[200:], coverage=0.8)
    assert 0.7 < report["coverage_80"] < 0.9
    assert report["width_80"] > 4.0  # twice what the model claims


def test_a_list_of_lightgbm_s_kind_is_known_by_objective_and_alpha():
    class LGBMRegressor(BaseEstimator):
        def __init__(self, objective="quantile", alpha=0.5):
            self.objective, self.alpha = objective, alpha

        def predict(self, X):
            return np.asarray(X)[:, 0] + ndtri(self.alpha)

    source = quantile_source([LGBMRegressor(alpha=p) for p in (0.1, 0.5, 0.9)])
    assert source.levels.tolist() == [0.1, 0.5, 0.9]


def test_numpy_is_answered_in_numpy_and_torch_in_torch():
    X, y = np.random.default_rng(0).normal(size=(90, 2)), np.arange(90.0)
    model = sharpgp.calibrate(Ridge().fit(X[:40], y[:40]), X[40:], y[40:])
    for asked, kind in ((X[:3], np.ndarray), (torch.tensor(X[:3]), torch.Tensor)):
        answers = [
            model.predict(asked),
            model.predict_std(asked),
            model.predict_interval(asked, 0.9),
            model.predict_quantiles(asked, [0.1, 0.9]),
            model.predict_dist(asked).mean,
        ]
        assert [type(answer) for answer in answers] == [kind] * 5
