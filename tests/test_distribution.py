"""PredictiveDistribution against closed forms, brute-force integration and its own invariants."""

import numpy as np
import pytest
import scoringrules
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp
from scipy import stats

from helpers import integrate
from sharpgp.distribution import PredictiveDistribution
from sharpgp.exceptions import InvalidInputError

LEVELS = np.linspace(0.05, 0.95, 19)
PROBES = np.array([1e-6, 0.01, 0.05, 0.0501, 0.3, 0.5, 0.77, 0.95, 0.951, 0.999])


def make(levels, quantiles):
    """Distribution from the public (n, k) layout."""
    return PredictiveDistribution(levels, np.asarray(quantiles, dtype=float).T, numpy=True)


def of(law, levels, n=1):
    return make(levels, np.tile(law.ppf(levels), (n, 1)))


def at(law, levels, y):
    """The table of one law, repeated for each of the observations ``y``."""
    return of(law, levels, len(y))


def as_often_as(table, x):
    """The distribution of one table, repeated for each of the points ``x``."""
    return make(table[0], np.tile(table[1], (len(x), 1)))


def breakpoints(dist, *extra):
    """Nodes, extra points, and the tails in pieces that a rule resolves, to a mass of 1e-16."""
    tails = dist.quantile([1e-16, 1e-9, 1e-5, 1 - 1e-5, 1 - 1e-9, 1 - 1e-15])[0]
    return np.unique(np.concatenate([tails, dist.quantiles[0], extra]))


UNEVEN = [0.02, 0.1, 0.45, 0.5, 0.93]
TABLES = {
    "two levels": ([0.3, 0.6], [-1.0, 2.0]),
    "uneven": (UNEVEN, [-3.0, -1.0, 0.2, 0.25, 6.0]),
    "inner tie": (UNEVEN, [-3.0, 1.0, 1.0, 1.0, 2.0]),
    "outer ties": (UNEVEN, [-1.0, -1.0, 0.5, 3.0, 3.0]),
}


# ------------------------------------------------------------------ closed forms


def test_uniform_interior_is_exact():
    dist = of(stats.uniform(2, 3), LEVELS)
    p = np.linspace(0.05, 0.95, 37)
    np.testing.assert_allclose(dist.quantile(p)[0], 2 + 3 * p, rtol=1e-12)
    y = 2 + 3 * p
    many = at(stats.uniform(2, 3), LEVELS, y)
    np.testing.assert_allclose(many.cdf(y), p, rtol=1e-12)
    np.testing.assert_allclose(many.log_prob(y), -np.log(3), rtol=1e-9)


def test_uniform_moments_and_crps_without_tails():
    # Tails that hold 1e-9 of the mass leave the closed forms of the uniform law to 1e-6.
    levels = np.array([1e-9, 0.5, 1 - 1e-9])
    dist = of(stats.uniform(), levels)
    np.testing.assert_allclose(dist.mean, 0.5, rtol=1e-9)
    np.testing.assert_allclose(dist.std, np.sqrt(1 / 12), rtol=1e-6)
    y = np.array([-0.5, 0.0, 0.2, 0.9, 1.0, 2.0])
    inside = y.clip(0, 1)
    exact = inside**3 / 3 + (1 - inside) ** 3 / 3 + np.abs(y - inside)
    np.testing.assert_allclose(at(stats.uniform(), levels, y).crps(y), exact, atol=1e-6)


def test_laplace_tails_are_exact_once_the_outer_cell_is_narrow():
    law = stats.laplace(1, 2)
    levels = np.array([0.1, 0.1 + 1e-7, 0.5, 0.9 - 1e-7, 0.9])
    dist = of(law, levels)
    p = np.array([1e-9, 1e-4, 0.05, 0.1, 0.9, 0.97, 1 - 1e-6])
    np.testing.assert_allclose(dist.quantile(p)[0], law.ppf(p), rtol=1e-6)
    y = np.array([-40.0, -5.0, 7.0, 40.0])
    many = at(law, levels, y)
    np.testing.assert_allclose(many.cdf(y), law.cdf(y), rtol=1e-5)
    np.testing.assert_allclose(many.log_prob(y), law.logpdf(y), atol=1e-5)


