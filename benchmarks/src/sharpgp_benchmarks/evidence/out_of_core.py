"""Fits to files in batches: growth with rows, memory, interruptions, clusters and rates of passes.

``growth``: processor seconds and peak memory of ``sharpgp fit --memory`` by the number of rows,
with the exponents of their growth.  ``kills``: the same command killed twice and run again; the
model has to be the same, to the last bit.  ``engines``: the same on one process, on ray and on
dask.  ``nodes``: clusters of several nodes, of which one is killed in the middle of the last pass.
``rates``: rows per second of one core in each kind of pass, by the number of inducing inputs, and
the bytes that a unit sends.  Rows are those of
:func:`~sharpgp_benchmarks.evidence.common.simulated`.
"""

import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path

import numpy as np
import torch
from safetensors import safe_open

from sharpgp._validation import check_choice
from sharpgp.frames.encoding import TableEncoding
from sharpgp.gp.bound import BoundGradient
from sharpgp.gp.covariance import Stationary
from sharpgp.gp.scaling import Affine
from sharpgp.tabular.streamed.draw import Draw
from sharpgp.tabular.streamed.memory import MOST_IN_BATCH
from sharpgp.tabular.streamed.rows import UNIT_ROWS, units_of
from sharpgp.tabular.streamed.sums import Pull, Training, Visit, merged
from sharpgp.tabular.streamed.survey import Survey, Table
from sharpgp_benchmarks.evidence.common import Clock, numbers, simulated
from sharpgp_benchmarks.evidence.run import header, row

PARTS = ("growth", "kills", "engines", "nodes", "rates")
#: The address of a cluster, and what makes one of its nodes go.
Nodes = tuple[str, Callable[[], object]]


