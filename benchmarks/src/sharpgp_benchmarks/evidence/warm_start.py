"""Why refits of cross-validation start from scratch: a warm start knows what it leaves out.

A GP is trained on ``--rows`` rows and again without each of ten parts, from a built-in start and
from the hyperparameters of the full fit.  The table has the root mean square of z-scores of the
points left out, from both, beside that of rows that no fit has seen, for which the full fit
predicts with as many rows as it has.
"""

import numpy as np
import torch
from torch import Tensor

from sharpgp.gp import train
from sharpgp.gp.posterior import Posterior
from sharpgp_benchmarks.evidence.common import cut, sets
from sharpgp_benchmarks.evidence.run import header, measured, row


def z_scores(fit: Posterior, X: Tensor, y: Tensor) -> Tensor:
    """Scores of points that the fit has not been conditioned on."""
    return (y - fit.mean(X)) / fit.sigma(fit.theta_R.unsqueeze(0), X)[0]


def size(z: Tensor) -> float:
    """Root mean square without the largest hundredth, which would be all that counts."""
    z = z.abs().sort().values[: -max(1, len(z) // 100)]
    return float(z.square().mean().sqrt())


def main(
    datasets: str = "boston,yacht,mpg,concrete",
    rows: int = 180,
    seeds: int = 5,
    data_home: str | None = None,
) -> None:
    """Print the table."""
    header("set", "from scratch", "warm", "warm/scratch", "new rows")
    for data in sets(datasets, data_home):
        cases = [(data.name, rows, seed, data_home) for seed in range(seeds)]
        cold, warm, fresh = np.mean(measured(sizes, cases), axis=0)
        row(data.name, *(f"{value:.3f}" for value in (cold, warm, warm / cold, fresh)))


def sizes(name: str, rows: int, seed: int, data_home: str | None) -> tuple[float, float, float]:
    """Sizes of scores from refits that start afresh or warm, and of those of new rows."""
    (data,) = sets(name, data_home)
    (X, y), new = cut(data, seed, [rows, len(data.y) - rows])
    full, _ = train(X, y)
    scores: dict[bool, list[Tensor]] = {False: [], True: []}
    for part in torch.arange(len(y)).chunk(10):
        rest = torch.ones_like(y, dtype=torch.bool)
        rest[part] = False
        for warm, collected in scores.items():
            fit = full.retrained(X[rest], y[rest], start="warm" if warm else "same")
            collected.append(z_scores(fit, X[part], y[part]))
    cold, warmed = (size(torch.cat(scores[kind])) for kind in (False, True))
    return cold, warmed, size(z_scores(full, *new))
