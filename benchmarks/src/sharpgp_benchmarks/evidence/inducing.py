"""Inducing inputs of a sparse GP as calibration hyperparameters: of all levels, or of each level.

The ends of 95 % intervals, each from its own fit of the paper's mode at that level alone, show what
inducing inputs per level could gain at most: nothing binds these two levels to others.  Beside
them, the path of 25 levels with inducing inputs as trained, and moved once for all levels.
"""

import numpy as np
import torch

from sharpgp import Sharp
from sharpgp.calibration.methods.sharp.levels import Levels
from sharpgp.gp.sparse_training import train_sparse
from sharpgp_benchmarks.evidence.common import header, judged, row, sets, train_cal_test

ENDS = (0.025, 0.975)
#: Levels of the fits that the lower and the upper end come from, and whether inputs are moved.
KINDS: dict[str, tuple[tuple[Levels, Levels], bool]] = {
    "one path, inputs as trained": ((None, None), False),
    "one path, inputs moved for all levels": ((None, None), True),
    "each level alone, inputs as trained": (ENDS, False),
    "each level alone, inputs moved for it": (ENDS, True),
}


def main(
    datasets: str = "boston,mpg,concrete", m: int = 30, seeds: int = 3, data_home: str | None = None
) -> None:
    """Print the table; widths and scores in standard deviations of the target."""
    header("set", "what is searched", "coverage", "width", "interval score")
    for data in sets(datasets, data_home):
        found: dict[str, list[tuple[float, ...]]] = {kind: [] for kind in KINDS}
        for seed in range(seeds):
            fit, cal, test = train_cal_test(data, seed)
            posterior, _ = train_sparse(*fit, n_inducing=m, random_state=seed)
            for kind, (levels, move) in KINDS.items():
                ends = []
                for level, one in zip(ENDS, levels, strict=True):
                    method = Sharp(levels=one, move_inducing=move, random_state=seed)
                    ends.append(method.fit(posterior, *cal).predict_quantiles(test[0], level))
                coverage, width, score = judged(torch.stack(ends, dim=1), test[1])
                scale = float(data.y.std())
                found[kind].append((coverage, width / scale, score / scale))
        for kind, rows in found.items():
            row(data.name, kind, *np.mean(rows, axis=0).tolist())
