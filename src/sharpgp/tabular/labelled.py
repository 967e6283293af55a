"""Rows of a table with their targets and groups, as a model takes them.

Nothing here loads torch, so that errors in a table are reported at once.
"""

import os
from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple

import numpy as np

from sharpgp.data import texts
from sharpgp.data.encoding import Encoded, TableEncoding, missing_columns
from sharpgp.data.reading import values_of
from sharpgp.data.table_check import TableCheck, check
from sharpgp.exceptions import InvalidInputError, warn
from sharpgp.tabular.files import AS_GUESSED, read_whole
from sharpgp.tabular.layout import Reading


class Labelled(NamedTuple):
    """Rows as a model takes them, their targets [n], the target's name, groups [n] if any.

    ``numbers`` [n]: positions of the rows in their file, from 1 without the header, or other names
    of rows.
    """

    X: Any
    y: np.ndarray
    target: str
    groups: list[str] | None
    numbers: Sequence[Any]


def training_rows(
    path: str | os.PathLike[str],
    target: str,
    *,
    drop: Iterable[str] = (),
    groups: str | None = None,
    missing: Sequence[str] = (),
    reading: Reading = AS_GUESSED,
) -> Labelled:
    """A whole file to train on, see :func:`sharpgp.tabular.fit_file`; its encoding is learned."""
    table, reading = read_whole(path, missing, reading)
    columns: dict[str, Any] = {"drop": drop, "groups": groups, "missing": missing}
    try:
        return rows_of(table, target, **columns, reading=reading)
    except InvalidInputError as error:
        raise InvalidInputError(f"{path}: {error}") from None


def rows_of(
    table: Any,
    target: str,
    *,
    drop: Iterable[str] = (),
    groups: str | None = None,
    missing: Sequence[str] = (),
    reading: Reading = AS_GUESSED,
) -> Labelled:
    """The same of an Arrow table in memory."""
    features = features_among(table.column_names, target, drop, groups)
    together = groups_in(table, groups)
    known: dict[str, Any] = {"marks": missing, "decimal": reading.decimal, "dates": reading.dates}
    for name in features:  # errors in rows without a target name their row, too
        values = texts.without(values_of(table, name), missing)
        texts.learn(name, values, 1, reading.decimal, reading.dates)
    rows, y, numbers = labelled(table, target, missing, reading.decimal)
    if together is not None and len(y) < len(together):
        together = groups_in(rows, groups)
    rows = rows.select(features)
    X = TableEncoding.learn(rows, 1, **known).encode(rows, 1)
    return Labelled(X, y, target, together, numbers.tolist())


def checked(
    path: str | os.PathLike[str],
    target: str,
    *,
    drop: Iterable[str] = (),
    groups: str | None = None,
    missing: Sequence[str] = (),
    reading: Reading = AS_GUESSED,
) -> TableCheck:
    """What :func:`sharpgp.check` finds in a file; arguments as of :func:`training_rows`."""
    table, reading = read_whole(path, missing, reading)
    features = features_among(table.column_names, target, drop, groups)
    kept = [*features, target, *([groups] if groups else [])]
    return check(
        table.select(kept),
        target,
        groups=groups,
        missing=missing,
        decimal=reading.decimal,
        dates=reading.dates,
        first_row=1,
    )


def features_among(
    found: Sequence[str], target: str, drop: Iterable[str] = (), groups: str | None = None
) -> list[str]:
    """The feature columns; raise if there are none, or if a named column is missing.

    Examples
    --------
    >>> features_among(["x", "id", "y"], "y", drop=["id"])
    ['x']
    """
    unused = [target, *drop, *([groups] if groups else [])]
    if any(name not in found for name in unused):
        raise InvalidInputError(missing_columns(unused, found))
    features = [name for name in found if name not in unused]
    if not features:
        raise InvalidInputError("expected at least one column besides the target, found none")
    return features


def as_fitted(
    model: Any, encoding: TableEncoding, table: Any, first_row: int
) -> Encoded | np.ndarray:
    """Rows of an Arrow table as the model takes them."""
    rows = encoding.encode(table, first_row)
    return rows if hasattr(model, "encoding_") else rows.features


def labelled(
    table: Any, target: str, missing: Sequence[str] = (), decimal: str | None = None
) -> tuple[Any, np.ndarray, np.ndarray]:
    """The rows of an Arrow table that have a target, these targets [n], and the rows' numbers [n].

    Rows are counted from 1 in messages, without the header.
    """
    if target not in table.column_names:
        raise InvalidInputError(missing_columns([target], table.column_names))
    values = texts.without(values_of(table, target), missing)
    if values.missing.all():
        raise InvalidInputError(f"column {target!r}: expected values, found none")
    written = texts.learn(target, values, 1, decimal)
    if written and not written.dates:
        values = written.read(target, values, 1)
        warn(f"column {target!r}: text is read as numbers, such as {written.reading}", UserWarning)
    if values.holds not in ("number", "boolean"):
        raise InvalidInputError(
            f"column {target!r}: expected numbers to predict, found {values.holds}, such as "
            f"{table[target].drop_null()[0].as_py()!s:.30}"
        )
    bad = np.flatnonzero(np.isinf(values.data))
    if bad.size:
        raise InvalidInputError(
            f"column {target!r}: expected finite numbers, found inf in row {int(bad[0]) + 1}"
        )
    numbers = np.flatnonzero(~values.missing) + 1
    if not values.missing.any():
        return table, values.data, numbers
    rows = np.flatnonzero(values.missing) + 1
    shown = ", ".join(str(row) for row in rows[:8]) + (", ..." if len(rows) > 8 else "")
    warn(
        f"column {target!r}: {len(rows)} of {len(values.data)} values are missing; row(s) {shown} "
        "are left out",
        UserWarning,
    )
    return table.take(numbers - 1), values.data[~values.missing], numbers


def groups_in(table: Any, name: str | None) -> list[str] | None:
    """Group of each row of a table, as text; raise if any is missing."""
    if name is None:
        return None
    if name not in table.column_names:
        raise InvalidInputError(missing_columns([name], table.column_names))
    labels = table[name].to_pylist()
    if None in labels:
        raise InvalidInputError(
            f"column {name!r}: expected a group in every row, found none in row "
            f"{labels.index(None) + 1}"
        )
    return [str(label) for label in labels]
