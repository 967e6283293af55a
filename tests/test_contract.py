"""The contract of every calibration method, those to come included.

All of :func:`known_methods` run through the same tests, with the tiny settings of
``helpers.SETTINGS``.  What a method may do differently is written down once, in the lists below.
"""

import math
import pickle

import numpy as np
import pytest
import torch
from sklearn.base import clone
from sklearn.linear_model import Ridge
from sklearn.metrics import r2_score

import sharpgp
import sharpgp.persistence
from helpers import FakePosterior, fake_data, marked, method, wavy
from sharpgp import PredictiveDistribution, SharpGPError, SharpGPRegressor
from sharpgp._extras import LABORATORY_METHODS
from sharpgp.calibration import Calibrated, Recalibrator, known_methods
from sharpgp.calibration.recalibrator import make_recalibrator
from sharpgp.exceptions import MissingExtraError
from sharpgp.gp.exact.posterior import ExactPosterior
from sharpgp.gp.scaling import Affine
from sharpgp.gp.sparse.posterior import SparsePosterior
from sharpgp.gp.sparse.training import train_sparse
from sharpgp.persistence import load, save
from tolerances import same_optimum

#: Methods whose answers do not depend on the calibration data at all.
IGNORE_CALIBRATION = ("vanilla", "fully_bayesian", "capone22")
#: Of the two methods that refit to parts, `cv` stands for both wherever each test takes a second.
SLOW = {"loo"}
METHODS = marked(known_methods(), slow=SLOW)
USE_CALIBRATION = [name for name in known_methods() if name not in IGNORE_CALIBRATION]
ALL_CALIBRATED = marked(USE_CALIBRATION, slow=SLOW)
SOME_CALIBRATED = marked(USE_CALIBRATION, slow={*SLOW, "kuleshov22", "marx22", "vovk20"})
#: Methods that sample the GP's hyperparameters, and its mean with them.
OWN_MEAN = ("fully_bayesian", "capone22")
#: Methods that draw by row, so that the order of the rows matters as much as a seed does.
DRAW_BY_ROW = ("cv", "loo", "cv+")
#: Methods that train GPs of their own.
RETRAINING = ("cv", "loo", "cv+")
#: What other rounding may move answers by, in predictive standard deviations: a search stops a
#: step earlier or later, a sampler goes another way.
MOVES = dict.fromkeys(("paper", "exact", "cv", "loo", "cv+", "kuleshov22"), same_optimum(60))
MOVES |= dict.fromkeys(OWN_MEAN, 0.5)
#: Quantiles are calibration scores at whole ranks ``j/(C+1)``, whatever the data.
RANKED = ("kuleshov18", "marx22", "vovk20", "exact")
#: Methods that cover less than they say, because ``theta`` or the network is fitted to the very
#: points that calibrate it; by how much at most with 39 of them and a GP that is right (measured
#: at 80 %: 0.01 and 0.03; more with more hyperparameters and a GP that is wrong).
UNDER_COVERING = {"paper": 0.03, "kuleshov22": 0.05}
#: Methods whose intervals hold for many points at once, and so cover more than they say at one.
OVER_COVERING = ("capone22",)
#: Compares points with fits to parts: bands are not centred, and no point can join.
OF_PARTS = ("cv+",)

C = 39
X_CAL, Y_CAL = map(torch.from_numpy, wavy(C, seed=1))
X_TEST, Y_TEST = map(torch.from_numpy, wavy(50, seed=2))
LEVELS = (0.025, 0.1, 0.3, 0.5, 0.55, 0.8, 0.975)

pytestmark = [
    pytest.mark.filterwarnings("ignore::sharpgp.CalibrationWarning"),
    pytest.mark.usefixtures("one_start"),
]


def fit(name, posterior, X=X_CAL, y=Y_CAL, **settings):
    try:
        return method(name, **settings).fit(posterior, X, y)
    except MissingExtraError as error:
        pytest.skip(str(error))


@pytest.fixture(scope="module", params=METHODS)
def name(request):
    return request.param


@pytest.fixture(scope="module")
def calibrated(name, gp):
    """Each method, fitted once; tests that need no other fit share it."""
    return fit(name, gp)


