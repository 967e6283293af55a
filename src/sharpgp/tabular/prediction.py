"""Predictions for a file of any length, in bounded memory."""

from __future__ import annotations

import math
import os
import tempfile
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from sharpgp import _progress as progress
from sharpgp._validation import as_coverage, as_level, as_levels
from sharpgp.data.encoding import TableEncoding
from sharpgp.exceptions import InvalidInputError
from sharpgp.tabular.cluster import visitors
from sharpgp.tabular.files import AS_GUESSED, ROWS, format_of, naming, rows_in, writing
from sharpgp.tabular.layout import Reading
from sharpgp.tabular.models import as_fitted, groups_in, load_model
from sharpgp.tabular.sources import Source, Unit

if TYPE_CHECKING:
    from sharpgp.estimator import SharpGPRegressor
    from sharpgp.selection import Selection
    from sharpgp.tabular.models import SavedModel


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
        known of them.  By default that of the fit, where the file has it; ``"none"`` for none.
    confidence : float, optional
        Of tolerance intervals and limits, see :meth:`SharpGPRegressor.predict_interval`.
    """

    coverages: Sequence[float] = (0.95,)
    quantiles: Sequence[float] = ()
    keep: Sequence[str] = ()
    groups: str | None = None
    confidence: float | None = None

    def __post_init__(self) -> None:
        if self.coverages:
            as_coverage(list(self.coverages))
        if self.quantiles:
            as_levels(list(self.quantiles))
        if self.confidence is not None:
            as_level(self.confidence, "confidence")

    @property
    def used(self) -> list[str]:
        """Columns of the input that are copied or name groups."""
        groups = [] if self.groups in (None, "none") else [self.groups]
        return list(dict.fromkeys([*self.keep, *groups]))

    @property
    def names(self) -> list[str]:
        """Names of the predicted columns."""
        ends = [f"{end}_{100 * c:.10g}" for c in self.coverages for end in ("lower", "upper")]
        return ["mean", *ends, *(f"quantile_{level:.10g}" for level in self.quantiles)]


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
) -> int:
    """Predict every row of a CSV or Parquet file into another file; returns the number of rows.

    Rows are read, predicted and written in batches, in their order; the file ``out`` appears whole
    at the end, or not at all.  CSV files have six digits of the target's deviation.  With the
    engine ``"ray"`` or ``"dask"``, ``workers`` processes of a cluster predict the batches that this
    process reads; see :func:`~sharpgp.tabular.fit_files` for ``address``.
    """
    files, encoding = saved.open(source, reading, request.used)
    request = replace(request, groups=saved.groups_of(files, request.groups))
    if both := sorted(set(request.keep) & set(request.names)):
        raise InvalidInputError(f"keep: expected names other than {both[0]!r}, which is predicted")
    units = _batches(files, list(dict.fromkeys([*request.used, *encoding.names])))
    if engine == "local":
        visit, workers = _Predict(saved.model, encoding, request, reading), 1
    else:
        visit = _Predict(_bytes_of(saved), encoding, request, reading)
    rows, decimals = 0, None
    if format_of(out) == "csv":
        decimals = _decimals(saved.model)
    progress.start_phase("predicting", "row", rows_in(source) or 0)
    with naming(source), visitors(engine, workers=workers, address=address) as visit_all:
        answers = visit_all(visit, units)
        first = next(answers, None)
        if first is None:
            raise InvalidInputError("expected rows, found only a header")
        with writing(out, first.schema) as writer:
            for table in chain([first], answers):
                writer.write(table if decimals is None else _rounded(table, request, decimals))
                rows += table.num_rows
                progress.advance(table.num_rows)
    return rows


def select_file(
    saved: SavedModel,
    source: Any,
    out: str | os.PathLike[str],
    *,
    keep: Sequence[str] = (),
    reading: Reading = AS_GUESSED,
    **limits: Any,
) -> Selection:
    """Write the rows of a file that :meth:`SharpGPRegressor.select` chooses, the surest first.

    With their numbers, counted from 1, the columns ``keep``, and the smallest ``fdr`` that chooses
    each.
    """
    import pyarrow as pa

    files, encoding = saved.open(source, reading, keep)
    table = files.table(list(dict.fromkeys([*keep, *encoding.names])))
    (rows,) = table.combine_chunks().to_batches()
    with naming(source):
        X: Any = as_fitted(saved.model, encoding, rows, 1, reading)
        found = saved.model.select(X, **limits)
    kept = rows.take(pa.array(found.rows))
    share = pa.array(found.share_wrong[found.rows])
    columns = {"row": pa.array(found.rows + 1)} | {name: kept[name] for name in keep}
    table = pa.table(columns | {"share_wrong": share})
    with writing(out, table.schema) as writer:
        writer.write(table)
    return found


@dataclass(frozen=True)
class _Predict:
    """Predictions for a batch, as a function that can be sent to workers, with a model's file."""

    model: SharpGPRegressor | bytes
    encoding: TableEncoding
    request: Request
    reading: Reading

    def __call__(self, unit: Unit) -> Any:
        """An Arrow table with the kept columns of a unit, a batch in memory, and predicted ones."""
        import pyarrow as pa

        model = _loaded(self.model) if isinstance(self.model, bytes) else self.model
        batch, asked = unit.rows, self.request
        X: Any = as_fitted(model, self.encoding, batch, unit.first + 1, self.reading)
        groups = groups_in(batch, asked.groups)
        parts = [model.predict(X, groups=groups)[:, None]]
        how: dict[str, Any] = {"groups": groups, "confidence": asked.confidence}
        if asked.coverages:
            ends = model.predict_interval(X, list(asked.coverages), **how)
            parts.append(ends.transpose(0, 2, 1).reshape(len(ends), -1))
        if asked.quantiles:
            parts.append(model.predict_quantiles(X, list(asked.quantiles), **how))
        predicted = zip(asked.names, np.hstack(parts).T, strict=True)
        kept = {name: batch[name] for name in asked.keep}
        return pa.table(kept | {name: pa.array(values.copy()) for name, values in predicted})


def _decimals(model: SharpGPRegressor) -> int | None:
    """Decimals that give the target's deviation six digits."""
    from sharpgp.calibration.predictors.scored import CompactPredictor

    known = model.calibrated_
    y = known.y_cal if isinstance(known, CompactPredictor) else known.labelled_data()[1]
    deviation = float(y.std())
    return None if not 0 < deviation < math.inf else 5 - math.floor(math.log10(deviation))


def _rounded(table: Any, request: Request, decimals: int) -> Any:
    """Predictions as people read them: more digits would say nothing."""
    import pyarrow as pa

    for name in request.names:
        values = np.round(table[name].to_numpy(), decimals)
        table = table.set_column(table.schema.get_field_index(name), name, pa.array(values))
    return table


def _batches(files: Source, names: Sequence[str]) -> Iterator[Unit]:
    """Each batch of rows as a unit of its own, in memory."""
    first = 0
    for batch in files.batches(names, ROWS):
        yield Unit(str(files), 0, first, batch)
        first += batch.num_rows


def _bytes_of(saved: SavedModel) -> bytes:
    """The file of a model, to send to workers."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "model.sgp"
        saved.save(path)
        return path.read_bytes()


@lru_cache(maxsize=1)
def _loaded(content: bytes) -> SharpGPRegressor:
    """The model in a file's bytes, loaded once per process."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "model.sgp"
        path.write_bytes(content)
        return load_model(path, device="cpu").model
