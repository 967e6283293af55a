"""Searches of ``theta`` for groups of levels: bounded L-BFGS under a budget, all visits kept."""

from collections.abc import Callable
from dataclasses import dataclass, field

import numpy as np
import torch
from torch import Tensor

from sharpgp._ranks import q_lin
from sharpgp.calibration.methods.sharp.search.families import Family
from sharpgp.calibration.methods.sharp.search.kinked import minimise_kinked
from sharpgp.calibration.methods.sharp.search.objective import Objective, Quantile, smooth_quantile
from sharpgp.gp.optimise import Evaluate, minimise

#: Evaluations of the search of one level, or of all levels at once.
LEAST_EVALUATIONS = 60
#: Log ratios are clipped here from below, so that one level cannot outweigh all others.
LOWEST_LOG_RATIO = -3.0
#: A mean log ratio above this counts as no gain.
STALLED = -0.02
#: Each further unit of effort multiplies the evaluations by this.
EFFORT_FACTOR = 4
# Extra cost of an excess over theta_R's objective, as a multiple of it.
_PENALTY = 3.0
# A hop moves each entry with this probability, by this much (in logarithms); by more where no other
# level binds.  Least gain of a step of a descent along kinks.
_HOP_SHARE, _HOP_SIZE, _LONG_HOP = 0.3, 1.0, 2.0
KINKED_TOLERANCE = 1e-3


@dataclass(frozen=True)
class Problem:
    """Everything that the objective at a level depends on, except ``theta``.

    ``sigma`` maps ``theta`` [K, P] to standard deviations [K, n] of the points whose residuals
    are ``r`` [n]: calibration points, or training points left out one at a time.
    """

    family: Family
    objective: Objective
    sigma: Callable[[Tensor], Tensor]
    r: Tensor


@dataclass
class Budget:
    """How many evaluations are left, and how many of them failed numerically."""

    left: int
    used: int = 0
    failed: int = 0


def rounds(first: int, effort: int) -> list[int]:
    """Evaluations that each unit of effort after the first adds.

    Examples
    --------
    >>> rounds(60, effort=3)
    [180, 720]
    """
    return [(EFFORT_FACTOR - 1) * first * EFFORT_FACTOR**k for k in range(effort - 1)]


def descend(
    evaluate: Evaluate,
    start: np.ndarray,
    lower: np.ndarray,
    upper: np.ndarray,
    *,
    budget: Budget,
    max_evaluations: int,
    tolerance: float,
    kinked: bool = False,
) -> None:
    """Bounded L-BFGS from ``start``; returns nothing, as ``evaluate`` keeps all visits.

    A point where the covariance cannot be factorised gets a very high objective, not an error: the
    line search then steps back.  ``kinked`` selects the descent for functions with kinks.

    Examples
    --------
    >>> seen = []
    >>> def square(v):
    ...     seen.append(float(v[0]))
    ...     return float(v @ v), 2 * v
    >>> one = np.ones(1)
    >>> descend(
    ...     square, 2 * one, -one, 3 * one, budget=Budget(50), max_evaluations=20, tolerance=1e-9
    ... )
    >>> abs(min(seen, key=abs)) < 1e-6
    True
    """
    allowed = min(max_evaluations, budget.left)
    if allowed < 1:
        return
    if kinked:
        found = minimise_kinked(evaluate, start, lower, upper, most=allowed, tolerance=tolerance)
    else:
        found = minimise(evaluate, start, lower, upper, most=allowed, tolerance=tolerance, maxls=8)
    budget.left -= found.evaluations
    budget.used += found.evaluations
    budget.failed += len(found.failures)


def price(log_ratio: Tensor) -> Tensor:
    """Cost of a level, by the log ratio of its objective to ``theta_R``'s.

    The log ratio itself, bounded below, so that one level cannot outweigh all others; times four
    above 0, so that a level gets worse only if others gain a lot by it.

    Examples
    --------
    >>> price(torch.tensor([-5.0, -0.5, 0.1])).tolist()
    [-3.0, -0.5, 0.4000000059604645]
    """
    return log_ratio.clamp(min=LOWEST_LOG_RATIO) + _PENALTY * log_ratio.clamp(min=0.0)


@dataclass(frozen=True)
class Solution:
    """``theta`` of each level, how it was found, and the candidates that it was chosen from.

    Attributes
    ----------
    theta : Tensor [K, P]
    passed : list of Tensor [K, P]
        Those of ``theta_R``, and of each unit of effort of each start.
    evaluations : array [K]
        Charged to each level.
    budget : Budget
        Evaluations used in total.
    """

    theta: Tensor
    passed: list[Tensor]
    evaluations: np.ndarray
    budget: Budget


def mean_log_ratio(log_ratio: np.ndarray) -> float:
    """What decides between paths: the mean over levels of the log of objective over RK's.

    Each of the ``log_ratio`` [K] counts at least -3, as close to ``delta_0`` objectives may vanish.

    Examples
    --------
    >>> mean_log_ratio(np.array([-0.5, 0.1, -9.0]))
    -1.1333333333333333
    """
    return float(log_ratio.clip(min=LOWEST_LOG_RATIO).mean())


