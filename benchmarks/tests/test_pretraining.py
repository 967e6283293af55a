"""Generated tables, and the training of the prior-fitted network, at a small size."""

import numpy as np
import pandas as pd
import pytest
import torch
from safetensors import safe_open

from sharpgp.models.prior_fitted import PriorFittedNetwork, Shape
from sharpgp_benchmarks.pretraining.tables import tables
from sharpgp_benchmarks.pretraining.training import Optimiser, borders, loss_of, train

TINY = Shape(n_bins=32, cell_width=32, cell_blocks=1, row_width=32, row_blocks=1)


@pytest.mark.parametrize(("rows", "columns"), [(16, 1), (64, 7), (40, 20)])
def test_tables_are_standardised_and_finite(rows, columns):
    torch.manual_seed(0)
    X, y = tables(50, rows, columns, "cpu")
    assert X.shape == (50, rows, columns)
    assert bool(torch.isfinite(y).all())
    assert not bool(X.isinf().any())
    np.testing.assert_allclose(y.mean(1), 0.0, atol=1e-4)
    np.testing.assert_allclose(y.std(1), 1.0, atol=1e-3)


def test_tables_are_of_many_kinds():
    torch.manual_seed(1)
    X, y = tables(400, 100, 4, "cpu")
    values = torch.tensor([len(column.unique()) for column in X[:, :, 0]])
    assert (values == 2).any()  # binary
    assert (values > 90).any()  # continuous
    assert bool(X.isnan().any(dim=(1, 2)).float().mean() > 0.02)
    atoms = torch.tensor([one.unique(return_counts=True)[1].max() for one in y])
    assert 0.05 < (atoms > 20).float().mean() < 0.4
    skew = (y**3).mean(1).abs()
    assert (skew > 1.0).any()
    assert (skew < 0.1).any()


def test_columns_tell_of_the_target():
    """The nearest row by all columns has a closer target than any other row, in most tables."""
    torch.manual_seed(2)
    X, y = tables(200, 100, 2, "cpu")
    X = torch.nan_to_num(X)
    X = (X - X.mean(1, keepdim=True)) / X.std(1, keepdim=True).clamp_min(1e-6)
    apart = torch.cdist(X, X) + 1e9 * torch.eye(100)
    nearest = y.gather(1, apart.argmin(2))
    error = (nearest - y).square().mean(1)  # 2 for any other row
    assert (error < 1.0).float().mean() > 0.4


def test_borders_increase():
    torch.manual_seed(0)
    found = borders(64, "cpu")
    assert len(found) == 65
    assert bool((found.diff() > 0).all())


def test_steps_lessen_the_loss():
    torch.manual_seed(0)
    network = PriorFittedNetwork(TINY)
    network.borders.copy_(borders(TINY.n_bins, "cpu"))
    optimiser = Optimiser(network)
    X, y = tables(16, 64, 2, "cpu")
    losses = []
    for _ in range(25):
        loss = loss_of(network, X, y, 48)
        loss.backward()
        optimiser.step(1.0)
        losses.append(loss.item())
    assert np.mean(losses[-5:]) < losses[0] - 0.1


def test_training_goes_on_where_it_stopped(tmp_path):
    settings = {"device": "cpu", "tokens": 512, "shape": TINY, "kept": ((32, 2, 16),)}
    train(0.5, tmp_path, **settings)
    first = pd.read_csv(tmp_path / "curve.csv")
    train(first["seconds"].iloc[-1] + 0.5, tmp_path, **settings)
    both = pd.read_csv(tmp_path / "curve.csv")
    assert len(both) == len(first) + 1
    assert both["step"].is_monotonic_increasing
    with safe_open(tmp_path / "prior_fitted.safetensors", "pt") as file:
        shape = Shape(**{name: int(value) for name, value in file.metadata().items()})
        weights = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
    assert shape == TINY
    PriorFittedNetwork(shape).load_state_dict(weights)
