"""Locations of tables: paths, addresses, folders and patterns, as files of a file system."""

import os
import re
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import PurePath
from typing import Any, Literal

from sharpgp.exceptions import InvalidInputError

Format = Literal["csv", "excel", "parquet"]
#: A file, a folder, a pattern or an address, or several of these.
Paths = str | os.PathLike[str] | Iterable[str | os.PathLike[str]]
_FOLDER = "expected .parquet or .csv files, found none"


@dataclass(frozen=True)
class Place(os.PathLike[str]):
    """A file in one of Arrow's file systems, with the name that the user gave it.

    Examples
    --------
    >>> place = Place.parse("file:///data/a.parquet")
    >>> place.name, str(place)
    ('/data/a.parquet', 'file:///data/a.parquet')
    """

    filesystem: Any
    name: str
    said: str

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

    def file(self) -> Any:
        """The file, for random access."""
        return self.filesystem.open_input_file(self.name)

    def stream(self) -> Any:
        """The decompressed content, from its beginning."""
        return self.filesystem.open_input_stream(self.name)

    def parquet(self, **settings: Any) -> Any:
        """The file, as one of Parquet."""
        from pyarrow import parquet as pq

        return pq.ParquetFile(self.file(), **settings)

    def sibling(self, name: str) -> "Place":
        """Another file of the same file system."""
        start, found, end = self.said.partition(self.name)
        return Place(self.filesystem, name, f"{start}{name}{end}" if found else name)


def format_of(path: str | os.PathLike[str]) -> Format:
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


def is_one_file(given: Any) -> bool:
    """Whether this names a single file, not a folder or a pattern."""
    if not isinstance(given, str | os.PathLike):
        return False
    place = Place.parse(given)
    return not _is_pattern(place) and not (place.is_local and os.path.isdir(place.name))


def places_of(given: Paths) -> list[tuple[Place, str]]:
    """CSV and Parquet files, sorted by name, each with the folder that was searched.

    Folders and patterns are searched recursively; names that begin with ``.`` or ``_`` are skipped.
    """
    several = [given] if isinstance(given, str | os.PathLike) else list(given)
    found: list[tuple[Place, str]] = []
    single: list[Place] = []
    for place in map(Place.parse, several):
        inside = _inside(place)
        found += inside or []
        single += [place] if inside is None else []
    folders = [os.path.dirname(place.name) for place in single]
    base = os.path.commonpath(folders) if len({*map(os.path.isabs, folders)}) == 1 else ""
    found += [(place, base) for place in single]
    if not found:
        raise InvalidInputError("expected at least one file, found none")
    for place, _ in found:
        if format_of(place) == "excel":
            raise InvalidInputError(f"expected .csv or .parquet files of many rows, found {place}")
    return sorted(found, key=lambda one: str(one[0]))


def _inside(place: Place) -> list[tuple[Place, str]] | None:
    """The tables of a folder or a pattern; None for a file."""
    from pyarrow import fs

    pattern = _is_pattern(place)
    base = re.split(r"[*?\[]", place.name)[0] if pattern else place.name
    if pattern:
        base = base[: base.rfind("/") + 1] or "./"
    elif place.filesystem.get_file_info(place.name).type != fs.FileType.Directory:
        return None
    wanted = re.compile(_expression(os.path.normpath(place.name))) if pattern else None
    names = [
        os.path.normpath(one.path) if place.is_local else one.path
        for one in place.filesystem.get_file_info(
            fs.FileSelector(base, recursive=True, allow_not_found=True)
        )
        if one.type == fs.FileType.File
    ]
    names = [
        name for name in names if (wanted.fullmatch(name) if wanted else _is_table(name, base))
    ]
    if not names:
        raise InvalidInputError(f"{place}: {_FOLDER}")
    return [(place.sibling(name), base) for name in names]


def _is_pattern(place: Place) -> bool:
    from pyarrow import fs

    special = re.search(r"[*?\[]", place.name)
    return bool(special) and place.filesystem.get_file_info(place.name).type == fs.FileType.NotFound


def _expression(pattern: str) -> str:
    """A pattern of names as a regular expression; ``**`` is any number of folders."""
    parts = {"**/": r"(?:.*/)?", "*": r"[^/]*", "?": r"[^/]"}
    pieces = re.split(r"(\*\*/|\*|\?|\[[^\]]+\])", pattern)
    return "".join(parts.get(p, p if p.startswith("[") else re.escape(p)) for p in pieces)


def _is_table(name: str, base: str) -> bool:
    below = PurePath(os.path.relpath(name, base)).parts
    try:
        return not any(p.startswith((".", "_")) for p in below) and format_of(name) != "excel"
    except InvalidInputError:
        return False
