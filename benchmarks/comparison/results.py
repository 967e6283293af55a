"""Measuring, and the file of results that a run goes on from."""

import csv
import io
import multiprocessing
import os
import sys
import time
import warnings
from argparse import Namespace
from collections.abc import Callable
from functools import partial
from pathlib import Path

import numpy as np
import pandas as pd
import torch

from comparison.methods import METHODS
from comparison.protocol import COVERAGE, Task, make_task
from sharpgp.datasets import Dataset

KEY = ["dataset", "most", "seed", "method"]
VALUES = ["width", "coverage", "score", "crps", "seconds"]
COLUMNS = [*KEY, "band", "n_train", "n_cal", "n_test", *VALUES, "error"]

#: Loads a set by its name; the second argument is the user's folder of data, if there is one.
Load = Callable[[str, str | None], Dataset]


def measure(method: str, task: Task, unit: float) -> list[dict[str, object]]:
    """One row per band: the metrics in units of the target, or the error that was raised."""
    y = task.parts.y_test
    sizes = {"n_train": len(task.parts.y_train), "n_cal": len(task.parts.y_cal), "n_test": len(y)}
    task.charged, start, error = 0.0, time.perf_counter(), ""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            prediction = METHODS[method](task)
    except Exception as raised:
        error = " ".join(f"{type(raised).__name__}: {raised}".split())[:200]
    common = sizes | {"seconds": time.perf_counter() - start + task.charged, "error": error}
    if error:
        return [common]
    rows = []
    for band, ends in prediction.bands.items():
        lower, upper = ends.T
        miss = np.maximum(lower - y, 0) + np.maximum(y - upper, 0)
        score = float(np.mean(upper - lower + 2 / (1 - COVERAGE) * miss))
        width, coverage = float(np.mean(upper - lower)), float(np.mean(miss == 0))
        values = (width / unit, coverage, score / unit, prediction.crps / unit)
        rows.append({"band": band} | common | dict(zip(VALUES, values, strict=False)))
    return rows


def append(path: Path, rows: list[dict[str, object]]) -> None:
    """Append all rows in one write, the header first where the file is new."""
    text = io.StringIO()
    writer = csv.DictWriter(text, COLUMNS, lineterminator="\n")
    if not path.exists() or path.stat().st_size == 0:
        writer.writeheader()
    writer.writerows(rows)
    file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644)
    try:
        os.write(file, text.getvalue().encode())
    finally:
        os.close(file)


def read(path: Path) -> pd.DataFrame:
    """All rows of the file; a line that was cut off in the middle is removed from it."""
    content = path.read_bytes() if path.exists() else b""
    end = content.rfind(b"\n") + 1
    if end < len(content):
        os.truncate(path, end)
    if end == 0:
        return pd.DataFrame(columns=COLUMNS)
    return pd.read_csv(path, dtype={"error": str, "band": str})


def run(arguments: Namespace, load: Load) -> None:
    """Compute the rows that the file does not hold, ``--jobs`` splits at a time."""
    done = set(read(arguments.out)[KEY].itertuples(index=False, name=None))
    splits = [(name, seed) for seed in range(arguments.seeds) for name in arguments.datasets]
    one = partial(run_split, arguments=arguments, load=load, done=done)
    if arguments.jobs == 1:
        for split in splits:
            one(split)
        return
    with multiprocessing.get_context("spawn").Pool(arguments.jobs) as pool:
        for _ in pool.imap_unordered(one, splits):
            pass


def run_split(split: tuple[str, int], arguments: Namespace, load: Load, done: set[tuple]) -> None:
    """All methods that are not done yet on one split of one data set."""
    torch.set_num_threads(int(os.environ.get("OMP_NUM_THREADS", "1")))
    name, seed = split
    data = load(name, arguments.data_home)
    task = make_task(data, seed, arguments.most, arguments.device)
    for method in arguments.methods:
        key = (name, arguments.most, seed, method)
        if key in done:
            continue
        rows = measure(method, task, float(data.y.std()))
        append(arguments.out, [dict(zip(KEY, key, strict=True)) | row for row in rows])
        seconds, error = rows[0]["seconds"], rows[0]["error"]
        print(f"{name} {seed} {method} {seconds:.1f} s {error}", file=sys.stderr)
