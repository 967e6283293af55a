"""One rule at and beyond the last ranks, however it is asked; ties; one interval, one answer."""

import math
import warnings

import numpy as np
import pytest
import torch
from scipy import stats
from scipy.integrate import quad

from helpers import FakePosterior, fake_data, integrate, marked, method, wavy
from sharpgp import CalibrationWarning
from sharpgp._tail import Tail
from sharpgp.calibration.ranks import Ranks, table_levels
from sharpgp.calibration.tails import pooled_tail
from sharpgp.distribution import PredictiveDistribution

LAWS = {"normal": stats.norm, "t3": stats.t(3)}
#: Least coverage at 99 and 99.9 % that the modelled tails may have.
LEAST = {"normal": (0.99, 0.999), "t3": (0.98, 0.996)}


def tensor(values):
    return torch.as_tensor(values, dtype=torch.float64)


# ------------------------------------------------------------------ the law of a tail


@pytest.mark.parametrize("degrees", [3.0, 4.0, 18.0, 400.0, math.inf])
def test_closed_forms_of_a_tail(degrees):
    tau, e = 1.7, np.array([0.0, 0.3, 2.0, 25.0])
    ours = Tail(tensor(tau), degrees)
    law = stats.genpareto(1 / degrees, scale=tau)
    np.testing.assert_allclose(ours.log_share(tensor(e)), law.logsf(e), rtol=1e-9)
    np.testing.assert_allclose(ours.log_density(tensor(e)), law.logpdf(e), rtol=1e-9)
    np.testing.assert_allclose(ours.excess(tensor([1.0, 0.5, 1e-9])), law.isf([1, 0.5, 1e-9]))
    np.testing.assert_allclose(ours.mean, law.mean(), rtol=1e-9)
    np.testing.assert_allclose(ours.variance, law.var(), rtol=1e-9)
    mass = 0.04
    for at in e:
        inside = quad(lambda x: (1 - mass * law.sf(x)) ** 2, 0, at)[0]
        beyond = quad(lambda x: (mass * law.sf(x)) ** 2, at, np.inf)[0]
        assert float(ours.area_before(tensor(at), tensor(mass))) == pytest.approx(inside, rel=1e-7)
        assert float(ours.area_beyond(tensor(at), tensor(mass))) == pytest.approx(beyond, rel=1e-7)
        mean = quad(law.sf, 0, at)[0]
        assert float(ours.mean_up_to(tensor(at))) == pytest.approx(mean, rel=1e-7)
        square = quad(lambda x: 2 * x * law.sf(x), 0, at)[0]
        assert float(ours.square_up_to(tensor(at))) == pytest.approx(square, rel=1e-7)
    everything = tensor(math.inf)
    np.testing.assert_allclose(ours.mean_up_to(everything), law.mean(), rtol=1e-9)
    second = law.var() + law.mean() ** 2
    np.testing.assert_allclose(ours.square_up_to(everything), second, rtol=1e-9)


def test_a_distribution_with_given_tails():
    levels, q = [0.1, 0.4, 0.9], np.array([[-1.0], [0.5], [2.0]])

    def repeated(n):
        tail = Tail(torch.full((n,), 0.8, dtype=torch.float64), 6.0)
        return PredictiveDistribution(levels, q.repeat(n, 1), tail=tail, numpy=True)

    dist = repeated(1)
    for p in (1e-9, 0.01, 0.1, 0.3, 0.9, 0.97, 1 - 1e-9):
        np.testing.assert_allclose(dist.cdf(dist.quantile(p)), p, rtol=1e-9)
    law = stats.genpareto(1 / 6, scale=0.8)
    np.testing.assert_allclose(dist.quantile(0.02), -1.0 - law.isf(0.2))
    breaks = dist.quantile([1e-14, 1e-8, 1e-4, *levels, 1 - 1e-4, 1 - 1e-8, 1 - 1e-14])[0]

    def density(x):
        return np.exp(repeated(len(x)).log_prob(x))

    assert integrate(density, breaks) == pytest.approx(1, abs=1e-8)
    mean = integrate(lambda x: x * density(x), breaks)
    assert dist.mean[0] == pytest.approx(mean, abs=1e-7)
    variance = integrate(lambda x: (x - mean) ** 2 * density(x), breaks)
    assert dist.std[0] == pytest.approx(np.sqrt(variance), abs=1e-5)
    for y in (-6.0, 1.0, 9.0):
        exact = integrate(
            lambda x, y=y: (repeated(len(x)).cdf(x) - (y <= x)) ** 2, np.sort([*breaks, y])
        )
        assert dist.crps([y])[0] == pytest.approx(exact, rel=1e-5)