def assert_same(ours, expected, spread, tolerance):
    """Equal to a share ``tolerance`` of the predictive standard deviation."""
    difference = (ours - expected).abs() / spread.unsqueeze(-1)
    assert float(difference.max()) < tolerance


def assert_sound(predictor, X):
    """Finite and ordered answers, and a distribution that can be inverted."""
    levels = torch.linspace(0.001, 0.999, 41, dtype=torch.float64)
    quantiles = predictor.predict_quantiles(X, levels)
    assert torch.isfinite(quantiles).all()
    assert (quantiles.diff(dim=1) >= 0).all()
    for symmetric in (None, True, False):
        ends = predictor.predict_interval(X, [0.5, 0.9, 0.99], symmetric=symmetric)
        assert torch.isfinite(ends).all()
        assert (ends[:, 0] <= ends[:, 1]).all()
    dist = predictor.predict_dist(X)
    assert (dist.std > 0).all()
    for p in (1e-6, 0.01, 0.3, 0.5, 0.7, 0.99, 1 - 1e-6):
        q = dist.quantile(p)
        # Scores that tie up to rounding make a distribution as narrow as rounding is wide.
        rounding = 8 * torch.finfo(q.dtype).eps * q.abs() * dist.log_prob(q).exp()
        assert ((dist.cdf(q) - p).abs() <= 1e-6 + rounding).all()


# ------------------------------------------------------------------ registry


def test_registry(name):
    ours = method(name)
    assert isinstance(ours, Recalibrator)
    assert type(ours).name == name
    assert getattr(sharpgp, type(ours).__name__) is type(ours)
    assert type(ours).__name__ in sharpgp.__all__
    # What the estimator passes on; and a repr that tells the settings.
    assert "random_state=3" in repr(make_recalibrator(name, random_state=3))


def test_clone(name):
    by_name = clone(SharpGPRegressor(base="rbf", calibration=name, random_state=1))
    assert by_name.get_params()["calibration"] == name
    ours = method(name)
    copy = clone(SharpGPRegressor(base="rbf", calibration=ours))
    assert copy.calibration is not ours
    assert repr(copy.calibration) == repr(ours)
    assert repr(clone(ours, safe=False)) == repr(ours)


def test_works_in_the_estimator(name):
    X, y = wavy(60)
    try:
        model = SharpGPRegressor(base="rbf", calibration=method(name), random_state=0).fit(X, y)
    except MissingExtraError as error:
        pytest.skip(str(error))
    mean, std = model.predict(X_TEST.numpy(), return_std=True)
    np.testing.assert_allclose(mean, model.calibrated_.predict_mean(X_TEST))
    dist = model.predict_dist(X_TEST.numpy())
    np.testing.assert_array_equal(std, dist.std)
    assert isinstance(dist.mean, np.ndarray)
    # The estimator's mean is that of its distribution, which is skewed at most by the scores.
    assert (np.abs(dist.mean - mean) < std).all()
    assert all(math.isfinite(v) for v in model.calibration_report(X_TEST, Y_TEST).values())


def test_any_mean(name):
    """Predictions are the regressor's, and everything else is about them."""
    X, y = wavy(60)
    model = SharpGPRegressor(calibration=method(name), base=Ridge(), random_state=0)
    own = () if name in RETRAINING else (X_CAL, Y_CAL)  # which would train, too
    if name in OWN_MEAN:
        with pytest.raises(SharpGPError, match=r"expected a GP .* its own mean"):
            model.fit(X, y, *own)
        return
    model.fit(X, y, *own)
    expected = Ridge().fit(X, y).predict(X_TEST)
    if name in ("cv", "exact"):  # which predicts with the average of the refits that it scored
        refits = model.calibrated_.model.refits
        expected = np.mean([one.location(X_TEST).numpy() for one in refits], axis=0)
    np.testing.assert_allclose(model.predict(X_TEST), expected)
    assert_sound(model.calibrated_, X_TEST)
    band = model.predict_interval(X_TEST, 0.8, symmetric=True)
    if name not in OF_PARTS:
        np.testing.assert_allclose(band.mean(1), expected)
    assert model.score(X_TEST, Y_TEST) == pytest.approx(r2_score(Y_TEST.numpy(), expected))
    # The GP knows where the line misses the wave: the bands follow it, and cover.
    share = ((band[:, 0] <= Y_TEST.numpy()) & (Y_TEST.numpy() <= band[:, 1])).mean()
    assert share > 0.6


