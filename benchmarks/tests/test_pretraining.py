"""Generated tables, and the training of the prior-fitted network, at a small size."""

from itertools import count
from types import SimpleNamespace

import numpy as np
import pandas as pd
import pytest
import torch
from safetensors import safe_open

from sharpgp.models.prior_fitted import WEIGHTS
from sharpgp.models.prior_network import PriorNetwork, Shape
from sharpgp_benchmarks.pretraining.graphs import graph_tables, told
from sharpgp_benchmarks.pretraining.tables import tables
from sharpgp_benchmarks.pretraining.training import (
    KEPT,
    STATE,
    Optimiser,
    batches,
    borders,
    crps,
    kept_tables,
    losses_of,
    train,
)

TINY = Shape(
    n_bins=32, cell_width=32, points=4, column_blocks=1, across_blocks=2, classes=2, row_width=32,
    row_blocks=2, thinking=2,
)  # fmt: skip
SMALL = {"unseen": ((4, 32, 2, 16),)}


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


@pytest.mark.parametrize(("rows", "columns"), [(64, 1), (80, 30)])
def test_tables_from_graphs_are_standardised_and_finite(rows, columns):
    torch.manual_seed(0)
    X, y = graph_tables(11, rows, columns, "cpu", groups=3)
    assert X.shape == (11, rows, columns)
    assert bool(torch.isfinite(y).all())
    assert not bool(X.isinf().any())
    np.testing.assert_allclose(y.mean(1), 0.0, atol=1e-4)
    np.testing.assert_allclose(y.std(1), 1.0, atol=1e-3)


def test_tables_of_a_seed_are_the_same_again():
    torch.manual_seed(3)
    first = graph_tables(4, 64, 3, "cpu", groups=2)
    torch.manual_seed(3)
    for found, expected in zip(graph_tables(4, 64, 3, "cpu", groups=2), first, strict=True):
        torch.testing.assert_close(found, expected, equal_nan=True)


def test_what_columns_tell_of_a_target():
    draw = torch.Generator().manual_seed(0)
    X, noise = torch.randn(2, 400, 3, generator=draw), torch.randn(2, 400, generator=draw)
    y = torch.stack([X[0, :, 0].abs() + X[0, :, 1], noise[1]])
    share = told(X, y + 0.01 * noise)
    assert share[0] > 0.8
    assert share[1] < 0.05


def test_kept_tables_are_those_of_the_first_training():
    torch.manual_seed(1)
    several = KEPT["unseen"][:2]
    expected = [tables(*one[:3], "cpu") for one in several]
    found = kept_tables({"unseen": several}, "cpu")["unseen"]
    for (X, y, n), of_old, (*_, context) in zip(found, expected, several, strict=True):
        torch.testing.assert_close(X, of_old[0], equal_nan=True)
        torch.testing.assert_close(y, of_old[1])
        assert n == context


def test_half_of_a_batch_is_from_graphs(monkeypatch):
    monkeypatch.setattr("sharpgp_benchmarks.pretraining.training.WAITING", 2)
    asked = []

    def drawn(n, rows, columns, device, groups):
        asked.append(n)
        return torch.full((n, rows, columns), 7.0), torch.zeros(n, rows)

    monkeypatch.setattr("sharpgp_benchmarks.pretraining.training.graph_tables", drawn)
    source = batches(512, "cpu", 0, {32: 1})
    several = [next(source) for _ in range(6)]
    share = torch.cat([(X == 7.0).all(dim=(1, 2)).float() for X, *_ in several]).mean()
    assert asked
    assert 0.3 < share < 0.7
    assert all(4 <= n < 32 for *_, n in several)


def test_borders_increase():
    torch.manual_seed(0)
    found = borders(64, "cpu")
    assert len(found) == 65
    assert bool((found.diff() > 0).all())


