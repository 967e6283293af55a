r"""Monotone paths ``theta(delta)``: hyperparameters that only grow outward from ``delta_0``.

On either side of the level ``delta_0`` where ``beta`` changes sign, ``theta`` and ``|beta|`` may
only grow outward; then quantiles cannot cross.  Each side is searched on its own, from ``theta_R``
and from as many other starts as there are restarts (:mod:`.side`).  Each start gives a path after
each unit of effort, and the one with the lowest :func:`mean_log_ratio` is taken.  More restarts or
effort repeat a smaller search and continue it: its paths stay candidates, and none can be worse.
"""

from dataclasses import dataclass
from typing import Annotated

import numpy as np
import torch
from torch import Tensor

from sharpgp._stored import Array, stored
from sharpgp.calibration.methods.sharp.search.level_search import (
    LEAST_EVALUATIONS,
    Budget,
    Problem,
    Solution,
    mean_log_ratio,
    rounds,
)
from sharpgp.calibration.methods.sharp.side import EVALUATIONS_SINGLE_LEVEL, Side, share_of_gap

#: Evaluations per level of the first pass, and for both sides: 25 levels may use 400.
EVALUATIONS_PER_LEVEL = 16
MOST_EVALUATIONS = 400
# Smallest weight of a level, so that even a single one at delta_0 can be searched.
_LEAST_WEIGHT = 1e-3


@stored("LevelResult")
@dataclass(frozen=True)
class LevelResult:
    """What the search found for one level.

    ``status`` is ``"optimised"`` (sharper than ``theta_R``), ``"base"`` (``theta_R`` kept) or
    ``"neighbour"`` (the outer neighbour's ``theta``, to keep ``|beta|`` in order).
    ``evaluations`` of a group searched together are charged to its outermost level, so that they
    add up to the total.  Objectives are in units of the mean absolute residual.  ``jitter``: what
    the covariance needed to be factorised, relative to its diagonal; mostly 0.
    """

    delta: float
    beta: float
    theta: Annotated[Tensor, Array("P")]
    objective: float
    objective_base: float
    evaluations: int
    status: str
    jitter: float = 0.0


def level_weights(delta: Tensor, centre: float, n_scores: int) -> np.ndarray:
    r"""Weight [K] of the log ratio of each level's objective.

    Close to ``delta_0``, ``beta`` is proportional to ``delta - delta_0``, and a rank of ``C``
    scores has the standard error ``sqrt(delta (1 - delta) / C)``.  So ``log beta^2``, and with it
    the log ratio, has the variance ``s^2 = 4 delta (1 - delta) / (C (delta - delta_0)^2)`` by
    chance alone; its weight is ``1 / (1 + s^2)``.  Where levels are many, those between two knots
    have the weight of one level together (:func:`.side.share_of_gap`): a path of all levels then
    minimises much the same quantity as one of the default grid.

    Examples
    --------
    >>> delta = torch.tensor([0.52, 0.6, 0.95], dtype=torch.float64)
    >>> level_weights(delta, 0.5, 100).round(2).tolist()
    [0.04, 0.51, 0.99]
    """
    square = (delta - centre).square()
    weights = square / (square + 4.0 * delta * (1.0 - delta) / n_scores)
    found: np.ndarray = weights.clamp(min=_LEAST_WEIGHT).cpu().numpy()
    for side in (delta < centre, delta >= centre):
        chosen = side.cpu().numpy()
        found[chosen] *= share_of_gap(delta.cpu().numpy()[chosen])
    return found


def centre_of(r: Tensor) -> float:
    """``delta_0``, where ``beta`` changes sign: the share of negative residuals."""
    return (int((r < 0).sum()) + 0.5) / (len(r) + 1)


