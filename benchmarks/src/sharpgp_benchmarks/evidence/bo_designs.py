"""What the base GPs of ``sharpgp bench bo`` are like before the first iteration.

For the 20 initial designs of each function: the trained standard deviation of the noise over the
true one (quartiles), and how many of the held-out points lie within, and above, two standard
deviations; a GP that is right has 95.4 % and 2.3 %.
"""

import numpy as np

from sharpgp.gp.training import train
from sharpgp_benchmarks.bo import FUNCTIONS, N_TRAIN, Problem


def main(repeats: int = 20) -> None:
    """Print a line for each function."""
    print(f"{'':12}{'noise / true noise':>24}{'within 2 sd':>14}{'above':>9}")
    for name in FUNCTIONS:
        noises, within, above = [], [], []
        for seed in range(repeats):
            problem = Problem.draw(name, seed)
            X, y = problem.X, problem.y
            gp, _ = train(X[:N_TRAIN], y[:N_TRAIN])
            sigma = gp.sigma(gp.theta_R[None], X[N_TRAIN:])[0]
            z = (y[N_TRAIN:] - gp.mean(X[N_TRAIN:])) / sigma
            noises.append(float(gp.theta_R[-1].sqrt() * gp.y_units.scale) / problem.noise)
            within.append(float((z.abs() <= 2).double().mean()))
            above.append(float((z > 2).double().mean()))
        low, middle, high = np.quantile(noises, [0.25, 0.5, 0.75])
        quartiles = f"{low:.2f}, {middle:.2f}, {high:.2f}"
        print(f"{name:12}{quartiles:>24}{np.mean(within):13.1%}{np.mean(above):10.1%}")
