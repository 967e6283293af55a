"""Rows with equal inputs: known inputs and new ones are calibrated apart, and no row is dropped."""

import warnings

import numpy as np
import pytest
import torch

from helpers import marked
from sharpgp import CalibrationWarning, Exact, Online, SharpGPRegressor
from sharpgp.calibration.predictors.scored import ScoredPredictor
from sharpgp.calibration.ranks import Ranks, WiderRanks
from sharpgp.data.rows import holdout_by_row
from sharpgp.diagnostics import diagnose
from sharpgp.exchangeability import compare
from sharpgp.models.laws import Normal
from sharpgp.models.model import Model
from sharpgp.models.repeats import KnownInputs, SeenModel, fitted_rows, own_variance
from sharpgp.rows import Rows

pytestmark = pytest.mark.usefixtures("one_start")

DRAWS = 5


def wave(X):
    return np.sin(2 * X[:, 0]) + X[:, 1]


def plain(rng, n):
    X = rng.uniform(-2, 2, (n, 2))
    return X, wave(X) + 0.3 * rng.normal(size=n)


def atoms(rng, n=200, noise=0.0):
    """Independent rows, 45 % of them at one of twenty inputs whose targets are unlike the rest."""
    A = rng.uniform(-2, 2, (20, 2))
    at_atoms = wave(A) + rng.normal(size=20)

    def draw(n):
        X, y = plain(rng, n)
        i, chosen = rng.integers(0, 20, n), rng.random(n) < 0.45
        X[chosen], y[chosen] = A[i[chosen]], at_atoms[i[chosen]]
        return X, y + noise * rng.normal(size=n)

    return draw(n), draw(1000)


def repeated(rng, times=3):
    X, y = plain(rng, 70)
    return (np.repeat(X, times, 0), np.repeat(y, times)), plain(rng, 1000)


def fitted(calibration, X, y, seed=0, **settings):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", CalibrationWarning)
        model = SharpGPRegressor(base="rbf", calibration=calibration, random_state=seed)
        return model.fit(X, y, **settings)


def inside(model, X, y, coverage, **settings):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", CalibrationWarning)
        ends = model.predict_interval(X, coverage, **settings)
    return (ends[:, 0] <= y) & (y <= ends[:, 1])


def known_to(model, X):
    known = model.calibrated_.parts.known
    return np.zeros(len(X), bool) if known is None else known.find(torch.tensor(X)).numpy() >= 0


# ------------------------------------------------------------------ coverage


@pytest.mark.parametrize("world", ["atoms", "noisy atoms", "repeated"])
@pytest.mark.parametrize("calibration", marked(["exact", "cv"], slow={"cv"}))
def test_coverage_within_seen_and_new(world, calibration):
    """Copies that are merged cover 60 % of rows at known inputs here, at 90 %."""
    found = {"seen": [], "new": []}
    for seed in range(DRAWS):
        rng = np.random.default_rng(seed)
        drawn = (
            repeated(rng) if world == "repeated" else atoms(rng, noise=0.15 * (world != "atoms"))
        )
        (X, y), (X_new, y_new) = drawn
        model = fitted(calibration, X, y, seed)
        seen = known_to(model, X_new)
        for name, rows in (("seen", seen), ("new", ~seen)):
            if rows.any():
                share = [inside(model, X_new, y_new, c)[rows].mean() for c in (0.8, 0.9)]
                found[name].append(share)
    assert len(found["new"]) == DRAWS
    assert len(found["seen"]) == (0 if world == "repeated" else DRAWS)
    for shares in filter(None, found.values()):
        mean, error = np.mean(shares, 0), np.std(shares, 0, ddof=1) / np.sqrt(DRAWS)
        assert (mean > np.array([0.8, 0.9]) - 3 * np.maximum(error, 1e-9)).all()


def test_copies_are_met_exactly_and_noise_is_not():
    rng = np.random.default_rng(0)
    (X, y), (X_new, y_new) = atoms(rng)
    for calibration in ("exact", "cv"):
        model = fitted(calibration, X, y)
        seen = known_to(model, X_new)
        width = np.diff(model.predict_interval(X_new, 0.9))[:, 0]
        assert width[seen].max() < 1e-6 < 0.5 < width[~seen].min()
        assert inside(model, X_new, y_new, 0.9)[seen].all()
        dist = model.predict_dist(X_new)
        assert np.isfinite(dist.crps(y_new)).all()
        np.testing.assert_allclose(dist.cdf(dist.quantile(0.3))[~seen], 0.3)
    noisy = y + 0.15 * rng.normal(size=len(y))
    model = fitted("cv", X, noisy)
    width = np.diff(model.predict_interval(X_new[seen], 0.9))[:, 0]
    assert 0.3 < np.median(width) < 0.9  # two standard deviations on either side: 0.5


