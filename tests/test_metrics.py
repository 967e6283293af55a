"""Metrics against closed forms, independent libraries and simulation."""

import numpy as np
import properscoring
import pytest
import scoringrules
import torch
from scipy import stats
from sklearn.tree import DecisionTreeClassifier

from sharpgp import metrics
from sharpgp.exceptions import InvalidInputError
from sharpgp.metrics import conditional


@pytest.fixture
def rng():
    return np.random.default_rng(0)


def tabulate(law, levels, n):
    return np.tile(law.ppf(levels), (n, 1))


# ------------------------------------------------------------------ calibration


def test_ece_by_hand():
    y = np.array([0.0, 1.0, 2.0, 3.0])
    q = np.tile([0.5, 1.0, 9.0], (4, 1))
    np.testing.assert_array_equal(metrics.observed_levels(y, q), [0.25, 0.5, 1.0])
    expected = ((0.2 - 0.25) ** 2 + 0 + (0.9 - 1.0) ** 2) / 3
    assert metrics.ece(y, q, [0.2, 0.5, 0.9]) == pytest.approx(expected)


def test_ece_counts_the_levels_zero_and_one_as_met(rng):
    y = rng.normal(size=50)
    q = tabulate(stats.norm(0.3), metrics.ECE_LEVELS, 50)
    inner = slice(1, -1)
    inner_ece = metrics.ece(y, q[:, inner], metrics.ECE_LEVELS[inner])
    assert metrics.ece(y, q) == pytest.approx(inner_ece * 19 / 21)


@pytest.mark.parametrize(("n_cal", "n_test"), [(100, 100), (400, 60)])
def test_ece_floor_is_what_a_perfect_split_predictor_scores(rng, n_cal, n_test):
    levels = metrics.ECE_LEVELS[1:-1]
    ranks = np.arange(1, n_cal + 1) / (n_cal + 1)
    scores = []
    for _ in range(1500):
        quantiles = np.interp(levels, ranks, np.sort(rng.uniform(size=n_cal)))
        test = rng.uniform(size=n_test)
        scores.append(metrics.ece(test, np.tile(quantiles, (n_test, 1)), levels))
    floor = metrics.ece_floor(n_cal, n_test, levels)
    standard_error = np.std(scores) / np.sqrt(len(scores))
    # The formula is first order in 1/C: the exact variance has C + 2 in place of C.
    assert np.mean(scores) == pytest.approx(floor, abs=4 * standard_error + floor * 3 / n_cal)


# ------------------------------------------------------------------ scores


def test_interval_score_agrees_with_scoringrules(rng):
    y, lower = rng.normal(size=(2, 200))
    upper = lower + rng.exponential(size=200)
    theirs = np.mean(scoringrules.interval_score(y, lower, upper, 0.1))
    assert metrics.interval_score(y, lower, upper, 0.9) == pytest.approx(theirs, abs=1e-12)


def test_interval_score_is_the_pinball_loss_of_its_ends(rng):
    y, lower = rng.normal(size=(2, 200))
    upper = lower + 1
    ends = metrics.pinball_loss(y, np.column_stack([lower, upper]), [0.1, 0.9])
    score = metrics.interval_score(y, lower, upper, 0.8)
    assert score == pytest.approx(ends * 2 * 2 / 0.2, rel=1e-12)


def test_pinball_agrees_with_scoringrules(rng):
    y, levels = rng.normal(size=100), np.array([0.1, 0.5, 0.8])
    q = rng.normal(size=(100, 3))
    theirs = np.mean(scoringrules.quantile_score(y[:, None], q, levels[None]))
    assert metrics.pinball_loss(y, q, levels) == pytest.approx(theirs, abs=1e-12)


def test_width_coverage_rmse_by_hand():
    y, lower, upper = [0.0, 1.0, 2.0, 3.0], [0.0, 2.0, 1.0, 0.0], [1.0, 3.0, 2.0, 2.0]
    assert metrics.interval_coverage(y, lower, upper) == 0.5  # both ends belong to it
    assert metrics.interval_width(lower, upper) == 1.25
    assert metrics.rmse(y, [1.0, 1.0, 1.0, 1.0]) == pytest.approx(np.sqrt(6 / 4))
    assert metrics.interval_width([-np.inf, 0.0], [np.inf, 1.0]) == np.inf


# ------------------------------------------------------------------ through the quantile table