def write(n: int, path: Path) -> None:
    """Simulated rows in a Parquet file, unless it is there."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    if path.exists():
        return
    writer = None
    for k, start in enumerate(range(0, n, UNIT_ROWS)):
        X, y = simulated(min(UNIT_ROWS, n - start), seed=k)
        table = pa.table({**{f"x{j}": X[:, j] for j in range(X.shape[1])}, "y": y})
        writer = writer or pq.ParquetWriter(str(path), table.schema)
        writer.write_table(table)
    if writer is not None:
        writer.close()


def command(data: Path, out: Path, memory: float, inducing: int, *more: str) -> list[str]:
    """``sharpgp fit`` on a file."""
    fit = [sys.executable, "-m", "sharpgp", "fit", str(data), "--target", "y", "--out", str(out)]
    settings = ["--memory", str(memory), "--base", "rbf", "--approximation", f"sparse:{inducing}"]
    return [*fit, *settings, "--quiet", *more]


def measured(arguments: list[str]) -> tuple[float, float, float]:
    """Wall-clock and processor seconds of a process, and its peak memory in GiB."""
    start = time.perf_counter()
    process = subprocess.Popen(arguments, stdout=subprocess.DEVNULL)
    _, status, used = os.wait4(process.pid, 0)
    if status:
        raise SystemExit(f"{' '.join(arguments)} ended with status {status}")
    return time.perf_counter() - start, used.ru_utime + used.ru_stime, used.ru_maxrss / 2**20


def exponent(x: list[float], y: list[float]) -> float:
    """Slope of ``log y`` by ``log x``.

    Examples
    --------
    >>> round(exponent([1.0, 10.0, 100.0], [2.0, 20.0, 200.0]), 6)
    1.0
    """
    return float(np.polyfit(np.log(x), np.log(y), 1)[0])


def growth(folder: Path, rows: list[int], memory: float, inducing: int) -> None:
    """Seconds and memory by the number of rows."""
    header("rows", "processor seconds", "peak GiB")
    found = []
    for n in rows:
        write(n, folder / f"{n}.parquet")
        out = folder / f"{n}.sgp"
        _, cpu, peak = measured(command(folder / f"{n}.parquet", out, memory, inducing))
        found.append((float(n), cpu, peak))
        row(n, cpu, peak)
    if len(found) > 1:
        n, cpu, peak = map(list, zip(*found, strict=True))
        print(f"exponents: seconds {exponent(n, cpu):.2f}, memory {exponent(n, peak):.2f}")
        extra = (cpu[-1] - cpu[-2]) / (n[-1] - n[-2])
        print(f"between the last two: {1e6 * extra:.1f} s per million rows")


def kills(folder: Path, n: int, memory: float, inducing: int, steps: int) -> None:
    """Killed twice in the middle, and run to the end."""
    data = folder / f"{n}.parquet"
    write(n, data)
    whole, again = folder / "whole.sgp", folder / "again.sgp"
    more = ["--steps", str(steps)]
    wall, _, peak = measured(command(data, whole, memory, inducing, *more))
    print(f"{n} rows, {steps} steps, without interruption: {wall:.0f} s, {peak:.2f} GiB")
    for share in (0.4, 0.4):
        process = subprocess.Popen(command(data, again, memory, inducing, *more))
        try:
            process.wait(timeout=share * wall)
            print("finished before it could be killed")
        except subprocess.TimeoutExpired:
            process.send_signal(signal.SIGKILL)
            process.wait()
            print(f"killed after {share * wall:.0f} s")
    wall, _, peak = measured(command(data, again, memory, inducing, *more))
    print(f"resumed: {wall:.0f} s, {peak:.2f} GiB")
    if digest(whole) != digest(again):
        raise SystemExit("models differ")
    print("the models are the same, to the last bit")


def digest(path: Path) -> str:
    """Checksum of everything that a model file holds; the order of its header is chance."""
    with safe_open(str(path), framework="pt") as file:
        return str(file.metadata()["checksum"])


def engines(folder: Path, n: int, memory: float, inducing: int, workers: int) -> None:
    """One process and clusters of this machine, with equal cores."""
    from sharpgp.tabular import load_model

    data = folder / f"{n}.parquet"
    write(n, data)
    X, _ = simulated(1000, seed=10**6)
    expected = None
    header("engine", "seconds", "largest difference of an interval's end", "same bits")
    for engine in ("local", "ray", "dask"):
        out = folder / f"{engine}.sgp"
        more = ["--engine", engine, "--workers", str(workers), "--steps", "1"]
        wall, _, _ = measured(command(data, out, memory, inducing, *more))
        ends = load_model(out).model.predict_interval(_frame(X), 0.9)
        expected = ends if expected is None else expected
        same = digest(out) == digest(folder / "local.sgp")
        row(engine, wall, float(np.abs(ends - expected).max()), same)


@contextmanager
def ray_nodes(n: int) -> Iterator[Nodes]:
    """A head without cores, and ``n`` nodes with one each."""
    from ray.cluster_utils import Cluster

    cluster = Cluster(initialize_head=True, head_node_args={"num_cpus": 0})
    try:
        nodes = [cluster.add_node(num_cpus=1) for _ in range(n)]
        cluster.wait_for_nodes()
        yield cluster.address, lambda: cluster.remove_node(nodes[0], allow_graceful=False)
    finally:
        cluster.shutdown()


@contextmanager
def dask_workers(n: int) -> Iterator[Nodes]:
    """As many processes with one thread each."""
    from distributed import Client, LocalCluster

    quiet = {"dashboard_address": None, "silence_logs": 50}
    with LocalCluster(n_workers=n, threads_per_worker=1, **quiet) as cluster:
        with Client(cluster) as client:
            process = next(iter(client.run(os.getpid).values()))
        yield cluster.scheduler_address, lambda: os.kill(process, signal.SIGKILL)


CLUSTERS: dict[str, Callable[[int], AbstractContextManager[Nodes]]] = {
    "ray": ray_nodes,
    "dask": dask_workers,
}


def nodes(folder: Path, n: int, memory: float, inducing: int, workers: int) -> None:
    """Clusters that lose a node once a part of the last pass is saved, beside one process."""
    data = folder / f"{n}.parquet"
    write(n, data)
    whole = folder / "whole.sgp"
    wall, _, _ = measured(command(data, whole, memory, inducing, "--workers", "1"))
    print(f"{n} rows, one process: {wall:.0f} s")
    header("cluster", "nodes", "seconds", "node lost after", "same bits")
    for engine, cluster in CLUSTERS.items():
        out = folder / f"{engine}.sgp"
        part, lost = folder / f"{engine}.sgp.work" / "sums-part.sgp", []
        with cluster(workers) as (address, lose):
            start = time.perf_counter()
            more = ["--engine", engine, "--address", address]
            process = subprocess.Popen(command(data, out, memory, inducing, *more))
            while process.poll() is None:
                if not lost and part.exists():
                    lose()
                    lost.append(time.perf_counter() - start)
                time.sleep(0.1)
            wall = time.perf_counter() - start
        if process.returncode or not lost:
            raise SystemExit(f"{engine}: status {process.returncode}, nodes lost: {len(lost)}")
        row(engine, workers, wall, lost[0], digest(out) == digest(whole))


def _frame(X: np.ndarray) -> object:
    import pyarrow as pa

    return pa.table({f"x{j}": X[:, j] for j in range(X.shape[1])})


def rates(folder: Path, inducing: list[int]) -> None:
    """Rows per second of each kind of pass on one core."""
    path = folder / "rates.parquet"
    write(UNIT_ROWS, path)
    (unit,) = units_of([path])
    X, y = simulated(2000, seed=0)
    d = X.shape[1]
    names = tuple(f"x{j}" for j in range(d))
    table = Table(names, "y", None, Draw(0, 0.1, 0.1))
    with Clock() as clock:
        Survey(table, MOST_IN_BATCH)(unit)
    print(f"first pass: {unit.rows / clock.cpu:,.0f} rows per second of a core")
    header("M", "sums, rows/s", "gradient, rows/s", "MB sent per unit", "MB to a worker per pass")
    rows_X = torch.from_numpy(X)
    theta = torch.tensor([*[0.8] * d, 1.0, 0.02], dtype=torch.float64)
    units = Affine.standardising(rows_X), Affine.standardising(torch.from_numpy(y))
    encoding = TableEncoding.learn(_frame(X))
    for m in inducing:
        training = Training(table, encoding, Stationary("rbf", d), *units, MOST_IN_BATCH)
        visit = Visit(training, theta, units[0].forward(rows_X[:m]))
        with Clock() as first:
            sums = merged(None, visit(unit))
        pull = Pull(visit, BoundGradient.of(visit.factors(sums)))
        with Clock() as second:
            pull(unit)
        sent = sum(value.numel() for value in sums.values()) * 8e-6
        row(m, unit.rows / first.cpu, unit.rows / second.cpu, sent, 4 * m * m * 8e-6)


def main(
    part: str = "growth",
    rows: str = "10000,100000,1000000",
    memory: float = 2.0,
    inducing: str = "300",
    steps: int = 1,
    workers: int = 2,
    folder: str | None = None,
) -> None:
    """Run one part; files stay in ``folder``, if one is named."""
    check_choice(part, "part", PARTS)
    sizes, ms = numbers(rows), numbers(inducing)
    with tempfile.TemporaryDirectory() as temporary:
        place = Path(folder or temporary)
        place.mkdir(exist_ok=True)
        if part == "growth":
            growth(place, sizes, memory, ms[0])
        elif part == "kills":
            kills(place, sizes[-1], memory, ms[0], steps)
        elif part == "engines":
            engines(place, sizes[-1], memory, ms[0], workers)
        elif part == "nodes":
            nodes(place, sizes[-1], memory, ms[0], workers)
        else:
            rates(place, ms)
