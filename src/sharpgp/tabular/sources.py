"""Rows to read: of files, Arrow datasets, dask data frames and Ray Datasets, in units.

Units are read independently, on any worker. They depend on the files alone.
"""

import os
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from itertools import groupby
from types import MappingProxyType
from typing import Any, Protocol

from sharpgp.data.encoding import missing_columns
from sharpgp.exceptions import InvalidInputError
from sharpgp.tabular import files
from sharpgp.tabular.files import AS_GUESSED, check_names, csv_schema, plain_errors, read_batches
from sharpgp.tabular.layout import Reading
from sharpgp.tabular.places import Place, format_of, is_one_file, places_of

#: Rows of a unit, if row groups allow: about a second of work.
UNIT_ROWS = 2**17
# Bytes of a Parquet file read at a time; number of files whose metadata are read in parallel.
_BUFFER, _SIDE_BY_SIDE = 2**20, 16


class Rows(Protocol):
    """Anything that can be read in batches."""

    def batches(self, names: Sequence[str], rows: int) -> Iterator[Any]:
        """Arrow batches of these columns, with a limited number of rows."""


@dataclass(frozen=True)
class Unit:
    """Consecutive rows of a file, or of a partition.

    Attributes
    ----------
    source : str
        The file, for messages.
    number : int
        Its number among all files, sorted by name.
    first : int
        Number of the first row in the file, from 0.
    rows : Rows
        Or a promise of a frame with these rows: a Delayed of dask, a reference of Ray.
    below : int
        Rows with this number or a larger one are known not to be in the sample.
    """

    source: str
    number: int
    first: int
    rows: Any
    below: int = 2**64 - 1


@dataclass(frozen=True)
class Source:
    """Units of rows, and the names of their columns.

    ``about`` identifies the files, so that changes are noticed; None if nothing does.  ``engine``:
    the engine that must read them, if any.
    """

    names: tuple[str, ...]
    units: tuple[Unit, ...]
    about: Any = None
    engine: str | None = None

    @classmethod
    def from_data(
        cls,
        given: Any,
        unused: Iterable[str] = (),
        missing: Sequence[str] = (),
        reading: Reading = AS_GUESSED,
        types: Mapping[str, Any] = MappingProxyType({}),
    ) -> "Source":
        """From any source that :func:`~sharpgp.tabular.fit_files` takes.

        Files need not agree in the ``unused`` columns.  Columns of CSV files have the given
        ``types``, or those inferred from the beginning of the file.
        """
        from pyarrow import dataset

        package = type(given).__module__
        if isinstance(given, dataset.Dataset):
            return _of_dataset(given)
        if package.startswith("dask.") and hasattr(given, "to_delayed"):
            engine = "dask" if joined_dask() else None
            return _of_parts(engine, given.columns, given.to_delayed())
        if package.startswith("ray.data"):
            given.context.execution_options.preserve_order = True
            return _of_parts("ray", given.columns(), given.to_arrow_refs())
        if not isinstance(given, str | os.PathLike | Iterable) or hasattr(given, "columns"):
            raise InvalidInputError(
                "expected files, a folder, a pattern, an Arrow or Ray Dataset or a dask frame, "
                f"found {type(given).__name__}; a table in memory goes to SharpGPRegressor.fit"
            )
        return _of_files(places_of(given), {*unused}, missing, reading, types)


def check_columns(given: Any, wanted: Iterable[str], reading: Reading = AS_GUESSED) -> None:
    """Raise unless there are columns of these names."""
    names, found = list(wanted), names_in(given, reading)
    if any(name not in found for name in names):
        raise InvalidInputError(f"{given}: {missing_columns(names, found)}")


def names_in(given: Any, reading: Reading = AS_GUESSED) -> Sequence[str]:
    """Names of the columns of a file or other source."""
    if is_one_file(given):
        return files.names_in(given, reading)
    return Source.from_data(given, reading=reading).names


def batches_of(
    given: Any, types: Mapping[str, Any], rows: int, missing: Sequence[str], reading: Reading
) -> Iterator[Any]:
    """Arrow batches of all rows in their order; see :func:`~sharpgp.tabular.files.read_batches`."""
    if is_one_file(given):
        yield from read_batches(given, types, rows, missing, reading)
        return
    for unit in Source.from_data(given, (), missing, reading, types).units:
        yield from resolved(unit.rows).batches(list(types), rows)


def joined_dask() -> Any:
    """The dask client of this process, or None."""
    if "distributed" not in sys.modules:
        return None
    from distributed import Client

    try:
        return Client.current()
    except ValueError:  # there is none
        return None


def _of_parts(engine: str | None, names: Iterable[Any], parts: Iterable[Any]) -> Source:
    units = (Unit(f"partition {k}", k, 0, part) for k, part in enumerate(parts))
    return Source(tuple(map(str, names)), tuple(units), engine=engine)


