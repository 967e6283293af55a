"""How long answers take: intervals, means alone, the same rows again, the first in a new process.

The rows of ``choosing``.  Processor seconds of one core, each the median of a few calls with rows
that were not asked before; means and the same rows again are shares of an interval's time.  A new
process loads the compact model and answers one row; torch was loaded before.
"""

import subprocess
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from sharpgp import SharpGPRegressor, metrics
from sharpgp_benchmarks.evidence.choosing import draw
from sharpgp_benchmarks.evidence.common import Clock
from sharpgp_benchmarks.evidence.run import header, measured, row

COLUMNS = (
    *("rows", "pool", "fit, s", "intervals a second", "means", "again", "file, MB"),
    *("compact, MB", "load, s", "CRPS", "covers 95"),
)
#: What is fitted, by name.
POOLS: dict[str, dict[str, Any]] = {
    "default": {},
    "without the network": {"base": ["rbf", "laplace+matern32", "additive", "extra_trees"]},
    "low": {"effort": "low"},
}
_NEW_PROCESS = """
import sys, time, torch
from numpy import zeros
before = time.process_time()
from sharpgp import SharpGPRegressor
SharpGPRegressor.load(sys.argv[1]).predict_interval(zeros((1, 8)) + 0.5)
print(time.process_time() - before)
"""


def case(n: int, pool: str, n_test: int, calls: int) -> list[float]:
    """The columns after rows and pool."""
    rng = np.random.default_rng(n)
    (X, y), (X_test, y_test) = draw(n, rng), draw(n_test, rng)
    with Clock() as fitting:
        model = SharpGPRegressor(**POOLS[pool], random_state=0, verbose=-1).fit(X, y)
    law = model.predict_dist(X_test)
    covered = metrics.interval_coverage(y_test, *law.interval(0.95).T)

    def median(ask: Callable[[np.ndarray], object], *, again: bool = False) -> float:
        found = []
        for _ in range(calls):
            rows = rng.uniform(0, 1, X_test.shape)
            if again:
                model.predict_interval(rows)
            with Clock() as clock:
                ask(rows)
            found.append(clock.cpu)
        return float(np.median(found))

    ends = median(model.predict_interval)
    shares = median(model.predict) / ends, median(model.predict_interval, again=True) / ends
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "model.sgp"
        sizes = []
        for one in (model, model.compact()):
            one.save(path)
            sizes.append(path.stat().st_size / 1e6)
        command = [sys.executable, "-c", _NEW_PROCESS, str(path)]
        done = subprocess.run(command, capture_output=True, text=True, check=True)
    crps = float(np.mean(law.crps(y_test)))
    return [fitting.cpu, n_test / ends, *shares, *sizes, float(done.stdout), crps, covered]


def main(
    rows: str = "300,1000,10000",
    pools: str = "default,without the network,low",
    test_rows: int = 1000,
    calls: int = 5,
) -> None:
    """Print the table."""
    header(*COLUMNS)
    for n in map(int, rows.split(",")):
        for pool in pools.split(","):
            (found,) = measured(case, [(n, pool, test_rows, calls)])
            formats = (".1f", ".0f", ".2f", ".3f", ".2f", ".2f", ".2f", ".4f", ".3f")
            row(n, pool, *map(format, found, formats))
