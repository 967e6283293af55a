"""Rows that occur more than once: copies of a row, or separate measurements that agree."""

import numpy as np
import torch
from torch import Tensor

from sharpgp.exceptions import warn
from sharpgp.models.folds import equal_rows

# Rows of equal inputs whose targets agree this many times as often as those of other rows are
# copies, as far as chance goes; and from this share on, where many targets agree by chance.
_OFTEN, _NEARLY_ALL, _MUCH_MORE = 10.0, 0.9, 2.0
# Pairs that agree, for each that differs by one or two steps of the target's resolution: separate
# measurements that are rounded to a step differ by one about as often as they agree.
_ROUNDED = 2.0
# Distinct rows, or inputs, below which nothing is concluded; and times that a row occurs on
# average beyond which it is a category with its usual value.
_LEAST_ROWS, _LEAST_INPUTS, _MOST_TIMES = 20, 5, 20


def without_copies(X: Tensor, y: Tensor, groups: Tensor | None = None) -> Tensor:
    r"""Mark every row [N] but those that copy an earlier one; warn if there are such.

    A copy tells nothing new, but a model that counts it takes what it repeats for certain.
    Candidates are rows that are equal in every feature, in ``y`` and, where they are given, in
    their group.  Separate measurements can agree like this, too, if ``y`` is discrete or rounded;
    with ``s`` the share of pairs with equal ``X`` whose ``y`` agree, and ``o`` that share among
    pairs with different ``X``, candidates are copies if

    - ``s > 10 o``, or, with 20 distinct inputs or more, ``s > 0.9`` and ``s > 2 o``;
    - pairs with equal ``X`` agree more than twice as often as they differ by one or two steps of
      the smallest difference between targets, as rounded measurements would; and
    - there are 20 distinct rows or 5 distinct inputs, and each occurs 20 times at most on
      average.

    Counts or grades at a few categories do not pass.

    Parameters
    ----------
    X, y : Tensor [N, d], Tensor [N]
    groups : Tensor [N], optional
        Rows of different groups are never copies of one another.

    Returns
    -------
    Tensor [N] of bool

    Examples
    --------
    >>> import warnings
    >>> X = torch.linspace(0, 1, 20, dtype=torch.float64)[:, None]
    >>> with warnings.catch_warnings(record=True) as caught:
    ...     warnings.simplefilter("always")
    ...     kept = without_copies(X.repeat(2, 1), X[:, 0].sin().repeat(2))
    >>> int(kept.sum()), str(caught[0].message)[:37]
    (20, '20 of 40 rows are copies of other row')
    """
    everything = torch.ones(len(y), dtype=torch.bool, device=y.device)
    inputs = equal_rows(X)
    given = torch.zeros_like(inputs) if groups is None else groups.to(inputs.device)
    y = y.cpu()
    rows = equal_rows(torch.stack([inputs.double(), given.double(), y], dim=1)).numpy()
    first = np.zeros(len(y), dtype=bool)
    first[np.unique(rows, return_index=True)[1]] = True
    if first.all() or not _are_copies(inputs.numpy(), y.numpy()):
        return everything
    n, alike = len(y), "equal in every feature and in y"
    if groups is not None:
        alike = "equal in every feature, in y and in their group"
    warn(
        f"{n - first.sum()} of {n} rows are copies of other rows ({alike}); each is used once. "
        "If they are separate measurements, give each row a group of its own: "
        "groups=np.arange(len(y))"
    )
    return torch.from_numpy(first).to(everything.device)


def _are_copies(inputs: np.ndarray, y: np.ndarray) -> bool:
    """Whether targets agree at equal inputs because rows were copied, by the rule above."""
    values, place = np.unique(y, return_inverse=True)
    cells, counts = np.unique(np.stack([inputs, place], axis=1), axis=0, return_counts=True)
    at_inputs = np.bincount(inputs)
    same, agreeing = _pairs(at_inputs), _pairs(counts)
    others = len(y) * (len(y) - 1) / 2 - same
    s = agreeing / max(same, 1.0)
    o = (_pairs(np.bincount(place)) - agreeing) / max(others, 1.0)
    often = s > _OFTEN * o
    nearly_all = s > max(_NEARLY_ALL, _MUCH_MORE * o) and len(at_inputs) >= _LEAST_ROWS
    enough = len(cells) >= _LEAST_ROWS or len(at_inputs) >= _LEAST_INPUTS
    return bool(
        (often or nearly_all)
        and enough
        and len(y) <= _MOST_TIMES * len(cells)
        and agreeing > _ROUNDED * _close(cells, counts, values)
    )


def _close(cells: np.ndarray, counts: np.ndarray, values: np.ndarray) -> float:
    """Pairs with equal inputs whose targets differ by one or two of the smallest steps."""
    if len(values) < 2:
        return 0.0
    reach = 2.0 * np.diff(values).min() * (1.0 + 1e-6)  # decimal fractions are not exact
    total = 0.0
    for k in (1, 2):  # cells are sorted, and their targets at least one step apart
        near = values[cells[k:, 1]] - values[cells[:-k, 1]] <= reach
        near &= cells[k:, 0] == cells[:-k, 0]
        total += float((counts[k:] * counts[:-k])[near].sum())
    return total


def _pairs(counts: np.ndarray) -> float:
    return float((counts * (counts - 1.0)).sum() / 2.0)
