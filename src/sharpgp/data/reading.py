"""Columns of pandas, polars and Arrow tables as NumPy arrays, with their gaps marked.

No package is imported for this: all three give a column by ``table[name]`` and its values by
``to_numpy()``, and differ only in how they name columns and keep categories and time zones.
"""

import datetime
import numbers
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from decimal import Decimal
from typing import Any, Literal

import numpy as np

from sharpgp.exceptions import InvalidInputError

#: What a column holds.
Holds = Literal["number", "boolean", "text", "date"]
_DAY = np.timedelta64(1, "D")


@dataclass(frozen=True)
class Values:
    """The values (n,) of a column, and which of them are missing (n,).

    Numbers and booleans are float64 with NaN at gaps, dates are days since 1970 likewise, text
    is an array of str with "" at gaps.  ``order`` lists the categories of a column that has them
    in order; ``declared``: the user made the column categorical.
    """

    holds: Holds
    data: np.ndarray
    missing: np.ndarray
    order: tuple[str, ...] | None = None
    declared: bool = False
    whole: bool = False

    def __getitem__(self, rows: np.ndarray) -> "Values":
        """The values of some rows."""
        return replace(self, data=self.data[rows], missing=self.missing[rows])


class NamedColumns:
    """Columns as a table in which they have the given names."""

    def __init__(self, columns: Iterable[Any], names: Sequence[str]) -> None:
        self.columns = list(names)
        self._by_name = dict(zip(names, columns, strict=True))

    def __getitem__(self, name: str) -> Any:
        return self._by_name[name]


def is_frame(data: Any) -> bool:
    """Whether ``data`` is a table whose columns are named by text.

    Examples
    --------
    >>> import pandas as pd
    >>> is_frame(pd.DataFrame({"x": [1, 2]})), is_frame(np.ones((2, 1)))
    (True, False)
    """
    names = _names(data) if hasattr(data, "__getitem__") else None
    return bool(names) and all(isinstance(name, str) for name in names or ())


def names_of(frame: Any) -> list[str]:
    """Names of the columns; raise unless they are distinct."""
    names = _names(frame) or []
    twice = next((name for name in names if names.count(name) > 1), None)
    if twice is not None:
        raise InvalidInputError(
            f"X: expected distinct column names, found {twice!r} twice; rename one"
        )
    return names


def _names(data: Any) -> list[Any] | None:
    if hasattr(getattr(data, "schema", None), "names") and hasattr(data, "num_rows"):
        return list(data.schema.names)  # an Arrow table, or a batch of one
    return list(data.columns) if hasattr(data, "columns") else None


def values_of(frame: Any, name: str) -> Values:
    """Values of a column, by name.

    Examples
    --------
    >>> import pandas as pd
    >>> found = values_of(pd.DataFrame({"x": [True, None]}), "x")
    >>> found.holds, found.missing.tolist()
    ('boolean', [False, True])
    """
    column = frame[name]
    if isinstance(column, Values):
        return column
    package = type(column).__module__.partition(".")[0]
    order, declared = None, False
    if package == "pyarrow":
        array, order, declared = _of_arrow(column)
    elif package == "pandas":
        array, order, declared = _of_pandas(column)
    elif package == "polars":
        array, order, declared = _of_polars(column)
    else:
        array = column.to_numpy() if hasattr(column, "to_numpy") else np.asarray(column)
    if array.ndim != 1:
        raise InvalidInputError(f"column {name!r}: expected one value per row, found {array.shape}")
    found = _values(array, name, text=declared)
    if not declared:
        return found
    return Values("text", found.data, found.missing, order, declared=True)


def _of_arrow(column: Any) -> tuple[np.ndarray, tuple[str, ...] | None, bool]:
    kind = column.type
    declared = hasattr(kind, "value_type") and hasattr(kind, "index_type")
    order = None
    if declared:
        if kind.ordered:
            column = column.unify_dictionaries() if hasattr(column, "chunks") else column
            first = column.chunk(0) if hasattr(column, "chunks") else column
            order = tuple(str(value) for value in first.dictionary.to_pylist())
        column = column.cast(kind.value_type)
    return column.to_numpy(zero_copy_only=False), order, declared


