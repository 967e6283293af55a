"""Which levels are trained and tabulated, for every number of calibration points."""

import numpy as np
import pytest
import torch

from sharpgp._ranks import points_needed, q_lin, rank, supported, whole_rank
from sharpgp.calibration.methods.sharp.levels import resolve_levels
from sharpgp.calibration.ranks import table_levels
from sharpgp.exceptions import InvalidInputError

MANY_C = [*range(2, 130), 199, 200, 999, 1000]


@pytest.mark.parametrize("levels", [None, "all", 2, 7, 25, 101])
def test_trained_levels_are_supported_increasing_and_symmetric(levels):
    for C in MANY_C:
        delta = resolve_levels(levels, C)
        assert supported(delta, C).all(), C
        assert (delta.diff() > 0).all(), C
        torch.testing.assert_close(delta, 1.0 - delta.flip(0), rtol=0, atol=1e-9)
        if isinstance(levels, int):
            assert len(delta) == levels


def test_tables_have_two_supported_levels_and_are_symmetric():
    for C in MANY_C:
        delta = table_levels(C)
        assert len(delta) >= 2, C
        assert supported(delta, C).all(), C
        assert (delta.diff() > 0).all(), C
        # A lopsided table would give symmetric scores a lopsided distribution.
        torch.testing.assert_close(delta, 1.0 - delta.flip(0), rtol=0, atol=1e-9, msg=f"C={C}")


def test_all_levels_of_the_theorem():
    np.testing.assert_allclose(resolve_levels("all", 4), [0.2, 0.4, 0.6, 0.8], atol=1e-12)


def test_given_levels_are_sorted_without_repeats():
    assert resolve_levels([0.9, 0.1, 0.9], 30).tolist() == [0.1, 0.9]
    assert resolve_levels(0.3, 30).tolist() == [0.3]


@pytest.mark.parametrize("C", [19, 20, 39, 99, 100, 999])
def test_whole_ranks_are_safe_against_rounding(C):
    for j in range(1, C + 1):
        for level in (j / (C + 1), 1.0 - (C + 1 - j) / (C + 1)):
            assert whole_rank(level, C, up=True) == j
            assert whole_rank(level, C, up=False) == j
    # 0.95 * 100 is not 95 in floating point.
    assert whole_rank(0.95, 99, up=True) == 95
    assert whole_rank(0.951, 99, up=True) == 96
    assert whole_rank(0.951, 99, up=False) == 95


@pytest.mark.parametrize("level", [0.9, 0.95, 0.975, 0.99, 0.995, 0.999, 0.05, 0.025, 1 / 3])
def test_points_needed_is_the_smallest_number_that_supports_a_level(level):
    delta, C = torch.tensor(level, dtype=torch.float64), points_needed(level)
    assert supported(delta, C)
    assert not supported(delta, C - 1)


def test_q_lin_is_interpolation_with_the_n_plus_one_rule(rng):
    z = rng.normal(size=23)
    delta = np.linspace(1 / 24, 23 / 24, 301)
    expected = np.interp(delta, np.arange(1, 24) / 24, np.sort(z))
    ours = q_lin(torch.from_numpy(delta), torch.from_numpy(z))
    np.testing.assert_allclose(ours, expected, atol=1e-12)
    # numpy calls this rule "weibull".
    np.testing.assert_allclose(ours, np.quantile(z, delta, method="weibull"), atol=1e-12)


def test_q_lin_takes_one_row_of_scores_per_level(rng):
    z = torch.from_numpy(rng.normal(size=(3, 9)))
    delta = torch.tensor([0.2, 0.55, 0.9], dtype=torch.float64)
    rows = torch.cat([q_lin(delta[k : k + 1], z[k]) for k in range(3)])
    torch.testing.assert_close(q_lin(delta, z), rows)


def test_q_lin_of_a_single_score():
    z = torch.tensor([4.0], dtype=torch.float64)
    half = torch.tensor([0.5], dtype=torch.float64)
    assert q_lin(half, z).item() == 4.0
    assert q_lin(half, z[None]).item() == 4.0


def test_q_lin_names_the_points_that_a_level_needs():
    with pytest.raises(InvalidInputError, match=r"0\.95 needs at least 19 calibration points"):
        q_lin(torch.tensor([0.95], dtype=torch.float64), torch.zeros(18, dtype=torch.float64))


def test_rank_snaps_only_rounding():
    delta = torch.tensor([0.07, 0.0701], dtype=torch.float64)
    np.testing.assert_allclose(rank(delta, 99), [7.0, 7.01], rtol=0, atol=1e-12)
    assert rank(delta, 99)[0] == 7.0


@pytest.mark.parametrize(
    ("levels", "n_scores", "message"),
    [
        (None, 0, "at least 1 calibration point, found 0"),
        (0, 10, "at least 1 level, found 0"),
        (3, 1, "3 levels need at least 2 calibration points, found 1"),
        ("some", 10, "found 'some'"),
        ([0.5, "x"], 10, "expected numbers"),
    ],
)
def test_levels_that_cannot_be(levels, n_scores, message):
    with pytest.raises(InvalidInputError, match=message):
        resolve_levels(levels, n_scores)
