"""Every line of every promise, checked on models of a known truth; with broken premises, too.

A law that is off (a spread of one size where the noise is uneven) is calibrated ``--draws`` times
on fresh rows, or groups.  Of tolerance intervals the table has the share of models whose true
coverage is as large as asked, beside what whole ranks attain; of decisions the share below the
worst case; of selections the mean share of false ones and how many are found; of a population's
mean the coverage and the width relative to the labelled rows alone; and how many promises say that
a premise is in doubt.
"""

import math
import warnings
from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from scipy.stats import binom
from scipy.stats import norm as normal
from torch import Tensor

from sharpgp._validation import as_numpy
from sharpgp.calibration.predictors.scored import ScoredPredictor
from sharpgp.calibration.tolerance import tolerance_rank, with_confidence
from sharpgp.decisions import decide
from sharpgp.exceptions import InvalidInputError
from sharpgp.models.laws import Normal
from sharpgp.models.model import Model
from sharpgp.population import population_mean
from sharpgp.promise import promise_of
from sharpgp.rows import Rows
from sharpgp.selection import select
from sharpgp_benchmarks.evidence.run import header, measured, row

Floats = NDArray[np.float64]
COVERAGE, CONFIDENCE = 0.9, 0.95
#: Worlds without independent rows.
BROKEN = ("copies", "order")
# Deviation of a group's effect.
_GROUP = 0.7


class KnownLaw(Model):
    """Location ``strength * x`` and a spread of 1, whatever the truth is."""

    gp = None
    n_features = 1
    device = torch.device("cpu")
    rows = Rows(torch.zeros(0, 1, dtype=torch.float64))
    y_train = rows.X[:, 0]

    def __init__(self, strength: float) -> None:
        self.strength = strength

    def law(self, rows: Rows) -> Normal:
        return Normal(self.strength * rows.X[:, 0], torch.ones_like(rows.X[:, 0]))

    def extended(self, rows: Rows, y: Tensor) -> Model:
        return self

    updated = extended


def spread(x: Floats) -> Floats:
    """The true deviation of the noise."""
    return np.asarray(0.5 + np.abs(x))


