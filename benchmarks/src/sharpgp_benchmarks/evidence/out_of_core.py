"""Fits to samples of files: the pass by rows, interruptions, and what more rows bring.

``growth``: processor seconds and peak memory of the pass by the number of rows.  ``kills``: a fit
killed twice in the pass and run again; the model's file has to be the same, byte for byte.
``scores``: CRPS and coverage on new rows by the rows of the sample, on generated problems.
"""

import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import numpy as np

from sharpgp._validation import check_choice
from sharpgp.tabular.sources import UNIT_ROWS
from sharpgp_benchmarks.evidence.common import GENERATED, Clock, numbers
from sharpgp_benchmarks.evidence.run import header, row

PARTS = ("growth", "kills", "scores")
_NEW = 5000
_PASS = """
import resource, sys, time
from sharpgp import SharpGPRegressor
from sharpgp.tabular import fit_files, models
models.fit_rows = lambda rows, model: models.SavedModel(model)
start = time.process_time()
fit_files(sys.argv[1], "y", SharpGPRegressor(), memory=float(sys.argv[2]), rows=int(sys.argv[3]))
peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20
print(time.process_time() - start, peak)
"""


def write(n: int, path: Path, problem: str = "simulated") -> None:
    """Generated rows in a Parquet file, unless it is there."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    if path.exists():
        return
    writer = None
    for k, start in enumerate(range(0, n, UNIT_ROWS)):
        X, y = GENERATED[problem](min(UNIT_ROWS, n - start), k)
        table = pa.table({**{f"x{j}": X[:, j] for j in range(X.shape[1])}, "y": y})
        writer = writer or pq.ParquetWriter(str(path), table.schema)
        writer.write_table(table)
    if writer is not None:
        writer.close()


def growth(folder: Path, rows: list[int], memory: float, most: int) -> None:
    """Seconds and memory of the pass alone by the number of rows."""
    header("rows", "processor seconds", "peak GiB")
    for n in rows:
        data = folder / f"{n}.parquet"
        write(n, data)
        asked = [sys.executable, "-c", _PASS, str(data), str(memory), str(most)]
        found = subprocess.run(asked, check=True, capture_output=True, text=True).stdout
        row(n, *map(float, found.split()))


def kills(folder: Path, n: int, memory: float, most: int) -> None:
    """Killed twice, and run to the end."""
    data, whole, again = folder / f"{n}.parquet", folder / "whole.sgp", folder / "again.sgp"
    write(n, data)

    def command(out: Path) -> list[str]:
        fit = [sys.executable, "-m", "sharpgp", "fit", str(data), "--target", "y", "--quiet"]
        more = ["--memory", str(memory), "--rows", str(most), "--effort", "low"]
        return [*fit, *more, "--out", str(out)]

    start = time.perf_counter()
    subprocess.run(command(whole), check=True, stdout=subprocess.DEVNULL)
    wall = time.perf_counter() - start
    for share in (0.3, 0.5):
        process = subprocess.Popen(command(again), stdout=subprocess.DEVNULL)
        try:
            process.wait(timeout=share * wall)
            print("finished before it could be killed")
        except subprocess.TimeoutExpired:
            process.send_signal(signal.SIGKILL)
            process.wait()
            kept = list(again.with_name("again.sgp.work").glob("pass-*"))
            print(f"killed after {share * wall:.0f} s; kept: {len(kept)} file")
    subprocess.run(command(again), check=True, stdout=subprocess.DEVNULL)
    if whole.read_bytes() != again.read_bytes():
        raise SystemExit("models differ")
    print("the models are the same, byte for byte")


def scores(folder: Path, n: int, memory: float, samples: list[int], problems: list[str]) -> None:
    """What the default predicts for new rows, by the rows of its sample."""
    import pyarrow as pa

    from sharpgp import SharpGPRegressor, metrics
    from sharpgp.tabular import fit_files

    names = ("problem", "rows of the sample", "processor seconds", "CRPS", "its standard error")
    header(*names, "coverage 90 %", "95 %")
    for problem in problems:
        data = folder / f"{problem.replace(' ', '_')}-{n}.parquet"
        write(n, data, problem)
        X, y = GENERATED[problem](_NEW, 10**6)
        new = pa.table({f"x{j}": X[:, j] for j in range(X.shape[1])})
        for most in samples:
            with Clock() as clock:
                model = SharpGPRegressor(random_state=0)
                fit_files(data, "y", model, memory=memory, rows=most)
            law = model.predict_dist(new)
            crps = law.crps(y)
            ends = [law.interval(coverage) for coverage in (0.9, 0.95)]
            inside = [metrics.interval_coverage(y, *pair.T) for pair in ends]
            error = float(crps.std() / np.sqrt(len(y)))
            row(problem, most, clock.cpu, float(crps.mean()), error, *inside)


def main(
    part: str = "growth",
    rows: str = "100000,1000000",
    samples: str = "10000,100000",
    memory: float = 2.0,
    folder: str | None = None,
    problems: str = "simulated,smooth 8d,robot arm",
) -> None:
    """Run one part; files stay in ``folder``, if one is named."""
    check_choice(part, "part", PARTS)
    sizes, most = numbers(rows), numbers(samples)
    with tempfile.TemporaryDirectory() as temporary:
        place = Path(folder or temporary)
        place.mkdir(exist_ok=True)
        if part == "growth":
            growth(place, sizes, memory, most[-1])
        elif part == "kills":
            kills(place, sizes[-1], memory, most[0])
        else:
            scores(place, sizes[-1], memory, most, problems.split(","))