# ------------------------------------------------------------------ coverage


@pytest.mark.parametrize("C", [19, 39, 99])
@pytest.mark.parametrize("law", LAWS)
def test_coverage_at_and_beyond_the_last_ranks(law, C):
    """20,000 sets of scores; the coverage of each is known exactly."""
    F = LAWS[law].cdf
    z = np.sort(LAWS[law].rvs(size=(20_000, C), random_state=C), axis=1)
    tail = pooled_tail(tensor(z), C)
    for c, least in zip((0.9, 0.95, 0.99, 0.999), (0.9, 0.947, *LEAST[law]), strict=True):
        h = (1 - c) / 2 * (C + 1)
        j = max(1, math.floor(h + 1e-9))
        if h >= 1 - 1e-9:
            share = h - j
            low = (1 - share) * z[:, j - 1] + share * z[:, j]
            high = (1 - share) * z[:, C - j] + share * z[:, C - j - 1]
        else:
            excess = tail.excess(tensor(h)).numpy()
            low, high = z[:, 0] - excess, z[:, -1] + excess
        covered = F(high) - F(low)
        error = covered.std() / len(z) ** 0.5
        assert covered.mean() > least - 3 * error
        assert covered.mean() < c + 2 / (C + 1)


@pytest.mark.parametrize("C", [2, 3, 5, 9, 19, 40, 99])
def test_ranks_and_table_are_one_function(C):
    z = tensor(np.random.default_rng(C).standard_t(3, size=C))
    ranks = Ranks(z)
    levels = table_levels(C)
    spread = torch.ones(1, dtype=torch.float64)
    dist = PredictiveDistribution(
        levels, ranks.table(levels)[:, None], tail=ranks.tail.times(spread)
    )
    edge = tensor([1.0, 2.0, C - 1.0, C]) / (C + 1)
    asked = torch.cat([tensor([1e-6, 0.001, 0.3 / (C + 1)]), edge]).unique()
    asked = torch.cat([asked, 1 - asked.flip(0)]).unique()
    torch.testing.assert_close(dist.quantile(asked)[0], ranks.beta(asked), rtol=1e-5, atol=1e-5)
    assert math.isfinite(float(dist.std))
    assert math.isfinite(float(dist.log_prob(tensor([1e6]))))


@pytest.mark.filterwarnings("ignore::sharpgp.CalibrationWarning")
@pytest.mark.parametrize("name", ["kuleshov18", "marx22", "exact", "loo", "cv+", "paper"])
def test_the_same_question_in_two_ways(name, gp):
    X_cal, y_cal = map(torch.from_numpy, wavy(39, seed=1))
    X = torch.from_numpy(wavy(20, seed=2)[0])
    calibrated = method(name).fit(gp, X_cal, y_cal)
    dist = calibrated.predict_dist(X)
    levels = [1e-4, 0.005, 0.025, 0.05, 0.95, 0.975, 0.995, 0.9999]
    unit = {"rtol": 1e-5, "atol": 1e-5}
    torch.testing.assert_close(
        dist.quantile(levels), calibrated.predict_quantiles(X, levels), **unit
    )
    C = calibrated.n_cal
    for c in (1 - 4 / (C + 1), 1 - 2 / (C + 1), 0.99, 0.999):  # whole ranks, and beyond
        torch.testing.assert_close(
            dist.interval(c), calibrated.predict_interval(X, c, symmetric=False), **unit
        )


def test_a_distribution_warns_where_an_interval_does():
    X, y = fake_data(19)
    dist = method("kuleshov18").fit(FakePosterior(), X, y).predict_dist(X)
    for ask in (lambda: dist.interval([0.5, 0.95]), lambda: dist.quantile([0.01, 0.5, 0.999])):
        with pytest.warns(CalibrationWarning, match="needs at least .* found 19: .* tail") as found:
            ask()
        assert len(found) == 1
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        dist.interval([0.5, 0.9])
        dist.quantile([0.0, 0.05, 0.95, 1.0])
        for answer in (dist.log_prob(y), dist.crps(y), dist.cdf(y), dist.sample(3), dist.std):
            assert torch.isfinite(answer).all()


# ------------------------------------------------------------------ ties


def counts(n, rng):
    """Zeros in excess and small counts at one input: most scores are tied."""
    y = np.where(rng.random(n) < 0.35, 0, rng.poisson(2.0, n)).astype(float)
    return torch.zeros(n, 1, dtype=torch.float64), torch.from_numpy(y)


