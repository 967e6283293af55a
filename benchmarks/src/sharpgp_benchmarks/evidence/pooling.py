"""Pools of models, weighted by their out-of-fold predictions, beside the five members of once.

For each set and seed every candidate is learned once, as ``cv`` does: five learnings, each of which
scores the rows that it has not seen, and whose average predicts. Any pool of them then gets weights
by out-of-fold CRPS, and ``beta`` from the pooled out-of-fold scores. Other rows judge the CRPS and
the symmetric bands, relative to those of ``former`` (geometric means over sets and seeds, the worst
set, mean coverage), and processor seconds of the members' fits. Names with a plus are sums of
kernels in one GP. ``single leaves`` are extra trees whose leaves may hold one point.
"""

from collections.abc import Sequence
from contextlib import nullcontext
from dataclasses import dataclass
from unittest import mock

import numpy as np
import torch
from torch import Tensor

from sharpgp import metrics
from sharpgp.models.bagged import AveragedModel
from sharpgp.models.bases import Bases
from sharpgp.models.laws import Law
from sharpgp.models.model import HeldOut
from sharpgp.models.pool import at_common_rows, mixed
from sharpgp.models.pool_weights import PULL, crps_products, pool_weights, unit_size
from sharpgp.models.splitters import learning_pairs
from sharpgp.models.trees import forests
from sharpgp.policy import POOLS as DEFAULTS
from sharpgp_benchmarks.evidence.common import Clock, Part, cut, sets
from sharpgp_benchmarks.evidence.run import header, measured, row

TEST_ROWS = 500
LEVELS = np.arange(1, 40) / 40
SUM = "laplace+matern32"
FORMER = ("rbf", "matern32", "additive", "extra_trees", "boosted_trees")
DEFAULT = tuple(name for name in DEFAULTS["auto"] if name != "boosted_trees")  # with few rows
OTHERS = ("boosted_trees", "random_forest", "single leaves", "rbf+matern12", "laplace+rbf")
MEMBERS = tuple(dict.fromkeys([*FORMER, *DEFAULT, *OTHERS]))
FORESTS = {name: (*(k for k in DEFAULT if k != "extra_trees"), name) for name in OTHERS[1:3]}
# Names of the models, and the pull of their weights to equal ones.
POOLS: dict[str, tuple[tuple[str, ...], float]] = {
    "former": (FORMER, PULL),
    "default": (DEFAULT, PULL),
    "default, boosted trees": ((*DEFAULT, "boosted_trees"), PULL),
    **{f"default, no {name}": (tuple(k for k in DEFAULT if k != name), PULL) for name in DEFAULT},
    **{f"default, {name} as trees": (members, PULL) for name, members in FORESTS.items()},
    **{f"{name}, trees": ((name, "extra_trees"), PULL) for name in (SUM, *OTHERS[3:])},
    **{f"default, pull {pull:g}": (DEFAULT, pull) for pull in (0.0, 3.0, 30.0)},
}


@dataclass(frozen=True)
class Learned:
    """A candidate: its points out of fold, its law at test rows, and how long it took."""

    held: HeldOut
    law: Law
    seconds: float


def learned(name: str, train_part: Part, X_test: Tensor) -> Learned:
    """One candidate."""
    (X, y), kind = train_part, "extra_trees" if name == "single leaves" else name
    least = mock.patch.object(forests, "_LEAST_IN_LEAF", 1) if kind != name else nullcontext()
    labels = torch.arange(len(y))
    pairs = learning_pairs(labels, 0)
    with Clock() as clock, least:
        model = Bases(kind, seed=0).learned(X, y, pair=pairs[0])[kind]
        found = model.out_of_training(pairs, labels, 0)
    with torch.no_grad():
        law = AveragedModel.from_out_of_fold(found).law(X_test)
    return Learned(found.held, law, clock.cpu)


def judge(
    members: Sequence[Learned], y: Tensor, y_test: Tensor, pull: float = PULL
) -> tuple[float, float, float, float, float]:
    """CRPS, interval score, coverages at 95 and 90 %, and seconds of a pool."""
    scored, laws = at_common_rows([one.held for one in members]), [one.law for one in members]
    held, y = [one.law for one in scored], y[scored[0].rows]
    units = y.new_tensor([unit_size(one.scores) for one in scored])
    own = [law.changed(size=unit) for law, unit in zip(held, units.tolist(), strict=True)]
    weights = pool_weights(crps_products(own, y), len(y), pull=pull).to(y)
    z, law = mixed(held, units, weights).score(y), mixed(laws, units, weights)
    coverage = torch.tensor([0.95, 0.9], dtype=y.dtype)
    half = torch.quantile(z.abs(), (coverage * (len(z) + 1) / len(z)).clamp(max=1.0))
    lower, upper = law.value(torch.cat([-half, half])[:, None]).numpy().reshape(2, 2, -1)
    beta = torch.quantile(z, torch.from_numpy(LEVELS))
    quantiles, truth = law.value(beta[:, None]).T.numpy(), y_test.numpy()
    covered = [metrics.interval_coverage(truth, *ends) for ends in zip(lower, upper, strict=True)]
    return (
        metrics.crps(truth, quantiles, LEVELS),
        metrics.interval_score(truth, lower[0], upper[0], 0.95),
        covered[0],
        covered[1],
        sum(one.seconds for one in members),
    )


def main(
    names: str = "boston,mpg,airfoil,fish,laser,electric,friedman1,hetero-5d,discrete,concrete,"
    "kin8nm,estate,skewed",
    rows: int = 300,
    seeds: int = 2,
    data_home: str | None = None,
) -> None:
    """Print the table."""
    runs: dict[str, list[np.ndarray]] = {pool: [] for pool in POOLS}
    for data in sets(names, data_home):
        found = measured(one, [(data.name, rows, seed, data_home) for seed in range(seeds)])
        own = {pool: np.array([of_seed[pool] for of_seed in found]) for pool in POOLS}
        for pool, values in own.items():
            relative = np.log(values / own["former"])[:, [0, 1, 4]]
            runs[pool].append(np.r_[relative.mean(0), values[:, 2:4].mean(0)])
    header("pool", "CRPS", "worst", "score", "worst", "95 %", "90 %", "seconds")
    for pool, of_sets in runs.items():
        table = np.array(of_sets)
        crps, score, seconds = np.exp(table[:, :3].mean(0))
        worst = np.exp(table[:, :2].max(0))
        ratios = (crps, worst[0], score, worst[1])
        covered = (f"{share:.1%}" for share in table[:, 3:].mean(0))
        row(pool, *(f"{ratio:.3f}" for ratio in ratios), *covered, f"{seconds:.2f}")


def one(
    name: str, rows: int, seed: int, data_home: str | None
) -> dict[str, tuple[float, float, float, float, float]]:
    """CRPS, score, coverages and seconds of every pool on one split."""
    (data,) = sets(name, data_home)
    n = min(rows, int(0.75 * len(data.y)))
    part, (X_test, y_test) = cut(data, seed, [n, TEST_ROWS])
    found = {member: learned(member, part, X_test) for member in MEMBERS}
    return {
        pool: judge([found[member] for member in members], part[1], y_test, pull)
        for pool, (members, pull) in POOLS.items()
    }
