"""What the choice among the GPs of an optimisation is worth, by what the smoother kernel costs.

Random designs of functions that are not among the problems of ``sharpgp bench bo``, and 300 further
points: the negative log density of these under the candidate that leave-one-out densities of the
design choose, less that of the candidate which would have been best, in nats for each point, and
how often the choice falls on which.  The cost of a warp stays as it is.
"""

import math
from collections import Counter
from itertools import product

import numpy as np
import torch
from torch import Tensor

from sharpgp.bo.small_sample import ScoreLaw, SmallSamplePredictor
from sharpgp.bo.surrogate import COST, KERNELS, Surrogate, left_out_density, trained
from sharpgp.gp.kernels.by_name import make_covariance
from sharpgp_benchmarks.evidence.bo_surprises import FUNCTIONS
from sharpgp_benchmarks.evidence.common import numbers
from sharpgp_benchmarks.evidence.run import header, measured, row

COSTS = (0.0, 2.0, 4.0, 8.0, math.inf)
NEW = 300
#: Squared scores count for no more: one point must not decide.
_MOST = 64.0

#: Leave-one-out density of a design, and negative log density of new points, by candidate.
Judged = dict[tuple[str, bool], tuple[float, float]]


def main(functions: str = ",".join(FUNCTIONS), points: str = "12,20,35", seeds: int = 3) -> None:
    """Print a line for each cost."""
    designs = product(functions.split(","), numbers(points), range(seeds))
    cases = [
        {(kernel, warp): (density, loss) for kernel, warp, density, loss in found}
        for found in measured(judge, list(designs))
    ]
    print(f"{len(cases)} designs; nats lost for each new point\n")
    header("cost of rbf", "mean", "median", "chosen")
    for cost in COSTS:
        lost, chosen = [], Counter[str]()
        for case in cases:
            kernel, warp = max(
                case, key=lambda one: case[one][0] - COST * one[1] - _cost(one[0], cost)
            )
            lost.append(case[kernel, warp][1] - min(loss for _, loss in case.values()))
            chosen[kernel + " warped" * warp] += 1
        shown = ", ".join(f"{name} {count}" for name, count in chosen.most_common())
        row(f"{cost:g}", f"{np.mean(lost):.2f}", f"{np.median(lost):.2f}", shown)


def _cost(kernel: str, cost: float) -> float:
    return cost if kernel == "rbf" else 0.0


def judge(name: str, n: int, seed: int) -> list[tuple[str, bool, float, float]]:
    """Kernel, whether warped, density of points left out and loss at new ones, of each GP."""
    problem = FUNCTIONS[name]()
    generator = torch.Generator().manual_seed(2000 + seed)
    U = torch.rand(n + NEW, problem.d, generator=generator, dtype=torch.float64)
    lower, upper = problem.bounds
    y = problem.function(lower + U * (upper - lower))
    found = []
    for kernel, warp in product(KERNELS, (False, True)):
        gp = trained(U[:n], y[:n], make_covariance(kernel, problem.d), warped=warp)
        if gp is not None:
            loss = _loss(Surrogate(gp, n), U[n:], y[n:])
            found.append((kernel, warp, left_out_density(gp), loss))
    return found


def _loss(surrogate: Surrogate, U: Tensor, y: Tensor) -> float:
    """Mean negative log density of targets, up to a constant."""
    with torch.no_grad():
        law = ScoreLaw(torch.zeros(0, dtype=torch.float64))
        mean, deviation = SmallSamplePredictor(surrogate.gp, law).moments(U)
    target = y.clone().requires_grad_()
    inner = surrogate.inward(target)
    slope = torch.autograd.grad(inner.sum(), target)[0]
    z = ((inner - mean) / deviation).detach()
    return float((z.square().clamp(max=_MOST) / 2 + deviation.log() - slope.log()).mean())
