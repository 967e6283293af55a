"""Predictions for a file on a Ray cluster, with Ray Data."""

import logging
import os
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import torch

from sharpgp.exceptions import SharpGPError
from sharpgp.experiments.engines import ray_cluster
from sharpgp.tabular.encoding import TableEncoding
from sharpgp.tabular.files import ROWS, csv_conversion, delimiter_of, format_of, read_batches
from sharpgp.tabular.models import SavedModel, load_model
from sharpgp.tabular.prediction import Progress, Request, check_file, write

# Rows travel in blocks of this size; ray's own is so large that one worker would get a whole file.
_BLOCK_BYTES = 2**23


class Worker:
    """One process of the cluster: loads the model once, then predicts batches."""

    def __init__(self, content: bytes, encoding: TableEncoding, request: Request) -> None:
        torch.set_num_threads(1)  # there is a worker for every core
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder) / "model.sgp"
            path.write_bytes(content)
            self.model = load_model(path).model
        self.encoding, self.request = encoding, request

    def __call__(self, batch: Any) -> Any:
        """Answers for a batch."""
        return self.request.answer(self.model, self.encoding.encode(batch), batch)


def predict_on_ray(
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
    be visible under the same name on every machine.  Rows stay in order, and ``out`` is written
    by this process as answers arrive.
    """
    encoding = check_file(saved, source, request)
    with ray_cluster(address, workers) as cores:
        import ray.data

        logging.getLogger("ray.data").setLevel(logging.ERROR)
        context = ray.data.DataContext.get_current()
        context.execution_options.preserve_order = True
        context.enable_progress_bars = False
        context.target_max_block_size = _BLOCK_BYTES
        answers = _read(ray.data, source, request.types(encoding)).map_batches(
            Worker,
            fn_constructor_args=(_bytes_of(saved), encoding, request),
            batch_format="pyarrow",
            batch_size=ROWS,
            compute=ray.data.ActorPoolStrategy(min_size=1, max_size=cores),
            # One worker per core, but without a claim on it: where they claim all of them, those
            # that read the file wait for ever for a core of their own.
            num_cpus=0,
        )
        tables = _plain_errors(answers, encoding, source, request)
        return write(out, tables, source, progress)


def _plain_errors(
    answers: Any, encoding: TableEncoding, source: Any, request: Request
) -> Iterator[Any]:
    from ray.exceptions import RayError

    try:
        yield from answers.iter_batches(batch_format="pyarrow", batch_size=None)
    except RayError as error:
        # Workers do not know the rows' numbers: read the file here, up to the row that they met.
        row = 1
        for batch in read_batches(source, request.types(encoding)):
            encoding.encode(batch, row)
            row += batch.num_rows
        raise SharpGPError(
            f"engine ray: expected predictions, found: {str(error).strip().splitlines()[-1]}"
        ) from None


def _read(data: Any, source: Any, types: dict[str, Any]) -> Any:
    path = os.path.abspath(source)
    if format_of(source) == "parquet":
        table = data.read_parquet(path, partitioning=None, file_extensions=None)
        return table.select_columns(list(types))
    from pyarrow import csv

    parsing = csv.ParseOptions(delimiter=delimiter_of(source), newlines_in_values=True)
    return data.read_csv(
        path,
        parse_options=parsing,
        convert_options=csv_conversion(types),
        partitioning=None,
    )


def _bytes_of(saved: SavedModel) -> bytes:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "model.sgp"
        saved.save(path)
        return path.read_bytes()
