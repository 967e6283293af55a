"""How well the paper's mode is solved: its objective by levels, effort and restarts.

For each data set and seed a GP is trained on 60 % of the rows and calibrated on 20 %: at the levels
0.025 and 0.975, each alone; at the default grid; and at all levels ``j/(C+1)``.  The table has
geometric means over seeds: of what a path minimises, the weighted price of its levels, which effort
and restarts can only lower; and of the objective relative to that of ``theta_R`` (RK's), over the
levels at least 0.1 away from 0.5, and of all levels also at those next to the default grid's.
Width and coverage are those between the two outer levels on the other 20 % of the rows.  Rises are
seeds whose price is above that of less effort, or of no restarts: there must be none.
"""

import numpy as np
import torch
from joblib import Memory, Parallel, delayed

from sharpgp import Sharp
from sharpgp.calibration.methods.sharp.levels import resolve_levels
from sharpgp.calibration.methods.sharp.path import centre_of, level_weights
from sharpgp.gp import train
from sharpgp.gp.posterior import Posterior
from sharpgp.models.search import price
from sharpgp_benchmarks.datasets import Dataset
from sharpgp_benchmarks.evidence.common import Part, judged, numbers, sets, train_cal_test

ENDS = (0.025, 0.975)
#: What is trained: each of two levels alone, the default grid, or every level.
KINDS: dict[str, list[object]] = {"one": list(ENDS), "25": [None], "all": ["all"]}


def measured(
    posterior: Posterior, kind: str, cal: Part, test: Part, **settings: object
) -> tuple[float, ...]:
    """Weighted price, mean log ratios (all, at the grid), width, coverage and evaluations."""
    fits = [
        Sharp(levels=levels, random_state=0, **settings).fit(posterior, *cal)  # type: ignore[arg-type]
        for levels in KINDS[kind]
    ]
    results = [result for fit in fits for result in fit.results]
    delta = np.array([result.delta for result in results])
    log_ratio = np.log([result.objective / result.objective_base for result in results])
    residuals = (cal[1] - posterior.mean(cal[0])).cpu()
    weights = level_weights(torch.from_numpy(delta), centre_of(residuals), len(residuals))
    paid = np.average(price(torch.from_numpy(log_ratio)).numpy(), weights=weights)
    grid = resolve_levels(None, len(cal[1])).numpy()
    near = [int(np.abs(delta - one).argmin()) for one in grid if abs(one - 0.5) >= 0.1]
    ends = [
        fits[0].predict_quantiles(test[0], ENDS[0]),
        fits[-1].predict_quantiles(test[0], ENDS[1]),
    ]
    coverage, width, _ = judged(torch.stack(ends, dim=1).cpu(), test[1].cpu())
    return (
        float(paid),
        float(log_ratio[np.abs(delta - 0.5) >= 0.1].mean()),
        float(log_ratio[near].mean()),
        width / float(torch.cat([posterior.y_train, cal[1], test[1]]).std()),
        coverage,
        float(sum(fit.evaluations for fit in fits)),
    )


def of_split(
    data: Dataset, seed: int, kind: str, device: str, **settings: object
) -> tuple[float, ...]:
    """What :func:`measured` says of one split, with these settings of the search."""
    torch.set_num_threads(1)
    fit, cal, test = ([t.to(device) for t in part] for part in train_cal_test(data, seed))
    posterior, _ = train(*fit)
    return measured(posterior, kind, cal, test, **settings)


def main(
    datasets: str = "boston,yacht,mpg,concrete,wine",
    seeds: int = 5,
    kinds: str = "one,25,all",
    efforts: str = "1,2,3",
    restarts: str = "0,5,20",
    rule: str = "price",
    workers: int = 1,
    device: str = "cpu",
    data_home: str | None = None,
    keep: str | None = None,
) -> None:
    """Print the table; restarts are tried with the first of the efforts.

    Searches that were finished are kept in the folder ``keep`` and not run again.
    """
    kept = Memory(keep, verbose=0).cache(of_split)
    tried = [(effort, 0) for effort in numbers(efforts)]
    tried += [(tried[0][0], count) for count in numbers(restarts) if count]
    print(
        "set       levels  effort  restarts  price  objective/RK  at grid  width  coverage  "
        "evaluations  rises"
    )
    for data in sets(datasets, data_home):
        for kind in kinds.split(","):
            found = Parallel(n_jobs=workers)(
                delayed(kept)(data, seed, kind, device, effort=effort, restarts=count, rule=rule)
                for seed in range(seeds)
                for effort, count in tried
            )
            rows = np.array(found).reshape(seeds, len(tried), -1)  # last: what is measured
            for k, (effort, count) in enumerate(tried):
                before = 0 if count else max(k - 1, 0)
                rises = int((rows[:, k, 0] > rows[:, before, 0] + 1e-9).sum())
                paid, objective, grid, width, coverage, evaluations = rows[:, k].mean(0)
                print(
                    f"{data.name:8s}  {kind:6s}  {effort:6d}  {count:8d}  "
                    f"{np.exp(paid):5.3f}  {np.exp(objective):12.3f}  {np.exp(grid):7.3f}  "
                    f"{width:5.3f}  {coverage:8.1%}  {evaluations:11.0f}  {rises:5d}",
                    flush=True,
                )
