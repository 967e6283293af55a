"""Inputs of the estimator: arrays, frames and tensors, with warnings about unsuitable data."""

import copy
import numbers
from typing import Any, TypeVar

import numpy as np
from sklearn.base import BaseEstimator
from sklearn.utils import _safe_indexing, check_random_state
from sklearn.utils.validation import check_consistent_length, check_X_y, validate_data

from sharpgp._validation import constant_columns, refuse_other_kinds
from sharpgp.data import texts
from sharpgp.data.censoring import warn_of_censoring
from sharpgp.data.encoding import Encoded, TableEncoding, text_of_mark
from sharpgp.data.frames import collected
from sharpgp.data.leaks import warn_of_leaks
from sharpgp.data.reading import NamedColumns, is_frame, is_missing, names_of, values_of
from sharpgp.data.suspicions import MIN_MIDDLE_SPREAD, is_flattened, likely_mark
from sharpgp.exceptions import InvalidInputError, warn

T = TypeVar("T")
#: Smaller targets are close to the numbers that double precision cannot resolve.
MIN_TARGET = 1e-280


def validate(estimator: BaseEstimator, *data: Any, **checks: Any) -> Any:
    """scikit-learn's checks, with our error for integers too large for a float."""
    _refuse_shapes(data[0])
    try:
        return validate_data(estimator, *map(plain, data), dtype=np.float64, **checks)
    except OverflowError:
        raise InvalidInputError("expected numbers up to 1.8e308, found larger ones") from None


def _refuse_shapes(X: Any) -> None:
    """One line, without the values, for what is no table of numbers."""
    if isinstance(X, list | tuple) and X and isinstance(X[0], dict):
        raise InvalidInputError(
            "X: expected a table, found a list of dicts; use pandas.DataFrame(X)"
        )
    shape, kind = getattr(X, "shape", None), getattr(getattr(X, "dtype", None), "kind", "f")
    if kind == "c":
        raise InvalidInputError("X: Complex data not supported; expected real numbers")
    if kind in "mM":
        raise InvalidInputError(
            "X: expected numbers, found dates in an array; use a data frame, whose dates become "
            "times and seasons"
        )
    if shape is not None and len(shape) == 1 and kind in "fiub":
        raise InvalidInputError(
            f"X: expected shape (n, d), found ({shape[0]},). Reshape your data with "
            "X.reshape(-1, 1) for one column, X.reshape(1, -1) for one row"
        )


def training_data(estimator: Any, X: Any, y: Any) -> tuple[np.ndarray, np.ndarray]:
    """Features (n, d) and targets to fit on; data frames and arrays with gaps are encoded.

    The estimator gets the encoding as ``encoding_``, and scikit-learn's ``n_features_in_`` and
    names.  Arrays with gaps, or with columns that are constant but for rounding, are encoded, too:
    an encoding leaves such columns out.
    """
    checks: dict[str, Any] = {"y_numeric": True, "ensure_min_samples": 2}
    vars(estimator).pop("encoding_", None)
    vars(estimator).pop("constant_", None)  # files of earlier versions may have it
    if is_frame(X):
        names_of(X)
        validate_data(estimator, X, skip_check_array=True)
        X = TableEncoding.learn(X, marks=marks_of(estimator)).encode(X)
    elif isinstance(X, Encoded):
        names = X.encoding.names
        estimator.feature_names_in_, estimator.n_features_in_ = np.array(names, object), len(names)
    if isinstance(X, Encoded):
        estimator.encoding_, name = X.encoding, getattr(y, "name", None)
        rows, y = check_X_y(X.features, plain(y), dtype=np.float64, estimator=estimator, **checks)
        warn_of_leaks(X, y)
        if isinstance(name, str):
            warn_of_censoring(X, name, y)
        return rows, y
    if (text := _text_in(X)) is not None:
        warn(
            f"X: text is read as numbers, such as '{text}' = {float(text):g}; pass numbers, or a "
            "data frame for categories",
            UserWarning,
        )
    array, y = validate(estimator, X, y, ensure_all_finite="allow-nan", **checks)
    gaps, marks = np.isnan(array), marks_of(estimator)
    if not gaps.any() and not marks and constant_columns(array)[0].size in (0, array.shape[1]):
        return np.ascontiguousarray(array), y
    if gaps.any():
        warn(
            f"X: {int(gaps.sum())} of {gaps.size} values are missing; each is replaced by the "
            "median of its column, and an extra feature marks it",
            UserWarning,
        )
    columns = NamedColumns(array.T, _names_in(estimator))
    estimator.encoding_ = TableEncoding.learn(columns, marks=marks)
    return estimator.encoding_.encode(columns).features, y


