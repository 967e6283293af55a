r"""Monotone paths ``theta(delta)``: hyperparameters that only grow outward from ``delta_0``.

On either side of the level ``delta_0`` where ``beta`` changes sign, ``theta`` and ``|beta|`` may
only grow outward; then quantiles cannot cross.  Three facts make the path cheap and safe:

1. One evaluation of ``sigma(theta)`` gives the objective of *every* level, because the same
   z-scores serve them all.  So every ``theta`` that any search visits is kept.
2. The best monotone path through these is a shortest path (dynamic programming over levels).
   Only entries that are no worse than ``theta_R`` at a level may be used there; all levels at
   ``theta_R`` is always such a path, so the result is never worse than ``theta_R`` anywhere.
3. Searching groups of levels from coarse to fine (all levels of a side, then halves, quarters,
   ... single levels), each inside the box that its neighbours leave, avoids the trap of a greedy
   order: one noisy tail level binding all others.
"""

from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from sharpgp._stored import Array, stored
from sharpgp.models.search import (
    LEAST_EVALUATIONS,
    LOWEST_LOG_RATIO,
    STALLED,
    Budget,
    LevelSearch,
    Problem,
    Visited,
)

# Evaluations allowed to each search by depth: whole side, halves, quarters, ...
_EVALUATIONS = (30, 12, 10, 8, 6)
#: Evaluations per level and in all: 25 levels may use 400; more levels share the same 400.
EVALUATIONS_PER_LEVEL = 16
MOST_EVALUATIONS = 400


@stored(
    "LevelResult",
    delta=float,
    beta=float,
    theta=Array("P"),
    objective=float,
    objective_base=float,
    evaluations=int,
    status=str,
    jitter=float,
)
@dataclass(frozen=True)
class LevelResult:
    """What the search found for one level.

    ``status`` is ``"optimised"`` (sharper than ``theta_R``), ``"base"`` (``theta_R`` kept) or
    ``"neighbour"`` (the outer neighbour's ``theta``, to keep ``|beta|`` in order).
    ``evaluations`` are charged to the outermost level of the group that was searched together,
    so that they add up to the whole.  Objectives are in units of the mean absolute residual.
    ``jitter`` is what the covariance needed to be factorised, relative to its diagonal; mostly 0.
    """

    delta: float
    beta: float
    theta: Tensor
    objective: float
    objective_base: float
    evaluations: int
    status: str
    jitter: float = 0.0


def shortest_path(visited: Visited) -> list[int]:
    """Index of the visited point for each level (centre to tail) on the best monotone path."""
    v, gain, beta = np.array(visited.v), np.array(visited.log_ratio), np.array(visited.beta)
    usable = (gain <= 1e-12) & (beta >= 0)
    usable[0] = True  # theta_R itself
    cost = np.where(usable, np.maximum(gain, LOWEST_LOG_RATIO), np.inf)
    grows = (v[:, None, :] <= v[None, :, :] + 1e-12).all(-1)
    total, back = cost[:, 0].copy(), []
    for k in range(1, gain.shape[1]):
        allowed = grows & (beta[:, k - 1, None] <= beta[None, :, k])
        reach = np.where(allowed, total[:, None], np.inf)
        best = reach.argmin(0)
        back.append(best)
        total = reach[best, np.arange(len(best))] + cost[:, k]
    entry = int(total.argmin())
    path = [entry]
    for best in reversed(back):
        entry = int(best[entry])
        path.append(entry)
    return path[::-1]


def side_path(
    search: LevelSearch, budget: Budget, restarts: int, rng: np.random.Generator
) -> list[int]:
    """Search one side of ``delta_0`` from coarse to fine; returns the path through what it saw.

    The levels of ``search`` are ordered from the centre to the tail.
    """
    n = len(search.delta)
    search.from_starts(budget, restarts, rng, _EVALUATIONS[0] if n > 1 else LEAST_EVALUATIONS)
    path = shortest_path(search.visited)
    groups, depth = [list(range(n))], 0
    while len(groups) < n and budget.left > 0:
        depth = min(depth + 1, len(_EVALUATIONS) - 1)
        groups = [half for group in groups for half in _halves(group)]
        # Alternate the direction, so that neither the centre nor the tail always goes first.
        for group in groups if depth % 2 else reversed(groups):
            path = _refine(search, group, path, budget, _EVALUATIONS[depth])
    return path


