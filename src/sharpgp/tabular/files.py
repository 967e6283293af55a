"""CSV, Excel and Parquet files as Arrow tables: whole, in batches, written batch by batch.

Rows are counted from 1 in messages, without the header.
"""

import os
import re
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any, Protocol

from sharpgp._files import replacing
from sharpgp._validation import nearest
from sharpgp.data.column import Column
from sharpgp.data.encoding import missing_columns
from sharpgp.data.texts import MISSING
from sharpgp.exceptions import InvalidInputError
from sharpgp.tabular.excel import read_sheet
from sharpgp.tabular.layout import FALLBACK, Layout, Reading, tidied
from sharpgp.tabular.places import Format, Place, format_of

#: Rows held in memory at a time.
ROWS = 10_000
#: Default of the most rows of a file to fit, which takes minutes.
MAX_ROWS_FITTED = 100_000
_BLOCK_BYTES = 2**21
#: Excel's truth values in English, German, French, Spanish, Italian and Dutch.
TRUE = ["1", "true", "True", "TRUE", "WAHR", "VRAI", "VERDADERO", "VERO", "WAAR"]
FALSE = ["0", "false", "False", "FALSE", "FALSCH", "FAUX", "FALSO", "ONWAAR"]
#: Read a file without instructions.
AS_GUESSED = Reading()


def check_output(path: str | os.PathLike[str]) -> Format:
    """Format of a file to write; not Excel's."""
    form = format_of(path)
    if form == "excel":
        raise InvalidInputError(f"expected a .csv or .parquet file to write, found {path}")
    return form


def read_whole(
    path: str | os.PathLike[str], missing: Sequence[str] = (), reading: Reading = AS_GUESSED
) -> tuple[Any, Reading]:
    """The whole file as an Arrow table, with types inferred from all rows, and how it was read.

    ``missing`` are texts that mark a missing value in CSV and Excel files, besides :data:`MISSING`.
    """
    form = format_of(path)
    told: Sequence[str] = ()
    decimal = reading.decimal
    with plain_errors(path):
        if form == "parquet":
            table = Place.parse(path).parquet().read()
        elif form == "excel":
            table, told, decimal = read_sheet(path, [*MISSING, *missing], reading)
        else:
            table, told, decimal = _read_csv(path, missing, reading)
    check_names(path, table.column_names)
    if form != "parquet":
        table = tidied(path, table, told)
    if table.num_rows == 0:
        raise InvalidInputError(f"{path}: expected rows, found only a header")
    return table, replace(reading, decimal=decimal)


def _read_csv(
    path: str | os.PathLike[str], missing: Sequence[str], reading: Reading
) -> tuple[Any, list[str], str | None]:
    """A CSV file without short lines at its end, notes on how it was read, and its decimal mark."""
    from pyarrow import csv

    short: list[int] = []

    def too_short(row: Any) -> str:
        short.append(row.number)
        return "skip" if row.actual_columns < row.expected_columns else "error"

    with stream_of(path, reading) as (stream, layout):
        parsing = parsing_of(layout, invalid_row_handler=too_short)
        converting = csv_conversion({}, missing, layout)
        table = csv.read_csv(stream, row_by_row(layout), parsing, converting)
    if not short:
        return _plain_text(path, table), list(layout.told), layout.decimal
    if short[0] <= table.num_rows + layout.skip + 1:
        with stream_of(path, reading) as (stream, _):  # for Arrow's message
            csv.read_csv(stream, row_by_row(layout), parsing_of(layout), converting)
    told = [*layout.told, f"without {len(short)} line(s) at its end that are too short"]
    return _plain_text(path, table), told, layout.decimal


def _plain_text(path: str | os.PathLike[str], table: Any) -> Any:
    """Text without surrounding spaces; raise for bytes that are not text in the encoding."""
    import pyarrow as pa
    import pyarrow.compute as pc

    for k, field in enumerate(table.schema):
        if pa.types.is_binary(field.type):
            raise InvalidInputError(
                f"{path}: column {field.name!r}: expected text in UTF-8, found other bytes; use "
                f"encoding={FALLBACK!r}"
            )
        if pa.types.is_string(field.type):
            table = table.set_column(k, field.name, pc.utf8_trim_whitespace(table.column(k)))
    return table