def test_nll_of_a_normal_predictor_from_21_levels_and_more():
    y = stats.norm.ppf((np.arange(20_000) + 0.5) / 20_000)
    exact = -stats.norm.logpdf(y).mean()
    errors = []
    for k in (21, 51, 201):
        levels = np.linspace(0, 1, k)
        errors.append(abs(metrics.nll(y, tabulate(stats.norm, levels, len(y)), levels) - exact))
    assert errors[0] < 0.02
    assert errors[0] > errors[1] > errors[2]
    assert errors[2] < 0.001


def test_nll_of_a_uniform_predictor_is_exact(rng):
    levels = np.linspace(0.05, 0.95, 19)
    y = rng.uniform(5.5, 9.5, size=100)
    q = tabulate(stats.uniform(5, 5), levels, 100)
    assert metrics.nll(y, q, levels) == pytest.approx(np.log(5), abs=1e-9)


def test_nll_counts_points_beyond_every_quantile():
    levels = np.linspace(0.05, 0.95, 19)
    q = tabulate(stats.norm, levels, 2)
    assert np.isfinite(metrics.nll([-50.0, 50.0], q, levels))
    assert metrics.nll([0.0, 50.0], q, levels) > metrics.nll([0.0, 5.0], q, levels)


def test_crps_of_a_normal_predictor_agrees_with_libraries(rng):
    y = rng.normal(size=20) * 2
    levels = stats.norm.cdf(np.linspace(-6, 6, 3001))
    ours = metrics.crps(y, tabulate(stats.norm, levels, 20), levels)
    assert ours == pytest.approx(np.mean(scoringrules.crps_normal(y, 0, 1)), abs=1e-6)
    assert ours == pytest.approx(np.mean(properscoring.crps_gaussian(y, 0, 1)), abs=1e-6)


def test_crps_of_a_laplace_predictor_agrees_with_scoringrules(rng):
    y = rng.normal(size=20) * 3
    levels = stats.laplace.cdf(np.linspace(-12, 12, 6001))
    ours = metrics.crps(y, tabulate(stats.laplace, levels, 20), levels)
    assert ours == pytest.approx(np.mean(scoringrules.crps_laplace(y, 0, 1)), abs=2e-6)


def test_crps_is_twice_the_pinball_loss_over_all_levels(rng):
    y = rng.normal(size=20)
    levels = (np.arange(2000) + 0.5) / 2000
    q = tabulate(stats.norm, levels, 20)
    assert metrics.crps(y, q, levels) == pytest.approx(
        2 * metrics.pinball_loss(y, q, levels), abs=1e-4
    )


def test_predictive_std_converges():
    for law, std in [(stats.norm(3, 2), 2.0), (stats.laplace(0, 1), np.sqrt(2))]:
        levels = law.cdf(law.mean() + std * np.linspace(-6, 6, 2001))
        assert metrics.predictive_std(law.ppf(levels)[None], levels) == pytest.approx(std, abs=1e-4)


def test_levels_zero_and_one_are_dropped(rng):
    y, levels = rng.normal(size=30), metrics.ECE_LEVELS
    q = tabulate(stats.norm, levels, 30)
    for score in (metrics.nll, metrics.crps, metrics.pinball_loss):
        inner = score(y, q[:, 1:-1], levels[1:-1])
        assert score(y, q, levels) == pytest.approx(inner, rel=1e-12)
    inner = metrics.predictive_std(q[:, 1:-1], levels[1:-1])
    assert metrics.predictive_std(q, levels) == pytest.approx(inner, rel=1e-12)


def test_torch_and_lists_give_the_same_figures(rng):
    y, levels = rng.normal(size=30), metrics.ECE_LEVELS
    q = tabulate(stats.norm, levels, 30)
    for score in (metrics.nll, metrics.crps, metrics.pinball_loss, metrics.ece):
        figure = score(y, q, levels)
        assert isinstance(figure, float)
        same = pytest.approx(figure, rel=1e-12)  # sums may take another order
        assert score(torch.tensor(y), torch.tensor(q), torch.tensor(levels)) == same
        assert score(y.tolist(), q.tolist(), levels.tolist()) == same


# ------------------------------------------------------------------ conditional diagnostics


