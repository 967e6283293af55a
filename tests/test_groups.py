"""Copies, replicates, groups and splitters through the estimator and the recalibrators."""

import warnings

import numpy as np
import pandas as pd
import pytest
import sklearn
import torch
from sklearn.linear_model import LinearRegression
from sklearn.model_selection import (
    GridSearchCV,
    GroupKFold,
    KFold,
    LeaveOneGroupOut,
    TimeSeriesSplit,
    cross_validate,
)
from sklearn.neighbors import KNeighborsRegressor
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from helpers import marked, wavy
from sharpgp import CrossValidated, CVPlus, Exact, LeaveOneOut, SharpGPRegressor
from sharpgp.calibration.predictors.scored import ScoredPredictor
from sharpgp.calibration.recalibrator import Recalibrator
from sharpgp.data.copies import equal_rows
from sharpgp.exceptions import CalibrationWarning, InvalidInputError
from sharpgp.gp import train
from sharpgp.models.gaussian import gaussian_model as gaussian
from sharpgp.models.gaussian import scale_model as heteroscedastic
from sharpgp.models.gaussian import spread_choice
from sharpgp.models.regressor import ScikitMean

pytestmark = pytest.mark.usefixtures("one_start")


def coverage(model, X, y, at=0.9):
    ends = model.predict_interval(X, at)
    return float(((ends[:, 0] <= y) & (y <= ends[:, 1])).mean())


def grouped(rng, n_groups, size):
    """Features of the group and one of the row; an effect of the group beside the noise."""
    Z, effect = rng.normal(size=(n_groups, 3)), 0.5 * rng.normal(size=n_groups)
    g = np.repeat(np.arange(n_groups), size)
    X = np.c_[Z[g], rng.normal(size=(len(g), 1))]
    noise = effect[g] + 0.2 * rng.normal(size=len(g))
    return X, np.sin(Z[g, 0]) + 0.5 * Z[g, 1] + 0.2 * X[:, 3] + noise, g


@pytest.fixture(scope="module")
def replicated():
    """A GP on 24 inputs with two measurements each, and which rows share an input."""
    X, y = wavy(24, noise=0.3)
    again = np.repeat(X, 2, 0)
    y = np.repeat(y, 2) + 0.3 * np.random.default_rng(1).normal(size=48)
    return train(torch.from_numpy(again), torch.from_numpy(y))[0], np.repeat(np.arange(24), 2)


# ------------------------------------------------------------------ copies


@pytest.mark.parametrize("calibration", marked(["cv", "exact", "vanilla"], slow={"cv"}))
def test_a_fit_to_copies_is_the_fit_to_single_rows(calibration):
    X, y = wavy(40, noise=0.3)
    once = SharpGPRegressor(base="rbf", calibration=calibration, random_state=0).fit(X, y)
    again = SharpGPRegressor(base="rbf", calibration=calibration, random_state=0)
    with pytest.warns(CalibrationWarning, match="80 of 120 rows are copies"):
        again.fit(np.repeat(X, 3, 0), np.repeat(y, 3))
    np.testing.assert_array_equal(again.predict_interval(X, 0.9), once.predict_interval(X, 0.9))
    X_test, y_test = wavy(500, noise=0.3, seed=9)
    assert coverage(again, X_test, y_test) > 0.8


def test_categories_keep_their_distribution():
    """Equal rows are the distribution here: used once, zeros would be as rare as sevens."""
    rng = np.random.default_rng(0)
    g = rng.integers(0, 3, 160)
    y = np.where(rng.random(160) < 0.35, 0, rng.poisson(np.array([1.0, 2.0, 4.0])[g])).astype(float)
    with warnings.catch_warnings():
        warnings.simplefilter("error", CalibrationWarning)
        model = SharpGPRegressor(base="rbf", calibration="exact", random_state=0).fit(
            g[:, None] * 1.0, y
        )
    assert model.posterior_.n_train + model.calibrated_.n_cal == 160
    known = {row.tobytes() for row in model.posterior_.X_train.numpy()}
    calibrating = {row.tobytes() for row in model.calibrated_.X_cal.numpy()}
    assert len(known) == len(calibrating) == 3


# ------------------------------------------------------------------ equal inputs