@dataclass(frozen=True)
class Half:
    """Levels of one side of ``delta_0``, and the inputs of their search.

    Attributes
    ----------
    index : Tensor [K']
        Positions of these levels among all levels, from the centre to the tail.
    sign : int
        Of ``beta`` at these levels.
    weights : array [K']
        How much each of them counts.
    evaluations : int
        What the first pass may use.
    """

    index: Tensor
    sign: int
    weights: np.ndarray
    evaluations: int

    def side(self, problem: Problem, delta: Tensor) -> Side:
        """A search of these levels that has not begun."""
        return Side(problem, delta[self.index], self.sign, self.weights)


def halves(problem: Problem, delta: Tensor) -> list[Half]:
    """The levels ``delta`` below and above ``delta_0``; empty sides are left out."""
    with torch.no_grad():
        start = problem.family.theta_R.unsqueeze(0)
        _, beta = problem.objective(delta, problem.r, problem.sigma(start))
    weights = level_weights(delta, centre_of(problem.r), len(problem.r))
    first = min(MOST_EVALUATIONS, EVALUATIONS_PER_LEVEL * len(delta))
    found = []
    for sign in (-1, 1):
        index = ((beta >= 0) if sign > 0 else (beta < 0)).nonzero().squeeze(-1)
        if len(index) == 0:
            continue
        if sign < 0:
            index = index.flip(0)
        share = round(first * len(index) / len(delta))
        share = EVALUATIONS_SINGLE_LEVEL if len(index) == 1 else max(LEAST_EVALUATIONS, share)
        found.append(Half(index, sign, weights[index.cpu().numpy()], share))
    return found


def solve_path(
    problem: Problem, delta: Tensor, *, restarts: int = 0, effort: int = 1, seed: int = 0
) -> Solution:
    """``theta`` [K, P] for increasing levels ``delta``, monotone outward from ``delta_0``."""
    theta = problem.family.theta_R.expand(len(delta), -1).clone()
    passed = [theta.clone() for _ in range(1 + (restarts + 1) * effort)]
    evaluations, whole = np.zeros(len(delta), dtype=int), Budget(0)
    for half in halves(problem, delta):
        best = 0.0  # that of theta_R
        for restart in range(restarts + 1):
            rng = np.random.default_rng([seed, half.sign + 1, restart])
            side = half.side(problem, delta)
            start = side.search.elsewhere(rng) if restart else None
            first = half.evaluations
            for stage, more in enumerate([first, *rounds(first, effort)]):
                budget = Budget(more)
                if stage == 0:
                    side.first_pass(budget, rng, start)
                else:
                    side.go_on(budget, rng)
                whole.used, whole.failed = whole.used + budget.used, whole.failed + budget.failed
                found = passed[1 + restart * effort + stage]
                found[half.index] = _theta(problem, side)
                if (value := mean_log_ratio(side.log_ratio)) < best:
                    best, theta[half.index] = value, found[half.index]
            evaluations[half.index.cpu().numpy()] += side.search.evaluations
    return Solution(theta, passed, evaluations, whole)


def _theta(problem: Problem, side: Side) -> Tensor:
    """``theta`` [K, P] along the path of a side; that of ``theta_R`` to the last bit."""
    theta_R = problem.family.theta_R
    rows = [
        theta_R if base else problem.family.theta(torch.from_numpy(v).to(theta_R))
        for v, base in zip(side.v, side.at_theta_R, strict=True)
    ]
    return torch.stack(rows)


def objective_of(problem: Problem, delta: Tensor, theta: Tensor) -> float:
    """:func:`mean_log_ratio` of a path [K, P], put in order; 0 is that of ``theta_R``."""
    with torch.no_grad():
        base = problem.sigma(problem.family.theta_R.unsqueeze(0))
        value_base, _ = problem.objective(delta, problem.r, base)
        _, _, value, _ = keep_order(problem, delta, theta)
    log_ratio = value.clamp_min(1e-300).log() - value_base.clamp_min(1e-300).log()
    return mean_log_ratio(log_ratio.cpu().numpy())


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
