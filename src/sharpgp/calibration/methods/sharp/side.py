r"""The search of one side of ``delta_0``: a monotone path, from its centre to its tail.

1. One evaluation of ``sigma(theta)`` gives the objective of *every* level, because the same
   z-scores serve them all.  So every ``theta`` that any search visits is kept.
2. The best monotone path through these is a shortest path (dynamic programming over levels).  A
   path of ``theta_R`` alone is one of them.  Points are only added, so a longer search can only
   find a better path.
3. Searching groups of levels from coarse to fine (all levels of a side, then halves, quarters,
   ... single levels), each inside the box that its neighbours leave, avoids the trap of a greedy
   order: one noisy tail level binding all others.
4. With many levels, only some of them, the knots, are searched; between two knots the path follows
   the line that joins them.  See :meth:`Side.fill` for why such a path exists.
"""

from itertools import pairwise

import numpy as np
import torch
from torch import Tensor

from sharpgp.calibration.methods.sharp.search.level_search import (
    KINKED_TOLERANCE,
    STALLED,
    Budget,
    LevelSearch,
    Problem,
    Visited,
    price,
)
from sharpgp.calibration.ranks import DEFAULT_GRID
from sharpgp.exceptions import NumericalError
from sharpgp.gp.optimise import minimise

# Evaluations allowed to each search by depth: whole side, halves, quarters, ...
_EVALUATIONS = (30, 12, 10, 8, 6)
# Evaluations for a single level: its smoothed objective, and each descent of the objective itself.
_SMOOTHED, _DESCENT = 30, 60
#: Evaluations of the first pass for a single level: two such levels may use as many as 25.
EVALUATIONS_SINGLE_LEVEL = 200
# Levels of a side that are searched; 25 levels have 13 a side.
_MOST_KNOTS = 16
# Points on the line between two knots, evaluations of a search between them, and rounds that halve
# the remaining steps of the path.
_BETWEEN, _HALVINGS = 8, 3
# Most points that a level may use to find its place on the line between two knots.
_BISECTIONS = 12
# Iterations of a joint descent, each as many evaluations as there are knots.
_JOINT_ITERATIONS = 25
# Points that a side keeps; the time of a shortest path is quadratic in them.
_MOST_KEPT = 300


def shortest_path(
    visited: Visited,
    weights: np.ndarray,
    levels: np.ndarray | None = None,
) -> tuple[list[int], float]:
    """The best monotone path: index of a visited point for each level, and its weighted price.

    Parameters
    ----------
    visited : Visited
        The first point is ``theta_R``, which may be used at every level.
    weights : array [K]
    levels : array of int, optional
        Levels of the path, from centre to tail; all by default.
    """
    levels = np.arange(len(weights)) if levels is None else levels
    v = np.array(visited.v)
    gain, beta = np.array(visited.log_ratio)[:, levels], np.array(visited.beta)[:, levels]
    cost = np.where(beta >= 0, price(torch.from_numpy(gain)).numpy() * weights[levels], np.inf)
    cost[0] = 0.0
    grows = np.ones((len(v), len(v)), dtype=bool)
    if len(levels) > 1:
        for entry in v.T:
            grows &= entry[:, None] <= entry + 1e-12
    total, back = cost[:, 0].copy(), []
    for k in range(1, len(levels)):
        allowed = grows & (beta[:, k - 1, None] <= beta[None, :, k])
        reach = np.where(allowed, total[:, None], np.inf)
        best = reach.argmin(0)
        back.append(best)
        total = reach[best, np.arange(len(best))] + cost[:, k]
    entry = int(total.argmin())
    path, price_of_all = [entry], float(total[entry])
    for best in reversed(back):
        entry = int(best[entry])
        path.append(entry)
    return path[::-1], price_of_all


