"""Eight test functions with published figures, drawn as their authors drew them.

Scrambled Sobol points with seed 42: 5,000 test rows and a pool of twenty training sets. Noise is a
share of the test targets' deviation, on both. A permutation cuts the pool into training sets.
Reference: arXiv 2608.13793.
"""

import math
from collections.abc import Callable, Mapping
from functools import lru_cache
from typing import Any

import numpy as np
import torch

Parts = tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]
SEED = 42
TEST_ROWS = 5000
#: Training sets in the pool; published figures are medians over the first ten.
POOL = 20
RUNS = 10


def ackley(X: torch.Tensor) -> torch.Tensor:
    """Ackley's function, with its usual constants 20, 0.2 and two pi."""
    smooth = 20 * torch.exp(-0.2 * X.square().mean(1).sqrt())
    return 20 + math.e - smooth - torch.exp(torch.cos(2 * math.pi * X).mean(1))


def griewank(X: torch.Tensor) -> torch.Tensor:
    """Griewank's function: a bowl with ripples."""
    ripples = torch.cos(X / _numbers(X).sqrt()).prod(1)
    return X.square().sum(1) / 4000 - ripples + 1


def zakharov(X: torch.Tensor) -> torch.Tensor:
    """Zakharov's function: a polynomial of degree four along one direction."""
    along = (0.5 * _numbers(X) * X).sum(1)
    return X.square().sum(1) + along**2 + along**4


def dixon_price(X: torch.Tensor) -> torch.Tensor:
    """Function of Dixon and Price: neighbouring columns interact."""
    steps = _numbers(X)[1:] * (2 * X[:, 1:] ** 2 - X[:, :-1]) ** 2
    return (X[:, 0] - 1) ** 2 + steps.sum(1)


def rosenbrock(X: torch.Tensor) -> torch.Tensor:
    """Rosenbrock's function."""
    return (100 * (X[:, 1:] - X[:, :-1] ** 2) ** 2 + (1 - X[:, :-1]) ** 2).sum(1)


def wing(X: torch.Tensor) -> torch.Tensor:
    """Weight of a light aircraft's wing."""
    area, fuel, aspect, sweep, pressure, taper, thickness, load, weight, paint = X.T
    cosine = torch.cos(sweep * math.pi / 180)
    shape = (aspect / cosine**2) ** 0.6 * (100 * thickness / cosine) ** -0.3
    inner = area**0.758 * fuel**0.0035 * pressure**0.006 * taper**0.04 * (load * weight) ** 0.49
    return 0.036 * shape * inner + area * paint


def borehole(X: torch.Tensor) -> torch.Tensor:
    """Flow of water through a borehole."""
    radius, reach, upper, upper_head, lower, lower_head, length, conductivity = X.T
    spread = torch.log(reach / radius)
    leak = 2 * length * upper / (spread * radius**2 * conductivity)
    return 2 * math.pi * upper * (upper_head - lower_head) / (spread * (1 + leak + upper / lower))


def _numbers(X: torch.Tensor) -> torch.Tensor:
    return torch.arange(1, X.shape[1] + 1, dtype=X.dtype)


#: Function, lower and upper ends of its inputs; one number stands for all inputs.
FUNCTIONS: dict[str, tuple[Callable[[torch.Tensor], torch.Tensor], list[float], list[float]]] = {
    "ackley": (ackley, [-5], [10]),
    "griewank": (griewank, [-600], [600]),
    "zakharov": (zakharov, [-5], [10]),
    "dixon_price": (dixon_price, [-10], [10]),
    "rosenbrock": (rosenbrock, [-5], [10]),
    "wing": (
        wing,
        [150, 220, 6, -10, 16, 0.5, 0.08, 2.5, 1700, 0.025],
        [200, 300, 10, 10, 45, 1, 0.18, 6, 2500, 0.08],
    ),
    "borehole": (
        borehole,
        [0.05, 100, 63070, 990, 63.1, 700, 1120, 9855],
        [0.15, 50000, 115600, 1110, 116, 820, 1680, 12045],
    ),
}
#: Test rows are the first points.
_TEST_FIRST = ("wing", "borehole")
#: The permutation starts anew at the seed.
_SEEDED_AGAIN = ("griewank", "zakharov", "dixon_price", "rosenbrock")


