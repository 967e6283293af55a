"""Models of rows in files, with the target's name beside them.

Nothing here loads torch before it is needed, so that errors in a table are reported at once.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from sharpgp._progress import show_progress
from sharpgp._validation import as_count
from sharpgp.data import texts
from sharpgp.data.censoring import warn_of_censoring
from sharpgp.data.column import Column
from sharpgp.data.encoding import Encoded, TableEncoding, require_columns
from sharpgp.data.reading import values_of
from sharpgp.exceptions import InvalidInputError, SavedModelError, warn
from sharpgp.tabular.cluster import visitors
from sharpgp.tabular.files import AS_GUESSED, MAX_ROWS_FITTED, naming
from sharpgp.tabular.layout import Reading
from sharpgp.tabular.sample import Draw, Memory, drawn
from sharpgp.tabular.sources import Source

if TYPE_CHECKING:
    from sharpgp.estimator import SharpGPRegressor


def fit_file(
    path: str | os.PathLike[str], target: str, model: SharpGPRegressor, **settings: Any
) -> SavedModel:
    r"""Fit a model on all rows of a CSV, Excel or Parquet file, see :func:`fit_files`.

    Examples
    --------
    >>> import os, tempfile
    >>> from sharpgp import SharpGPRegressor
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     path = os.path.join(folder, "data.csv")
    ...     with open(path, "w") as file:
    ...         _ = file.write("x,kind,y\n")
    ...         _ = file.writelines(f"{i % 9},{'ab'[i % 2]},{i % 7}\n" for i in range(30))
    ...     fitted = fit_file(path, "y", SharpGPRegressor(calibration="kuleshov18"))
    >>> fitted.model.encoding_.features
    ['x', 'kind=a', 'kind=b']
    """
    return fit_files(path, target, model, rows=sys.maxsize, memory=2.0**40, **settings)


def fit_files(
    source: Any,
    target: str,
    model: SharpGPRegressor,
    *,
    drop: Iterable[str] = (),
    groups: str | None = None,
    time: str | None = None,
    missing: Sequence[str] = (),
    reading: Reading = AS_GUESSED,
    memory: float | str | None = None,
    rows: int = MAX_ROWS_FITTED,
    work: str | os.PathLike[str] | None = None,
    engine: str = "local",
    address: str | None = None,
    workers: int | None = None,
) -> SavedModel:
    """Fit a model on files of any size: on all rows, or on some drawn at random.

    One pass over all rows draws a uniform sample.  The model is then fitted to the sample as to any
    table in memory.

    Parameters
    ----------
    source : path, several of these, dataset or data frame
        CSV, Excel and Parquet files: their names, a folder, a pattern such as ``"data/*.parquet"``,
        or addresses such as ``"s3://bucket/data/"``.  Folders named ``year=2020`` become a column.
        Or a ``pyarrow.dataset.Dataset``, a dask data frame, or a Ray Dataset.
    target : str
        Name of the target's column.
    model : SharpGPRegressor
    drop : names of columns that are not used
    groups : str, optional
        Name of a column that says which rows belong together; it is not a feature.
    time : str, optional
        Name of a column of dates or numbers, by which rows are sorted.
    missing : sequence of str
        Texts that mark a missing value in CSV and Excel files, such as ``"?"`` or ``"-999"``,
        besides empty ones and ``NA``; later files of this model are read in the same way.
    reading : Reading
        Encoding, decimal mark, lines above the header and the like; otherwise guessed.
    memory : float or str, optional
        Limit of the pass and the sample, not of the fit, in GiB or as text such as ``"4GB"``; on a
        cluster, per worker.  By default 2 GiB, or what 10,000 rows take.
    rows : int
        Most rows of the sample, to limit time and memory of the fit. ``memory`` may allow fewer.
    work : path, optional
        Folder for progress.  After an interruption, the same call continues from there.  The folder
        stays until it is removed.  Frames of dask and Ray start over.
    engine : {"local", "ray", "dask"}
        Engine that reads. Frames of dask and Ray are read by their own.
    address : str, optional
        Address of a cluster; by default the one that this process has joined, or a new one on this
        machine.  All its machines must see the files under the same names.
    workers : int, optional
        Threads of this machine or processes of the cluster; all by default.

    Examples
    --------
    >>> import tempfile
    >>> import numpy as np, pyarrow as pa, pyarrow.parquet as pq
    >>> from sharpgp import SharpGPRegressor
    >>> rng = np.random.default_rng(0)
    >>> x = rng.uniform(-3, 3, 400)
    >>> table = pa.table({"x": x, "y": np.sin(x) + 0.1 * rng.normal(size=400)})
    >>> model = SharpGPRegressor(base="rbf", random_state=0)
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     pq.write_table(table, f"{folder}/data.parquet")
    ...     fitted = fit_files(f"{folder}/*.parquet", "y", model, rows=200)
    >>> fitted.rows, fitted.model.predict_interval([[0.5]], coverage=0.9).shape
    (400, (1, 2))
    """
    from sharpgp.data.inputs import seed_of

    where: dict[str, Any] = {"engine": engine, "address": address, "workers": workers}
    how: dict[str, Any] = {"memory": memory, "rows": rows, "work": work, **where}
    how |= {"drop": drop, "groups": groups, "time": time, "missing": missing, "reading": reading}
    with show_progress(model.verbose):
        seed = seed_of(model.random_state) or 0
        return fit_rows(training_rows(source, target, seed=seed, **how), model)


def fit_rows(rows: Labelled, model: SharpGPRegressor) -> SavedModel:
    """Fit a model on rows of :func:`training_rows`."""
    from sharpgp.data.far_targets import number_rows

    with number_rows(rows.numbers):
        model = model.fit(rows.X, rows.y, groups=rows.groups)
    return SavedModel(model, rows.target, rows.seen, rows.by_groups, rows.by_time)


@dataclass(frozen=True)
class SavedModel:
    """A fitted model, and the names of its target and of the columns of groups and time, if known.

    A model fitted on an array takes the columns of a table in order, as numbers.  ``rows``: number
    of rows in the files, if the model was just fitted to them or to a sample.
    """

    model: SharpGPRegressor
    target: str | None = None
    rows: int | None = None
    groups: str | None = None
    time: str | None = None

    @property
    def encoding(self) -> TableEncoding | None:
        """The encoding of the tables that the model takes; None if it was fitted on an array."""
        return getattr(self.model, "encoding_", None)

    @property
    def missing(self) -> tuple[str, ...]:
        """Texts that mark a missing value, besides the usual ones."""
        return self.encoding.marks if self.encoding else ()

    def save(self, path: str | os.PathLike[str]) -> None:
        """Save all of it in one file."""
        from sharpgp import persistence

        names = {"groups": self.groups, "time": self.time}
        persistence.save(self.model, path, target=self.target, **names)

    def open(
        self,
        given: Any,
        reading: Reading = AS_GUESSED,
        beside: Iterable[str] = (),
    ) -> tuple[Source, TableEncoding]:
        """A file whose columns are read as those of the fit, and how they become features.

        Raise if it lacks a column of the model, or one ``beside`` these.
        """
        columns = self.encoding.columns if self.encoding else ()
        wanted = dict.fromkeys(beside) | {one.name: _csv_type(one) for one in columns}
        types = dict.fromkeys(name for name in (self.groups, self.time) if name) | wanted
        source = Source.from_data(given, (), self.missing, reading, types)
        source.require(wanted)
        if self.encoding is not None:
            return source, self.encoding
        names = [name for name in source.names if name not in {*beside}]
        if len(names) != self.model.n_features_in_:
            raise InvalidInputError(
                f"{given}: expected {self.model.n_features_in_} columns, as many as the model "
                f"has features, found {len(names)}"
            )
        return source, TableEncoding(tuple(Column(name) for name in names))

    def groups_of(self, source: Source, asked: str | None) -> str | None:
        """The column of groups: the one asked for, or that of the fit; None for ``"none"``."""
        found = asked or (self.groups if self.groups in source.names else None)
        return None if found == "none" else found

    def read(
        self,
        path: str | os.PathLike[str],
        *,
        target: str | None = None,
        groups: str | None = None,
        time: str | None = None,
        by: str | None = None,
        reading: Reading = AS_GUESSED,
    ) -> Labelled:
        """A whole labelled file, without rows that lack a target; ``by`` names classes of rows.

        Groups and time are by default those of the fit, where the file has these columns.
        """
        target = target or self.target
        asked = (target, None if groups == "none" else groups, time, by)
        source, encoding = self.open(path, reading, [name for name in asked if name])
        groups = self.groups_of(source, groups)
        time = time or (self.time if self.time in source.names else None)
        beside = [name for name in (target, groups, time, by) if name]
        table = source.table(list(dict.fromkeys([*encoding.names, *beside])))
        with naming(path):
            decimal = source.layout.decimal if source.layout else None
            y, kept = labelled(table, target or "target", self.missing, decimal)
            if time is not None:
                kept, y = (part[_order(table, time, kept)] for part in (kept, y))
            found = table.take(kept)
            X = as_fitted(self.model, encoding, found, 1, reading)
            together, classes = (groups_in(found, name) for name in (groups, by))
        numbers = (kept + 1).tolist()
        return Labelled(X, y, target or "", together, numbers, len(table), classes=classes)


def load_model(path: str | os.PathLike[str], *, device: Any = "auto") -> SavedModel:
    """Load a model that :func:`fit_file` or ``SharpGPRegressor.save`` saved."""
    from sharpgp import SharpGPRegressor, persistence

    content = persistence.read(path, device=device)
    model, target = content["model"], content.get("target")
    if not isinstance(model, SharpGPRegressor) or not isinstance(target, str | None):
        raise SavedModelError(
            f"cannot load {path}: expected a SharpGPRegressor, found {type(model).__name__}"
        )
    saved = SavedModel(model, target, None, content.get("groups"), content.get("time"))
    if saved.encoding and "missing" in content:  # files of earlier versions
        model.encoding_ = replace(saved.encoding, marks=tuple(map(str, content["missing"])))
    return saved


# ------------------------------------------------------------------ rows


class Labelled(NamedTuple):
    """Rows as a model takes them, their targets [n], the target's name, groups [n] if any.

    ``numbers`` [n]: positions of the rows in their file, from 1 without the header, or other names
    of rows.  ``seen``: number of rows that they were drawn from.  ``classes`` [n] are those by
    which a report counts, ``by_groups`` and ``by_time`` columns of groups and time.
    """

    X: Any
    y: np.ndarray
    target: str
    groups: list[str] | None
    numbers: Sequence[Any]
    seen: int
    classes: list[str] | None = None
    by_groups: str | None = None
    by_time: str | None = None


def training_rows(
    source: Any,
    target: str,
    *,
    drop: Iterable[str] = (),
    groups: str | None = None,
    time: str | None = None,
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
    together = [groups] if groups else []
    decimal = files.layout.decimal if files.layout else reading.decimal
    how: dict[str, Any] = {"decimal": decimal, "dates": reading.dates}
    # Rows of several files are called by their file.
    name_of_one = str(files) if {unit.number for unit in files.units} == {0} else ""

    def encoded() -> Labelled:
        """The drawn rows as features, named by their places in the files."""
        table, called = sample.rows(files)
        table = files.tidied(table)
        with naming(name_of_one, called):
            labels = groups_in(table, groups)
            features = table.drop_columns([target, *together])
            for name in features.column_names:  # errors in rows without a target name their row
                texts.learn(name, texts.without(values_of(features, name), missing), 1, **how)
            y, kept = labelled(table, target, missing, decimal, called)
        with naming(name_of_one, called):
            if time is not None:
                order = _order(table, time, kept, reading.dates)
                kept, y = kept[order], y[order]
        features, called = features.take(kept), [called[k] for k in kept]
        with naming(name_of_one, called):
            X = TableEncoding.learn(features, 1, marks=missing, **how).encode(features, 1)
        labels = labels and [labels[k] for k in kept]
        return Labelled(X, y, target, labels, called, sample.seen, None, groups, time)

    found = encoded()
    room = limit.rows(len(found.X.encoding.features))
    if room < len(sample):
        sample.cut(room)
        found = encoded()
    warn_of_censoring(found.X, target, found.y)
    return found


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
    require_columns(unused, found)
    features = [name for name in found if name not in unused]
    if not features:
        raise InvalidInputError("expected at least one column besides the target, found none")
    return features


def as_fitted(
    model: Any, encoding: TableEncoding, table: Any, first_row: int, reading: Reading = AS_GUESSED
) -> Encoded | np.ndarray:
    """Rows of an Arrow table as the model takes them."""
    rows = encoding.encode(table, first_row, decimal=reading.decimal, dates=reading.dates)
    return rows if hasattr(model, "encoding_") else rows.features


def _csv_type(column: Column) -> Any:
    """Type that a column of a CSV file is read as; text for numbers or dates written as text."""
    import pyarrow as pa

    # Dates are read as in training: with a zone or without, as the file has them.
    if column.written is None and column.kind == "date":
        return None
    types = {"number": pa.float64(), "boolean": pa.bool_()}
    return pa.string() if column.written else types.get(column.kind, pa.string())


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
    require_columns([target], table.column_names)
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


def _order(table: Any, time: str, rows: np.ndarray, dates: str | None = None) -> np.ndarray:
    """Order of these rows of a table by a column of dates or numbers."""
    require_columns([time], table.column_names)
    values = values_of(table, time)
    written = texts.learn(time, values, 1, dates=dates)
    values = written.read(time, values, 1) if written else values
    if values.holds not in ("date", "number"):
        raise InvalidInputError(
            f"time: expected a column of dates or numbers, found {time!r} of kind {values.holds}"
        )
    if lacking := np.flatnonzero(values.missing[rows]).tolist():
        raise InvalidInputError(
            f"time: expected a value in every row of {time!r}, found none in row "
            f"{rows[lacking[0]] + 1}"
        )
    return np.asarray(values.data[rows].argsort(kind="stable"))


def groups_in(table: Any, name: str | None) -> list[str] | None:
    """Group of each row of a table, as text; raise if any is missing."""
    if name is None:
        return None
    require_columns([name], table.column_names)
    labels = table[name].to_pylist()
    if None in labels:
        raise InvalidInputError(
            f"column {name!r}: expected a group in every row, found none in row "
            f"{labels.index(None) + 1}"
        )
    return [str(label) for label in labels]
