"""The prior-fitted network: its invariances, its memory, its precision."""

import numpy as np
import pytest
import torch

from sharpgp.models import prior_network as module
from sharpgp.models.prior_fitted import pretrained
from sharpgp.models.prior_network import PriorNetwork, Scales, Shape, marks

TINY = Shape(
    n_bins=16, cell_width=32, points=4, column_blocks=2, across_blocks=2, classes=2, row_width=32,
    row_blocks=2, thinking=3,
)  # fmt: skip


@pytest.fixture
def network():
    torch.manual_seed(0)
    found = PriorNetwork(TINY)
    for p in found.parameters():  # blocks begin as identities
        p.data += 0.1 * torch.randn_like(p)
    return found.requires_grad_(False)


@pytest.fixture
def table():
    torch.manual_seed(1)
    X, y = torch.randn(2, 30, 5, dtype=torch.float64), torch.randn(2, 20, dtype=torch.float64)
    X[0, 3, 1] = X[0, 25, 2] = torch.nan
    scales = Scales.from_context(X[:, :20], y)
    return scales.cells(X), scales.z(y), marks(5).expand(2, -1, -1)


def close(found, expected):
    torch.testing.assert_close(found, expected, rtol=1e-4, atol=1e-5)


def test_cells_are_z_scores_ranks_and_gaps():
    X = torch.tensor([[1.0], [2.0], [2.0], [torch.nan], [5.0], [100.0]], dtype=torch.float64)
    y = torch.tensor([[1.0, 3.0, 5.0, 7.0, 9.0]])
    scales = Scales.from_context(X[None, :5], y)
    cells, z, mean, scale = scales.cells(X[None]), scales.z(y), scales.mean_y, scales.scale_y
    there = np.array([1.0, 2.0, 2.0, 5.0])
    far = (100.0 - there.mean()) / there.std()
    expected = (there - there.mean()) / there.std()
    found = cells[0, :, 0]
    np.testing.assert_allclose(found[[0, 1, 2, 4], 0], expected, rtol=1e-6)
    assert found[5, 0].item() == pytest.approx(3.0 + 3.0 * np.log(far / 3.0), rel=1e-5)
    middle = [0.125, 0.5, 0.5, 0.875, 1.0]
    np.testing.assert_allclose(
        found[[0, 1, 2, 4, 5], 1], 1.7 * (2.0 * np.array(middle) - 1.0), 1e-5
    )
    assert found[3].tolist() == [0.0, 0.0, 2.0]
    assert (mean.item(), scale.item()) == pytest.approx((5.0, np.sqrt(8.0)))
    np.testing.assert_allclose(z[0], (np.arange(1, 10, 2) - 5.0) / np.sqrt(8.0), rtol=1e-6)


def test_densities_integrate_to_one(network):
    logits = torch.randn(1, 1, TINY.n_bins)
    at = torch.linspace(-30, 30, 200_001)[None]
    density = network.log_density(logits.expand(1, at.shape[1], -1), at).exp()
    assert torch.trapezoid(density, at).item() == pytest.approx(1.0, abs=1e-3)


def test_order_of_the_context_is_nothing(network, table):
    cells, z, columns = table
    order = torch.randperm(20)
    rows = torch.cat([order, torch.arange(20, 30)])
    close(network(cells[:, rows], z[:, order], columns), network(*table))


def test_columns_may_move_in_their_circle_with_their_marks(network, table):
    cells, z, columns = table
    close(network(cells.roll(2, 2), z, columns.roll(2, 1)), network(*table))


def test_a_cell_sees_two_further_columns(network, table):
    cells, z, columns = table
    places = torch.tensor([1, 0, 2, 3, 4])
    other = network(cells[:, :, places], z, columns[:, places])
    assert not torch.allclose(other, network(*table), atol=1e-3)


def test_targets_of_the_context_matter(network, table):
    cells, z, columns = table
    assert not torch.allclose(network(cells, -z, columns), network(*table), atol=1e-3)


def test_rows_without_targets_do_not_see_each_other(network, table):
    cells, z, columns = table
    close(network(cells[:, :24], z, columns), network(*table)[:, :4])


@pytest.mark.parametrize("at_once", [1, 70, 2**16])
def test_a_context_that_is_remembered_is_the_same(network, table, at_once, monkeypatch):
    monkeypatch.setattr(module, "_CELLS_AT_ONCE", at_once)
    (cells, z, columns), memory = table, []
    with torch.no_grad():
        assert network(cells[:, :20], z, columns, memory).shape == (2, 0, TINY.n_bins)
        assert len(memory) == TINY.column_blocks + TINY.row_blocks
        for rows in (slice(20, 30), slice(20, 21), slice(20, 20)):  # asked twice, and of nothing
            found = network(cells[:, rows], z[:, :0], columns, memory)
            close(found, network(*table)[:, rows.start - 20 : rows.stop - 20])


def test_some_cells_at_a_time_are_the_same(network, table, monkeypatch):
    expected = network(*table)  # with gradients: all at a time
    monkeypatch.setattr(module, "_CELLS_AT_ONCE", 50)
    with torch.no_grad():
        close(network(*table), expected)


def test_sequences_beyond_what_cuda_takes_are_split(monkeypatch):
    q, k, v = torch.randn(3, 5, 2, 4, 8).unbind()
    expected = module.attended(q, k, v)
    monkeypatch.setattr(module, "_SEQUENCES_AT_ONCE", 2)
    torch.testing.assert_close(module.attended(q, k, v), expected)


def wavy(n):
    draw = torch.Generator().manual_seed(0)
    X = 4 * torch.rand(1, n, 3, generator=draw, dtype=torch.float64) - 2
    y = (2 * X[..., 0]).sin() + X[..., 1] ** 2
    return X, y + 0.1 * torch.randn(1, n, generator=draw, dtype=torch.float64)


def means(n, dtype):
    """Means of test rows, in deviations of the context's targets."""
    found = PriorNetwork(pretrained("cpu").shape, dtype)
    found.load_state_dict(pretrained("cpu").state_dict())
    X, y = wavy(500)
    scales = Scales.from_context(X[:, :n], y[:, :n])
    with torch.no_grad():
        logits = found(scales.cells(X), scales.z(y[:, :n]), marks(3)[None])
    middle = 0.5 * (found.borders[1:] + found.borders[:-1])
    return logits.float().softmax(-1) @ middle, scales.z(y[:, n:])


def test_it_predicts_a_smooth_function():
    found, y = means(300, torch.float32)
    assert (found - y).square().mean().sqrt() < 0.3


def test_half_precision_changes_means_little():
    single, _ = means(300, torch.float32)
    half, _ = means(300, torch.bfloat16)
    assert (half - single).abs().mean() < 0.01


def test_it_is_as_small_as_the_library_may_ship():
    assert sum(p.numel() for p in PriorNetwork(Shape()).parameters()) < 6_000_000
