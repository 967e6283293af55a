"""Rows drawn at random in one pass over files, in bounded memory.

Each row has a random number, which its file and its place there give; the rows with the smallest
numbers are the sample.  It does not depend on the order of files, the size of row groups, the
engine, the number of workers, or interruptions.
"""

import hashlib
import json
import os
import re
import time
from collections.abc import Iterator
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
from sharpgp.tabular.files import naming
from sharpgp.tabular.sources import Source, Unit

#: Seconds between saves of an unfinished pass.
SAVE_EVERY = 10.0
# Values of a batch, and limits of its rows.
_BATCH_VALUES, _BATCH_ROWS = 2**20, (2**8, 2**14)
# Bytes of the program itself, and of a thread that reads.
_BASE, _THREAD = 3 * 2**28, 2**28
# Copies of a row's numbers during work: as read, as values, as features, standardised, and two
# intermediate ones.
_COPIES = 6
# Fewest rows of a sample in the memory that was asked for, and in what is taken by itself.
_LEAST_ROWS, _ALWAYS_ROWS = 1000, 10_000
_UNITS = {"": 2**30, "b": 1, "kb": 10**3, "mb": 10**6, "gb": 10**9, "tb": 10**12}
_UNITS |= {"kib": 2**10, "mib": 2**20, "gib": 2**30, "tib": 2**40}
# Additional columns: a row's number, the number of its file, its position there.
_NUMBER, _FILE, _ROW = "\0number", "\0file", "\0row"
# The largest number: that of rows without a target, which other rows displace.
_LAST = 2**64 - 1
_BY_PLACE = [(_FILE, "ascending"), (_ROW, "ascending")]


