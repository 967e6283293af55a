"""Tables from the packages of R, with categories and gaps: the estimator as it comes, and others.

On each split of each set of :mod:`sharpgp_benchmarks.table_sets`, 70 % of the rows and at most
``--rows`` of them train, and up to 1,000 others are predicted.  This library's methods get the
frame as it is, peers what a careful user makes of it: one-hot columns and medians.  Methods that
hold rows out calibrate on a quarter of those that train.  Interval scores and CRPS are relative to
the default's on the same rows; the best of the bands of a method counts.
"""

from typing import Any

import numpy as np

from sharpgp import SharpGPRegressor
from sharpgp._validation import check_choice
from sharpgp.metrics import interval_coverage, interval_score
from sharpgp.toy import Split
from sharpgp_benchmarks import table_sets
from sharpgp_benchmarks.evidence.common import Clock, without_warnings
from sharpgp_benchmarks.evidence.mixed_tables import by_hand
from sharpgp_benchmarks.evidence.run import header, measured, row
from sharpgp_benchmarks.peers.league import LEAGUE, why_not
from sharpgp_benchmarks.peers.protocol import BOTH, COVERAGES, DEFAULT, Case, Prediction

SHARE, MOST_TEST = 0.7, 1000
#: Settings of this library's estimator, and the bands it is asked for.
OURS: dict[str, tuple[dict[str, Any], dict[str, bool | None]]] = {
    "default": ({}, DEFAULT),
    "one-gp": ({"base": "rbf"}, DEFAULT),
    "exact": ({"calibration": "exact"}, DEFAULT),
    "rk": ({"base": "rbf", "calibration": "kuleshov18", "y_bounds": None}, BOTH),
}
METHODS = (*OURS, *LEAGUE)
#: Score and coverage of every interval, CRPS, and processor seconds.
FIGURES = 2 * len(COVERAGES) + 2


def ours(
    method: str, X: Any, y: np.ndarray, asked: Any, truth: np.ndarray, seed: int
) -> Prediction:
    """A method of this library, on the frame."""
    settings, bands = OURS[method]
    model = SharpGPRegressor(random_state=seed, **settings).fit(X, y)
    ends = {
        name: model.predict_interval(asked, COVERAGES, symmetric=kind)
        for name, kind in bands.items()
    }
    return Prediction(ends, float(np.mean(model.predict_dist(asked).crps(truth))))


def theirs(
    method: str, X: Any, y: np.ndarray, asked: Any, truth: np.ndarray, seed: int
) -> Prediction:
    """A method of another library, on numbers."""
    encoder = by_hand().fit(X)
    numbers, new = (np.asarray(encoder.transform(part), dtype=float) for part in (X, asked))
    k = 3 * len(y) // 4
    parts = Split(numbers[:k], y[:k], numbers[k:], y[k:], new, truth)
    return LEAGUE[method][1](Case(parts, seed, "cpu", float(y.std())))


def one(name: str, method: str, seed: int, rows: int) -> list[float]:
    """The :data:`FIGURES` of a method on one split of one set."""
    frame, y = table_sets.load(name)
    order = np.random.default_rng(100 + seed).permutation(len(y))
    n = min(rows, int(SHARE * len(y)))
    train, test = order[:n], order[n : n + MOST_TEST]
    predict = ours if method in OURS else theirs
    with without_warnings(), Clock() as clock:
        found = predict(method, frame.iloc[train], y[train], frame.iloc[test], y[test], seed)
    figures = []
    for k, coverage in enumerate(COVERAGES):
        ends = [(band[:, 0, k], band[:, 1, k]) for band in found.bands.values()]
        scores = [interval_score(y[test], *pair, coverage) for pair in ends]
        best = int(np.argmin(scores))
        figures += [scores[best], interval_coverage(y[test], *ends[best])]
    return [*figures, np.nan if found.crps is None else found.crps, clock.cpu]


def main(
    datasets: str = "all",
    methods: str = "default,one-gp,rk",
    rows: int = 600,
    seeds: int = 2,
    workers: int = 1,
) -> None:
    """Print geometric means over all sets, and the scores of each."""
    names = list(table_sets.SETS) if datasets == "all" else datasets.split(",")
    chosen = list(dict.fromkeys(["default", *methods.split(",")]))
    for option, given, known in (
        ("datasets", names, table_sets.SETS),
        ("methods", chosen, METHODS),
    ):
        for one_of in given:
            check_choice(one_of, option, known)
    for method in chosen:
        if reason := why_not(method):
            print(reason)
    chosen = [method for method in chosen if why_not(method) is None]
    cases = [(name, method) for name in names for method in chosen]
    # The last sets of a seed run beside the first of the next.
    tasks = [(*case, seed) for seed in range(seeds) for case in cases]
    found = measured(one, [(*task, rows) for task in tasks], workers=workers)
    figures = np.reshape(found, (seeds, len(names), len(chosen), FIGURES)).mean(0)
    # Ratios of both scores and of CRPS to the default's.
    ratios = figures[..., [0, 2, 4]] / figures[:, :1, [0, 2, 4]]
    scores = [part for c in COVERAGES for part in (f"score {c:.0%}", f"covers {c:.0%}")]
    header("method", *scores, "CRPS", "median: score 95%", "lower on", "processor s")
    for k, method in enumerate(chosen):
        first, second, crps = np.exp(np.log(ratios[:, k]).mean(0))
        covers = [f"{covered:.1%}" for covered in figures[:, k, [1, 3]].mean(0)]
        by_crps = "" if np.isnan(crps) else f"{crps:.3f}"  # not every peer gives a distribution
        cells = [f"{first:.3f}", covers[0], f"{second:.3f}", covers[1], by_crps]
        median, lower = np.median(ratios[:, k, 1]), int((ratios[:, k, 1] < 1.0).sum())
        row(method, *cells, f"{median:.3f}", f"{lower} sets", f"{figures[:, k, -1].mean():.1f}")
    print()
    others = [f"{method}: score 95%" for method in chosen[1:]]
    header("set", "default covers 90%", "95%", *others)
    for name, of_set, of_each in zip(names, figures, ratios, strict=True):
        covers = [f"{covered:.1%}" for covered in of_set[0, [1, 3]]]
        row(name, *covers, *(f"{ratio:.2f}" for ratio in of_each[1:, 1]))
