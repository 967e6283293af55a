"""The one place where input is checked and turned into float64 tensors, and back.

torch is imported where a tensor is made, so that a command can check its options without it.
"""

from __future__ import annotations

import numbers
import reprlib
from collections.abc import Iterable
from difflib import get_close_matches
from typing import TYPE_CHECKING, Any

import numpy as np

from sharpgp.exceptions import InvalidInputError

if TYPE_CHECKING:
    from torch import Tensor

#: Targets above this leave no room for the width of an interval.
LARGEST_TARGET = 1e280
# Rounding, relative to a column's largest magnitude: a few steps of double precision if all values
# differ, one step of single precision if most are equal.
_ROUNDING, _SINGLE = 8 * np.finfo(np.float64).eps, float(np.finfo(np.float32).eps)


def constant_columns(X: np.ndarray) -> np.ndarray:
    """Columns of ``X`` (n, d) that are constant but for rounding, and their value: shape (2, k).

    Every row is then within 8 steps of double precision (1.8e-15) of the median, relative to the
    column's largest magnitude. If more than half of the rows are equal, one step of single
    precision (1.2e-7) is allowed, as if some rows had been written with fewer digits.

    Examples
    --------
    >>> X = np.array([[5.0, 1.0, 3.0], [5.0, 2.0, 3.0], [5.0, 3.0, 3.0000001]])
    >>> constant_columns(X).tolist()
    [[0.0, 2.0], [5.0, 3.0]]
    """
    with np.errstate(over="ignore"):
        magnitude = np.abs(X).max(axis=0)
        columns = np.flatnonzero(np.ptp(X, axis=0) <= 2 * _SINGLE * magnitude)
    part = X[:, columns]
    middle = np.quantile(part, 0.5, axis=0, method="lower")
    farthest = np.abs(part - middle).max(axis=0, initial=0.0)
    most_equal = 2 * (part == middle).sum(axis=0) > len(part)
    allowed = np.where(most_equal, _SINGLE, _ROUNDING) * magnitude[columns]
    constant = farthest <= allowed
    return np.stack([columns[constant].astype(np.float64), middle[constant]])


def as_features(
    X: Any, *, n_features: int | None = None, device: Any = None, least: int = 1
) -> Tensor:
    """``X`` as a finite float64 tensor [T, d] with at ``least`` so many rows.

    Examples
    --------
    >>> as_features([[1, 2], [3, 4]], n_features=2).shape
    torch.Size([2, 2])
    """
    tensor = as_float(X, "X", device)
    if tensor.dim() != 2:
        raise InvalidInputError(
            f"X: expected a table of shape (rows, features), found {_shape(tensor)}; "
            "reshape a single feature with X.reshape(-1, 1)"
        )
    if tensor.shape[0] < least or tensor.shape[1] == 0:
        raise InvalidInputError(f"X: expected at least one row and one column, {_found(tensor)}")
    if n_features is not None and tensor.shape[1] != n_features:
        raise InvalidInputError(
            f"X: expected {n_features} features as in training, found {tensor.shape[1]}"
        )
    _check_finite(tensor, "X")
    return tensor


def as_target(y: Any, *, n_rows: int | None = None, device: Any = None) -> Tensor:
    """``y`` as a finite float64 tensor [T]; a single column is flattened.

    Examples
    --------
    >>> as_target([[1], [2]], n_rows=2).tolist()
    [1.0, 2.0]
    """
    tensor = as_float(y, "y", device)
    if tensor.dim() == 2 and tensor.shape[1] == 1:
        tensor = tensor.squeeze(1)
    if tensor.dim() != 1:
        raise InvalidInputError(f"y: expected one value per row, {_found(tensor)}")
    if n_rows is not None and tensor.shape[0] != n_rows:
        raise InvalidInputError(
            f"y: expected {n_rows} values, one per row of X, found {tensor.shape[0]}"
        )
    _check_finite(tensor, "y")
    largest = float(tensor.abs().max()) if tensor.numel() else 0.0
    if largest > LARGEST_TARGET:
        raise InvalidInputError(
            f"y: expected magnitudes below {LARGEST_TARGET:g}, found {largest:g}; "
            "choose other units"
        )
    return tensor