@dataclass(frozen=True)
class Memory:
    """A limit in bytes, asked for or not.

    Examples
    --------
    >>> Memory.parse(2).rows(columns=9), Memory.parse("1.5 GB").rows(columns=9)
    (3106891, 1608087)
    >>> Memory.parse("512MB")
    Traceback (most recent call last):
    sharpgp.exceptions.InvalidInputError: memory: expected more than 0.75 GiB, found '512MB'
    """

    limit: int
    asked: bool = True

    @classmethod
    def parse(cls, given: float | str | None) -> "Memory":
        """From a number of GiB, or a text such as ``"4GB"``; None: 2 GiB, if that is enough."""
        if given is None:
            return cls(2 * 2**30, asked=False)
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
        """Rows with this many features that fit; as many as are always taken, if nobody asked."""
        rows = (self.limit - _BASE) // (_COPIES * 8 * columns)
        if not self.asked:
            return max(rows, _ALWAYS_ROWS)
        if rows < _LEAST_ROWS:
            least = (_BASE + _COPIES * 8 * columns * _LEAST_ROWS) / 2**30
            raise InvalidInputError(
                f"memory: expected at least {least:.2f} GiB for {columns} columns, found "
                f"{self.limit / 2**30:.2f} GiB"
            )
        return rows

    @property
    def threads(self) -> int:
        """Threads that read beside the sample, on the cores of this machine."""
        room = max(1, (self.limit - _BASE) // _THREAD)
        return min(room, int(os.environ.get("OMP_NUM_THREADS") or os.cpu_count() or 1))


@dataclass(frozen=True)
class Draw:
    """Draws from the rows of a unit: a function that can be sent to workers."""

    names: tuple[str, ...]
    target: str
    missing: tuple[str, ...]
    seed: int
    most: int

    def __call__(self, unit: Unit) -> "Sample":
        """The sample of a unit."""
        found, first = Sample(self.most), unit.first
        batch_rows = int(np.clip(_BATCH_VALUES // len(self.names), *_BATCH_ROWS))
        for batch in unit.batches(self.names, batch_rows):
            with naming(unit.source, range(first + 1, first + 1 + batch.num_rows)):
                found.add(self._batch(batch, unit, first))
            first += batch.num_rows
        return found

    def _batch(self, batch: Any, unit: Unit, first: int) -> "Sample":
        import pyarrow as pa
        import pyarrow.compute as pc

        for name, column in zip(batch.schema.names, batch.columns, strict=True):
            is_float = pa.types.is_floating(column.type)
            bad = pc.index(pc.is_inf(column), True).as_py() if is_float else -1
            if bad >= 0:
                raise InvalidInputError(
                    f"column {name!r}: expected finite numbers, found inf in row {bad + 1}"
                )
        n = batch.num_rows
        unlabelled = texts.without(values_of(batch, self.target), self.missing).missing
        numbers = random_numbers(self.seed, unit.number, first, n)
        numbers[unlabelled] = _LAST
        kept = np.flatnonzero(numbers <= np.uint64(unit.below))
        table = pa.Table.from_batches([batch]).take(kept)
        own = {_NUMBER: numbers[kept], _FILE: np.full(len(kept), unit.number), _ROW: first + kept}
        for name, values in own.items():
            table = table.append_column(name, pa.array(values))
        return Sample(self.most, n, int(unlabelled.sum()), table)


def random_numbers(seed: int, file: int, first: int, n: int) -> np.ndarray:
    """Numbers (n,) of 64 bits, those of the rows ``first``, ``first + 1``, ... of a file.

    Examples
    --------
    >>> bool((random_numbers(0, 7, 0, 10)[4:] == random_numbers(0, 7, 4, 6)).all())
    True
    """
    numbers: np.ndarray = np.random.PCG64([seed, file]).advance(first).random_raw(n)
    return numbers


@dataclass
class Sample:
    """The rows with the smallest numbers so far, at most ``most``: an Arrow table.

    ``seen`` counts all rows, ``unlabelled`` those without a target.
    """

    most: int
    seen: int = 0
    unlabelled: int = 0
    table: Any = None

    def __len__(self) -> int:
        return 0 if self.table is None else len(self.table)

    def add(self, other: "Sample") -> None:
        """Add more rows."""
        import pyarrow as pa

        self.seen += other.seen
        self.unlabelled += other.unlabelled
        tables = [table for table in (self.table, other.table) if table is not None]
        if tables:
            self.table = pa.concat_tables(tables, promote_options="permissive")
        if len(self) > 1.25 * self.most:
            self.cut(self.most)

    def cut(self, most: int) -> None:
        """Keep the rows with the smallest numbers, in order of position."""
        self.most = most
        if len(self):
            by_number = self.table.sort_by([(_NUMBER, "ascending"), *_BY_PLACE])
            self.table = by_number[:most].sort_by(_BY_PLACE).combine_chunks()

    @property
    def below(self) -> int:
        """Rows with a larger number are not in the sample."""
        import pyarrow.compute as pc

        return int(pc.max(self.table[_NUMBER]).as_py()) if len(self) >= self.most else _LAST

    def rows(self, source: Source) -> tuple[Any, list[Any]]:
        """Columns of the rows, and the name of each row, counted from 1."""
        names = {unit.number: unit.source for unit in source.units}
        places = [self.table[name].to_pylist() for name in (_FILE, _ROW)]
        called = [
            f"{row + 1} of {names[file]}" if len(names) > 1 else row + 1
            for file, row in zip(*places, strict=True)
        ]
        return self.table.drop_columns([_NUMBER, _FILE, _ROW]), called


def drawn(draw: Draw, source: Source, visit_all: Visitors, folder: Path | None) -> Sample:
    """The sample of all units; with a folder, an interrupted pass is continued.

    Progress is saved there every few seconds, unless nothing identifies the rows.
    """
    path = None
    if folder is not None and source.about is not None:
        about = [source.about, draw.names, draw.target, draw.missing, draw.seed]
        path = folder / f"pass-{hashlib.sha256(json.dumps(about).encode()).hexdigest()[:16]}.arrow"
    units = source.units
    progress.start_phase("drawing rows", "part", len(units))
    done, total = _read(path, draw.most) if path else (0, Sample(draw.most))
    progress.advance(done)
    left: Iterator[Unit] = (replace(unit, below=total.below) for unit in units[done:])
    start = saved = time.monotonic()
    try:
        for part in visit_all(draw, left):
            total.add(part)
            done += 1
            progress.advance()
            if path and time.monotonic() - saved >= SAVE_EVERY:
                _write(path, done, total)
                saved = time.monotonic()
    finally:
        if path and time.monotonic() - start >= SAVE_EVERY:
            _write(path, done, total)
    total.cut(draw.most)
    return total


def _write(path: Path, done: int, sample: Sample) -> None:
    import pyarrow as pa

    make_folder(path.parent)
    sample.cut(sample.most)
    about = [done, sample.most, sample.seen, sample.unlabelled]
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
        done, before, seen, unlabelled = json.loads(table.schema.metadata[b"pass"])
        if most <= before or len(table) == seen:
            known = table.replace_schema_metadata() if table.num_columns else None
            return done, Sample(most, seen, unlabelled, known)
    return 0, Sample(most)
