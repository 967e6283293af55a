"""CSV, Excel and Parquet files as Arrow tables: whole, in batches, written batch by batch.

Rows are counted from 1 in messages, without the header.
"""

import os
import re
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Literal, Protocol

from sharpgp._files import replacing
from sharpgp._validation import nearest
from sharpgp.exceptions import InvalidInputError
from sharpgp.frames.column import Column
from sharpgp.frames.encoding import missing_columns
from sharpgp.tabular.excel import read_sheet

Format = Literal["csv", "excel", "parquet"]
#: Text that stands for a missing value in CSV files. "None" is a word: as a category it says more
#: than a gap, and among numbers it is refused with the advice to name it.
MISSING = ["", "NA", "N/A", "#N/A", "NaN", "nan", "NULL", "null"]
#: Rows that are held in memory at a time.
ROWS = 10_000
#: Rows up to which ``sharpgp fit`` reads a file as a whole, unless told otherwise.
MOST_IN_MEMORY = 2_000_000
_BLOCK_BYTES = 2**21


def format_of(path: str | os.PathLike[str]) -> Format:
    """``"csv"``, ``"excel"`` or ``"parquet"``, by the file's name.

    Examples
    --------
    >>> format_of("data.csv.gz"), format_of("data.xlsx"), format_of("data.parquet")
    ('csv', 'excel', 'parquet')
    """
    name = Path(path).name.lower()
    if name.endswith((".parquet", ".pq")):
        return "parquet"
    if name.endswith((".xlsx", ".xlsm")):
        return "excel"
    if re.search(r"\.(csv|tsv|txt)(\.(gz|bz2|zst))?$", name) or name == "-":
        return "csv"
    raise InvalidInputError(f"expected a .csv, .csv.gz, .parquet or .xlsx file, found {path}")


def check_output(path: str | os.PathLike[str]) -> Format:
    """The format of a file to write, which cannot be Excel's."""
    form = format_of(path)
    if form == "excel":
        raise InvalidInputError(f"expected a .csv or .parquet file to write, found {path}")
    return form


def read_whole(path: str | os.PathLike[str], missing: Sequence[str] = ()) -> Any:
    """The whole file as an Arrow table, with types inferred from all rows.

    ``missing`` are texts that mark a missing value in CSV and Excel files, besides :data:`MISSING`.
    """
    form = format_of(path)
    with plain_errors(path):
        if form == "parquet":
            import pyarrow.parquet as pq

            table = pq.ParquetFile(path).read()
        elif form == "excel":
            table = read_sheet(path, [*MISSING, *missing])
        else:
            from pyarrow import csv

            converting = csv.ConvertOptions(
                null_values=[*MISSING, *missing], strings_can_be_null=True
            )
            with stream_of(path) as (stream, parsing):
                table = csv.read_csv(stream, row_by_row(), parsing, converting)
        names = table.column_names
    _check_names(path, names)
    if table.num_rows == 0:
        raise InvalidInputError(f"{path}: expected rows, found only a header")
    return table


def row_by_row(**options: Any) -> Any:
    """Options to read a CSV file with: Arrow's errors name the row on one thread only."""
    from pyarrow import csv

    return csv.ReadOptions(use_threads=False, **options)


def names_in(path: str | os.PathLike[str]) -> list[str]:
    """Names of the columns of a file."""
    form = format_of(path)
    with plain_errors(path):
        if form == "parquet":
            import pyarrow.parquet as pq

            names = pq.ParquetFile(path).schema_arrow.names
        elif form == "excel":
            names = read_sheet(path, MISSING).column_names
        else:
            from pyarrow import csv

            with stream_of(path) as (stream, parsing):
                names = csv.open_csv(stream, row_by_row(), parsing).schema.names
    _check_names(path, names)
    return list(names)


def check_columns(path: str | os.PathLike[str], names: Iterable[str]) -> None:
    """Raise unless a file has the columns of these names."""
    wanted, found = list(names), names_in(path)
    if any(name not in found for name in wanted):
        raise InvalidInputError(f"{path}: {missing_columns(wanted, found)}")


def rows_in(path: str | os.PathLike[str]) -> int | None:
    """Number of rows of a file, for a progress bar; None where only reading all of it would tell.

    Of a CSV file it is the number of lines below the header, of which a quoted value may have
    several.
    """
    form = format_of(path)
    if form == "parquet":
        import pyarrow.parquet as pq

        with plain_errors(path):
            return int(pq.ParquetFile(path).metadata.num_rows)
    if form == "excel" or Path(path).suffix.lower() in (".gz", ".bz2", ".zst"):
        return None
    lines, last = 0, b"\n"
    with plain_errors(path), Path(path).open("rb") as file:
        while block := file.read(_BLOCK_BYTES):
            lines, last = lines + block.count(b"\n"), block[-1:]
    return max(0, lines - 1 + (last != b"\n"))


