"""The default estimator with many rows, beside single GPs and a quantile forest.

The evidence behind what ``base="auto"`` pools beyond 1,000 rows, and behind neighbours in
``approximation="auto"``. Every model gets the same rows, of which it holds out what it calibrates
with, and is judged on ``--test-rows`` others, or a fifth of a set that has fewer. Each fit runs in
a process of its own, whose peak memory is then its own; ``--workers`` of them at a time, with
``--threads`` each. Times are wall-clock seconds: of the fit, and of 95 % intervals for 10,000 rows.
"""

import json
import os
import resource
import subprocess
import sys
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor, as_completed
from itertools import product
from typing import Any

import numpy as np
from scipy.sparse import csr_matrix
from sklearn.ensemble import RandomForestRegressor

from sharpgp import Neighbours, SharpGPRegressor, Sparse, metrics
from sharpgp._validation import check_choice
from sharpgp_benchmarks.evidence.common import GENERATED, Clock, numbers, sets, without_warnings
from sharpgp_benchmarks.evidence.run import header, row

#: Levels whose pinball losses make the CRPS of quantiles.
LEVELS = np.arange(0.5, 100.0) / 100
#: Trees of the default pool, up to 10,000 rows.
TREES = ("extra_trees", "boosted_trees")
COLUMNS = ("CRPS", "score", "coverage", "fit, s", "predict, s", "GiB")
#: Interval ends [T, 2] and CRPS.
Answer = tuple[np.ndarray, float]
#: Rows, set, model and repetition.
Case = tuple[int, str, str, int]
#: Of training rows and test rows: seconds of fit and of prediction, and the answer.
Contestant = Callable[..., tuple[float, float, Answer]]


def of_settings(**settings: Any) -> Contestant:
    """The estimator with some settings."""

    def run(
        X: np.ndarray,
        y: np.ndarray,
        X_test: np.ndarray,
        y_test: np.ndarray,
        seed: int,
        device: str,
    ) -> tuple[float, float, Answer]:
        with Clock(device) as fitting:
            model = SharpGPRegressor(random_state=seed, device=device, **settings).fit(X, y)
        with Clock(device) as predicting:
            ends = model.predict_interval(X_test)
        crps = model.calibration_report(X_test, y_test)["crps"]
        return fitting.wall, predicting.wall, (ends, float(crps))

    return run


def quantile_forest(
    X: np.ndarray, y: np.ndarray, X_test: np.ndarray, y_test: np.ndarray, seed: int, device: str
) -> tuple[float, float, Answer]:
    """Weighted quantiles of all targets, by how often they share a leaf of a random forest."""
    with Clock() as fitting:
        forest = RandomForestRegressor(
            100, min_samples_leaf=5, max_features=0.5, random_state=seed
        ).fit(X, y)
        order = np.argsort(y)
        members = _incidence(forest.apply(X[order]))
    with Clock() as predicting:
        sizes = np.maximum(np.asarray(members.sum(0)).ravel(), 1.0)
        asked = _incidence(forest.apply(X_test), members.shape[1]).multiply(1.0 / sizes).tocsr()
        levels = np.r_[LEVELS, 0.025, 0.975]
        found = []
        for i in range(0, len(X_test), 100):
            share = (asked[i : i + 100] @ members.T).toarray().cumsum(1)
            share /= share[:, -1:]
            places = [np.searchsorted(one, levels) for one in share]
            found.append(y[order][np.minimum(places, len(y) - 1)])
    quantiles = np.concatenate(found)
    crps = 2.0 * metrics.pinball_loss(y_test, quantiles[:, : len(LEVELS)], LEVELS)
    return fitting.wall, predicting.wall, (quantiles[:, -2:], float(crps))


