"""Ranks: finite-sample coverage is what counting says, on simulated exchangeable data.

A calibration set is drawn, a method fitted, and many test points are judged by it.  Coverage given
the set is Beta(j, C+1-j) where the theory says rank ``j``, so that the standard error of the mean
over ``sets * POINTS`` such draws is known exactly, correlation within a set included.  Every
slow simulation here is worth at least 20,000 independent draws; the quick ones see a rank that is
off by one, as the tests of their power show.

The oracle for ranks is crepes.  MAPIE 1.6 is none: its split ``StdConformityScore`` takes the
lower rank one too low.
"""

import math

import numpy as np
import pytest
import torch
from crepes import ConformalPredictiveSystem, ConformalRegressor

from helpers import CONFORMAL, FakePosterior, fake_data, marked, method
from sharpgp.calibration.ranks import Ranks

LEVELS = (0.05, 0.5, 0.9, 0.95)
#: Calibration sets per number of calibration points; the smaller a set, the more of them.
SETS = {19: 1010, 20: 960, 39: 550, 99: 330, 100: 330}
#: What quick simulations have: levels that are whole ranks and others that are not, and as many
#: calibration sets as it takes to see a rank that is off by one.
QUICK_C, QUICK_SETS = 39, 200
SIMULATED = [
    (QUICK_C, QUICK_SETS),
    *(pytest.param(C, sets, marks=pytest.mark.slow) for C, sets in SETS.items()),
]
POINTS = 400


def standard_error(p: float, C: int, sets: int) -> float:
    """Of coverage ``p``, with Beta-distributed coverage given the calibration set."""
    return math.sqrt(p * (1 - p) / (sets * POINTS) * (1 + (POINTS - 1) / (C + 2)))


@pytest.mark.parametrize("C", SETS)
def test_simulations_are_worth_twenty_thousand_draws(C):
    assert standard_error(0.5, C, SETS[C]) <= math.sqrt(0.25 / 20_000)


def exactly(level: float, C: int) -> tuple[int, int]:
    """``floor`` and ``ceil`` of ``level (C+1)``, in whole numbers: levels are given in 1/10^6."""
    h = round(level * 1e6) * (C + 1)
    return h // 10**6, -(-h // 10**6)


@torch.inference_mode()
def simulate(name, C, sets, *asks, seeded=False):
    """Shares of test points in ``[lower, upper]``, for the pairs that each of ``asks`` returns."""
    shares = []
    for seed in range(sets):
        X, y = fake_data(C + POINTS, seed=[C, seed])
        fitted = method(name, random_state=seed if seeded else 0).fit(FakePosterior(), X[:C], y[:C])
        y_test = y[C:, None]
        found = []
        for ask in asks:
            lower, upper = ask(fitted, X[C:])
            found.append(((lower <= y_test) & (y_test <= upper)).double().mean(0).numpy())
        shares.append(found)
    means = [np.mean(part, axis=0) for part in zip(*shares, strict=True)]
    return means if len(asks) > 1 else means[0]


def quantiles_at(levels):
    def ask(fitted, X):
        return torch.tensor(-torch.inf), fitted.predict_quantiles(X, levels)

    return ask


def intervals_at(coverages, *, symmetric):
    def ask(fitted, X):
        ends = fitted.predict_interval(X, coverages, symmetric=symmetric)
        return ends[:, 0], ends[:, 1]

    return ask


def band_rank(coverage: float, C: int) -> int:
    return exactly(coverage, C)[1]


def centred_ranks(coverage: float, C: int) -> tuple[int, int]:
    return exactly((1 - coverage) / 2, C)[0], exactly((1 + coverage) / 2, C)[1]


def deviations(shares, ranks, C, sets):
    """Distance of shares from ``rank/(C+1)``, in standard errors."""
    expected = [j / (C + 1) for j in ranks]
    errors = [standard_error(p, C, sets) for p in expected]
    return np.abs(np.subtract(shares, expected)) / errors


# ------------------------------------------------------------------ coverage


def whole_ranks(C: int) -> list[int]:
    return sorted({j for level in LEVELS for j in exactly(level, C)})


