"""Splits for cross-validation, by a number of parts or a splitter."""

from collections.abc import Iterable, Sequence
from typing import Any, Literal, Protocol

import numpy as np
import torch
from numpy.typing import ArrayLike
from sklearn.model_selection import TimeSeriesSplit
from torch import Tensor

from sharpgp._validation import as_count
from sharpgp.data.folds import Split, check_several, holdout, row_labels, split_parts
from sharpgp.exceptions import InvalidInputError
from sharpgp.policy import LEARNINGS, Policy


class Splitter(Protocol):
    """A splitter of scikit-learn, such as ``KFold`` or ``TimeSeriesSplit``."""

    def split(
        self, X: np.ndarray, y: np.ndarray | None = None, groups: np.ndarray | None = None
    ) -> Iterable[tuple[np.ndarray, np.ndarray]]:
        """Numbers of the rows to train on, and of those to test with, split by split."""


#: What ``folds=`` takes: a number of parts, "ordered" for rows in order of time, a splitter, or
#: pairs (rows to train on, to test with).
Folds = Literal["auto", "ordered"] | int | Splitter | Sequence[tuple[ArrayLike, ArrayLike]]


def complements(n: int, tests: Iterable[Tensor]) -> list[Split]:
    """Splits with these rows to test with, of ``n``, and all others to train on.

    Examples
    --------
    >>> complements(4, [torch.tensor([3, 1])])
    [(tensor([0, 2]), tensor([3, 1]))]
    """
    found = []
    for test in tests:
        rest = torch.ones(n, dtype=torch.bool, device=test.device)
        rest[test] = False
        found.append((rest.nonzero()[:, 0], test))
    return found


def learning_pairs(labels: Tensor, seed: int, policy: Policy | None = None) -> list[Split]:
    """Splits for every learning of a model: rows that it may see, and rows that it scores.

    One of them scores each row; of many rows, only a random sample as large as the policy allows.
    Rows of one label are on one side.

    Examples
    --------
    >>> [len(test) for _, test in learning_pairs(torch.arange(103), 0)]
    [21, 21, 21, 20, 20]
    >>> [len(test) for _, test in learning_pairs(torch.arange(30_000), 0)]
    [1000, 1000, 1000, 1000, 1000]
    """
    n, most = len(labels), (policy or Policy()).scored_rows
    scored = torch.arange(n, device=labels.device)
    if n > most:
        scored = holdout(labels, most, seed)[1]
    return complements(n, [scored[part] for part in split_parts(labels[scored], LEARNINGS, seed)])


def quick_pairs(labels: Tensor, k: int, seed: int) -> list[Split]:
    """Splits that leave out each of ``k`` parts in turn."""
    return complements(len(labels), split_parts(labels, k, seed))


def check_folds(folds: Any) -> None:
    """Refuse a number of parts below two; splitters and pairs are checked by their splits."""
    if not (_is_splitter(folds) or isinstance(folds, list | tuple) or folds == "ordered"):
        as_count(folds, "folds", least=2)


def _is_splitter(folds: Any) -> bool:
    return callable(getattr(folds, "split", None)) and not isinstance(folds, str)


def splits(folds: Any, X: Tensor, y: Tensor, groups: Tensor | None, seed: int) -> list[Split]:
    """Splits for cross-validation, by a number of parts or a splitter.

    Parameters
    ----------
    folds : int, "ordered", splitter or list of pairs
        A number gives :func:`parts` of what belongs :func:`together`; "ordered" five tests of
        consecutive rows, each predicted from all before it.  A splitter has
        scikit-learn's ``split(X, y, groups)``.  Its splits are used unchanged, as is a list of
        pairs (rows to train on, rows to test with).
    X, y : Tensor [N, d], Tensor [N]
    groups : Tensor [N], optional
    seed : int

    Examples
    --------
    >>> X = torch.arange(6.0)[:, None]
    >>> pairs = [([0, 1, 2, 3], [4]), ([0, 1, 2, 3, 4], [5])]
    >>> [test.tolist() for _, test in splits(pairs, X, X, None, 0)]
    [[4], [5]]
    """
    n = len(y)
    if isinstance(folds, str) and folds == "ordered":
        folds = TimeSeriesSplit()
    if _is_splitter(folds):
        of_groups = None if groups is None else groups.cpu().numpy()
        pairs = list(folds.split(X.cpu().numpy(), y.cpu().numpy(), of_groups))
    elif isinstance(folds, list | tuple):
        pairs = list(folds)
    else:
        labels = row_labels(X, groups)
        k = min(as_count(folds, "folds", least=2), n)
        check_several(len(labels.unique()))
        return complements(n, split_parts(labels, k, seed))
    found = [_rows_of(pair, n, X.device) for pair in pairs]
    tested = torch.cat([test for _, test in found]) if found else torch.empty(0)
    if len(tested.unique()) < len(tested):
        raise InvalidInputError(
            "folds: expected test sets that do not overlap, found a row in two of them; "
            "use a splitter that tests each row at most once"
        )
    if len(tested) < 2:
        raise InvalidInputError(f"folds: expected at least 2 test rows, found {len(tested)}")
    return found


def _rows_of(pair: Any, n: int, device: torch.device) -> Split:
    """One split as tensors, checked."""
    try:
        train, test = (np.asarray(side) for side in pair)
    except (TypeError, ValueError):
        raise InvalidInputError(
            "folds: expected a number, 'ordered', a splitter or pairs of rows (train, test), "
            f"found {type(pair).__name__}"
        ) from None
    sides = []
    for side in (train, test):
        rows = np.flatnonzero(side) if side.dtype == bool else side
        whole = rows.ndim == 1 and rows.dtype.kind in "iu" and len(rows) > 0
        if not whole or rows.min() < 0 or rows.max() >= n or len(set(rows.tolist())) < len(rows):
            raise InvalidInputError(
                f"folds: expected distinct row numbers from 0 to {n - 1}, found {side!r:.60}"
            )
        sides.append(torch.from_numpy(rows.astype(np.int64)).to(device))
    if len(sides[0]) < 4 or bool(torch.isin(*sides).any()):
        raise InvalidInputError(
            "folds: expected at least 4 rows to train on and none of them to test with, found "
            f"{len(sides[0])} rows, {int(torch.isin(*sides).sum())} of them on both sides"
        )
    return sides[0], sides[1]
