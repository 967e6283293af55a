"""Rows to read: of files, Arrow datasets, dask data frames and Ray Datasets, in units.

Units are read independently, on any worker. They depend on the files alone.
"""

import os
import re
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from functools import partial
from itertools import accumulate, groupby
from types import MappingProxyType
from typing import Any

from sharpgp.data.encoding import require_columns
from sharpgp.exceptions import InvalidInputError
from sharpgp.tabular.files import (
    AS_GUESSED,
    ROWS,
    CSVFile,
    Place,
    format_of,
    naming,
    places_of,
    plain_errors,
)
from sharpgp.tabular.layout import Layout, Reading, check_distinct, read_sheet, tidied

#: Rows of a unit, if row groups allow: about a second of work.
UNIT_ROWS = 2**17
# Bytes of a Parquet file read at a time; number of files whose metadata are read in parallel.
_BUFFER, _SIDE_BY_SIDE = 2**20, 16
# What Hive writes in place of a missing value.
_NO_KEY = "__HIVE_DEFAULT_PARTITION__"

#: Arrow batches of the named columns, of at most so many rows: ``rows(names, most)``.
Rows = Callable[[Any, int], Iterator[Any]]


@dataclass(frozen=True)
class Unit:
    """Consecutive rows of a file, or of a partition.

    ``source`` names the file in messages, ``number`` is its place among all files, and ``first``
    the number of the first row in it, from 0.  ``rows`` are :data:`Rows`, a frame, or a promise of
    one: a Delayed of dask, a reference of Ray.  Rows with a random number above ``below`` are known
    not to be in the sample.
    """

    source: str
    number: int
    first: int
    rows: Any
    below: int = 2**64 - 1

    def batches(self, names: Sequence[str], most: int) -> Iterator[Any]:
        """Arrow batches of these columns; a promise is computed."""
        if isinstance(self.rows, partial):
            return self.rows(names, most)
        is_of_dask = type(self.rows).__module__.startswith("dask.")
        return _of_frame(self.rows.compute() if is_of_dask else self.rows, names, most)


@dataclass(frozen=True)
class Source:
    """Units of rows, and the names of their columns.

    ``about`` identifies the files, so that changes are noticed; None if nothing does.  ``engine``
    is the one that must read them, ``layout`` that of CSV and Excel files.
    """

    names: tuple[str, ...]
    units: tuple[Unit, ...]
    about: Any = None
    engine: str | None = None
    layout: Layout | None = None

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

    def __str__(self) -> str:
        files = {unit.source for unit in self.units}
        return files.pop() if len(files) == 1 else f"{len(files)} files"

    def batches(self, names: Sequence[str], most: int) -> Iterator[Any]:
        """Arrow batches of all rows, in their order."""
        for unit in self.units:
            yield from unit.batches(names, most)

    def require(self, names: Iterable[str]) -> None:
        """Raise unless there are columns of these names."""
        with naming(self):
            require_columns(names, self.names)

    def table(self, names: Sequence[str] = ()) -> Any:
        """All rows as an Arrow table, with all columns or these."""
        import pyarrow as pa

        batches = list(self.batches(names or self.names, ROWS))
        if not any(batch.num_rows for batch in batches):
            raise InvalidInputError(f"{self}: expected rows, found only a header")
        return self.tidied(pa.Table.from_batches(batches))

    def tidied(self, table: Any) -> Any:
        """A table of these rows without what in a text file is not data, with a warning."""
        if self.layout is None:
            return table
        return tidied(str(self), table, self.names, self.layout.told)


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


def _of_dataset(given: Any) -> Source:
    """Each fragment is a unit; a filtered dataset is one."""
    try:
        parts = sorted(given.get_fragments(), key=lambda one: getattr(one, "path", ""))
    except ValueError:  # of a filter
        parts = [given]
    units = tuple(
        Unit(getattr(one, "path", "dataset"), k, 0, partial(_scanned, one, given.schema))
        for k, one in enumerate(parts)
    )
    in_files = all(hasattr(one, "path") for one in parts)
    about = [_identity(one.filesystem, one.path) for one in parts] if in_files else None
    return Source(tuple(given.schema.names), units, about)


def _scanned(given: Any, schema: Any, names: Sequence[str], most: int) -> Any:
    """Rows of a dataset, or a fragment of one, as Arrow scans it."""
    from pyarrow import dataset

    how: dict[str, Any] = {"batch_size": most, "batch_readahead": 1, "use_threads": False}
    how |= {"schema": schema} if isinstance(given, dataset.Fragment) else {}
    with plain_errors(getattr(given, "path", "dataset")):
        yield from given.scanner(columns=list(names), **how).to_batches()


def _of_frame(frame: Any, names: Iterable[str], most: int) -> Iterator[Any]:
    import pyarrow as pa

    is_arrow = isinstance(frame, pa.Table)
    table = frame if is_arrow else pa.Table.from_pandas(frame, preserve_index=False)
    require_columns(names, table.column_names)
    yield from table.select(list(names)).combine_chunks().to_batches(most)


# ------------------------------------------------------------------ files