@pytest.mark.filterwarnings("ignore::sharpgp.CalibrationWarning")
@pytest.mark.parametrize("weights", marked([False, True], slow={True}))
@pytest.mark.parametrize(
    ("C", "sets"),
    [(19, 30), *(pytest.param(C, 100, marks=pytest.mark.slow) for C in (19, 39, 99))],
)
def test_ties_keep_the_coverage(C, sets, weights):
    """Intervals are closed: at least nominal where many points lie on an end."""
    rng = np.random.default_rng(C)
    posterior = FakePosterior(shift=1.3)
    covered = {}
    _, y_test = counts(4000, rng)
    for _ in range(sets):
        X, y = counts(C, rng)
        given = np.ones(C) if weights else None
        fitted = method("marx22").fit(posterior, X, y, sample_weight=given)
        dist, coverages = fitted.predict_dist(X[:1]), (0.5, 0.8, 0.9)
        ends = {
            symmetric: fitted.predict_interval(X[:1], coverages, symmetric=symmetric)[0].T
            for symmetric in (True, False, None)
        }
        ends["distribution"] = [dist.interval(c)[0] for c in coverages]
        for kind, found in ends.items():
            for c, (low, high) in zip(coverages, found, strict=True):
                inside = ((low <= y_test) & (y_test <= high)).double().mean()
                covered.setdefault((kind, c), []).append(float(inside))
        below = (y_test <= fitted.predict_quantiles(X[:1], 0.9)).double().mean()
        covered.setdefault(("quantile", 0.9), []).append(float(below))
    for (kind, c), shares in covered.items():
        error = np.std(shares) / len(shares) ** 0.5 + (c * (1 - c) / 4000) ** 0.5
        assert np.mean(shares) > c - 3 * error, (kind, c)


def test_an_interval_holds_all_points_tied_with_its_ends():
    X = torch.zeros(39, 1, dtype=torch.float64)
    y = torch.arange(39, dtype=torch.float64).div(4, rounding_mode="floor") / 3.0
    for how in ("marx22", "kuleshov18", "vovk20"):
        fitted = method(how).fit(FakePosterior(shift=0.7), X, y)
        for c in (0.3, 0.5, 0.8, 0.9):
            low, high = fitted.predict_interval(X[:1], c, symmetric=False)[0]
            first = math.floor((1 - c) / 2 * 40 + 1e-9)
            last = math.ceil((1 + c) / 2 * 40 - 1e-9)
            assert low < y[first - 1] < low + 1e-8
            assert high > y[last - 1] > high - 1e-8


# ------------------------------------------------------------------ one interval, one answer


@pytest.mark.filterwarnings("ignore::sharpgp.CalibrationWarning")
@pytest.mark.parametrize("name", marked(["exact", "cv", "loo", "kuleshov18"], slow={"loo"}))
def test_asked_alone_or_in_a_list(name):
    rng = np.random.default_rng(0)
    X = torch.from_numpy(rng.uniform(0, 3, (90, 1)))
    y = X[:, 0] + torch.from_numpy(rng.exponential(1.0, 90)) * (0.3 + X[:, 0])
    posterior = FakePosterior() if name == "kuleshov18" else None
    if posterior is None:
        from sharpgp.gp.training import train

        posterior, _ = train(X[:50], y[:50])
    fitted = method(name).fit(posterior, X[50:], y[50:])
    coverages = [0.1, 0.5, 0.6, 0.7, 0.8, 0.9, 0.95, 0.96, 0.98, 0.99, 0.999]
    for symmetric in (None, True, False):
        ends = fitted.predict_interval(X[:9], coverages, symmetric=symmetric)
        for k, c in enumerate(coverages):
            assert torch.equal(ends[..., k], fitted.predict_interval(X[:9], c, symmetric=symmetric))
        assert (ends[:, 0].diff(dim=-1) <= 0).all()
        assert (ends[:, 1].diff(dim=-1) >= 0).all()


def test_the_choice_does_not_see_the_scores_that_fix_beta(gp):
    X, y = map(torch.from_numpy, wavy(59, seed=1))
    one, other = (method("exact").fit(gp, X, z) for z in (y, y + (y - y.mean()).exp()))
    assert one.prefers_band == other.prefers_band
    window = one.rescored(X[:7], y[:7] + 3.0, keep=59)
    assert window.prefers_band == one.prefers_band
