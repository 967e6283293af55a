"""Problems to be maximised: test functions, noisy ones, and tables of measurements."""

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import lru_cache, partial
from typing import Any

import torch
from botorch.test_functions import (
    Ackley,
    Branin,
    Hartmann,
    Levy,
    Michalewicz,
    Rosenbrock,
)
from botorch.test_functions.synthetic import SyntheticTestFunction
from torch import Tensor

from sharpgp._validation import check_choice
from sharpgp_benchmarks import datasets

#: Standard deviation of noise, from inputs in [0, 1]^d [n, d] and normal draws [n].
Noise = Callable[[Tensor, Tensor], Tensor]


@dataclass(frozen=True)
class Problem:
    """Something to be maximised.

    Attributes
    ----------
    bounds : Tensor [2, d]
    function : callable
        Values [n] without noise at ``X`` [n, d].
    optimum : float
    noise : callable, optional
        What is added to values, from unit inputs and normal draws.
    rows : Tensor [m, d], optional
        The points that can be run, where these are the rows of a table.
    """

    bounds: Tensor
    function: Callable[[Tensor], Tensor]
    optimum: float
    noise: Noise | None = None
    rows: Tensor | None = None

    @property
    def d(self) -> int:
        """Number of inputs."""
        return self.bounds.shape[1]

    @property
    def design_size(self) -> int:
        """Points to begin with: two and a half for each input, at least five."""
        return max(5, math.ceil(2.5 * self.d))

    def design(self, generator: torch.Generator) -> Tensor:
        """Random points [n, d] to begin with."""
        if self.rows is not None:
            order = torch.randperm(len(self.rows), generator=generator)
            return self.rows[order[: self.design_size]]
        lower, upper = self.bounds
        unit = torch.rand(self.design_size, self.d, generator=generator, dtype=torch.float64)
        return lower + unit * (upper - lower)

    def observe(self, X: Tensor, generator: torch.Generator) -> Tensor:
        """Results [n] of runs."""
        values = self.function(X)
        if self.noise is None:
            return values
        lower, upper = self.bounds
        draws = torch.randn(len(X), generator=generator, dtype=torch.float64)
        return values + self.noise((X - lower) / (upper - lower), draws)

    def regret(self, X: Tensor) -> Tensor:
        """How far values [n] fall short of the optimum, noise left out; never below zero."""
        return (self.optimum - self.function(X)).clamp(min=0.0)


@dataclass(frozen=True)
class _Of:
    """Values of one of BoTorch's functions, without noise."""

    function: SyntheticTestFunction = field(compare=False)

    def __call__(self, X: Tensor) -> Tensor:
        values: Tensor = self.function(X, noise=False)
        return values


def of_botorch(
    make: Callable[..., SyntheticTestFunction], *, negate: bool = True, **settings: Any
) -> Problem:
    """One of BoTorch's functions; negated, unless it is to be maximised as it is."""
    function = make(negate=negate, **settings).double()
    bounds = function.bounds
    assert isinstance(bounds, Tensor)
    return Problem(bounds.double(), _Of(function), float(function.optimal_value))


def _heteroscedastic() -> Problem:
    """Branin with noise that grows along the first input, from next to none to 30."""
    base = of_botorch(Branin)

    def noise(U: Tensor, draws: Tensor) -> Tensor:
        return 30.0 * U[:, 0].square() * draws

    return Problem(base.bounds, base.function, base.optimum, noise)


def _heavy_tailed() -> Problem:
    """Hartmann in three dimensions with noise of Student's law with two degrees of freedom."""
    base = of_botorch(Hartmann, dim=3)

    def noise(U: Tensor, draws: Tensor) -> Tensor:
        level = torch.special.ndtr(draws).clamp(1e-6, 1.0 - 1e-6)
        # The quantile function of Student's law with two degrees of freedom.
        return 0.1 * (2.0 * level - 1.0) / (2.0 * level * (1.0 - level)).sqrt()

    return Problem(base.bounds, base.function, base.optimum, noise)


class _Table:
    """Targets of the rows of a table, by their inputs."""

    def __init__(self, X: Tensor, y: Tensor) -> None:
        self.known = {tuple(x): value for x, value in zip(X.tolist(), y.tolist(), strict=True)}

    def __call__(self, X: Tensor) -> Tensor:
        return torch.tensor([self.known[tuple(x)] for x in X.tolist()], dtype=torch.float64)


def _of_table(name: str, sign: float, data_home: str | None) -> Problem:
    """The best row of a table; of rows with equal inputs, their mean counts."""
    data = datasets.load(name, data_home)
    X, place = torch.unique(torch.as_tensor(data.X).double(), dim=0, return_inverse=True)
    y = sign * torch.as_tensor(data.y).double()
    means = torch.zeros(len(X), dtype=torch.float64).index_add(0, place, y) / place.bincount()
    keep = X.amax(0) > X.amin(0)
    X = X[:, keep]
    bounds = torch.stack([X.amin(0), X.amax(0)])
    return Problem(bounds, _Table(X, means), float(means.max()), rows=X)


_FUNCTIONS: Mapping[str, Callable[[], Problem]] = {
    "branin": partial(of_botorch, Branin),
    "ackley2": partial(of_botorch, Ackley, dim=2),
    "ackley5": partial(of_botorch, Ackley, dim=5),
    "rosenbrock2": partial(of_botorch, Rosenbrock, dim=2),
    "rosenbrock4": partial(of_botorch, Rosenbrock, dim=4),
    "hartmann3": partial(of_botorch, Hartmann, dim=3),
    "hartmann6": partial(of_botorch, Hartmann, dim=6),
    "levy4": partial(of_botorch, Levy, dim=4),
    "michalewicz5": partial(of_botorch, Michalewicz, dim=5),
    "heteroscedastic": _heteroscedastic,
    "heavy_tailed": _heavy_tailed,
}
#: Tables, and 1 where the largest target is looked for, -1 where the smallest.
TABLES = {"concrete": 1.0, "yacht": -1.0}
#: Every problem.
PROBLEMS = (*_FUNCTIONS, *TABLES)


@lru_cache(maxsize=len(PROBLEMS))
def problem_of(name: str, data_home: str | None = None) -> Problem:
    """A problem by name.

    Examples
    --------
    >>> problem = problem_of("hartmann3")
    >>> problem.d, problem.design_size, round(problem.optimum, 3)
    (3, 8, 3.863)
    """
    check_choice(name, "datasets", PROBLEMS)
    if name in TABLES:
        return _of_table(name, TABLES[name], data_home)
    return _FUNCTIONS[name]()