def _incidence(leaves: np.ndarray, n_nodes: int | None = None) -> csr_matrix:
    """Sparse [rows, trees times nodes] with 1 where a row is in a leaf."""
    trees = leaves.shape[1]
    width = (leaves.max() + 1 if n_nodes is None else n_nodes // trees) * trees
    columns = leaves + np.arange(trees) * (width // trees)
    rows = np.repeat(np.arange(len(leaves)), trees)
    return csr_matrix((np.ones(leaves.size), (rows, columns.ravel())), shape=(len(leaves), width))


#: What is compared.
CONTESTANTS: dict[str, Contestant] = {
    "default": of_settings(),
    "held out": of_settings(calibration="exact"),
    "exact rbf": of_settings(base="rbf", approximation="exact"),
    "sparse rbf": of_settings(base="rbf", approximation="sparse"),
    "sparse 500": of_settings(base="rbf", approximation=Sparse(500)),
    "sparse 1000": of_settings(base="rbf", approximation=Sparse(1000)),
    "sparse 300": of_settings(base="matern32", approximation=Sparse(300)),
    "neighbours 64": of_settings(base="matern32", approximation=Neighbours(64)),
    "neighbours 128": of_settings(base="matern32", approximation=Neighbours(128)),
    "neighbours rbf": of_settings(base="rbf", approximation=Neighbours(64)),
    "one kernel and trees": of_settings(base=["matern32", *TREES]),
    "two kernels and trees": of_settings(base=["rbf", "matern32", *TREES]),
    "quantile forest": quantile_forest,
}


def draw(name: str, n: int, n_test: int, seed: int, data_home: str | None) -> list[np.ndarray]:
    """Training inputs and targets, then those that judge; fewer rows where a set has fewer."""
    if name in GENERATED:
        X, y = GENERATED[name](n + n_test, seed)
    else:
        (data,) = sets(name, data_home)
        order = np.random.default_rng(seed).permutation(len(data.y))[: n + n_test]
        X, y = data.X[order], data.y[order]
    n_train = n if len(y) == n + n_test else len(y) - len(y) // 5
    return [X[:n_train], y[:n_train], X[n_train:], y[n_train:]]


def measure(
    kind: str, name: str, n: int, seed: int, n_test: int, device: str, data_home: str | None
) -> None:
    """Print the figures of one fit; to be called in a process of its own."""
    X, y, X_test, y_test = draw(name, n, n_test, seed, data_home)
    with without_warnings():
        fitting, predicting, (ends, crps) = CONTESTANTS[kind](X, y, X_test, y_test, seed, device)
    inside = metrics.interval_coverage(y_test, *ends.T)
    score = metrics.interval_score(y_test, *ends.T, 0.95)
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20
    per_10k = predicting * 10_000 / len(y_test)
    print(json.dumps([crps, score, inside, fitting, per_10k, peak]))


def _apart(threads: int, *arguments: object) -> list[float]:
    """:func:`measure` in a process of its own."""
    call = ", ".join(map(repr, arguments))
    code = f"from sharpgp_benchmarks.evidence import many_rows; many_rows.measure({call})"
    given = dict.fromkeys(["OMP_NUM_THREADS", "MKL_NUM_THREADS", "LOKY_MAX_CPU_COUNT"], threads)
    done = subprocess.run(
        [sys.executable, "-c", code],
        env=os.environ | {name: str(value) for name, value in given.items()},
        stdout=subprocess.PIPE,
        text=True,
        check=True,
    )
    return list(json.loads(done.stdout.splitlines()[-1]))


def main(
    data: str = "robot arm,simulated,smooth 3d,rough,heteroscedastic,50 features",
    rows: str = "10000,40000",
    kinds: str = "default,sparse rbf,sparse 300,neighbours 64,quantile forest",
    repeats: int = 1,
    workers: int = 1,
    threads: int = 1,
    test_rows: int = 4000,
    device: str = "cpu",
    beside: str = "sparse rbf,quantile forest",
    data_home: str | None = None,
) -> None:
    """Print a row for every model as it is known, then geometric means of ratios."""
    names, sizes, chosen = data.split(","), numbers(rows), kinds.split(",")
    for kind in chosen:
        check_choice(kind, "kinds", CONTESTANTS)
    if real := [name for name in names if name not in GENERATED]:
        sets(",".join(real), data_home)
    print(f"{threads} thread(s) for each fit, {repeats} repetition(s)\n")
    header("set", "rows", "model", "repetition", *COLUMNS)
    # The longest first.
    cases = list(product(sorted(sizes, reverse=True), names, chosen, range(repeats)))
    found: dict[Case, list[float]] = {}
    with ThreadPoolExecutor(workers) as pool:
        jobs = {
            pool.submit(_apart, threads, kind, name, n, seed, test_rows, device, data_home): (
                n,
                name,
                kind,
                seed,
            )
            for n, name, kind, seed in cases
        }
        for job in as_completed(jobs):
            n, name, kind, seed = case = jobs[job]
            crps, score, inside, *costs = found[case] = job.result()
            quality = f"{crps:.4g}", f"{score:.4g}", f"{inside:.1%}"
            row(name, f"{n:,}", kind, seed, *quality, *(f"{cost:.1f}" for cost in costs))
    for reference in beside.split(","):
        if reference in chosen:
            _ratios(found, chosen, reference)


def _ratios(found: dict[Case, list[float]], kinds: list[str], reference: str) -> None:
    """Print geometric means over sets, sizes and repetitions, and the largest ratio of scores."""
    print(f"\nRelative to {reference}, geometric means\n")
    header("model", "CRPS", "score", "largest ratio of scores")
    for kind in kinds:
        ratios = np.array(
            [
                np.divide(figures[:2], found[n, name, reference, seed][:2])
                for (n, name, own, seed), figures in found.items()
                if own == kind
            ]
        )
        means = np.exp(np.log(ratios).mean(0))
        row(kind, *(f"{value:.3f}" for value in (*means, ratios[:, 1].max())))
