"""Models of other kinds, calibrated: coverage, and the CRPS beside the model's own.

``real``: scikit-learn's models on 40 % of the rows; the others are cut into calibration and test
rows at random, ten times.  Boosting with a quantile loss at nine levels, a forest whose leaves give
quantiles (as a function), and Bayesian ridge regression (a Gaussian).

``simulated``: a standard Gaussian as the model of data that it fits, or does not; CRPS beyond that
of the truth, in per cent of it, of the model's own distribution, of ranks alone, and of the mixture
that ``predict_dist`` gives.
"""

from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from scipy.special import ndtri
from sklearn.ensemble import HistGradientBoostingRegressor, RandomForestRegressor
from sklearn.linear_model import BayesianRidge
from torch import Tensor

from sharpgp import PredictiveDistribution, calibrate
from sharpgp.calibration.any_model import ForeignPredictor, smooth_beta
from sharpgp.models.foreign import LEVELS
from sharpgp_benchmarks.evidence.common import sets, without_warnings
from sharpgp_benchmarks.evidence.run import header, row

COVERAGES = (0.8, 0.9, 0.95)
BOOSTED_LEVELS = (0.025, 0.05, 0.1, 0.25, 0.5, 0.75, 0.9, 0.95, 0.975)
CUTS = 10
DELTA = torch.tensor(LEVELS, dtype=torch.float64)
#: Scores of data under a model that takes them for standard normal.
SIMULATED: dict[str, Callable[[np.random.Generator, int], np.ndarray]] = {
    "calibrated": lambda rng, n: rng.normal(size=n),
    "overconfident": lambda rng, n: 1.5 * rng.normal(size=n),
    "underconfident": lambda rng, n: 0.6 * rng.normal(size=n),
    "biased": lambda rng, n: 0.5 + rng.normal(size=n),
    "skewed": lambda rng, n: (rng.gamma(2.0, size=n) - 1.5) / 1.4,
}


def boosted(X: np.ndarray, y: np.ndarray, seed: int) -> Any:
    """Regressors by level."""
    return [
        HistGradientBoostingRegressor(
            loss="quantile", quantile=p, max_iter=60, min_samples_leaf=10, random_state=seed
        ).fit(X, y)
        for p in BOOSTED_LEVELS
    ]


def leaves(X: np.ndarray, y: np.ndarray, seed: int) -> Any:
    """Quantiles of the targets that share leaves with a point, as a function."""
    forest = RandomForestRegressor(100, min_samples_leaf=5, random_state=seed).fit(X, y)
    order = np.argsort(y)
    members, targets = forest.apply(X)[order], y[order]

    def quantiles(X: np.ndarray, levels: np.ndarray) -> np.ndarray:
        found = []
        for leaf in forest.apply(X):
            same = members == leaf
            mass = (same / same.sum(0)).mean(1).cumsum()
            found.append(targets[np.searchsorted(mass, levels - 1e-9)])
        return np.array(found)

    return quantiles


def bayesian(X: np.ndarray, y: np.ndarray, seed: int) -> Any:
    """A Gaussian."""
    return BayesianRidge().fit(X, y)


MODELS = {"boosted quantiles": boosted, "forest leaves": leaves, "Bayesian ridge": bayesian}


def crps(model: ForeignPredictor, beta: Tensor, tables: Tensor, y: Tensor) -> float:
    """Mean CRPS where the scores at the tabulated levels are ``beta`` [K]."""
    quantiles = model.model.value(tables, beta.unsqueeze(-1))
    return float(PredictiveDistribution(LEVELS, quantiles).crps(y).mean())


def inside(ends: Tensor, y: Tensor) -> list[float]:
    """Shares of ``y`` [T] between ends [T, 2, k]."""
    held = (ends[:, 0] <= y.unsqueeze(1)) & (y.unsqueeze(1) <= ends[:, 1])
    return held.double().mean(0).tolist()


def real(datasets: str, seeds: int, rows: int, data_home: str | None) -> None:
    """Coverage and CRPS of calibrated models and of their own quantiles."""
    ends = [0.5 * (1.0 - c) for c in COVERAGES], [0.5 * (1.0 + c) for c in COVERAGES]
    header("set", "model", "own coverage of 80, 90, 95 %", "calibrated", "CRPS", "worst seed")
    for data in sets(datasets, data_home):
        for name, fitted in MODELS.items():
            own, calibrated, ratio = [], [], []
            for seed in range(seeds):
                rng = np.random.default_rng(seed)
                order = rng.permutation(len(data.y))[:rows]
                X, y = data.X[order], data.y[order]
                n = int(0.4 * len(y))
                asked = fitted(X[:n], y[:n], seed)
                scores = []
                for _ in range(CUTS):
                    rest = n + rng.permutation(len(y) - n)
                    cal, test = np.array_split(rest, 2)
                    model = calibrate(asked, X[cal], y[cal])
                    tables, truth = model.source.table(X[test]), torch.from_numpy(y[test])
                    z = torch.from_numpy(np.array([ndtri(side) for side in ends]))
                    raw = torch.stack(
                        [model.model.value(tables, one.unsqueeze(-1)).T for one in z], 1
                    )
                    own.append(inside(raw, truth))
                    ends = torch.as_tensor(model.predict_interval(X[test], COVERAGES))
                    calibrated.append(inside(ends, truth))
                    after = float(model.predict_dist(X[test]).crps(y[test]).mean())
                    scores.append([after, crps(model, torch.special.ndtri(DELTA), tables, truth)])
                after, before = np.mean(scores, axis=0)
                ratio.append(after / before)
            shown = [
                ", ".join(f"{100 * c:.1f}" for c in np.mean(found, axis=0))
                for found in (own, calibrated)
            ]
            row(data.name, name, *shown, f"{np.mean(ratio):.3f}", f"{max(ratio):.3f}")


def simulated(runs: int) -> None:
    """CRPS beyond that of the truth, in per cent of it."""
    header("scores", "C", "model's own", "ranks", "mixture")
    normal = torch.special.ndtri(DELTA)
    for name, draw in SIMULATED.items():
        for C in (50, 200, 1000):
            found = []
            for run in range(runs):
                rng = np.random.default_rng(run)
                X, y = np.zeros((C, 1)), draw(rng, C)
                model = calibrate(lambda X, levels: X + ndtri(levels), X, y)
                true = torch.from_numpy(np.quantile(draw(rng, 10**5), LEVELS))
                new = torch.from_numpy(draw(rng, 5000))
                tables = model.source.table(np.zeros((5000, 1)))
                ranks = smooth_beta(model.ranks, DELTA)
                mixture = torch.lerp(normal, ranks, model.trust)
                found.append([crps(model, b, tables, new) for b in (true, normal, ranks, mixture)])
            truth, *others = np.mean(found, axis=0)
            row(name, C, *(f"{100 * (other / truth - 1):.2f}" for other in others))


def main(
    parts: str = "real,simulated",
    datasets: str = "boston,concrete,wine,mpg",
    seeds: int = 3,
    rows: int = 1000,
    runs: int = 10,
    data_home: str | None = None,
) -> None:
    """Print one table for each part."""
    with without_warnings():
        if "real" in parts.split(","):
            real(datasets, seeds, rows, data_home)
        if "simulated" in parts.split(","):
            simulated(runs)