@pytest.mark.parametrize(
    ("law", "crps"),
    [
        pytest.param(stats.norm(1, 2), scoringrules.crps_normal, id="normal"),
        pytest.param(
            stats.laplace(1, 2), scoringrules.crps_laplace, id="laplace", marks=pytest.mark.slow
        ),
    ],
)
def test_converges_to_the_law_as_levels_are_added(law, crps):
    y = law.ppf(np.linspace(0.01, 0.99, 25))
    crps_exact = crps(y, 1.0, 2.0)
    errors = []
    for k in (21, 101, 501, 4001):
        dist = at(law, np.linspace(0, 1, k)[1:-1], y)
        pairs = [(dist.std, law.std()), (dist.crps(y), crps_exact), (dist.cdf(y), law.cdf(y))]
        errors.append([np.abs(ours - exact).max() for ours, exact in pairs])
    assert (np.diff(errors, axis=0) < 0).all()
    assert (np.array(errors[-1]) < [1e-2, 1e-4, 1e-6]).all()


def test_crps_agrees_with_scoringrules_for_a_normal_law():
    y = np.linspace(-4, 4, 21)
    levels = stats.norm.cdf(np.linspace(-6, 6, 4001))
    ours = at(stats.norm, levels, y).crps(y)
    np.testing.assert_allclose(ours, scoringrules.crps_normal(y, 0.0, 1.0), atol=1e-6)


# ------------------------------------------------------------------ brute force


@pytest.mark.parametrize("table", TABLES.values(), ids=TABLES)
def test_moments_and_density_by_integration(table):
    dist = make(table[0], [table[1]])
    breaks = breakpoints(dist)

    def density(x):
        return np.exp(as_often_as(table, x).log_prob(x))

    assert integrate(density, breaks) == pytest.approx(1, abs=1e-9)
    mean = integrate(lambda x: x * density(x), breaks)
    variance = integrate(lambda x: (x - mean) ** 2 * density(x), breaks)
    assert dist.mean[0] == pytest.approx(mean, abs=1e-8)
    assert dist.std[0] == pytest.approx(np.sqrt(variance), abs=1e-8)


@pytest.mark.parametrize("table", TABLES.values(), ids=TABLES)
def test_crps_by_integration(table):
    dist = make(table[0], [table[1]])
    for y in [*dist.quantile([0.001, 0.1, 0.47, 0.6, 0.999])[0], table[1][1]]:
        exact = integrate(
            lambda x, y=y: (as_often_as(table, x).cdf(x) - (y <= x)) ** 2, breakpoints(dist, y)
        )
        assert dist.crps([y])[0] == pytest.approx(exact, abs=1e-8)


@pytest.mark.parametrize("table", TABLES.values(), ids=TABLES)
def test_log_prob_is_the_slope_of_the_cdf(table):
    dist = make(table[0], [table[1]])
    p = np.array([0.004, 0.07, 0.3, 0.48, 0.7, 0.97])
    for y in dist.quantile(p)[0]:
        f = np.exp(dist.log_prob([y])[0])
        h = 1e-4 / f
        slope = (dist.cdf([y + h])[0] - dist.cdf([y - h])[0]) / (2 * h)
        assert slope == pytest.approx(f, rel=1e-3)


def test_density_is_continuous_at_the_outermost_levels():
    dist = make(UNEVEN, [TABLES["uneven"][1]])
    for node in (-3.0, 6.0):
        left, right = dist.log_prob([node - 1e-9]), dist.log_prob([node + 1e-9])
        np.testing.assert_allclose(left, right, atol=1e-6)


def test_tail_beside_a_tie_takes_the_first_cell_with_a_width():
    dist = make(UNEVEN, [TABLES["outer ties"][1]])
    density = (0.45 - 0.02) / (0.5 - -1.0)
    expected = -1.0 + 0.02 / density * np.log(0.001 / 0.02)
    np.testing.assert_allclose(dist.quantile(0.001), expected, atol=1e-5)


def test_sample_has_the_moments_of_the_distribution():
    dist = make(UNEVEN, [TABLES["uneven"][1]])
    draws = dist.sample(200_000, random_state=0)[0]
    assert draws.mean() == pytest.approx(dist.mean[0], abs=0.02)
    assert draws.std() == pytest.approx(dist.std[0], rel=0.02)
    shares = (draws[:, None] <= dist.quantiles[0]).mean(axis=0)
    np.testing.assert_allclose(shares, UNEVEN, atol=0.005)


# ------------------------------------------------------------------ properties

