"""Calibration for new groups: the points of a group share the weight of one.

The scores of a group depend on one another, so that G groups of n points are worth G scores.
"""

import warnings

import numpy as np
import pytest
import torch
from scipy.stats import norm

from helpers import FakePosterior, fake_data, method
from sharpgp import CalibrationWarning, Exact, persistence
from sharpgp.calibration.predictors.scored import ScoredPredictor
from sharpgp.calibration.ranks import GroupRanks, Ranks
from sharpgp.exceptions import InvalidInputError
from sharpgp.gp.training import train
from sharpgp.models.gaussian.plain_gp import PosteriorModel
from sharpgp.rows import Rows

pytestmark = pytest.mark.usefixtures("one_start")

COVERAGES = (0.5, 0.8, 0.9, 0.95, 0.99)
ONE = torch.ones(1, dtype=torch.float64)


def tensor(values):
    return torch.as_tensor(values, dtype=torch.float64)


def effects(rng, n_groups, size, share):
    """Scores [G, n] of unit variance, of which a share belongs to the group."""
    common, own = rng.normal(size=(n_groups, 1)), rng.normal(size=(n_groups, size))
    return np.sqrt(share) * common + np.sqrt(1 - share) * own


def mean_and_error(draws):
    return np.mean(draws, 0), np.std(draws, 0) / np.sqrt(len(draws))


# ------------------------------------------------------------------ ranks


