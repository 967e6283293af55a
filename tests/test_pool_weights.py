"""Weights of a pool against brute force on a grid, and what they must not depend on."""

import itertools

import numpy as np
import pytest
import torch

from helpers import marked
from sharpgp.exceptions import InvalidInputError
from sharpgp.models.laws import Normal
from sharpgp.models.pool_weights import PULL, crps_of_scores, crps_products, unit_size
from sharpgp.models.pool_weights import pool_weights as weights_of


def products(location, spread, y):
    """As in a pool: of laws in units of their scores."""
    laws = [Normal(m, s) for m, s in zip(location, spread, strict=True)]
    return crps_products([law.changed(size=unit_size(law.score(y))) for law in laws], y)


def pool_weights(location, spread, y, **settings):
    return weights_of(products(location, spread, y), len(y), **settings)


def predictions(k: int, n: int, seed: int = 0):
    """Models that err independently, the later the more; spreads that know a little."""
    generator = torch.Generator().manual_seed(seed)
    draw = lambda *shape: torch.randn(*shape, dtype=torch.float64, generator=generator)  # noqa: E731
    y, error = draw(n), torch.linspace(0.4, 0.8, k, dtype=torch.float64)[:, None] * draw(k, n)
    spread = (0.5 + error.abs()) * (0.3 * draw(k, n)).exp()
    return y + error, spread, y


def distance(m, s):
    """``E |X|`` of normal laws."""
    z = m / s
    density = (-0.5 * z.square()).exp() / (2 * np.pi) ** 0.5
    return m * (2 * torch.special.ndtr(z) - 1) + 2 * s * density


def slow_products(location, spread, y):
    """In closed form: half of ``E|X_k - y| + E|X_l - y| - E|X_k - X_l|``."""
    s = torch.stack([s * unit_size((y - m) / s) for m, s in zip(location, spread, strict=True)])
    far = distance(y - location, s).mean(1)
    apart = distance(location[:, None] - location, (s[:, None] ** 2 + s**2).sqrt()).mean(2)
    return 0.5 * (far[:, None] + far - apart)


def objective(w, location, spread, y, pull=PULL):
    H = slow_products(location, spread, y)
    away = w - 1 / len(w)
    return float(w @ H @ w / H.diagonal().min() + pull / len(y) * len(w) * away.square().sum())


def test_products_are_those_of_normal_laws():
    data = predictions(3, 60)
    torch.testing.assert_close(products(*data), slow_products(*data), rtol=4e-3, atol=0.0)


def test_crps_of_scores_is_that_of_their_values():
    location, spread, y = (a[0] if a.dim() == 2 else a for a in predictions(1, 400))
    law = Normal(location, spread)
    z = law.score(y)
    far = (law.value(z.unsqueeze(-1)) - y).abs().mean(0)
    expected = (far - 0.5 * spread * (z[:, None] - z).abs().mean()).mean()
    assert crps_of_scores(law, z, y) == pytest.approx(float(expected), rel=0.01)


@pytest.mark.parametrize("seed", marked(range(3), slow={1, 2}))
@pytest.mark.parametrize(("k", "steps"), [(2, 20), (3, 6)])
def test_weights_are_at_least_as_good_as_the_best_of_a_grid(k, steps, seed):
    data = predictions(k, 40, seed)
    found = objective(pool_weights(*data), *data)
    grid = [
        torch.tensor(w, dtype=torch.float64) / steps
        for w in itertools.product(range(steps + 1), repeat=k)
        if sum(w) == steps
    ]
    # Shares under 1 % are set to 0, which may cost a little.
    assert found <= min(objective(w, *data) for w in grid) + 2e-3


def test_a_dominated_model_gets_nothing():
    location, spread, y = predictions(2, 300)
    poor = y + 30.0 * (location[1] - y)
    weights = pool_weights(torch.stack([location[0], poor]), spread, y)
    torch.testing.assert_close(weights, torch.tensor([1.0, 0.0], dtype=torch.float64))


def test_models_that_are_worse_by_orders_of_magnitude_get_nothing():
    """As trees do beside a kernel that contains a function without noise."""
    generator = torch.Generator().manual_seed(0)
    y = torch.randn(300, dtype=torch.float64, generator=generator)
    noise = torch.randn(5, 300, dtype=torch.float64, generator=generator)
    sizes = torch.tensor([3e-6, 2e-6, 6e-9, 5e-3, 1e-2], dtype=torch.float64)[:, None]
    weights = pool_weights(y + sizes * noise, sizes.expand(-1, 300), y)
    assert weights.tolist() == [0.0, 0.0, 1.0, 0.0, 0.0]


def test_equal_models_share():
    location, spread, y = predictions(2, 200)
    weights = pool_weights(location[[0, 1, 0]], spread[[0, 1, 0]], y)
    assert abs(weights[0] - weights[2]) < 1e-3
    assert weights[0] > 0.1


def test_neither_units_nor_the_size_of_spreads_matter():
    location, spread, y = predictions(3, 200)
    weights = pool_weights(location, spread, y)
    for scale, shift in ((1e6, 0.0), (-1e-6, 0.0), (1.0, 100.0)):
        factors = abs(scale) * torch.tensor([[1.0], [7.0], [0.1]], dtype=torch.float64)
        other = pool_weights(scale * location + shift, factors * spread, scale * y + shift)
        torch.testing.assert_close(other, weights, rtol=0.0, atol=2e-3)


def test_order_of_models_does_not_matter():
    location, spread, y = predictions(4, 200)
    order = torch.tensor([2, 0, 3, 1])
    weights = pool_weights(location, spread, y)
    found = pool_weights(location[order], spread[order], y)
    torch.testing.assert_close(found, weights[order], rtol=0.0, atol=2e-3)


def test_one_model_has_all_the_weight():
    location, spread, y = predictions(1, 20)
    assert pool_weights(location, spread, y).tolist() == [1.0]


def test_a_stronger_pull_makes_weights_more_equal():
    data = predictions(3, 100)
    away = [float((pool_weights(*data, pull=pull) - 1 / 3).square().sum()) for pull in (0, 3, 1e6)]
    assert away[0] > away[1] > away[2]
    assert away[2] < 1e-6


def test_perfect_models_do_not_break_it():
    y = torch.linspace(0, 1, 50, dtype=torch.float64)
    weights = pool_weights(torch.stack([y, y]), torch.ones(2, 50).double(), y)
    assert weights.sum() == pytest.approx(1.0)


def test_bad_input_is_one_line():
    H = torch.eye(2, dtype=torch.float64)
    H[1, 1] = np.inf
    with pytest.raises(InvalidInputError, match="found others in model 1; leave it out"):
        weights_of(H, 20)
