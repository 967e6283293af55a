"""The entry for ScoringBench on ScoringBench's protocol.

At most 3,000 rows of a set (seed 42) in five shuffled folds (seed 42); the entry is fitted on four
and judged on the fifth by its 999 quantiles, as the leaderboard does: CRPS, log score (negative log
density), coverage and interval score at 90 and 95 %.  Means over folds; scores in the target's
units.  ``entries``: the default estimator, one GP, and a Gaussian of the training rows' mean and
standard deviation, for scale.
"""

import time
from typing import Any, Protocol

import numpy as np
from scipy.special import ndtri
from sklearn.model_selection import KFold

from sharpgp import PredictiveDistribution, metrics
from sharpgp._validation import check_choice
from sharpgp_benchmarks.evidence.common import sets
from sharpgp_benchmarks.evidence.run import header, measured, row
from sharpgp_benchmarks.peers.scoringbench import LEVELS, Entry

SEED, FOLDS, ROWS = 42, 5, 3000
COVERAGES = (0.9, 0.95)


class Fitted(Protocol):
    """What is judged."""

    def fit(self, X: np.ndarray, y: np.ndarray) -> Any: ...

    def answer(self, X: np.ndarray) -> tuple[np.ndarray, np.ndarray]: ...


class Constant:
    """The Gaussian of the training targets, whatever the inputs."""

    def fit(self, X: np.ndarray, y: np.ndarray) -> "Constant":
        self.mean, self.row = y.mean(), y.mean() + y.std() * ndtri(LEVELS)
        return self

    def answer(self, X: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        return np.full(len(X), self.mean), np.tile(self.row, (len(X), 1))


ENTRIES = {
    "default": lambda: Entry(),
    "one GP": lambda: Entry(base="rbf"),
    "constant": lambda: Constant(),
}


def judged(quantiles: np.ndarray, y: np.ndarray) -> list[float]:
    """CRPS, log score, and coverage and interval score of both coverages."""
    found = PredictiveDistribution(LEVELS, quantiles.T, numpy=True)
    scores = [float(found.crps(y).mean()), -float(found.log_prob(y).mean())]
    for coverage in COVERAGES:
        side = round(500 * (1 - coverage))  # LEVELS[k - 1] is k / 1000
        lower, upper = quantiles[:, side - 1], quantiles[:, -side]
        scores.append(metrics.interval_coverage(y, lower, upper))
        scores.append(metrics.interval_score(y, lower, upper, coverage))
    return scores


def run(name: str, entry: str, data_home: str | None) -> list[float]:
    """Means over folds, and the seconds of one."""
    (data,) = sets(name, data_home)
    rows = np.random.default_rng(SEED).permutation(len(data.y))[:ROWS]
    X, y = data.X[rows], data.y[rows]
    found = []
    for train, test in KFold(FOLDS, shuffle=True, random_state=SEED).split(X):
        start = time.perf_counter()
        model: Fitted = ENTRIES[entry]().fit(X[train], y[train])
        _, quantiles = model.answer(X[test])
        found.append([*judged(quantiles, y[test]), time.perf_counter() - start])
    return np.mean(found, axis=0).tolist()


def main(
    datasets: str = "diabetes",
    entries: str = "default,one GP,constant",
    data_home: str | None = None,
) -> None:
    """Print the table."""
    chosen = entries.split(",")
    for entry in chosen:
        check_choice(entry, "entries", ENTRIES)
    shares = [f"{what} {c:.0%}" for c in COVERAGES for what in ("covers", "score")]
    header("set", "entry", "CRPS", "log score", *shares, "seconds per fold")
    for data in sets(datasets, data_home):
        for entry in chosen:
            row(data.name, entry, *measured(run, [(data.name, entry, data_home)])[0])
