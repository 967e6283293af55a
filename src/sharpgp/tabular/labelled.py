"""Rows of a table with their targets and groups, as a model takes them.

Nothing here loads torch, so that errors in a table are reported at once.
"""

import os
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from sharpgp._validation import as_count
from sharpgp.data import texts
from sharpgp.data.encoding import Encoded, TableEncoding, missing_columns
from sharpgp.data.reading import values_of
from sharpgp.data.table_check import TableCheck, check
from sharpgp.exceptions import InvalidInputError, warn
from sharpgp.tabular.cluster import visitors
from sharpgp.tabular.files import AS_GUESSED, MAX_ROWS_FITTED
from sharpgp.tabular.layout import Reading
from sharpgp.tabular.sample import Draw, Memory, Sample, drawn, with_rows
from sharpgp.tabular.sources import Source


class Labelled(NamedTuple):
    """Rows as a model takes them, their targets [n], the target's name, groups [n] if any.

    ``numbers`` [n]: positions of the rows in their file, from 1 without the header, or other names
    of rows.  ``seen``: number of rows that they were drawn from.
    """

    X: Any
    y: np.ndarray
    target: str
    groups: list[str] | None
    numbers: Sequence[Any]
    seen: int


def training_rows(
    source: Any,
    target: str,
    *,
    drop: Iterable[str] = (),
    groups: str | None = None,
    missing: Sequence[str] = (),
    reading: Reading = AS_GUESSED,
    memory: float | str | None = None,
    rows: int = MAX_ROWS_FITTED,
    work: str | os.PathLike[str] | None = None,
    engine: str = "local",
    address: str | None = None,
    workers: int | None = None,
    seed: int = 0,
) -> Labelled:
    """Rows to train on, drawn at random if there are more than ``rows``.

    See :func:`sharpgp.tabular.fit_files`; the encoding is learned from these rows.
    """
    limit, most, drop = Memory.parse(memory), as_count(rows, "rows", least=4), list(drop)
    files = Source.from_data(source, drop, missing, reading)
    features_among(files.names, target, drop, groups)
    names = tuple(name for name in files.names if name not in drop)
    draw = Draw(names, target, tuple(missing), seed, min(most, limit.rows(len(names))))
    engine = files.engine or engine
    if engine == "local":
        wanted = limit.threads if workers is None else as_count(workers, "workers", least=1)
        workers = min(wanted, limit.threads, len(files.units))
    with visitors(engine, workers=workers, address=address) as visit_all:
        sample = drawn(draw, files, visit_all, None if work is None else Path(work))
    if not sample.seen:
        raise InvalidInputError(f"{files}: expected rows, found only a header")
    if sample.unlabelled and len(sample) < sample.seen:
        told = f"{sample.unlabelled} of {sample.seen} values are missing"
        warn(f"column {target!r}: {told}; these rows are left out", UserWarning)
    found = _encoded(sample, files, target, groups, missing, reading)
    room = limit.rows(len(found.X.encoding.features))
    if room < len(sample):
        sample.cut(room)
        found = _encoded(sample, files, target, groups, missing, reading)
    return found


def _encoded(
    sample: Sample,
    files: Source,
    target: str,
    groups: str | None,
    missing: Sequence[str],
    reading: Reading,
) -> Labelled:
    """The drawn rows as features, named by their places in the files."""
    table, called = sample.rows(files)
    table = files.tidied(table)
    decimal = files.layout.decimal if files.layout else reading.decimal
    try:
        together = groups_in(table, groups)
        features = table.select(features_among(table.column_names, target, (), groups))
        for name in features.column_names:  # errors in rows without a target name their row, too
            values = texts.without(values_of(table, name), missing)
            texts.learn(name, values, 1, decimal, reading.dates)
        y, kept = labelled(table, target, missing, decimal, called)
        features, called = features.take(kept), [called[k] for k in kept]
        known: dict[str, Any] = {"marks": missing, "decimal": decimal, "dates": reading.dates}
        X = TableEncoding.learn(features, 1, **known).encode(features, 1)
    except InvalidInputError as error:
        of_one = {unit.number for unit in files.units} == {0}
        text = with_rows(str(error), called)
        raise InvalidInputError(f"{files}: {text}" if of_one else text) from None
    if together is not None:
        together = [together[k] for k in kept]
    return Labelled(X, y, target, together, called, sample.seen)


