"""What the runner adds to tasks of 100 ms: dispatch, result files, progress.

A thousand tasks that only sleep are run by local processes.  Overhead is the time that workers
spent on anything else, as a share of the tasks' nominal time, and of the time in them as recorded
with the results (a sleep overshoots).  The start of the workers (imports, once per run) is measured
apart, by a short run on the same pool before.  Other work on the machine adds to the overhead: the
least of a few attempts counts.
"""

import os
import tempfile

import joblib

from sharpgp_benchmarks.evidence.common import Clock
from sharpgp_benchmarks.run import run
from sharpgp_benchmarks.store import Store
from sharpgp_benchmarks.task import Task


def timed(count: int, seconds: float, workers: int) -> tuple[float, float]:
    """Seconds of a run into an empty folder, and of its tasks together."""
    settings = {"seconds": seconds}
    tasks = [Task("rehearsal", "none", "draw", seed, settings) for seed in range(count)]
    with tempfile.TemporaryDirectory() as folder:
        with Clock() as clock:
            run(tasks, folder, workers=workers)
        return clock.wall, sum(result.seconds for result in Store(folder).results())


def main(
    tasks: int = 1000,
    seconds: float = 0.1,
    workers: int | None = None,
    attempts: int = 3,
    limit: float = 0.02,
) -> None:
    """Print the overhead; status 1 if it is above the limit."""
    workers = workers or joblib.cpu_count()
    started, _ = timed(2 * workers, 0.5, workers)
    print(
        f"{tasks} tasks of {1e3 * seconds:.0f} ms on {workers} workers, "
        f"which took {started - 1.0:.1f} s to start (once per run)"
    )
    for _ in range(attempts):
        wall, recorded = timed(tasks, seconds, workers)
        spent = workers * wall
        overhead = spent / (tasks * seconds) - 1.0
        print(
            f"  overhead {100 * overhead:.2f} % of nominal, "
            f"{100 * (spent / recorded - 1.0):.2f} % of recorded task time; "
            f"load {os.getloadavg()[0]:.1f}",
            flush=True,
        )
        if overhead <= limit:
            return
    raise SystemExit(f"overhead is above {100 * limit:g} %")
