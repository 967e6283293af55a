"""The first sheet of an Excel file as an Arrow table."""

import datetime
import os
from collections.abc import Collection
from typing import Any
from zipfile import BadZipFile

from sharpgp._extras import need
from sharpgp.exceptions import InvalidInputError


def read_sheet(path: str | os.PathLike[str], missing: Collection[str]) -> Any:
    """The first sheet: names in its first row, values below, as a table in memory.

    A column of numbers becomes numbers, one of dates dates, and one with anything else text. Empty
    rows at the end, and empty columns without a name, are left out.

    Parameters
    ----------
    path : str or path
    missing : collection of str
        Text that stands for a missing value.
    """
    need("excel", "openpyxl")
    import pyarrow as pa
    from openpyxl import load_workbook
    from openpyxl.utils.exceptions import InvalidFileException

    try:
        with open(path, "rb") as stream:
            book = load_workbook(stream, read_only=True, data_only=True)
            rows = [list(row) for row in book.worksheets[0].iter_rows(values_only=True)]
            book.close()
    except FileNotFoundError:
        raise
    except (InvalidFileException, BadZipFile, OSError, KeyError, ValueError, SyntaxError) as error:
        reason = str(error).splitlines()[0] if str(error) else type(error).__name__
        raise InvalidInputError(f"{path}: expected an Excel file, found: {reason}") from None
    while rows and all(value is None for value in rows[-1]):
        rows.pop()
    if not rows:
        raise InvalidInputError(f"{path}: expected a header, found an empty sheet")
    head, *body = rows
    columns = {}
    for j, name in enumerate(head):
        values = [_plain(row[j] if j < len(row) else None, missing) for row in body]
        if name is None and all(value is None for value in values):
            continue
        label = "" if name is None else str(name)
        if label in columns:
            raise InvalidInputError(f"{path}: expected distinct names, found {label!r} twice")
        columns[label] = _array(values)
    return pa.table(columns)


def _plain(value: Any, missing: Collection[str]) -> Any:
    """A value, or None where its text stands for a missing one; whole numbers have no point."""
    text = f"{value:g}" if isinstance(value, float) else str(value).strip()
    return None if text in missing else value


def _array(values: list[Any]) -> Any:
    """Booleans, numbers, dates, or text of whatever there is."""
    import pyarrow as pa

    there = [value for value in values if value is not None]
    if there and all(isinstance(value, bool) for value in there):
        return pa.array(values, pa.bool_())
    if there and all(isinstance(value, int | float) for value in there):
        return pa.array([None if value is None else float(value) for value in values])
    if there and all(isinstance(value, datetime.datetime) for value in there):
        return pa.array(values, pa.timestamp("us"))
    if not there:
        return pa.nulls(len(values))
    return pa.array([None if value is None else str(value) for value in values])