tables = hnp.arrays(
    float,
    st.tuples(st.integers(1, 4), st.just(len(LEVELS))),
    # Steps of 1/8 make ties frequent.
    elements=st.integers(-80, 80).map(lambda i: i / 8),
).map(lambda q: np.sort(q, axis=1))

quick = settings(max_examples=40, deadline=None)


@quick
@given(tables)
def test_cdf_inverts_the_quantile_function(q):
    dist = make(LEVELS, q)
    for p, y in zip(PROBES, dist.quantile(PROBES).T, strict=True):
        np.testing.assert_allclose(dist.cdf(y), p, atol=1e-9, rtol=0)


@quick
@given(tables, st.lists(st.floats(0, 1), min_size=2, max_size=20))
def test_quantiles_never_cross(q, p):
    quantiles = make(LEVELS, q).quantile(np.sort(p))
    assert (quantiles[:, 1:] >= quantiles[:, :-1]).all()


def test_quantiles_do_not_cross_by_rounding_at_the_nodes():
    rng = np.random.default_rng(0)
    levels = np.sort(rng.uniform(size=25))
    q = np.sort(rng.normal(size=(20_000, 25)) * 10.0 ** rng.integers(-3, 3, size=25), axis=1)
    just_below = [levels - i * 2.0**-e for i in range(4) for e in range(53, 57)]
    quantiles = make(levels, q).quantile(np.sort(np.concatenate(just_below)))
    assert (np.diff(quantiles, axis=1) >= 0).all()


@quick
@given(tables)
def test_table_moves_by_no_more_than_the_spread_of_ties(q):
    dist = make(LEVELS, q)
    scale = np.where(np.ptp(q, axis=1) > 0, np.ptp(q, axis=1), np.abs(q).max(axis=1))
    scale = np.where(scale > 0, scale, 1)[:, None]
    assert (np.abs(dist.quantiles - q) <= 1e-6 * scale).all()
    np.testing.assert_array_equal(dist.quantile(LEVELS), dist.quantiles)


@quick
@given(
    tables.filter(lambda q: (np.ptp(q, axis=1) > 0).all()),
    st.floats(-5, 5),
    st.sampled_from([1e-150, 1e-3, 7.0, 1e6, 1e150]),
    st.sampled_from([1, -1]),
)
def test_equivariant_to_shift_scale_and_reflection(q, shift, unit, sign):
    base = make(LEVELS, q)
    moved_q = unit * (sign * q + shift)
    moved = make(LEVELS, moved_q[:, ::sign])  # levels are symmetric about 1/2
    y = base.quantile(0.31) + 0.37
    moved_y = unit * (sign * y + shift)
    close = {"rtol": 1e-6, "atol": 1e-6}
    np.testing.assert_allclose(moved.mean / unit, sign * base.mean + shift, **close)
    np.testing.assert_allclose(moved.std / unit, base.std, **close)
    np.testing.assert_allclose(moved.crps(moved_y) / unit, base.crps(y), **close)
    p = PROBES if sign == 1 else 1 - PROBES
    np.testing.assert_allclose(
        moved.quantile(p) / unit, sign * base.quantile(PROBES) + shift, **close
    )


@quick
@given(tables, st.randoms(use_true_random=False))
def test_points_do_not_depend_on_each_other(q, random):
    order = list(range(len(q)))
    random.shuffle(order)
    whole, shuffled, alone = make(LEVELS, q), make(LEVELS, q[order]), make(LEVELS, q[:1])
    y = q[:, 3] + 0.1
    for name in ("cdf", "log_prob", "crps"):
        answer = getattr(whole, name)(y)
        np.testing.assert_allclose(getattr(shuffled, name)(y[order]), answer[order], rtol=1e-12)
        np.testing.assert_allclose(getattr(alone, name)(y[:1]), answer[:1], rtol=1e-12)
    np.testing.assert_allclose(shuffled.std, whole.std[order], rtol=1e-12)


@quick
@given(tables, st.floats(-1e6, 1e6))
def test_crps_is_at_most_the_absolute_error_of_draws_and_never_negative(q, y):
    dist = make(LEVELS, q)
    observed = np.full(len(q), y)
    crps = dist.crps(observed)
    assert (crps >= 0).all()
    assert (crps <= np.abs(y - dist.mean) + dist.std + 1e-12).all()