def drawn(
    n: int, rng: np.random.Generator, strength: float = 1.0, world: str = "rows"
) -> tuple[Floats, Floats, NDArray[Any]]:
    """Inputs, targets and groups of a world: rows, ties, groups, copies, order."""
    if world == "groups":
        sizes = rng.integers(1, 8, n)
        groups = np.repeat(np.arange(n), sizes)
        x = rng.normal(size=len(groups))
        effect = rng.normal(0.0, _GROUP, n)[groups]
        return x, strength * x + effect + spread(x) * rng.normal(size=len(x)), groups
    x = rng.normal(size=n)
    if world == "ties":
        x = x.round()
    noise = rng.normal(size=n)
    if world == "copies":  # every row three times, as if they were rows of their own
        x, noise = (np.repeat(one[: -(-n // 3)], 3)[:n] for one in (x, noise))
    y = strength * x + spread(x) * noise
    if world == "order":  # later rows, those to come among them, are noisier
        y = strength * x + spread(x) * noise * np.linspace(0.5, 1.0, n)
    return x, (y.round() if world == "ties" else y), np.arange(n)


def predictor(
    x: Floats, y: Floats, groups: NDArray[Any] | None, strength: float
) -> ScoredPredictor:
    """The law calibrated on rows."""
    rows = Rows(torch.from_numpy(x)[:, None])
    found = ScoredPredictor.from_model(KnownLaw(strength), rows, torch.from_numpy(y))
    if groups is None:
        return found
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        of_groups = found.for_groups(torch.from_numpy(groups))
    assert isinstance(of_groups, ScoredPredictor)
    return of_groups


def true_coverage(low: Floats, high: Floats, x: Floats, strength: float, world: str) -> float:
    """Mean probability of the intervals [n] at the inputs [n]."""
    deviation = spread(x)
    if world == "groups":
        deviation = np.sqrt(deviation**2 + _GROUP**2)
    if world == "ties":  # y is rounded
        low, high = np.ceil(low - 1e-6) - 0.5, np.floor(high + 1e-6) + 0.5
    ends = ((end - strength * x) / deviation for end in (high, low))
    return float((normal.cdf(next(ends)) - normal.cdf(next(ends))).mean())


def tolerance(world: str, kind: str, C: int, draws: int, seed: int) -> list[float]:
    """Share of models that cover as asked, mean coverage, and the share that cover as promised."""
    rng = np.random.default_rng([seed, C, len(world)])
    grid = normal.ppf((np.arange(400) + 0.5) / 400)
    X = torch.from_numpy(grid.round() if world == "ties" else grid)[:, None]
    covered, promised = [], []
    bound: float | None = None
    for _ in range(draws):
        x, y, groups = drawn(C, rng, world=world)
        found = predictor(x, y, groups if world == "groups" else None, 1.0)
        try:
            if kind == "quantile":
                sure = with_confidence(found, CONFIDENCE, levels=COVERAGE)
                high = as_numpy(sure.predict_quantiles(X, COVERAGE))
                low = np.full_like(high, -np.inf)
            else:
                how: dict[str, Any] = {"symmetric": kind == "band"}
                sure = with_confidence(found, CONFIDENCE, coverage=COVERAGE, **how)
                low, high = as_numpy(sure.predict_interval(X, COVERAGE, **how)).T
        except InvalidInputError:
            return [math.nan] * 3
        place = as_numpy(X)[:, 0]
        covered.append(true_coverage(low, high, place, 1.0, world))
        if kind == "band":
            low, high = as_numpy(found.predict_interval(X, COVERAGE)).T
            if bound is None:  # the same for every model of that many rows
                bound = promise_of(found, "exact", coverage=COVERAGE).lines[0].bound
            truth = true_coverage(low, high, place, 1.0, world)
            promised.append(bound is not None and truth >= bound)
    reached = [share >= COVERAGE for share in covered]
    return [float(np.mean(one)) if one else math.nan for one in (reached, covered, promised)]


def attained(kind: str, C: int) -> float:
    """Confidence that whole ranks attain; at least the one asked."""
    k = tolerance_rank(COVERAGE, CONFIDENCE, C)
    if k > C - (kind == "centred"):
        return math.nan
    return float(binom.cdf(k - 1, C, COVERAGE))


def decisions(world: str, utility: str, C: int, draws: int, seed: int) -> list[float]:
    """Share of new rows whose utility is below the worst case; mean utility, and of plain means."""
    rng = np.random.default_rng([seed, C, 1])
    u: Callable[[Any, Floats], Floats] = {
        "order": lambda a, y: 3.0 * np.minimum(a, y) - a + 12.0,  # six units are always sold
        "dose": lambda a, y: -np.abs(y - a),
    }[utility]
    actions = np.linspace(-4, 4, 33)
    below, safe, plain = [], [], []
    for _ in range(draws):
        x, y, _ = drawn(C + 5, rng, world=world)
        found = predictor(x[:C], y[:C], None, 1.0)
        X = torch.from_numpy(x[C:])[:, None]
        ends = as_numpy(found.predict_interval(X, COVERAGE))
        law = found.predict_dist(X).numpy()

        def quantiles(rows: slice, levels: Floats, law: Any = law) -> Floats:
            return np.asarray(law.quantile(levels))[rows]

        chosen = decide(ends, quantiles, actions, u)
        gained = u(chosen.action, y[C:])
        below.append((gained < chosen.worst_case - 1e-9).mean())
        safe.append(gained.mean())
        plain.append(u(x[C:], y[C:]).mean())
    return [float(np.mean(one)) for one in (below, safe, plain)]


def selections(world: str, strength: float, C: int, draws: int, seed: int) -> list[float]:
    """Mean share of false ones, rows found of 100, and found by lower ends of intervals."""
    rng = np.random.default_rng([seed, C, 2, round(10 * strength)])
    false, found, by_ends = [], [], []
    for _ in range(draws):
        x, y, groups = drawn(C, rng, strength, world)
        model = predictor(x, y, groups if world == "groups" else None, strength)
        x_new, y_new, _ = drawn(100, rng, strength, "rows" if world == "groups" else world)
        if world == "groups":
            y_new = y_new + rng.normal(0.0, _GROUP, 100)
        if world == "shift":
            x_new = x_new + 1.0
            y_new = y_new + strength
        X = torch.from_numpy(x_new)[:, None]
        chosen = select(model, X, above=1.0).chosen
        wrong = y_new <= 1.0
        false.append((chosen & wrong).sum() / max(1, chosen.sum()))
        found.append((chosen & ~wrong).sum())
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            low = as_numpy(model.predict_interval(X, 0.8))[:, 0]  # a tenth lies below
        by_ends.append(((low > 1.0) & ~wrong).sum())
    return [float(np.mean(one)) for one in (false, found, by_ends)]


def census(world: str, strength: float, C: int, draws: int, seed: int) -> list[float]:
    """Coverage of the mean of a pool of 2,000 rows, width relative to the labelled rows alone."""
    rng = np.random.default_rng([seed, C, 3, round(10 * strength)])
    inside, width = [], []
    for _ in range(draws):
        x, y, groups = drawn(C, rng, strength, world)
        model = predictor(x, y, groups if world == "groups" else None, strength)
        size = 500 if world == "groups" else 2000
        x_new, y_new, _ = drawn(size, rng, strength, world)
        if world == "moved":  # the pool has other inputs, and noise that does not average out
            x_new, y_new = x_new + 1.0, y_new + strength + 0.5
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            found = population_mean(model, torch.from_numpy(x_new)[:, None])
        inside.append(found.lower <= y_new.mean() <= found.upper)
        width.append((found.upper - found.lower) / (found.classical[1] - found.classical[0]))
    return [float(np.mean(inside)), float(np.mean(width))]


def doubts(world: str, C: int, draws: int, seed: int) -> float:
    """Share of promises, to 200 new rows, with a premise in doubt."""
    rng = np.random.default_rng([seed, C, 4, len(world)])
    found = []
    for _ in range(draws):
        x, y, groups = drawn(C, rng, world=world)
        model = predictor(x, y, groups if world == "groups" else None, 1.0)
        new = rng.normal(size=200) + (world == "shift")
        X = torch.from_numpy(new.round() if world == "ties" else new)[:, None]
        found.append(any(one.doubtful for one in promise_of(model, "exact", X).premises))
    return float(np.mean(found))


def main(draws: int = 2000, seed: int = 0) -> None:
    """Print the tables; worlds ``copies``, ``order``, ``shift`` and ``moved`` break a premise."""
    header("world", "interval", "C", "attained", "models", "coverage", "bound holds")
    for world in ("rows", "ties", "groups", "copies", "order"):
        for kind in ("centred", "band", "quantile"):
            for C in (45, 46, 100):
                n = draws // 5 if world in BROKEN else draws
                (found,) = measured(tolerance, [(world, kind, C, n, seed)])
                row(world, kind, C, attained(kind, C), *found)
    print()
    header("world", "utility", "C", "below worst case", "utility gained", "by means")
    for world in ("rows", "ties", "order"):
        for utility in ("order", "dose"):
            (found,) = measured(decisions, [(world, utility, 99, draws // 4, seed)])
            row(world, utility, 99, *found)
    print()
    header("world", "strength", "C", "false", "found", "by ends of intervals")
    for world in ("rows", "groups", "ties", "shift", "copies"):
        for strength in (0.3, 1.0, 2.0):
            (found,) = measured(selections, [(world, strength, 200, draws // 4, seed)])
            row(world, strength, 200, *found)
    print()
    header("world", "strength", "C", "covered", "width", "sqrt(1 - R2)")
    for world in ("rows", "ties", "groups", "moved"):
        for strength in (0.3, 1.0, 3.0):
            (found,) = measured(census, [(world, strength, 100, draws // 4, seed)])
            x = np.random.default_rng(1).normal(size=100_000)
            noise = (spread(x) ** 2).mean() + (_GROUP**2 if world == "groups" else 0.0)
            root = math.sqrt(noise / (noise + strength**2))
            row(world, strength, 100, *found, root)
    print()
    header("world", "C", "in doubt")
    for world in ("rows", "ties", "groups", "copies", "order", "shift"):
        (share,) = measured(doubts, [(world, 100, draws // 4, seed)])
        row(world, 100, share)