def knots_of(delta: np.ndarray) -> np.ndarray:
    """Which of the levels, increasing or decreasing, to search: all, or some if there are many.

    These are the levels closest to those of the default grid, so that "all" levels and the grid are
    searched alike.  Ranges that the grid hardly covers have knots of their own, denser in the tail.

    Examples
    --------
    >>> knots_of(np.linspace(0.5, 0.98, 5)).tolist()
    [0, 1, 2, 3, 4]
    >>> knots_of(np.linspace(0.51, 0.99, 49)).tolist()
    [0, 4, 9, 14, 19, 24, 29, 34, 39, 44, 46, 48]
    """
    if len(delta) <= _MOST_KNOTS:
        return np.arange(len(delta))
    grid = np.array([*DEFAULT_GRID, *(1.0 - level for level in DEFAULT_GRID)])
    wanted = grid[(grid >= delta.min()) & (grid <= delta.max())]
    if len(np.unique(wanted)) < _MOST_KNOTS // 2:
        angle = np.arcsin(np.sqrt(delta))
        wanted = np.sin(np.linspace(angle[0], angle[-1], _MOST_KNOTS)) ** 2
    # Rounded, so that ties go to the first one on any machine.
    nearest = [int(np.abs(delta - one).round(9).argmin()) for one in wanted]
    return np.unique([0, *nearest, len(delta) - 1])


def share_of_gap(delta: np.ndarray) -> np.ndarray:
    """Weight [K] of each level of a side: 1 for a knot, and 1 in total for those between two knots.

    Examples
    --------
    >>> share_of_gap(np.linspace(0.51, 0.99, 49))[:6].round(2).tolist()
    [1.0, 0.33, 0.33, 0.33, 1.0, 0.25]
    """
    share = np.ones(len(delta))
    for first, last in pairwise(knots_of(delta)):
        share[first + 1 : last] /= max(last - first - 1, 1)
    return share


