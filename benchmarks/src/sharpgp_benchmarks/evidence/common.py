"""What the studies share: data, splits, clocks and judgements."""

import math
import os
import time
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager

import numpy as np
import torch
from torch import Tensor

from sharpgp import metrics
from sharpgp._validation import check_choice
from sharpgp_benchmarks import extra_sets
from sharpgp_benchmarks.datasets import Dataset

#: Features and target of some rows.
Part = tuple[Tensor, Tensor]


@contextmanager
def without_warnings() -> Iterator[None]:
    """One thread unless ``OMP_NUM_THREADS`` says otherwise, and no warnings."""
    before = torch.get_num_threads()
    torch.set_num_threads(int(os.environ.get("OMP_NUM_THREADS", "1")))
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            yield
    finally:
        torch.set_num_threads(before)


def numbers(text: str) -> list[int]:
    """Comma-separated whole numbers.

    Examples
    --------
    >>> numbers("500,1000")
    [500, 1000]
    """
    return [int(part) for part in text.split(",")]


def sets(names: str, data_home: str | None) -> list[Dataset]:
    """Sets by comma-separated names, after a look whether all of them can be had."""
    chosen = names.split(",")
    extra_sets.require(chosen, data_home)
    return [extra_sets.load(name, data_home) for name in chosen]


def cut(data: Dataset, seed: int, sizes: Sequence[int]) -> list[Part]:
    """Shuffled rows in parts of given sizes; the last part may fall short."""
    ends = np.cumsum(sizes)
    order = np.random.default_rng(seed).permutation(len(data.y))[: ends[-1]]
    return [
        (torch.from_numpy(data.X[rows]), torch.from_numpy(data.y[rows]))
        for rows in np.split(order, ends[:-1])
    ]


def train_cal_test(data: Dataset, seed: int) -> list[Part]:
    """Shuffled rows as 60 % training, 20 % calibration and 20 % test part."""
    n = len(data.y)
    first, second = int(0.6 * n), int(0.8 * n)
    return cut(data, seed, [first, second - first, n - second])


def simulated(n: int, seed: int) -> tuple[np.ndarray, np.ndarray]:
    """Rows of a function that bends in six of eight features; its noise depends on a seventh."""
    rng = np.random.default_rng(seed)
    X = rng.uniform(-1, 1, (n, 8))
    f = np.sin(3 * X[:, 0]) * X[:, 1] + X[:, 2] ** 2 + np.cos(3 * X[:, 3] + X[:, 4] * X[:, 5])
    return X, f + (0.05 + 0.1 * (X[:, 6] > 0)) * rng.normal(size=n)


def robot_arm(n: int, seed: int) -> tuple[np.ndarray, np.ndarray]:
    """How far four links reach, by their angles and lengths: smooth, hardly noisy, all count."""
    rng = np.random.default_rng(seed)
    X = rng.uniform(size=(n, 8))
    angles = np.cumsum(2 * np.pi * X[:, :4], axis=1)
    reach = np.hypot((X[:, 4:] * np.cos(angles)).sum(1), (X[:, 4:] * np.sin(angles)).sum(1))
    return X, reach + 0.01 * rng.normal(size=n)


def smooth_8d(n: int, seed: int) -> tuple[np.ndarray, np.ndarray]:
    """Sums and products of smooth functions of six of eight features; a seventh doubles noise."""
    rng = np.random.default_rng(seed)
    X = rng.uniform(-1, 1, (n, 8))
    f = np.sin(3 * X[:, 0]) + X[:, 1] * X[:, 2] + np.cos(2 * X[:, 3]) * X[:, 4]
    return X, f + 0.5 * X[:, 5] ** 2 + 0.1 * (1 + (X[:, 6] > 0)) * rng.normal(size=n)


def smooth_3d(n: int, seed: int) -> tuple[np.ndarray, np.ndarray]:
    """A smooth function of three features, with constant noise."""
    rng = np.random.default_rng(seed)
    X = rng.uniform(-2, 2, (n, 3))
    f = np.sin(2 * X[:, 0]) * np.cos(X[:, 1]) + np.exp(-(X[:, 2] ** 2)) * X[:, 1]
    return X, f + 0.1 * rng.normal(size=n)


def rough(n: int, seed: int) -> tuple[np.ndarray, np.ndarray]:
    """Steps along four of six features, and kinks along a fifth."""
    rng = np.random.default_rng(seed)
    X = rng.uniform(size=(n, 6))
    f = np.floor(4 * X[:, 0]) * ((X[:, 1] > 0.5) - 0.5) + 2 * (X[:, 2] + X[:, 3] > 1)
    return X, f + np.abs(np.sin(20 * X[:, 4])) + 0.2 * rng.normal(size=n)


def heteroscedastic(n: int, seed: int) -> tuple[np.ndarray, np.ndarray]:
    """Noise with heavy tails whose size varies thirtyfold, by two of five features."""
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(n, 5))
    size = 0.1 + np.exp(0.7 * X[:, 3]) * (0.2 + 0.5 * (X[:, 4] > 0))
    return X, X[:, 0] + 0.5 * X[:, 1] * X[:, 2] + size * rng.standard_t(5, size=n)


def fifty_features(n: int, seed: int) -> tuple[np.ndarray, np.ndarray]:
    """Fifty features, of which eight count."""
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(n, 50))
    f = 0.5 * X[:, :5].sum(1) + np.sin(2 * X[:, 5]) * X[:, 6] + np.maximum(X[:, 7], 0)
    return X, f + 0.3 * rng.normal(size=n)


#: Problems with as many rows as are asked for.
GENERATED = {
    "simulated": simulated,
    "robot arm": robot_arm,
    "smooth 3d": smooth_3d,
    "smooth 8d": smooth_8d,
    "rough": rough,
    "heteroscedastic": heteroscedastic,
    "50 features": fifty_features,
}


def judged(ends: Tensor, y: Tensor, coverage: float = 0.95) -> tuple[float, float, float]:
    """Coverage, mean width and interval score of interval ends [T, 2]."""
    lower, upper, truth = (values.cpu().numpy() for values in (*ends.T, y))
    return (
        metrics.interval_coverage(truth, lower, upper),
        metrics.interval_width(lower, upper),
        metrics.interval_score(truth, lower, upper, coverage),
    )


class Clock:
    """Wall-clock and processor seconds of a block; waits for the GPU."""

    wall = cpu = 0.0

    def __init__(self, device: str = "cpu") -> None:
        self.device = device

    def __enter__(self) -> "Clock":
        self._wait()
        self._wall, self._cpu = time.perf_counter(), time.process_time()
        return self

    def __exit__(self, *_: object) -> None:
        self._wait()
        self.wall = time.perf_counter() - self._wall
        self.cpu = time.process_time() - self._cpu

    def _wait(self) -> None:
        if self.device == "cuda":
            torch.cuda.synchronize()


def seconds(action: Callable[[], object], device: str = "cpu") -> float:
    """Wall-clock seconds of one call."""
    with Clock(device) as clock:
        action()
    return clock.wall


def run_parts(
    known: Mapping[str, Callable[..., None]], parts: str, *given: object, device: str = "cpu"
) -> None:
    """Run the named parts of a study, or all, each on what is ``given``, and time them."""
    chosen = parts.split(",") if parts else list(known)
    for part in chosen:
        check_choice(part, "parts", known)
    for part in chosen:
        with Clock(device) as clock:
            known[part](*given)
        print(f"\n({part}: {math.ceil(clock.wall)} s)", flush=True)