def _of_pandas(column: Any) -> tuple[np.ndarray, tuple[str, ...] | None, bool]:
    kind: Any = getattr(column, "dtype", None)
    if hasattr(kind, "categories") and hasattr(kind, "ordered"):
        names = tuple(str(value) for value in kind.categories)
        codes = column.cat.codes.to_numpy()
        return np.array([*names, None], dtype=object)[codes], names if kind.ordered else None, True
    if getattr(kind, "tz", None) is not None:
        column = column.dt.tz_localize(None)
    extension = not isinstance(kind, np.dtype) and kind is not None
    if extension and getattr(kind, "kind", "O") in "iuf":
        return column.to_numpy(dtype=np.float64, na_value=np.nan), None, False
    return column.to_numpy(), None, False


def _of_polars(column: Any) -> tuple[np.ndarray, tuple[str, ...] | None, bool]:
    kind = str(column.dtype)
    if kind.startswith(("Categorical", "Enum")):
        array = np.array([*column.to_list(), None], dtype=object)[:-1]
        ordered = kind.startswith("Enum")
        return array, tuple(column.dtype.categories) if ordered else None, True
    if kind.startswith("Datetime") and getattr(column.dtype, "time_zone", None):
        column = column.dt.replace_time_zone(None)
    return column.to_numpy(), None, False


def _values(array: np.ndarray, name: str, *, text: bool) -> Values:
    """Values of a column; always as text if ``text``."""
    kind = array.dtype.kind
    if kind in "iuf" and not text:
        data = array.astype(np.float64)
        return Values("number", data, np.isnan(data), whole=kind != "f")
    if kind == "b" and not text:
        return Values("boolean", array.astype(np.float64), np.zeros(len(array), dtype=bool))
    if kind == "M":
        return _dates(array)
    if kind == "m":
        data = array.astype("timedelta64[us]").astype(np.float64) / 8.64e10
        return Values("number", np.where(np.isnat(array), np.nan, data), np.isnat(array))
    items = array.astype(object)
    missing = np.array([is_missing(item) for item in items], dtype=bool)
    present = items[~missing]
    if not text and len(present):
        if all(isinstance(item, bool | np.bool_) for item in present):
            return Values("boolean", _filled(items, missing), missing)
        if all(isinstance(item, numbers.Real | Decimal) for item in present):
            data = _filled(items, missing)
            whole = all(isinstance(item, numbers.Integral) for item in present)
            return Values("number", data, np.isnan(data), whole=whole)
        if all(isinstance(item, datetime.date | np.datetime64) for item in present):
            dates = [None if gap else item for gap, item in zip(missing, items, strict=True)]
            return _dates(np.array(dates, dtype="datetime64[us]"))
    scalars = str | numbers.Real | datetime.date | Decimal
    odd = next((item for item in present if not isinstance(item, scalars)), None)
    if odd is not None:
        raise InvalidInputError(
            f"column {name!r}: expected numbers, categories, dates or booleans, found "
            f"{type(odd).__name__}; convert or drop it"
        )
    return Values("text", np.array([*map(str, np.where(missing, "", items)), None])[:-1], missing)


def is_missing(item: Any) -> bool:
    """Whether a value is None, NaN, NaT or pandas' NA.

    Examples
    --------
    >>> is_missing(None), is_missing(float("nan")), is_missing(0)
    (True, True, False)
    """
    try:
        return item is None or bool(item != item)
    except (TypeError, ValueError):  # pandas' NA is neither equal nor unequal to itself
        return type(item).__name__ == "NAType"


def _filled(items: np.ndarray, missing: np.ndarray) -> np.ndarray:
    return np.where(missing, np.nan, items).astype(np.float64)


def _dates(array: np.ndarray) -> Values:
    missing = np.isnat(array)
    return Values("date", np.where(missing, np.nan, days_of(array)), missing)


def days_of(dates: Any) -> np.ndarray:
    """Days (n,) since the start of 1970."""
    array = np.asarray(dates, dtype="datetime64[us]")
    return np.asarray(array.astype(np.int64) / (_DAY / np.timedelta64(1, "us")))