def _refine(
    search: LevelSearch, group: list[int], path: list[int], budget: Budget, most: int
) -> list[int]:
    v, family = search.visited.v, search.problem.family
    lower = v[path[group[0] - 1]] if group[0] > 0 else family.lower
    upper = v[path[group[-1] + 1]] if group[-1] < len(path) - 1 else family.upper
    upper = np.maximum(lower, upper)  # a path is in order up to rounding only
    if budget.left <= 0 or (upper - lower < 1e-9).all():
        return path
    start, gain = search.visited.best_inside(lower, upper, search.weights_of(group))
    if search.on_plateau and gain > STALLED:
        start = family.second_start
    search.run(group, start, lower, upper, budget, most, 1e-3)
    return shortest_path(search.visited)


def _halves(group: list[int]) -> list[list[int]]:
    middle = len(group) // 2
    return [group] if len(group) == 1 else [group[:middle], group[middle:]]


def solve_path(
    problem: Problem, delta: Tensor, *, restarts: int, rng: np.random.Generator
) -> tuple[Tensor, np.ndarray, Budget]:
    """``theta`` [K, P] for increasing levels ``delta``, monotone outward from ``delta_0``.

    Returns ``theta``, the evaluations charged to each level, and the budget with what was used.
    """
    C = len(problem.r)
    negative = int((problem.r < 0).sum())
    centre = (negative + 0.5) / (C + 1)
    with torch.no_grad():
        theta_R = problem.family.theta_R
        _, beta = problem.objective(delta, problem.r, problem.sigma(theta_R.unsqueeze(0)))
    upper_side = beta >= 0
    theta = theta_R.expand(len(delta), -1).clone()
    evaluations = np.zeros(len(delta), dtype=int)
    most = max(LEAST_EVALUATIONS, min(MOST_EVALUATIONS, EVALUATIONS_PER_LEVEL * len(delta)))
    used = failed = 0
    for sign in (-1, 1):
        index = (upper_side if sign > 0 else ~upper_side).nonzero().squeeze(-1)
        if len(index) == 0:
            continue
        if sign < 0:
            index = index.flip(0)
        share = max(1, round(most * len(index) / len(delta)))
        budget = Budget(share)
        side = LevelSearch(problem, delta[index], sign, centre)
        path = side_path(side, budget, restarts, rng)
        for k, entry in zip(index.tolist(), path, strict=True):
            v = torch.from_numpy(side.visited.v[entry]).to(theta)
            if entry > 0:
                theta[k] = problem.family.theta(v)
        evaluations[index.cpu().numpy()] = side.evaluations
        used, failed = used + budget.used, failed + budget.failed
    return theta, evaluations, Budget(most - used, used, failed)


def keep_order(
    problem: Problem, delta: Tensor, theta: Tensor
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """``beta`` and objective of a path, with ``|beta|`` growing outward.

    Where a level would break the order it takes its outer neighbour's ``theta``: the same
    z-scores give ordered quantiles.  Returns ``theta``, ``beta``, objective and the mask of the
    levels that were changed.
    """
    theta = theta.clone()
    with torch.no_grad():
        value, beta = problem.objective(delta, problem.r, problem.sigma(theta))
        changed = torch.zeros_like(beta, dtype=torch.bool)
        for order, outward in ((range(len(delta) - 2, -1, -1), 1), (range(1, len(delta)), -1)):
            for k in order:
                same_side = beta[k] * outward > 0 and beta[k + outward] * outward > 0
                if same_side and beta[k].abs() > beta[k + outward].abs():
                    theta[k], changed[k] = theta[k + outward], True
                    sigma = problem.sigma(theta[k : k + 1])
                    value_k, beta_k = problem.objective(delta[k : k + 1], problem.r, sigma)
                    value[k], beta[k] = value_k[0], beta_k[0]
    return theta, beta, value, changed