def _text_in(X: Any) -> str | None:
    """A number that an array holds as text, or None."""
    if getattr(getattr(X, "dtype", None), "kind", "") not in ("O", "U"):
        return None
    return next((cell for cell in np.ravel(X) if isinstance(cell, str) and _is_number(cell)), None)


def _is_number(text: str) -> bool:
    try:
        return bool(np.isfinite(float(text)))
    except ValueError:
        return False


def marks_of(estimator: Any) -> tuple[str, ...]:
    """The user's markers of missing values, as text."""
    given = getattr(estimator, "missing", ())
    one = isinstance(given, str | numbers.Real)
    return tuple(text_of_mark(mark) for mark in ([given] if one else given))


def read_targets(estimator: Any, y: Any) -> Any:
    """Parse targets written as text, by the rules of features; leave others unchanged.

    The user's markers of missing values become missing targets.

    Examples
    --------
    >>> import warnings
    >>> with warnings.catch_warnings(record=True) as caught:
    ...     warnings.simplefilter("always")
    ...     print(read_targets(None, ["1.234,50 €", "7,00 €"]), caught[0].message)
    [1234.5    7. ] y: text is read as numbers, such as '1.234,50 €' = 1234.5
    """
    marks = marks_of(estimator)
    array = np.asarray(plain(y)) if isinstance(y, list | tuple) or hasattr(y, "__len__") else None
    if array is None or array.ndim != 1:
        return y
    if not marks and not any(
        isinstance(item, str) for item in array[array.dtype.kind not in "OUT" :]
    ):
        return y
    values = texts.without(values_of({"y": y}, "y"), marks)
    if values.holds == "text" and not values.missing.all() and not values.declared:
        written = texts.learn("y", values, 0)
        if written is None or written.dates:
            example = str(values.data[~values.missing][0])
            raise InvalidInputError(
                f"y: expected numbers to predict, found text, such as {example!r}"
            )
        warn(f"y: text is read as numbers, such as {written.reading}", UserWarning)
        values = written.read("y", values, 0)
    return values.data if values.holds in ("number", "boolean") else y


def read_features(estimator: Any, X: Any) -> np.ndarray:
    """Features (n, d) of rows to predict, encoded as in the fit."""
    rows = encode_rows(estimator, X)
    if rows is not None:
        return rows.features
    array = validate(estimator, collected(X), reset=False, ensure_min_samples=0)
    return with_constants(estimator, np.ascontiguousarray(array))


def with_constants(estimator: Any, X: T) -> T:
    """Rows (n, d) with the training values of constant columns, for files of earlier versions."""
    constant: np.ndarray | None = getattr(estimator, "constant_", None)
    if constant is None:
        return X
    X = copy.deepcopy(X)
    for column, value in constant.T:
        X[:, int(column)] = value  # type: ignore[index]
    return X


def feature_names(estimator: Any) -> list[str] | None:
    """Names of the features, or None."""
    encoding: TableEncoding | None = getattr(estimator, "encoding_", None)
    names = encoding.features if encoding else getattr(estimator, "feature_names_in_", None)
    return None if names is None else list(names)


def columns_of(estimator: Any) -> dict[str, list[int]]:
    """Feature indices of each column of a table, in its order; empty for an array.

    A column that the model does not use has none.
    """
    encoding: TableEncoding | None = getattr(estimator, "encoding_", None)
    if encoding is None:
        return {}
    return {name: encoding.places.get(name, []) for name in _names_in(estimator)}


def encode_rows(estimator: Any, X: Any) -> Encoded | None:
    """Rows encoded as in the fit; None if the estimator has no encoding."""
    encoding: TableEncoding | None = getattr(estimator, "encoding_", None)
    X = collected(X)
    if isinstance(X, Encoded) or encoding is None:
        return X if isinstance(X, Encoded) else None
    if is_frame(X):
        validate_data(estimator, X, reset=False, skip_check_array=True)
        return encoding.encode(X)
    checks: dict[str, Any] = {
        "dtype": None,
        "ensure_all_finite": False,
        "ensure_min_samples": 0,
    }
    array = validate_data(estimator, plain(X), reset=False, **checks)
    return encoding.encode(NamedColumns(array.T, _names_in(estimator)))


def _names_in(estimator: Any) -> list[str]:
    names = getattr(estimator, "feature_names_in_", None)
    return [f"x{j}" for j in range(estimator.n_features_in_)] if names is None else list(names)