def test_refits_do_not_see_a_replicate_of_what_they_score(replicated, monkeypatch):
    posterior, _ = replicated
    seen = []
    real = gaussian.same_spread

    def spy(choice, start, X, y):
        seen.append(X)
        return real(choice, start, X, y)

    monkeypatch.setattr(gaussian, "same_spread", spy)
    found = CrossValidated(folds=4).fit(posterior)
    assert found.n_cal == 48
    assert [len(X) for X in seen] == [36] * 4
    for X in seen:
        assert (equal_rows(X.X).bincount() == 2).all()


def test_the_judges_of_a_spread_do_not_see_replicates(replicated, monkeypatch):
    posterior, _ = replicated
    models = []
    monkeypatch.setattr(
        heteroscedastic,
        "ScaleModel",
        lambda X, z, ties: models.append(X) or spread_choice.ScaleModel(X, z, ties),
    )
    heteroscedastic.held_out_log_squares(
        posterior.X_train, posterior.y_train, equal_rows(posterior.X_train), seed=0
    )
    assert len(models) == 5
    assert all((equal_rows(X).bincount() == 2).all() for X in models)


def test_loo_leaves_out_all_measurements_at_an_input(replicated):
    posterior, inputs = replicated
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        loo = LeaveOneOut().fit(posterior)
    rest = torch.from_numpy(inputs != 7)
    without = loo.model.conditioned(loo.posterior.at_rows(rest))
    X, y = posterior.X_train[~rest], posterior.y_train[~rest]
    expected = (y - without.location(X)) / without.law(X).spread
    torch.testing.assert_close(loo.scores[~rest], expected, rtol=1e-8, atol=1e-8)


def test_out_of_fold_means_have_not_seen_the_group():
    g = np.repeat(np.arange(12), 3)
    X = torch.from_numpy(np.c_[g + 0.01 * np.arange(36) % 0.03, g]).double()
    y = torch.from_numpy(g).double()
    nearest = KNeighborsRegressor(1)
    _, by_row = ScikitMean(nearest).fitted(X, y)
    _, by_group = ScikitMean(nearest, groups=torch.from_numpy(g)).fitted(X, y)
    assert (by_row == y).double().mean() > 0.7
    assert (by_group != y).all()
    twice = X[:, 1:]  # the same through equal inputs
    assert (ScikitMean(nearest).fitted(twice, y)[1] != y).all()


# ------------------------------------------------------------------ groups


@pytest.mark.slow
@pytest.mark.parametrize("calibration", [CrossValidated(folds=5), "exact"])
def test_intervals_hold_for_new_groups(calibration):
    found = []
    for seed in range(2 if calibration != "exact" else 4):
        rng = np.random.default_rng(seed)
        X, y, g = grouped(rng, 30, 4)
        X_new, y_new, _ = grouped(rng, 500, 1)
        model = SharpGPRegressor(base="rbf", calibration=calibration, random_state=seed)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", CalibrationWarning)
            found.append(coverage(model.fit(X, y, groups=g), X_new, y_new))
    assert np.mean(found) >= 0.88


def test_groups_by_name_stay_together_in_refits_of_cv_and_its_mean(monkeypatch):
    rng = np.random.default_rng(0)
    X, y, g = grouped(rng, 12, 4)
    names = pd.Series([f"patient {i}" for i in g], index=rng.permutation(48))
    seen = []
    real = ScikitMean.fitted

    def spy(self, X, y):
        seen.append((X, self.groups))
        return real(self, X, y)

    monkeypatch.setattr(ScikitMean, "fitted", spy)
    model = SharpGPRegressor(calibration=CrossValidated(folds=4), base=LinearRegression())
    model.fit(X, y, groups=names)
    assert model.grouped_
    assert [len(rows) for rows, _ in seen] == [48, 36, 36, 36, 36]
    for rows, groups in seen:
        assert len(groups) == len(rows)
        # All four rows of a group, which share three features (up to a change of units).
        features = equal_rows(rows.X[:, :3].round(decimals=9))
        assert (features.bincount() == 4).all()
        assert len(np.unique(np.c_[features, groups], axis=0)) == len(features.unique())


