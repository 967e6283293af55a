"""Evidence for what ``exact`` and ``cv`` search ``theta`` with: objective, family and shrinkage.

Run with ``python benchmarks/defaults.py --data-home FOLDER``.  For each data set (of the benchmark
or of ``benchmarks/extra_sets.py``), number of training points and seed, a GP is trained, ``theta``
is searched on its leave-one-out residuals with each setting, ``beta`` is read off a third as many
calibration points, and the rest of the rows (at most 1,000) judge.  The table has, relative to
``theta_R`` with the same ``beta`` rule (RK), geometric means over everything of the mean pinball
loss of eight levels and of the width between the levels 0.025 and 0.975, with its coverage, and the
share of cases with a loss above RK's.
"""

import argparse
import multiprocessing
import warnings
from functools import partial

import numpy as np
import torch
from extra_sets import load
from torch import Tensor

from sharpgp.calibration.objective import OBJECTIVES
from sharpgp.calibration.path import Problem, solve_path, solve_shared
from sharpgp.calibration.ranks import q_lin
from sharpgp.calibration.search import FAMILIES
from sharpgp.calibration.spread import SEARCH_LEVELS
from sharpgp.gp import train
from sharpgp.gp.posterior import Posterior

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
    solve = solve_path if family == "ard" else solve_shared
    return solve(problem, delta, restarts=0, rng=np.random.default_rng(0))[0]


def judge(
    posterior: Posterior, theta: Tensor, delta: Tensor, cal: tuple, test: tuple
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


def compare(case: tuple[str, int, int], data_home: str | None) -> tuple[float, np.ndarray]:
    """RK's coverage; loss and width relative to RK's, and coverage, of all settings [S, 3]."""
    name, n, seed = case
    warnings.simplefilter("ignore")
    torch.set_num_threads(1)
    data = load(name, data_home)
    delta = torch.tensor(SEARCH_LEVELS, dtype=torch.float64)
    order = np.random.default_rng(seed).permutation(len(data.y))
    ends = np.cumsum([n, n // 3, 1000])
    if len(order) < ends[1] + LEAST_TEST:
        raise SystemExit(f"{name}: {len(order)} rows are too few for {n} training points")
    parts = [
        (torch.from_numpy(data.X[part]), torch.from_numpy(data.y[part]))
        for part in np.split(order[: ends[-1]], ends[:2])
    ]
    posterior, _ = train(*parts[0])
    loss, width, coverage = judge(posterior, posterior.theta_R.unsqueeze(0), delta, *parts[1:])
    found = []
    for setting in SETTINGS:
        theta = searched(posterior, *setting, delta)
        theirs = judge(posterior, theta, delta, *parts[1:])
        found.append((theirs[0] / loss, theirs[1] / width, theirs[2]))
    return coverage, np.array(found)


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--datasets", default="boston,yacht,mpg,wine,concrete,kin8nm,facebook1")
    parser.add_argument("--sizes", default="120,180", help="numbers of training points")
    parser.add_argument("--seeds", type=int, default=2)
    parser.add_argument("--data-home", default=None, help="or environment variable SHARPGP_DATA")
    parser.add_argument("--jobs", type=int, default=1, help="cases at a time, a process each")
    arguments = parser.parse_args()
    cases = [
        (name, int(n), seed)
        for name in arguments.datasets.split(",")
        for n in arguments.sizes.split(",")
        for seed in range(arguments.seeds)
    ]
    with multiprocessing.get_context("spawn").Pool(arguments.jobs) as pool:
        done = pool.map(partial(compare, data_home=arguments.data_home), cases, chunksize=1)
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


if __name__ == "__main__":
    main()
