"""Commands that run beside the tests: with limits, and no waiting for one that has ended."""

import os
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import sharpgp

#: Seconds that a command may take to start, on a busy machine, or to end after a signal.
PATIENCE = 300.0


def environment(**more: str) -> dict[str, str]:
    """Variables with which another process imports the package that is being tested."""
    source = str(Path(sharpgp.__file__).parents[1])
    return {**os.environ, "OMP_NUM_THREADS": "1", "PYTHONPATH": source, **more}


def python(
    *arguments: object, patience: float = PATIENCE, **settings: Any
) -> subprocess.CompletedProcess[str]:
    """What ``python -W ignore ...`` gives, its output as text."""
    settings = {"capture_output": True, "text": True, "check": False, **settings}
    command = [sys.executable, "-W", "ignore", *map(str, arguments)]
    return subprocess.run(command, env=environment(), timeout=patience, **settings)


def wait_for(
    condition: Callable[[], bool], process: subprocess.Popen[Any], patience: float = PATIENCE
) -> None:
    """Wait until a running process has made the condition true; fail if it has ended before."""
    end = time.monotonic() + patience
    while not condition():
        if process.poll() is not None and not condition():
            said = process.stderr.read() if process.stderr else ""
            raise AssertionError(f"ended with status {process.returncode}: {said}")
        if time.monotonic() > end:
            process.kill()
            raise AssertionError(f"waited for more than {patience:g} s")
        time.sleep(0.01)
