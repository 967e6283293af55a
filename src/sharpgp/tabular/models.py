"""Models that were fitted on a table in a file, with the target's name beside them."""

import os
import sys
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Any

from sharpgp import persistence
from sharpgp._progress import show_progress
from sharpgp.data.column import Column
from sharpgp.data.encoding import TableEncoding
from sharpgp.data.far_targets import number_rows
from sharpgp.data.inputs import seed_of
from sharpgp.estimator import SharpGPRegressor
from sharpgp.exceptions import InvalidInputError, SavedModelError
from sharpgp.tabular.files import AS_GUESSED, MAX_ROWS_FITTED
from sharpgp.tabular.labelled import (
    Labelled,
    as_fitted,
    groups_in,
    labelled,
    read_whole,
    training_rows,
)
from sharpgp.tabular.layout import Reading
from sharpgp.tabular.sources import Source, check_columns


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
    def missing(self) -> tuple[str, ...]:
        """Texts that mark a missing value, besides the usual ones."""
        encoding: TableEncoding | None = getattr(self.model, "encoding_", None)
        return () if encoding is None else tuple(encoding.marks)

    def save(self, path: str | os.PathLike[str]) -> None:
        """Save all of it in one file."""
        persistence.save(self.model, path, target=self.target)

    def encoding_for(
        self, given: Any, unused: Iterable[str] = (), reading: Reading = AS_GUESSED
    ) -> TableEncoding:
        """The encoding for a file; raise if it lacks a column."""
        encoding: TableEncoding | None = getattr(self.model, "encoding_", None)
        if encoding is None:
            found = Source.from_data(given, reading=reading).names
            names = [name for name in found if name not in set(unused)]
            if len(names) != self.model.n_features_in_:
                raise InvalidInputError(
                    f"{given}: expected {self.model.n_features_in_} columns, as many as the model "
                    f"has features, found {len(names)}"
                )
            return TableEncoding(tuple(Column(name) for name in names))
        check_columns(given, encoding.names, reading)
        return encoding

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
        try:
            y, kept = labelled(table, target or "target", self.missing, decimal)
            found = table.take(kept)
            X, together = as_fitted(self.model, encoding, found, 1), groups_in(found, groups)
        except InvalidInputError as error:
            raise InvalidInputError(f"{path}: {error}") from None
        return Labelled(X, y, target or "", together, (kept + 1).tolist(), len(table))


def load_model(path: str | os.PathLike[str], *, device: Any = "auto") -> SavedModel:
    """Load a model that :func:`fit_file` or ``SharpGPRegressor.save`` saved."""
    content = persistence.read(path, device=device)
    model, target = content["model"], content.get("target")
    if not isinstance(model, SharpGPRegressor) or not isinstance(target, str | None):
        raise SavedModelError(
            f"cannot load {path}: expected a SharpGPRegressor, found {type(model).__name__}"
        )
    encoding = getattr(model, "encoding_", None)
    if encoding is not None and "missing" in content:  # files of earlier versions
        model.encoding_ = replace(encoding, marks=tuple(map(str, content["missing"])))
    return SavedModel(model, target)


def fit_file(
    path: str | os.PathLike[str],
    target: str,
    model: SharpGPRegressor,
    *,
    drop: Iterable[str] = (),
    groups: str | None = None,
    missing: Sequence[str] = (),
    reading: Reading = AS_GUESSED,
) -> SavedModel:
    r"""Fit a model on all rows of a CSV, Excel or Parquet file; arguments of :func:`fit_files`.

    Examples
    --------
    >>> import os, tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     path = os.path.join(folder, "data.csv")
    ...     with open(path, "w") as file:
    ...         _ = file.write("x,kind,y\n")
    ...         _ = file.writelines(f"{i % 9},{'ab'[i % 2]},{i % 7}\n" for i in range(30))
    ...     fitted = fit_file(path, "y", SharpGPRegressor(calibration="kuleshov18"))
    >>> fitted.model.encoding_.features
    ['x', 'kind=a', 'kind=b']
    """
    given: dict[str, Any] = {"drop": drop, "groups": groups, "missing": missing}
    all_rows: dict[str, Any] = {"rows": sys.maxsize, "memory": float(2**40)}
    return fit_files(path, target, model, **given, reading=reading, **all_rows)


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
    columns: dict[str, Any] = {"drop": drop, "groups": groups, "missing": missing}
    limits: dict[str, Any] = {"memory": memory, "rows": rows, "work": work}
    where: dict[str, Any] = {"engine": engine, "address": address, "workers": workers}
    seed = seed_of(model.random_state) or 0
    with show_progress(model.verbose):
        found = training_rows(
            source, target, **columns, reading=reading, **limits, **where, seed=seed
        )
        return fit_rows(found, model)


def fit_rows(rows: Labelled, model: SharpGPRegressor) -> SavedModel:
    """Fit a model on rows that :func:`~sharpgp.tabular.labelled.training_rows` has read."""
    with number_rows(rows.numbers):
        model = model.fit(rows.X, rows.y, groups=rows.groups)
    return SavedModel(model, rows.target, rows.seen)
