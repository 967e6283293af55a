"""Several outputs: shapes, gaps, regions that hold all at once, bands over whole groups."""

import warnings

import numpy as np
import pandas as pd
import pytest
import torch

from helpers import from_one_start, marked
from sharpgp import CalibrationWarning, SharpGPRegressor
from sharpgp.exceptions import InvalidInputError
from sharpgp.outputs import JointScores, _rarity

pytestmark = pytest.mark.usefixtures("one_start")


def data(n=120, seed=0, correlation=0.9):
    rng = np.random.default_rng(seed)
    X = rng.uniform(-3, 3, (n, 2))
    noise = rng.multivariate_normal([0, 0], [[1, correlation], [correlation, 1]], n)
    return X, np.column_stack([np.sin(X[:, 0]), 10 * X[:, 1]]) + noise * [0.2, 3.0]


def quick(**settings):
    return SharpGPRegressor(**{"base": "rbf", "calibration": "exact", "random_state": 0} | settings)


@pytest.fixture(scope="module")
def fitted():
    with from_one_start():
        return quick().fit(*data())


def test_shapes(fitted):
    X, Y = data(7, seed=1)
    assert fitted.predict(X).shape == (7, 2)
    assert [part.shape for part in fitted.predict(X, return_std=True)] == [(7, 2), (7, 2)]
    assert fitted.predict_interval(X, 0.8).shape == (7, 2, 2)
    assert fitted.predict_interval(X, [0.5, 0.8]).shape == (7, 2, 2, 2)
    assert fitted.predict_quantiles(X, [0.2, 0.5, 0.7]).shape == (7, 3, 2)
    assert fitted.predict_region(X, 0.8).shape == (7, 2, 2)
    assert fitted.predict_region(X, [0.5, 0.8]).shape == (7, 2, 2, 2)
    assert [dist.mean.shape for dist in fitted.predict_dist(X)] == [(7,), (7,)]
    assert len(fitted.calibration_report(X, Y)) == 2
    assert 0.5 < fitted.score(*data(200, seed=2)) <= 1


def test_every_output_is_a_model_of_its_own(fitted, tmp_path):
    X, Y = data()
    kept = fitted.outputs_[1]
    alone = quick().fit(X, Y[:, 1])
    np.testing.assert_array_equal(alone.predict_interval(X), kept.predict_interval(X))
    fitted.save(tmp_path / "model.sgp")
    again = SharpGPRegressor.load(tmp_path / "model.sgp")
    np.testing.assert_array_equal(again.predict_region(X, 0.8), fitted.predict_region(X, 0.8))


def test_the_box_ends_at_a_rank_of_the_largest_scores(fitted):
    z = fitted.joint_.z
    units = torch.ones(2, dtype=torch.float64)
    C = len(z)
    expected = float(z.amax(-1).sort().values[int(np.ceil(0.8 * (C + 1) - 1e-9)) - 1])
    assert float(fitted.joint_.radius(0.8, units)) == pytest.approx(expected, rel=1e-9)
    with pytest.warns(CalibrationWarning, match="coverage 0.99 of all parts at once needs at leas"):
        JointScores(z).radius(0.99, units)


@pytest.mark.slow
@pytest.mark.parametrize("correlation", [0.0, 0.95])
def test_joint_coverage(correlation):
    """Over random splits: at least what is asked, and less than a rank more; less volume."""
    hits, ratio = [], []
    X, Y = data(160, correlation=correlation)
    test, target = data(2000, seed=1, correlation=correlation)
    for seed in range(4):
        model = quick(calibration="kuleshov18", random_state=seed, cal_size=39).fit(X, Y)
        box = model.predict_region(test, 0.8)
        hits.append(((box[:, 0] <= target) & (target <= box[:, 1])).all(1).mean())
        bonferroni = model.predict_interval(test, 0.9, symmetric=True)
        ratio.append(
            np.diff(box, axis=1).prod(2).mean() / np.diff(bonferroni, axis=1).prod(2).mean()
        )
    # The coverage given 39 points has a beta distribution; splits of 160 share points.
    assert abs(np.mean(hits) - 0.8) < 4 * np.sqrt(0.16 / 40 / 2)
    if correlation:
        assert np.mean(ratio) < 0.95


def test_gaps_in_some_outputs():
    X, Y = data(seed=3)
    Y[::5, 0], Y[1::7, 1] = np.nan, np.nan
    model = quick().fit(X, Y)
    present = (~np.isnan(Y)).sum(0)
    sizes = [one.posterior_.n_train + one.calibrated_.n_cal for one in model.outputs_]
    assert sizes == present.tolist()
    assert len(model.joint_.z) < min(one.calibrated_.n_cal for one in model.outputs_)
    assert np.isfinite(model.predict_region(X, 0.5)).all()


# ------------------------------------------------------------------ rows that count differently


