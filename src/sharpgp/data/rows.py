"""Labelled rows: groups, equal inputs, repeated tables, holdouts."""

import numbers
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch
from sklearn.model_selection import train_test_split
from sklearn.utils import check_random_state
from torch import Tensor

from sharpgp._validation import as_float, as_labels, as_numpy
from sharpgp.data import folds
from sharpgp.data.copies import TOLERANCE, HiddenCopies, equal_rows
from sharpgp.data.folds import numbered, row_labels
from sharpgp.data.inputs import plain
from sharpgp.exceptions import InvalidInputError, warn
from sharpgp.policy import SCORED_ROWS
from sharpgp.rows import Rows


@dataclass(frozen=True)
class LabelledRows:
    """What ``fit`` was given: features (n, d), and by row the target and what else is known.

    As arrays, before any model: :meth:`rows` gives what models take.
    """

    X: np.ndarray
    y: np.ndarray
    groups: np.ndarray | None = None
    noise: np.ndarray | None = None
    weight: np.ndarray | None = None

    def __getitem__(self, rows: np.ndarray) -> "LabelledRows":
        some: dict[str, Any] = {
            name: None if value is None else value[rows] for name, value in vars(self).items()
        }
        return LabelledRows(**some)

    def __len__(self) -> int:
        return len(self.y)

    def labels(self) -> Tensor:
        """Which rows belong together, :func:`~sharpgp.data.folds.row_labels`."""
        groups = None if self.groups is None else torch.tensor(self.groups)
        return row_labels(torch.tensor(self.X), groups)

    @property
    def roles(self) -> frozenset[str]:
        """What is known of rows besides features, target and group."""
        return frozenset(name for name in ("noise", "weight") if getattr(self, name) is not None)

    def rows(self, device: Any = None) -> Rows:
        """Features, noise and weights as models take them."""
        noise, weight = (
            None if one is None else as_float(one, "rows", device)
            for one in (self.noise, self.weight)
        )
        return Rows(as_float(self.X, "X", device), noise, weight)

    def input_numbers(self) -> np.ndarray:
        """Number (n,) of each row's input (and group), in order of occurrence."""
        labels = equal_rows(torch.from_numpy(self.X))
        if self.groups is not None:
            pairs = torch.stack([labels, torch.from_numpy(self.groups)], 1)
            labels = numbered(pairs.unique(dim=0, return_inverse=True)[1])
        return labels.numpy()

    def joined(self, other: "LabelledRows") -> "LabelledRows":
        """These rows, then others."""
        groups = None
        if self.groups is not None and other.groups is not None:
            groups = np.concatenate([self.groups, other.groups])
        noise = None
        if self.noise is not None and other.noise is not None:
            noise = np.concatenate([self.noise, other.noise])
        X, y = np.concatenate([self.X, other.X]), np.concatenate([self.y, other.y])
        return LabelledRows(X, y, groups, noise)