# ------------------------------------------------------------------ fit


def test_fit_repeats_and_changes_nothing(name, gp, calibrated):
    """Same seed, same answer; posterior, data and settings stay as they were."""
    theta = gp.theta_R.unsqueeze(0)
    X, y, ours = X_CAL.clone(), Y_CAL.clone(), method(name)

    def state():
        answers = gp.mean(X_TEST), gp.sigma(2 * theta, X_TEST), *gp.loo(theta)
        return [t.clone() for t in (*answers, gp.theta_R, gp.searched, X, y)]

    before, settings = state(), repr(ours)
    again = ours.fit(gp, X, y)
    assert isinstance(again, Calibrated)
    assert repr(ours) == settings
    for was, now in zip(before, state(), strict=True):
        torch.testing.assert_close(now, was, rtol=1e-12, atol=1e-12)
    assert torch.equal(
        again.predict_quantiles(X_TEST, LEVELS), calibrated.predict_quantiles(X_TEST, LEVELS)
    )


@pytest.mark.parametrize("name", IGNORE_CALIBRATION, indirect=True)
def test_calibration_data_are_ignored_where_that_is_said(name, gp, calibrated):
    assert not method(name).needs_calibration
    without = fit(name, gp, None, None)
    assert torch.equal(
        without.predict_quantiles(X_TEST, LEVELS), calibrated.predict_quantiles(X_TEST, LEVELS)
    )


@pytest.mark.parametrize("name", ALL_CALIBRATED, indirect=True)
def test_calibration_data_are_used_and_may_be_lists(name, gp, calibrated):
    expected = calibrated.predict_quantiles(X_TEST, LEVELS)
    lists = fit(name, gp, X_CAL.tolist(), Y_CAL[:, None].numpy())
    assert torch.equal(lists.predict_quantiles(X_TEST, LEVELS), expected)
    moved = fit(name, gp, X_CAL, Y_CAL + 1.0)
    assert (moved.predict_quantiles(X_TEST, 0.8) > expected[:, -2]).any()


def test_pickle(calibrated):
    again = pickle.loads(pickle.dumps(calibrated))
    assert torch.equal(
        again.predict_quantiles(X_TEST, LEVELS), calibrated.predict_quantiles(X_TEST, LEVELS)
    )


def test_saving(calibrated, tmp_path):
    """Saved and loaded, the same to the last bit; fails for a class that lacks ``@stored``."""
    save(calibrated, tmp_path / "a.sgp")
    again = load(tmp_path / "a.sgp")
    assert type(again) is type(calibrated)
    # An attribute that is None is not written; the class says that it is.
    ours, theirs = (
        {name for name, value in vars(one).items() if value is not None}
        for one in (again, calibrated)
    )
    assert ours == theirs
    for ask in (
        lambda c: c.predict_mean(X_TEST),
        lambda c: c.predict_quantiles(X_TEST, LEVELS),
        lambda c: c.predict_interval(X_TEST, [0.5, 0.9], symmetric=True),
        lambda c: c.predict_dist(X_TEST).std,
    ):
        assert torch.equal(ask(again), ask(calibrated))


def test_update(name, calibrated):
    """A new predictor; the old one stays; several updates are one, to what cv may know by then."""
    before = calibrated.predict_quantiles(X_TEST, LEVELS)
    X, y = map(torch.from_numpy, wavy(30, seed=4))
    if name in OF_PARTS:
        with pytest.raises(
            SharpGPError, match="expected a predictor that can take new calibration points"
        ):
            calibrated.updated(X, y)
        return
    whole = calibrated.updated(X, y)
    assert isinstance(whole, Calibrated)
    assert torch.equal(calibrated.predict_quantiles(X_TEST, LEVELS), before)
    quantiles = whole.predict_quantiles(X_TEST, LEVELS)
    assert (quantiles != before).any()
    assert (quantiles.diff(dim=1) >= 0).all()
    n = [len(predictor.labelled_data()[1]) for predictor in (calibrated, whole)]
    assert n == [60 + (C if name in USE_CALIBRATION else 0), n[0] + 30]
    pieces = calibrated.updated(X[:10], y[:10]).updated(X[10:], y[10:])
    assert_same(
        pieces.predict_quantiles(X_TEST, LEVELS),
        quantiles,
        whole.predict_dist(X_TEST).std,
        0.1 if name in DRAW_BY_ROW else 1e-8,
    )
    with pytest.raises(SharpGPError, match="y: expected 30 values"):
        calibrated.updated(X, y[:3])


