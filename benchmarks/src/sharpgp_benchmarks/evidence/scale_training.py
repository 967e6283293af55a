"""How the hyperparameters of a scale model are found: on all points, on a part, or by a bound.

Z-scores are drawn with a spread that varies along three of the features.  The table has the log
likelihood of all points, with the prior, at the hyperparameters that each way ends at, and the
processor seconds that it took: the nearer to that of all points, and the cheaper, the better.
"""

import time

import torch
from torch import Tensor

from sharpgp.gp.bound_training import train_at_rows
from sharpgp.gp.exact import ExactPosterior
from sharpgp.gp.training import train
from sharpgp.models.heteroscedastic import PRIOR, TOLERANCE, log_squares
from sharpgp_benchmarks.evidence.common import header, numbers, row


def drawn(n: int, d: int, seed: int) -> tuple[Tensor, Tensor]:
    """Inputs [n, d] and logarithms of squared z-scores [n]."""
    generator = torch.Generator().manual_seed(seed)
    X = torch.rand(n, d, generator=generator, dtype=torch.float64)
    noise = torch.randn(n, generator=generator, dtype=torch.float64)
    spread = (1.5 * torch.sin(4 * X[:, 0]) + 2 * X[:, 1] * X[:, 2]).exp().sqrt()
    return X, log_squares(noise * spread / spread.mean())


def likelihood(found: ExactPosterior, X: Tensor, logs: Tensor) -> float:
    """Log likelihood of all points, with the prior, at the hyperparameters of ``found``."""
    whole = found.conditioned_on(X, logs)
    penalty = whole.covariance.penalty(PRIOR, whole.x_units.forward(X))
    return len(logs) * whole.log_likelihood() - float(penalty(whole.theta_R.log()))


def main(
    points: str = "400,500,800,1300",
    features: int = 8,
    seeds: int = 2,
    inducing: str = "60,100,200",
) -> None:
    """Print the table, on one thread."""
    torch.set_num_threads(1)
    settings = {"tolerance": TOLERANCE, "prior": PRIOR}
    ways = {
        "all": lambda X, y: train(X, y, start=0, **settings)[0],
        "every 2nd": lambda X, y: train(X[::2], y[::2], start=0, **settings)[0],
        "every 3rd": lambda X, y: train(X[::3], y[::3], start=0, **settings)[0],
    } | {
        f"bound, {m}": lambda X, y, m=m: train_at_rows(X, y, n_inducing=m, **settings)
        for m in numbers(inducing)
    }
    for way in ways.values():
        way(*drawn(50, features, 0))  # what is made once is not timed
    header("points", "draw", *(f"{name}: log likelihood, s" for name in ways))
    for n in numbers(points):
        for seed in range(seeds):
            X, logs = drawn(n, features, seed)
            cells = list[str]()
            for way in ways.values():
                start = time.process_time()
                found = way(X, logs)
                seconds = time.process_time() - start
                cells.append(f"{likelihood(found, X, logs):.1f}, {seconds:.2f}")
            row(f"{n:,}", seed, *cells)
