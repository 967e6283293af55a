"""What the runner adds to tasks of 100 ms: dispatch, result files, progress.

Run with ``python benchmarks/runner_overhead.py``.  A thousand tasks that only sleep are run by
local processes.  Overhead is the time that workers spent on anything else, as a share of the
tasks' nominal time, and of the time in them as recorded with the results (a sleep overshoots).
The start of the workers (imports, once per run) is measured apart, by a short run on the same
pool before.  Other work on the machine adds to the overhead: the least of a few attempts counts.
"""

import argparse
import os
import tempfile
import time

import joblib

from sharpgp.experiments import Store, Task, run


def timed(tasks: list[Task], workers: int) -> tuple[float, float]:
    """Seconds of a run into an empty folder, and of its tasks together."""
    with tempfile.TemporaryDirectory() as folder:
        start = time.perf_counter()
        summary = run(tasks, folder, workers=workers)
        wall = time.perf_counter() - start
        assert summary.failed == 0
        return wall, sum(result.seconds for result in Store(folder).results())


def make_tasks(count: int, seconds: float) -> list[Task]:
    return [Task("rehearsal", "none", "draw", seed, {"seconds": seconds}) for seed in range(count)]


def main() -> None:
    """Print the overhead; status 1 if it is above the limit."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--tasks", type=int, default=1000)
    parser.add_argument("--seconds", type=float, default=0.1)
    parser.add_argument("--workers", type=int, default=joblib.cpu_count())
    parser.add_argument("--attempts", type=int, default=3)
    parser.add_argument("--limit", type=float, default=0.02)
    given = parser.parse_args()
    started, _ = timed(make_tasks(2 * given.workers, 0.5), given.workers)
    print(
        f"{given.tasks} tasks of {1e3 * given.seconds:.0f} ms on {given.workers} workers, ", end=""
    )
    print(f"which took {started - 1.0:.1f} s to start (once per run)")
    nominal, overheads = given.tasks * given.seconds, []
    for _ in range(given.attempts):
        wall, recorded = timed(make_tasks(given.tasks, given.seconds), given.workers)
        spent = given.workers * wall
        overheads.append(spent / nominal - 1.0)
        print(
            f"  overhead {100 * overheads[-1]:.2f} % of nominal, "
            f"{100 * (spent / recorded - 1.0):.2f} % of recorded task time; "
            f"load {os.getloadavg()[0]:.1f}",
            flush=True,
        )
        if overheads[-1] <= given.limit:
            return
    raise SystemExit(f"overhead is above {100 * given.limit:g} %")


if __name__ == "__main__":
    main()
