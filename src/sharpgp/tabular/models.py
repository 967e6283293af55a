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
from sharpgp.data.column import Column
from sharpgp.data.encoding import Encoded, TableEncoding, require_columns
from sharpgp.data.reading import values_of
from sharpgp.exceptions import InvalidInputError, SavedModelError, warn
from sharpgp.tabular.cluster import visitors
from sharpgp.tabular.files import AS_GUESSED, MAX_ROWS_FITTED, naming
from sharpgp.tabular.layout import Reading
from sharpgp.tabular.sample import Draw, Memory, drawn
from sharpgp.tabular.sources import Source, check_columns

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
    how |= {"drop": drop, "groups": groups, "missing": missing, "reading": reading}
    with show_progress(model.verbose):
        seed = seed_of(model.random_state) or 0
        return fit_rows(training_rows(source, target, seed=seed, **how), model)


def fit_rows(rows: Labelled, model: SharpGPRegressor) -> SavedModel:
    """Fit a model on rows of :func:`training_rows`."""
    from sharpgp.data.far_targets import number_rows

    with number_rows(rows.numbers):
        model = model.fit(rows.X, rows.y, groups=rows.groups)
    return SavedModel(model, rows.target, rows.seen)


@dataclass(frozen=True)
class SavedModel:
    """A fitted model, and the name of its target, if it is known.

    A model fitted on an array takes the columns of a table in order, as numbers.  ``rows``: number
    of rows in the files, if the model was just fitted to them or to a sample.
    """

    model: SharpGPRegressor
    target: str | None = None
    rows: int | None = None

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

        persistence.save(self.model, path, target=self.target)

    def encoding_for(
        self, given: Any, unused: Iterable[str] = (), reading: Reading = AS_GUESSED
    ) -> TableEncoding:
        """The encoding for a file; raise if it lacks a column."""
        if self.encoding is None:
            found = Source.from_data(given, reading=reading).names
            names = [name for name in found if name not in set(unused)]
            if len(names) != self.model.n_features_in_:
                raise InvalidInputError(
                    f"{given}: expected {self.model.n_features_in_} columns, as many as the model "
                    f"has features, found {len(names)}"
                )
            return TableEncoding(tuple(Column(name) for name in names))
        check_columns(given, self.encoding.names, reading)
        return self.encoding

    def read(
        self,
        path: str | os.PathLike[str],
        *,
        target: str | None = None,
        groups: str | None = None,
        reading: Reading = AS_GUESSED,
    ) -> Labelled:
        """A whole labelled file, without rows that lack a target."""
        target = target or self.target
        encoding = self.encoding_for(path, [name for name in (target, groups) if name], reading)
        table, decimal = read_whole(path, self.missing, reading)
        with naming(path):
            y, kept = labelled(table, target or "target", self.missing, decimal)
            found = table.take(kept)
            X, together = as_fitted(self.model, encoding, found, 1), groups_in(found, groups)
        return Labelled(X, y, target or "", together, (kept + 1).tolist(), len(table))


def load_model(path: str | os.PathLike[str], *, device: Any = "auto") -> SavedModel:
    """Load a model that :func:`fit_file` or ``SharpGPRegressor.save`` saved."""
    from sharpgp import SharpGPRegressor, persistence

    content = persistence.read(path, device=device)
    model, target = content["model"], content.get("target")
    if not isinstance(model, SharpGPRegressor) or not isinstance(target, str | None):
        raise SavedModelError(
            f"cannot load {path}: expected a SharpGPRegressor, found {type(model).__name__}"
        )
    saved = SavedModel(model, target)
    if saved.encoding and "missing" in content:  # files of earlier versions
        model.encoding_ = replace(saved.encoding, marks=tuple(map(str, content["missing"])))
    return saved


# ------------------------------------------------------------------ rows


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

    def in_order(self, time: str) -> Labelled:
        """The same rows, sorted by a column of dates or numbers."""
        encoding: TableEncoding = self.X.encoding
        require_columns([time], encoding.names)
        place = encoding.names.index(time)
        kind = encoding.columns[place].kind
        if kind not in ("date", "number"):
            raise InvalidInputError(
                f"time: expected a column of dates or numbers, found {time!r} of kind {kind}"
            )
        if lacking := np.flatnonzero(self.X.missing[:, place]).tolist():
            raise InvalidInputError(
                f"time: expected a value in every row, found none in {len(lacking)} rows of "
                f"{time!r}, such as row {self.numbers[lacking[0]]}"
            )
        order = self.X.features[:, encoding.places[time][0]].argsort(kind="stable")
        numbers = [self.numbers[k] for k in order]
        groups = self.groups and [self.groups[k] for k in order]
        return self._replace(X=self.X[order], y=self.y[order], groups=groups, numbers=numbers)


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
        features, called = features.take(kept), [called[k] for k in kept]
        with naming(name_of_one, called):
            X = TableEncoding.learn(features, 1, marks=missing, **how).encode(features, 1)
        labels = labels and [labels[k] for k in kept]
        return Labelled(X, y, target, labels, called, sample.seen)

    found = encoded()
    room = limit.rows(len(found.X.encoding.features))
    if room < len(sample):
        sample.cut(room)
        found = encoded()
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