@pytest.mark.parametrize("method", ["kuleshov18", "marx22", "vovk20", "loo"])
def test_methods(method):
    (X, y), (X_new, y_new) = atoms(np.random.default_rng(1))
    model = fitted(method, X, y)
    assert len(model.calibrated_.parts) == 2
    seen = known_to(model, X_new)
    assert inside(model, X_new, y_new, 0.9)[seen].mean() > 0.9
    assert 0.8 < inside(model, X_new, y_new, 0.9)[~seen].mean() < 1.0


def test_a_pool_knows_its_inputs():
    (X, y), (X_new, y_new) = atoms(np.random.default_rng(2))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", CalibrationWarning)
        model = SharpGPRegressor(base=["rbf", "extra_trees"], random_state=0).fit(X, y)
    seen = known_to(model, X_new)
    np.testing.assert_allclose(model.predict(X_new)[seen], y_new[seen], atol=1e-8)
    assert [member.name for member in model.base_] == ["rbf", "extra_trees"] or len(
        model.base_
    ) == 2


# ------------------------------------------------------------------ when nothing changes


def test_a_table_that_is_repeated_is_used_once():
    X, y = plain(np.random.default_rng(0), 60)
    once = fitted("exact", X, y)
    again = SharpGPRegressor(base="rbf", calibration="exact", random_state=0)
    with pytest.warns(CalibrationWarning, match="60 of 120 rows are copies of other rows"):
        again.fit(np.r_[X, X], np.r_[y, y])
    np.testing.assert_array_equal(again.predict_interval(X), once.predict_interval(X))


def test_one_input_alone():
    """All rows at one input: rows are split one by one, and there are no classes."""
    y = np.random.default_rng(0).normal(size=60)
    model = fitted("exact", np.ones((60, 1)), y)
    assert isinstance(model.calibrated_, ScoredPredictor)
    assert 0.6 < inside(model, np.ones((60, 1)), y, 0.8).mean() <= 1.0


def test_few_repeats_are_said_and_change_little():
    X, y = plain(np.random.default_rng(3), 80)
    once = fitted("cv", X, y)
    model = SharpGPRegressor(base="rbf", calibration="cv", random_state=0)
    with pytest.warns(CalibrationWarning, match="3 of 83 training rows repeat others in X and y"):
        model.fit(np.r_[X, X[:3]], np.r_[y, y[:3]])
    assert not isinstance(model.calibrated_.model, SeenModel)
    new, _ = plain(np.random.default_rng(4), 50)
    np.testing.assert_allclose(model.predict(new), once.predict(new), atol=0.2)


def test_an_atom_is_no_bound():
    """Twelve copies of the largest target are one row."""
    rng = np.random.default_rng(0)
    X, y = plain(rng, 100)
    top = int(y.argmax())
    model = fitted("cv", np.r_[X, np.repeat(X[[top]], 12, 0)], np.r_[y, np.full(12, y[top])])
    assert model.calibrated_.bounds is None


def test_the_order_of_rows_does_not_matter_to_cv():
    (X, y), (X_new, _) = atoms(np.random.default_rng(0))
    order = np.random.default_rng(1).permutation(len(y))
    seen = known_to(fitted("loo", X, y), X_new)
    one, other = (
        fitted("loo", X[rows], y[rows]).predict_interval(X_new, 0.9)
        for rows in (np.arange(len(y)), order)
    )
    np.testing.assert_allclose(one[seen], other[seen], atol=1e-6)
    assert np.abs(one - other).max() < 0.3


# ------------------------------------------------------------------ updates, streams, files


@pytest.mark.parametrize("calibration", ["exact", "cv"])
def test_updates_files_and_streams(calibration, tmp_path):
    (X, y), (X_new, y_new) = atoms(np.random.default_rng(5))
    model = fitted(calibration, X, y)
    expected = model.predict_interval(X_new, 0.9)
    model.save(tmp_path / "model.sgp")
    again = SharpGPRegressor.load(tmp_path / "model.sgp")
    np.testing.assert_array_equal(again.predict_interval(X_new, 0.9), expected)
    quantiles = [one.predict_quantiles(X_new, [0.1, 0.9]) for one in (model, again)]
    np.testing.assert_array_equal(*quantiles)
    before = [ranks.n for ranks in again.calibrated_.ranks_of]
    again.update(X_new[:100], y_new[:100])
    assert all(a < b.n for a, b in zip(before, again.calibrated_.ranks_of, strict=True))
    # What trains knows these inputs now.
    assert known_to(again, X_new[:100]).all() == (calibration == "cv")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", CalibrationWarning)
        rows, _ = again.update(
            X_new[100:110], y_new[100:110], refit=True
        ).calibrated_.labelled_data()
        assert len(rows) == 310
        online = Online(model, coverage=0.9, window=50)
        ends = online.track(X_new[:100], y_new[:100])
    assert ((ends[:, 0] <= y_new[:100]) & (y_new[:100] <= ends[:, 1])).mean() > 0.8