def read_batches(
    path: str | os.PathLike[str],
    types: Mapping[str, Any],
    rows: int = ROWS,
    missing: Sequence[str] = (),
) -> Iterator[Any]:
    """The columns named in ``types`` as Arrow record batches of at most ``rows`` rows.

    ``types`` gives the Arrow type that a CSV column is read as, or None to infer it; ``missing`` is
    as in :func:`read_whole`.
    """
    form = format_of(path)
    with plain_errors(path, list(types) if form == "csv" else None):
        if form == "parquet":
            import pyarrow.parquet as pq

            yield from pq.ParquetFile(path).iter_batches(rows, columns=list(types))
            return
        if form == "excel":
            sheet = read_sheet(path, [*MISSING, *missing])
            yield from sheet.select(list(types)).to_batches(rows)
            return
        from pyarrow import csv

        converting = csv_conversion(types, missing)
        reading = row_by_row(block_size=_BLOCK_BYTES)
        with stream_of(path) as (stream, parsing):
            for block in csv.open_csv(stream, reading, parsing, converting):
                for start in range(0, block.num_rows, rows):
                    yield block.slice(start, rows)


def csv_type(column: Column) -> Any:
    """What a column is read as from a CSV file."""
    import pyarrow as pa

    types = {"number": pa.float64(), "boolean": pa.bool_(), "date": pa.timestamp("us")}
    return types.get(column.kind, pa.string())


def csv_conversion(types: Mapping[str, Any], missing: Sequence[str] = ()) -> Any:
    """How the columns of a CSV file are converted."""
    from pyarrow import csv

    return csv.ConvertOptions(
        null_values=[*MISSING, *missing],
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


def delimiter_of(path: str | os.PathLike[str]) -> str:
    """Comma, semicolon or tab: whichever the header has most of."""
    from pyarrow import input_stream

    with plain_errors(path), input_stream(os.fspath(path)) as stream:
        header = stream.read(65536).split(b"\n", 1)[0].decode("utf-8", "replace")
    return max(",;\t", key=header.count)


@contextmanager
def stream_of(path: str | os.PathLike[str]) -> Iterator[tuple[Any, Any]]:
    """The (decompressed) stream of a CSV file and how to parse it."""
    from pyarrow import csv, input_stream

    delimiter = delimiter_of(path)
    with input_stream(os.fspath(path)) as stream:
        yield stream, csv.ParseOptions(delimiter=delimiter, newlines_in_values=True)


@contextmanager
def plain_errors(path: str | os.PathLike[str], wanted: list[str] | None = None) -> Iterator[None]:
    """Arrow's and the system's errors about a file, as one line."""
    from pyarrow import ArrowException

    try:
        yield
    except FileNotFoundError:
        raise InvalidInputError(f"expected a file, found none at {path}{_like(path)}") from None
    except (ArrowException, OSError, UnicodeDecodeError) as error:
        raise InvalidInputError(f"{path}: {_reason(str(error), path, wanted)}") from None


def _like(path: str | os.PathLike[str]) -> str:
    """A hint at a file beside it whose name is nearly the same."""
    asked = Path(path)
    beside = asked.parent.iterdir() if asked.parent.is_dir() else []
    return nearest(asked.name, sorted(other.name for other in beside if other.is_file()))


def _reason(text: str, path: str | os.PathLike[str], wanted: list[str] | None) -> str:
    first = text.splitlines()[0] if text else "cannot be read"
    row = re.search(r"Row #(\d+)", first)
    where = f" in row {int(row[1]) - 1}" if row else ""
    value = re.search(r"column #(\d+).* to (\w+): invalid value '(.*)'", first)
    if value:
        names, place = _header(path), int(value[1])
        name = names[place] if place < len(names) else f"number {place + 1}"
        expected = "numbers" if value[2] == "double" else value[2]
        return f"column {name!r}: expected {expected}, found {value[3]!r}{where}"
    count = re.search(r"Expected (\d+) columns, got (\d+)", first)
    if count:
        return f"expected {count[1]} values, found {count[2]}{where}"
    if "invalid UTF8" in first:
        return f"expected text in UTF-8, found other bytes{where}; convert the file first"
    missing = re.search(r"Column '(.*)' in include_columns", first)
    if missing and wanted is not None:
        return missing_columns(wanted, _header(path))
    if "Empty CSV file" in first:
        return "expected a header and rows, found an empty file"
    if "codec can't decode" in first:
        return "expected text in UTF-8, found other bytes in the header; convert the file first"
    return first


def _header(path: str | os.PathLike[str]) -> list[str]:
    """Names of the columns for a message about them; none where the file cannot be read at all."""
    from pyarrow import ArrowException, csv, input_stream

    try:
        with input_stream(os.fspath(path)) as stream:
            parsing = csv.ParseOptions(delimiter=delimiter_of(path), newlines_in_values=True)
            text = csv.ConvertOptions(check_utf8=False)
            reader = csv.open_csv(stream, parse_options=parsing, convert_options=text)
            return list(reader.schema.names)
    except (ArrowException, OSError, UnicodeDecodeError, InvalidInputError):
        return []


def _check_names(path: str | os.PathLike[str], names: list[str]) -> None:
    twice = sorted({name for name in names if names.count(name) > 1})
    if twice:
        raise InvalidInputError(f"{path}: expected distinct names, found {twice[0]!r} twice")
    if "" in names:
        place = names.index("") + 1
        raise InvalidInputError(f"{path}: expected a name for column {place}, found none")
