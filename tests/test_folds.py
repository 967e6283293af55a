"""Which rows belong together, and splits of them: nothing here fits a model."""

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn.model_selection import KFold, ShuffleSplit, TimeSeriesSplit

from sharpgp._validation import as_labels
from sharpgp.data import copies
from sharpgp.data.copies import equal_rows
from sharpgp.data.folds import holdout, one_per_label, row_labels, split_parts
from sharpgp.exceptions import InvalidInputError
from sharpgp.models.splitters import splits

LABELS = st.lists(st.integers(0, 12), min_size=2, max_size=60).map(torch.tensor)


# ------------------------------------------------------------------ parts


@pytest.mark.parametrize(("n", "k"), [(31, 10), (25, 10), (11, 10), (45, 20), (60, 59), (5, 9)])
def test_rows_that_stand_alone_come_in_as_many_equal_parts_as_asked_for(n, k):
    sizes = [len(part) for part in split_parts(torch.arange(n), k, seed=3)]
    assert len(sizes) == min(n, k)
    assert max(sizes) - min(sizes) <= 1
    order = torch.randperm(n, generator=torch.Generator().manual_seed(3))
    assert torch.equal(torch.cat(split_parts(torch.arange(n), k, seed=3)), order)


@settings(max_examples=60, deadline=None)
@given(LABELS, st.integers(2, 12), st.integers(0, 5))
def test_parts_are_a_partition_into_whole_labels(labels, k, seed):
    found = split_parts(labels, k, seed)
    assert torch.equal(torch.cat(found).sort().values, torch.arange(len(labels)))
    several = len(labels.unique()) > 1
    if several:
        assert len(found) == min(k, len(labels.unique()))
        in_parts = [set(labels[part].tolist()) for part in found]
        assert sum(map(len, in_parts)) == len(labels.unique())
        # The largest-first rule: no part is larger than the smallest by more than one label.
        sizes = sorted(len(part) for part in found)
        assert sizes[-1] - sizes[0] <= int(labels.bincount().max())


@settings(max_examples=60, deadline=None)
@given(LABELS, st.integers(1, 40), st.integers(0, 5))
def test_a_holdout_is_made_of_whole_labels(labels, n, seed):
    if len(labels.unique()) < 2:
        with pytest.raises(InvalidInputError, match="at least 2 groups"):
            holdout(labels, n, seed)
        return
    rows, held_out = holdout(labels, n, seed)
    assert min(len(rows), len(held_out)) > 0
    assert torch.equal(torch.cat([rows, held_out]).sort().values, torch.arange(len(labels)))
    assert not set(labels[rows].tolist()) & set(labels[held_out].tolist())


def test_a_holdout_has_about_the_size_asked_for():
    labels = torch.arange(400) // 4
    sizes = [len(holdout(labels, 99, seed)[1]) for seed in range(20)]
    assert set(sizes) == {100}
    assert len({tuple(holdout(labels, 99, seed)[1].tolist()) for seed in range(20)}) == 20


def test_one_of_each_takes_every_row_about_equally_often():
    labels = torch.tensor([0, 0, 0, 1, 2, 2])
    counts = np.bincount(
        np.concatenate([one_per_label(labels, s) for s in range(600)]), minlength=6
    )
    assert counts[3] == 600
    np.testing.assert_allclose(counts[[0, 1, 2]], 200, atol=5 * np.sqrt(600 * 2 / 9))
    np.testing.assert_allclose(counts[[4, 5]], 300, atol=5 * np.sqrt(600 / 4))


# ------------------------------------------------------------------ together


def test_rows_are_connected_through_equal_inputs_and_groups():
    X = torch.arange(30.0)[:, None]
    X[1], X[12] = X[0], X[11]
    alone = row_labels(X)
    assert alone[0] == alone[1]
    assert len(alone.unique()) == 28
    groups = torch.arange(30) // 2  # rows 10, 11 and 12, 13 are connected by 11 and 12
    both = row_labels(X, groups)
    assert both[10] == both[11] == both[12] == both[13]
    assert len(both.unique()) == 14


def test_zero_has_no_sign():
    assert equal_rows(torch.tensor([[0.0], [-0.0], [1.0]])).tolist() == [0, 0, 1]