def test_several_outputs_and_comparisons():
    """Regions have the coverage at known inputs and at new ones, as intervals do."""
    found = []
    for seed in (8, 9, 10):
        (X, y), (X_new, y_new) = atoms(np.random.default_rng(seed))
        model = fitted("exact", X, np.c_[y, 2.0 - y])
        region = model.predict_region(X_new, 0.8)
        both = np.c_[y_new, 2.0 - y_new]
        inside = ((region[:, 0] <= both) & (both <= region[:, 1])).all(1)
        seen = known_to(model.outputs_[0], X_new)
        found.append([inside[seen].mean(), inside[~seen].mean()])
        assert hasattr(model, "joint_")
    assert np.mean(found, 0)[0] > 0.8
    assert 0.7 < np.mean(found, 0)[1] < 0.95
    one = fitted("exact", X, y)
    assert compare(one, X_new[:200], y_new[:200]).p_value > 0.01
    with pytest.warns(CalibrationWarning, match="new rows differ"):
        compare(one, X_new[:200], y_new[:200] + 2.0)


def test_classes_cross():
    rng = np.random.default_rng(6)
    (X, y), (X_new, _) = atoms(rng, n=600)
    loud = X[:, 0] > 0
    y = y + loud * 0.5 * rng.normal(size=len(y))
    model = fitted(Exact(by=lambda X: X[:, 0] > 0), X, y)
    assert len(model.calibrated_.parts) == 6
    seen, right = known_to(model, X_new), X_new[:, 0] > 0
    width = np.diff(model.predict_interval(X_new, 0.8))[:, 0]
    narrow, wide = (np.median(width[seen & part]) for part in (~right, right))
    assert narrow < 0.1 < 0.8 < wide


def test_weights_reach_both_classes():
    (X, y), (X_new, _) = atoms(np.random.default_rng(7))
    model = fitted("exact", X, y, sample_weight_cal=np.exp(X[:, 0]))
    found = model.calibrated_
    np.testing.assert_allclose(found.weights, found.X_cal[:, 0].exp())
    assert model.predict_interval(X_new, 0.5).shape == (1000, 2)
    new = X_new[~known_to(model, X_new)][:1]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", CalibrationWarning)
        light, heavy = (
            np.diff(model.predict_interval(new, 0.8, sample_weight=[w]))[0, 0] for w in (0.1, 30.0)
        )
    assert light < heavy


def test_weights_of_points_are_in_the_units_of_their_class():
    """By hand: the radius of the class whose weights are small, for a point of weight 1."""
    rng = np.random.default_rng(9)
    (X, y), (X_new, _) = atoms(rng)
    small = np.where(known_to(fitted("exact", X, y), X), 0.1, 1.0)
    model = fitted("exact", X, y, sample_weight_cal=small)
    calibrated = model.calibrated_
    ranks = calibrated.ranks_of[1]
    heaviest = calibrated.weights[calibrated.part == 1].max()
    weights = torch.full((1,), 1.0 / float(calibrated.weights.max()), dtype=torch.float64)
    known = Rows(torch.tensor(X_new[known_to(model, X_new)][:1]))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", CalibrationWarning)
        found = calibrated.interval_ends(known, [0.5], True, weights)
        radius, _ = ranks.radius(0.5, torch.tensor([1.0 / float(heaviest)]).double())
        expected = calibrated.model.value(known, torch.stack([-radius, radius]))
    torch.testing.assert_close(found[:, 0], expected)


def test_copies_in_an_update_count_once():
    (X, y), (X_new, y_new) = atoms(np.random.default_rng(3), n=120, noise=0.1)
    new = SharpGPRegressor(base="rbf", random_state=0).fit(X, y)
    once = new.calibrated_.updated(X_new[:9], y_new[:9])
    rows = np.arange(9).repeat(5)
    often = new.calibrated_.updated(X_new[rows], y_new[rows])
    assert often.ranks_of[0].n == once.ranks_of[0].n
    assert often.n_train > once.n_train


