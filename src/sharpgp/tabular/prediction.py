"""Predictions for a file of any length, in bounded memory."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from sharpgp._validation import as_coverage, as_levels
from sharpgp.data.encoding import TableEncoding
from sharpgp.exceptions import InvalidInputError
from sharpgp.tabular.files import (
    AS_GUESSED,
    ROWS,
    csv_type,
    writing,
)
from sharpgp.tabular.labelled import as_fitted, groups_in
from sharpgp.tabular.layout import Reading
from sharpgp.tabular.sources import Unit, batches_of, check_columns

if TYPE_CHECKING:
    from sharpgp.estimator import SharpGPRegressor
    from sharpgp.tabular.models import SavedModel

#: Called with the number of rows done so far.
Progress = Callable[[int], None]


@dataclass(frozen=True)
class Request:
    """What to predict for every row.

    Attributes
    ----------
    coverages : list of float
        Intervals, as columns ``lower_90`` and ``upper_90``.
    quantiles : list of float
        Levels, as columns ``quantile_0.05``.
    keep : list of str
        Columns of the input to copy.
    groups : str, optional
        Column that says to which group a row belongs: known groups are answered from what is
        known of them.
    """

    coverages: Sequence[float] = (0.95,)
    quantiles: Sequence[float] = ()
    keep: Sequence[str] = ()
    groups: str | None = None

    def __post_init__(self) -> None:
        if self.coverages:
            as_coverage(list(self.coverages))
        if self.quantiles:
            as_levels(list(self.quantiles))

    @property
    def names(self) -> list[str]:
        """Names of the predicted columns."""
        ends = [f"{end}_{100 * c:.10g}" for c in self.coverages for end in ("lower", "upper")]
        return ["mean", *ends, *(f"quantile_{level:.10g}" for level in self.quantiles)]

    def check_names(self, source: str | os.PathLike[str], reading: Reading = AS_GUESSED) -> None:
        """Raise unless a file has the columns to copy, and none of them is predicted."""
        check_columns(source, [*self.keep, *([self.groups] if self.groups else [])], reading)
        both = sorted(set(self.keep) & set(self.names))
        if both:
            raise InvalidInputError(
                f"keep: expected names other than {both[0]!r}, which is predicted"
            )

    def values(
        self, model: SharpGPRegressor, X: Any, groups: Sequence[str] | None = None
    ) -> np.ndarray:
        """The predicted columns [n, k]."""
        parts = [model.predict(X, groups=groups)[:, None]]
        if self.coverages:
            ends = model.predict_interval(X, list(self.coverages), groups=groups)
            parts.append(ends.transpose(0, 2, 1).reshape(len(ends), -1))
        if self.quantiles:
            parts.append(model.predict_quantiles(X, list(self.quantiles), groups=groups))
        return np.hstack(parts)

    def answer(
        self, model: SharpGPRegressor, encoding: TableEncoding, batch: Any, first_row: int = 1
    ) -> Any:
        """An Arrow table with the kept columns of the batch and the predicted ones."""
        import pyarrow as pa

        columns = {name: batch[name] for name in self.keep}
        X = as_fitted(model, encoding, batch, first_row)
        values = np.asfortranarray(self.values(model, X, groups_in(batch, self.groups)))
        columns |= {name: pa.array(values[:, j]) for j, name in enumerate(self.names)}
        return pa.table(columns)

    def types(self, encoding: TableEncoding) -> dict[str, Any]:
        """Needed columns of the input, with the types that CSV files are read as."""
        wanted = dict.fromkeys([*self.keep, *([self.groups] if self.groups else [])])
        return wanted | {column.name: csv_type(column) for column in encoding.columns}


def predict_file(
    saved: SavedModel,
    source: Any,
    out: str | os.PathLike[str],
    request: Request,
    *,
    reading: Reading = AS_GUESSED,
    engine: str = "local",
    address: str | None = None,
    workers: int | None = None,
    progress: Progress | None = None,
) -> int:
    """Predict every row of a CSV or Parquet file into another file; returns the number of rows.

    Rows are read, predicted and written in batches, in their order; the file ``out`` appears whole
    at the end, or not at all.  With the engine ``"ray"`` or ``"dask"``, ``workers`` processes of a
    cluster predict the batches that this process reads; see
    :func:`~sharpgp.tabular.fit_files` for ``address``.
    """
    encoding = check_file(saved, source, request, reading)
    batches = batches_of(source, request.types(encoding), ROWS, saved.missing, reading)
    if engine == "local":
        return write(out, predictions(saved.model, encoding, batches, request), source, progress)
    from sharpgp.tabular.cluster import visitors

    visit = _Predict(bytes_of(saved), encoding, request)
    with visitors(engine, workers=workers, address=address) as visit_all:
        return write(out, visit_all(visit, _units(batches, str(source))), source, progress)


@dataclass(frozen=True)
class _Predict:
    """Predictions for a batch, as a function that can be sent to workers."""

    content: bytes
    encoding: TableEncoding
    request: Request

    def __call__(self, unit: Unit) -> Any:
        """An Arrow table of predictions."""
        return self.request.answer(
            _loaded(self.content), self.encoding, unit.rows.frame, unit.first + 1
        )


def _units(batches: Iterator[Any], source: str) -> Iterator[Unit]:
    import pyarrow as pa

    first = 0
    for batch in batches:
        yield Unit(source, 0, first, pa.Table.from_batches([batch]))
        first += batch.num_rows


@lru_cache(maxsize=1)
def _loaded(content: bytes) -> SharpGPRegressor:
    """The model in a file's bytes, loaded once per process."""
    from sharpgp.tabular.models import load_model

    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "model.sgp"
        path.write_bytes(content)
        return load_model(path, device="cpu").model


def bytes_of(saved: SavedModel) -> bytes:
    """The file of a model as bytes, to send to workers."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "model.sgp"
        saved.save(path)
        return path.read_bytes()


def check_file(
    saved: SavedModel,
    source: str | os.PathLike[str],
    request: Request,
    reading: Reading = AS_GUESSED,
) -> TableEncoding:
    """The encoding for a file; raise if a needed column is missing."""
    request.check_names(source, reading)
    return saved.encoding_for(source, (), reading)


def predictions(
    model: SharpGPRegressor, encoding: TableEncoding, batches: Iterator[Any], request: Request
) -> Iterator[Any]:
    """An Arrow table of predictions for each batch."""
    row = 1
    for batch in batches:
        yield request.answer(model, encoding, batch, row)
        row += batch.num_rows


def write(
    out: str | os.PathLike[str],
    tables: Iterator[Any],
    source: str | os.PathLike[str],
    progress: Progress | None = None,
) -> int:
    """Write tables one after the other into one file; returns the number of rows."""
    rows = 0
    try:
        first = next(tables, None)
        if first is None:
            raise InvalidInputError("expected rows, found only a header")
        with writing(out, first.schema) as writer:
            table = first
            while table is not None:
                writer.write(table)
                rows += table.num_rows
                if progress is not None:
                    progress(rows)
                table = next(tables, None)
    except InvalidInputError as error:
        text = str(error)
        raise InvalidInputError(text if str(source) in text else f"{source}: {text}") from None
    return rows
