"""Counting where a spread falls although its hyperparameters grow."""

import pytest
import torch

from helpers import FakePosterior, fake_data
from sharpgp.exceptions import InvalidInputError
from sharpgp.gp import train
from sharpgp.gp.monotonicity import count_violations


class Falling(FakePosterior):
    """Its spread falls with the first entry of theta where the feature is positive."""

    def sigma(self, theta, X):
        rising = theta[:, :1] * X[:, 0].square() + theta[:, 1:]
        return torch.where(X[:, 0] > 0, theta[:, 1:] / theta[:, :1], rising).sqrt()


def test_every_fall_is_counted_and_none_is_made_up():
    X, _ = fake_data(30)
    assert count_violations(FakePosterior(), X).violations == 0
    found = count_violations(Falling(), X, pairs=60)
    positive = int((X[:, 0] > 0).sum())
    # Pairs that move the first entry alone violate at all positive points, and at no others.
    assert found.pairs_violated > 10
    assert found.violations <= found.pairs_violated * positive
    assert found.violations >= 10 * positive
    assert 0 < found.share < 1
    assert 0 < found.largest < 1


@pytest.mark.parametrize("kernel", ["rbf", "matern12"])
def test_a_trained_gp(kernel):
    X = torch.linspace(0, 6, 40, dtype=torch.float64)[:, None]
    posterior, _ = train(X[::2], X[::2, 0].sin(), kernel)
    found = count_violations(posterior, X[1::2], pairs=20)
    assert (found.pairs, found.points) == (20, 20)
    assert found.share < 0.05


def test_bad_pairs():
    X, _ = fake_data(3)
    with pytest.raises(InvalidInputError, match="pairs"):
        count_violations(FakePosterior(), X, pairs=0)