@pytest.mark.parametrize("calibration", ["exact", "cv"])
def test_reports_without_test_data(calibration):
    (X, y), _ = atoms(np.random.default_rng(10), noise=0.1)
    model = fitted(calibration, X, y)
    report = model.calibration_report(coverage=0.8)
    rows = int(model.calibrated_.once.sum())
    assert rows == (50 if calibration == "exact" else 200)
    assert 0.75 < report["coverage_80"] < 0.9
    assert "each predicted by fits without it" in str(model.summary())
    assert diagnose(model).out_of_fold
    assert Online(model).martingale is not None


def test_reports_of_a_pool_without_test_data():
    """Laws of known inputs are normal, those of new ones are mixtures."""
    (X, y), _ = atoms(np.random.default_rng(10), n=100, noise=0.1)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", CalibrationWarning)
        model = SharpGPRegressor(base=["rbf", "extra_trees"], calibration="cv", random_state=0)
        report = model.fit(X, y).calibration_report(coverage=0.8)
    assert type(model.calibrated_.held_out()).__name__ == "Either"
    assert 0.75 < report["coverage_80"] < 0.9


def test_every_point_is_compared_once():
    """Without inputs of one row, points stand for new inputs and for known ones."""
    rng = np.random.default_rng(11)
    X = rng.permutation(np.repeat(rng.uniform(-2, 2, (40, 2)), 3, 0))
    model = fitted("cv", X, wave(X) + 0.3 * rng.normal(size=120))
    assert model.calibrated_.part.bincount().tolist() == [120, 120]
    assert len(model.calibrated_.each_once().scores) == 120


def test_small_crossed_classes_are_named():
    (X, y), _ = atoms(np.random.default_rng(12))
    rare = np.argsort(X[:, 0])[-45:]
    edge = X[rare[0], 0]
    with pytest.warns(CalibrationWarning, match="at (known|new) inputs.*may cover less"):
        SharpGPRegressor(
            base="rbf", calibration=Exact(by=lambda X: X[:, 0] >= edge), random_state=0
        ).fit(X, y)


@pytest.mark.parametrize("calibration", ["cv+", "paper"])
def test_methods_that_use_copies_once_say_so(calibration):
    (X, y), _ = atoms(np.random.default_rng(13), n=60)
    with pytest.warns(CalibrationWarning, match="repeat others.*used once"):
        SharpGPRegressor(base="rbf", calibration=calibration, random_state=0).fit(X, y)


def test_several_outputs_are_split_as_one():
    rng = np.random.default_rng(14)
    X, y = plain(rng, 60)
    Y = np.c_[y, -y]
    model = SharpGPRegressor(base="rbf", calibration="exact", random_state=0)
    with pytest.warns(CalibrationWarning, match="each is used once"):
        model.fit(np.repeat(X, 2, 0), np.repeat(Y, 2, 0))
    assert model.outputs_[0].calibrated_.n_cal == 15
    assert hasattr(model, "joint_")
    # Inputs that were left out whole are no rows that were held out one by one.
    X = np.repeat(rng.uniform(-2, 2, (40, 2)), 4, 0)
    Y = np.c_[wave(X), X[:, 0]] + 0.3 * rng.normal(size=(160, 2))
    model = fitted("exact", X, Y)
    alone = fitted("exact", X, Y[:, 0])
    one, other = model.outputs_[0].calibrated_, alone.calibrated_
    torch.testing.assert_close(one.X_cal, other.X_cal)
    assert torch.equal(one.drawn, other.drawn)


# ------------------------------------------------------------------ parts of it


def test_rows_are_held_out_one_by_one_and_inputs_whole():
    singles = np.r_[np.arange(150), np.arange(50)]  # enough inputs that occur once
    train, cal, drawn = holdout_by_row(singles, 0.25, 0)
    assert (drawn.all(), len(cal), len(train)) == (True, 50, 150)
    often = np.arange(200) // 5
    train, cal, drawn = holdout_by_row(often, 0.25, 0)
    whole = np.setdiff1d(np.arange(40), often[train])
    assert len(whole) >= 2
    assert np.isin(often[cal[~drawn]], whole).all()
    assert sorted([*train, *cal]) == list(range(200))


