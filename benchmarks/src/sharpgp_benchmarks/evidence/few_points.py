"""The prior on lengthscales at few points per hyperparameter, and where points are many.

For each case and seed a GP is trained and calibrated by ``cv``, refits and all, three times on the
same rows: by maximum likelihood, with the prior as the library uses it (its weight fades between
ten and twenty points per hyperparameter), and with the prior at full weight whatever the size. Up
to 1,000 other rows judge the 95 % interval and the CRPS. The table has the points per
hyperparameter ``N / P``; the interval score, in deviations of the target, and the coverage under
maximum likelihood; and for both uses of the prior the ratios of interval score and CRPS to those of
maximum likelihood (geometric means over seeds), with the coverage.
"""

from collections.abc import Callable

import numpy as np
import torch
from sklearn.datasets import load_diabetes, make_friedman1

from sharpgp import CrossValidated, metrics
from sharpgp.gp import train
from sharpgp.gp.priors import LengthscalePrior
from sharpgp_benchmarks import datasets
from sharpgp_benchmarks.evidence.run import header, measured, row

COVERAGE = 0.95
#: What is compared: no prior, the library's rule, one that never fades.
PRIORS = ("maximum likelihood", "as it fades", "always")
MOST_TESTED = 1000
LEVELS = np.arange(1, 40) / 40
Table = tuple[np.ndarray, np.ndarray]


def synthetic(d: int, noise: float, function: Callable[[np.ndarray], np.ndarray]) -> Table:
    """Normal inputs, and a function of them with noise."""
    rng = np.random.default_rng(0)
    X = rng.normal(size=(2000, d))
    return X, function(X) + noise * rng.normal(size=len(X))


SLOPES = np.random.default_rng(1).normal(size=20) / 20**0.5
SYNTHETIC: dict[str, Callable[[], Table]] = {
    "2 of 20": lambda: synthetic(20, 0.7, lambda X: X[:, 0] + 0.5 * X[:, 1]),
    "20 of 20": lambda: synthetic(20, 0.3, lambda X: X @ SLOPES),
    "3 of 20 curved": lambda: synthetic(
        20, 0.2, lambda X: np.sin(X[:, 0]) + 0.5 * X[:, 1] * X[:, 2]
    ),
    "smooth 2d": lambda: synthetic(2, 0.1, lambda X: np.sin(2 * X[:, 0]) + X[:, 1]),
    "smooth 3d": lambda: synthetic(3, 0.1, lambda X: np.sin(2 * X[:, 0]) + X[:, 1] * X[:, 2]),
    "diabetes": lambda: load_diabetes(return_X_y=True),
    "friedman1": lambda: make_friedman1(2000, 10, noise=1.0, random_state=0),
}
CASES = (
    [(name, 60) for name in ("2 of 20", "20 of 20", "3 of 20 curved", "diabetes", "boston")]
    + [("smooth 2d", 30), ("smooth 2d", 60), ("smooth 3d", 60)]
    + [("diabetes", 120), ("friedman1", 120)]
    + [(name, 240) for name in ("diabetes", "boston", "concrete", "mpg", "friedman1")]
)


def load(name: str, data_home: str | None) -> Table:
    """Features and target of a set, made here or read from the folder."""
    if name in SYNTHETIC:
        return SYNTHETIC[name]()
    data = datasets.load(name, data_home)
    return data.X, data.y


def judge(
    name: str, rows: int, seed: int, data_home: str | None
) -> list[tuple[float, float, float]]:
    """Interval score, CRPS and coverage: maximum likelihood, the library's rule, prior always."""
    data = load(name, data_home)
    X, y = (torch.from_numpy(np.asarray(part, dtype=np.float64)) for part in data)
    order = torch.from_numpy(np.random.default_rng(seed).permutation(len(y)))
    fit, test = order[:rows], order[rows:][:MOST_TESTED]
    unit, truth = float(y.std()), y[test].numpy()
    weight = LengthscalePrior().for_size(rows, X.shape[1] + 2).weight
    found: dict[float, tuple[float, float, float]] = {}
    for share in dict.fromkeys((0.0, weight, 1.0)):
        prior = LengthscalePrior(fades=False, weight=share) if share else None
        posterior, _ = train(X[fit], y[fit], prior=prior)
        calibrated = CrossValidated(random_state=seed).fit(posterior)
        lower, upper = calibrated.predict_interval(X[test], COVERAGE).numpy().T
        quantiles = calibrated.predict_dist(X[test]).quantile(torch.from_numpy(LEVELS)).numpy()
        found[share] = (
            metrics.interval_score(truth, lower, upper, COVERAGE) / unit,
            metrics.crps(truth, quantiles, LEVELS) / unit,
            metrics.interval_coverage(truth, lower, upper),
        )
    return [found[share] for share in (0.0, weight, 1.0)]


def main(seeds: int = 4, cases: str = "", workers: int = 2, data_home: str | None = None) -> None:
    """Print the table; ``--cases`` names some of them, such as ``boston 60,boston 240``."""
    named = cases.split(",") if cases else [f"{name} {rows}" for name, rows in CASES]
    chosen = [(name, rows) for name, rows in CASES if f"{name} {rows}" in named]
    datasets.require([name for name, _ in chosen if name not in SYNTHETIC], data_home)
    heads = [f"{name}, {what}" for what in PRIORS for name in ("score", "CRPS", "coverage")]
    header("set", "N", "N/P", *(head for head in heads if head != f"CRPS, {PRIORS[0]}"))
    tasks = [(*case, seed, data_home) for case in chosen for seed in range(seeds)]
    judged = measured(judge, tasks, workers=workers)
    for i, (name, rows) in enumerate(chosen):
        found = np.array(judged[i * seeds : (i + 1) * seeds])
        ratio = np.exp(np.log(found[:, :, :2] / found[:, :1, :2]).mean(0))
        covered = found[:, :, 2].mean(0)
        cells = [f"{found[:, 0, 0].mean():.2f}", f"{covered[0]:.1%}"]
        for k in (1, 2):
            cells += [f"{ratio[k, 0]:.3f}", f"{ratio[k, 1]:.3f}", f"{covered[k]:.1%}"]
        d = load(name, data_home)[0].shape[1]
        row(name, rows, f"{rows / (d + 2):.1f}", *cells)
