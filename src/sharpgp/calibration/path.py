r"""Monotone paths ``theta(delta)``: hyperparameters that only grow outward from ``delta_0``.

On either side of the level ``delta_0`` where ``beta`` changes sign, ``theta`` and ``|beta|`` may
only grow outward; then quantiles cannot cross.  Three facts make the path cheap and safe:

1. One evaluation of ``sigma(theta)`` gives the objective of *every* level, because the same
   z-scores serve them all.  So every ``theta`` that any search visits is kept in a pool.
2. The best monotone path through the pool is a shortest path (dynamic programming over levels).
   Only entries that are no worse than ``theta_R`` at a level may be used there; all levels at
   ``theta_R`` is always such a path, so the result is never worse than ``theta_R`` anywhere.
3. Searching groups of levels from coarse to fine (all levels of a side, then halves, quarters,
   ... single levels), each inside the box that its neighbours leave, avoids the trap of a greedy
   order: one noisy tail level binding all others.
"""

from collections.abc import Callable
from dataclasses import dataclass, field

import numpy as np
import torch
from torch import Tensor

from sharpgp._stored import Array, stored
from sharpgp.calibration.objective import Objective
from sharpgp.calibration.search import Budget, Family, descend

# Evaluations allowed to each search by depth: whole side, halves, quarters, ...
_EVALUATIONS = (30, 12, 10, 8, 6)
#: Evaluations per level and in all: 25 levels may use 400; more levels share the same 400.
EVALUATIONS_PER_LEVEL = 16
MOST_EVALUATIONS = 400
_LEAST_EVALUATIONS = 60
# Weight of an excess over theta_R's objective in a search, so that it heads for usable points.
_PENALTY = 3.0
# Levels this close to delta_0 have objectives near zero, where ratios are mostly noise.
_CENTRE, _CENTRE_WEIGHT = 0.1, 0.25
_LOWEST_LOG_RATIO = -3.0
# A mean log ratio above this counts as no gain.
_STALLED = -0.02


@dataclass(frozen=True)
class Problem:
    """Everything that the objective at a level depends on, except ``theta``.

    ``sigma`` maps ``theta`` [K, P] to standard deviations [K, n] of the points whose residuals
    are ``r`` [n]: calibration points, or training points left out one at a time.
    ``shrinkage`` is the weight of the squared distance to ``theta_R``, in logarithms.
    """

    family: Family
    objective: Objective
    sigma: Callable[[Tensor], Tensor]
    r: Tensor
    shrinkage: float = 0.0


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


@dataclass
class Pool:
    """Visited points ``v`` [n, P'], with log objective ratio and signed ``beta`` [n, K]."""

    v: list[np.ndarray] = field(default_factory=list)
    log_ratio: list[np.ndarray] = field(default_factory=list)
    beta: list[np.ndarray] = field(default_factory=list)

    def shortest_path(self) -> list[int]:
        """Index of the pool entry for each level (centre to tail) on the best monotone path."""
        v, gain, beta = np.array(self.v), np.array(self.log_ratio), np.array(self.beta)
        usable = (gain <= 1e-12) & (beta >= 0)
        usable[0] = True  # theta_R itself
        cost = np.where(usable, np.maximum(gain, _LOWEST_LOG_RATIO), np.inf)
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

    def best_inside(
        self, lower: np.ndarray, upper: np.ndarray, weights: np.ndarray
    ) -> tuple[np.ndarray, float]:
        """The visited point inside a box with the lowest penalised objective, and that value."""
        v = np.array(self.v)
        inside = ((v >= lower - 1e-12) & (v <= upper + 1e-12)).all(1)
        gain = np.array(self.log_ratio)
        score = (gain + _PENALTY * np.maximum(gain, 0.0)) @ weights
        best = int(np.where(inside, score, np.inf).argmin())
        return self.v[best], float(score[best]) if bool(inside.any()) else np.inf


