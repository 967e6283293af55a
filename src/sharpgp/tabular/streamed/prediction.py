"""Predictions for a file on a dask cluster, unit by unit."""

import os
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import torch

from sharpgp.estimator import SharpGPRegressor
from sharpgp.frames.encoding import TableEncoding
from sharpgp.tabular.cluster import bytes_of
from sharpgp.tabular.files import ROWS
from sharpgp.tabular.models import SavedModel, load_model
from sharpgp.tabular.prediction import Progress, Request, check_file, write
from sharpgp.tabular.streamed.engines import visitors
from sharpgp.tabular.streamed.rows import Unit, as_parquet, batches_of, units_of


@dataclass(frozen=True)
class Predict:
    """Answers for a unit: a function that can be sent to where the unit is visited."""

    content: bytes
    encoding: TableEncoding
    request: Request

    @cached_property
    def model(self) -> SharpGPRegressor:
        """The model, loaded where it is first asked."""
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder) / "model.sgp"
            path.write_bytes(self.content)
            return load_model(path, device="cpu").model

    def __call__(self, unit: Unit) -> Any:
        """An Arrow table of answers."""
        import pyarrow as pa

        names = list(self.request.types(self.encoding))
        tables = [
            self.request.answer(self.model, self.encoding, batch, unit.row + place)
            for place, batch in batches_of(unit, names, ROWS)
        ]
        return pa.concat_tables(tables)


def predict_on_dask(
    saved: SavedModel,
    source: str | os.PathLike[str],
    out: str | os.PathLike[str],
    request: Request,
    *,
    address: str | None = None,
    workers: int | None = None,
    progress: Progress | None = None,
) -> int:
    """As :func:`~sharpgp.tabular.prediction.predict_file`, on ``workers`` processes of a cluster.

    Without an address, a cluster of this machine's cores is started and stopped.  The file has to
    be visible under the same name on every machine; a CSV file is copied to Parquet beside ``out``
    for the time being.  Rows stay in order, and ``out`` is written by this process as answers
    arrive.
    """
    encoding = check_file(saved, source, request)
    visit = Predict(bytes_of(saved), encoding, request)
    with tempfile.TemporaryDirectory(dir=Path(out).absolute().parent) as folder:
        rows = as_parquet(Path(source), Path(folder) / "rows.parquet", saved.missing)
        units = units_of([rows], [Path(source)])
        cpu = torch.device("cpu")
        with visitors("dask", workers=workers, address=address, device=cpu) as visit_all:
            answers: Iterator[Any] = visit_all(visit, units)
            return write(out, answers, source, progress)
