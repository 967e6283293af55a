"""Distributions of whole values: probabilities, moments and scores against sums over them."""

import numpy as np
import pytest
import torch
from scipy import stats

from sharpgp import PredictiveDistribution, SharpGPRegressor
from sharpgp import _rounded as rounding
from sharpgp.data.target_bounds import BoundedDistribution, Bounds
from sharpgp.exceptions import InvalidInputError

LEVELS = np.linspace(0.005, 0.995, 199)


def normal(means, deviations) -> PredictiveDistribution:
    quantiles = np.asarray(means) + np.multiply.outer(stats.norm.ppf(LEVELS), deviations)
    return PredictiveDistribution(LEVELS, quantiles, numpy=True)


def probabilities(dist: PredictiveDistribution, step: float) -> tuple[np.ndarray, np.ndarray]:
    """Multiples of the step [k], and their probabilities [n, k] by the unrounded cdf."""
    k = np.arange(-400, 401)
    edges = (np.arange(-400, 402) - 0.5) * step
    cdf = np.stack([dist.cdf(np.full(len(dist), edge)) for edge in edges], 1)
    return k * step, np.diff(cdf, axis=1)


@pytest.fixture(params=[1.0, 0.25])
def step(request):
    return request.param


@pytest.fixture(params=["free", "bounded"])
def dist(request):
    found = normal([0.2, 3.6, -2.0], [0.4, 1.5, 0.05])
    return found if request.param == "free" else BoundedDistribution(found, Bounds(0.0, 5.0))


def test_a_value_has_the_probability_of_all_that_is_rounded_to_it(dist, step):
    values, mass = probabilities(dist, step)
    found = dist.rounded(step)
    assert np.allclose(mass.sum(1), 1, rtol=0, atol=1e-9)
    for j in (396, 400, 401, 404, 410):
        one = np.full(3, values[j])
        assert np.allclose(np.exp(found.log_prob(one)), mass[:, j], rtol=1e-4, atol=1e-9)
        assert np.allclose(found.cdf(one), mass[:, : j + 1].sum(1), rtol=0, atol=1e-9)
        between = one + 0.4 * step
        assert np.array_equal(found.cdf(between), found.cdf(one))
        assert np.array_equal(found.log_prob(between), np.full(3, -np.inf))


def test_moments_and_score_are_sums_over_the_values(dist, step):
    values, mass = probabilities(dist, step)
    found = dist.rounded(step)
    mean = mass @ values
    assert np.allclose(found.mean, mean, rtol=0, atol=1e-7)
    std = np.sqrt((mass * (values - mean[:, None]) ** 2).sum(1))
    assert np.allclose(found.std, std, rtol=0, atol=1e-5)
    apart = np.abs(values[:, None] - values)
    for y in ([0.0, 4.0, -2.0], [0.3, 30.0, -7.6]):
        away = (mass * np.abs(values - np.array(y)[:, None])).sum(1)
        score = away - 0.5 * np.einsum("ni,ij,nj->n", mass, apart, mass)
        assert np.allclose(found.crps(y), score, rtol=0, atol=1e-7)


def test_quantiles_are_the_smallest_values_that_have_their_share(dist, step):
    found = dist.rounded(step)
    quantiles = found.quantile([0.03, 0.2, 0.5, 0.77, 0.99])
    assert np.array_equal(quantiles / step, np.round(quantiles / step))
    for p, q in zip([0.03, 0.2, 0.5, 0.77, 0.99], quantiles.T, strict=True):
        assert (found.cdf(q) >= p - 1e-12).all()
        assert (found.cdf(q - step) < p).all()
    lower, upper = found.interval(0.8).T
    assert (found.cdf(upper) - found.cdf(lower - step) >= 0.8 - 1e-12).all()
    draws = found.sample(400, random_state=0)
    assert np.array_equal(draws / step, np.round(draws / step))
    assert np.allclose(draws.mean(1), found.mean, rtol=0, atol=0.25)
    assert not np.signbit(quantiles[quantiles == 0]).any()


def test_many_values_are_summed_in_parts(monkeypatch):
    dist = normal([0.0, 50.0], [100.0, 3.0])
    y = [12.0, 51.0]
    at_once = dist.rounded()
    expected = at_once.crps(y), at_once.mean, at_once.std
    assert np.allclose(expected[0], dist.crps(y), rtol=0.02)  # steps are small here
    monkeypatch.setattr(rounding, "_BLOCK", 14)
    in_parts = dist.rounded()
    for one, other in zip((in_parts.crps(y), in_parts.mean, in_parts.std), expected, strict=True):
        assert np.allclose(one, other, rtol=1e-12)


def test_steps_too_fine_to_count_change_nothing_that_can_be_seen():
    dist = normal([0.0, 0.2], [1e6, 0.4])
    found, y = dist.rounded(), [3e5, 1.0]
    for one, other in ((found.crps(y), dist.crps(y)), (found.mean, dist.mean)):
        assert one[0] == other[0]
        assert one[1] != other[1]
    assert found.std[0] == dist.std[0]
    alone = normal([0.2], [0.4]).rounded()
    assert np.allclose(found.crps(y)[1], alone.crps(y[1:]), rtol=1e-12)
    assert np.array_equal(found.quantile(0.3), np.round(dist.quantile(0.3)))


def test_tensors_stay_tensors_and_bad_steps_are_refused():
    dist = PredictiveDistribution([0.25, 0.75], torch.tensor([[-1.0], [1.0]]).double())
    assert isinstance(dist.rounded().mean, torch.Tensor)
    assert float(dist.rounded(np.float32(0.5)).quantile(0.5)) == 0.0
    for step in (0.0, -1.0, np.inf, np.nan, "1", True):
        with pytest.raises(InvalidInputError, match="step: expected a positive number"):
            dist.rounded(step)


def test_counts_are_predicted_better_as_whole_numbers():
    rng = np.random.default_rng(0)
    X = rng.uniform(0, 6, (800, 1))
    mean = 3 * np.maximum(np.sin(X[:, 0]), 0.02)
    y = rng.poisson(mean).astype(float)
    model = SharpGPRegressor(
        base="rbf", calibration="exact", random_state=0, y_bounds=(0, None)
    ).fit(X[:200], y[:200])
    dist = model.predict_dist(X[200:])
    whole = dist.rounded()
    assert whole.crps(y[200:]).mean() < dist.crps(y[200:]).mean()
    truth, zeros = np.exp(-mean[200:]), np.zeros(600)
    error = np.abs(whole.cdf(zeros) - truth).mean()
    assert error < 0.5 * np.abs(dist.cdf(zeros) - truth).mean()
    assert error < 0.15
