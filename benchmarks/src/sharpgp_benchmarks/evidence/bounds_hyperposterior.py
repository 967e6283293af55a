"""Uniform error bounds from NUTS samples beside those from the Laplace approximation.

On wine, ``sharpgp bench bounds`` takes the Laplace approximation, as NUTS on 959 points would take
hours.  Here both are computed for the same GPs, trained on fewer rows: violations and
length of the 100 % interval on all test points, and processor seconds.
"""

import numpy as np

from sharpgp import Capone22
from sharpgp_benchmarks import datasets
from sharpgp_benchmarks.bounds import SAMPLES, measure
from sharpgp_benchmarks.evidence.common import Clock
from sharpgp_benchmarks.regression import make_problem


def main(
    dataset: str = "wine", rows: int = 200, repeats: int = 3, data_home: str | None = None
) -> None:
    """Print a line for each way."""
    datasets.require([dataset], data_home)
    print(f"{dataset}, {rows} training rows, {repeats} repetition(s)")
    print(f"{'':10}{'violations':>12}{'length':>18}{'seconds':>10}")
    for kind in ("nuts", "laplace"):
        found, seconds = [], []
        for seed in range(repeats):
            problem = make_problem(dataset, seed, "trained", rows, data_home)
            part = problem.part
            method = Capone22(
                hyperposterior=kind,
                points=len(part.y_test),
                warmup=SAMPLES // 2,
                samples=SAMPLES,
                random_state=seed,
            )
            with Clock() as clock:
                calibrated = method.fit(problem.posterior, None, None)
            seconds.append(clock.cpu)
            found.append(measure(calibrated, part.X_test, part.y_test))
        lengths = [one["length_100"] for one in found]
        violations = np.mean([one["violation_rate"] for one in found])
        error = np.std(lengths, ddof=1) / np.sqrt(len(lengths)) if len(lengths) > 1 else np.nan
        length = f"{np.mean(lengths):.1f} ± {error:.1f}"
        print(f"{kind:10}{violations:12.2%}{length:>18}{np.mean(seconds):10.1f}", flush=True)