def test_coverage_by_width_sees_what_the_mean_hides(rng):
    n = 4000
    half_width = np.repeat([0.5, 1.645, 4.0, 1.645], n // 4)
    y = rng.normal(size=n)
    bins = metrics.coverage_by_width(y, -half_width, half_width, n_bins=4)
    np.testing.assert_array_equal(bins.n_points, [1000, 2000, 1000])
    np.testing.assert_allclose(bins.edges, [1.0, 1.0, 3.29, 8.0])
    expected = 2 * stats.norm.cdf([0.5, 1.645, 4.0]) - 1
    assert (np.abs(bins.coverage - expected) < 4 * bins.standard_error).all()
    assert (bins.standard_error > 0).all()


def test_coverage_along_a_feature_by_hand():
    feature = np.arange(10.0)
    y = np.where(feature >= 8, 5.0, 0.0)
    bins = metrics.coverage_along(feature, y, np.full(10, -1.0), np.full(10, 1.0), n_bins=5)
    np.testing.assert_array_equal(bins.n_points, [2] * 5)
    np.testing.assert_array_equal(bins.edges, [0, 1, 3, 5, 7, 9])
    np.testing.assert_array_equal(bins.coverage, [1, 1, 1, 1, 0])


@pytest.mark.parametrize("feature", [np.zeros(50), np.repeat([0.0, 1.0], [45, 5]), np.arange(50.0)])
def test_bins_are_never_empty_and_lose_nobody(rng, feature):
    y = rng.normal(size=50)
    bins = metrics.coverage_along(feature, y, y - 1, y + 1, n_bins=7)
    assert bins.n_points.sum() == 50
    assert (bins.n_points > 0).all()
    assert len(bins.edges) == len(bins.n_points) + 1
    np.testing.assert_array_equal(bins.coverage, 1)


def slab_problem(rng, n=4000):
    """Coverage is 0.9 but for the slab x_0 + x_1 > 1.5, about 14 % of the points, with 0.42."""
    X = rng.normal(size=(n, 4)) * [1.0, 1.0, 1.0, 1e3]
    inside = X[:, 0] + X[:, 1] > 1.5
    y = rng.normal(size=n) * np.where(inside, 3.0, 1.0)
    return X, y, np.full(n, -1.645), np.full(n, 1.645)


def test_worst_slab_finds_the_bad_region(rng):
    X, y, lower, upper = slab_problem(rng)
    slab = metrics.worst_slab_coverage(X, y, lower, upper, random_state=0)
    assert slab.coverage == pytest.approx(0.42, abs=0.1)
    assert slab.share == pytest.approx(0.1, abs=0.04)
    standardised = slab.direction * X.std(axis=0)
    aim = abs(standardised @ [1, 1, 0, 0]) / np.sqrt(2) / np.linalg.norm(standardised)
    assert aim > 0.9


def test_worst_slab_is_reproducible_and_unit_free(rng):
    X, y, lower, upper = slab_problem(rng, n=600)
    first = metrics.worst_slab_coverage(X, y, lower, upper, random_state=3, n_directions=100)
    again = metrics.worst_slab_coverage(X, y, lower, upper, random_state=3, n_directions=100)
    scaled = metrics.worst_slab_coverage(
        X * [8.0, 1.0, 0.5, 1.0], y, lower, upper, random_state=3, n_directions=100
    )
    assert first.coverage == again.coverage == scaled.coverage
    assert first.share == scaled.share


def test_worst_slab_of_uniform_coverage_is_not_biased(rng):
    figures = []
    for seed in range(60):
        X, y = rng.normal(size=(400, 3)), rng.uniform(size=400)
        slab = metrics.worst_slab_coverage(
            X, y, np.zeros(400), np.full(400, 0.8), random_state=seed, n_directions=50
        )
        figures.append(slab.coverage)
    assert np.mean(figures) == pytest.approx(0.8, abs=4 * np.std(figures) / np.sqrt(60))


@pytest.mark.parametrize("seed", range(20))
def test_slab_search_matches_brute_force_with_ties(seed):
    rng = np.random.default_rng(seed)
    X, covered = rng.integers(0, 15, size=(60, 1)).astype(float), rng.integers(0, 2, 60) * 1.0
    values, best = np.unique(X), 1.0
    for a in values:
        for b in values[values >= a]:
            inside = (X[:, 0] >= a) & (X[:, 0] <= b)
            if inside.sum() >= 0.15 * 60:
                best = min(best, covered[inside].mean())
    _, a, b = conditional._search_slab(X, covered, np.eye(1), 0.15)
    inside = (X[:, 0] >= a) & (X[:, 0] <= b)
    assert inside.sum() >= 0.15 * 60
    assert covered[inside].mean() == best


def test_worst_slab_on_a_binary_feature_and_a_constant_one(rng):
    X = np.column_stack([np.repeat([0.0, 1.0], 200), np.ones(400)])
    y = np.where(X[:, 0] == 1, 5.0, 0.0)
    slab = metrics.worst_slab_coverage(X, y, y * 0 - 1, y * 0 + 1, random_state=0)
    assert slab.coverage == 0
    everything = metrics.worst_slab_coverage(
        X[:, 1:], y, y * 0 - 1, y * 0 + 1, random_state=0, min_share=1.0
    )
    assert everything.share == 1
    assert everything.coverage == pytest.approx(0.5, abs=0.1)


# ------------------------------------------------------------------ bad input


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: metrics.rmse([1.0, 2.0], [1.0]), r"y \(2,\), mean \(1,\)"),
        (lambda: metrics.rmse([], []), "n >= 1"),
        (lambda: metrics.rmse([[1.0]], [[1.0]]), "flat arrays"),
        (lambda: metrics.rmse([np.inf], [1.0]), "y: expected finite"),
        (lambda: metrics.interval_width([np.nan], [1.0]), "lower: expected no NaN"),
        (lambda: metrics.interval_score([1.0], [0.0], [2.0], 95), "coverage: expected"),
        (lambda: metrics.ece([1.0], [[1.0, 2.0]]), "levels: expected 2, .* found 21"),
        (lambda: metrics.ece([1.0, 2.0], [[1.0, 2.0]], [0.1, 0.2]), r"expected shape \(2, k\)"),
        (lambda: metrics.nll([1.0], [[1.0, np.nan]], [0.1, 0.2]), "1 NaN"),
        (lambda: metrics.crps([1.0], [[1.0, np.inf]], [0.1, 0.2]), "finite"),
        (lambda: metrics.crps([1.0], [[1.0, 2.0]], [0.0, 0.2]), "at least two"),
        (lambda: metrics.pinball_loss([1.0], [[1.0]], [50]), r"levels: expected .* in \[0, 1\]"),
        (lambda: metrics.predictive_std([1.0, 2.0], [0.1, 0.2]), "quantiles: expected shape"),
        (lambda: metrics.predictive_std(3.0, [0.1, 0.2]), "quantiles: expected shape"),
        (lambda: metrics.ece_floor(0, 10), "n_cal >= 1"),
        (lambda: metrics.coverage_along([1.0], [1.0], [0.0], [2.0], n_bins=0), "n_bins"),
        (lambda: metrics.coverage_along([1.0, 2.0], [1.0], [0.0], [2.0]), "feature"),
        (lambda: metrics.worst_slab_coverage([1.0], [1.0], [0.0], [2.0]), "X: expected"),
        (
            lambda: metrics.worst_slab_coverage(np.eye(4), *np.zeros((3, 4)), min_share=0),
            "min_share",
        ),
    ],
)
def test_errors_name_expected_and_got(call, message):
    with pytest.raises(InvalidInputError, match=message) as error:
        call()
    assert "\n" not in str(error.value)