def as_weights(weights: Any, *, n_rows: int, device: Any = None) -> Tensor:
    """Weights as a float64 tensor [n]: finite, not negative, one per row.

    Examples
    --------
    >>> as_weights([1, 0.5], n_rows=2).tolist()
    [1.0, 0.5]
    """
    tensor = as_float(weights, "sample_weight", device)
    if tensor.shape != (n_rows,):
        raise InvalidInputError(
            f"sample_weight: expected {n_rows} numbers, one per row, {_found(tensor)}"
        )
    _check_finite(tensor, "sample_weight")
    if (tensor < 0).any():
        raise InvalidInputError(
            f"sample_weight: expected numbers of at least 0, found {tensor.min().item():g}"
        )
    return tensor


def as_labels(groups: Any, *, n_rows: int, device: Any = None) -> Tensor:
    """Groups as whole numbers [n], equal for equal groups; anything hashable names a group.

    Examples
    --------
    >>> as_labels(["ann", "bob", "ann"], n_rows=3).tolist()
    [0, 1, 0]
    """
    import torch

    if isinstance(groups, torch.Tensor):
        groups = groups.detach().cpu().numpy()
    try:
        array = groups if hasattr(groups, "shape") else np.array([*groups, None], dtype=object)[:-1]
        shape = tuple(array.shape)
    except (TypeError, ValueError):
        shape = None
    if shape not in ((n_rows,), (n_rows, 1)):
        found = type(groups).__name__ if shape is None else f"shape {shape}"
        raise InvalidInputError(f"groups: expected {n_rows} labels, one per row, found {found}")
    names = np.asarray(array, dtype=object).reshape(-1)
    numbers_of: dict[Any, int] = {}
    try:
        labels = [numbers_of.setdefault(name, len(numbers_of)) for name in names]
        missing = [name for name in numbers_of if name is None or not bool(name == name)]
    except TypeError:  # not hashable, or pandas' NA, which is not equal to anything
        missing, labels = ["values that cannot be compared"], []
    if missing:
        raise InvalidInputError(
            f"groups: expected a label for every row, found {missing[0]}; "
            "give rows without a group labels of their own"
        )
    return torch.tensor(labels, dtype=torch.long, device=device)


def as_coverage(coverage: Any) -> tuple[list[float], bool]:
    """Coverages as a list, and whether a single one was given.

    Examples
    --------
    >>> as_coverage(0.9), as_coverage([0.5, 0.9])
    (([0.9], True), ([0.5, 0.9], False))
    """
    return _as_probabilities(coverage, "coverage")


def as_levels(levels: Any) -> tuple[list[float], bool]:
    """Levels as a list, and whether a single one was given."""
    return _as_probabilities(levels, "levels")


def as_level(level: Any, name: str) -> float:
    """One probability in (0, 1).

    Examples
    --------
    >>> as_level(0.9, "delta")
    0.9
    """
    levels, single = _as_probabilities(level, name)
    if not single:
        raise InvalidInputError(f"{name}: expected one number in (0, 1), found {level!r}")
    return levels[0]


def as_count(value: Any, name: str, *, least: int) -> int:
    """``value`` as a whole number not below ``least``.

    Examples
    --------
    >>> as_count(3, "restarts", least=0)
    3
    """
    whole = isinstance(value, numbers.Integral) and not isinstance(value, bool)
    if not whole or int(value) < least:
        raise InvalidInputError(
            f"{name}: expected a whole number of at least {least}, found {value!r}"
        )
    return int(value)


def as_numpy(data: Any) -> np.ndarray:
    """Tensors, frames and sequences as float64 arrays.

    Examples
    --------
    >>> import torch
    >>> as_numpy(torch.ones(2))
    array([1., 1.])
    """
    import torch

    if isinstance(data, torch.Tensor):
        data = data.detach().cpu()
    return np.asarray(data, dtype=np.float64)


