"""The prior-fitted network alone, and the default's pool with it, beside the pool without.

Every candidate is learned once and judged as in the study ``pooling``. Ratios above 1 are worse
than the pool without the network; geometric means over splits, sets in the last lines.
"""

import numpy as np

from sharpgp.models.prior_fitted import PRIOR
from sharpgp.policy import MAX_ADDITIVE_FEATURES
from sharpgp_benchmarks.evidence.common import cut, numbers, sets
from sharpgp_benchmarks.evidence.pooling import DEFAULT, TEST_ROWS, judge, learned
from sharpgp_benchmarks.evidence.run import header, measured, row

COLUMNS = ("alone", "CRPS", "score", "without, 95 %", "with, 95 %", "with, 90 %", "seconds")


def main(
    names: str = "boston,mpg,airfoil,fish,laser,electric,friedman1,hetero-5d,discrete,concrete,"
    "kin8nm,estate,skewed,wine,yacht,insurance",
    rows: str = "100,300,1000",
    seeds: int = 2,
    data_home: str | None = None,
) -> None:
    """Print the table: CRPS alone and in the pool, score, coverages and seconds in the pool."""
    header("set", "rows", *COLUMNS)
    for n in numbers(rows):
        of_sets = []
        for data in sets(names, data_home):
            if len(data.y) < 1.25 * n:
                continue
            cases = [(data.name, n, seed, data_home) for seed in range(seeds)]
            of_sets.append(np.array(measured(one, cases)).mean(0))
            _tell(data.name, n, of_sets[-1])
        _tell("all", n, np.mean(of_sets, axis=0))


def one(name: str, rows: int, seed: int, data_home: str | None) -> list[float]:
    """Logarithms of ratios, coverages, and the logarithm of the ratio of seconds."""
    (data,) = sets(name, data_home)
    part, (X_test, y_test) = cut(data, seed, [rows, TEST_ROWS])
    X, y = part
    without = ["additive"] if X.shape[1] > MAX_ADDITIVE_FEATURES else []
    found = {name: learned(name, part, X_test) for name in DEFAULT if name not in without}
    pool = [one for name, one in found.items() if name != PRIOR]
    before, after = (np.array(judge(some, y, y_test)) for some in (pool, [*pool, found[PRIOR]]))
    alone = judge([found[PRIOR]], y, y_test)[0] / before[0]
    crps, score, *_, seconds = after / before
    ratios = np.log([alone, crps, score])
    return [*ratios, before[2], after[2], after[3], float(np.log(seconds))]


def _tell(name: str, n: int, means: np.ndarray) -> None:
    ratios, covered, seconds = np.exp(means[:3]), means[3:6], np.exp(means[6])
    row(name, n, *(f"{r:.3f}" for r in ratios), *(f"{c:.1%}" for c in covered), f"{seconds:.2f}")
