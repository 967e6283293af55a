"""Labelled rows: what ``fit`` is given, checked; groups, copies, and what is held out."""

import numbers
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from sklearn.model_selection import train_test_split
from sklearn.utils import check_random_state
from torch import Tensor

from sharpgp._inputs import plain
from sharpgp._validation import as_labels, as_numpy
from sharpgp.exceptions import InvalidInputError
from sharpgp.gp.sizes import MOST_CALIBRATING
from sharpgp.models import folds
from sharpgp.models.copies import without_copies
from sharpgp.models.folds import together


@dataclass(frozen=True)
class Rows:
    """Labelled rows: ``X`` (n, d), ``y`` (n,), and whole numbers (n,) for groups if there are."""

    X: np.ndarray
    y: np.ndarray
    groups: np.ndarray | None = None

    def __getitem__(self, rows: np.ndarray) -> "Rows":
        groups = None if self.groups is None else self.groups[rows]
        return Rows(self.X[rows], self.y[rows], groups)

    def __len__(self) -> int:
        return len(self.y)

    def labels(self) -> Tensor:
        """Which rows belong :func:`~sharpgp.models.folds.together`."""
        groups = None if self.groups is None else torch.tensor(self.groups)
        return together(torch.tensor(self.X), groups)


def group_numbers(
    groups: Any, n_rows: int, groups_cal: Any, n_cal: int
) -> tuple[np.ndarray | None, np.ndarray | None]:
    """Groups of training and calibration rows as whole numbers, the same for the same name.

    Examples
    --------
    >>> group_numbers(["a", "b"], 2, ["b", "c", "c"], 3)
    (array([0, 1]), array([1, 2, 2]))
    """
    given = [(groups, n_rows), (groups_cal, n_cal)]
    named = [(names, n) for names, n in given if names is not None]
    for names, n in named:
        as_labels(names, n_rows=n)
    if not named:
        return None, None
    every = np.concatenate([np.asarray(plain(names), dtype=object).ravel() for names, _ in named])
    numbers_of = as_labels(every, n_rows=len(every)).numpy()
    first = n_rows if groups is not None else 0
    return (
        None if groups is None else numbers_of[:first],
        None if groups_cal is None else numbers_of[first:],
    )


def each_once(train: Rows, cal: Rows | None, weights: Any) -> tuple[Rows, Rows | None, Any]:
    """The same rows and calibration weights without copies, of which there is a warning.

    Of copies on both sides the one that calibrates stays: a model that has seen a row is no
    judge of it.
    """
    ours, theirs = first_of_copies(train, cal)
    if isinstance(weights, np.ndarray):
        weights = weights[ours if cal is None else theirs]
    return train[ours], None if cal is None else cal[theirs], weights


def first_of_copies(train: Rows, cal: Rows | None) -> tuple[np.ndarray, np.ndarray]:
    """Masks of training and calibration rows that are not copies of others; a warning of those."""
    sides = [train] if cal is None else [cal, train]
    X, y = (np.concatenate([getattr(side, key) for side in sides]) for key in ("X", "y"))
    groups = None
    if all(side.groups is not None for side in sides):
        groups = torch.from_numpy(np.concatenate([side.groups for side in sides]))
    kept = without_copies(torch.from_numpy(X), torch.from_numpy(y), groups).numpy()
    return kept[len(kept) - len(train) :], kept[: len(kept) - len(train)]


def with_earlier(
    calibrated: Any, X: Tensor, y: Tensor, *, grouped: bool
) -> tuple[Rows, Callable[..., Any] | None]:
    """All points that a predictor rests on and further ones, and the function for weights."""
    if grouped:
        raise InvalidInputError(
            "refit: expected a model fitted without groups, found one with groups, which are not "
            "stored; call fit with all points and their groups"
        )
    weights = getattr(calibrated, "ratio", None)
    if weights is None and getattr(calibrated, "weights", None) is not None:
        raise InvalidInputError(
            "refit: expected weights of all points, found those of calibration points only; "
            "call fit with all points and their weights"
        )
    X_old, y_old = calibrated.labelled_data()
    return Rows(as_numpy(torch.cat([X_old, X])), as_numpy(torch.cat([y_old, y]))), weights


def held_out_rows(
    rows: Rows, weights: Any, cal_size: float, seed: int | None
) -> tuple[Rows, Rows, Any]:
    """Rows to train on and to calibrate with, and the weights of the latter; see `holdout`."""
    train, cal = holdout(rows.labels(), cal_size, seed)
    if isinstance(weights, np.ndarray):
        weights = weights[cal]
    return rows[train], rows[cal], weights


def holdout(labels: Tensor, cal_size: float, seed: int | None) -> tuple[np.ndarray, np.ndarray]:
    """Rows to train on and rows to calibrate with, drawn at random.

    Parameters
    ----------
    labels : Tensor [n]
        Rows that share one are on the same side.
    cal_size : float or int
        Fraction (of them at most :data:`~sharpgp.gp.sizes.MOST_CALIBRATING`) or number of the rows
        that calibrate; see :class:`sharpgp.SharpGPRegressor`.
    seed : int or None

    Examples
    --------
    >>> rows, cal = holdout(torch.arange(400), 0.25, 0)
    >>> len(rows), len(cal)
    (301, 99)
    """
    n_rows = len(labels)
    whole = isinstance(cal_size, numbers.Integral) and not isinstance(cal_size, bool)
    most = n_rows if whole else 1
    if not (isinstance(cal_size, numbers.Real) and 0 < cal_size < most):
        raise InvalidInputError(
            f"cal_size: expected a fraction in (0, 1) or a count below {n_rows}, found {cal_size!r}"
        )
    wanted = min(round(float(cal_size) * n_rows), MOST_CALIBRATING)
    n_cal = int(cal_size) if whole else max(2, _without_waste(wanted))
    if n_rows - n_cal < 2:
        raise InvalidInputError(
            f"expected at least 4 samples, 2 to train on and 2 to calibrate with, found {n_rows} "
            f"with cal_size={cal_size!r}; add data or give X_cal and y_cal"
        )
    if len(labels.unique()) == n_rows:
        rows, cal = train_test_split(np.arange(n_rows), test_size=n_cal, random_state=seed)
        return rows, cal
    drawn = int(check_random_state(seed).randint(2**31 - 1))
    kept, held_out = folds.holdout(labels, n_cal, drawn)
    return kept.numpy(), held_out.numpy()


def _without_waste(n_cal: int) -> int:
    """A ``C`` for which 80, 90 and 95 % intervals end at whole ranks, if one is within 5 %.

    An interval at coverage ``c`` ends at rank ``ceil(c (C + 1))``: with 78 points, 95 % intervals
    would cover 96.2 %, with 79 they cover 95 %.

    Examples
    --------
    >>> [_without_waste(n_cal) for n_cal in (78, 101, 25)]
    [79, 99, 25]
    """
    better = 20 * round((n_cal + 1) / 20) - 1
    return better if abs(better - n_cal) <= 0.05 * n_cal else n_cal