def backed(C: int) -> list[float]:
    """Coverages whose centred interval ends at two scores."""
    ends = {c: centred_ranks(c, C) for c in LEVELS}
    return [c for c, (low, high) in ends.items() if low >= 1 and high <= C]


@pytest.fixture(
    scope="module",
    params=[
        (CONFORMAL[0], QUICK_C, QUICK_SETS),
        *(
            pytest.param((name, C, sets), marks=pytest.mark.slow)
            for C, sets in SETS.items()
            for name in CONFORMAL
        ),
    ],
    ids=lambda given: "-".join(map(str, given)),
)
def simulated(request):
    """``(C, sets)``, and shares of test points below quantiles, in bands, in centred intervals."""
    name, C, sets = request.param
    levels = [j / (C + 1) for j in whole_ranks(C)] + list(LEVELS)
    shares = simulate(
        name,
        C,
        sets,
        quantiles_at(levels),
        intervals_at(LEVELS, symmetric=True),
        intervals_at(backed(C), symmetric=False),
    )
    return (C, sets), *shares


def test_quantiles(simulated):
    """Exactly ``j/(C+1)`` at a whole rank; between the neighbouring ranks elsewhere."""
    (C, sets), shares, _, _ = simulated
    whole = whole_ranks(C)
    assert (deviations(shares[: len(whole)], whole, C, sets) < 3).all()
    for level, share in zip(LEVELS, shares[len(whole) :], strict=True):
        floor, ceil = (j / (C + 1) for j in exactly(level, C))
        assert share > floor - 3 * standard_error(floor, C, sets)
        assert share < ceil + 3 * standard_error(ceil, C, sets)


def test_symmetric_bands(simulated):
    """``ceil(c (C+1)) / (C+1)``: never below the coverage asked for, at most 1/(C+1) above."""
    (C, sets), _, shares, _ = simulated
    ranks = [band_rank(c, C) for c in LEVELS]
    assert (deviations(shares, ranks, C, sets) < 3).all()
    for c, j in zip(LEVELS, ranks, strict=True):
        assert c <= j / (C + 1) + 1e-12 < c + 1 / (C + 1)


def test_centred_intervals(simulated):
    """``(ceil(h_hi) - floor(h_lo)) / (C+1)`` where both ends are scores."""
    (C, sets), _, _, shares = simulated
    assert len(backed(C)) >= 3
    ranks = [high - low for low, high in (centred_ranks(c, C) for c in backed(C))]
    assert (deviations(shares, ranks, C, sets) < 3).all()
    for c, j in zip(backed(C), ranks, strict=True):
        assert c <= j / (C + 1) + 1e-12 < c + 2 / (C + 1)


@pytest.mark.parametrize(("C", "sets"), SIMULATED)
def test_vovk20_meets_every_level_on_average_over_its_draw(C, sets):
    levels = [*LEVELS, 0.0537, 0.123, 0.3333, 0.71, 0.9321]
    shares = simulate("vovk20", C, sets, quantiles_at(levels), seeded=True)
    for level, share in zip(levels, shares, strict=True):
        # The draw adds at most the variance of a coin between two neighbouring ranks.
        drawn = 0.25 / (C + 1) ** 2 / sets
        error = math.sqrt(standard_error(level, C, sets) ** 2 + drawn)
        assert abs(share - level) < 3 * error


# ------------------------------------------------------------------ the tests have power


@pytest.mark.parametrize("C", [QUICK_C, pytest.param(100, marks=pytest.mark.slow)])
@pytest.mark.parametrize("name", marked(CONFORMAL, slow={"kuleshov18"}))
def test_a_band_one_rank_too_wide_would_be_seen(monkeypatch, name, C):
    step = Ranks._step

    def too_high(self, z, weights, level, weight):
        return step(self, z, weights, level + 1 / (len(z) + 1), weight)

    monkeypatch.setattr(Ranks, "_step", too_high)
    coverages, sets = (0.5, 0.9, 0.95), QUICK_SETS
    assert all(band_rank(c, C) < C for c in coverages)
    shares = simulate(name, C, sets, intervals_at(coverages, symmetric=True))
    assert deviations(shares, [band_rank(c, C) for c in coverages], C, sets).max() > 3