def row_by_row(layout: Layout, **options: Any) -> Any:
    """Options for reading a CSV file: Arrow's errors name the row only on one thread."""
    from pyarrow import csv

    return csv.ReadOptions(
        use_threads=False, skip_rows=layout.skip + 1, column_names=layout.names, **options
    )


def parsing_of(layout: Layout, **options: Any) -> Any:
    """Options for parsing a CSV file."""
    from pyarrow import csv

    return csv.ParseOptions(delimiter=layout.delimiter, newlines_in_values=True, **options)


def names_in(path: str | os.PathLike[str], reading: Reading = AS_GUESSED) -> list[str]:
    """Names of the columns of a file."""
    form = format_of(path)
    with plain_errors(path):
        if form == "parquet":
            names = Place.parse(path).parquet().schema_arrow.names
        elif form == "excel":
            names = read_sheet(path, MISSING, reading)[0].column_names
        else:
            names = Layout.detect(path, reading).names
    check_names(path, names)
    return list(names)


def rows_in(path: str | os.PathLike[str]) -> int | None:
    """Number of rows of a file; None for Excel and remote CSV files.

    For a CSV file, the number of lines below the header; a quoted value may span several.
    """
    form = format_of(path)
    if form == "parquet":
        with plain_errors(path):
            return int(Place.parse(path).parquet().metadata.num_rows)
    if form == "excel" or not Place.parse(path).is_local:
        return None
    lines, last = 0, b"\n"
    with plain_errors(path), Place.parse(path).stream() as file:
        while block := file.read(_BLOCK_BYTES):
            lines, last = lines + block.count(b"\n"), block[-1:]
    return max(0, lines - 1 + (last != b"\n"))


def read_batches(
    path: str | os.PathLike[str],
    types: Mapping[str, Any],
    rows: int = ROWS,
    missing: Sequence[str] = (),
    reading: Reading = AS_GUESSED,
) -> Iterator[Any]:
    """The columns named in ``types`` as Arrow record batches of at most ``rows`` rows.

    ``types`` gives the Arrow type that a CSV column is read as, or None to infer it; ``missing`` is
    as in :func:`read_whole`.
    """
    form = format_of(path)
    with plain_errors(path):
        if form == "parquet":
            file = Place.parse(path).parquet()
            yield from file.iter_batches(rows, columns=list(types))
            return
        if form == "excel":
            table, _ = read_whole(path, missing, reading)
            yield from table.select(list(types)).to_batches(rows)
            return
        from pyarrow import csv

        with stream_of(path, reading) as (stream, layout):
            if any(name not in layout.names for name in types):
                raise InvalidInputError(f"{path}: {missing_columns(types, layout.names)}")
            options = row_by_row(layout, block_size=_BLOCK_BYTES)
            converting = csv_conversion(types, missing, layout)
            for block in csv.open_csv(stream, options, parsing_of(layout), converting):
                for start in range(0, block.num_rows, rows):
                    yield _plain_text(path, block.slice(start, rows))


def csv_schema(
    path: str | os.PathLike[str],
    missing: Sequence[str],
    reading: Reading,
    known: Mapping[str, Any],
) -> Any:
    """Types of the columns of a CSV file, from its first megabytes; whole numbers become floats."""
    import pyarrow as pa
    from pyarrow import csv

    with stream_of(path, reading) as (stream, layout):
        options = row_by_row(layout, block_size=_BLOCK_BYTES), parsing_of(layout)
        found = csv.open_csv(stream, *options, csv_conversion({}, missing, layout)).schema
    types = {f.name: pa.float64() if pa.types.is_integer(f.type) else f.type for f in found}
    return pa.schema({name: known.get(name) or kind for name, kind in types.items()})


def csv_type(column: Column) -> Any:
    """Type that a column of a CSV file is read as; text for numbers or dates written as text."""
    import pyarrow as pa

    if column.written is not None:
        return pa.string()
    types = {"number": pa.float64(), "boolean": pa.bool_(), "date": pa.timestamp("us")}
    return types.get(column.kind, pa.string())