def by_hand(z, weights, coverage, w):
    """Smallest size that has its share of all weight, that of the test point at infinity."""
    order = np.argsort(z)
    share = np.cumsum(weights[order]) / (weights.sum() + w)
    return z[order][np.searchsorted(share, coverage - 1e-12)]


def largest(model):
    """``max_j |z_ij|`` in units of each output, for rows that all outputs share, in their order."""
    return np.max([np.abs(one.calibrated_.scores.numpy()) for one in model.outputs_], axis=0)


def test_regions_are_weighted_as_intervals_are(monkeypatch, tmp_path):
    monkeypatch.setattr("sharpgp.outputs._unit", lambda *_: torch.ones((), dtype=torch.float64))
    X, Y = data(160)
    model = quick(cal_size=79).fit(X, Y, sample_weight_cal=np.where(X[:, 0] > 0, 9.0, 1.0))
    m, own = largest(model), np.where(model.outputs_[0].calibrated_.X_cal[:, 0] > 0, 9.0, 1.0)
    location = model.predict(X[:3])
    spread = np.stack([one.calibrated_.model.law(torch.tensor(X[:3])).spread
                       for one in model.outputs_], -1)  # fmt: skip
    test = np.array([1.0, 4.0, 9.0])
    box = model.predict_region(X[:3], 0.8, sample_weight=test)
    radius = [by_hand(m, own, 0.8, w) for w in test]
    np.testing.assert_allclose(box[:, 1], location + np.array(radius)[:, None] * spread)
    # Without weights of test points, the largest of those that calibrate.
    np.testing.assert_allclose(model.predict_region(X[2:3], 0.8)[0], box[2])
    model.save(tmp_path / "model.sgp")
    again = SharpGPRegressor.load(tmp_path / "model.sgp")
    np.testing.assert_array_equal(again.predict_region(X[:3], 0.8, sample_weight=test), box)
    plain = quick(cal_size=79).fit(X, Y)
    with pytest.raises(InvalidInputError, match="sample_weight: expected a model that was calib"):
        plain.predict_region(X[:3], 0.8, sample_weight=test)


@pytest.mark.filterwarnings("ignore::sharpgp.CalibrationWarning")
def test_weights_reach_every_method_and_choose_exact():
    X, Y = data(60)

    def double(X):
        return np.where(X[:, 0] > 0, 2.0, 1.0)

    weighted = quick(calibration="auto").fit(X, Y, sample_weight_cal=double)
    assert weighted.calibration_ == "exact"
    model = quick(calibration="loo").fit(X, Y, sample_weight_cal=double(X))
    assert model.joint_.weights.tolist() == (double(X) / 2).tolist()
    with pytest.raises(InvalidInputError, match="groups_cal: expected it with X_cal"):
        quick(calibration="loo").fit(X, Y, groups_cal=np.arange(60))


def test_regions_for_new_groups_count_groups(monkeypatch):
    monkeypatch.setattr("sharpgp.outputs._unit", lambda *_: torch.ones((), dtype=torch.float64))
    X, Y = data(160)
    groups = np.repeat(np.arange(40), [1, 2, 5, 8] * 10)
    Y = Y + np.random.default_rng(1).normal(size=(40, 2))[groups] * [0.5, 5.0]
    model = quick(cal_size=0.5).fit(X, Y, groups=groups)
    m, of = largest(model), model.outputs_[0].calibrated_.groups.numpy()
    share = 1.0 / np.bincount(of)[of]
    expected = by_hand(m, share, 0.8, 1.0)
    units = torch.ones(2, dtype=torch.float64)
    assert float(model.joint_.radius(0.8, units)) == pytest.approx(expected)
    with pytest.warns(
        CalibrationWarning, match=f"99 calibration groups, found {len(np.unique(of))}:"
    ):
        model.predict_region(X, 0.99)


def test_gaps_that_depend_on_inputs_are_weighted_and_named():
    X, Y = data(400, seed=2)
    share = np.where(X[:, 0] > 0, 0.2, 0.9)
    Y[np.random.default_rng(0).random(400) > share, 1] = np.nan
    with pytest.warns(CalibrationWarning, match="differ from complete ones in x0; regions weight"):
        model = quick(calibration="kuleshov18").fit(X, Y)
    found = _rarity(X, Y, 0)
    for side, right in ((X[:, 0] > 0, 5.0), (X[:, 0] < 0, 1.0 / 0.9)):
        assert np.median(found[side]) == pytest.approx(right, rel=0.3)
    # In units in which a new point weighs 1 on average.
    weights = model.joint_.weights
    assert float(weights.square().sum() / weights.sum()) == pytest.approx(1.0)
    assert float(weights.max() / weights.min()) > 3.0


def test_gaps_by_chance_leave_everything_as_it_is():
    X, Y = data(400, seed=2)
    Y[np.random.default_rng(0).random(400) > 0.5, 1] = np.nan
    assert _rarity(X, Y, 0) is None


