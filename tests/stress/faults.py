"""Processes that are killed, interrupted or left without disk space, at random moments."""

import contextlib
import os
import random
import re
import resource
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from importlib.util import find_spec
from pathlib import Path

import numpy as np

from sharpgp_benchmarks import formats
from sharpgp_benchmarks.run import run
from sharpgp_benchmarks.task import Task

_RUN = """
import sys
from sharpgp_benchmarks.run import run
from sharpgp_benchmarks.task import Task
if __name__ == "__main__":
    pairs = [(m, s) for s in range({count}) for m in ("draw", "other", "fail")]
    tasks = [Task("rehearsal", "none", m, s, {{"seconds": 0.05}}) for m, s in pairs]
    run(tasks, sys.argv[1], workers=2)
"""


def kills(count: int, seed: int, tasks: int = 120) -> tuple[int, list[str]]:
    """Kill one run ``count`` times at random moments, each time resuming it.

    Half of the kills take the whole run, the others one of its processes.  Returns how many kills
    hit a living process, and what is wrong with the outcome.
    """
    rng = random.Random(seed)
    pairs = [(m, s) for s in range(tasks) for m in ("draw", "other", "fail")]
    todo = [Task("rehearsal", "none", m, s, {"seconds": 0.05}) for m, s in pairs]
    with tempfile.TemporaryDirectory() as folder:
        whole, cut = Path(folder) / "whole", Path(folder) / "cut"
        run(todo, whole, workers=2)
        script = Path(folder) / "script.py"
        script.write_text(_RUN.format(count=tasks))
        hit = 0
        while hit < count:
            process = subprocess.Popen(
                [sys.executable, script, cut], start_new_session=True, stderr=subprocess.DEVNULL
            )
            # Starting takes seconds and no kill there tells much: wait for a result or two.
            goal = _results(cut) + rng.randint(0, max(1, len(todo) // (2 * count)))
            _wait(lambda g=goal, p=process: _results(cut) > g or p.poll() is not None)
            time.sleep(rng.uniform(0.0, 0.2))
            if process.poll() is not None:
                break  # all is done: fewer kills than asked for
            hit += 1
            one = rng.random() < 0.5 and _children(process.pid)
            if one:
                _kill(rng.choice(one))
                time.sleep(rng.uniform(0.0, 1.0))
            os.killpg(process.pid, signal.SIGKILL)
            process.wait()
        run(todo, cut, workers=2)
        problems = [] if hit >= count else [f"only {hit} of {count} kills hit a running process"]
        for form in formats.FORMATS:
            if formats.render(cut, form) != formats.render(whole, form):
                problems.append(f"the {form} table differs from that of an uninterrupted run")
        if {f.name for f in cut.glob("*.json")} != {f.name for f in whole.glob("*.json")}:
            problems.append("the result files are not those of an uninterrupted run")
        left = [f.name for f in cut.glob(".*.running")]
        if left:
            problems.append(f"notes of dead processes are left: {left}")
        return hit, problems


def interruptions(count: int, seed: int) -> Iterator[tuple[str, str | None]]:
    """Ctrl-C after a random time, for each of the commands that work for long."""
    rng = random.Random(seed)
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        generator = np.random.default_rng(0)
        X = generator.uniform(-2, 2, (300, 3))
        table = np.column_stack([X, np.sin(X[:, 0]) + 0.1 * generator.normal(size=300)])
        data, model = folder / "data.csv", folder / "model.sgp"
        np.savetxt(data, table, delimiter=",", header="a,b,c,y", comments="")
        commands = {
            "fit": [
                "fit",
                str(data),
                "--target",
                "y",
                "--out",
                str(model),
                "--calibration",
                "exact",
            ],
            "bench": [
                *("bench", "regression", "--datasets", "diabetes", "--methods", "vanilla,marx22"),
                *("--repeats", "20", "--workers", "2", "--out", str(folder / "out")),
            ],
            "demo": ["demo", "--out", str(folder / "demo")],
        }
        if find_spec("distributed") is not None:
            commands["bench, dask"] = [*commands["bench"], "--engine", "dask"]
        _sharpgp(commands["fit"])  # a file that every interrupted fit has to leave as it is
        old = model.read_bytes()
        for number in range(count):
            command = list(commands)[number % len(commands)]
            shutil.rmtree(folder / "out", ignore_errors=True)  # so that there is work to interrupt
            process = subprocess.Popen(
                [sys.executable, "-m", "sharpgp", *commands[command]],
                start_new_session=True,
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                text=True,
            )
            # An interruption while libraries load is theirs to answer.
            after = rng.uniform(5.0, 15.0)
            time.sleep(after)
            os.killpg(process.pid, signal.SIGINT)
            try:
                _, stderr = process.communicate(timeout=60)
            except subprocess.TimeoutExpired:
                os.killpg(process.pid, signal.SIGKILL)
                yield command, f"{command}: not ended 60 s after ctrl-C at {after:.2f} s"
                continue
            yield command, _unclean(command, after, process.returncode, stderr, folder, old)


def _unclean(
    command: str, after: float, status: int, stderr: str, folder: Path, old: bytes
) -> str | None:
    where = f"{command}, ctrl-C at {after:.2f} s"
    if status not in (0, 130):
        return f"{where}: exit status {status}: {stderr.strip()[-300:]}"
    if "Traceback" in stderr or (status == 130 and len(stderr.strip().splitlines()) > 3):
        return f"{where}: not a short message: {stderr.strip()[-300:]}"
    # The same data and seed give the same model, where the fit was through before the signal.
    if command == "fit" and _content((folder / "model.sgp").read_bytes()) != _content(old):
        return f"{where}: the model changed"
    left = [str(f) for f in folder.glob(".*.tmp")]
    return f"{where}: left behind {left}" if left else None


def _content(model: bytes) -> tuple[int, list[bytes]]:
    """Length and checksum of a model's file, whose header comes in any order."""
    return len(model), re.findall(rb'"checksum":"([0-9a-f]{64})"', model)


def full_disk() -> Iterator[tuple[str, str | None]]:
    """Hardly a byte can be written: an error of one line, and old files stay as they are."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        generator = np.random.default_rng(0)
        X = generator.uniform(-2, 2, (60, 2))
        data, model, out = folder / "data.csv", folder / "model.sgp", folder / "out"
        table = np.column_stack([X, np.sin(X[:, 0])])
        np.savetxt(data, table, delimiter=",", header="a,b,y", comments="")
        fit = ["fit", str(data), "--target", "y", "--out", str(model), "--calibration", "vanilla"]
        predict = ["predict", str(model), str(data), "--out", str(folder / "pred.csv")]
        bench = [
            *("bench", "regression", "--datasets", "diabetes", "--methods", "vanilla"),
            *("--repeats", "3", "--workers", "1", "--out", str(out)),
        ]
        for command in (fit, predict, bench):
            _sharpgp(command)
        before = {f: f.read_bytes() for f in folder.rglob("*") if f.is_file()}
        for command in (fit, predict, [*bench[:-5], "4", *bench[-4:]]):
            done = _sharpgp(command, limit=200)
            problem = None
            lines = done.stderr.strip().splitlines()
            if done.returncode != 2 or "Traceback" in done.stderr or not lines[-1:]:
                problem = f"{command[0]}: status {done.returncode}: {done.stderr.strip()[-300:]}"
            after = {f: f.read_bytes() for f in before}
            if after != before:
                problem = f"{command[0]}: a file changed on a full disk"
            yield command[0], problem


def _sharpgp(arguments: list[str], limit: int | None = None) -> subprocess.CompletedProcess[str]:
    def restrict() -> None:
        signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
        resource.setrlimit(resource.RLIMIT_FSIZE, (limit or 0, limit or 0))

    return subprocess.run(
        [sys.executable, "-m", "sharpgp", *arguments],
        capture_output=True,
        text=True,
        timeout=300,
        preexec_fn=None if limit is None else restrict,
    )


def _results(folder: Path) -> int:
    return len(list(folder.glob("*.json")))


def _wait(condition: Callable[[], bool], seconds: float = 120.0) -> None:
    end = time.monotonic() + seconds
    while not condition() and time.monotonic() < end:
        time.sleep(0.01)


def _children(pid: int) -> list[int]:
    """Processes of the same session, save the first: the workers."""
    found = []
    for entry in Path("/proc").glob("[0-9]*"):
        try:
            fields = (entry / "stat").read_text().rpartition(")")[2].split()
        except OSError:
            continue
        if int(fields[3]) == pid and int(entry.name) != pid:
            found.append(int(entry.name))
    return found


def _kill(pid: int) -> None:
    with contextlib.suppress(ProcessLookupError):
        os.kill(pid, signal.SIGKILL)
