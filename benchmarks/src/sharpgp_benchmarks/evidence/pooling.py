"""Pools of models, weighted by their out-of-fold predictions, beside the squared exponential GP.

For each set and seed, every candidate is fitted on all training rows and without each of ten parts
that all candidates share: GPs with the spread that ``cv`` learns for them, and trees. Pools of them
get weights by out-of-fold CRPS, and ``beta`` from the pooled out-of-fold scores. Other rows judge
the symmetric 95 % band and the CRPS, relative to those of the squared exponential GP alone
(geometric means over sets and seeds, the worst set, coverage). ``single leaves`` are extra trees
whose leaves may hold one point; ``boosted spread`` are boosted trees with a second boosting for the
spread. ``mean of refits`` predicts with the mean location and the root mean square spread of the
ten fits without a part, in place of the fit on all rows.
"""

from collections.abc import Callable
from typing import Protocol
from unittest import mock

import numpy as np
import torch
from torch import Tensor

from sharpgp import metrics
from sharpgp.data.folds import split_parts
from sharpgp.gp import train
from sharpgp.models.gaussian.gaussian_model import GaussianModel, learn_gaussian
from sharpgp.models.gaussian.spread_choice import same_spread
from sharpgp.models.laws import Law, Normal
from sharpgp.models.pool import in_units, mixed
from sharpgp.models.pool_weights import PULL, crps_products, pool_weights, unit_size
from sharpgp.models.splitters import complements
from sharpgp.models.trees import forests
from sharpgp.models.trees.tree_model import BoostedTrees, ExtraTrees, Floats
from sharpgp_benchmarks.evidence.common import Part, cut, sets
from sharpgp_benchmarks.evidence.run import header, measured, row

FOLDS = 10
TEST_ROWS = 1000
LEVELS = np.arange(1, 40) / 40
# Of the variation of a boosted log spread that is kept.
SHARE = 0.5


class BoostedSpread:
    """Boosted trees, and others for the log of their out-of-fold residuals."""

    def __init__(self, X: Floats, y: Floats, seed: int) -> None:
        self.mean = BoostedTrees(X, y, seed)
        residuals = np.empty(len(y))
        for rest, part in complements(len(y), split_parts(torch.arange(len(y)), 5, seed)):
            without = BoostedTrees(X[rest], y[rest], seed)
            residuals[part] = np.abs(y[part] - without.location(X[part]))
        logs = np.log(residuals + 0.1 * residuals.mean() + 1e-3 * y.std())
        self.centre, self.scale = logs.mean(), BoostedTrees(X, logs, seed)

    def law(self, X: Floats, like: Tensor) -> Normal:
        """The law at rows."""
        away = self.scale.location(X) - self.centre
        parts = self.mean.location(X), np.exp(self.centre + SHARE * away)
        return Normal(*(torch.from_numpy(part).to(like) for part in parts))


def single_leaves(X: Floats, y: Floats, seed: int) -> ExtraTrees:
    """Extra trees whose leaves may hold one point."""
    with mock.patch.object(forests, "_LEAST_IN_LEAF", 1):
        return ExtraTrees(X, y, seed)


class Grown(Protocol):
    """Trees that have grown."""

    def law(self, X: Floats, like: Tensor) -> Law:
        """The law at rows."""


KERNELS = ("rbf", "matern32", "additive")
TREES: dict[str, Callable[[Floats, Floats, int], Grown]] = {
    "trees": ExtraTrees,
    "single leaves": single_leaves,
    "boosted": BoostedTrees,
    "boosted spread": BoostedSpread,
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
            model = TREES[name](X[part].numpy(), y[part].numpy(), seed)

            def answer(X: Tensor) -> tuple[Tensor, Tensor]:
                law = model.law(X.numpy(), X)
                return law.location, law.spread

            return answer

        return grown
    posterior, _ = train(X, y, name)
    whole = learn_gaussian(posterior, seed)

    def fitted(rows: Tensor | None) -> Answer:
        model = whole
        if rows is not None:
            model = GaussianModel(same_spread(whole.choice, posterior, X[rows], y[rows]))
        return lambda X: (model.location(X).detach(), model.law(X).spread.detach())

    return fitted


def answers(
    name: str, train_part: Part, X_test: Tensor, seed: int
) -> tuple[Tensor, Tensor, Tensor]:
    """Location and spread [2, ...]: out of fold, on test rows, and there of the mean of refits."""
    X, y = train_part
    fit = fits(name, X, y, seed)
    out_of_fold, refits = torch.empty(2, len(y), dtype=torch.float64), []
    for rest, part in complements(len(y), split_parts(torch.arange(len(y)), FOLDS, seed)):
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
    held = [Normal(*one) for one in zip(m, s, strict=True)]
    units = torch.tensor([unit_size(law.score(y)) for law in held], dtype=torch.float64)
    laws = [in_units(law, float(unit)) for law, unit in zip(held, units, strict=True)]
    weights = pool_weights(crps_products(laws, y), len(y), pull=pull)
    z = mixed(held, units, weights).score(y)
    m, s = refits if of_refits else full
    law = mixed([Normal(*one) for one in zip(m, s, strict=True)], units, weights)
    half = torch.quantile(z.abs(), min(1.0, 0.95 * (len(z) + 1) / len(z)))
    ends = law.value(torch.stack([-half, half]).unsqueeze(-1))
    lower, upper, truth = (a.numpy() for a in (*ends, y_test))
    beta = torch.quantile(z, torch.from_numpy(LEVELS))
    quantiles = law.value(beta.unsqueeze(-1)).T.numpy()
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
        found = measured(one, [(data.name, rows, seed, data_home) for seed in range(seeds)])
        own = {pool: [of_seed[pool] for of_seed in found] for pool in POOLS}
        base = np.array(own["rbf"])
        for pool, values in own.items():
            ratio = np.log(np.array(values)[:, :2] / base[:, :2]).mean(0)
            runs[pool].append(np.r_[ratio, np.array(values)[:, 2].mean()])
    header("pool", "score", "CRPS", "worst", "coverage")
    for pool, of_sets in runs.items():
        table = np.array(of_sets)
        score, crps = np.exp(table[:, :2].mean(0))
        worst, covered = np.exp(table[:, 0].max()), table[:, 2].mean()
        row(pool, f"{score:.3f}", f"{crps:.3f}", f"{worst:.3f}", f"{covered:.1%}")


def one(
    name: str, rows: int, seed: int, data_home: str | None
) -> dict[str, tuple[float, float, float]]:
    """Score, CRPS and coverage of every pool on one split."""
    (data,) = sets(name, data_home)
    n = min(rows, int(0.75 * len(data.y)))
    part, (X_test, y_test) = cut(data, seed, [n, TEST_ROWS])
    found = {member: answers(member, part, X_test, seed) for member in (*KERNELS, *TREES)}
    return {pool: judge(found, pool, part[1], y_test) for pool in POOLS}