@pytest.mark.parametrize("mixed", [copies._mixed, lambda words: words[:, 0] % np.uint64(2)])
def test_equal_rows_are_those_that_agree_in_every_feature(monkeypatch, mixed):
    """Also where different rows share the number that they are told apart by at first."""
    monkeypatch.setattr(copies, "_mixed", mixed)
    X = torch.from_numpy(np.random.default_rng(0).integers(3, size=(200, 3)) - 1.0)
    known: dict[tuple[float, ...], int] = {}
    expected = [known.setdefault(tuple(row), len(known)) for row in X.tolist()]
    assert equal_rows(X).tolist() == expected
    assert equal_rows(X[[expected.index(label) for label in range(len(known))]]).tolist() == [
        *range(len(known))
    ]


def test_few_inputs_are_split_row_by_row_but_groups_are_kept():
    few = torch.arange(160)[:, None] % 3 * 1.0
    assert len(row_labels(few).unique()) == 160
    groups = torch.arange(160) // 4
    assert torch.equal(row_labels(few, groups), groups)
    grid = torch.arange(100)[:, None] % 20 * 1.0  # twenty inputs, five times each
    assert len(row_labels(grid).unique()) == 20
    one_frequent = torch.cat([torch.zeros(150, 1), torch.arange(1, 51.0)[:, None]])
    assert len(row_labels(one_frequent).unique()) == 200


# ------------------------------------------------------------------ splitters and labels


def test_a_splitter_is_taken_at_its_word():
    X, y = torch.randn(20, 2), torch.randn(20)
    for splitter in (KFold(4), TimeSeriesSplit(3), list(KFold(4).split(X))):
        expected = splitter if isinstance(splitter, list) else list(splitter.split(X))
        for ours, theirs in zip(splits(splitter, X, y, None, 0), expected, strict=True):
            assert ours[0].tolist() == theirs[0].tolist()
            assert ours[1].tolist() == theirs[1].tolist()
    masks = [(np.arange(20) < 15, np.arange(20) >= 15)]
    assert splits(masks, X, y, None, 0)[0][1].tolist() == [15, 16, 17, 18, 19]


@pytest.mark.parametrize(
    ("folds", "message"),
    [
        (ShuffleSplit(3, random_state=0), "do not overlap"),
        ([([0, 1, 2, 3, 4], [4, 5])], "1 of them on both sides"),
        ([([0, 1, 2], [4, 5])], "at least 4 rows"),
        ([([0, 1, 2, 3], [20])], "row numbers from 0 to 19"),
        ([([0, 1, 2, 3], [5])], "at least 2 test rows"),
        ([3], "found int"),
        ([], "at least 2 test rows"),
        (1, "folds: expected a whole number of at least 2"),
        ("five", "folds: expected a whole number"),
    ],
)
def test_folds_that_cannot_be_used(folds, message):
    with pytest.raises(InvalidInputError, match=message) as raised:
        splits(folds, torch.randn(20, 2), torch.randn(20), None, 0)
    assert "\n" not in str(raised.value)


def test_labels_from_anything_that_can_be_compared():
    import pandas as pd

    expected = [0, 1, 0, 2]
    for groups in (
        ["a", "b", "a", "c"],
        np.array([3, 1, 3, 7]),
        torch.tensor([3, 1, 3, 7]),
        pd.Series(["a", "b", "a", "c"], index=[5, 6, 7, 8], dtype="category"),
        [("a", 1), ("b", 1), ("a", 1), ("a", 2)],
        pd.Series(pd.to_datetime(["2024-01-01", "2024-01-02", "2024-01-01", "2024-01-03"])),
    ):
        assert as_labels(groups, n_rows=4).tolist() == expected


@pytest.mark.parametrize(
    "groups", [[1, 2], 3, "abcd!", [1, 2, 3, None], [1.0, np.nan, 2.0, 3.0], [[1], {}, 2, 3]]
)
def test_labels_that_cannot_be_used(groups):
    with pytest.raises(InvalidInputError, match="groups: expected") as raised:
        as_labels(groups, n_rows=4)
    assert "\n" not in str(raised.value)