class SideSearch:
    """Searches one side of ``delta_0``; levels are ordered from the centre to the tail.

    Parameters
    ----------
    problem : Problem
    delta : Tensor [K]
        Levels of this side, centre first.
    sign : int
        Sign of ``beta`` on this side.
    centre : float
        ``delta_0``, as far as it is known before the search.
    """

    def __init__(self, problem: Problem, delta: Tensor, sign: int, centre: float) -> None:
        self.problem = problem
        self.delta = delta
        self.sign = sign
        self.pool = Pool()
        self.on_plateau = False
        near = (delta - centre).abs().cpu().numpy() < _CENTRE
        self.weights = np.where(near, _CENTRE_WEIGHT, 1.0)
        self.evaluations = np.zeros(len(delta), dtype=int)
        self._log_base = torch.zeros(len(delta), dtype=torch.float64, device=problem.r.device)
        _, values, beta = self._values(problem.family.start)
        self._log_base = values.detach()
        self._keep(problem.family.start, torch.zeros_like(values), beta)

    def run(self, budget: Budget, restarts: int, rng: np.random.Generator) -> list[int]:
        """Search from coarse to fine; returns the path through the pool."""
        n = len(self.delta)
        most = _EVALUATIONS[0] if n > 1 else _LEAST_EVALUATIONS
        self.search_from_starts(budget, restarts, rng, most)
        path = self.pool.shortest_path()
        groups, depth = [list(range(n))], 0
        while len(groups) < n and budget.left > 0:
            depth = min(depth + 1, len(_EVALUATIONS) - 1)
            groups = [half for group in groups for half in _halves(group)]
            # Alternate the direction, so that neither the centre nor the tail always goes first.
            for group in groups if depth % 2 else reversed(groups):
                path = self._refine(group, path, budget, _EVALUATIONS[depth])
        return path

    def search_from_starts(
        self, budget: Budget, restarts: int, rng: np.random.Generator, most: int
    ) -> None:
        """Search all levels together, from ``theta_R`` and from random points around it.

        A hardly trained ``theta_R`` can lie on a plateau, where noise drowns everything and no
        entry of ``theta`` matters; a search that finds nothing goes on from a typical ``theta``.
        """
        family = self.problem.family
        everything = list(range(len(self.delta)))
        weights = self._group_weights(everything)
        starts = [family.start]
        for _ in range(restarts):
            starts.append(family.start + rng.normal(0.0, 1.0, len(family.start)))
        for start in starts:
            self._search(everything, start, family.lower, family.upper, budget, most, 1e-4)
        self.on_plateau = bool((np.array(self.pool.log_ratio) @ weights).min() > _STALLED)
        if self.on_plateau:
            start = family.second_start
            self._search(everything, start, family.lower, family.upper, budget, most, 1e-4)

    def _refine(self, group: list[int], path: list[int], budget: Budget, most: int) -> list[int]:
        v, family = self.pool.v, self.problem.family
        lower = v[path[group[0] - 1]] if group[0] > 0 else family.lower
        upper = v[path[group[-1] + 1]] if group[-1] < len(path) - 1 else family.upper
        upper = np.maximum(lower, upper)  # a path is in order up to rounding only
        if budget.left <= 0 or (upper - lower < 1e-9).all():
            return path
        start, gain = self.pool.best_inside(lower, upper, self._group_weights(group))
        if self.on_plateau and gain > _STALLED:
            start = family.second_start
        self._search(group, start, lower, upper, budget, most, 1e-3)
        return self.pool.shortest_path()

    def _search(
        self,
        group: list[int],
        start: np.ndarray,
        lower: np.ndarray,
        upper: np.ndarray,
        budget: Budget,
        most: int,
        tolerance: float,
    ) -> None:
        weights = torch.from_numpy(self._group_weights(group)).to(self._log_base)
        used = budget.used

        def penalised(v: np.ndarray) -> tuple[float, np.ndarray]:
            leaf, values, beta = self._values(v)
            self._keep(v, values, beta)
            gain = values.clamp(min=_LOWEST_LOG_RATIO) + _PENALTY * values.clamp(min=0.0)
            total = gain @ weights + self._shrinkage(leaf)
            (gradient,) = torch.autograd.grad(total, leaf)
            return total.item(), gradient.cpu().numpy()

        descend(
            penalised,
            start,
            lower,
            upper,
            budget=budget,
            max_evaluations=most,
            tolerance=tolerance,
        )
        self.evaluations[group[-1]] += budget.used - used

    def _values(self, v: np.ndarray) -> tuple[Tensor, Tensor, Tensor]:
        """Search leaf, log of (objective / objective at theta_R) and beta, at every level."""
        problem = self.problem
        leaf = torch.tensor(v, dtype=torch.float64, device=problem.r.device, requires_grad=True)
        sigma = problem.sigma(problem.family.theta(leaf).unsqueeze(0))
        value, beta = problem.objective(self.delta, problem.r, sigma)
        return leaf, value.clamp_min(1e-300).log() - self._log_base, beta

    def _shrinkage(self, v: Tensor) -> Tensor:
        start = torch.from_numpy(self.problem.family.start).to(v)
        return self.problem.shrinkage * (v - start).square().sum()

    def _keep(self, v: np.ndarray, values: Tensor, beta: Tensor) -> None:
        self.pool.v.append(np.array(v))
        self.pool.log_ratio.append(values.detach().cpu().numpy())
        self.pool.beta.append(self.sign * beta.detach().cpu().numpy())

    def _group_weights(self, group: list[int]) -> np.ndarray:
        weights = np.zeros(len(self.delta))
        weights[group] = self.weights[group] / self.weights[group].sum()
        return weights


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
    most = max(_LEAST_EVALUATIONS, min(MOST_EVALUATIONS, EVALUATIONS_PER_LEVEL * len(delta)))
    used = failed = 0
    for sign in (-1, 1):
        index = (upper_side if sign > 0 else ~upper_side).nonzero().squeeze(-1)
        if len(index) == 0:
            continue
        if sign < 0:
            index = index.flip(0)
        share = max(1, round(most * len(index) / len(delta)))
        budget = Budget(share)
        side = SideSearch(problem, delta[index], sign, centre)
        path = side.run(budget, restarts, rng)
        for k, entry in zip(index.tolist(), path, strict=True):
            v = torch.from_numpy(side.pool.v[entry]).to(theta)
            if entry > 0:
                theta[k] = problem.family.theta(v)
        evaluations[index.cpu().numpy()] = side.evaluations
        used, failed = used + budget.used, failed + budget.failed
    return theta, evaluations, Budget(most - used, used, failed)


def solve_shared(
    problem: Problem,
    delta: Tensor,
    *,
    restarts: int,
    rng: np.random.Generator,
    most: int = _LEAST_EVALUATIONS,
) -> tuple[Tensor, np.ndarray, Budget]:
    """One ``theta`` for all levels: the mean log objective over levels is minimised.

    Returns as :func:`solve_path`.
    """
    side = SideSearch(problem, delta, 1, 0.5)
    budget = Budget(most * (restarts + 1))
    family, everything = problem.family, list(range(len(delta)))
    side.search_from_starts(budget, restarts, rng, most)
    score = np.array(side.pool.log_ratio) @ side._group_weights(everything)
    score += [float(side._shrinkage(torch.from_numpy(v))) for v in side.pool.v]
    best = int(score.argmin())
    theta_R = family.theta_R
    theta = family.theta(torch.from_numpy(side.pool.v[best]).to(theta_R)) if best else theta_R
    return theta.expand(len(delta), -1).clone(), side.evaluations, budget


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