def csv_conversion(types: Mapping[str, Any], missing: Sequence[str], layout: Layout) -> Any:
    """Conversion of the columns of a CSV file; of all if none is named."""
    from pyarrow import csv

    # Without a hint, numbers with possible thousands separators stay text, and the user is asked.
    usual = "." if layout.delimiter == "," else ","
    return csv.ConvertOptions(
        decimal_point=layout.decimal or usual,
        null_values=[*MISSING, *missing],
        true_values=TRUE,
        false_values=FALSE,
        strings_can_be_null=True,
        include_columns=list(types),
        column_types={name: kind for name, kind in types.items() if kind is not None},
    )


class Writer(Protocol):
    """Writes a table batch by batch."""

    def write(self, table: Any) -> None:
        """Append the rows of an Arrow table."""


@contextmanager
def writing(path: str | os.PathLike[str], schema: Any) -> Iterator[Writer]:
    """A writer of tables with this schema; the file appears only at the end, and whole.

    ``"-"`` is the standard output, as CSV.
    """
    from pyarrow import csv
    from pyarrow import parquet as pq

    form = check_output(path)
    if os.fspath(path) == "-":
        with csv.CSVWriter(sys.stdout.buffer, schema) as writer:
            yield writer
        return
    with replacing(path) as temporary:
        make = pq.ParquetWriter if form == "parquet" else csv.CSVWriter
        with make(str(temporary), schema) as writer:
            yield writer


@contextmanager
def stream_of(
    path: str | os.PathLike[str], reading: Reading = AS_GUESSED
) -> Iterator[tuple[Any, Layout]]:
    """The (decompressed) stream of a CSV file, in UTF-8, and its layout."""
    from pyarrow import transcoding_input_stream

    with plain_errors(path):
        layout = Layout.detect(path, reading)
        with Place.parse(path).stream() as stream:
            plain = layout.encoding in ("utf-8", "utf-8-sig")
            yield (
                stream if plain else transcoding_input_stream(stream, layout.encoding, "utf-8"),
                layout,
            )


@contextmanager
def plain_errors(path: str | os.PathLike[str]) -> Iterator[None]:
    """Errors of Arrow and the system about a file, as one line that names it."""
    from pyarrow import ArrowException

    try:
        yield
    except FileNotFoundError:
        raise InvalidInputError(f"expected a file, found none at {path}{_like(path)}") from None
    except (ArrowException, OSError, UnicodeDecodeError) as error:
        raise InvalidInputError(f"{path}: {_reason(str(error), path)}") from None
    except InvalidInputError as error:
        if str(path) in str(error):
            raise
        raise InvalidInputError(f"{path}: {error}") from None


def _like(path: str | os.PathLike[str]) -> str:
    """Hint at a file next to it with a similar name."""
    asked = Path(path)
    beside = asked.parent.iterdir() if asked.parent.is_dir() else []
    return nearest(asked.name, sorted(other.name for other in beside if other.is_file()))


def _reason(text: str, path: str | os.PathLike[str]) -> str:
    first = text.splitlines()[0] if text else "cannot be read"
    row = re.search(r"Row #(\d+)", first)
    value = re.search(r"column #(\d+).* to ([\w\[\]]+): invalid value '(.*)'", first)
    count = re.search(r"Expected (\d+) columns, got (\d+)", first)
    if value or count:
        layout = Layout.detect(path, AS_GUESSED)
        where = f" in row {int(row[1]) - layout.skip - 1}" if row else ""
    if value:
        wanted = {"double": "numbers", "timestamp[us]": "dates as in training"}
        name, expected = layout.names[int(value[1])], wanted.get(value[2], value[2])
        return f"column {name!r}: expected {expected}, found {value[3]!r}{where}"
    if count:
        return f"expected {count[1]} values, found {count[2]}{where}"
    if "Could not skip initial" in first:
        return "expected a header and rows, found none"
    if "invalid UTF8" in first or "codec can't decode" in first:
        return f"expected text in UTF-8, found other bytes; use encoding={FALLBACK!r}"
    return first


def check_names(path: str | os.PathLike[str], names: Sequence[str]) -> None:
    """Raise unless column names are distinct."""
    twice = sorted({name for name in names if names.count(name) > 1})
    if twice:
        raise InvalidInputError(f"{path}: expected distinct names, found {twice[0]!r} twice")
