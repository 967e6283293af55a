"""How a table is laid out in a CSV file or a sheet of Excel: how it is written, where it begins.

Anything not given is guessed where that is safe, from the bytes and the first rows.
"""

import csv
import io
import re
from collections import Counter
from collections.abc import Container, Iterable, Sequence
from dataclasses import dataclass
from typing import Any
from zipfile import BadZipFile

from sharpgp._extras import need
from sharpgp.data.texts import MISSING
from sharpgp.exceptions import InvalidInputError, warn

# Bytes to guess from.
_SAMPLE_BYTES = 2**16
#: Fallback encoding for text that is not UTF-8: Excel's in Western Europe, close to Latin-1.
FALLBACK = "cp1252"
_COMMA, _POINT = re.compile(r"[-+]?\d+,\d+"), re.compile(r"[-+]?\d+\.\d+")
#: First cell of a row of totals in Excel, in several languages.
_TOTAL = re.compile(
    r"((grand|sub)?\s?total\w*|sum|summe|gesamt\w*|insgesamt|somme|suma|average|mean|mittelwert"
    r"|durchschnitt|moyenne|media):?",
    re.IGNORECASE,
)
_GROUPS = re.compile(r"[-+]?[1-9]\d{0,2}[.,]\d{3}")


@dataclass(frozen=True)
class Reading:
    """User's instructions for reading a file; None means a guess.

    Attributes
    ----------
    encoding : str, optional
        Of a CSV file, such as ``"latin-1"``.
    decimal : {".", ","}, optional
        Decimal mark of numbers.
    skip : int, optional
        Lines above the header.
    sheet : str, optional
        Name of a sheet of an Excel file; the first one by default.
    dates : str, optional
        Format of dates that could be read in two ways, as for ``strptime``: ``"%d/%m/%Y"``.
    """

    encoding: str | None = None
    decimal: str | None = None
    skip: int | None = None
    sheet: str | None = None
    dates: str | None = None

    def __post_init__(self) -> None:
        if self.decimal not in (None, ".", ","):
            raise InvalidInputError(f"decimal: expected '.' or ',', found {self.decimal!r}")
        if self.skip is not None and self.skip < 0:
            raise InvalidInputError(f"skip: expected 0 or more lines, found {self.skip}")
        try:
            "".encode(self.encoding or "utf-8")
        except LookupError:
            raise InvalidInputError(
                f"encoding: expected one such as 'latin-1' or 'utf-16', found {self.encoding!r}"
            ) from None


@dataclass(frozen=True)
class Layout:
    """Given or guessed layout of a CSV file, see :class:`Reading`, and the names of its columns.

    ``told``: guesses to tell the user.
    """

    encoding: str
    delimiter: str
    decimal: str | None
    skip: int
    names: tuple[str, ...]
    told: tuple[str, ...] = ()

    @classmethod
    def detect(cls, stream: Any, reading: Reading) -> "Layout":
        """The layout of a CSV file, from its first bytes."""
        sample = stream.read(_SAMPLE_BYTES + 1)
        whole = len(sample) <= _SAMPLE_BYTES
        encoding = reading.encoding or _encoding(sample)
        text = sample.decode(encoding, "replace")
        if not text.strip():
            raise InvalidInputError("expected a header and rows, found an empty file")
        tables = {mark: _rows(text, mark, whole) for mark in ",;\t|"}
        delimiter = max(tables, key=lambda mark: _fit(tables[mark]))
        told = [f"as encoding={FALLBACK!r}, for it is not UTF-8"]
        guessed = reading.encoding is None and encoding == FALLBACK
        return cls.of_rows(
            *tables[delimiter], reading, told if guessed else [], encoding, delimiter
        )

    @classmethod
    def of_rows(
        cls,
        lines: Sequence[int],
        rows: Sequence[Sequence[Any]],
        reading: Reading,
        told: Sequence[str],
        encoding: str = "",
        delimiter: str = "",
    ) -> "Layout":
        """The layout of rows of cells, below so many lines each."""
        place = header_of(rows)
        if reading.skip is not None:
            below = [k for k, above in enumerate(lines) if above >= reading.skip]
            if not below:
                raise InvalidInputError(
                    f"skip: expected a header below {reading.skip} lines, found none"
                )
            place = below[0]
        elif (found := len(rows[place])) != (width := _width(rows)):
            better = next(k for k, row in enumerate(rows) if len(row) == width)
            raise InvalidInputError(
                f"expected {width} names, as many as most rows have values, found {found}; if the "
                f"header is in line {lines[better] + 1}, use skip={lines[better]}"
            )
        texts = (cell.strip() for row in rows[place + 1 :] for cell in row if isinstance(cell, str))
        decimal = reading.decimal or decimal_of(texts)
        told = [*told]
        if reading.decimal is None and decimal == ",":
            told.append("with decimal=','")
        if reading.skip is None and lines[place]:
            told.append(f"with the header of line {lines[place] + 1}, as with skip={lines[place]}")
        header = ["" if cell is None else str(cell).strip() for cell in rows[place]]
        names = [text or f"column {k + 1}" for k, text in enumerate(header)]
        check_distinct(names)
        return cls(encoding, delimiter, decimal, lines[place], tuple(names), tuple(told))


