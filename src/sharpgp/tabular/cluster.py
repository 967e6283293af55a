"""Clusters: how to join one; predictions for a file on Ray, with Ray Data."""

import logging
import os
import re
import socket
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch

from sharpgp._extras import need
from sharpgp.exceptions import SharpGPError
from sharpgp.frames.encoding import TableEncoding
from sharpgp.tabular.files import (
    AS_GUESSED,
    ROWS,
    csv_conversion,
    format_of,
    parsing_of,
    read_batches,
    row_by_row,
)
from sharpgp.tabular.layout import Layout
from sharpgp.tabular.models import SavedModel, load_model
from sharpgp.tabular.prediction import Progress, Request, check_file, write

# Rows travel in blocks of this size; ray's own is so large that one worker would get a whole file.
_BLOCK_BYTES = 2**23


@contextmanager
def ray_cluster(address: str | None, workers: int | None) -> Iterator[int]:
    """Join a ray cluster, or start one of this machine without an address; workers to use.

    A cluster that the caller has joined already is used, and not left at the end.
    """
    need("ray", "ray")
    import ray

    mine = not ray.is_initialized()
    if mine:
        check_listening("ray", address)
        own: dict[str, Any] = {} if address else {"num_cpus": workers, "include_dashboard": False}
        try:
            ray.init(address=address, logging_level=logging.ERROR, log_to_driver=False, **own)
        except (ConnectionError, RuntimeError, ValueError) as error:
            raise unreachable("ray", address, error) from None
    try:
        cores = int(ray.cluster_resources().get("CPU", 1))
        yield min(workers or cores, cores)
    finally:
        if mine:
            ray.shutdown()


@contextmanager
def dask_cluster(address: str | None, workers: int | None) -> Iterator[tuple[Any, int]]:
    """Join a dask cluster, or start one of this machine without an address; client and workers."""
    need("dask", "dask", "distributed")
    from distributed import Client

    own: dict[str, Any] = {
        "n_workers": workers or os.cpu_count(),
        "threads_per_worker": 1,
        "dashboard_address": None,
        "silence_logs": logging.ERROR,
    }
    check_listening("dask", address)
    try:
        client = Client(address, timeout=30) if address else Client(**own)
    except (OSError, ValueError) as error:
        raise unreachable("dask", address, error) from None
    with client:
        cores = max(1, sum(client.nthreads().values()))
        yield client, min(workers or cores, cores)


def check_listening(engine: str, address: str | None) -> None:
    """See whether somebody listens at ``host:port``; ray alone would try for minutes."""
    found = re.fullmatch(r"(?:\w+://)?([^:/]+):(\d+)/?", address or "")
    if found is not None:
        try:
            socket.create_connection((found[1], int(found[2])), timeout=10).close()
        except OSError as error:
            raise unreachable(engine, address, error) from None


def unreachable(engine: str, address: str | None, error: Exception) -> SharpGPError:
    """The error about a cluster that cannot be joined, as one line."""
    reason = (str(error) or type(error).__name__).splitlines()[0]
    return SharpGPError(
        f"engine {engine}: expected a cluster at {address or 'this machine'}, found: {reason}"
    )


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
        return self.request.answer(self.model, self.encoding, batch)


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
        answers = _read(ray.data, source, request.types(encoding), saved.missing).map_batches(
            Worker,
            fn_constructor_args=(bytes_of(saved), encoding, request),
            batch_format="pyarrow",
            batch_size=ROWS,
            compute=ray.data.ActorPoolStrategy(min_size=1, max_size=cores),
            # One worker per core, but without a claim on it: where they claim all of them, those
            # that read the file wait for ever for a core of their own.
            num_cpus=0,
        )
        tables = _plain_errors(answers, encoding, source, request, saved.missing)
        return write(out, tables, source, progress)


def _plain_errors(
    answers: Any, encoding: TableEncoding, source: Any, request: Request, missing: Sequence[str]
) -> Iterator[Any]:
    from ray.exceptions import RayError

    try:
        yield from answers.iter_batches(batch_format="pyarrow", batch_size=None)
    except RayError as error:
        # Workers do not know the rows' numbers: read the file here, up to the row that they met.
        row = 1
        for batch in read_batches(source, request.types(encoding), missing=missing):
            encoding.encode(batch, row)
            row += batch.num_rows
        raise SharpGPError(
            f"engine ray: expected predictions, found: {str(error).strip().splitlines()[-1]}"
        ) from None


def _read(data: Any, source: Any, types: dict[str, Any], missing: Sequence[str]) -> Any:
    path = os.path.abspath(source)
    if format_of(source) == "parquet":
        table = data.read_parquet(path, partitioning=None, file_extensions=None)
        return table.select_columns(list(types))
    layout = Layout.of(source, AS_GUESSED)
    return data.read_csv(
        path,
        read_options=row_by_row(layout, encoding=layout.encoding),
        parse_options=parsing_of(layout),
        convert_options=csv_conversion(types, missing, layout),
        partitioning=None,
    )


def bytes_of(saved: SavedModel) -> bytes:
    """The file of a model, to send it to workers."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "model.sgp"
        saved.save(path)
        return path.read_bytes()
