"""What the estimator takes: arrays, frames and tensors; and data that a GP cannot fit sensibly."""

import numbers
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from sklearn.base import BaseEstimator
from sklearn.model_selection import train_test_split
from sklearn.utils import check_random_state
from sklearn.utils.validation import validate_data
from torch import Tensor

from sharpgp._validation import as_labels, refuse_other_kinds
from sharpgp.exceptions import InvalidInputError, warn
from sharpgp.gp.scaling import Affine
from sharpgp.models import folds
from sharpgp.models.copies import without_copies
from sharpgp.models.folds import together

#: Least spread of the middle half of a column, in standard deviations, that passes without a
#: warning: the noise floor of training is 1e-3 standard deviations of the target.
SMALLEST_MIDDLE = 1e-3
#: Targets below this are next to the numbers that have no precision left.
SMALLEST_TARGET = 1e-280


def validated(estimator: BaseEstimator, *data: Any, **checks: Any) -> Any:
    """scikit-learn's checks, and our error for whole numbers that no float can hold."""
    try:
        return validate_data(estimator, *map(plain, data), dtype=np.float64, **checks)
    except OverflowError:
        raise InvalidInputError("expected numbers up to 1.8e308, found larger ones") from None


def plain(data: Any) -> Any:
    """Torch tensors as NumPy; everything else as it is, so that column names survive.

    Dates and masks are refused here, because scikit-learn's checks let them pass as numbers.
    """
    if isinstance(data, Tensor):
        return data.detach().cpu().numpy()
    refuse_other_kinds(data, "data", but="c")  # scikit-learn refuses complex numbers by itself
    return data


def seed_of(random_state: Any) -> int | None:
    """A seed from what scikit-learn takes for one; a RandomState instance draws it.

    Examples
    --------
    >>> seed_of(3), seed_of(None), seed_of(np.random.RandomState(0))
    (3, None, 209652396)
    """
    if random_state is None or isinstance(random_state, numbers.Integral):
        return None if random_state is None else int(random_state)
    try:
        return int(check_random_state(random_state).randint(2**31 - 1))
    except ValueError:
        raise InvalidInputError(
            "random_state: expected None, a whole number or a numpy RandomState, "
            f"found {random_state!r}"
        ) from None


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
    sides = [train] if cal is None else [cal, train]
    X, y = (np.concatenate([getattr(side, key) for side in sides]) for key in ("X", "y"))
    groups = None
    if all(side.groups is not None for side in sides):
        groups = torch.from_numpy(np.concatenate([side.groups for side in sides]))
    kept = without_copies(torch.from_numpy(X), torch.from_numpy(y), groups).numpy()
    if kept.all():
        return train, cal, weights
    first = kept[: len(sides[0])]
    if isinstance(weights, np.ndarray):
        weights = weights[first]
    return train[kept[-len(train) :]], None if cal is None else cal[first], weights


def holdout(labels: Tensor, cal_size: float, seed: int | None) -> tuple[np.ndarray, np.ndarray]:
    """Rows to train on and rows to calibrate with, drawn at random.

    Parameters
    ----------
    labels : Tensor [n]
        Rows that share one are on the same side.
    cal_size : float or int
        Fraction or number of the rows that calibrate; see :class:`sharpgp.SharpGPRegressor`.
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
    n_cal = int(cal_size) if whole else max(2, _without_waste(round(float(cal_size) * n_rows)))
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


def check_training_data(X: np.ndarray, y: np.ndarray) -> None:
    """Errors and warnings for data that a GP can be asked to fit but not sensibly."""
    if bool(Affine.is_constant(torch.from_numpy(y))):
        raise InvalidInputError(
            f"y: expected a target that varies, found {y[0]:g} in all {len(y)} training rows"
        )
    if float(np.abs(y).max()) < SMALLEST_TARGET:
        raise InvalidInputError(
            f"y: expected magnitudes above {SMALLEST_TARGET:g}, found {np.abs(y).max():g} at most; "
            "choose other units"
        )
    constant = np.flatnonzero(np.ptp(X, axis=0) == 0)
    if constant.size:
        warn(
            f"X: column(s) {constant.tolist()} are constant in the training rows and carry no "
            "information; remove them",
            UserWarning,
        )
    seen: dict[bytes, int] = {}
    for j in range(X.shape[1]):
        first = seen.setdefault(X[:, j].tobytes(), j)
        if first != j and j not in constant:
            warn(f"X: column {j} repeats column {first}; remove one of them", UserWarning)
    _warn_of_outliers(X, y)


def _warn_of_outliers(X: np.ndarray, y: np.ndarray) -> None:
    """A few values so large that, in their units, all the others are one and the same."""
    columns = [f"X: column {j}" for j in range(X.shape[1])]
    for name, values in zip([*columns, "y"], [*X.T, y], strict=True):
        values = values / (np.abs(values).max() or 1.0)
        low, quarter, three_quarters, high = np.quantile(values, [0.1, 0.25, 0.75, 0.9])
        middle = (three_quarters - quarter) or (high - low)
        if 0 < middle < SMALLEST_MIDDLE * values.std():
            warn(
                f"{name}: a few values lie so far out that the others differ by less than "
                f"{SMALLEST_MIDDLE:g} standard deviations, which the GP cannot resolve; "
                "check them, remove them or take logarithms",
                UserWarning,
            )