def read_sheet(stream: Any, reading: Reading) -> tuple[bytes, Layout, list[str]]:
    """A sheet of an Excel file as the text of a CSV file, its layout, and columns that hold text.

    Numbers in a column of text are written as the texts are.
    """
    sheets, rows = _cells(stream, reading.sheet)
    others = f"; other sheets: {', '.join(sheets[1:])}" if len(sheets) > 1 else ""
    is_first = reading.sheet is None and others
    use = f"{others}; use sheet={sheets[1]!r}" if is_first else others
    if not rows:
        raise InvalidInputError(f"expected a header, found an empty sheet{use}")
    told = [f"from its first sheet, as with sheet={sheets[0]!r}{others}"] if is_first else []
    layout = Layout.of_rows(range(len(rows)), rows, reading, told, "utf-8", ",")
    body = rows[layout.skip + 1 :]
    if not body:
        raise InvalidInputError(f"expected rows, found only a header{use}")

    def text(cell: Any) -> Any:
        if not isinstance(cell, float):
            return cell.strip() if isinstance(cell, str) else cell
        return int(cell) if cell % 1 == 0 else str(cell).replace(".", layout.decimal or ".")

    with io.StringIO() as out:
        csv.writer(out).writerows([text(cell) for cell in row] for row in rows)
        content = out.getvalue().encode()
    columns = zip(layout.names, zip(*body, strict=True), strict=True)
    return content, layout, [name for name, cells in columns if any(map(_is_text, cells))]


def _is_text(cell: Any) -> bool:
    return isinstance(cell, str) and cell.strip() not in MISSING


def _cells(stream: Any, wanted: str | None) -> tuple[list[str], list[list[Any]]]:
    """Names of the sheets of an Excel file, and the rows of one."""
    need("excel", "openpyxl")
    from openpyxl import load_workbook
    from openpyxl.utils.exceptions import InvalidFileException

    try:
        book = load_workbook(io.BytesIO(stream.read()), read_only=True, data_only=True)
        names = book.sheetnames
        if wanted is not None and wanted not in names:
            raise InvalidInputError(f"sheet: expected one of {', '.join(names)}, found {wanted!r}")
        rows = [list(row) for row in book[wanted or names[0]].iter_rows(values_only=True)]
    except InvalidInputError:
        raise
    except (InvalidFileException, BadZipFile, OSError, KeyError, ValueError, SyntaxError) as error:
        reason = str(error).splitlines()[0] if str(error) else type(error).__name__
        raise InvalidInputError(f"expected an Excel file, found: {reason}") from None
    while rows and all(cell is None for cell in rows[-1]):
        rows.pop()
    width = max(map(len, rows), default=0)
    return names, [row + [None] * (width - len(row)) for row in rows]


def header_of(rows: Sequence[Sequence[Any]]) -> int:
    """Index of the header: the first row as long as most rows, below titles that fill few cells.

    Examples
    --------
    >>> header_of([["Sales 2025", "", ""], ["", "", ""], ["shop", "area", "y"], ["a", "1", "2"]])
    2
    """
    width = _width(rows)
    for place, row in enumerate(rows):
        filled = sum(cell is not None and str(cell).strip() != "" for cell in row)
        if 2 * filled > width:
            return place if len(row) == width else 0
    return 0


def check_distinct(names: Sequence[str]) -> None:
    """Raise if two columns have the same name."""
    twice = next((name for name in names if names.count(name) > 1), None)
    if twice is not None:
        raise InvalidInputError(
            f"expected distinct names, found {twice!r} twice; rename one in the header"
        )


def tidied(path: str, table: Any, names: Sequence[str], told: Sequence[str]) -> Any:
    """A table without columns that are not data, and one warning of how it was read.

    Left out: columns with neither name nor values, and an unnamed first column that numbers the
    rows, as pandas writes it.  ``names`` are those of all columns of the file.  Columns of numbers
    are whole if all their values are.
    """
    import pyarrow as pa
    import pyarrow.compute as pc

    said = list(told)
    for name in table.column_names:
        column, k = table[name], names.index(name)
        whole = _as_whole(column)
        if whole is not None and pa.types.is_floating(column.type):
            table = table.set_column(table.column_names.index(name), name, whole)
        if name not in (f"column {k + 1}", f"Unnamed: {k}"):
            continue
        if column.null_count == len(table):
            table = table.drop_columns(name)
        elif k == 0 and whole is not None and pc.count_distinct(whole).as_py() == len(whole):
            table = table.drop_columns(name)
            said.append("without its first column, which has no name and numbers the rows")
        elif name == f"column {k + 1}":
            said.append(f"with {name!r} for the column that has no name")
    if said:
        warn(f"{path}: read {'; '.join(said)}", UserWarning)
    return table


