"""Tables in files: where they are, what is in them, and how they are read and written.

Rows are counted from 1 in messages, without the header.
"""

import io
import os
import re
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from csv import reader
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path, PurePath
from typing import Any
from urllib.parse import unquote

from sharpgp._files import replacing
from sharpgp._validation import nearest
from sharpgp.data.texts import MISSING
from sharpgp.exceptions import InvalidInputError, warn
from sharpgp.tabular.layout import FALLBACK, Layout, Reading, is_row, left_out

#: Rows held in memory at a time.
ROWS = 10_000
#: Default of the most rows of a file to fit, which takes minutes.
MAX_ROWS_FITTED = 100_000
#: Read a file without instructions.
AS_GUESSED = Reading()
# Bytes of a CSV file that are read at a time; its types are those of the first ones.
_BLOCK_BYTES = 2**26
# Bytes at the end of a CSV file in which notes and totals are looked for.
_END_BYTES = 2**16
# Excel's truth values in English, German, French, Spanish, Italian and Dutch.
_TRUE = ["1", "true", "True", "TRUE", "WAHR", "VRAI", "VERDADERO", "VERO", "WAAR"]
_FALSE = ["0", "false", "False", "FALSE", "FALSCH", "FAUX", "FALSO", "ONWAAR"]

# ------------------------------------------------------------------ where


@dataclass(frozen=True)
class Place(os.PathLike[str]):
    """A file in one of Arrow's file systems, with the name that the user gave it.

    ``keys``: what the folders above it say, as ``year=2020`` does.

    Examples
    --------
    >>> place = Place.parse("file:///data/a.parquet")
    >>> place.name, str(place)
    ('/data/a.parquet', 'file:///data/a.parquet')
    """

    filesystem: Any
    name: str
    said: str
    keys: Mapping[str, str] = field(default_factory=dict)

    @classmethod
    def parse(cls, path: str | os.PathLike[str]) -> "Place":
        """From a path, or an address such as ``s3://bucket/a.parquet``, by pyarrow or fsspec."""
        if isinstance(path, Place):
            return path
        from pyarrow import ArrowException, fs

        text = os.fspath(path)
        text = text.rstrip("/") or text
        if not re.match(r"\w[\w+.-]+:", text):  # a single letter is a drive
            return cls(fs.LocalFileSystem(), text, text)
        try:
            filesystem, name = fs.FileSystem.from_uri(text)
            return cls(filesystem, name, text)
        except ArrowException:  # a scheme that Arrow does not know
            pass
        try:
            from fsspec.core import url_to_fs

            found, name = url_to_fs(text)
        except (ImportError, ValueError) as error:
            raise InvalidInputError(f"{text}: {error}") from None
        return cls(fs.PyFileSystem(fs.FSSpecHandler(found)), name, text)

    def __fspath__(self) -> str:
        return self.name

    def __str__(self) -> str:
        return self.said

    @property
    def is_local(self) -> bool:
        """Whether the file is on this machine."""
        return str(self.filesystem.type_name) == "local"

    @property
    def kind(self) -> str:
        """``"file"``, ``"folder"``, ``"pattern"``, or ``"nothing"``."""
        from pyarrow.fs import FileType

        found = self.filesystem.get_file_info(self.name).type
        if found == FileType.NotFound:
            return "pattern" if re.search(r"[*?\[]", self.name) else "nothing"
        return "folder" if found == FileType.Directory else "file"

    def stream(self) -> Any:
        """The decompressed content, from its beginning."""
        return self.filesystem.open_input_stream(self.name)

    def parquet(self, **settings: Any) -> Any:
        """The file, as one of Parquet."""
        from pyarrow import parquet as pq

        return pq.ParquetFile(self.filesystem.open_input_file(self.name), **settings)

    def inside(self) -> "list[Place]":
        """The tables of a folder or a pattern."""
        from fsspec.implementations.arrow import ArrowFSWrapper

        files, name = ArrowFSWrapper(self.filesystem), self.name
        if self.is_local and not os.path.isabs(name):
            name = os.path.join(".", name)
        if self.kind == "folder":
            base = name
            names = [one for one in files.find(name) if _is_table(one[len(base) :])]
        else:
            base = re.split(r"[^/]*[*?\[]", name)[0]
            names = [one for one in files.glob(name) if files.isfile(one)]
        if not names:
            raise InvalidInputError(f"{self}: expected .parquet or .csv files, found none")
        clean = os.path.normpath if self.is_local else str
        said = {one: self.said.replace(self.name, clean(one)) for one in names}
        return [Place(self.filesystem, clean(one), said[one]).below(base) for one in names]

    def below(self, base: str) -> "Place":
        """The file with what folders below ``base`` say."""
        folders = os.path.relpath(os.path.dirname(self.name) or ".", base or ".")
        return replace(self, keys=dict(re.findall(r"([^/=]+)=([^/]*)", unquote(folders))))