def test_conditioning_on_more_points(name, calibrated, tmp_path):
    """The GP learns from them, the calibration stays, and the result can be saved, too."""
    X, y = X_TEST[:6], Y_TEST[:6]
    before = calibrated.predict_quantiles(X, LEVELS), calibrated.posterior.n_train
    later = calibrated.condition_on_observations(X, y)
    assert type(later) is type(calibrated)
    assert later.n_cal == calibrated.n_cal
    assert later.posterior.n_train == before[1] + 6
    assert torch.equal(calibrated.predict_quantiles(X, LEVELS), before[0])
    assert calibrated.posterior.n_train == before[1]
    width = later.predict_quantiles(X, LEVELS)[:, -1] - later.predict_quantiles(X, LEVELS)[:, 0]
    at_first = before[0][:, -1] - before[0][:, 0]
    if name in OF_PARTS:  # how far its fits are apart is in the width, too
        assert width.mean() < at_first.mean()
    else:
        assert (width <= at_first * (1 + 1e-9)).all()
    assert_sound(later, X_TEST)
    sharpgp.persistence.save(later, tmp_path / "later.sgp")
    again = sharpgp.persistence.load(tmp_path / "later.sgp")
    for ask in (
        lambda c: c.predict_quantiles(X, LEVELS),
        lambda c: c.predict_interval(X, 0.8, symmetric=True),
    ):
        assert torch.equal(ask(again), ask(later))


# ------------------------------------------------------------------ answers


def test_shapes(calibrated):
    n, k = len(X_TEST), len(LEVELS)
    assert calibrated.predict_mean(X_TEST).shape == (n,)
    quantiles = calibrated.predict_quantiles(X_TEST, LEVELS)
    assert quantiles.shape == (n, k)
    assert quantiles.dtype == torch.float64
    assert calibrated.predict_quantiles(X_TEST, 0.3).shape == (n,)
    assert calibrated.predict_quantiles(X_TEST, [0.3]).shape == (n, 1)
    assert calibrated.predict_quantiles(X_TEST[:1], LEVELS).shape == (1, k)
    for symmetric in (None, True, False):
        one = calibrated.predict_interval(X_TEST, 0.9, symmetric=symmetric)
        assert one.shape == (n, 2)
        several = calibrated.predict_interval(X_TEST, [0.9, 0.5, 0.8], symmetric=symmetric)
        assert several.shape == (n, 2, 3)
    dist = calibrated.predict_dist(X_TEST)
    assert isinstance(dist, PredictiveDistribution)
    assert len(dist) == n
    assert dist.mean.shape == dist.std.shape == dist.quantile(0.5).shape == (n,)
    assert dist.quantile(LEVELS).shape == (n, k)
    assert dist.interval([0.5, 0.9]).shape == (n, 2, 2)


def test_order_of_levels_and_points_is_kept(calibrated):
    expected = calibrated.predict_quantiles(X_TEST, LEVELS)
    alone = torch.cat([calibrated.predict_quantiles(x[None], LEVELS) for x in X_TEST[:5]])
    torch.testing.assert_close(alone, expected[:5], rtol=1e-9, atol=1e-9)
    mixed = calibrated.predict_quantiles(X_TEST.flip(0), [*LEVELS[::-1], LEVELS[2]])
    torch.testing.assert_close(mixed.flip(0)[:, :-1].flip(1), expected, rtol=1e-9, atol=1e-9)
    torch.testing.assert_close(mixed.flip(0)[:, -1], expected[:, 2], rtol=1e-9, atol=1e-9)


def test_never_crossing(calibrated, rng):
    X = torch.from_numpy(np.vstack([rng.uniform(-2, 2, (200, 2)), rng.normal(0, 50, (100, 2))]))
    tails = [1e-9, 1e-4, 1 - 1e-4, 1 - 1e-9]
    close = 0.5 + np.array([-1e-12, 0, 1e-12])
    levels = np.sort(np.concatenate([rng.uniform(0, 1, 150), tails, close, [0.025, 0.975]]))
    quantiles = calibrated.predict_quantiles(X, levels)
    assert torch.isfinite(quantiles).all()
    assert (quantiles.diff(dim=1) >= 0).all()