def test_excess_risk_is_that_of_covmetrics():
    """The figure is that of covmetrics 0.1 with the same classifier and parts."""
    rng = np.random.default_rng(0)
    X = rng.uniform(size=(600, 2))
    y = rng.normal(size=600) * (0.5 + X[:, 0])
    tree = DecisionTreeClassifier(min_samples_leaf=30, random_state=0)
    ends = np.full(600, -1.5), np.full(600, 1.5)
    found = metrics.excess_risk(X, y, *ends, 0.9, classifier=tree, random_state=42)
    assert found.value == pytest.approx(0.07133333333333333)
    assert 0.01 < found.standard_error < 0.02


def test_few_calibrated_predictors_exceed_the_excess_risk_of_chance():
    """At most 1 in 50, also where few points calibrated them."""
    for n, n_cal in ((60, None), (200, 100)):
        beyond = 0
        for seed in range(20):
            rng = np.random.default_rng(seed)
            share = 0.9 if n_cal is None else rng.beta(0.9 * (n_cal + 1), 0.1 * (n_cal + 1))
            X, y = rng.normal(size=(n, 3)), (rng.random(n) > share).astype(float)
            found = metrics.excess_risk(X, y, y * 0, y * 0 + 0.5, 0.9, n_cal=n_cal)
            assert found.chance == pytest.approx(
                0.9 - metrics.coverage_band(0.9, n_cal, n, 0.96)[0]
            )
            beyond += found.value > found.chance
        assert beyond <= 2


def test_excess_risk_of_honest_intervals_is_noise():
    rng = np.random.default_rng(0)
    X, y = rng.uniform(size=(1000, 3)), rng.uniform(size=1000)
    found = metrics.excess_risk(X, y, np.zeros(1000), np.full(1000, 0.9), 0.9)
    assert abs(found.value) < 3 * found.standard_error
    everyone = metrics.excess_risk(X, y, np.zeros(1000), np.ones(1000), 0.9)
    assert everyone.value == pytest.approx(0.1)
    assert everyone.value > everyone.chance > found.value
    with pytest.raises(InvalidInputError, match="coverage in"):
        metrics.excess_risk(X, y, y, y, 1.0)