@pytest.mark.parametrize("C", [QUICK_C, pytest.param(100, marks=pytest.mark.slow)])
@pytest.mark.parametrize("name", marked(CONFORMAL, slow={"kuleshov18"}))
def test_an_end_one_rank_off_would_be_seen(monkeypatch, name, C):
    ends = Ranks.interval_ends

    def too_far_in(self, coverage, weight):
        lower, upper, backed = ends(self, coverage, weight)
        return self.z[self.z > lower + 1e-9][1].expand_as(lower), upper, backed

    monkeypatch.setattr(Ranks, "interval_ends", too_far_in)
    sets = QUICK_SETS
    shares = simulate(name, C, sets, intervals_at([0.9], symmetric=False))
    low, high = centred_ranks(0.9, C)
    assert deviations(shares, [high - low], C, sets).max() > 3


@pytest.mark.parametrize("C", [QUICK_C, pytest.param(100, marks=pytest.mark.slow)])
@pytest.mark.parametrize("name", marked(CONFORMAL, slow={"kuleshov18"}))
def test_levels_that_forget_the_plus_one_would_be_seen(monkeypatch, name, C):
    """Scores at ``j/C`` instead of ``j/(C+1)``, as an empirical quantile has them."""

    init = Ranks.__init__

    def forgetful(self, *args, **settings):
        init(self, *args, **settings)
        self.level = torch.arange(1, len(self.z) + 1, dtype=torch.float64) / len(self.z)

    monkeypatch.setattr(Ranks, "__init__", forgetful)
    whole, sets = whole_ranks(C), QUICK_SETS
    shares = simulate(name, C, sets, quantiles_at([j / (C + 1) for j in whole]))
    assert deviations(shares, whole, C, sets).max() > 3


# ------------------------------------------------------------------ oracle


def difficulty(posterior, X):
    return posterior.sigma(posterior.theta_R[None], X)[0].numpy()


def from_crepes(kind, name, C, X_test):
    """Our predictor, and crepes' intervals at a coverage from the same residuals."""
    X, y = fake_data(C, seed=C)
    posterior = FakePosterior()
    normalised = name == "kuleshov18"
    oracle = kind()
    residuals = (y - posterior.mean(X)).numpy()
    oracle.fit(residuals, sigmas=difficulty(posterior, X) if normalised else None)
    mean = posterior.mean(X_test).numpy()
    sigmas = difficulty(posterior, X_test) if normalised else None
    return method(name).fit(posterior, X, y), lambda coverage: oracle.predict_int(
        mean, sigmas=sigmas, confidence=coverage
    )


@pytest.mark.parametrize("C", marked([*SETS, 57], slow={99, 100}))
@pytest.mark.parametrize("name", CONFORMAL)
def test_bands_are_those_of_crepes(name, C):
    """Plain residuals are ``marx22``, normalised ones ``kuleshov18``."""
    X_test, _ = fake_data(9, seed=1)
    fitted, oracle = from_crepes(ConformalRegressor, name, C, X_test)
    ranks = np.arange(1, C + 1)
    # A little inside the step: on it, crepes itself is at the mercy of rounding.
    inside = (ranks - 0.3) / (C + 1)
    ends = fitted.predict_interval(X_test, inside, symmetric=True)
    expected = np.stack([oracle(coverage) for coverage in inside], axis=-1)
    np.testing.assert_allclose(ends, expected, rtol=1e-9)
    # At the end of the step the rank is still the same.
    step = fitted.predict_interval(X_test, ranks / (C + 1), symmetric=True)
    np.testing.assert_allclose(step, ends, rtol=0)


@pytest.mark.parametrize("C", [*SETS, 57])
@pytest.mark.parametrize("name", CONFORMAL)
def test_centred_intervals_are_those_of_crepes(name, C):
    X_test, _ = fake_data(9, seed=1)
    fitted, oracle = from_crepes(ConformalPredictiveSystem, name, C, X_test)
    for k in range(1, (C + 1) // 2):
        coverage = 1 - 2 * (k + 0.3) / (C + 1)
        ends = fitted.predict_interval(X_test, coverage, symmetric=False)
        np.testing.assert_allclose(ends, oracle(coverage), rtol=1e-8, atol=1e-8)