def test_borders_are_those_that_are_shipped():
    with safe_open(WEIGHTS, "pt") as file:
        assert torch.equal(borders(640, "cpu"), file.get_tensor("borders"))


def test_crps_of_even_bins():
    """Against E|Z - y| - E|Z - Z'| / 2 by samples."""
    ends, logits = torch.linspace(-4.0, 4.0, 257), torch.randn(1, 256).repeat(2, 1)
    y = torch.tensor([0.3, -1.7])
    bins = torch.multinomial(logits[0].softmax(0), 40_000, True)
    z = ends[bins] + torch.rand(40_000) * ends.diff()[bins]
    spread = (z[:20_000] - z[20_000:]).abs().mean()
    expected = torch.stack([(z - one).abs().mean() for one in y]).mean() - spread / 2
    assert crps(ends, logits, y).item() == pytest.approx(expected.item(), rel=0.02)


def test_steps_lessen_the_loss():
    torch.manual_seed(0)
    network = PriorNetwork(TINY)
    network.borders.copy_(borders(TINY.n_bins, "cpu"))
    optimiser = Optimiser(network)
    X, y = tables(16, 64, 2, "cpu")
    found = []
    for _ in range(25):
        loss, score = losses_of(network, X, y, 48)
        (loss + score).backward()
        optimiser.step(1.0)
        found.append([loss.item(), score.item()])
    found = np.array(found)
    assert (found[-5:].mean(0) < found[0] - [0.1, 0.02]).all()


def state(folder):
    found = {}
    for part in STATE:
        with safe_open(folder / f"{part}.safetensors", "pt") as file:
            found |= {f"{part}.{k}": file.get_tensor(k) for k in file.keys()}  # noqa: SIM118
            facts = file.metadata()
    return found, int(facts["step"])


@pytest.fixture
def few_tables(monkeypatch):
    """Batches of one shape, drawn at once, by a clock that ticks when it is read."""
    ticks = SimpleNamespace(perf_counter=map(float, count()).__next__)
    monkeypatch.setattr("sharpgp_benchmarks.pretraining.training.time", ticks)
    monkeypatch.setattr("sharpgp_benchmarks.pretraining.training.ROWS", {32: 1})
    monkeypatch.setattr("sharpgp_benchmarks.pretraining.training.WIDTHS", {5: 1})
    monkeypatch.setattr("sharpgp_benchmarks.pretraining.training.WAITING", 1)
    return {"device": "cpu", "tokens": 512, "shape": TINY, "kept": SMALL, "graphs": False}


def test_training_goes_on_where_it_stopped(tmp_path, few_tables):
    train(20.0, tmp_path, **few_tables)
    first, step = state(tmp_path)
    assert step > 0
    assert any(bool(tensor.any()) for name, tensor in first.items() if "momenta" in name)
    train(0.0, tmp_path, **few_tables)  # no step: all is read, and written again
    again, same = state(tmp_path)
    assert same == step
    for name, tensor in first.items():
        assert torch.equal(again[name], tensor), name
    train(20.0, tmp_path, **few_tables)
    assert state(tmp_path)[1] > step
    curve = pd.read_csv(tmp_path / "curve.csv")
    assert curve["step"].is_monotonic_increasing
    assert curve["seconds"].is_monotonic_increasing


def test_a_finish_leaves_the_state(tmp_path, few_tables):
    train(20.0, tmp_path, finish=0.5, **few_tables)
    curve = pd.read_csv(tmp_path / "curve.csv")
    assert curve["finishing"].tolist() == [0, 1]
    kept, step = state(tmp_path)
    assert step == curve["step"].iloc[0] < curve["step"].iloc[1]
    with safe_open(tmp_path / "released.safetensors", "pt") as file:
        shape = Shape(**{name: int(value) for name, value in file.metadata().items()})
        weights = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
    assert shape == TINY
    PriorNetwork(shape).load_state_dict(weights)
    assert not torch.equal(weights["up.weight"], kept["weights.up.weight"])