def check_choice(value: Any, name: str, known: Iterable[str]) -> None:
    """Raise unless ``value`` is one of the known names.

    Examples
    --------
    >>> check_choice("blue", "colour", ("red", "green"))
    Traceback (most recent call last):
    ...
    sharpgp.exceptions.InvalidInputError: colour: expected one of red, green, found 'blue'
    >>> check_choice("gren", "colour", ("red", "green"))
    Traceback (most recent call last):
    ...
    sharpgp.exceptions.InvalidInputError: colour: expected one of red, green, found 'gren'; did you
    mean green?
    """
    names = list(known)
    if not (isinstance(value, str) and value in names):
        raise InvalidInputError(
            f"{name}: expected one of {', '.join(names)}, found {value!r}{nearest(value, names)}"
        )


# Names that were taken away, and what to take instead.
_REMOVED = {"paper_exact": "exact"}


def nearest(value: Any, known: Iterable[str]) -> str:
    """End of a message about an unknown name: what replaced it, or the closest known one."""
    if isinstance(value, str) and value in _REMOVED:
        return f"; it was removed; take {_REMOVED[value]}"
    close = get_close_matches(value, list(known), n=1) if isinstance(value, str) else []
    return f"; did you mean {close[0]}?" if close else ""


def _as_probabilities(values: Any, name: str) -> tuple[list[float], bool]:
    try:
        refuse_other_kinds(values, name)
        array = np.asarray(values, dtype=np.float64)
    except (TypeError, ValueError, OverflowError):
        raise InvalidInputError(
            f"{name}: expected numbers in (0, 1), found {reprlib.repr(values)}"
        ) from None
    if array.ndim > 1 or array.size == 0:
        raise InvalidInputError(
            f"{name}: expected a number or a list of numbers in (0, 1), found shape {array.shape}"
        )
    flat = np.atleast_1d(array)
    bad = flat[~((flat > 0) & (flat < 1))]
    if bad.size:
        meant = f"; did you mean {bad[0] / 100:g}?" if 1 < bad[0] < 100 else ""
        raise InvalidInputError(f"{name}: expected numbers in (0, 1), found {bad[0]:g}{meant}")
    return flat.tolist(), array.ndim == 0


def refuse_other_kinds(values: Any, name: str, *, but: str = "") -> None:
    """Raise for arrays that lose information when NumPy turns them into floats.

    ``but`` is the letter of a kind to accept.

    Examples
    --------
    >>> refuse_other_kinds(np.array([1j]), "y")
    Traceback (most recent call last):
    ...
    sharpgp.exceptions.InvalidInputError: y: expected real numbers, found complex numbers
    """
    if hasattr(values, "is_floating_point"):  # a tensor
        kind = "c" if values.is_complex() else "f"
    else:
        kind = getattr(getattr(values, "dtype", None), "kind", "f")
    kinds = {"c": "complex numbers", "M": "dates", "m": "durations"}
    found = None if kind == but else kinds.get(kind)
    if isinstance(values, np.ma.MaskedArray) and np.ma.is_masked(values):
        found = "masked values; remove or impute them"
    if found:
        raise InvalidInputError(f"{name}: expected real numbers, found {found}")


def as_float(values: Any, name: str, device: Any = None) -> Tensor:
    """Numbers of any shape as a float64 tensor, which may hold NaN and infinity.

    Examples
    --------
    >>> as_float([1, 2], "y").tolist()
    [1.0, 2.0]
    """
    import torch

    refuse_other_kinds(values, name)
    if isinstance(values, torch.Tensor):
        return values.detach().to(device=device, dtype=torch.float64)
    try:
        array = np.array(values, dtype=np.float64)
    except (TypeError, ValueError, OverflowError):
        raise InvalidInputError(
            f"{name}: expected numbers, found values that are not "
            f"({type(values).__name__}); encode strings and categories first"
        ) from None
    return torch.from_numpy(array).to(device)


def _check_finite(tensor: Tensor, name: str) -> None:
    bad = ~tensor.isfinite()
    if bad.any():
        where = bad.nonzero()[0].tolist()
        value = tensor[tuple(where)].item()
        place = f"row {where[0]}" + (f", column {where[1]}" if len(where) > 1 else "")
        raise InvalidInputError(
            f"{name}: expected finite numbers, found {value} at {place}; remove or impute it"
        )


def _shape(tensor: Tensor) -> str:
    return f"shape {tuple(tensor.shape)}"


def _found(tensor: Tensor) -> str:
    return f"found {_shape(tensor)}"