@pytest.mark.parametrize("symmetric", [None, True, False])
def test_intervals_are_nested_and_surround_what_they_should(name, calibrated, symmetric):
    coverages = [0.02, 0.2, 0.5, 0.9, 0.95, 0.99]
    ends = calibrated.predict_interval(X_TEST, coverages, symmetric=symmetric)
    assert (ends[:, 1] >= ends[:, 0]).all()
    assert (ends[:, 0].diff(dim=-1) <= 0).all()
    assert (ends[:, 1].diff(dim=-1) >= 0).all()
    if symmetric and name not in OF_PARTS:
        middle = ends.mean(1)
        mean = calibrated.predict_mean(X_TEST).unsqueeze(-1).expand_as(middle)
        torch.testing.assert_close(middle, mean, rtol=1e-9, atol=1e-9)
    elif symmetric is False:
        levels = [(1 - 0.9) / 2, (1 + 0.9) / 2]  # at whole ranks, as 0.05 * 40 = 2
        inner = calibrated.predict_quantiles(X_TEST, levels)
        torch.testing.assert_close(ends[..., 3], inner, rtol=1e-9, atol=1e-9)


def test_distribution_agrees_with_the_quantiles(calibrated):
    dist = calibrated.predict_dist(X_TEST)
    torch.testing.assert_close(
        dist.quantiles, calibrated.predict_quantiles(X_TEST, dist.levels), rtol=1e-5, atol=1e-6
    )


def test_cdf_inverts_the_quantile_function(calibrated, rng):
    dist = calibrated.predict_dist(X_TEST)
    for p in [1e-9, 1e-4, 0.025, 0.5, 0.975, 1 - 1e-6, *rng.uniform(0, 1, 40)]:
        expected = torch.full_like(dist.mean, p)
        torch.testing.assert_close(dist.cdf(dist.quantile(p)), expected, rtol=0, atol=1e-8)


def test_density_integrates_to_one(calibrated):
    dist = calibrated.predict_dist(X_TEST)
    tail = torch.logspace(-7, -1, 150, dtype=torch.float64)
    middle = torch.linspace(0.1, 0.9, 100, dtype=torch.float64)
    # Between levels of the table the density is constant, and the midpoint rule exact.
    levels = torch.cat([tail, middle, 1 - tail, dist.levels]).unique()
    edges = dist.quantile(levels).T  # [k, n]
    density = torch.stack([dist.log_prob(y).exp() for y in edges[:-1].lerp(edges[1:], 0.5)])
    mass = (density * edges.diff(dim=0)).sum(0)
    torch.testing.assert_close(mass, torch.ones_like(mass), rtol=0, atol=1e-4)


# ------------------------------------------------------------------ invariance


@pytest.mark.parametrize("name", marked(USE_CALIBRATION, slow={*SLOW, "cv"}), indirect=True)
def test_order_of_calibration_points(name, gp, calibrated):
    order = torch.randperm(C, generator=torch.Generator().manual_seed(0))
    permuted = fit(name, gp, X_CAL[order], Y_CAL[order])
    assert_same(
        permuted.predict_quantiles(X_TEST, LEVELS),
        calibrated.predict_quantiles(X_TEST, LEVELS),
        calibrated.predict_dist(X_TEST).std,
        1.0 if name in OF_PARTS else 0.5 if name in DRAW_BY_ROW else MOVES.get(name, 1e-6),
    )


def at_theta_of(gp, X, y):
    """The same kind of GP on other data; hyperparameters are those of standardised ones."""
    units = {"x_units": Affine.standardising(X), "y_units": Affine.standardising(y)}
    return ExactPosterior(X, y, gp.covariance, gp.theta_R, **units, training=gp.training)