# ------------------------------------------------------------------ hard numbers


@pytest.mark.parametrize("unit", [1e-300, 1e-150, 1.0, 1e150, 1e290])
@pytest.mark.parametrize("value", [0.0, 1.0, -3e7])
def test_degenerate_rows_stay_finite_and_invertible(value, unit):
    dist = make(LEVELS, np.full((2, 19), value * unit))
    y = np.full(2, value * unit)
    for answer in (dist.mean, dist.std, dist.cdf(y), dist.log_prob(y), dist.crps(y)):
        assert np.isfinite(answer).all()
    assert (dist.std > 0).all()
    np.testing.assert_allclose(dist.mean, value * unit, rtol=1e-9, atol=1e-12)
    for p in PROBES:
        np.testing.assert_allclose(dist.cdf(dist.quantile(p)), p, atol=1e-9)


@pytest.mark.parametrize("offset", [1e4, 1e8, 1e12, -1e12])
def test_large_offsets_cost_no_more_than_their_rounding(offset):
    rng = np.random.default_rng(0)
    q = np.sort(rng.normal(size=(20, 19)), axis=1)
    q[:, 6:9] = q[:, 6:7]
    base, far = make(LEVELS, q), make(LEVELS, q + offset)
    rounding = np.sqrt(np.finfo(float).eps * abs(offset)) + 1e-6
    np.testing.assert_allclose(far.std, base.std, rtol=3 * rounding)
    for p in PROBES:
        np.testing.assert_allclose(far.cdf(far.quantile(p)), p, atol=3 * rounding)
    y = np.ones(20)
    assert np.isfinite(far.log_prob(y + offset)).all()
    np.testing.assert_allclose(far.crps(y + offset), base.crps(y), atol=3 * rounding)


def test_far_observations_have_finite_scores():
    dist = of(stats.norm, LEVELS, 2)
    y = np.array([-1e100, 1e100])
    np.testing.assert_allclose(dist.crps(y), 1e100)
    assert np.isfinite(dist.log_prob(y)).all()
    np.testing.assert_array_equal(dist.cdf(y), [0, 1])


def test_levels_closer_than_rounding():
    levels = np.array([0.5, 0.5 + 2e-16, 0.5 + 4e-16])
    dist = make(levels, [[1.0, 1.0, 1.0], [0.0, 1.0, 2.0]])
    for answer in (dist.mean, dist.std, dist.log_prob([1.0, 1.0]), dist.crps([1.0, 1.0])):
        assert np.isfinite(answer).all()


def test_crossing_quantiles_are_rearranged():
    dist = make([0.2, 0.5, 0.8], [[0.0, 2.0, 1.0]])
    np.testing.assert_allclose(dist.quantiles, [[0.0, 2.0, 2.0]], atol=1e-5)


# ------------------------------------------------------------------ the public face


def test_shapes():
    dist = of(stats.norm, LEVELS, 4)
    assert len(dist) == 4
    assert dist.levels.shape == (19,)
    assert dist.quantiles.shape == (4, 19)
    assert dist.mean.shape == dist.std.shape == (4,)
    assert dist.quantile(0.3).shape == (4,)
    assert dist.quantile([0.3]).shape == (4, 1)
    assert dist.quantile([0.1, 0.2, 0.3]).shape == (4, 3)
    assert dist.interval(0.9).shape == (4, 2)
    assert dist.interval([0.5, 0.8, 0.9]).shape == (4, 2, 3)
    assert dist.sample(5).shape == (4, 5)
    assert "4 points, 19 levels" in repr(dist)


def test_interval_is_centred():
    dist = make(UNEVEN, [TABLES["uneven"][1]] * 2)
    np.testing.assert_allclose(dist.interval(0.8), dist.quantile([0.1, 0.9]), rtol=1e-8)
    both = dist.interval([0.5, 0.8])
    np.testing.assert_array_equal(both[:, :, 1], dist.interval(0.8))
    assert np.isneginf(dist.interval(1.0)[:, 0]).all()
    assert np.isposinf(dist.interval(1.0)[:, 1]).all()


def test_sample_is_reproducible_and_device_free():
    dist = of(stats.norm, LEVELS, 3)
    np.testing.assert_array_equal(dist.sample(4, random_state=1), dist.sample(4, random_state=1))
    rng = np.random.default_rng(1)
    np.testing.assert_array_equal(dist.sample(4, random_state=rng), dist.sample(4, 1))
    assert not np.array_equal(dist.sample(4, random_state=rng), dist.sample(4, random_state=1))
    assert dist.sample(0).shape == (3, 0)