def drop_missing_targets(X: Any, y: Any, *more: Any) -> tuple[Any, ...]:
    """Drop rows without a target from ``X``, ``y`` and every argument with one entry per row.

    A warning names these rows. None, callables and arrays of another length stay as they are.

    Examples
    --------
    >>> import warnings
    >>> with warnings.catch_warnings(record=True) as caught:
    ...     warnings.simplefilter("always")
    ...     X, y, groups = drop_missing_targets(
    ...         np.ones((3, 1)), [1.0, np.nan, 3.0], ["a", "b", "c"]
    ...     )
    >>> len(X), y, groups, str(caught[0].message)
    (2, [1.0, 3.0], ['a', 'c'], 'y: 1 of 3 targets are missing; row(s) 1 are left out')
    """
    missing = _missing(y)
    if not missing.any() or missing.all():
        return X, y, *more
    check_consistent_length(X, y)
    rows = np.flatnonzero(missing)
    shown = ", ".join(str(row) for row in rows[:8]) + (", ..." if len(rows) > 8 else "")
    warn(
        f"y: {len(rows)} of {len(missing)} targets are missing; row(s) {shown} are left out",
        UserWarning,
    )
    kept = np.flatnonzero(~missing)

    def part(data: Any) -> Any:
        if data is None or callable(data) or getattr(data, "shape", None) == ():
            return data
        same = hasattr(data, "__len__") and len(data) == len(missing)
        return take_rows(data, kept) if same else data

    return tuple(part(data) for data in (X, y, *more))


def take_rows(data: Any, rows: np.ndarray) -> Any:
    """Some rows of an array, a frame, encoded rows or a list."""
    return data[rows] if isinstance(data, Encoded) else _safe_indexing(plain(data), rows)


def _missing(y: Any) -> np.ndarray:
    """Mask of missing targets; later checks refuse targets that are not numbers."""
    none = np.zeros(1, dtype=bool)
    array = np.asarray(plain(y))
    if array.dtype.kind == "f" and array.ndim:
        return np.isnan(array).reshape(len(array), -1).any(1)
    if array.dtype.kind == "O" and array.ndim == 1 and len(array):
        return np.array([is_missing(item) for item in array], dtype=bool)
    return none


def plain(data: Any) -> Any:
    """Torch tensors as NumPy; everything else unchanged, so that column names survive.

    Dates and masks are refused here, because scikit-learn's checks let them pass as numbers.
    """
    if hasattr(data, "detach"):  # no need to load torch
        return data.detach().cpu().numpy()
    refuse_other_kinds(data, "data", but="c")  # scikit-learn refuses complex numbers by itself
    return data


def seed_of(random_state: Any) -> int | None:
    """Seed of a scikit-learn ``random_state``; a RandomState instance draws one.

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


def check_training_data(
    X: np.ndarray, y: np.ndarray, encoding: TableEncoding | None = None
) -> None:
    """Raise or warn if a GP cannot fit the data sensibly.

    Of encoded features, only columns of numbers are checked.
    """
    import torch

    from sharpgp.gp.scaling import Affine

    names: list[Any] = list(range(X.shape[1]))
    if encoding is not None:
        kept = [k for k, name in enumerate(encoding.features) if name in encoding.names]
        X, names = X[:, kept], [repr(encoding.features[k]) for k in kept]
    if bool(Affine.is_constant(torch.from_numpy(y))):
        raise InvalidInputError(
            f"y: expected a target that varies, found {y[0]:g} in all {len(y)} training rows"
        )
    if float(np.abs(y).max()) < MIN_TARGET:
        raise InvalidInputError(
            f"y: expected magnitudes above {MIN_TARGET:g}, found {np.abs(y).max():g} at most; "
            "choose other units"
        )
    constant = np.flatnonzero(np.ptp(X, axis=0) == 0)
    if constant.size:
        warn(
            f"X: column(s) [{', '.join(str(names[j]) for j in constant)}] are constant in the "
            "training rows and carry no information; remove them",
            UserWarning,
        )
    seen: dict[bytes, int] = {}
    for j in range(X.shape[1]):
        first = seen.setdefault(X[:, j].tobytes(), j)
        if first != j and j not in constant:
            warn(f"X: column {names[j]} repeats column {names[first]}; remove one", UserWarning)
    _warn_of_outliers(X, y, names)


def _warn_of_outliers(X: np.ndarray, y: np.ndarray, names: list[Any]) -> None:
    """Warn about likely markers of missing values, and values that dwarf all others."""
    columns = [f"X: column {name}" for name in names]
    for name, values in zip([*columns, "y"], [*X.T, y], strict=True):
        if (found := likely_mark(values)) is not None:
            warn(
                f"{name}: {int((values == found).sum())} value(s) are {found:g}, far from all "
                f"others; if that stands for a missing value, take it out with missing=[{found:g}]",
                UserWarning,
            )
        elif is_flattened(values):
            warn(
                f"{name}: a few values are so extreme that the others differ by less than "
                f"{MIN_MIDDLE_SPREAD:g} standard deviations, which the GP cannot resolve; "
                "check or remove them, or take logarithms",
                UserWarning,
            )