def test_models_are_fitted_to_as_many_rows_as_inputs_are_worth():
    rng = np.random.default_rng(0)
    labels = np.repeat(np.arange(60), rng.integers(1, 9, 60))
    X = rng.uniform(-2, 2, (60, 2))[labels]
    copies, _ = fitted_rows(X, wave(X) + rng.normal(size=60)[labels], labels, 0)
    assert len(copies) == 60
    y = 3.0 * rng.normal(size=len(labels))
    rows, targets = fitted_rows(X, y, labels, 0)
    assert len(rows) > 0.7 * len(labels)
    means = np.bincount(labels[rows], targets) / np.bincount(labels[rows])
    np.testing.assert_allclose(means, np.bincount(labels, y) / np.bincount(labels))
    assert own_variance(y, labels) == pytest.approx(9.0, rel=0.4)


def test_what_is_known_of_an_input_is_the_posterior_of_two_kinds_of_noise():
    """The oracle is a GP whose kernel has shared noise, given label means with their own noise."""
    tau2, se2, c = 0.5, 0.2, 3
    X = np.arange(5.0)
    K = np.exp(-0.5 * np.subtract.outer(X, X) ** 2)
    y = np.random.default_rng(0).normal(size=(5, c))
    inverse = np.linalg.inv(K + (tau2 + se2 / c) * np.eye(5))
    variance = 1.0 / np.diag(inverse)
    # Residuals have the size that the GP expects of them.
    residual = variance * (inverse @ y.mean(1))
    y = y * np.sqrt(variance.sum() / (residual @ residual))
    mean = y.mean(1)
    without = torch.tensor(np.stack([mean - variance * (inverse @ mean), np.sqrt(variance)]))
    rows = torch.tensor(np.repeat(X, c))[:, None], torch.tensor(y.reshape(-1))
    model = SeenModel(_Flat(), *rows, without, se2, 1.0 / c)
    law = model.law(torch.tensor(X)[:, None])
    location, spread = law.location, law.spread
    k = K + tau2 * np.eye(5)
    np.testing.assert_allclose(location, k @ inverse @ mean)
    np.testing.assert_allclose(spread**2, np.diag(K) + tau2 + se2 - np.diag(k @ inverse @ k))
    new = torch.tensor([[0.5]]).double()
    assert float(model.law(new).spread) == pytest.approx(np.sqrt(1.0 + se2 * (1 - 1 / c)))


class _Flat(Model):
    def law(self, X):
        return Normal(*torch.tensor([0.0, 1.0]).double().unsqueeze(-1).expand(-1, len(X)))

    def extended(self, X, y):
        return self

    updated = extended
    gp = n_features = device = rows = y_train = None


def test_inputs_are_known_by_their_numbers():
    X = torch.tensor([[0.0, 1.0], [3.0, -0.0], [0.0, 2.0]]).double()
    known = KnownInputs(X)
    asked = torch.tensor([[3.0, 0.0], [0.0, 2.0], [1.0, 0.0]]).double()
    assert known.find(Rows(asked, noise=asked[:, 0])).tolist() == [1, 2, -1]


def test_the_wider_of_two_rankings():
    z = torch.randn(60, generator=torch.Generator().manual_seed(0)).double()
    one, other = Ranks(z), Ranks(3.0 * z[:30])
    both, unit = WiderRanks(one, other), torch.ones(1).double()
    for c in (0.5, 0.8, 0.9):
        expected = max(float(ranks.radius(c, unit)[0]) for ranks in (one, other))
        assert float(both.radius(c, unit)[0]) == expected
        lower, upper, _ = both.interval_ends(c, unit)
        assert float(lower) == min(float(r.interval_ends(c, unit)[0]) for r in (one, other))
        assert float(upper) == max(float(r.interval_ends(c, unit)[1]) for r in (one, other))


# ------------------------------------------------------------------ known noise


@pytest.mark.parametrize("times", [0.05, 10.0])
@pytest.mark.parametrize("calibration", ["exact", "cv"])
def test_noise_that_was_given_wrongly_does_not_make_intervals_too_narrow(calibration, times):
    """Means of four that calibrated single rows covered 66 % at 90 %."""
    shares = []
    for seed in range(6):
        rng = np.random.default_rng(seed)
        X = np.repeat(rng.uniform(-2, 2, (80, 1)), 4, 0)
        X_new = rng.uniform(-2, 2, (1000, 1))
        y, y_new = (
            np.sin(2 * part[:, 0]) + 0.5 * rng.normal(size=len(part)) for part in (X, X_new)
        )
        model = fitted(calibration, X, y, seed, noise=0.25 * times)
        shares.append(inside(model, X_new, y_new, 0.9).mean())
    assert np.mean(shares) > 0.9 - 3 * np.std(shares, ddof=1) / np.sqrt(6)