@lru_cache(maxsize=4)
def _pool(problem: str, d: int, n: int, noise: float) -> tuple[torch.Tensor, ...]:
    """Training rows (20, n, d) and targets (20, n), test rows and targets."""
    if problem == "buckling":
        return _buckling(n, noise)
    function, low, high = FUNCTIONS[problem]
    lower, upper = (torch.tensor(ends, dtype=torch.float64) for ends in (low, high))
    torch.manual_seed(SEED)
    seed = SEED if problem in _TEST_FIRST else None
    points = torch.quasirandom.SobolEngine(d, scramble=True, seed=seed).draw(POOL * n + TEST_ROWS)
    X = points.double() * (upper - lower) + lower
    y = function(X)
    if problem in _TEST_FIRST:
        X_new, X, y_new, y = X[:TEST_ROWS], X[TEST_ROWS:], y[:TEST_ROWS], y[TEST_ROWS:]
    else:
        X_new, X, y_new, y = X[POOL * n :], X[: POOL * n], y[POOL * n :], y[: POOL * n]
    deviation = noise * y_new.std()
    y = y + torch.randn_like(y) * deviation
    y_new = y_new + torch.randn_like(y_new) * deviation
    if problem in _SEEDED_AGAIN:
        torch.manual_seed(SEED)
    order = torch.randperm(POOL * n).reshape(POOL, n)
    return X[order], y[order], X_new, y_new


def _buckling(n: int, noise: float) -> tuple[torch.Tensor, ...]:
    """Load that buckles a beam: a length and three categories, evenly spread in each set."""
    values = [(73.1, 200.0), (0.5, 0.7, 1.0, 2.0), (9.49, 12.1, 29.5)]
    torch.manual_seed(SEED)
    length = torch.quasirandom.SobolEngine(1, scramble=True, seed=SEED)
    lengths = (length.draw(TEST_ROWS + POOL * n).squeeze() + 0.5).double()
    tests = [_even(TEST_ROWS, len(levels)) for levels in values]
    labels = [torch.stack([one[torch.randperm(TEST_ROWS)] for one in tests], 1)]
    for k in range(POOL):
        columns = [_even(n, 2), _even(n, 4), _even(n, 3, k)]
        for j in (1, 2):
            torch.manual_seed(SEED + 100 * k + j)
            columns[j] = columns[j][torch.randperm(n)]
        torch.manual_seed(SEED + 100 * k + 3)
        labels.append(torch.stack(columns, 1)[torch.randperm(n)])
    chosen = torch.cat(labels)
    levels = [torch.tensor(one, dtype=torch.float64) for one in values]
    elastic, factor, inertia = (one[chosen[:, j]] for j, one in enumerate(levels))
    y = math.pi * elastic * inertia / (lengths * factor) ** 2
    X = torch.cat([lengths[:, None], chosen.double()], 1)
    y_new, y = y[:TEST_ROWS], y[TEST_ROWS:]
    deviation = noise * y_new.std()
    y_new = y_new + torch.randn_like(y_new) * deviation
    y = y + torch.randn_like(y) * deviation
    return X[TEST_ROWS:].reshape(POOL, n, 4), y.reshape(POOL, n), X[:TEST_ROWS], y_new


def _even(n: int, levels: int, shift: int = 0) -> torch.Tensor:
    """Labels in order, as many of each as can be; what remains goes to the first after a shift."""
    more = [(i + shift) % levels < n % levels for i in range(levels)]
    return torch.repeat_interleave(torch.tensor([n // levels + one for one in more]))


def draw(settings: Mapping[str, Any], run: int, data_home: str | None = None) -> Parts:
    """Training rows and targets of a run, test rows and targets; no folder is read.

    Examples
    --------
    >>> settings = {"rows": "griewank", "d": 20, "n": 100, "noise": 0.08}
    >>> X, y, X_new, y_new = draw(settings, 0)
    >>> X.shape, X_new.shape, round(float(y.mean()), 3)
    ((100, 20), (5000, 20), 589.93)
    """
    with torch.random.fork_rng(devices=[]):
        X, y, X_new, y_new = _pool(*(settings[name] for name in ("rows", "d", "n", "noise")))
    return X[run].numpy(), y[run].numpy(), X_new.numpy(), y_new.numpy()


def control(runs: list[Parts]) -> np.ndarray:
    """Mean of the first training set and deviation of the test targets."""
    return np.array([runs[0][1].mean(), runs[0][3].std(ddof=1)])
