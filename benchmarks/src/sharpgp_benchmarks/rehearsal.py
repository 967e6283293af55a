"""A stand-in experiment that waits and draws numbers: to try a cluster, and to time the runner."""

import os
import time
from collections.abc import Mapping
from typing import Any

import numpy as np

from sharpgp.exceptions import SharpGPError
from sharpgp_benchmarks.task import Outcome, Task


def run_task(task: Task, context: Mapping[str, Any]) -> Outcome:
    """Wait for ``settings["seconds"]``, then draw metrics that depend on method and seed alone.

    The method ``"fail"`` raises an error and ``"die"`` ends its process, to see what happens then.

    Examples
    --------
    >>> sorted(run_task(Task("rehearsal", "none", "draw", 0), {}).metrics)
    ['coverage_95', 'width_95']
    """
    time.sleep(task.settings.get("seconds", 0.0))
    if task.method == "fail":
        raise SharpGPError("this task fails on purpose")
    if task.method == "die":
        os._exit(1)
    rng = np.random.default_rng([task.seed, *task.method.encode()])
    return Outcome({"width_95": rng.uniform(1.0, 2.0), "coverage_95": rng.uniform(0.9, 1.0)})