def test_torch_and_numpy_answers():
    q = torch.tensor(stats.norm.ppf(LEVELS), dtype=torch.float32)[:, None].expand(-1, 3)
    dist = PredictiveDistribution(torch.tensor(LEVELS), q)
    assert isinstance(dist.mean, torch.Tensor)
    assert dist.crps(torch.zeros(3)).dtype == torch.float64
    view = dist.numpy()
    assert isinstance(view.quantile(0.5), np.ndarray)
    assert isinstance(dist.quantile(0.5), torch.Tensor)
    np.testing.assert_array_equal(view.std, dist.std.numpy())


def test_gradients_pass_through_the_table():
    torch.manual_seed(0)
    q = torch.randn(5, 3, dtype=torch.float64).sort(dim=0).values.requires_grad_()
    y = torch.tensor([-4.0, 0.1, 4.0], dtype=torch.float64)
    levels = [0.1, 0.3, 0.5, 0.7, 0.9]

    def answers(q):
        dist = PredictiveDistribution(levels, q)
        return dist.quantile([0.01, 0.4, 0.99]), dist.crps(y), dist.log_prob(y), dist.mean, dist.std

    assert torch.autograd.gradcheck(answers, (q,), atol=1e-5)


def test_the_table_is_a_copy():
    levels, q = np.array([0.2, 0.8])[::-1][::-1], np.array([[0.0], [1.0]])
    q.flags.writeable = False
    dist = PredictiveDistribution(levels, q, numpy=True)
    levels[0] = 0.7
    dist.levels[0] = dist.quantiles[0, 0] = 0.7
    np.testing.assert_array_equal(dist.levels, [0.2, 0.8])
    np.testing.assert_allclose(dist.quantile(0.2), 0.0, atol=1e-12)
    reflected = PredictiveDistribution([0.2, 0.8], -q[::-1])
    assert reflected.mean.item() == pytest.approx(-0.5, rel=1e-12)


def test_no_points():
    dist = PredictiveDistribution([0.2, 0.8], torch.zeros(2, 0))
    assert dist.mean.shape == (0,)
    assert dist.quantile([0.1, 0.5]).shape == (0, 2)
    assert dist.crps(torch.zeros(0)).shape == (0,)


@pytest.mark.parametrize(
    ("levels", "quantiles", "message"),
    [
        ([0.5], [[1.0]], "at least two"),
        ([0.0, 0.5], [[1.0], [2.0]], r"in \(0, 1\)"),
        ([0.5, 0.4], [[1.0], [2.0]], "strictly increasing"),
        ([0.5, 0.5], [[1.0], [2.0]], "strictly increasing"),
        ([0.5, np.nan], [[1.0], [2.0]], "strictly increasing"),
        ([[0.5, 0.6]], [[1.0], [2.0]], "levels"),
        ([0.4, 0.5], [[1.0, 2.0, 3.0]], r"expected shape \(2, n\).*found \(1, 3\)"),
        ([0.4, 0.5], [1.0, 2.0], r"found \(2,\)"),
        ([0.4, 0.5], [[1.0], [np.inf]], "finite values, found 1"),
    ],
)
def test_bad_tables(levels, quantiles, message):
    with pytest.raises(InvalidInputError, match=message):
        PredictiveDistribution(levels, quantiles)


def test_bad_questions():
    dist = of(stats.norm, LEVELS, 3)
    for p in (-0.1, 1.1, np.nan, [[0.5]]):
        with pytest.raises(InvalidInputError, match=r"levels: expected .* in \[0, 1\]"):
            dist.quantile(p)
    with pytest.raises(InvalidInputError, match="coverage: expected"):
        dist.interval(95)
    for ask in (dist.cdf, dist.log_prob, dist.crps):
        with pytest.raises(InvalidInputError, match=r"expected shape \(3,\).*found \(2,\)"):
            ask([0.0, 1.0])
        with pytest.raises(InvalidInputError, match="finite values, found 2"):
            ask([0.0, np.nan, np.inf])
    for k in (-1, 2.5, True):
        with pytest.raises(InvalidInputError, match="number of draws"):
            dist.sample(k)
