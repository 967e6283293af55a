"""One ``theta`` for all levels: the search behind a learned spread."""

import numpy as np
import torch
from torch import Tensor

from sharpgp.calibration.methods.sharp.search.level_search import (
    LEAST_EVALUATIONS,
    Budget,
    LevelSearch,
    Problem,
    Solution,
    mean_log_ratio,
    rounds,
)

# Levels this close to delta_0 have objectives near zero, where ratios are mostly noise.
_CENTRE, _CENTRE_WEIGHT = 0.1, 0.25


def solve_shared(
    problem: Problem,
    delta: Tensor,
    *,
    restarts: int = 0,
    effort: int = 1,
    seed: int = 0,
    most: int = LEAST_EVALUATIONS,
) -> Solution:
    """One ``theta`` for all levels, with the lowest :func:`mean_log_ratio` of all points visited.

    More effort and restarts continue a smaller search, so that more can only help.
    """
    near = (delta - 0.5).abs().cpu().numpy() < _CENTRE
    search = LevelSearch(problem, delta, 1, np.where(near, _CENTRE_WEIGHT, 1.0))
    everything, family = list(range(len(delta))), problem.family
    theta_R, first, budget = family.theta_R, 0, Budget(most)
    passed = [(0.0, theta_R.expand(len(delta), -1).clone())]

    def stop() -> None:
        """Keep the best point since the last stop."""
        nonlocal first
        log_ratio = search.visited.log_ratio
        best = min(range(first, len(log_ratio)), key=lambda k: mean_log_ratio(log_ratio[k]))
        theta = theta_R
        if best:
            theta = family.theta(torch.from_numpy(search.visited.v[best]).to(theta_R))
        passed.append((mean_log_ratio(log_ratio[best]), theta.expand(len(delta), -1).clone()))
        first = len(log_ratio) - 1  # a search without a budget visits nothing

    search.from_theta_R(everything, budget, most)
    stop()
    rng = np.random.default_rng([seed, 0])
    for more in rounds(most, effort):
        budget.left += more
        while budget.left > 0:
            search.hop(everything, family.lower, family.upper, budget, most, rng)
        stop()
    for restart in range(restarts):
        budget.left = most
        start = search.elsewhere(np.random.default_rng([seed, 1, restart]))
        search.run(everything, start, family.lower, family.upper, budget, most, 1e-4)
        stop()
    _, theta = min(passed, key=lambda one: one[0])
    return Solution(theta, [path for _, path in passed], search.evaluations, budget)
