"""Rows drawn at random in one pass over files, in bounded memory.

The hash of a row's position is its number; the rows with the smallest numbers are the sample.  It
does not depend on the order of files, the size of row groups, the engine, the number of workers, or
interruptions.
"""

import hashlib
import json
import re
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from sharpgp import _progress as progress
from sharpgp._files import make_folder, replacing
from sharpgp.data import texts
from sharpgp.data.reading import values_of
from sharpgp.exceptions import InvalidInputError
from sharpgp.tabular.cluster import Visitors
from sharpgp.tabular.sources import Source, Unit

#: Seconds between saves of an unfinished pass.
SAVE_EVERY = 10.0
# Bytes of the program itself; bytes of a column that a thread reads at a time.
_BASE, _READ = int(0.75 * 2**30), 2**21
# Rows of a batch: more are not faster, and fewer take longer to read than to use.
_MOST_IN_BATCH, _LEAST_IN_BATCH = 2**14, 2**8
# Copies of a row's numbers during work: as read, as values, as features, standardised, and two
# intermediate ones.
_COPIES = 6
_LEAST_ROWS = 1000
_UNITS = {"": 2**30, "b": 1, "kb": 10**3, "mb": 10**6, "gb": 10**9, "tb": 10**12}
_UNITS |= {"kib": 2**10, "mib": 2**20, "gib": 2**30, "tib": 2**40}
# Additional columns: a row's number, the number of its file, its position there.
_NUMBER, _FILE, _ROW = "\0number", "\0file", "\0row"
_OWN = [_NUMBER, _FILE, _ROW]


