"""The paper's assumption that ``sigma`` grows with ``theta``, counted for each kernel and set.

Random pairs ``theta <= theta'`` around the trained hyperparameters, compared at calibration points.
"""

from sharpgp.gp import train
from sharpgp.gp.monotonicity import count_violations
from sharpgp_benchmarks.evidence.common import header, row, sets, train_cal_test


def main(
    datasets: str = "boston,yacht,mpg,concrete,wine",
    kernels: str = "rbf,matern12,matern32,matern52",
    seeds: int = 3,
    pairs: int = 40,
    data_home: str | None = None,
) -> None:
    """Print the table."""
    header("set", "kernel", "pairs", "pairs violated", "of comparisons", "largest fall")
    for data in sets(datasets, data_home):
        for kernel in kernels.split(","):
            found = []
            for seed in range(seeds):
                fit, (X_cal, _), _ = train_cal_test(data, seed)
                posterior, _ = train(*fit, kernel)
                found.append(count_violations(posterior, X_cal, pairs=pairs, random_state=seed))
            row(
                data.name,
                kernel,
                sum(one.pairs for one in found),
                sum(one.pairs_violated for one in found),
                f"{sum(one.share for one in found) / seeds:.4%}",
                max(one.largest for one in found),
            )