def _of_files(
    places: Sequence[tuple[Place, str]],
    unused: set[str],
    missing: Sequence[str],
    reading: Reading,
    types: Mapping[str, Any],
) -> Source:
    import pyarrow as pa

    keys = {str(place): found for place, found in _partition_keys(places)}

    def look(place: Place) -> tuple[Any, list[int]]:
        """The schema, and the rows of row groups."""
        with plain_errors(place):
            if format_of(place) == "parquet":
                found = _parquet(place)
                sizes = [found.metadata.row_group(k).num_rows for k in range(found.num_row_groups)]
                schema = found.schema_arrow.remove_metadata()
            else:
                schema, sizes = csv_schema(place, missing, reading, types), []
            check_names(place, schema.names)
        for name, value in keys[str(place)].items():
            kind = pa.int64() if isinstance(value, int) else pa.string()
            schema = schema.append(pa.field(name, kind))
        return schema, sizes

    with ThreadPoolExecutor(_SIDE_BY_SIDE) as pool:
        found = list(pool.map(look, [place for place, _ in places]))
    schema = _common([(str(p), s) for (p, _), (s, _) in zip(places, found, strict=True)], unused)
    units: list[Unit] = []
    for k, ((place, _), (_, sizes)) in enumerate(zip(places, found, strict=True)):
        if format_of(place) == "parquet":
            units += _parquet_units(place, k, sizes, schema, keys[str(place)])
        else:
            rows = CsvRows(place, schema, keys[str(place)], tuple(missing), reading)
            units.append(Unit(str(place), k, 0, rows))
    about = [_identity(place.filesystem, place.name) for place, _ in places]
    return Source(tuple(schema.names), tuple(units), about)


def _identity(filesystem: Any, name: str) -> list[Any]:
    """Something that changes with the file."""
    info = filesystem.get_file_info(name)
    return [name, info.size, info.mtime_ns]


def _partition_keys(places: Sequence[tuple[Place, str]]) -> Iterator[tuple[Place, dict[str, Any]]]:
    """Values for each file from folders such as ``year=2020`` below the given one."""
    from pyarrow import csv, dataset

    plain = dataset.CsvFileFormat(read_options=csv.ReadOptions(autogenerate_column_names=True))

    def alike(one: tuple[Place, str]) -> tuple[str, str, str]:
        return one[1], format_of(one[0]), str(one[0].filesystem.type_name)

    for (base, form, _), group in groupby(sorted(places, key=alike), alike):
        members = [place for place, _ in group]
        if not any("=" in place.name[len(base) :] for place in members):
            yield from ((place, {}) for place in members)
            continue
        with plain_errors(members[0]):
            fragments = dataset.dataset(
                [place.name for place in members],
                format=plain if form == "csv" else "parquet",
                filesystem=members[0].filesystem,
                partitioning="hive",
                partition_base_dir=base,
            ).get_fragments()
            found = {f.path: dataset.get_partition_keys(f.partition_expression) for f in fragments}
        yield from ((place, found.get(place.name, {})) for place in members)


def _common(files: Sequence[tuple[str, Any]], unused: set[str]) -> Any:
    """The common schema of all files, up to order and whole or fractional numbers."""
    import pyarrow as pa

    first, expected = files[0]
    wanted = [name for name in expected.names if name not in unused]
    common = expected
    for path, found in files[1:]:
        lacking = [name for name in wanted if name not in found.names]
        more = [n for n in found.names if n not in unused and n not in expected.names]
        if lacking or more:
            told = [f"none named {', '.join(map(repr, lacking))}"] if lacking else []
            told += [f"also {', '.join(map(repr, more))}"] if more else []
            raise InvalidInputError(
                f"{path}: expected the columns of {first}, found {' and '.join(told)}; drop what "
                "some files lack"
            )
        for place, name in enumerate(common.names):
            if name not in found.names:
                continue
            one, other = common.field(name), found.field(name)
            try:
                both = pa.unify_schemas(
                    [pa.schema([one]), pa.schema([other])], promote_options="permissive"
                )
            except pa.ArrowTypeError:
                if name in unused:
                    continue
                raise InvalidInputError(
                    f"{path}: column {name!r}: expected {one.type}, as in {first}, found "
                    f"{other.type}; convert one of the files, or drop the column"
                ) from None
            common = common.set(place, both.field(0))
    return common


