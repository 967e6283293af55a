"""Rows that belong together, and splits that keep them on one side."""

import torch
from torch import Tensor

from sharpgp.data.copies import equal_rows
from sharpgp.exceptions import InvalidInputError

# Inputs are few below this share of the rows, or below this number (and half of the rows).
_FEW_SHARE, _FEW = 0.1, 10.0

#: Rows to train on and rows to test with.
Split = tuple[Tensor, Tensor]


def row_labels(X: Tensor, groups: Tensor | None = None) -> Tensor:
    r"""Label [N] of each row: rows of one group, or with equal inputs, share it.

    A row does not test a model that has seen its input or its group.  Rows that are connected
    through equal inputs and groups, also by way of others, share a label.

    **Where inputs are few**, new rows repeat known inputs, and leaving out whole inputs would be
    the wrong test.  Rows with equal inputs may then be separated; groups may not.  With ``n_j`` of
    ``n`` rows (or groups, if given) under label ``j``, inputs are few if the effective number of
    labels ``n^2 / sum_j n_j^2`` is below ``n / 10``, or below 10 and ``n / 2``.

    Parameters
    ----------
    X : Tensor [N, d]
    groups : Tensor [N], optional
        Whole numbers, equal for rows of one group.

    Examples
    --------
    >>> X = torch.tensor([[0.0], [1.0], [1.0], [2.0], [3.0], [4.0]])
    >>> row_labels(X).tolist()
    [0, 1, 1, 2, 3, 4]
    >>> row_labels(X, torch.tensor([7, 7, 8, 9, 9, 9])).tolist()
    [0, 0, 0, 1, 1, 1]
    >>> row_labels(torch.tensor([[0.0], [1.0]]).repeat(40, 1)).unique().numel()  # two categories
    80
    """
    inputs = equal_rows(X)
    if groups is None and int(inputs.max()) == len(X) - 1:  # all different
        return inputs.to(X.device)
    units = torch.arange(len(X)) if groups is None else numbered(groups.cpu())
    joined = numbered(_connected(units, inputs))
    of_units = torch.zeros(int(units.max()) + 1, dtype=torch.long)
    of_units[units] = joined
    n, sizes = len(of_units), of_units.bincount().double()
    few = n**2 / float(sizes.square().sum()) < max(_FEW_SHARE * n, min(_FEW, n / 2))
    return (units if few else joined).to(X.device)


def split_parts(labels: Tensor, k: int, seed: int) -> list[Tensor]:
    """Random split into ``k`` parts of about equal size; rows of one label stay together.

    Fewer parts where there are fewer labels.  Rows of a single label are split one by one, as
    there is nothing else to split.

    Parameters
    ----------
    labels : Tensor [N]
    k : int
    seed : int

    Examples
    --------
    >>> [len(part) for part in split_parts(torch.arange(31), 10, seed=0)]
    [4, 3, 3, 3, 3, 3, 3, 3, 3, 3]
    >>> [part.tolist() for part in split_parts(torch.tensor([0, 0, 1, 1, 2, 2]), 3, seed=0)]
    [[2, 3], [4, 5], [0, 1]]
    """
    order, counted = _shuffled(len(labels), seed), numbered(labels.cpu())
    sizes = counted.bincount()
    if len(sizes) in (1, len(labels)):
        return list(order.to(labels.device).tensor_split(min(k, len(labels))))
    k = min(k, len(sizes))
    # Largest labels first, each into the part that has the fewest rows; equal ones at random.
    drawn = counted[order][first_of_each(counted[order])]
    rows_in, part_of = torch.zeros(k, dtype=torch.long), torch.empty_like(sizes)
    for label in drawn[sizes[drawn].argsort(descending=True, stable=True)].tolist():
        smallest = int(rows_in.argmin())
        part_of[label] = smallest
        rows_in[smallest] += sizes[label]
    of_rows = part_of[counted]
    return [(of_rows == j).nonzero()[:, 0].to(labels.device) for j in range(k)]


def holdout(labels: Tensor, n_held_out: int, seed: int) -> Split:
    """Random split: rows to keep, and about ``n_held_out`` rows of whole labels.

    Labels are taken in a random order until the number of rows is as close as it gets; at least
    one label stays on each side.

    Examples
    --------
    >>> kept, held_out = holdout(torch.arange(12) // 3, 4, seed=0)
    >>> kept.tolist(), held_out.tolist()
    ([3, 4, 5, 6, 7, 8, 9, 10, 11], [0, 1, 2])
    """
    counted = numbered(labels.cpu())
    sizes = counted.bincount()
    check_several(len(sizes))
    drawn = _shuffled(len(sizes), seed)
    total = sizes[drawn].cumsum(0)[:-1]
    n = int((total - n_held_out).abs().argmin()) + 1
    out = torch.isin(counted, drawn[:n]).to(labels.device)
    return (~out).nonzero()[:, 0], out.nonzero()[:, 0]


def one_per_label(labels: Tensor, seed: int) -> Tensor:
    """A random row of every label, in the order of the rows.

    Examples
    --------
    >>> one_per_label(torch.tensor([5, 5, 5, 2, 2, 9]), seed=0).tolist()
    [2, 3, 5]
    """
    order = _shuffled(len(labels), seed).to(labels.device)
    return order[first_of_each(labels[order])].sort().values


def check_several(n_labels: int) -> None:
    """Raise unless there are at least two labels to split."""
    if n_labels < 2:
        raise InvalidInputError(
            "groups: expected at least 2 groups of rows that belong together, found 1; "
            "a split would have an empty side"
        )


def _shuffled(n: int, seed: int) -> Tensor:
    return torch.randperm(n, generator=torch.Generator().manual_seed(seed))


def numbered(labels: Tensor) -> Tensor:
    """Labels renumbered from 0 in order of first occurrence."""
    first, place = _first_and_place(labels)
    return first.argsort().argsort()[place]


def first_of_each(labels: Tensor) -> Tensor:
    """Index [L] of the first occurrence of each label, in order."""
    return _first_and_place(labels)[0].sort().values


def _first_and_place(labels: Tensor) -> tuple[Tensor, Tensor]:
    """Index [L] of the first occurrence of each label, and which of these each row has [N]."""
    values, place = labels.unique(return_inverse=True)
    nowhere = torch.full((len(values),), len(labels), device=labels.device)
    at = torch.arange(len(labels), device=labels.device)
    return nowhere.scatter_reduce(0, place, at, "amin"), place


def _connected(a: Tensor, b: Tensor) -> Tensor:
    """Label [N] of the connected components of rows that share ``a`` or ``b``."""
    label = a.clone()
    while True:
        before = label
        for link in (b, a):
            least = torch.full((int(link.max()) + 1,), len(link)).scatter_reduce(
                0, link, label, "amin"
            )
            label = least[link]
        if torch.equal(label, before):
            return label
