"""A sheet of an Excel file as an Arrow table."""

import datetime
import os
from collections.abc import Collection
from typing import Any
from zipfile import BadZipFile

from sharpgp._extras import need
from sharpgp.exceptions import InvalidInputError
from sharpgp.tabular.layout import Reading, decimal_of, header_of, named


def read_sheet(
    path: str | os.PathLike[str], missing: Collection[str], reading: Reading
) -> tuple[Any, list[str], str | None]:
    """A sheet as a table in memory, notes on how it was read, and its decimal mark.

    Columns of numbers stay numbers, dates stay dates; anything else becomes text.

    Parameters
    ----------
    path : str or path
    missing : collection of str
        Texts that mark a missing value.
    reading : Reading
        Which sheet (the first by default), and how many rows are above the header.
    """
    need("excel", "openpyxl")
    import pyarrow as pa
    from openpyxl import load_workbook
    from openpyxl.utils.exceptions import InvalidFileException

    try:
        with open(path, "rb") as stream:
            book = load_workbook(stream, read_only=True, data_only=True)
            names = book.sheetnames
            if reading.sheet is not None and reading.sheet not in names:
                raise InvalidInputError(
                    f"sheet: expected one of {', '.join(names)}, found {reading.sheet!r}"
                )
            sheet = book[reading.sheet or names[0]]
            rows = [list(row) for row in sheet.iter_rows(values_only=True)]
            book.close()
    except (FileNotFoundError, InvalidInputError):
        raise
    except (InvalidFileException, BadZipFile, OSError, KeyError, ValueError, SyntaxError) as error:
        reason = str(error).splitlines()[0] if str(error) else type(error).__name__
        raise InvalidInputError(f"{path}: expected an Excel file, found: {reason}") from None
    while rows and all(value is None for value in rows[-1]):
        rows.pop()
    others = f"; other sheets: {', '.join(names[1:])}" if len(names) > 1 else ""
    use = f"{others}; use sheet={names[1]!r}" if reading.sheet is None and others else others
    if not rows:
        raise InvalidInputError(f"expected a header, found an empty sheet{use}")
    place = header_of(rows) if reading.skip is None else min(reading.skip, len(rows) - 1)
    told = []
    if reading.sheet is None and others:
        told.append(f"from its first sheet, as with sheet={names[0]!r}{others}")
    if reading.skip is None and place:
        told.append(f"with the header of line {place + 1}, as with skip={place}")
    body = [[_plain(value, missing) for value in row] for row in rows[place + 1 :]]
    if not body:
        raise InvalidInputError(f"expected rows, found only a header{use}")
    decimal = reading.decimal or decimal_of(
        value.strip() for row in body for value in row if isinstance(value, str)
    )
    columns = {
        name: _array([row[k] if k < len(row) else None for row in body], decimal)
        for k, name in enumerate(named(rows[place]))
    }
    if reading.decimal is None and decimal == ",":
        told.append("with decimal=',' in text")
    return pa.table(columns), told, decimal


def _plain(value: Any, missing: Collection[str]) -> Any:
    """A value, or None if its text marks a missing one; whole numbers have no decimal point."""
    text = f"{value:g}" if isinstance(value, float) else str(value).strip()
    return None if text in missing else value


def _array(values: list[Any], decimal: str | None) -> Any:
    """Booleans, numbers, dates, or else text; numbers get the decimal mark of the other texts."""
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

    def text(value: Any) -> str | None:
        as_text = None if value is None else str(value)
        written = isinstance(value, float) and as_text is not None and decimal == ","
        return as_text.replace(".", ",") if written and as_text is not None else as_text

    return pa.array([text(value) for value in values])