def checked(
    path: str | os.PathLike[str],
    target: str,
    *,
    drop: Iterable[str] = (),
    groups: str | None = None,
    missing: Sequence[str] = (),
    reading: Reading = AS_GUESSED,
) -> TableCheck:
    """What :func:`sharpgp.check` finds in a file; arguments as of :func:`training_rows`."""
    table, decimal = read_whole(path, missing, reading)
    features = features_among(table.column_names, target, drop, groups)
    kept = [*features, target, *([groups] if groups else [])]
    how: dict[str, Any] = {"missing": missing, "decimal": decimal, "dates": reading.dates}
    return check(table.select(kept), target, groups=groups, **how, first_row=1)


def read_whole(
    path: str | os.PathLike[str], missing: Sequence[str] = (), reading: Reading = AS_GUESSED
) -> tuple[Any, str | None]:
    """A whole file as an Arrow table, and its decimal mark, if it is a text file."""
    source = Source.from_data(path, (), missing, reading)
    return source.table(), source.layout.decimal if source.layout else None


def features_among(
    found: Sequence[str], target: str, drop: Iterable[str] = (), groups: str | None = None
) -> list[str]:
    """The feature columns; raise if there are none, or if a named column is missing.

    Examples
    --------
    >>> features_among(["x", "id", "y"], "y", drop=["id"])
    ['x']
    """
    unused = [target, *drop, *([groups] if groups else [])]
    if any(name not in found for name in unused):
        raise InvalidInputError(missing_columns(unused, found))
    features = [name for name in found if name not in unused]
    if not features:
        raise InvalidInputError("expected at least one column besides the target, found none")
    return features


def as_fitted(
    model: Any, encoding: TableEncoding, table: Any, first_row: int
) -> Encoded | np.ndarray:
    """Rows of an Arrow table as the model takes them."""
    rows = encoding.encode(table, first_row)
    return rows if hasattr(model, "encoding_") else rows.features


def labelled(
    table: Any,
    target: str,
    missing: Sequence[str] = (),
    decimal: str | None = None,
    called: Sequence[Any] | None = None,
) -> tuple[np.ndarray, np.ndarray]:
    """Targets [n] of an Arrow table, and the indices [n] of the rows that have one.

    Rows are ``called`` so in messages, or counted from 1.
    """
    if target not in table.column_names:
        raise InvalidInputError(missing_columns([target], table.column_names))
    values = texts.without(values_of(table, target), missing)
    if values.missing.all():
        raise InvalidInputError(f"column {target!r}: expected values, found none")
    written = texts.learn(target, values, 1, decimal)
    if written and not written.dates:
        values = written.read(target, values, 1)
        warn(f"column {target!r}: text is read as numbers, such as {written.reading}", UserWarning)
    if values.holds not in ("number", "boolean"):
        raise InvalidInputError(
            f"column {target!r}: expected numbers to predict, found {values.holds}, such as "
            f"{table[target].drop_null()[0].as_py()!s:.30}"
        )
    bad = np.flatnonzero(np.isinf(values.data))
    if bad.size:
        raise InvalidInputError(
            f"column {target!r}: expected finite numbers, found inf in row {int(bad[0]) + 1}"
        )
    rows = np.flatnonzero(values.missing)
    if rows.size:
        names = [str(row + 1 if called is None else called[row]) for row in rows[:8]]
        shown = ", ".join(names) + (", ..." if len(rows) > 8 else "")
        warn(
            f"column {target!r}: {len(rows)} of {len(values.data)} values are missing; row(s) "
            f"{shown} are left out",
            UserWarning,
        )
    kept = np.flatnonzero(~values.missing)
    return values.data[kept], kept


def groups_in(table: Any, name: str | None) -> list[str] | None:
    """Group of each row of a table, as text; raise if any is missing."""
    if name is None:
        return None
    if name not in table.column_names:
        raise InvalidInputError(missing_columns([name], table.column_names))
    labels = table[name].to_pylist()
    if None in labels:
        raise InvalidInputError(
            f"column {name!r}: expected a group in every row, found none in row "
            f"{labels.index(None) + 1}"
        )
    return [str(label) for label in labels]
