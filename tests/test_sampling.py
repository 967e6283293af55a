import numpy as np
import pytest

from sharpgp.exceptions import InvalidInputError
from sharpgp.metrics import coverage_band, pit_histogram, sampling_band


def test_the_coverage_band_is_that_of_simulated_conformal_intervals(rng):
    C, T, c, draws = 39, 25, 0.9, 200_000
    # The share below the k-th of C uniform scores is Beta(k, C + 1 - k); then T new points.
    k = round(c * (C + 1))
    covered = rng.binomial(T, rng.beta(k, C + 1 - k, draws)) / T
    low, high = coverage_band(c, C, T, confidence=0.9)
    assert low == pytest.approx(np.quantile(covered, 0.05, method="inverted_cdf"))
    assert high == pytest.approx(np.quantile(covered, 0.95, method="inverted_cdf"))
    assert coverage_band(c, C, T)[0] <= low < high <= coverage_band(c, C, T)[1]


def test_without_calibration_points_the_coverage_band_is_binomial(rng):
    covered = rng.binomial(40, 0.8, 400_000) / 40
    expected = np.quantile(covered, [0.025, 0.975], method="inverted_cdf")
    np.testing.assert_allclose(coverage_band(0.8, None, 40), expected)


def test_the_sampling_band_holds_its_share_of_calibrated_predictors(rng):
    levels, C, T, draws = np.array([0.1, 0.5, 0.9]), 199, 400, 4000
    cal = np.sort(rng.random((draws, C)), axis=1)
    chosen = cal[:, (levels * (C + 1)).round().astype(int) - 1]
    observed = rng.binomial(T, chosen) / T
    low, high = sampling_band(levels, C, T, confidence=0.8)
    inside = ((low <= observed) & (observed <= high)).mean(axis=0)
    np.testing.assert_allclose(inside, 0.8, atol=0.03)


def test_pit_histogram_counts_every_point_once():
    histogram = pit_histogram([0.0, 0.5, 1.0, 0.49], n_cal=10, n_bins=2)
    np.testing.assert_allclose(histogram.share, [0.5, 0.5])
    assert 0 <= histogram.low < 0.5 < histogram.high <= 1


@pytest.mark.parametrize(
    "call",
    [
        lambda: sampling_band([0.5], 0, 10),
        lambda: sampling_band([0.5], 10, 0),
        lambda: sampling_band([0.5], 10, 10, confidence=1.0),
        lambda: sampling_band([1.5], 10, 10),
        lambda: coverage_band(0.9, 0, 10),
        lambda: coverage_band(1.0, 10, 10),
        lambda: coverage_band(0.9, 10, 10, confidence=0.0),
        lambda: pit_histogram([0.5, 1.1]),
        lambda: pit_histogram([0.5, np.nan]),
        lambda: pit_histogram([0.5], n_bins=0),
    ],
)
def test_bad_input_is_named(call):
    with pytest.raises(InvalidInputError, match="expected"):
        call()