def group_numbers(
    groups: Any, n_rows: int, groups_cal: Any, n_cal: int
) -> tuple[np.ndarray | None, np.ndarray | None]:
    """Number the groups of training and calibration rows; equal names get equal numbers.

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
    every = _all_names(groups, groups_cal)
    numbers_of = as_labels(every, n_rows=len(every)).numpy()
    first = n_rows if groups is not None else 0
    return (
        None if groups is None else numbers_of[:first],
        None if groups_cal is None else numbers_of[first:],
    )


def group_names(groups: Any, groups_cal: Any) -> np.ndarray:
    """Names of all groups as text, indexed by their :func:`group_numbers`.

    Examples
    --------
    >>> group_names(["b", "a", "b"], None).tolist(), group_names([2, 1], [1, 3]).tolist()
    (['b', 'a'], ['2', '1', '3'])
    """
    every = _all_names(groups, groups_cal)
    numbers_of = as_labels(every, n_rows=len(every)).numpy()
    first = np.unique(numbers_of, return_index=True)[1]
    return np.array([_as_text(name) for name in every[first]])


def _all_names(*groups: Any) -> np.ndarray:
    given = [np.asarray(plain(one), dtype=object).ravel() for one in groups if one is not None]
    return np.concatenate(given)


def _as_text(name: Any) -> str:
    """Name of a group as text: 3 and 3.0 are one group."""
    if isinstance(name, numbers.Real) and float(name).is_integer():
        return str(int(float(name)))
    return str(name)


def group_of_each(estimator: Any, groups: Any, n_rows: int) -> Tensor:
    """Number [n] of the group of each row among those of the fit; -1 if new."""
    predictor = getattr(estimator.calibrated_, "by_group", None)
    names = getattr(estimator, "group_names_", None)
    if predictor is None or names is None:
        raise InvalidInputError(
            "groups: expected a model that was fitted with groups, and without weights, by 'cv' or "
            "'exact', and knows ten or more rows of groups with several, found another; give "
            "groups to fit"
        )
    as_labels(groups, n_rows=n_rows)
    number = {name: k for k, name in enumerate(names.tolist())}
    asked = [number.get(_as_text(name), -1) for name in np.asarray(plain(groups), dtype=object)]
    # Groups that joined later are known to the ranks of new groups only.
    n_known = len(predictor.model.part_of)
    known = [k if k < n_known else -1 for k in asked]
    return torch.tensor(known, dtype=torch.long, device=predictor.device)


def numbers_of_groups(
    estimator: Any, groups: Any, n_rows: int
) -> tuple[np.ndarray | None, np.ndarray | None]:
    """Numbers (n,) of the groups of new rows, and the names of all groups; None without groups."""
    known = getattr(estimator, "group_names_", None)
    if known is None and groups is None:
        return None, None
    if known is None or groups is None:
        found = "a model without any" if known is None else "none"
        raise InvalidInputError(
            "groups: expected the groups of new rows where fit was given groups, and only there, "
            f"found {found}; new groups have names of their own"
        )
    as_labels(groups, n_rows=n_rows)
    names = [_as_text(name) for name in np.asarray(plain(groups), dtype=object)]
    number = {name: k for k, name in enumerate(known.tolist())}
    found_numbers = np.array([number.setdefault(name, len(number)) for name in names])
    return found_numbers, np.array(list(number))


def drop_repetition(
    train: LabelledRows, cal: LabelledRows | None, weights: Any
) -> tuple[LabelledRows, LabelledRows | None, Any]:
    """Drop copies, with a warning, if the whole table was repeated.

    Calibration rows stay as they are.
    """
    rows = unrepeated_rows(train)
    if len(rows) < len(train):
        train = train[rows]
        if isinstance(weights, np.ndarray) and cal is None:
            weights = weights[rows]
    return train, cal, weights


def unrepeated_rows(rows: LabelledRows) -> np.ndarray:
    """Indices of all rows; of the first of each, with a warning, if a table was repeated."""
    labels = rows.input_numbers()
    if rows.weight is not None or not is_repeated(labels, rows.y):
        return np.arange(len(rows))
    first = np.unique(labels, return_index=True)[1]
    warn_of_repetition(len(rows), len(first))
    return first


def hold_copies_together(
    train: LabelledRows,
    cal: LabelledRows | None,
    columns: Mapping[str, Sequence[int]],
    *,
    takes_groups: bool,
    once: bool,
    seed: int,
) -> tuple[LabelledRows, LabelledRows | None]:
    """Rows with :class:`~sharpgp.data.copies.HiddenCopies` in groups, or each once; with a warning.

    Parameters
    ----------
    train, cal
        Left alone if they come in groups.
    columns : mapping
        The features of each column of a table; empty for an array.
    takes_groups, once : bool
        Whether the method knows groups, and whether rows may be left out.
    seed : int
        Draws the rows that stand for their copies.
    """
    every = train if cal is None else train.joined(cal)
    if every.groups is not None or len(every) < 2:
        return train, cal
    found, warn_that = _hidden_copies(every, columns)
    if not found.columns:
        return train, cal
    if once and cal is None and found.always:
        warn_that("each is used once")
        return train[_one_of_each_copy(found, seed)], cal
    if not takes_groups:
        warn_that(
            "intervals may cover much less than requested; use calibration='cv', or drop them"
        )
        return train, cal
    warn_that("they stay together, as groups do, and intervals are for rows that are no copies")
    of_train, of_cal = np.split(found.units, [len(train)])
    return replace(train, groups=of_train), None if cal is None else replace(cal, groups=of_cal)


def without_hidden_copies(
    rows: LabelledRows, columns: Mapping[str, Sequence[int]], seed: int
) -> np.ndarray:
    """Indices of all rows; one of each, with a warning, if copies always have the same target."""
    if rows.groups is None and len(rows) > 1:
        found, warn_that = _hidden_copies(rows, columns)
        if found.columns and found.always:
            warn_that("each is used once")
            return _one_of_each_copy(found, seed)
    return np.arange(len(rows))


def _hidden_copies(
    rows: LabelledRows, columns: Mapping[str, Sequence[int]]
) -> tuple[HiddenCopies, Callable[[str], None]]:
    """Copies that hide behind a column, and what warns of them and says what then happens."""
    named = columns or {f"x{j}": [j] for j in range(rows.X.shape[1])}
    named = {name: list(features) for name, features in named.items() if features}
    found = HiddenCopies.find(rows.X, rows.y, list(named.values()))

    def warn_that(then: str) -> None:
        names = [repr(name) for name in named]
        hidden = [" and ".join(names[j] for j in few) for few in found.columns]
        warn(
            f"{len(rows) - len(np.unique(found.units))} of {len(rows)} rows repeat others in y and "
            f"in all columns but {' or '.join(hidden)}: {then}. If that column says nothing about "
            "y, leave it out"
        )

    return found, warn_that


def _one_of_each_copy(found: HiddenCopies, seed: int) -> np.ndarray:
    return folds.one_per_label(torch.from_numpy(found.units), seed).numpy()


def has_known_inputs(rows: LabelledRows) -> bool:
    """Whether known inputs and new ones are calibrated apart.

    They are where inputs repeat, unless inputs are so few that all new rows repeat them, or there
    are groups: predictions are then for new ones.

    Examples
    --------
    >>> X = np.arange(40.0)[:, None]
    >>> has_known_inputs(LabelledRows(X, X[:, 0])), has_known_inputs(LabelledRows(X // 2, X[:, 0]))
    (False, True)
    >>> has_known_inputs(LabelledRows(X % 2, X[:, 0]))
    False
    """
    return rows.groups is None and len(rows.labels().unique()) < len(rows)


def join_earlier(
    calibrated: Any, rows: Rows, y: Tensor, *, grouped: bool
) -> tuple[LabelledRows, Callable[..., Any] | None]:
    """All points of a predictor followed by new ones, and its function of weights."""
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
    earlier, y_old = calibrated.labelled_data()
    rows, y = Rows.join(earlier, rows), torch.cat([y_old, y])
    noise = None if rows.noise is None else as_numpy(rows.noise)
    return LabelledRows(as_numpy(rows.X), as_numpy(y), noise=noise), weights


def split_rows(
    rows: LabelledRows, cal_size: float, seed: int | None, *, by_row: bool
) -> tuple[np.ndarray, np.ndarray, np.ndarray | None]:
    """Rows to train on, rows to calibrate with, and which of these were drawn one by one.

    See :func:`holdout`; with ``by_row``, and where inputs repeat, :func:`holdout_by_row`.  The last
    is None if all were.
    """
    if by_row and has_known_inputs(rows):
        return holdout_by_row(rows.input_numbers(), cal_size, seed)
    return *holdout(rows.labels(), cal_size, seed), None


def holdout_by_row(
    labels: np.ndarray, cal_size: float, seed: int | None
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Rows to train on, rows to calibrate with, and which of these were drawn one by one.

    Rows are drawn at random, whatever their labels.  Too few of them have a new label if fewer than
    half of the labels left to train have a single row.  Then labels with several rows are also held
    out whole: each with the probability of a row, and two at least.

    Examples
    --------
    >>> train, cal, drawn = holdout_by_row(np.arange(400) // 4, 0.25, 0)
    >>> int(drawn.sum()), len(cal) > 99, len(set(train) & set(cal))
    (99, True, 0)
    """
    _, cal = holdout(torch.arange(len(labels)), cal_size, seed)
    drawn = np.zeros(len(labels), dtype=bool)
    drawn[cal] = True
    left = np.bincount(labels[~drawn], minlength=int(labels.max()) + 1)
    out = drawn.copy()
    if 2 * (left == 1).sum() < (left > 0).sum():
        several = check_random_state(seed).permutation(np.flatnonzero(left > 1))
        p = drawn.mean()
        n_out = max(2, check_random_state(seed).binomial(len(several), p))
        most = (left > 0).sum() - 2  # two labels are left to train
        out |= np.isin(labels, several[: min(n_out, most)])
    return np.flatnonzero(~out), np.flatnonzero(out), drawn[out]


def holdout(labels: Tensor, cal_size: float, seed: int | None) -> tuple[np.ndarray, np.ndarray]:
    """Rows to train on and rows to calibrate with, drawn at random.

    Parameters
    ----------
    labels : Tensor [n]
        Rows that share one are on the same side.
    cal_size : float or int
        Fraction (of them at most :data:`~sharpgp.policy.SCORED_ROWS`) or number of the rows
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
    wanted = min(round(float(cal_size) * n_rows), SCORED_ROWS)
    n_cal = int(cal_size) if whole else max(2, _whole_rank_size(wanted))
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


def _whole_rank_size(n_cal: int) -> int:
    """Round ``C`` so that 80, 90 and 95 % intervals end at whole ranks, within 5 %.

    An interval at coverage ``c`` ends at rank ``ceil(c (C + 1))``: with 78 points, 95 % intervals
    would cover 96.2 %, with 79 they cover 95 %.

    Examples
    --------
    >>> [_whole_rank_size(n_cal) for n_cal in (78, 101, 25)]
    [79, 99, 25]
    """
    better = 20 * round((n_cal + 1) / 20) - 1
    return better if abs(better - n_cal) <= 0.05 * n_cal else n_cal


def is_repeated(labels: np.ndarray, y: np.ndarray) -> bool:
    """Whether a table was repeated: every row occurs equally often, more than once.

    Examples
    --------
    >>> is_repeated(np.array([0, 1, 0, 1]), np.array([5.0, 6.0, 5.0, 6.0]))
    True
    >>> is_repeated(np.array([0, 1, 0, 2]), np.array([5.0, 6.0, 5.0, 7.0]))
    False
    """
    count = np.bincount(labels)
    return bool(count[0] > 1 and (count == count[0]).all() and have_one_target(labels, y))


def warn_of_repetition(n: int, n_kept: int) -> None:
    """Warn that a table contains every row several times."""
    warn(
        f"{n - n_kept} of {n} rows are copies of other rows (every row occurs {n // n_kept} times, "
        "with the same y); each is used once"
    )


def have_one_target(labels: np.ndarray, y: np.ndarray) -> bool:
    """Whether all rows of a label have the same target, up to rounding.

    Examples
    --------
    >>> have_one_target(np.array([0, 1, 0]), np.array([5.0, 6.0, 5.5]))
    False
    """
    _, first, place = np.unique(labels, return_index=True, return_inverse=True)
    return bool((np.abs(y - y[first][place]) <= TOLERANCE * y.std()).all())
