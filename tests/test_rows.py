"""Rows and their roles."""

import dataclasses

import pytest
import torch

from sharpgp._stored import Reader, Writer
from sharpgp.exceptions import InvalidInputError
from sharpgp.rows import ROLES, Rows


def some_rows(n=4, **less):
    values = torch.arange(float(n), dtype=torch.float64)
    roles = {"noise": values, "weight": 1 + values, "unit": torch.arange(n) // 2}
    return Rows(values[:, None] * torch.ones(1, 3).double(), **{**roles, **less})


@pytest.mark.parametrize(
    "which", [torch.tensor([True, False, True, False]), torch.tensor([0, 2]), slice(0, 4, 2)]
)
def test_selected_rows_keep_their_roles(which):
    rows = some_rows()[which]
    assert len(rows) == 2
    assert rows.X[:, 0].tolist() == rows.noise.tolist() == [0.0, 2.0]
    assert rows.weight.tolist() == [1.0, 3.0]
    assert rows.unit.tolist() == [0, 1]


def test_split_and_joined_rows_are_the_same():
    rows = some_rows(5)
    again = Rows.join(*rows.split(2))
    assert [len(block) for block in rows.split(2)] == [2, 2, 1]
    for name in ("X", *ROLES):
        assert torch.equal(getattr(again, name), getattr(rows, name))


def test_no_rows_are_rows():
    none = some_rows()[:0]
    assert len(none) == 0
    assert [len(block) for block in none.split(9)] == [0]
    assert torch.equal(Rows.join(none, some_rows()).X, some_rows().X)


def test_features_alone_stand_for_rows_without_roles():
    X = torch.ones(2, 3).double()
    rows = Rows.of(X)
    assert rows.X is X
    assert Rows.of(rows) is rows
    assert all(getattr(rows, name) is None for name in ROLES)


def test_rows_without_weight_count_one():
    both = Rows.join(some_rows(2, noise=None, unit=None), torch.ones(1, 3).double())
    assert both.weight.tolist() == [1.0, 2.0, 1.0]


@pytest.mark.parametrize("name", ["noise", "unit"])
def test_noise_and_units_are_known_for_all_rows_or_none(name):
    others = {role: None for role in ROLES if role != name}
    with pytest.raises(InvalidInputError, match=f"{name}: expected it for all rows"):
        Rows.join(some_rows(2, **others), torch.ones(1, 3).double())
    # Where one part has no rows, nothing is missing.
    none = torch.ones(0, 3).double()
    assert len(Rows.join(some_rows(2, **others), none)) == 2


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ({"X": torch.ones(3).double()}, "rows: expected features"),
        ({"X": [[1.0]]}, "found list"),
        ({"noise": torch.ones(3).double()}, "noise: expected 4 numbers"),
        ({"weight": torch.ones(4, 1).double()}, "weight: expected 4 numbers"),
        ({"weight": torch.ones(4).long()}, "weight: expected floating"),
        ({"unit": torch.ones(4).double()}, "unit: expected whole"),
    ],
)
def test_roles_that_do_not_fit(wrong, message):
    with pytest.raises(InvalidInputError, match=message):
        dataclasses.replace(some_rows(), **wrong)


def test_rows_are_frozen_and_say_what_they_have():
    rows = some_rows()
    with pytest.raises(dataclasses.FrozenInstanceError):
        rows.noise = None
    assert repr(rows) == "<Rows: 4 of 3 features, with noise and weight and unit>"
    assert repr(rows.without(*ROLES)) == "<Rows: 4 of 3 features>"


@pytest.mark.parametrize("rows", [some_rows(), some_rows().without("noise", "unit")])
def test_rows_are_stored(rows):
    writer = Writer()
    content = writer.encode(rows, "rows")
    again = Reader(writer.objects, writer.tensors).decode(content)
    for name in ("X", *ROLES):
        ours, theirs = getattr(rows, name), getattr(again, name)
        assert (ours is None and theirs is None) or torch.equal(ours, theirs)
