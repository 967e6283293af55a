"""Symmetric bands: the ceil rule at low coverage, and bands that grow with coverage."""

import pytest
import torch

from helpers import FakePosterior, fake_data, method


@pytest.mark.parametrize("name", ["kuleshov18", "marx22", "vovk20", "paper"])
@pytest.mark.parametrize("C", [19, 60])
def test_symmetric_bands_grow_with_coverage(name, C):
    X, y = fake_data(C)
    X_test, _ = fake_data(30, seed=4)
    coverages = [0.02, 0.06, 0.1, 0.3, 0.5, 0.7, 0.9, 0.949]
    ends = (
        method(name).fit(FakePosterior(), X, y).predict_interval(X_test, coverages, symmetric=True)
    )
    assert ((ends[:, 1] - ends[:, 0]).diff(dim=-1) >= -1e-12).all()


def test_band_below_the_first_rank_is_the_smallest_absolute_score():
    y = torch.arange(1.0, 20.0, dtype=torch.float64)  # absolute scores 1, 2, ..., 19
    X = torch.zeros(19, 1, dtype=torch.float64)
    ends = (
        method("kuleshov18")
        .fit(FakePosterior(), X, y)
        .predict_interval(X[:1], 0.02, symmetric=True)
    )
    torch.testing.assert_close(ends, torch.tensor([[-1.0, 1.0]], dtype=torch.float64))