def is_row(cells: Sequence[Any], width: int, above: Container[str] = ()) -> bool:
    """Whether the last cells of a file are a row: neither too few, nor a note, nor totals.

    A word such as "Total" that also stands ``above`` is a value like any other.

    Examples
    --------
    >>> note, totals = ["Source: survey", "", ""], ["Total", "7", "9.5"]
    >>> is_row(["a", "1", "2"], 3), is_row(note, 3), is_row(totals, 3), is_row(["a", "1"], 3)
    (True, False, False, False)
    """
    texts = [str(cell).strip() for cell in cells if cell is not None]
    filled = [text for text in texts if text not in MISSING]
    if len(cells) != width or not filled or width < 3:
        return len(cells) > width or bool(filled and len(cells) == width)
    is_note = len(filled) == 1 and re.search(r"[^\W\d_]{2}", filled[0])
    return not is_note and not any(_TOTAL.fullmatch(one) and one not in above for one in filled)


def left_out(lines: Sequence[str]) -> list[str]:
    """What to tell of lines at the end that hold no row."""
    example = next((repr(line.strip(" ,;|")) for line in lines if re.search(r"\w", line)), "")
    more = f", such as {example:.60}" if example else ""
    return [f"without {len(lines)} line(s) at its end that hold no row{more}"] if lines else []


def _as_whole(column: Any) -> Any:
    """A column of an Arrow table as whole numbers; None if they are not, or have gaps."""
    import pyarrow as pa

    try:
        return None if column.null_count else column.cast(pa.float64()).cast(pa.int64())
    except pa.ArrowException:
        return None


def _encoding(sample: bytes) -> str:
    if sample.startswith((b"\xff\xfe", b"\xfe\xff")):
        return "utf-16"
    if sample.startswith(b"\xef\xbb\xbf"):
        return "utf-8-sig"
    for name, zeros in (("utf-16-le", sample[1::2]), ("utf-16-be", sample[::2])):
        if 3 * zeros.count(0) > len(sample) // 2:
            return name
    try:
        # The sample may end in the middle of a character.
        sample[: max(len(sample) - 4, 1)].decode("utf-8")
    except UnicodeDecodeError as error:
        return "utf-8" if error.start > len(sample) - 8 else FALLBACK
    return "utf-8"


def _rows(text: str, delimiter: str, whole: bool) -> tuple[list[int], list[list[str]]]:
    """Rows of cells that are not empty lines, and how many lines are above each."""
    # None: line ends of all systems count.
    lines_of = io.StringIO(text, newline=None)
    reader = csv.reader(lines_of, delimiter=delimiter, skipinitialspace=True)
    lines, rows, above = [], [], 0
    try:
        for row in reader:
            if row:
                lines.append(above)
                rows.append(row)
            above = reader.line_num
    except csv.Error:  # a cell is longer than csv's limit
        pass
    return (lines, rows) if whole or len(rows) < 2 else (lines[:-1], rows[:-1])


def _fit(table: tuple[list[int], list[list[str]]]) -> tuple[bool, bool, float, int]:
    """How well a delimiter cuts rows into cells: below names, and the same number in all rows."""
    _, rows = table
    width = _width(rows)
    names = rows[header_of(rows)] if rows else []
    numbers = any(_COMMA.fullmatch(cell) or _POINT.fullmatch(cell) for cell in names)
    alike = sum(len(row) == width for row in rows) / max(len(rows), 1)
    return width > 1, not numbers, alike, width


def _width(rows: Sequence[Sequence[Any]]) -> int:
    return Counter(map(len, rows)).most_common(1)[0][0] if rows else 0


def decimal_of(cells: Iterable[str]) -> str | None:
    """The decimal mark of numbers in which it cannot separate thousands; None if both occur.

    Examples
    --------
    >>> decimal_of(["12,5", "1.234"]), decimal_of(["1.234", "7"]), decimal_of(["1,5", "1.5"])
    (',', None, None)
    """
    plain = [cell for cell in cells if not _GROUPS.fullmatch(cell)]
    commas = any(map(_COMMA.fullmatch, plain))
    points = any(map(_POINT.fullmatch, plain))
    return None if commas == points else "," if commas else "."