@pytest.mark.parametrize(
    "calibration",
    marked(
        ["loo", "vanilla", "kuleshov18", "marx22", "vovk20"],
        slow={"kuleshov18", "marx22", "vovk20"},
    ),
)
def test_methods(calibration):
    X, Y = data(80)
    model = quick(calibration=calibration).fit(X, Y)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", CalibrationWarning)
        box, interval = model.predict_region(X, 0.8), model.predict_interval(X, 0.8)
    assert (np.diff(box, axis=1).prod(2) > np.diff(interval, axis=1).prod(2)).mean() > 0.9
    # Scores where the method has some; Bonferroni's box elsewhere.
    assert hasattr(model, "joint_") == (calibration in ("loo", "kuleshov18"))


def test_frames_calibration_data_and_noise():
    X, Y = data(90)
    frame = pd.DataFrame(X, columns=["a", "b"]).assign(kind=np.tile(["x", "y", "z"], 30))
    noise = np.full((60, 2), [0.04, 9.0])
    model = quick().fit(
        frame[:60], pd.DataFrame(Y[:60]), frame[60:], Y[60:], noise=noise, noise_cal=noise[:30]
    )
    assert model.feature_names_in_.tolist() == ["a", "b", "kind"]
    assert [one.noise_ for one in model.outputs_] == [0.04, 9.0]
    assert model.predict_region(frame, 0.8, noise=np.full((90, 2), [0.04, 9.0])).shape == (90, 2, 2)


def test_what_one_output_has_is_asked_of_it(fitted):
    X, Y = data(5)
    for ask in (lambda: fitted.base_, lambda: fitted.training_, lambda: fitted.update(X, Y)):
        with pytest.raises(InvalidInputError, match="a model of one output, found 2; use one of"):
            ask()
    assert [member.name for member in fitted.outputs_[0].base_] == ["rbf"]


def test_one_output_after_several():
    X, Y = data(60)
    model = quick(calibration="kuleshov18").fit(X, Y).fit(X, Y[:, 0])
    assert not hasattr(model, "outputs_")
    assert model.predict(X).shape == (60,)
    box = model.predict_region(X, 0.8)
    np.testing.assert_array_equal(box[..., 0], model.predict_interval(X, 0.8))
    assert not hasattr(model.fit(X, Y), "posterior_")


@pytest.mark.parametrize(
    ("Y", "message"),
    [
        (np.full((40, 2), "a"), "y: expected numbers"),
        (np.full((40, 2), np.inf), "y: expected finite numbers"),
        (np.column_stack([np.arange(40.0), np.full(40, np.nan)]), "expected values in column 1"),
        (np.ones((39, 2)), "inconsistent numbers of samples"),
    ],
)
def test_unusable_targets(Y, message):
    with pytest.raises((InvalidInputError, ValueError), match=message):
        quick().fit(data(40)[0], Y)


# ------------------------------------------------------------------ whole groups at once


def curves(n_groups, seed=0, length=6):
    rng = np.random.default_rng(seed)
    X = rng.uniform(-3, 3, (n_groups * length, 1))
    groups = np.repeat(np.arange(n_groups), length)
    shift = rng.normal(0, 0.3, n_groups)[groups]
    return X, np.sin(X[:, 0]) + shift + rng.normal(0, 0.1, len(X)), groups


def test_bands_hold_whole_groups():
    X, y, groups = curves(60)
    test, target, of = curves(400, seed=1)
    model = quick(calibration="exact", cal_size=0.5).fit(X, y, groups=groups)
    band = model.predict_band(test, 0.8)
    inside = (band[:, 0] <= target) & (target <= band[:, 1])
    whole = np.bincount(of, inside) == 6
    # 30 groups calibrate.
    assert abs(whole.mean() - 0.8) < 4 * np.sqrt(0.16 / 31 + 0.16 / 400)
    assert np.diff(band).mean() > np.diff(model.predict_interval(test, 0.8)).mean()


def test_bands_are_weighted_by_group():
    X, y, groups = curves(60)
    model = quick(cal_size=0.5).fit(X, y, groups=groups, sample_weight_cal=1.0 + groups % 3)
    calibrated = model.calibrated_
    size, of = calibrated.scores.abs().numpy(), calibrated.groups.numpy()
    whole = np.array([size[of == g].max() for g in np.unique(of)])
    weights = np.array([calibrated.weights.numpy()[of == g].mean() for g in np.unique(of)])
    law = calibrated.model.law(torch.tensor(X[:6]))
    location, spread = law.location, law.spread
    for w in (1.0, 3.0):
        band = model.predict_band(X[:6], 0.8, sample_weight=np.full(6, w))
        radius = by_hand(whole, weights, 0.8, w)
        np.testing.assert_allclose(band[:, 1], location + radius * spread)


def test_bands_need_groups():
    X, y, _ = curves(10)
    with pytest.raises(InvalidInputError, match="predict_band: expected a model with one output"):
        quick().fit(X, y).predict_band(X)