def test_a_holdout_by_groups_has_about_its_size():
    rng = np.random.default_rng(0)
    X, y, g = grouped(rng, 40, 3)
    model = SharpGPRegressor(calibration="kuleshov18", random_state=0).fit(X, y, groups=g)
    assert len(model.calibrated_.scores) == 30
    assert model.calibrated_.n_cal == 10  # groups
    assert len(np.unique(model.calibrated_.X_cal[:, 0].numpy())) == 10


def test_fewer_groups_than_folds_and_a_single_one():
    rng = np.random.default_rng(0)
    X, y, g = grouped(rng, 4, 10)
    model = SharpGPRegressor(base="rbf", calibration="cv")
    with (
        pytest.warns(CalibrationWarning, match="4 groups for 5 folds"),
        pytest.warns(CalibrationWarning, match="beyond 80% on a modelled tail; add groups"),
    ):
        model.fit(X, y, groups=g)
    for calibration in ("cv", "exact"):
        with pytest.raises(InvalidInputError, match="at least 2 groups"):
            SharpGPRegressor(base="rbf", calibration=calibration).fit(X, y, groups=np.zeros(40))


def test_groups_that_cannot_be_used():
    X, y = wavy(40)
    model = SharpGPRegressor(calibration="kuleshov18")
    with pytest.raises(InvalidInputError, match="groups: expected 40 labels"):
        model.fit(X, y, groups=np.arange(39))
    with pytest.raises(InvalidInputError, match="groups_cal: expected it with X_cal"):
        model.fit(X, y, groups_cal=np.arange(40))
    with pytest.raises(InvalidInputError, match="give groups and groups_cal"):
        SharpGPRegressor(base="rbf", calibration="cv").fit(
            X, y, X[:9] + 5, y[:9], groups=np.arange(40)
        )
    with pytest.raises(InvalidInputError, match="loo: expected points without groups"):
        SharpGPRegressor(base="rbf", calibration="loo").fit(X, y, groups=np.arange(40) // 2)
    with pytest.raises(InvalidInputError, match="loo: expected points without groups"):
        SharpGPRegressor(base="rbf", calibration="loo").fit(
            X, y, X[:9] + 5, y[:9], groups_cal=np.arange(9) // 3
        )
    posterior, _ = train(torch.from_numpy(X), torch.from_numpy(y))
    with pytest.raises(InvalidInputError, match="40 whole numbers"):
        Exact().fit(posterior, X, y, groups=torch.rand(40))


def test_a_model_of_groups_is_not_refitted_without_them():
    rng = np.random.default_rng(0)
    X, y, g = grouped(rng, 20, 3)
    model = SharpGPRegressor(calibration="kuleshov18").fit(X, y, groups=g)
    n_cal = model.calibrated_.n_cal
    new = [101, 102, 103]
    assert model.update(X[:3] + 0.1, y[:3], groups=new).calibrated_.n_cal == n_cal + 3
    with pytest.raises(InvalidInputError, match="call fit with all points and their groups"):
        model.update(X[:3] + 0.2, y[:3], refit=True)


@pytest.fixture
def asked(monkeypatch):
    """What recalibrators were asked to fit: inputs and weights of calibration points."""
    seen = []
    real = Recalibrator.checked

    def spy(self, base, X_cal, y_cal, sample_weight, *groups):
        seen.append((np.asarray(X_cal.X), np.asarray(sample_weight)))
        return real(self, base, X_cal, y_cal, sample_weight, *groups)

    monkeypatch.setattr(Recalibrator, "checked", spy)
    return seen


def test_one_per_group_calibrates_with_one_row_of_each(asked):
    rng = np.random.default_rng(0)
    X, y, g = grouped(rng, 40, 3)
    model = SharpGPRegressor(base="rbf", calibration=Exact(one_per_group=True), random_state=0)
    model.fit(X, y, groups=g)
    assert model.calibrated_.n_cal == 10
    assert len(np.unique(model.calibrated_.X_cal[:, 0].numpy())) == 10
    assert model.posterior_.n_train == 90
    own = SharpGPRegressor(base="rbf", calibration=Exact(one_per_group=True, random_state=3))
    weights = np.arange(60.0) + 1
    own.fit(X[:60], y[:60], X[60:], y[60:], groups_cal=g[60:], sample_weight_cal=weights)
    X_cal, found = asked[-1]
    rows = [np.flatnonzero((X[60:] == x).all(1))[0] for x in X_cal]
    assert len(np.unique(g[60:][rows])) == len(rows) == 20
    assert found.tolist() == weights[rows].tolist()
    with pytest.raises(InvalidInputError, match="one_per_group: expected the groups"):
        SharpGPRegressor(base="rbf", calibration=Exact(one_per_group=True)).fit(X, y)


# ------------------------------------------------------------------ splitters


def test_a_number_of_folds_gives_as_many_refits(monkeypatch):
    X, y = wavy(31)
    sizes = []
    real = gaussian.same_spread

    def spy(choice, start, X, y):
        sizes.append(len(y))
        return real(choice, start, X, y)

    monkeypatch.setattr(gaussian, "same_spread", spy)
    SharpGPRegressor(base="rbf", calibration=CrossValidated(folds=10)).fit(X, y)
    assert sorted(sizes) == [27] + [28] * 9


@pytest.mark.parametrize(
    ("splitter", "n_scored"),
    [
        pytest.param(KFold(4, shuffle=True, random_state=1), 40, marks=pytest.mark.slow),
        (GroupKFold(4), 40),
        pytest.param(LeaveOneGroupOut(), 40, marks=pytest.mark.slow),
        pytest.param(TimeSeriesSplit(4), 32, marks=pytest.mark.slow),
        (list(KFold(4).split(np.zeros(40))), 40),
    ],
    ids=lambda value: type(value).__name__,
)
@pytest.mark.parametrize("method", marked([CrossValidated, CVPlus], slow=[CVPlus]))
def test_any_splitter_decides_what_trains_and_what_is_scored(
    splitter, n_scored, method, monkeypatch
):
    X, y = wavy(40)
    groups = np.arange(40) // 10
    pairs = splitter
    if not isinstance(splitter, list):
        pairs = list(splitter.split(X, y, groups))
    sizes = []
    real = type(train(torch.from_numpy(X[:9]), torch.from_numpy(y[:9]))[0]).retrained

    def spy(self, X, y, **settings):
        sizes.append(len(y))
        return real(self, X, y, **settings)

    monkeypatch.setattr("sharpgp.gp.exact.posterior.ExactPosterior.retrained", spy)
    model = SharpGPRegressor(base="rbf", calibration=method(folds=splitter))
    model.fit(X, y, groups=groups)
    scores = model.calibrated_.scores
    assert len(scores if method is CrossValidated else torch.cat(scores)) == n_scored
    assert sorted(sizes) == sorted(len(rest) for rest, _ in pairs)
    if method is CrossValidated:
        scored = np.sort(np.concatenate([test for _, test in pairs]))
        np.testing.assert_allclose(model.calibrated_.X_cal.numpy(), X[scored], atol=1e-12)


def test_weights_of_points_that_no_fold_tests():
    X, y = wavy(40)
    cv = SharpGPRegressor(base="rbf", calibration=CrossValidated(folds=TimeSeriesSplit(4)))
    with pytest.raises(InvalidInputError, match="expected a function of X"):
        cv.fit(X, y, sample_weight_cal=np.ones(40))
    assert cv.fit(X, y, sample_weight_cal=lambda X: np.ones(len(X))).calibrated_.n_cal == 32


# ------------------------------------------------------------------ scikit-learn's routing


def test_groups_are_routed(monkeypatch):
    X, y, g = grouped(np.random.default_rng(0), 12, 4)
    seen = []
    real = SharpGPRegressor.fit

    def spy(self, X, y, *args, groups=None, **settings):
        seen.append((len(X), None if groups is None else len(np.unique(groups))))
        return real(self, X, y, *args, groups=groups, **settings)

    with sklearn.config_context(enable_metadata_routing=True):
        model = SharpGPRegressor(calibration="kuleshov18", random_state=0)
        model = model.set_fit_request(groups=True)
        monkeypatch.setattr(SharpGPRegressor, "fit", spy)
        cross_validate(model, X, y, cv=GroupKFold(3), params={"groups": g}, error_score="raise")
        pipeline = make_pipeline(StandardScaler(), model)
        pipeline.fit(X, y, groups=g)
        search = GridSearchCV(pipeline, {"sharpgpregressor__cal_size": [0.25]}, cv=GroupKFold(3))
        search.fit(X, y, groups=g)
    assert seen == [(32, 8)] * 3 + [(48, 12)] + [(32, 8)] * 3 + [(48, 12)]


# ------------------------------------------------------------------ further rows


def _of_groups(rng, n_groups, size, first=0):
    X = rng.uniform(-2, 2, (n_groups * size, 2))
    g = np.repeat(np.arange(n_groups), size)
    y = np.sin(2 * X[:, 0]) + X[:, 1] + rng.normal(size=n_groups)[g]
    return X, y + 0.2 * rng.normal(size=len(y)), g + first


@pytest.mark.parametrize("calibration", ["exact", "cv"])
def test_rows_of_a_few_new_groups_count_as_these(calibration):
    """Four groups of 60 rows counted as 240 groups, and 90 % intervals covered 72 to 76 %."""
    covered = []
    for seed in range(3):
        rng = np.random.default_rng(seed)
        X, y, g = _of_groups(rng, 24, 6)
        U, v, h = _of_groups(rng, 4, 60, first=24)
        Z, t, _ = _of_groups(rng, 1000, 1)
        model = SharpGPRegressor(
            base="rbf", calibration=calibration, cal_size=0.5, random_state=seed
        ).fit(X, y, groups=g)
        before = model.calibrated_.n_cal
        with pytest.raises(InvalidInputError, match="groups: expected the groups of new rows"):
            model.update(U, v)
        model.update(U, v, groups=h)
        assert model.calibrated_.n_cal == before + 4
        ends = model.predict_interval(Z, 0.9)
        covered.append(np.mean((ends[:, 0] <= t) & (t <= ends[:, 1])))
        assert model.predict_interval(Z[:4], 0.9, groups=[0, 1, 24, 99]).shape == (4, 2)
    assert np.mean(covered) > 0.86


def test_rows_of_known_groups_do_not_calibrate_for_new_ones():
    X, y, g = _of_groups(np.random.default_rng(0), 24, 6)
    model = SharpGPRegressor(base="rbf", calibration="cv", random_state=0).fit(X, y, groups=g)
    model.update(X[:5] + 0.1, y[:5], groups=g[:5])
    assert model.calibrated_.n_cal == 24
    assert len(model.calibrated_.scores) == 144
    assert model.calibrated_.n_train == 149
    plain = SharpGPRegressor(base="rbf", calibration="exact").fit(X, y)
    with pytest.raises(InvalidInputError, match="a model without any"):
        plain.update(X[:5], y[:5], groups=g[:5])


def test_few_calibration_points_are_ranked_without_themselves_in_a_report():
    """Each is predicted from the ranks of the others, as a new point is from those of all."""
    rng = np.random.default_rng(0)
    X = torch.from_numpy(rng.uniform(0, 6, (60, 1)))
    y = X[:, 0].sin() + 0.2 * torch.from_numpy(rng.standard_t(3, 60))
    found = Exact().fit(train(X[::2], y[::2])[0], X[1::2], y[1::2])
    own = found.at_own_points()
    ends = own.predict_interval(own.X_own, 0.8, symmetric=True)
    for i in range(0, 30, 7):
        others = torch.arange(30) != i
        rest = ScoredPredictor.from_model(found.model, X[1::2][others], y[1::2][others])
        alone = rest.predict_interval(X[1::2][i : i + 1], 0.8, symmetric=True)
        torch.testing.assert_close(ends[i : i + 1], alone)


def test_copies_within_groups_count_with_their_group():
    """Rows of a group, each three times: neither more groups nor narrower intervals."""
    rng = np.random.default_rng(1)
    of = np.repeat(np.arange(20), 4)
    X = rng.uniform(-2, 2, (80, 2))
    y = np.sin(2 * X[:, 0]) + rng.normal(size=20)[of] + 0.1 * rng.normal(size=80)
    again = np.repeat(np.arange(80), 3)
    X_new = rng.uniform(-2, 2, (50, 2))
    widths = []
    for rows in (np.arange(80), again):
        model = SharpGPRegressor(base="rbf", random_state=0)
        model.fit(X[rows] + 1e-9 * rng.normal(size=(len(rows), 2)), y[rows], groups=of[rows])
        assert model.calibrated_.n_cal == 20
        widths.append(np.diff(model.predict_interval(X_new, 0.8)).mean())
    assert widths[1] == pytest.approx(widths[0], rel=0.05)
