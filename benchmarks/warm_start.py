"""Why refits of cross-validation start from scratch: a warm start knows what it leaves out.

Run with ``python benchmarks/warm_start.py --data-home FOLDER``.  A GP is trained on ``--rows`` rows
and again without each of ten parts, from a built-in start and from the hyperparameters of the full
fit.  The table has the root mean square of z-scores of the points left out, from both, beside that
of rows that no fit has seen, for which the full fit predicts with as many rows as it has.
"""

import argparse

import numpy as np
import torch
from torch import Tensor

from sharpgp import datasets
from sharpgp.gp import train
from sharpgp.gp.posterior import Posterior


def z_scores(fit: Posterior, X: Tensor, y: Tensor) -> Tensor:
    """Scores of points that the fit has not been conditioned on."""
    return (y - fit.mean(X)) / fit.sigma(fit.theta_R.unsqueeze(0), X)[0]


def size(z: Tensor) -> float:
    """Root mean square without the largest hundredth, which would be all that counts."""
    z = z.abs().sort().values[: -max(1, len(z) // 100)]
    return float(z.square().mean().sqrt())


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--datasets", default="boston,yacht,mpg,concrete")
    parser.add_argument("--rows", type=int, default=180)
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--data-home", default=None, help="or environment variable SHARPGP_DATA")
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    print("data set    from scratch   warm   warm/scratch   new rows")
    for name in arguments.datasets.split(","):
        data = datasets.load(name, data_home=arguments.data_home)
        found = []
        for seed in range(arguments.seeds):
            order = np.random.default_rng(seed).permutation(len(data.y))
            X, y = torch.from_numpy(data.X[order]), torch.from_numpy(data.y[order])
            new = X[arguments.rows :], y[arguments.rows :]
            X, y = X[: arguments.rows], y[: arguments.rows]
            full, _ = train(X, y)
            scores: dict[bool, list[Tensor]] = {False: [], True: []}
            for part in torch.arange(len(y)).chunk(10):
                rest = torch.ones_like(y, dtype=torch.bool)
                rest[part] = False
                for warm, collected in scores.items():
                    fit = full.retrained(X[rest], y[rest], start="warm" if warm else "same")
                    collected.append(z_scores(fit, X[part], y[part]))
            cold, warm = (size(torch.cat(scores[kind])) for kind in (False, True))
            found.append((cold, warm, size(z_scores(full, *new))))
        cold, warm, fresh = np.mean(found, axis=0)
        print(f"{name:10s}  {cold:12.3f}  {warm:5.3f}  {warm / cold:12.3f}  {fresh:9.3f}")


if __name__ == "__main__":
    main()