@dataclass
class Visited:
    """Visited points ``v`` [n, P'], with log objective ratio and signed ``beta`` [n, K]."""

    v: list[np.ndarray] = field(default_factory=list)
    log_ratio: list[np.ndarray] = field(default_factory=list)
    beta: list[np.ndarray] = field(default_factory=list)

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

    def keep(self, rows: list[int]) -> None:
        """Forget all other points."""
        for name in ("v", "log_ratio", "beta"):
            setattr(self, name, [getattr(self, name)[row] for row in rows])


class LevelSearch:
    """Searches ``theta`` for groups of levels, and keeps every point that it visits.

    One evaluation of ``sigma(theta)`` gives the objective of every level, as the same scores serve
    them all.

    Parameters
    ----------
    problem : Problem
    delta : Tensor [K]
    sign : int
        Sign that ``beta`` should have at these levels.
    weights : array [K]
        How much each level counts in a search of several.
    """

    def __init__(self, problem: Problem, delta: Tensor, sign: int, weights: np.ndarray) -> None:
        self.problem = problem
        self.delta = delta
        self.sign = sign
        self.visited = Visited()
        self.on_plateau = False
        self.weights = weights
        self.evaluations = np.zeros(len(delta), dtype=int)
        self._log_base: dict[Quantile, Tensor] = {}
        self.visit(problem.family.start, smoothed=True)

    def from_theta_R(self, group: list[int], budget: Budget, most: int) -> None:
        """Search a group of levels from ``theta_R``.

        A barely trained ``theta_R`` can lie on a plateau, where noise dominates and no entry of
        ``theta`` matters.  A search that finds nothing continues from a typical ``theta``.
        """
        family = self.problem.family
        self.run(group, family.start, family.lower, family.upper, budget, most, 1e-4)
        gain = np.array(self.visited.log_ratio) @ self.weights_of(group)
        self.on_plateau = bool(gain.min() > STALLED)
        if self.on_plateau:
            start = family.second_start
            self.run(group, start, family.lower, family.upper, budget, most, 1e-4)

    def elsewhere(self, rng: np.random.Generator) -> np.ndarray:
        """A random start around ``theta_R``."""
        start = self.problem.family.start
        return start + rng.normal(0.0, 1.0, len(start))

    def hop(
        self,
        group: list[int],
        lower: np.ndarray,
        upper: np.ndarray,
        budget: Budget,
        most: int,
        rng: np.random.Generator,
        *,
        kinked: bool = False,
    ) -> None:
        """Search a group of levels from the best point in a box, with some of its entries moved.

        The objective has a kink wherever two z-scores change places, and many minima.  Descents
        from near a good one find better ones sooner than random starts.
        """
        start, _ = self.visited.best_inside(lower, upper, self.weights_of(group))
        moved = rng.random(len(start)) < _HOP_SHARE
        moved[rng.integers(len(start))] = True
        size = _LONG_HOP if kinked else _HOP_SIZE
        start = start + moved * rng.normal(0.0, size, len(start))
        tolerance = KINKED_TOLERANCE if kinked else 1e-4
        self.run(group, start, lower, upper, budget, most, tolerance, kinked=kinked)

    def run(
        self,
        group: list[int],
        start: np.ndarray,
        lower: np.ndarray,
        upper: np.ndarray,
        budget: Budget,
        most: int,
        tolerance: float,
        *,
        smoothed: bool = False,
        kinked: bool = False,
    ) -> None:
        """Search a group of levels inside a box, by their smoothed objectives.

        With ``kinked``, more evaluations follow the kinks of a level that is searched alone.
        """
        weights = torch.from_numpy(self.weights_of(group)).to(self.delta)
        used = budget.used

        def penalised(v: np.ndarray) -> tuple[float, np.ndarray]:
            leaf, values = self.visit(v, smoothed=smoothed)
            total = price(values) @ weights
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
            kinked=kinked,
        )
        self.evaluations[group[-1]] += budget.used - used

    def weights_of(self, group: list[int]) -> np.ndarray:
        """Weights [K] of the levels in a search of some of them."""
        weights = np.zeros(len(self.delta))
        weights[group] = self.weights[group] / self.weights[group].sum()
        return weights

    def visit(self, v: np.ndarray, *, smoothed: bool = False) -> tuple[Tensor, Tensor]:
        """Search leaf [P'] and log of (objective / objective at theta_R) [K].

        Kept objectives are never smoothed.
        """
        problem = self.problem
        leaf = torch.tensor(v, dtype=torch.float64, device=problem.r.device, requires_grad=True)
        sigma = problem.sigma(problem.family.theta(leaf).unsqueeze(0))
        values, beta = self._log_ratio(sigma, q_lin)
        self.visited.v.append(np.array(v))
        self.visited.log_ratio.append(values.detach().cpu().numpy())
        self.visited.beta.append(self.sign * beta.detach().cpu().numpy())
        return leaf, self._log_ratio(sigma, smooth_quantile)[0] if smoothed else values

    def _log_ratio(self, sigma: Tensor, quantile: Quantile) -> tuple[Tensor, Tensor]:
        """Log of (objective / objective at theta_R) and ``beta`` [K]."""
        value, beta = self.problem.objective(self.delta, self.problem.r, sigma, quantile)
        log_value = value.clamp_min(1e-300).log()
        # The first sigma that a search sees is that of theta_R.
        base = self._log_base.setdefault(quantile, log_value.detach())
        return log_value - base, beta
