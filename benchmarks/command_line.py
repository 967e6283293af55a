"""Time and memory of ``sharpgp predict`` on a long CSV file.

    python benchmarks/command_line.py [--rows 1000000] [--inducing 300] [--train 20000]

Fits a sparse GP on generated data with 8 features by ``sharpgp fit``, then predicts a CSV file at
one coverage by ``sharpgp predict`` in a process of its own; prints its wall and processor time and
its peak memory, with those of predicting ten rows for comparison: the difference is what the rows
cost.
"""

import argparse
import os
import resource
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import numpy as np

FEATURES = 8


def table(path: Path, rows: int, seed: int, target: bool) -> None:
    from pyarrow import csv
    from pyarrow import table as arrow

    rng = np.random.default_rng(seed)
    X = rng.uniform(-2, 2, (rows, FEATURES))
    columns = {f"x{j}": X[:, j] for j in range(FEATURES)}
    if target:
        columns["y"] = np.sin(2 * X[:, 0]) + 0.5 * X[:, 1] * X[:, 2] + 0.1 * rng.normal(size=rows)
    csv.write_csv(arrow(columns), path)


def command(*arguments: object) -> tuple[float, float, float]:
    """Wall time, processor time and peak memory (MiB) of a command."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    start = time.perf_counter()
    code = (
        "import resource, sys\nfrom sharpgp.cli import app\n"
        "try:\n    app(prog_name='sharpgp')\nfinally:\n"
        "    print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024, file=sys.stderr)"
    )
    done = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", code, *map(str, arguments), "--quiet"],
        check=True,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
        env=os.environ,
    )
    wall = time.perf_counter() - start
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    cpu = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    return wall, cpu, float(done.stderr.split()[-1])


def described(found: tuple[float, float, float]) -> str:
    wall, cpu, peak = found
    return f"{wall:.1f} s wall, {cpu:.1f} s of processor, peak {peak:.0f} MiB"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rows", type=int, default=1_000_000)
    parser.add_argument("--inducing", type=int, default=300)
    parser.add_argument("--train", type=int, default=20_000)
    args = parser.parse_args()
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        table(folder / "train.csv", args.train, 0, True)
        table(folder / "few.csv", 10, 1, False)
        table(folder / "new.csv", args.rows, 2, False)
        size = (folder / "new.csv").stat().st_size / 2**20
        model = folder / "model.sgp"
        fit = ["fit", folder / "train.csv", "--target", "y", "--out", model]
        fit += ["--inducing", args.inducing, "--calibration", "kuleshov18"]
        print(f"fit: {described(command(*fit))}", flush=True)
        for rows, source in ((10, "few.csv"), (args.rows, "new.csv")):
            found = command(
                *("predict", model, folder / source, "--coverage", 0.95),
                *("--out", folder / "pred.parquet"),
            )
            print(f"predict {rows:,} rows: {described(found)}", flush=True)
        print(f"the CSV file has {size:.0f} MiB")


if __name__ == "__main__":
    main()
