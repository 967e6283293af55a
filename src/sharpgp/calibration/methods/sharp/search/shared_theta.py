"""One ``theta`` for all levels: the search behind a learned spread."""

import numpy as np
import torch
from torch import Tensor

from sharpgp.calibration.methods.sharp.search.level_search import (
    LEAST_EVALUATIONS,
    Budget,
    LevelSearch,
    Problem,
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
) -> tuple[Tensor, np.ndarray, Budget]:
    """One ``theta`` for all levels: the mean log objective over levels is minimised.

    More effort and restarts continue a smaller search, and the best point overall is taken, so that
    more can only help.

    Returns ``theta`` [K, P], one row for each level, the evaluations charged to each level, and the
    spent budget.
    """
    near = (delta - 0.5).abs().cpu().numpy() < _CENTRE
    search = LevelSearch(problem, delta, 1, np.where(near, _CENTRE_WEIGHT, 1.0))
    everything, family = list(range(len(delta))), problem.family
    budget = Budget(most)
    search.from_theta_R(everything, budget, most)
    rng = np.random.default_rng([seed, 0])
    for more in rounds(most, effort):
        budget.left += more
        while budget.left > 0:
            search.hop(everything, family.lower, family.upper, budget, most, rng)
    for restart in range(restarts):
        budget.left = most
        start = search.elsewhere(np.random.default_rng([seed, 1, restart]))
        search.run(everything, start, family.lower, family.upper, budget, most, 1e-4)
    visited = search.visited
    score = np.array(visited.log_ratio) @ search.weights_of(everything)
    score += [float(search.shrinkage(torch.from_numpy(v))) for v in visited.v]
    best = int(score.argmin())
    theta = theta_R = problem.family.theta_R
    if best:
        theta = problem.family.theta(torch.from_numpy(visited.v[best]).to(theta_R))
    return theta.expand(len(delta), -1).clone(), search.evaluations, budget
