"""Uniform error bounds from NUTS samples beside those from the Laplace approximation.

On wine, ``sharpgp bench bounds`` takes the Laplace approximation, as NUTS on 959 points would take
hours.  Here both are computed for the same GPs, trained on fewer rows: violations and
length of the 100 % interval on all test points, and processor seconds.
"""

import argparse
import time
from pathlib import Path

import numpy as np

from sharpgp import Capone22
from sharpgp.experiments.bounds import SAMPLES, measure
from sharpgp.experiments.regression import make_problem


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--dataset", default="wine")
    parser.add_argument("--rows", type=int, default=200)
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--data-home", type=Path)
    given = parser.parse_args()
    home = None if given.data_home is None else str(given.data_home)
    print(f"{given.dataset}, {given.rows} training rows, {given.repeats} repetition(s)")
    print(f"{'':10}{'violations':>12}{'length':>18}{'seconds':>10}")
    for kind in ("nuts", "laplace"):
        found, seconds = [], []
        for seed in range(given.repeats):
            problem = make_problem(given.dataset, seed, "trained", given.rows, home)
            part = problem.part
            method = Capone22(
                hyperposterior=kind,
                points=len(part.y_test),
                warmup=SAMPLES // 2,
                samples=SAMPLES,
                random_state=seed,
            )
            start = time.process_time()
            calibrated = method.fit(problem.posterior, None, None)
            seconds.append(time.process_time() - start)
            found.append(measure(calibrated, part.X_test, part.y_test))
        lengths = [one["length_100"] for one in found]
        violations = np.mean([one["violation_rate"] for one in found])
        error = np.std(lengths, ddof=1) / np.sqrt(len(lengths)) if len(lengths) > 1 else np.nan
        length = f"{np.mean(lengths):.1f} ± {error:.1f}"
        print(f"{kind:10}{violations:12.2%}{length:>18}{np.mean(seconds):10.1f}", flush=True)


if __name__ == "__main__":
    main()
