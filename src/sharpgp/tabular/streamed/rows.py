"""Rows of Parquet files, in units that are visited one by one and read batch by batch.

Units and batches depend on the files and on the memory that there is, never on who visits them:
sums over rows are then the same, to the last bit, on one machine, after an interruption and on a
cluster.
"""

import os
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from sharpgp._files import replacing
from sharpgp.exceptions import InvalidInputError
from sharpgp.tabular.files import (
    csv_conversion,
    format_of,
    names_in,
    parsing_of,
    plain_errors,
    read_batches,
    row_by_row,
    stream_of,
)

#: A file, a folder of files, or several of these.
Paths = str | os.PathLike[str] | Iterable[str | os.PathLike[str]]
#: Rows of a unit: some seconds of work, and about a megabyte of sums to send.
UNIT_ROWS = 2**17
# Rows of a row group in copies of CSV files, and bytes read at a time.
_GROUP_ROWS, _BUFFER = 2**14, 2**20


@dataclass(frozen=True)
class Unit:
    """Consecutive rows of a Parquet file.

    Attributes
    ----------
    path : str
    groups : tuple of int
        Row groups that hold them.
    skip : int
        Rows of these groups that come before.
    rows : int
    first : int
        Number of the first row among the rows of all files, from 0.
    row : int
        Its number in its file, from 1, for messages.
    source : str
        The file that the user knows it by, for messages: a CSV file has a copy in Parquet.
    """

    path: str
    groups: tuple[int, ...]
    skip: int
    rows: int
    first: int
    row: int
    source: str


def units_of(
    paths: Sequence[Path], sources: Sequence[Path] | None = None, *, most: int = UNIT_ROWS
) -> list[Unit]:
    """All rows of Parquet files, in order, in units of at most ``most`` rows.

    Small row groups of a file share a unit; large ones are cut.  ``sources`` are the files that
    these are copies of, if they are.
    """
    import pyarrow.parquet as pq

    found: list[Unit] = []
    total = 0
    for path, source in zip(paths, sources or paths, strict=True):
        with plain_errors(source):
            about = pq.ParquetFile(path).metadata
        sizes = [about.row_group(k).num_rows for k in range(about.num_row_groups)]
        row = 1
        for groups in _packed(sizes, most):
            rows = sum(sizes[k] for k in groups)
            for skip in range(0, rows, most):
                n = min(most, rows - skip)
                found.append(Unit(str(path), groups, skip, n, total, row, str(source)))
                total, row = total + n, row + n
    return found


def check_types(files: Sequence[Path], sources: Sequence[Path], names: Iterable[str]) -> None:
    """Raise unless columns hold the same in all Parquet files, whole numbers or not aside.

    ``sources`` are the files that the user knows them by.  A column that is empty in a file holds
    nothing there.
    """
    import pyarrow as pa
    import pyarrow.parquet as pq

    known: dict[str, tuple[Any, Path]] = {}
    for path, source in zip(files, sources, strict=True):
        with plain_errors(source):
            file = pq.ParquetFile(path)
        for name in names:
            if _is_empty(file.metadata, name):
                continue
            found = file.schema_arrow.field(name)
            expected, first = known.setdefault(name, (found, source))
            try:
                both = pa.unify_schemas(
                    [pa.schema([expected]), pa.schema([found])], promote_options="permissive"
                )
            except pa.ArrowTypeError:
                raise InvalidInputError(
                    f"{source}: column {name!r}: expected {expected.type}, as in {first}, found "
                    f"{found.type}; convert one of the files, or drop the column"
                ) from None
            known[name] = both.field(name), first


def _is_empty(metadata: Any, name: str) -> bool:
    """Whether a column of a Parquet file has no values, as far as its statistics tell."""
    places = [k for k in range(metadata.num_columns) if metadata.schema.column(k).path == name]
    groups = [metadata.row_group(k) for k in range(metadata.num_row_groups)]
    known = [(group.num_rows, group.column(k).statistics) for group in groups for k in places]
    empty = all(
        statistics is not None and statistics.has_null_count and statistics.null_count == rows
        for rows, statistics in known
    )
    return empty and (bool(places) or not groups)  # what is nested has no place of its own


def _packed(sizes: Iterable[int], most: int) -> Iterator[tuple[int, ...]]:
    """Numbers of consecutive groups that together have at most ``most`` rows, or of one."""
    groups: list[int] = []
    rows = 0
    for k, size in enumerate(sizes):
        if groups and rows + size > most:
            yield tuple(groups)
            groups, rows = [], 0
        groups.append(k)
        rows += size
    if groups:
        yield tuple(groups)


def batches_of(unit: Unit, names: Sequence[str], rows: int) -> Iterator[tuple[int, Any]]:
    """Arrow batches of at most ``rows`` rows, each with the place of its first row in the unit."""
    import pyarrow.parquet as pq

    with plain_errors(unit.source):
        file = pq.ParquetFile(unit.path, buffer_size=_BUFFER, pre_buffer=False)
        groups = list(unit.groups)
        batches = file.iter_batches(rows, groups, list(names), use_threads=False)
        place = -unit.skip
        for batch in batches:
            start, stop = max(0, -place), min(batch.num_rows, unit.rows - place)
            if start < stop:
                yield place + start, batch.slice(start, stop - start)
            place += batch.num_rows
            if place >= unit.rows:
                return


def table_files(given: Paths) -> list[Path]:
    """Files by name; of a folder, all CSV and Parquet files in it, in the order of their names."""
    names = [given] if isinstance(given, str | os.PathLike) else list(given)
    found: list[Path] = []
    for name in map(Path, names):
        if name.is_dir():
            inside = sorted(path for path in name.iterdir() if _is_table(path))
            if not inside:
                raise InvalidInputError(f"{name}: expected .parquet or .csv files, found none")
            found += inside
        else:
            found.append(name)
    if not found:
        raise InvalidInputError("expected at least one file, found none")
    for path in found:
        if format_of(path) == "excel":
            raise InvalidInputError(
                f"expected .csv or .parquet files to read in batches, found {path}"
            )
    first = names_in(found[0])
    for path in found[1:]:
        if sorted(names_in(path)) != sorted(first):
            raise InvalidInputError(f"{path}: expected the columns of {found[0]}, found others")
    return found


def _is_table(path: Path) -> bool:
    try:
        return not path.name.startswith((".", "_")) and format_of(path) != "excel"
    except InvalidInputError:
        return False


def as_parquet(path: Path, copy: Path, missing: Sequence[str] = ()) -> Path:
    """A Parquet file as it is; a CSV file as a copy, which is made unless it is there.

    What a column holds is told by the first megabytes: whole numbers may become fractions later
    on, and empty columns numbers, but numbers no texts.
    """
    if format_of(path) == "parquet" or copy.exists():
        return path if format_of(path) == "parquet" else copy
    import pyarrow as pa
    import pyarrow.parquet as pq
    from pyarrow import csv

    with stream_of(path) as (stream, layout):
        options = row_by_row(layout), parsing_of(layout), csv_conversion({}, missing, layout)
        schema = csv.open_csv(stream, *options).schema
    numbers = (pa.types.is_integer, pa.types.is_null)
    types = {
        field.name: pa.float64() if any(test(field.type) for test in numbers) else field.type
        for field in schema
    }
    with replacing(copy) as temporary:
        schema = pa.schema(list(types.items()))
        with pq.ParquetWriter(str(temporary), schema) as writer:
            for batch in read_batches(path, types, _GROUP_ROWS, missing):
                writer.write_batch(batch.select(list(types)), row_group_size=_GROUP_ROWS)
    return copy