def format_of(path: str | os.PathLike[str]) -> str:
    """``"csv"``, ``"excel"`` or ``"parquet"``, by the file's name.

    Examples
    --------
    >>> format_of("data.csv.gz"), format_of("data.xlsx"), format_of("data.parquet")
    ('csv', 'excel', 'parquet')
    """
    name = PurePath(path).name.lower()
    if name.endswith((".parquet", ".pq")):
        return "parquet"
    if name.endswith((".xlsx", ".xlsm")):
        return "excel"
    if re.search(r"\.(csv|tsv|txt)(\.(gz|bz2|zst))?$", name) or name == "-":
        return "csv"
    raise InvalidInputError(f"expected a .csv, .csv.gz, .parquet or .xlsx file, found {path}")


def _is_table(below: str) -> bool:
    """Whether a file of a folder is read: not a hidden one, nor one of Excel."""
    try:
        return not re.search(r"(^|/)[._]", below.lstrip("/")) and format_of(below) != "excel"
    except InvalidInputError:
        return False


def places_of(given: str | os.PathLike[str] | Iterable[str | os.PathLike[str]]) -> list[Place]:
    """Files, sorted by name, of a file, a folder, a pattern or an address, or of several of these.

    Folders and patterns are searched recursively; names that begin with ``.`` or ``_`` are skipped.
    """
    several = [given] if isinstance(given, str | os.PathLike) else list(given)
    found: list[Place] = []
    single: list[Place] = []
    for place in map(Place.parse, several):
        if place.kind in ("file", "nothing"):
            single.append(place)
        else:
            found += place.inside()
    folders = [os.path.dirname(place.name) for place in single]
    base = os.path.commonpath(folders) if len({*map(os.path.isabs, folders)}) == 1 else ""
    found += [place.below(base) for place in single]
    if not found:
        raise InvalidInputError("expected at least one file, found none")
    return sorted(found, key=str)


# ------------------------------------------------------------------ read


