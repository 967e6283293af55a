"""Predictions for a file of any length, in bounded memory."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from sharpgp._validation import as_coverage, as_levels
from sharpgp.exceptions import InvalidInputError
from sharpgp.frames.encoding import TableEncoding
from sharpgp.tabular.files import (
    AS_GUESSED,
    ROWS,
    check_columns,
    csv_type,
    read_batches,
    writing,
)
from sharpgp.tabular.labelled import as_fitted
from sharpgp.tabular.layout import Reading

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
    """

    coverages: Sequence[float] = (0.95,)
    quantiles: Sequence[float] = ()
    keep: Sequence[str] = ()

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
        check_columns(source, self.keep, reading)
        both = sorted(set(self.keep) & set(self.names))
        if both:
            raise InvalidInputError(
                f"keep: expected names other than {both[0]!r}, which is predicted"
            )

    def values(self, model: SharpGPRegressor, X: Any) -> np.ndarray:
        """The predicted columns [n, k]."""
        parts = [model.predict(X)[:, None]]
        if self.coverages:
            ends = model.predict_interval(X, list(self.coverages))
            parts.append(ends.transpose(0, 2, 1).reshape(len(ends), -1))
        if self.quantiles:
            parts.append(model.predict_quantiles(X, list(self.quantiles)))
        return np.hstack(parts)

    def answer(
        self, model: SharpGPRegressor, encoding: TableEncoding, batch: Any, first_row: int = 1
    ) -> Any:
        """An Arrow table with what is kept of the batch and the predicted columns."""
        import pyarrow as pa

        columns = {name: batch[name] for name in self.keep}
        X = as_fitted(model, encoding, batch, first_row)
        values = np.asfortranarray(self.values(model, X))
        columns |= {name: pa.array(values[:, j]) for j, name in enumerate(self.names)}
        return pa.table(columns)

    def types(self, encoding: TableEncoding) -> dict[str, Any]:
        """Columns of the input that are needed, with the types that CSV files are read as."""
        wanted = {name: None for name in self.keep}
        return wanted | {column.name: csv_type(column) for column in encoding.columns}


def predict_file(
    saved: SavedModel,
    source: str | os.PathLike[str],
    out: str | os.PathLike[str],
    request: Request,
    *,
    reading: Reading = AS_GUESSED,
    progress: Progress | None = None,
) -> int:
    """Predict every row of a CSV or Parquet file into another; the number of rows.

    Rows are read, predicted and written in batches; the file ``out`` appears whole at the end, or
    not at all.
    """
    encoding = check_file(saved, source, request, reading)
    batches = read_batches(source, request.types(encoding), missing=saved.missing, reading=reading)
    return write(out, predictions(saved.model, encoding, batches, request), source, progress)


def check_file(
    saved: SavedModel,
    source: str | os.PathLike[str],
    request: Request,
    reading: Reading = AS_GUESSED,
) -> TableEncoding:
    """The encoding for a file that has all columns that are needed."""
    request.check_names(source, reading)
    return saved.encoding_for(source, (), reading)


def predictions(
    model: SharpGPRegressor, encoding: TableEncoding, batches: Iterator[Any], request: Request
) -> Iterator[Any]:
    """An Arrow table of answers for each batch."""
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
    """Write tables one after the other into one file; the number of rows."""
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


__all__ = ["ROWS", "Request", "check_file", "predict_file", "predictions", "write"]