def _of_dataset(given: Any) -> Source:
    """Row groups of Parquet files; other fragments, and filtered ones, as a whole."""
    from pyarrow import dataset

    names = tuple(given.schema.names)
    try:
        fragments = sorted(given.get_fragments(), key=lambda one: getattr(one, "path", ""))
    except ValueError:  # of a filter
        return Source(names, (Unit("dataset", 0, 0, ScannedRows(given, {})),))
    units: list[Unit] = []
    for k, fragment in enumerate(fragments):
        path = getattr(fragment, "path", f"fragment {k}")
        if isinstance(fragment, dataset.ParquetFileFragment):
            keys = dataset.get_partition_keys(fragment.partition_expression)
            sizes = [group.num_rows for group in fragment.row_groups]
            place = Place(fragment.filesystem, path, path)
            units += _parquet_units(place, k, sizes, given.schema, keys)
        else:
            units.append(Unit(path, k, 0, ScannedRows(fragment, {"schema": given.schema})))
    if not all(hasattr(one, "path") for one in fragments):
        return Source(names, tuple(units))
    return Source(names, tuple(units), [_identity(one.filesystem, one.path) for one in fragments])


def _parquet_units(
    place: Place, number: int, sizes: Sequence[int], schema: Any, keys: dict[str, Any]
) -> Iterator[Unit]:
    """Row groups in order; small ones share a unit."""
    groups: list[int] = []
    first = rows = 0
    for k, size in enumerate(sizes):
        groups, rows = [*groups, k], rows + size
        if k + 1 == len(sizes) or rows + sizes[k + 1] > UNIT_ROWS:
            yield Unit(str(place), number, first, ParquetRows(place, tuple(groups), schema, keys))
            groups, first, rows = [], first + rows, 0


@dataclass(frozen=True)
class ParquetRows:
    """Row groups of a Parquet file, held one batch at a time."""

    place: Place
    groups: tuple[int, ...]
    schema: Any
    keys: dict[str, Any]

    def batches(self, names: Sequence[str], rows: int) -> Iterator[Any]:
        """See :class:`Rows`."""
        with plain_errors(self.place):
            file = _parquet(self.place)
            inside = [name for name in names if name in file.schema_arrow.names]
            for batch in file.iter_batches(rows, list(self.groups), inside, use_threads=False):
                yield _typed(batch, names, self.schema, self.keys)


@dataclass(frozen=True)
class CsvRows:
    """A whole CSV file, with the types inferred from its beginning."""

    place: Place
    schema: Any
    keys: dict[str, Any]
    missing: tuple[str, ...]
    reading: Reading

    def batches(self, names: Sequence[str], rows: int) -> Iterator[Any]:
        """See :class:`Rows`."""
        types = {name: self.schema.field(name).type for name in names if name not in self.keys}
        for batch in read_batches(self.place, types, rows, self.missing, self.reading):
            yield _typed(batch, names, self.schema, self.keys)


@dataclass(frozen=True)
class ScannedRows:
    """A dataset, or a fragment of one, as Arrow scans it."""

    given: Any
    options: dict[str, Any]

    def batches(self, names: Sequence[str], rows: int) -> Iterator[Any]:
        """See :class:`Rows`."""
        few: dict[str, Any] = {"batch_size": rows, "batch_readahead": 1, "use_threads": False}
        with plain_errors(getattr(self.given, "path", "dataset")):
            yield from self.given.scanner(columns=list(names), **few, **self.options).to_batches()


@dataclass(frozen=True)
class FrameRows:
    """A frame in memory: a partition of a larger one."""

    frame: Any

    def batches(self, names: Sequence[str], rows: int) -> Iterator[Any]:
        """See :class:`Rows`."""
        import pyarrow as pa

        is_arrow = isinstance(self.frame, pa.Table)
        table = self.frame if is_arrow else pa.Table.from_pandas(self.frame, preserve_index=False)
        if any(name not in table.column_names for name in names):
            raise InvalidInputError(missing_columns(names, table.column_names))
        yield from table.select(list(names)).combine_chunks().to_batches(rows)


def resolved(rows: Any) -> Rows:
    """The frame to read from; a partition is computed if necessary."""
    if hasattr(type(rows), "batches"):
        found: Rows = rows
        return found
    is_of_dask = type(rows).__module__.startswith("dask.")
    return FrameRows(rows.compute() if is_of_dask else rows)


def _parquet(place: Place) -> Any:
    return place.parquet(buffer_size=_BUFFER, pre_buffer=False)


def _typed(batch: Any, names: Sequence[str], schema: Any, keys: dict[str, Any]) -> Any:
    """The columns in the common types, with values from folders, and gaps for missing columns."""
    import pyarrow as pa

    columns = []
    for name in names:
        kind = schema.field(name).type
        if name in batch.schema.names:
            columns.append(batch.column(name).cast(kind, safe=False))
        else:
            columns.append(pa.repeat(pa.scalar(keys.get(name), kind), batch.num_rows))
    return pa.RecordBatch.from_arrays(columns, list(names))