class Side:
    """The path of one side, and the search for it.

    Parameters
    ----------
    problem : Problem
    delta : Tensor [K]
        Levels from the centre to the tail.
    sign : int
        Of ``beta`` on this side.
    weights : array [K]
        How much each level counts.
    """

    def __init__(self, problem: Problem, delta: Tensor, sign: int, weights: np.ndarray) -> None:
        self.search = LevelSearch(problem, delta, sign, weights)
        self.knots = knots_of(delta.cpu().numpy())
        self._coarse = [0] * len(self.knots)
        #: The path: a visited point for each level, and what they cost.
        self.path, self.price = [0] * len(delta), 0.0

    @property
    def v(self) -> np.ndarray:
        """Search variables [K, P'] along the path."""
        return np.array(self.search.visited.v)[self.path]

    @property
    def log_ratio(self) -> np.ndarray:
        """Log of (objective / objective at theta_R) of each level [K] along the path."""
        found: np.ndarray = np.array(self.search.visited.log_ratio)[self.path].diagonal()
        return found

    @property
    def at_theta_R(self) -> np.ndarray:
        """Whether each level of the path is at ``theta_R`` [K]."""
        return np.array(self.path) == 0

    def first_pass(
        self, budget: Budget, rng: np.random.Generator, start: np.ndarray | None = None
    ) -> None:
        """From coarse to fine, from ``theta_R`` or from another start."""
        groups = [list(range(len(self.knots)))]
        if len(self.knots) == 1:
            self._search_single(start, budget, rng)
        elif start is None:
            self.search.from_theta_R(self._levels(groups[0]), budget, _EVALUATIONS[0])
        else:
            levels, ends = self._levels(groups[0]), self._box(groups[0])
            self.search.run(levels, start, *ends, budget, _EVALUATIONS[0], 1e-4)
        self._update()
        depth = 0
        while len(groups) < len(self.knots) and budget.left > 0:
            depth = min(depth + 1, len(_EVALUATIONS) - 1)
            groups = [half for group in groups for half in _halves(group)]
            # Alternate the direction, so that neither the centre nor the tail always goes first.
            for group in groups if depth % 2 else reversed(groups):
                self._refine(group, budget, _EVALUATIONS[depth])
        self.fill(budget)

    def go_on(self, budget: Budget, rng: np.random.Generator) -> None:
        """Spend a budget: all knots jointly, then hops of random groups of them."""
        n = len(self.knots)
        if n > 1:
            self._search_jointly(budget)
        while budget.left > 0:
            first = int(rng.integers(n))
            group = list(range(first, first + int(rng.integers(1, n - first + 1))))
            lower, upper = self._box(group)
            if (upper - lower < 1e-9).all():
                budget.left -= 1
                continue
            most = _DESCENT if n == 1 else _EVALUATIONS[1]
            levels = self._levels(group)
            self.search.hop(levels, lower, upper, budget, most, rng, kinked=n == 1)
            self._update()
        self.fill(budget)

    def fill(self, budget: Budget) -> None:
        r"""Points for the levels between knots, and the best path of all levels.

        Let two knots have ``theta_a <= theta_b`` and ``beta_a <= beta_b``.  Where ``sigma`` grows
        with ``theta``, ``beta`` of every level falls along the line ``theta(t)`` between them.
        Going outward, let each level take the largest ``t`` with a ``beta`` not below its inner
        neighbour's: ``t`` only grows, ``beta`` stays at ``beta_a`` until ``t`` is 1, and that is
        so at the outer knot at the latest, as ``beta_b >= beta_a``.  So a path of all levels
        through the same knots exists, however many levels lie between them.
        """
        if len(self.knots) < len(self.path):
            v = self.search.visited.v
            for gap in range(len(self.knots) - 1):
                self._fill_gap(gap, budget)
                self._search_between(gap, budget)
            for _ in range(_HALVINGS):
                self.path, self.price = self._shortest()
                steps = {pair: k for k, pair in enumerate(pairwise(self.path))}
                for (a, b), level in steps.items():
                    if np.abs(v[b] - v[a]).max() > 1e-3:
                        self._visit_for((v[a] + v[b]) / 2.0, level, budget)
        self.path, self.price = self._shortest()

    def _search_single(
        self, start: np.ndarray | None, budget: Budget, rng: np.random.Generator
    ) -> None:
        """A single level: first the smoothed objective, as no other levels smooth it; then hops."""
        search, family = self.search, self.search.problem.family
        start = family.start if start is None else start
        ends = family.lower, family.upper
        search.run([0], start, *ends, budget, _SMOOTHED, 1e-4, smoothed=True)
        start, gain = search.visited.best_inside(*ends, np.ones(1))
        if gain > STALLED:
            start = family.second_start
        search.run([0], start, *ends, budget, _DESCENT, KINKED_TOLERANCE, kinked=True)
        while budget.left > 0:
            search.hop([0], *ends, budget, _DESCENT, rng, kinked=True)

    def _fill_gap(self, gap: int, budget: Budget) -> None:
        """Points on the line between two knots, including a path through both.

        They are the points of the proof in :meth:`fill`.  The ``beta`` of each uses at most its
        share of the distance that remains to the outer knot's.
        """
        visited, (inner, outer) = self.search.visited, self._coarse[gap : gap + 2]
        first, last = self.knots[gap : gap + 2].tolist()
        if inner == outer or last - first < 2:
            return
        start, step = visited.v[inner], visited.v[outer] - visited.v[inner]
        on_line = {0.0: visited.beta[inner], 1.0: visited.beta[outer]}
        for t in np.arange(1, _BETWEEN + 1) / (_BETWEEN + 1):
            on_line[t] = self._visit_for(start + t * step, last, budget)
        reached, most = visited.beta[inner][first], visited.beta[outer][last]
        t = 0.0
        for level in range(first + 1, last):
            enough = reached + (most - reached) / (last - level + 1)
            for _ in range(_BISECTIONS):
                t = max(one for one in on_line if one >= t and on_line[one][level] >= reached)
                above = [one for one in on_line if one > t]
                if not above or on_line[t][level] <= enough:
                    break
                middle = (t + min(above)) / 2.0
                on_line[middle] = self._visit_for(start + middle * step, level, budget)
            reached = on_line[t][level]

    def _search_between(self, gap: int, budget: Budget) -> None:
        """A short search of the levels between two knots, in the box that the knots allow."""
        search, (inner, outer) = self.search, self._coarse[gap : gap + 2]
        levels = list(range(self.knots[gap] + 1, self.knots[gap + 1]))
        lower, upper = search.visited.v[inner], search.visited.v[outer]
        if not levels or (upper - lower < 1e-9).all():
            return
        own = Budget(_BETWEEN)
        start, _ = search.visited.best_inside(lower, upper, search.weights_of(levels))
        search.run(levels, start, lower, np.maximum(lower, upper), own, _BETWEEN, 1e-3)
        budget.used, budget.failed = budget.used + own.used, budget.failed + own.failed

    def _visit_for(self, v: np.ndarray, level: int, budget: Budget) -> np.ndarray:
        """Visit a point, charged to a level but not to the budget.

        Returns ``beta`` of every level, minus infinity where the covariance has no factor.
        """
        budget.used += 1
        self.search.evaluations[level] += 1
        try:
            with torch.no_grad():
                self.search.visit(v)
        except NumericalError:
            budget.failed += 1
            return np.full(len(self.path), -np.inf)
        return self.search.visited.beta[-1]

    def _refine(self, group: list[int], budget: Budget, most: int) -> None:
        lower, upper = self._box(group)
        if budget.left <= 0 or (upper - lower < 1e-9).all():
            return
        search = self.search
        weights = search.weights_of(self._levels(group))
        start, gain = search.visited.best_inside(lower, upper, weights)
        if search.on_plateau and gain > STALLED:
            start = search.problem.family.second_start
        self.search.run(self._levels(group), start, lower, upper, budget, most, 1e-3)
        self._update()

    def _search_jointly(self, budget: Budget) -> None:
        """All knots at once: the first one, and nonnegative steps between neighbours.

        Every point is kept; the shortest path ensures the order of ``beta``.
        """
        search, family = self.search, self.search.problem.family
        shape = len(self.knots), len(family.start)
        most = min(_JOINT_ITERATIONS, budget.left // shape[0])
        if most < 2:
            return
        weights = search.weights[self.knots]
        v = np.array(search.visited.v)[self._coarse]
        start = np.concatenate([v[:1], np.diff(v, axis=0).clip(min=0.0)])
        lower, upper = np.zeros(shape), np.tile(family.upper - family.lower, (shape[0], 1))
        lower[0], upper[0] = family.lower, family.upper

        def evaluate(steps: np.ndarray) -> tuple[float, np.ndarray]:
            path = steps.reshape(shape).cumsum(0)
            total, gradient = 0.0, np.zeros(shape)
            for k, level in enumerate(self.knots):
                budget.left, budget.used = budget.left - 1, budget.used + 1
                search.evaluations[level] += 1
                leaf, values = search.visit(np.minimum(path[k], family.upper))
                cost = weights[k] * price(values[level])
                (slope,) = torch.autograd.grad(cost, leaf)
                total += cost.item()
                gradient[k] = np.where(path[k] <= family.upper, slope.cpu().numpy(), 0.0)
            return total, gradient[::-1].cumsum(0)[::-1].ravel()

        ends = lower.ravel(), upper.ravel()
        found = minimise(evaluate, start.ravel(), *ends, most=most, tolerance=1e-4, maxls=8)
        budget.failed += len(found.failures)
        self._update()

    def _box(self, group: list[int]) -> tuple[np.ndarray, np.ndarray]:
        """Bounds that the neighbours of some knots leave them."""
        v, family, path = self.search.visited.v, self.search.problem.family, self._coarse
        lower = v[path[group[0] - 1]] if group[0] > 0 else family.lower
        upper = v[path[group[-1] + 1]] if group[-1] < len(path) - 1 else family.upper
        return lower, np.maximum(lower, upper)  # paths are ordered only up to rounding

    def _shortest(self, levels: np.ndarray | None = None) -> tuple[list[int], float]:
        return shortest_path(self.search.visited, self.search.weights, levels)

    def _levels(self, group: list[int]) -> list[int]:
        return [int(self.knots[k]) for k in group]

    def _update(self) -> None:
        """The best path of the knots; of all other points, only the best of each level stays."""
        visited = self.search.visited
        self._coarse, _ = self._shortest(self.knots)
        if len(visited.v) <= _MOST_KEPT:
            return
        gain = np.array(visited.log_ratio)[:, self.knots]
        ranked = gain.argsort(0)[: _MOST_KEPT // (2 * len(self.knots))]
        kept = sorted({0, *self._coarse, *self.path, *ranked.ravel().tolist()})
        number = {old: new for new, old in enumerate(kept)}
        self._coarse = [number[entry] for entry in self._coarse]
        self.path = [number[entry] for entry in self.path]
        visited.keep(kept)


def _halves(group: list[int]) -> list[list[int]]:
    middle = len(group) // 2
    return [group] if len(group) == 1 else [group[:middle], group[middle:]]
