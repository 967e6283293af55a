"""Evidence for what ``exact`` and ``cv`` search ``theta`` with: objective, family and shrinkage.

For each data set (of the benchmark or of :mod:`sharpgp_benchmarks.extra_sets`), number of training
points and seed, a GP is trained, ``theta`` is searched on its leave-one-out residuals with each
setting, ``beta`` is read off a third as many calibration points, and the rest of the rows (at most
1,000) judge. The table has, relative to ``theta_R`` with the same ``beta`` rule (RK), geometric
means over everything of the mean pinball loss of eight levels and of the width between the levels
0.025 and 0.975, with its coverage, and the share of cases with a loss above RK's.
"""

import joblib
import numpy as np
import torch
from torch import Tensor

from sharpgp._ranks import q_lin
from sharpgp.calibration.methods.sharp.path import solve_path
from sharpgp.exceptions import InvalidInputError
from sharpgp.gp import train
from sharpgp.gp.posterior import Posterior
from sharpgp.models.families import FAMILIES
from sharpgp.models.objective import OBJECTIVES
from sharpgp.models.search import Problem
from sharpgp.models.shared_search import solve_shared
from sharpgp.models.spread_choice import SEARCH_LEVELS
from sharpgp_benchmarks.datasets import Dataset
from sharpgp_benchmarks.evidence.common import Part, calm, cut, numbers, sets

SHRINKAGES = (0.0, 0.003, 0.03)
SETTINGS = [
    (objective, family, shrinkage)
    for objective in OBJECTIVES
    for family in ("shared", "scaled", "ard")
    for shrinkage in SHRINKAGES
]
#: Rows that have to be left to judge by.
LEAST_TEST = 50


def searched(
    posterior: Posterior, objective: str, family: str, shrinkage: float, delta: Tensor
) -> Tensor:
    """``theta`` [K, P] from leave-one-out residuals of the training points alone."""
    with torch.no_grad():
        mean, _ = posterior.loo(posterior.theta_R.unsqueeze(0))
    r = posterior.y_train - mean[0]
    unit = r.abs().mean()
    problem = Problem(
        FAMILIES[family](posterior),
        OBJECTIVES[objective],
        lambda theta: posterior.loo(theta)[1] / unit,
        r / unit,
        shrinkage=shrinkage,
    )
    if family == "ard":
        return solve_path(problem, delta).theta
    return solve_shared(problem, delta)[0]


def judge(
    posterior: Posterior, theta: Tensor, delta: Tensor, cal: Part, test: Part
) -> tuple[float, float, float]:
    """Pinball loss on the test part, width and coverage between the outermost levels."""
    with torch.no_grad():
        r = cal[1] - posterior.mean(cal[0])
        z = r / posterior.sigma(theta, cal[0])
        beta = q_lin(delta, z.expand(len(delta), -1))
        offset = beta.unsqueeze(-1) * posterior.sigma(theta, test[0])
        error = test[1] - posterior.mean(test[0]) - offset
    loss = (error * (delta.unsqueeze(-1) - (error < 0).to(error))).mean()
    inside = (error[0] >= 0) & (error[-1] <= 0)
    return float(loss), float((offset[-1] - offset[0]).mean()), float(inside.double().mean())


def compare(data: Dataset, n: int, seed: int) -> tuple[float, np.ndarray]:
    """RK's coverage; loss and width relative to RK's, and coverage, of all settings [S, 3]."""
    delta = torch.tensor(SEARCH_LEVELS, dtype=torch.float64)
    if len(data.y) < n + n // 3 + LEAST_TEST:
        raise InvalidInputError(
            f"sizes: expected {n + n // 3 + LEAST_TEST} rows, found {len(data.y)} in {data.name}"
        )
    fit, *held_out = cut(data, seed, [n, n // 3, 1000])
    found = []
    with calm():
        posterior, _ = train(*fit)
        theta_R = posterior.theta_R.unsqueeze(0)
        loss, width, coverage = judge(posterior, theta_R, delta, *held_out)
        for setting in SETTINGS:
            theta = searched(posterior, *setting, delta)
            theirs = judge(posterior, theta, delta, *held_out)
            found.append((theirs[0] / loss, theirs[1] / width, theirs[2]))
    return coverage, np.array(found)


def main(
    datasets: str = "boston,yacht,mpg,wine,concrete,kin8nm,facebook1",
    sizes: str = "120,180",
    seeds: int = 2,
    workers: int = 1,
    data_home: str | None = None,
) -> None:
    """Print the table; ``--sizes`` are numbers of training points."""
    cases = [
        (data, n, seed)
        for data in sets(datasets, data_home)
        for n in numbers(sizes)
        for seed in range(seeds)
    ]
    done = joblib.Parallel(n_jobs=workers)(joblib.delayed(compare)(*case) for case in cases)
    reference, rows = np.array([c for c, _ in done]), np.array([found for _, found in done])
    print(f"{len(cases)} cases; RK covers {reference.mean():.1%}")
    print("objective  family  shrinkage   loss  width  coverage  worse than RK")
    for (objective, family, shrinkage), found in zip(
        SETTINGS, rows.transpose(1, 2, 0), strict=True
    ):
        loss, width, coverage = found
        print(
            f"{objective:9s}  {family:6s}  {shrinkage:9g}  {np.exp(np.log(loss).mean()):.3f}  "
            f"{np.exp(np.log(width).mean()):.3f}  {coverage.mean():8.1%}  {(loss > 1).mean():13.0%}"
        )