@dataclass(frozen=True)
class CSVFile:
    """The text of a CSV file, or the ``text`` of a sheet, as Arrow batches."""

    place: Place
    layout: Layout
    missing: Sequence[str]
    text: bytes | None = None

    def schema(self, types: Mapping[str, Any]) -> Any:
        """Types of the columns, from the beginning of the file.

        Columns in ``types`` have these, None for what is found; other whole numbers become floats.
        """
        import pyarrow as pa

        with self._opened({}, []) as reader:
            found = reader.schema

        def kind(one: Any) -> Any:
            is_whole = pa.types.is_integer(one.type) and one.name not in types
            return types.get(one.name) or (pa.float64() if is_whole else one.type)

        return pa.schema([(one.name, kind(one)) for one in found])

    def batches(self, types: Mapping[str, Any], most: int) -> Iterator[Any]:
        """The columns named in ``types``, as batches of at most ``most`` rows.

        Lines at the end that hold no row are left out, with a warning.
        """
        ended: list[str] = []
        with self._opened(types, ended) as reader:
            for block in reader:
                plain = _plain_text(block)
                yield from (plain.slice(k, most) for k in range(0, plain.num_rows, most))
        for told in left_out(ended):
            warn(f"{self.place}: read {told}", UserWarning)

    @contextmanager
    def _opened(self, types: Mapping[str, Any], ended: list[str]) -> Iterator[Any]:
        """Arrow's reader, for all columns unless some are named; ``ended`` as of :class:`_Rows`."""
        from pyarrow import csv, transcoding_input_stream

        layout = self.layout
        reading = csv.ReadOptions(
            use_threads=False,  # Arrow's errors name the row only on one thread
            skip_rows=layout.skip + 1,
            column_names=layout.names,
            block_size=_BLOCK_BYTES,
        )
        parsing = csv.ParseOptions(delimiter=layout.delimiter, newlines_in_values=True)
        # Without a hint, numbers with possible thousands separators stay text: the user is asked.
        usual = "." if layout.delimiter == "," else ","
        converting = csv.ConvertOptions(
            decimal_point=layout.decimal or usual,
            null_values=[*MISSING, *self.missing],
            true_values=_TRUE,
            false_values=_FALSE,
            strings_can_be_null=True,
            include_columns=list(types),
            column_types={name: kind for name, kind in types.items() if kind is not None},
        )
        stream = self.place.stream() if self.text is None else io.BytesIO(self.text)
        with plain_errors(self.place, layout), stream:
            if layout.encoding not in ("utf-8", "utf-8-sig"):
                stream = transcoding_input_stream(stream, layout.encoding, "utf-8")
            yield csv.open_csv(_Rows(stream, layout, ended), reading, parsing, converting)


class _Rows(io.RawIOBase):
    """A stream of UTF-8 that ends with its last row.

    ``ended`` gets the lines below it: notes, totals, and what was cut short.
    """

    def __init__(self, stream: Any, layout: Layout, ended: list[str]) -> None:
        self._stream, self._layout, self._ended = stream, layout, ended
        # Bytes that were read and not yet given; whether these are all there are.
        self._held, self._whole, self._open = b"", True, True

    def readable(self) -> bool:
        return True

    def read(self, size: int = -1) -> bytes:
        """The next bytes; those at the end are looked at first."""
        while self._open and len(self._held) < size + _END_BYTES:
            block = self._stream.read(size)
            self._held, self._open = self._held + block, bool(block)
            if not block:
                self._cut()
        given, self._held, self._whole = self._held[:size], self._held[size:], False
        return given

    def _cut(self) -> None:
        """Leave out lines that hold no row."""
        start = max(0, len(self._held) - _END_BYTES)
        lines = self._held[start:].splitlines(keepends=True)
        # The first line may be the end of another one.
        first = self._layout.skip + 1 if self._whole and not start else 1
        while len(lines) > first:
            text = lines[-1].decode("utf-8", "replace").strip()
            is_end_of_value = text.count('"') % 2
            if is_end_of_value or (text and self._is_row(text, b"".join(lines[:-1]))):
                break
            self._ended += [text] if text else []
            lines.pop()
        self._held = self._held[:start] + b"".join(lines)

    def _is_row(self, text: str, above: bytes) -> bool:
        cells = next(reader([text], delimiter=self._layout.delimiter, skipinitialspace=True))
        return is_row(cells, len(self._layout.names), above.decode("utf-8", "replace"))


def _plain_text(table: Any) -> Any:
    """Text without surrounding spaces; raise for bytes that are not text in the encoding."""
    import pyarrow as pa
    import pyarrow.compute as pc

    for k, column in enumerate(table.schema):
        if pa.types.is_binary(column.type):
            raise InvalidInputError(
                f"column {column.name!r}: expected text in UTF-8, found other bytes; use "
                f"encoding={FALLBACK!r}"
            )
        if pa.types.is_string(column.type):
            table = table.set_column(k, column.name, pc.utf8_trim_whitespace(table.column(k)))
    return table