def test_units_of_the_target(name, gp, calibrated):
    """The GP in other units gives the same answers in those units."""
    a, b = 0.037, -250.0
    X, y = map(torch.from_numpy, wavy(60))
    other = fit(name, at_theta_of(gp, X, a * y + b), X_CAL, a * Y_CAL + b)
    spread = calibrated.predict_dist(X_TEST).std
    for ask in (
        lambda c: c.predict_quantiles(X_TEST, LEVELS),
        lambda c: c.predict_interval(X_TEST, [0.5, 0.9], symmetric=True)[:, 1],
        lambda c: c.predict_mean(X_TEST).unsqueeze(-1),
        lambda c: c.predict_dist(X_TEST).quantile([0.001, 0.999]),
    ):
        assert_same((ask(other) - b) / a, ask(calibrated), spread, MOVES.get(name, 1e-6))
    ratio = other.predict_dist(X_TEST).std / a / spread
    assert (ratio - 1).abs().max() < MOVES.get(name, 1e-6)


@pytest.mark.parametrize(
    "name", marked(known_methods(), slow={*SLOW, "cv", "paper"}), indirect=True
)
def test_units_of_the_features(name, gp, calibrated):
    X, y = map(torch.from_numpy, wavy(60))
    a, b = torch.tensor([[64.0, 1 / 512]], dtype=torch.float64), torch.tensor([[0.0, 3.0]])

    def moved(X):
        return a * X + b

    other = fit(name, at_theta_of(gp, moved(X), y), moved(X_CAL), Y_CAL)
    assert_same(
        other.predict_quantiles(moved(X_TEST), LEVELS),
        calibrated.predict_quantiles(X_TEST, LEVELS),
        calibrated.predict_dist(X_TEST).std,
        MOVES.get(name, 1e-6),
    )


# ------------------------------------------------------------------ few points, ties


@pytest.mark.parametrize("name", SOME_CALIBRATED, indirect=True)
@pytest.mark.parametrize("few", marked([2, 3, 5, 19], slow={3, 19}))
def test_few_calibration_points(name, gp, few):
    settings = {"levels": None} if name == "paper" else {}
    try:
        predictor = fit(name, gp, X_CAL[:few], Y_CAL[:few], **settings)
    except SharpGPError as error:
        assert "\n" not in str(error)  # noqa: PT017
        assert few < 5
    else:
        assert_sound(predictor, X_TEST)


TIES = {
    "few values": (X_CAL, Y_CAL.round()),
    "same points": (X_CAL[:13].repeat(3, 1), Y_CAL[:13].repeat(3)),
    "one value": (X_CAL, torch.full_like(Y_CAL, 0.3)),
    "one point": (X_CAL[:1].repeat(C, 1), Y_CAL[:1].repeat(C)),
}


@pytest.mark.parametrize("name", SOME_CALIBRATED, indirect=True)
@pytest.mark.parametrize("kind", marked(TIES, slow={"few values", "one value"}))
def test_ties(name, gp, kind):
    X, y = TIES[kind]
    predictor = fit(name, gp, X, y)
    assert_sound(predictor, X_TEST)
    if name in RANKED and name != "vovk20":  # vovk20 puts no margin for rounding on its scores
        levels = torch.arange(1, C + 1, dtype=torch.float64) / (C + 1)
        below = (y[:, None] <= predictor.predict_quantiles(X, levels)).sum(0)
        assert (below >= torch.arange(1, C + 1)).all()


# ------------------------------------------------------------------ coverage


# All at 80 %, with C = 39: bands and centred intervals then end at whole ranks, 32 and 4 to 36.


def share_inside(predictor, X, y, *, symmetric=True):
    lower, upper = predictor.predict_interval(X, 0.8, symmetric=symmetric).T
    return float(((lower <= y) & (y <= upper)).double().mean())


def coverage_and_error(name, posterior, draw, sets, **how):
    """Mean share over calibration sets drawn anew, and its standard error if ranks are exact."""
    points, shares = 300, []
    for seed in range(sets):
        X, y = map(torch.as_tensor, draw(C + points, seed=11 + seed))
        shares.append(share_inside(fit(name, posterior, X[:C], y[:C]), X[C:], y[C:], **how))
    # Given a calibration set, coverage is Beta-distributed with variance p (1 - p) / (C + 2).
    return np.mean(shares), math.sqrt(0.16 / (sets * points) * (1 + (points - 1) / (C + 2)))


