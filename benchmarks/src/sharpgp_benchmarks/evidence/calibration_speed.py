"""Cost of calibrating 25 ``ard`` levels, in evaluations and against the parts of one evaluation.

Everything runs on one thread and is compared within the run, because absolute times on shared
machines mean little.  How soon the search is where it ends: the objective of the best path through
the points that both sides have visited after so many evaluations.

The parts of one evaluation of the objective with its gradient are: the two kernel matrices, one
Cholesky factorisation, the solves for C columns, and one N x N x C product.
"""

import time
from collections.abc import Callable, Sequence

import numpy as np
import torch

from sharpgp import Sharp
from sharpgp.calibration.methods.sharp.levels import resolve_levels
from sharpgp.calibration.methods.sharp.path import halves
from sharpgp.calibration.methods.sharp.side import shortest_path
from sharpgp.gp import ExactPosterior, train
from sharpgp.models.families import Ard
from sharpgp.models.objective import sharpness
from sharpgp.models.search import Budget, LevelSearch, Problem, Visited
from sharpgp_benchmarks.datasets import Dataset
from sharpgp_benchmarks.evidence.common import Clock, sets, train_cal_test

#: Evaluations after which the search is looked at.
STOPS = (50, 100, 150, 200, 250, 300)


def fastest(actions: dict[str, Callable[[], object]], repeats: int = 60) -> dict[str, float]:
    """Fastest time of each action; they take turns, so that noise on the machine hits all."""
    best = dict.fromkeys(actions, float("inf"))
    for _ in range(repeats):
        for name, action in actions.items():
            start = time.perf_counter()
            action()
            best[name] = min(best[name], time.perf_counter() - start)
    return best


def parts(posterior: ExactPosterior, X_cal: torch.Tensor) -> dict[str, Callable[[], object]]:
    """The parts of one evaluation."""
    theta = posterior.theta_R[None]
    Z = posterior.x_units.forward(X_cal)
    covariance, A = posterior.covariance, posterior._X
    Ky = posterior._covariance_of_data(theta)[0]
    Ks = covariance.matrix(theta, A, Z)[0]
    L = torch.linalg.cholesky(Ky)
    U = torch.cholesky_solve(Ks, L)
    return {
        "kernel matrices": lambda: (covariance.matrix(theta, A), covariance.matrix(theta, A, Z)),
        "Cholesky": lambda: torch.linalg.cholesky(Ky),
        "solves": lambda: torch.cholesky_solve(Ks, L),
        "N x N x C product": lambda: U @ U.T,
    }


def far_from_the_centre(delta: np.ndarray) -> np.ndarray:
    """Whether a level counts: at least 0.1 away from 0.5."""
    return np.abs(delta - 0.5) >= 0.1


def on_the_way(problem: Problem, delta: torch.Tensor, stops: Sequence[int] = STOPS) -> np.ndarray:
    """Log ratio [stops, K] to RK's objective on the best path after so many evaluations.

    Each side has the share of them that it has of the levels.
    """
    log_ratio = np.empty((len(stops), len(delta)))
    for half in halves(problem, delta):
        side = half.side(problem, delta)
        side.first_pass(Budget(half.evaluations), np.random.default_rng(0))
        seen = side.search.visited  # the first is theta_R, which is free
        for row, stop in enumerate(stops):
            n = 1 + stop * len(half.index) // len(delta)
            part = Visited(seen.v[:n], seen.log_ratio[:n], seen.beta[:n])
            path, _ = shortest_path(part, half.weights)
            log_ratio[row, half.index.numpy()] = np.diag(np.array(part.log_ratio)[path])
    return log_ratio


def main(datasets: str = "boston", seeds: int = 5, data_home: str | None = None) -> None:
    """Print a table for each set."""
    for data in sets(datasets, data_home):
        table(data, seeds)


def table(data: Dataset, seeds: int) -> None:
    """Print the table of one set."""
    print(
        f"{data.name}\n"
        "seed  evaluations  s(25)  s(all)/s(25)  objective/RK  eval/parts  of matmul rate"
    )
    used, ratios, evaluation_ratios, ways = [], [], [], []
    for seed in range(seeds):
        fit, (X_cal, y_cal), _ = train_cal_test(data, seed)
        posterior, _ = train(*fit)
        with Clock() as grid:
            calibrated = Sharp(levels=25).fit(posterior, X_cal, y_cal)
        with Clock() as every:
            Sharp(levels="all").fit(posterior, X_cal, y_cal)

        far = [r for r in calibrated.results if far_from_the_centre(np.array(r.delta))]
        ratio = float(np.mean([np.log(r.objective / r.objective_base) for r in far]))

        problem = Problem(
            Ard(posterior),
            sharpness,
            lambda theta, p=posterior, X=X_cal: p.sigma(theta, X),
            y_cal - posterior.mean(X_cal),
        )
        delta = resolve_levels(25, len(y_cal))
        ways.append(on_the_way(problem, delta)[:, far_from_the_centre(delta.numpy())].mean(1))
        side = LevelSearch(problem, torch.tensor([0.95], dtype=torch.float64), 1, np.ones(1))

        def evaluate(side=side, problem=problem) -> None:
            leaf, value = side.visit(problem.family.start)
            torch.autograd.grad(value.sum(), leaf)

        N, C = posterior.n_train, len(y_cal)
        B = torch.randn(1024, 1024, dtype=torch.float64)
        each = fastest({"whole": evaluate, "matmul": lambda B=B: B @ B, **parts(posterior, X_cal)})
        whole, rate = each.pop("whole"), 2 * 1024**3 / each.pop("matmul")
        flops = N**3 / 3 + 2 * N**2 * C + 2 * N**2 * C
        used.append(calibrated.evaluations)
        ratios.append(ratio)
        evaluation_ratios.append(whole / sum(each.values()))
        print(
            f"{seed:4d}  {calibrated.evaluations:11d}  {grid.wall:5.2f}  "
            f"{every.wall / grid.wall:12.2f}  {np.exp(ratio):12.3f}  "
            f"{whole / sum(each.values()):10.2f}  {flops / whole / rate:14.2f}"
        )
        if seed == seeds - 1:
            shown = ", ".join(f"{name} {1e3 * t:.2f} ms" for name, t in each.items())
            print(f"one evaluation {1e3 * whole:.2f} ms; its parts: {shown}")
    print(
        f"N = {N}, C = {C}; {np.mean(used):.0f} evaluations; geometric mean of objective/RK "
        f"{np.exp(np.mean(ratios)):.3f}; median eval/parts {np.median(evaluation_ratios):.2f}"
    )
    way = zip(STOPS, np.exp(np.mean(ways, axis=0)), strict=True)
    print(f"objective/RK after {', '.join(f'{n}: {value:.3f}' for n, value in way)} evaluations")