def test_ends_have_the_mass_that_counting_gives():
    """Against the definition: every group and the new one have the same mass."""
    rng = np.random.default_rng(0)
    backed = 0
    for _ in range(50):
        sizes = rng.integers(1, 6, rng.integers(8, 60))
        groups = rng.permutation(np.repeat(np.arange(len(sizes)) * 7, sizes))
        z = rng.normal(size=len(groups)).round(1)  # with ties
        mass = 1.0 / sizes[groups // 7] / (len(sizes) + 1)
        ranks = Ranks(tensor(z), groups=torch.from_numpy(groups))
        assert ranks.n == len(sizes)
        for c in COVERAGES:
            upper = [v for v in np.unique(z) if mass[z <= v].sum() >= (1 + c) / 2 - 1e-9]
            lower = [v for v in np.unique(z) if mass[z >= v].sum() >= (1 + c) / 2 - 1e-9]
            radius = [v for v in np.unique(abs(z)) if mass[abs(z) <= v].sum() >= c - 1e-9]
            low, high, both = ranks.interval_ends(c, ONE)
            r, known = ranks.radius(c, ONE)
            assert bool(both) == bool(upper)
            assert bool(known) == bool(radius)
            if upper:
                assert (float(low), float(high)) == pytest.approx((max(lower), min(upper)))
                backed += 1
            if radius:
                assert float(r) == pytest.approx(min(radius))
    assert backed > 100


@pytest.mark.parametrize("n_groups", [8, 19, 40])
def test_points_that_repeat_their_group_tell_nothing_more(n_groups):
    z = tensor(np.random.default_rng(n_groups).normal(size=n_groups))
    groups = torch.arange(n_groups).repeat_interleave(4)
    single, repeated = Ranks(z), Ranks(z.repeat_interleave(4), groups=groups)
    assert repeated.n == single.n == n_groups
    for c in COVERAGES:
        radius, backed = single.radius(c, ONE)
        again, backed_again = repeated.radius(c, ONE)
        assert bool(backed) == bool(backed_again)
        assert bool(single.centred_supported(c, ONE)) == bool(repeated.centred_supported(c, ONE))
        if bool(backed):
            torch.testing.assert_close(again, radius)
    levels = torch.arange(1, n_groups + 1, dtype=torch.float64) / (n_groups + 1)
    # Each stands in the middle of its copies.
    torch.testing.assert_close(repeated.level.reshape(n_groups, 4).mean(1), levels)
    torch.testing.assert_close(repeated.beta(levels), single.beta(levels))


@pytest.mark.parametrize("share", [0.0, 0.5, 0.9])
def test_bands_of_few_groups_cover_and_are_narrower_than_whole_ranks(share):
    """Twelve groups of ten: without the jump at 12/13, where whole ranks end."""
    rng, groups = np.random.default_rng(1), torch.arange(12).repeat_interleave(10)
    coverages = (0.5, 0.8, 0.9, 0.925, 0.95, 0.99)
    radii = []
    for _ in range(150):
        z = tensor(effects(rng, 12, 10, share).ravel())
        both = [kind(z, groups=groups) for kind in (GroupRanks, Ranks)]
        radii.append([[float(one.radius(c, ONE)[0]) for c in coverages] for one in both])
        backed = [bool(both[0].radius(c, ONE)[1]) for c in coverages]
        assert backed == [True, True, True, False, False, False]
    radii = np.array(radii)
    assert (np.diff(radii[:, 0]) >= 0).all()
    mean, error = mean_and_error(2 * norm.cdf(radii[:, 0]) - 1)
    assert (mean > np.array(coverages) - 3 * error).all()
    ratio = radii[:, 0].mean(0) / radii[:, 1].mean(0)
    assert (ratio < [1, 1, 0.95, 0.9, 0.88, 0.96]).all()


def test_bands_of_low_coverage_are_no_narrower_than_nothing():
    found = GroupRanks(tensor(np.linspace(-1, 1, 20)), groups=torch.arange(5).repeat_interleave(4))
    radii = [float(found.radius(c, ONE)[0]) for c in (0.01, 0.1, 0.2)]
    assert 0 < radii[0] <= radii[1] <= radii[2]


@pytest.mark.parametrize(("in_training", "kind"), [(True, GroupRanks), (False, Ranks)])
def test_only_methods_without_a_guarantee_leave_whole_ranks(in_training, kind):
    X, y = fake_data(60)
    model, groups = PosteriorModel(FakePosterior()), torch.arange(60) // 5
    scores = model.score(tensor(X), tensor(y))
    found = ScoredPredictor(model, Rows(tensor(X)), tensor(y), scores, in_training=in_training)
    with pytest.warns(CalibrationWarning, match="12 groups calibrate"):
        assert type(found.for_groups(groups).ranks) is kind
    assert type(found.ranks) is Ranks


def test_groups_of_one_point_change_nothing():
    z = tensor(np.random.default_rng(0).normal(size=30))
    single, grouped = Ranks(z), Ranks(z, groups=torch.randperm(30))
    levels = torch.tensor([0.001, 0.05, 0.4, 0.95, 0.999], dtype=torch.float64)
    assert torch.equal(grouped.beta(levels), single.beta(levels))
    assert torch.equal(grouped.tail.scale, single.tail.scale)
    assert grouped.tail.degrees == single.tail.degrees


@pytest.mark.parametrize(
    ("n_groups", "share", "sets"),
    [
        (8, 0.5, 150),
        (30, 1.0, 50),
        pytest.param(8, 1.0, 150, marks=pytest.mark.slow),
        pytest.param(30, 1.0, 150, marks=pytest.mark.slow),
    ],
)
def test_coverage_of_new_groups(n_groups, share, sets):
    """Quantiles and bands, from whole ranks and from the tail."""
    rng = np.random.default_rng(n_groups)
    groups = torch.arange(n_groups).repeat_interleave(4)
    levels = tensor([(1 - c) / 2 for c in COVERAGES] + [(1 + c) / 2 for c in COVERAGES])
    found, of_rows = [], []
    for _ in range(sets):
        z = tensor(effects(rng, n_groups, 4, share).ravel())
        ranks = Ranks(z, groups=groups)
        bands = torch.cat([ranks.radius(c, ONE)[0] for c in COVERAGES])
        pairs = [ranks.beta(levels).reshape(2, -1), torch.stack([-bands, bands])]
        found.append([np.diff(norm.cdf(pair), axis=0)[0] for pair in pairs])
        of_rows.append(np.diff(norm.cdf(Ranks(z).beta(levels).reshape(2, -1)), axis=0)[0])
    asked, (mean, error) = np.array(COVERAGES), mean_and_error(found)
    # Quantiles between two groups are within a rank of their level, on either side.
    between = np.where(asked <= (n_groups - 1) / (n_groups + 1), 2 / (n_groups + 1), 0.0)
    assert (mean[0] >= asked - between - 3 * error[0]).all(), mean
    assert (mean[1] >= asked - 3 * error[1]).all(), mean
    if n_groups == 8:  # 32 points treated as independent
        mean, error = mean_and_error(of_rows)
        assert mean[3] < 0.95 - 3 * error[3]


# ------------------------------------------------------------------ predictors


def grouped_fit(name, n_groups=20, size=3, **settings):
    X, y = fake_data(n_groups * size)
    groups = np.repeat(np.arange(n_groups), size)
    return method(name, **settings).fit(FakePosterior(), X, y, groups_cal=groups), X


@pytest.mark.parametrize("name", ["kuleshov18", "marx22"])
def test_methods_that_rank_count_groups(name, tmp_path):
    found, X = grouped_fit(name)
    assert (found.n_cal, found.counted, len(found.scores)) == (20, "groups", 60)
    with pytest.warns(CalibrationWarning, match="coverage 0.97 needs at least 33 calibration grou"):
        found.predict_interval(X, 0.97)
    with pytest.warns(CalibrationWarning, match="coverage 0.95 needs at least 39 calibration grou"):
        found.predict_dist(X).interval(0.95)
    with pytest.warns(CalibrationWarning, match="level 0.99 needs at least 99 calibration groups"):
        found.predict_quantiles(X, 0.99)
    more = found.updated(X[:5], torch.zeros(5))
    assert more.n_cal == 25
    assert found.rescored(X[:5], torch.zeros(5), keep=8).n_cal == 6  # three rows of one group


def test_a_saved_predictor_remembers_groups(tmp_path):
    X, y = fake_data(60)
    posterior, _ = train(X[:30], y[:30])
    with pytest.warns(CalibrationWarning, match="10 groups calibrate"):
        found = method("kuleshov18").fit(posterior, X[30:], y[30:], groups_cal=np.arange(30) // 3)
    persistence.save(found, tmp_path / "model.sgp")
    again = persistence.load(tmp_path / "model.sgp")
    assert again.n_cal == 10
    assert torch.equal(again.predict_interval(X, 0.8), found.predict_interval(X, 0.8))


def test_weights_and_groups_together():
    X, y = fake_data(60)
    groups, weights = np.arange(60) // 3, np.linspace(0.2, 2, 60)
    found = method("kuleshov18").fit(
        FakePosterior(), X, y, groups_cal=groups, sample_weight=weights
    )
    assert found.counted == "groups"
    assert 10 < found.n_effective < 20
    equal = method("kuleshov18").fit(
        FakePosterior(), X, y, groups_cal=groups, sample_weight=np.full(60, 7.0)
    )
    plain, _ = grouped_fit("kuleshov18")
    torch.testing.assert_close(
        equal.predict_interval(X, 0.8, symmetric=True),
        plain.predict_interval(X, 0.8, symmetric=True),
    )


def test_few_groups_are_named():
    with pytest.warns(CalibrationWarning, match="8 groups calibrate: .* not on 24 points"):
        grouped_fit("kuleshov18", n_groups=8)
    with pytest.raises(InvalidInputError, match="at least 2 groups to calibrate with, found 1"):
        grouped_fit("marx22", n_groups=1)
    with warnings.catch_warnings():
        warnings.simplefilter("error", CalibrationWarning)
        grouped_fit("kuleshov18", n_groups=19)


@pytest.mark.parametrize("name", ["vovk20", "paper"])
def test_methods_that_take_points_for_independent_say_so(name):
    with pytest.warns(CalibrationWarning, match="treats 60 points of 20 groups as independent"):
        found, _ = grouped_fit(name)
    assert (found.n_cal, found.counted) == (60, "points")
    X, y = fake_data(60)
    with warnings.catch_warnings():
        warnings.simplefilter("error", CalibrationWarning)
        method("vovk20").fit(FakePosterior(), X, y, groups_cal=np.arange(60))
        method("vanilla").fit(FakePosterior(), X, y, groups_cal=np.arange(60) // 3)


@pytest.mark.slow
def test_all_rows_and_one_per_group_keep_the_guarantee(monkeypatch):
    """Sizes go with the noise: most rows are of calm groups, half of the groups are not."""
    model = PosteriorModel(FakePosterior())
    monkeypatch.setattr("sharpgp.calibration.methods.exact.candidates", lambda *_: {"gp": model})
    rng = np.random.default_rng(0)
    inside = {True: [], False: [], None: []}
    for seed in range(300):
        noisy = rng.random(20) < 0.5
        g = np.repeat(np.arange(20), np.where(noisy, 1, 15))
        X = torch.zeros(len(g), 1, dtype=torch.float64)
        y = np.where(noisy[g], 1.0, 0.1) * rng.normal(size=len(g))
        cal, new = g < 19, np.flatnonzero(g == 19)[:1]
        for one, covered in inside.items():
            exact = Exact(one_per_group=bool(one), random_state=seed)
            groups = None if one is None else g[cal]
            found = exact.fit(FakePosterior(), X[cal], y[cal], groups_cal=groups)
            low, high = found.predict_interval(X[new], 0.9, symmetric=True)[0].tolist()
            covered.append(low <= y[new] <= high)
    error = np.sqrt(0.9 * 0.1 / 300)
    assert np.mean(inside[True]) > 0.9 - 3 * error
    assert np.mean(inside[False]) > 0.9 - 3 * error
    assert np.mean(inside[None]) < 0.9 - 3 * error
