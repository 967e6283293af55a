"""The paper's method on a spread that is no GP's."""

import pytest
import torch

from sharpgp import Kuleshov18, Sharp
from sharpgp.exceptions import InvalidInputError
from sharpgp.gp.monotonicity import count_violations
from sharpgp.gp.weighted import WeightedSpread
from sharpgp.metrics import interval_score


def parts(X):
    """A constant, a part that matters, and one that does not."""
    return torch.stack([torch.ones(len(X)).double(), X[:, 0].square(), X[:, 1].square()], dim=1)


@pytest.fixture(scope="module")
def problem():
    generator = torch.Generator().manual_seed(3)
    X = torch.randn(400, 2, dtype=torch.float64, generator=generator)
    noise = torch.randn(400, dtype=torch.float64, generator=generator)
    return WeightedSpread(lambda X: 3.0 * X[:, 1], parts, X), X, 3.0 * X[:, 1] + noise * X[:, 0]


def test_sigma_is_the_weighted_sum(problem):
    spread, X, _ = problem
    theta = torch.tensor([[1.0, 2.0, 0.5]], dtype=torch.float64)
    expected = (theta * parts(X) / parts(X).mean(0)).sum(1).sqrt()
    torch.testing.assert_close(spread.sigma(theta, X)[0], expected)
    assert count_violations(spread, X).violations == 0


@pytest.mark.parametrize("objective", ["sharpness", "pinball"])
def test_the_search_lowers_its_objective_and_a_proper_one_finds_what_matters(problem, objective):
    spread, X, y = problem
    calibrated = Sharp(levels=[0.1, 0.9], objective=objective).fit(spread, X[:200], y[:200])
    assert all(result.objective < 0.99 * result.objective_base for result in calibrated.results)
    if objective == "pinball":
        theta = calibrated.results[1].theta
        assert theta[1] > 3 * theta[2]
    scores = []
    for fitted in (calibrated, Kuleshov18().fit(spread, X[:200], y[:200])):
        lower, upper = fitted.predict_quantiles(X[200:], [0.1, 0.9]).T
        covered = ((lower <= y[200:]) & (y[200:] <= upper)).double().mean()
        assert 0.7 < covered < 0.9
        scores.append(interval_score(y[200:].numpy(), lower.numpy(), upper.numpy(), 0.8))
    assert objective == "sharpness" or scores[0] < scores[1]


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        (lambda X: X, "not negative"),
        (lambda X: X[:, :1].square(), "P >= 2"),
        (lambda X: torch.cat([torch.ones_like(X), 0.0 * X], 1), "0 at all of them"),
    ],
)
def test_bad_parts(problem, wrong, message):
    with pytest.raises(InvalidInputError, match=message):
        WeightedSpread(lambda X: X[:, 0], wrong, problem[1])