@dataclass(frozen=True)
class Memory:
    """A limit in bytes.

    Examples
    --------
    >>> Memory.parse(2).rows(columns=9), Memory.parse("1.5 GB").rows(columns=9)
    (3106891, 1608087)
    >>> Memory.parse("512MB")
    Traceback (most recent call last):
    sharpgp.exceptions.InvalidInputError: memory: expected more than 0.75 GiB, found '512MB'
    """

    limit: int

    @classmethod
    def parse(cls, given: float | str) -> "Memory":
        """From a number of GiB, or a text such as ``"4GB"``."""
        found = re.fullmatch(r"\s*(\d+\.?\d*|\.\d+)\s*([a-z]*)\s*", str(given).lower())
        if found is None or found[2] not in _UNITS or isinstance(given, bool):
            raise InvalidInputError(
                f"memory: expected a number of GiB, or a text such as '4GB', found {given!r}"
            )
        limit = int(float(found[1]) * _UNITS[found[2]])
        if limit <= _BASE:
            raise InvalidInputError(f"memory: expected more than 0.75 GiB, found {given!r}")
        return cls(limit)

    def rows(self, columns: int) -> int:
        """Rows with this many features that fit."""
        rows = (self.limit - _BASE) // (_COPIES * 8 * columns)
        if rows < _LEAST_ROWS:
            least = (_BASE + _COPIES * 8 * columns * _LEAST_ROWS) / 2**30
            raise InvalidInputError(
                f"memory: expected at least {least:.2f} GiB for {columns} columns, found "
                f"{self.limit / 2**30:.2f} GiB"
            )
        return rows

    def threads(self, columns: int) -> int:
        """Threads of one process that fit beside the sample."""
        return max(
            1, (self.limit - _BASE) // (2 * columns * (_READ + 8 * _COPIES * _MOST_IN_BATCH))
        )

    def batch_rows(self, columns: int) -> int:
        """Rows of a batch."""
        return min(max(self.rows(columns) // 16, _LEAST_IN_BATCH), _MOST_IN_BATCH)


@dataclass(frozen=True)
class Draw:
    """Draws from the rows of a unit: a function that can be sent to workers."""

    names: tuple[str, ...]
    target: str
    missing: tuple[str, ...]
    seed: int
    most: int
    batch_rows: int

    def __call__(self, unit: Unit) -> "Sample":
        """The sample of a unit."""
        found, first = Sample(self.most), unit.first
        for batch in unit.rows.batches(self.names, self.batch_rows):
            try:
                found.add(self._batch(batch, unit, first))
            except InvalidInputError as error:
                text = with_rows(str(error), range(first + 1, first + 1 + batch.num_rows))
                raise InvalidInputError(f"{unit.source}: {text}") from None
            first += batch.num_rows
        return found

    def _batch(self, batch: Any, unit: Unit, first: int) -> "Sample":
        import pyarrow as pa
        import pyarrow.compute as pc

        for name in self.names:
            column = batch.column(name)
            if pa.types.is_floating(column.type):
                bad = pc.index(pc.is_inf(column), True).as_py()
                if bad >= 0:
                    raise InvalidInputError(
                        f"column {name!r}: expected finite numbers, found inf in row {bad + 1}"
                    )
        there = ~texts.without(values_of(batch, self.target), self.missing).missing
        key = hashlib.blake2b(f"{self.seed}/{unit.number}".encode(), digest_size=8).digest()
        numbers = random_numbers(first, batch.num_rows, int.from_bytes(key, "little"))
        kept = np.flatnonzero(there & (numbers < np.uint64(unit.below)))
        table = pa.Table.from_batches([batch]).take(kept)
        own = numbers[kept], np.full(len(kept), unit.number, dtype=np.int64), first + kept
        for name, values in zip(_OWN, own, strict=True):
            table = table.append_column(name, pa.array(values))
        left_out = int(there.sum()) > len(kept)
        counts = len(there), int((~there).sum())
        return Sample(self.most, *counts, table if len(kept) else None, left_out)


@dataclass
class Sample:
    """The rows with the smallest numbers so far, at most ``most``.

    Attributes
    ----------
    seen, unlabelled : int
        All rows, and those without a target.
    table : Arrow table, or None for no rows
    is_cut : bool
        Whether there were more.
    """

    most: int
    seen: int = 0
    unlabelled: int = 0
    table: Any = None
    is_cut: bool = False

    def add(self, other: "Sample") -> None:
        """Add more rows."""
        import pyarrow as pa

        self.seen += other.seen
        self.unlabelled += other.unlabelled
        self.is_cut |= other.is_cut
        tables = [table for table in (self.table, other.table) if table is not None]
        if tables:
            self.table = pa.concat_tables(tables, promote_options="permissive")
        if len(self) > 1.25 * self.most:
            self.cut()

    def __len__(self) -> int:
        return 0 if self.table is None else len(self.table)

    def cut(self, most: int | None = None) -> None:
        """Keep the rows with the smallest numbers, in order of position."""
        self.most = most or self.most
        if self.table is None:
            return
        number, file, row = (self.table[name].to_numpy() for name in _OWN)
        kept = np.lexsort((row, file, number))[: self.most]
        self.is_cut |= len(kept) < len(number)
        self.table = self.table.take(kept[np.lexsort((row[kept], file[kept]))]).combine_chunks()

    @property
    def below(self) -> int:
        """Rows with this number or a larger one are not in the sample."""
        if len(self) < self.most:
            return 2**64 - 1
        return int(self.table[_NUMBER].to_numpy().max())

    def rows(self, source: Source) -> tuple[Any, list[Any]]:
        """Columns of the rows, and the name of each row, counted from 1."""
        import pyarrow as pa

        if len(self) < 4:
            raise InvalidInputError(
                f"{source.units[0].source if source.units else 'files'}: expected rows with a "
                f"target, found {len(self)}"
            )
        several = len({unit.number for unit in source.units}) > 1
        names = {unit.number: unit.source for unit in source.units}
        places = zip(self.table[_FILE].to_pylist(), self.table[_ROW].to_pylist(), strict=True)
        called = [f"{row + 1} of {names[file]}" if several else row + 1 for file, row in places]
        table = self.table.drop_columns(_OWN)
        types = [pa.float64() if pa.types.is_null(one) else one for one in table.schema.types]
        return table.cast(pa.schema(list(zip(table.column_names, types, strict=True)))), called


def random_numbers(first: int, n: int, key: int) -> np.ndarray:
    """Numbers (n,) of 64 bits, those of rows ``first``, ``first + 1``, ...; SplitMix64.

    Examples
    --------
    >>> bool((random_numbers(0, 10, 7)[4:] == random_numbers(4, 6, 7)).all())
    True
    """
    one, two, step = 0xBF58476D1CE4E5B9, 0x94D049BB133111EB, 0x9E3779B97F4A7C15
    with np.errstate(over="ignore"):
        z = np.arange(first, first + n, dtype=np.uint64)
        for shift in (np.uint64(key), np.uint64(0)):
            z = (z + shift + np.uint64(1)) * np.uint64(step)
            z = (z ^ (z >> np.uint64(30))) * np.uint64(one)
            z = (z ^ (z >> np.uint64(27))) * np.uint64(two)
            z = z ^ (z >> np.uint64(31))
    return z


def drawn(draw: Draw, source: Source, visit_all: Visitors, folder: Path | None) -> Sample:
    """The sample of all units; with a folder, an interrupted pass is continued.

    Progress is saved there every few seconds, unless nothing identifies the rows.
    """
    path = None
    if folder is not None and source.about is not None:
        make_folder(folder)
        about = [source.about, draw.names, draw.target, draw.missing, draw.seed]
        path = folder / f"pass-{hashlib.sha256(json.dumps(about).encode()).hexdigest()[:16]}.arrow"
    units = source.units
    progress.start_phase("drawing rows", "part", len(units))
    done, total = _read(path, draw.most) if path else (0, Sample(draw.most))
    progress.advance(done)
    left: Iterator[Unit] = (replace(unit, below=total.below) for unit in units[done:])
    saved = time.monotonic()
    try:
        for part in visit_all(draw, left):
            total.add(part)
            done += 1
            progress.advance()
            if path and time.monotonic() - saved >= SAVE_EVERY:
                _write(path, done, total)
                saved = time.monotonic()
    finally:
        if path:
            _write(path, done, total)
    total.cut()
    return total


def _write(path: Path, done: int, sample: Sample) -> None:
    import pyarrow as pa

    sample.cut()
    about = [done, sample.most, sample.seen, sample.unlabelled, sample.is_cut]
    table = pa.table({}) if sample.table is None else sample.table.unify_dictionaries()
    table = table.replace_schema_metadata({"pass": json.dumps(about)})
    with replacing(path) as temporary, pa.ipc.new_file(str(temporary), table.schema) as file:
        file.write_table(table)


def _read(path: Path, most: int) -> tuple[int, Sample]:
    """Finished units and their sample; none if rows that were left out are wanted now."""
    import pyarrow as pa

    if path.exists():
        with pa.OSFile(str(path)) as file:
            table = pa.ipc.open_file(file).read_all()
        done, before, seen, unlabelled, is_cut = json.loads(table.schema.metadata[b"pass"])
        table = table.replace_schema_metadata() if table.num_columns else None
        if most <= before or not is_cut:
            return done, Sample(most, seen, unlabelled, table, is_cut)
    return 0, Sample(most)


def with_rows(text: str, called: Sequence[Any]) -> str:
    """A message in which row numbers, counted from 1, become names of rows."""
    return re.sub(r"in row (\d+)", lambda found: f"in row {called[int(found[1]) - 1]}", text)
