"""Pools of models, weighted by their out-of-fold predictions, beside the squared exponential GP.

For each set and seed, every candidate is fitted on all training rows and without each of ten parts
that all candidates share: GPs with the spread that ``cv`` learns for them, and trees. Pools of them
get weights by out-of-fold CRPS, and ``beta`` from the pooled out-of-fold scores. Other rows judge
the symmetric 95 % band and the CRPS, relative to those of the squared exponential GP alone
(geometric means over sets and seeds, the worst set, coverage). ``mean of refits`` predicts with the
mean location and the root mean square spread of the ten fits without a part, in place of the fit on
all rows.
"""

from collections.abc import Callable

import numpy as np
import torch
from torch import Tensor

from sharpgp import metrics
from sharpgp.calibration.spread import learn_spread, refit_spread
from sharpgp.gp import train
from sharpgp.models.trees import BoostedTrees, ExtraTrees
from sharpgp.models.weights import PULL, pool_weights, pooled_location_spread, unit_sizes
from sharpgp.studies.evidence.common import Part, calm, cut, sets

FOLDS = 10
TEST_ROWS = 1000
LEVELS = np.arange(1, 40) / 40
KERNELS = ("rbf", "matern32", "additive")
TREES: dict[str, Callable[[], ExtraTrees | BoostedTrees]] = {
    "trees": ExtraTrees,
    "single leaves": lambda: ExtraTrees(least_in_leaf=1),
    "boosted": BoostedTrees,
    "boosted spread": lambda: BoostedTrees(share=0.5),
}
DEFAULT = (*KERNELS, "trees", "boosted")
# Names of the models, pull, and whether the refits predict.
POOLS: dict[str, tuple[tuple[str, ...], float, bool]] = {
    **{name: ((name,), PULL, False) for name in (*KERNELS, *TREES)},
    "rbf, matern32": (KERNELS[:2], PULL, False),
    "kernels": (KERNELS, PULL, False),
    "without additive": (("rbf", "matern32", "trees", "boosted"), PULL, False),
    "all": (DEFAULT, PULL, False),
    "all, single leaves": ((*KERNELS, "single leaves", "boosted"), PULL, False),
    "all, boosted spread": ((*KERNELS, "trees", "boosted spread"), PULL, False),
    **{f"all, pull {pull:g}": (DEFAULT, pull, False) for pull in (0.0, 3.0, 30.0)},
    "all, mean of refits": (DEFAULT, PULL, True),
}

#: Location and spread at some inputs.
Answer = Callable[[Tensor], tuple[Tensor, Tensor]]


def fits(name: str, X: Tensor, y: Tensor, seed: int) -> Callable[[Tensor | None], Answer]:
    """A candidate as a function of the rows that it is fitted on; None is all of them."""
    if name in TREES:

        def grown(rows: Tensor | None) -> Answer:
            part = slice(None) if rows is None else rows
            model = TREES[name]().fit(X[part].numpy(), y[part].numpy(), seed)
            return lambda X: (
                torch.from_numpy(model.location(X.numpy())),
                torch.from_numpy(model.spread(X.numpy())),
            )

        return grown
    posterior, _ = train(X, y, name)
    whole = learn_spread(posterior, seed)

    def fitted(rows: Tensor | None) -> Answer:
        spread = whole if rows is None else refit_spread(whole.choice, posterior, X[rows], y[rows])
        return lambda X: (spread.location(X).detach(), spread.spread(X).detach())

    return fitted


def answers(
    name: str, train_part: Part, X_test: Tensor, seed: int
) -> tuple[Tensor, Tensor, Tensor]:
    """Location and spread [2, ...]: out of fold, on test rows, and there of the mean of refits."""
    X, y = train_part
    fit = fits(name, X, y, seed)
    out_of_fold, refits = torch.empty(2, len(y), dtype=torch.float64), []
    order = torch.randperm(len(y), generator=torch.Generator().manual_seed(seed))
    for part in order.tensor_split(FOLDS):
        rest = torch.ones(len(y), dtype=torch.bool)
        rest[part] = False
        answer = fit(rest)
        out_of_fold[:, part] = torch.stack(answer(X[part]))
        refits.append(torch.stack(answer(X_test)))
    location, spread = torch.stack(refits).unbind(1)
    mean = torch.stack([location.mean(0), spread.square().mean(0).sqrt()])
    return out_of_fold, torch.stack(fit(None)(X_test)), mean


def judge(
    found: dict[str, tuple[Tensor, Tensor, Tensor]], pool: str, y: Tensor, y_test: Tensor
) -> tuple[float, float, float]:
    """Interval score, CRPS and coverage of a pool."""
    names, pull, of_refits = POOLS[pool]
    (m, s), full, refits = (
        torch.stack(one, 1) for one in zip(*(found[n] for n in names), strict=True)
    )
    unit = unit_sizes(m, s, y).unsqueeze(-1)
    weights = pool_weights(m, s, y, pull=pull)
    location, spread = pooled_location_spread(weights, m, unit * s)
    z = (y - location) / spread
    m, s = refits if of_refits else full
    location, spread = pooled_location_spread(weights, m, unit * s)
    half = torch.quantile(z.abs(), min(1.0, 0.95 * (len(z) + 1) / len(z))) * spread
    lower, upper, truth = (a.numpy() for a in (location - half, location + half, y_test))
    beta = torch.quantile(z, torch.from_numpy(LEVELS))
    quantiles = (location.unsqueeze(-1) + spread.unsqueeze(-1) * beta).numpy()
    return (
        metrics.interval_score(truth, lower, upper, 0.95),
        metrics.crps(truth, quantiles, LEVELS),
        metrics.interval_coverage(truth, lower, upper),
    )


def main(
    names: str = "airfoil,fish,estate,laser,friedman1,diabetes",
    rows: int = 300,
    seeds: int = 3,
    data_home: str | None = None,
) -> None:
    """Print the table."""
    runs: dict[str, list[np.ndarray]] = {pool: [] for pool in POOLS}
    for data in sets(names, data_home):
        own: dict[str, list[tuple[float, float, float]]] = {pool: [] for pool in POOLS}
        for seed in range(seeds):
            n = min(rows, int(0.75 * len(data.y)))
            part, (X_test, y_test) = cut(data, seed, [n, TEST_ROWS])
            with calm():
                found = {name: answers(name, part, X_test, seed) for name in (*KERNELS, *TREES)}
                for pool in POOLS:
                    own[pool].append(judge(found, pool, part[1], y_test))
        base = np.array(own["rbf"])
        for pool, values in own.items():
            ratio = np.log(np.array(values)[:, :2] / base[:, :2]).mean(0)
            runs[pool].append(np.r_[ratio, np.array(values)[:, 2].mean()])
    print(f"{'':24}{'score':>8}{'CRPS':>8}{'worst':>8}{'coverage':>10}")
    for pool, one in runs.items():
        table = np.array(one)
        score, crps = np.exp(table[:, :2].mean(0))
        worst = np.exp(table[:, 0].max())
        print(f"{pool:24}{score:8.3f}{crps:8.3f}{worst:8.3f}{table[:, 2].mean():10.1%}")
