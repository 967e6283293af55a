"""Time and memory of ``sharpgp predict`` on a long CSV file.

Fits a sparse GP on generated data with 8 features by ``sharpgp fit``, then predicts a CSV file at
one coverage by ``sharpgp predict`` in a process of its own; prints its wall and processor time and
its peak memory, with those of predicting ten rows for comparison: the difference is what the rows
cost.
"""

import resource
import subprocess
import sys
import tempfile
from pathlib import Path

import numpy as np

from sharpgp_benchmarks.evidence.common import Clock

FEATURES = 8


def write_table(path: Path, rows: int, seed: int, target: bool) -> None:
    """Write rows of a known function."""
    from pyarrow import csv
    from pyarrow import table as arrow

    rng = np.random.default_rng(seed)
    X = rng.uniform(-2, 2, (rows, FEATURES))
    columns = {f"x{j}": X[:, j] for j in range(FEATURES)}
    if target:
        columns["y"] = np.sin(2 * X[:, 0]) + 0.5 * X[:, 1] * X[:, 2] + 0.1 * rng.normal(size=rows)
    csv.write_csv(arrow(columns), path)


def described(*arguments: object) -> str:
    """Wall time, processor time and peak memory of a command, in words."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    code = (
        "import resource, sys\nfrom sharpgp.cli import app\n"
        "try:\n    app(prog_name='sharpgp')\nfinally:\n"
        "    print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024, file=sys.stderr)"
    )
    with Clock() as clock:
        done = subprocess.run(
            [sys.executable, "-W", "ignore", "-c", code, *map(str, arguments), "--quiet"],
            check=True,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            text=True,
        )
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    cpu = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    peak = float(done.stderr.split()[-1])
    return f"{clock.wall:.1f} s wall, {cpu:.1f} s of processor, peak {peak:.0f} MiB"


def main(rows: int = 1_000_000, inducing: int = 300, train: int = 20_000) -> None:
    """Print a line for each command."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        write_table(folder / "train.csv", train, 0, True)
        write_table(folder / "few.csv", 10, 1, False)
        write_table(folder / "new.csv", rows, 2, False)
        size = (folder / "new.csv").stat().st_size / 2**20
        model = folder / "model.sgp"
        fit = ["fit", folder / "train.csv", "--target", "y", "--out", model]
        fit += ["--approximation", f"sparse:{inducing}", "--calibration", "kuleshov18"]
        print(f"fit: {described(*fit)}", flush=True)
        for count, source in ((10, "few.csv"), (rows, "new.csv")):
            found = described(
                *("predict", model, folder / source, "--coverage", 0.95),
                *("--out", folder / "pred.parquet"),
            )
            print(f"predict {count:,} rows: {found}", flush=True)
        print(f"the CSV file has {size:.0f} MiB")