def rows_in(path: Any) -> int | None:
    """Number of rows of a Parquet or CSV file on this machine; None for anything else.

    For a CSV file, the number of lines below the header; a quoted value may span several.
    """
    if not isinstance(path, str | os.PathLike):
        return None
    place = Place.parse(path)
    with plain_errors(path):
        if place.kind != "file":
            return None
        form = format_of(path)
        if form == "parquet":
            return int(place.parquet().metadata.num_rows)
        if form == "excel" or not place.is_local:
            return None
        lines, last = 0, b"\n"
        with place.stream() as file:
            for block in iter(partial(file.read, _BLOCK_BYTES), b""):
                lines, last = lines + block.count(b"\n"), block[-1:]
    return max(0, lines - 1 + (last != b"\n"))


# ------------------------------------------------------------------ write


def check_output(path: str | os.PathLike[str]) -> None:
    """Raise for a file that cannot be written: one of Excel."""
    if format_of(path) == "excel":
        raise InvalidInputError(f"expected a .csv or .parquet file to write, found {path}")


@contextmanager
def writing(path: str | os.PathLike[str], schema: Any) -> Iterator[Any]:
    """Arrow's writer of tables with this schema; the file appears only at the end, and whole.

    ``"-"`` is the standard output, as CSV.
    """
    from pyarrow.csv import CSVWriter
    from pyarrow.parquet import ParquetWriter

    check_output(path)
    if os.fspath(path) == "-":
        with CSVWriter(sys.stdout.buffer, schema) as writer:
            yield writer
        return
    make = ParquetWriter if format_of(path) == "parquet" else CSVWriter
    with replacing(path) as temporary, make(str(temporary), schema) as writer:
        yield writer


# ------------------------------------------------------------------ errors


@contextmanager
def naming(source: Any, rows: Sequence[Any] | None = None) -> Iterator[None]:
    """Errors about data name the source; row numbers, counted from 1, become names of ``rows``."""
    try:
        yield
    except InvalidInputError as error:
        text = str(error)
        if rows is not None:
            text = re.sub(r"in row (\d+)", lambda row: f"in row {rows[int(row[1]) - 1]}", text)
        raise InvalidInputError(text if str(source) in text else f"{source}: {text}") from None


@contextmanager
def plain_errors(path: str | os.PathLike[str], layout: Layout | None = None) -> Iterator[None]:
    """Errors of Arrow and the system about a file, as one line that names it."""
    from pyarrow import ArrowException

    try:
        with naming(path):
            yield
    except FileNotFoundError:
        asked = Path(path)
        beside = asked.parent.iterdir() if asked.parent.is_dir() else []
        like = nearest(asked.name, sorted(other.name for other in beside if other.is_file()))
        raise InvalidInputError(f"expected a file, found none at {path}{like}") from None
    except (ArrowException, OSError, UnicodeDecodeError) as error:
        raise InvalidInputError(f"{path}: {_reason(str(error), layout)}") from None


def _reason(text: str, layout: Layout | None) -> str:
    first = text.splitlines()[0] if text else "cannot be read"
    value = re.search(r"column #(\d+).* to ([\w\[\]]+): invalid value '(.*)'", first)
    if value and layout is not None:
        row = re.search(r"Row #(\d+)", first)
        where = f" in row {int(row[1]) - layout.skip - 1}" if row else ""
        wanted = {"double": "numbers", "bool": "true or false"}
        name, expected = layout.names[int(value[1])], wanted.get(value[2], value[2])
        return f"column {name!r}: expected {expected}, found {value[3]!r}{where}"
    width = re.search(r"Row #(\d+): Expected (\d+) columns, got (\d+)", first)
    if width and layout is not None:
        number = int(width[1]) - layout.skip - 1
        return f"expected {width[2]} values, found {width[3]} in row {number}"
    if "Could not skip initial" in first:
        return "expected a header and rows, found none"
    if "invalid UTF8" in first or "codec can't decode" in first:
        return f"expected text in UTF-8, found other bytes; use encoding={FALLBACK!r}"
    return first