def _of_files(
    places: Sequence[Place],
    unused: set[str],
    missing: Sequence[str],
    reading: Reading,
    types: Mapping[str, Any],
) -> Source:
    import pyarrow as pa

    given = [(name, text) for place in places for name, text in place.keys.items()]
    words = {name for name, text in given if not re.fullmatch(rf"-?\d+|{_NO_KEY}", text)}
    kinds = {name: pa.string() if name in words else pa.int64() for name, _ in given}

    def look(place: Place) -> tuple[Any, list[tuple[int, Rows]], Layout | None]:
        """The schema, parts with the number of their first row, and the layout of text."""
        form, layout = format_of(place), None
        with plain_errors(place):
            if form == "parquet":
                schema, parts = _of_parquet(place)
                check_distinct(sorted(schema.names))
            else:
                of_sheet: dict[str, Any] = {}
                with place.stream() as stream:
                    if form == "excel":
                        text, layout, names = read_sheet(stream, reading)
                        of_sheet = dict.fromkeys(names, pa.string())
                    else:
                        text, layout = None, Layout.detect(stream, reading)
                file = CSVFile(place, layout, missing, text)
                schema, parts = file.schema({**of_sheet, **types}), [(0, file.batches)]
        for name in place.keys:
            schema = schema.append(pa.field(name, kinds[name]))
        return schema, parts, layout

    with ThreadPoolExecutor(_SIDE_BY_SIDE) as pool:
        schemas, parts, layouts = zip(*pool.map(look, places), strict=True)
    schema = _common(places, schemas, unused)
    units = [
        Unit(str(place), k, first, partial(_typed, rows, schema, place.keys))
        for k, (place, of_file) in enumerate(zip(places, parts, strict=True))
        for first, rows in of_file
    ]
    layout = layouts[0] if len(places) == 1 or layouts[0] is None else replace(layouts[0], told=())
    about = [_identity(place.filesystem, place.name) for place in places]
    return Source(tuple(schema.names), tuple(units), about, layout=layout)


def _identity(filesystem: Any, name: str) -> list[Any]:
    """Something that changes with the file."""
    info = filesystem.get_file_info(name)
    return [name, info.size, info.mtime_ns]


def _common(places: Sequence[Place], schemas: Sequence[Any], unused: set[str]) -> Any:
    """The common schema of all files, up to order and whole or fractional numbers."""
    import pyarrow as pa

    first, common = places[0], schemas[0]
    wanted = [name for name in common.names if name not in unused]
    for place, found in zip(places[1:], schemas[1:], strict=True):
        lacking = [name for name in wanted if name not in found.names]
        more = [name for name in found.names if name not in {*wanted, *unused}]
        if lacking or more:
            told = [f"none named {', '.join(map(repr, lacking))}"] if lacking else []
            told += [f"also {', '.join(map(repr, more))}"] if more else []
            raise InvalidInputError(
                f"{place}: expected the columns of {first}, found {' and '.join(told)}; drop what "
                "some files lack"
            )
        for name in wanted:
            pair = [pa.schema([schema.field(name)]) for schema in (common, found)]
            try:
                both = pa.unify_schemas(pair, promote_options="permissive").field(name)
            except pa.ArrowTypeError:
                one, other = (schema.field(name).type for schema in pair)
                raise InvalidInputError(
                    f"{place}: column {name!r}: expected {one}, as in {first}, found {other}; "
                    "convert one of the files, or drop the column"
                ) from None
            common = common.set(common.get_field_index(name), both)
    # A column without values, as far as files were looked into, may have some later.
    types = [pa.string() if pa.types.is_null(one.type) else one.type for one in common]
    return pa.schema(list(zip(common.names, types, strict=True)))


def _typed(
    rows: Rows, schema: Any, keys: Mapping[str, str], names: Sequence[str], most: int
) -> Iterator[Any]:
    """Columns of a file in the common types, with the values that its folders say."""
    import pyarrow as pa

    kinds = {name: schema.field(name).type for name in names}
    values = {name: None if text == _NO_KEY else text for name, text in keys.items()}
    for batch in rows({name: kinds[name] for name in names if name not in keys}, most):
        columns = [
            pa.repeat(pa.scalar(values[name], pa.string()), batch.num_rows).cast(kind)
            if name in keys
            else batch.column(name).cast(kind, safe=False)
            for name, kind in kinds.items()
        ]
        yield pa.RecordBatch.from_arrays(columns, list(names))


def _of_parquet(place: Place) -> tuple[Any, list[tuple[int, Rows]]]:
    """Schema and row groups in order; small ones share a part."""
    file = place.parquet()
    sizes = [file.metadata.row_group(k).num_rows for k in range(file.num_row_groups)]
    ends = [0, *accumulate(sizes)]
    parts: list[tuple[int, Rows]] = []
    for _, together in groupby(range(len(sizes)), lambda k: (ends[k + 1] - 1) // UNIT_ROWS):
        groups = list(together)
        parts.append((ends[groups[0]], partial(_row_groups, place, groups)))
    return file.schema_arrow.remove_metadata(), parts


def _row_groups(place: Place, groups: Sequence[int], names: Iterable[str], most: int) -> Any:
    with plain_errors(place):
        file = place.parquet(buffer_size=_BUFFER, pre_buffer=False)
        yield from file.iter_batches(most, groups, list(names), use_threads=False)