@pytest.mark.slow
@pytest.mark.parametrize("symmetric", [True, False])
@pytest.mark.parametrize("name", RANKED)
def test_ranks_cover_exactly_whatever_the_gp(name, gp, symmetric):
    sets = 8 if name == "exact" else 40
    share, error = coverage_and_error(name, gp, wavy, sets, symmetric=symmetric)
    assert abs(share - 0.8) < 3 * error


@pytest.mark.slow
@pytest.mark.parametrize("name", UNDER_COVERING)
def test_known_shortfall(name):
    share, error = coverage_and_error(name, FakePosterior(), fake_data, 20, symmetric=False)
    assert 0.8 - UNDER_COVERING[name] - 3 * error < share < 0.8 + 3 * error


def test_vanilla_covers_where_the_gp_is_right():
    X, y = fake_data(20_000)
    share = share_inside(fit("vanilla", FakePosterior(), None, None), X, y)
    assert abs(share - 0.8) < 3 * math.sqrt(0.16 / 20_000)


REST = sorted(set(known_methods()) - {*RANKED, *UNDER_COVERING})


@pytest.mark.slow
@pytest.mark.parametrize("name", REST, indirect=True)
def test_coverage_of_a_trained_gp(name, gp, calibrated):
    """Smooth function, Gaussian noise: a GP is nearly right.

    Its noise is known to a factor ``1 +- 1/sqrt(2 * 60)`` after 60 points, and the slope of
    coverage in that factor is 0.45 at 80 %: a standard error of 4 points.
    """
    if name in IGNORE_CALIBRATION:
        X, y = map(torch.from_numpy, wavy(2000, seed=3))
        share, error = share_inside(calibrated, X, y), 0.04
    else:
        share, error = coverage_and_error(name, gp, wavy, 5)
    assert share - 0.8 > -3 * error
    assert name in OVER_COVERING or share - 0.8 < 3 * error


# ------------------------------------------------------------------ sparse GPs


@pytest.fixture(scope="module")
def few_inducing():
    """A sparse GP trained on the same data as ``gp``."""
    return train_sparse(*map(torch.from_numpy, wavy(60)), n_inducing=25)[0]


def test_every_method_works_on_a_sparse_gp(name, few_inducing, tmp_path):
    predictor = fit(name, few_inducing)
    assert_sound(predictor, X_TEST)
    save(predictor, tmp_path / "sparse.sgp")
    for again in (pickle.loads(pickle.dumps(predictor)), load(tmp_path / "sparse.sgp")):
        assert torch.equal(
            again.predict_quantiles(X_TEST, LEVELS), predictor.predict_quantiles(X_TEST, LEVELS)
        )
    if name in RETRAINING:  # these points train, too, and so are covered more often
        assert share_inside(predictor, X_CAL, Y_CAL) > 0.7
    elif name not in IGNORE_CALIBRATION:
        assert abs(share_inside(predictor, X_CAL, Y_CAL) - 0.8) < 0.1


@pytest.mark.parametrize("name", marked(known_methods(), slow={*SLOW, "paper"}), indirect=True)
def test_inducing_every_point_changes_nothing(name, gp, calibrated):
    if name in RETRAINING:
        pytest.skip("chooses inducing inputs of its own")
    if name == "fully_bayesian":
        pytest.skip("too slow for what is tested on the posterior already")
    data = gp.X_train, gp.y_train, gp.covariance, gp.theta_R, gp.X_train
    sparse = SparsePosterior(*data, x_units=gp.x_units, y_units=gp.y_units)
    assert_same(
        fit(name, sparse).predict_quantiles(X_TEST, LEVELS),
        calibrated.predict_quantiles(X_TEST, LEVELS),
        calibrated.predict_dist(X_TEST).std,
        MOVES.get(name, 1e-4),
    )


def test_a_gp_that_cannot_be_retrained_is_refused_by_name():
    with pytest.raises(SharpGPError, match="retrained on other data, found FakePosterior"):
        fit("cv", FakePosterior(), None, None)


def test_lists_name_methods_that_exist():
    listed = {
        *IGNORE_CALIBRATION,
        *DRAW_BY_ROW,
        *RETRAINING,
        *MOVES,
        *RANKED,
        *UNDER_COVERING,
        *OVER_COVERING,
        *OF_PARTS,
    }
    assert listed <= {*known_methods(), *LABORATORY_METHODS.values()}
