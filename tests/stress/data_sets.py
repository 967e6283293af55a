"""Every method on every generated data set: finite, ordered, and covering what it promises."""

import math
import traceback
import warnings
from collections import Counter, defaultdict
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch
from sklearn.linear_model import Ridge
from sklearn.neighbors import KNeighborsRegressor
from sklearn.tree import DecisionTreeRegressor

from helpers import method
from sharpgp import CalibrationWarning, SharpGPError, SharpGPRegressor, Sparse
from sharpgp._ranks import whole_rank
from sharpgp.calibration import Recalibrator, known_methods
from sharpgp.exceptions import MissingExtraError
from sharpgp.models.bases import Bases
from stress.shapes import Case, draw

#: Methods that take long run on every so many data sets only.
SELDOM = {"fully_bayesian": 250, "capone22": 10, "cv": 3, "cv+": 5, "loo": 3, "exact": 2}
SETTINGS = {
    "capone22": {"hyperposterior": "laplace"},
    "paper": {"levels": 5},
    "kuleshov22": {"epochs": 200},
}
#: Methods whose coverage is exact on exchangeable data, up to ties.
EXACT = ("kuleshov18", "marx22", "exact")
#: Methods that may cover less than they say, and by how much on average over all data sets on
#: which they do not warn (docs/numerics.md, "Coverage without a promise").
SHORT = {"paper": 0.03, "kuleshov22": 0.05, "cv": 0.02, "loo": 0.02, "vovk20": 0.01}
#: What their warnings say; where they warn, coverage is printed and not judged.
LESS, WARNED = "cover much less than requested", " (warned)"
COVERAGE = 0.8
KERNELS = ("rbf", "matern12", "matern32", "matern52")
#: Kinds of model, with their shares of the data sets.
MODELS = {"exact": 0.5, "sparse": 0.2, "mean": 0.2, "sparse, mean": 0.1}
MEANS = (Ridge(), DecisionTreeRegressor(max_depth=4, random_state=0), KNeighborsRegressor(3))
LEVELS = (0.001, 0.05, 0.2, 0.5, 0.8, 0.95, 0.999)


@dataclass
class Tally:
    """What happened to a data set: problems found, clean errors, hits by method."""

    name: str
    problems: list[str] = field(default_factory=list)
    errors: list[str] = field(default_factory=list)
    answers: int = 0
    model: str = ""
    #: Method -> points inside, points expected inside, variance of that number, points.
    hits: dict[str, tuple[float, float, float, float]] = field(default_factory=dict)
    tied: bool = False


def examine(number: int, seed: int = 0) -> Tally:
    """Draw a data set, fit every method to it and look at all answers."""
    torch.set_num_threads(1)
    case = draw(number, seed)
    tally = Tally(case.name, tied=case.tied)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        model = _model(number, len(case.y))
        tally.model = _kind(model)
        posterior = _attempt(tally, "training", lambda: _trained(case, model))
        for name in known_methods() if posterior is not None else ():
            if number % SELDOM.get(name, 1) == 0:
                fit = lambda name=name: _method(name).fit(posterior, case.X_cal, case.y_cal)  # noqa: E731
                _judge(tally, case, name, fit)
        names = [name for name in known_methods() if SELDOM.get(name, 1) < 5]
        estimator = model.set_params(calibration=_method(names[number % len(names)]))
        _judge(tally, case, "estimator", lambda: estimator.fit(case.X, case.y))
    return tally


def _model(number: int, rows: int) -> SharpGPRegressor:
    """Kernel in turn; kind of model, inducing inputs and regression drawn by number."""
    rng = np.random.default_rng([number, 1])
    kind, kernel = (
        str(rng.choice(list(MODELS), p=list(MODELS.values()))),
        KERNELS[number % len(KERNELS)],
    )
    return SharpGPRegressor(
        base=MEANS[int(rng.integers(len(MEANS)))] if "mean" in kind else kernel,
        approximation=Sparse(int(rng.integers(1, max(2, rows // 2))))
        if "sparse" in kind
        else "auto",
        random_state=0,
    )


def _kind(model: SharpGPRegressor) -> str:
    given = {
        "sparse": isinstance(model.approximation, Sparse),
        "mean": not isinstance(model.base, str),
    }
    return ", ".join(name for name, is_given in given.items() if is_given) or "exact"


def _method(name: str) -> Recalibrator:
    return method(name, **SETTINGS.get(name, {}))


def _trained(case: Case, model: SharpGPRegressor) -> Any:
    X, y = (torch.tensor(np.asarray(a, dtype=np.float64)) for a in (case.X, case.y))
    return Bases(model.base, model.approximation, seed=0).one_gp(X, y)


def _judge(tally: Tally, case: Case, name: str, fit: Any) -> None:
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always", CalibrationWarning)
        fitted = _attempt(tally, name, fit)
    if fitted is None:
        return
    found = _attempt(tally, name, lambda: list(faults(fitted, case)))
    if found is None:
        return
    tally.problems += [f"{name}: {fault}" for fault in found]
    tally.answers += 1
    if name == "estimator":
        return
    C = fitted.n_cal
    if C is None or not fitted.band_supported(COVERAGE):
        return
    lower, upper = fitted.predict_interval(case.X_test, COVERAGE, symmetric=True).T.numpy()
    inside = int(((lower <= case.y_test) & (case.y_test <= upper)).sum())
    k, T = whole_rank(COVERAGE, C, up=True), len(case.y_test)
    p = k / (C + 1)
    # Hits are beta-binomial: given the calibration set, coverage is Beta(k, C + 1 - k).
    variance = T * p * (1 - p) * (1 + (T - 1) / (C + 2))
    warned = name in SHORT and any(LESS in str(w.message) for w in caught)
    tally.hits[name + WARNED * warned] = inside, T * p, variance, T


def _attempt(tally: Tally, what: str, call: Any) -> Any:
    """The result of a call, or None after a clean error; anything else is a problem."""
    try:
        return call()
    except MissingExtraError:
        return None
    except (SharpGPError, ValueError) as error:
        tally.errors.append(f"{what}: {type(error).__name__}: {error}")
    except Exception as error:
        where = traceback.extract_tb(error.__traceback__)[-1]
        text = f"{type(error).__name__}: {error}".splitlines()[0]
        tally.problems.append(f"{what}: {text} ({where.filename}:{where.lineno})")
    return None


def faults(fitted: Any, case: Case) -> Iterator[str]:
    """What is wrong with the answers at test points, training points and far away."""
    X = np.asarray(case.X_test, dtype=np.float64)
    far = np.abs(X).max(0) * 1e3 + X[:3]
    for place, at in (("new", X), ("seen", case.X[:10]), ("far", far)):
        quantiles = np.asarray(fitted.predict_quantiles(at, LEVELS))
        if not np.isfinite(quantiles).all():
            yield f"{place}: quantiles are not finite"
        if (np.diff(quantiles, axis=1) < 0).any():
            yield f"{place}: quantiles cross by {-np.diff(quantiles, axis=1).min():g}"
        for symmetric in (None, True, False):
            ends = np.asarray(fitted.predict_interval(at, [0.5, 0.9], symmetric=symmetric))
            if not np.isfinite(ends).all():
                yield f"{place}: intervals are not finite (symmetric={symmetric})"
            if (ends[:, 0] > ends[:, 1]).any():
                yield f"{place}: an interval ends before it starts (symmetric={symmetric})"
            if (np.diff(ends[:, 0]) > 0).any() or (np.diff(ends[:, 1]) < 0).any():
                yield f"{place}: a wider interval does not hold the narrower one"
        dist = fitted.predict_dist(at)
        for name, values in (
            ("mean", dist.mean),
            ("std", dist.std),
            ("crps", dist.crps(dist.mean)),
        ):
            if not np.isfinite(np.asarray(values)).all():
                yield f"{place}: {name} is not finite"
        if not (np.asarray(dist.std) > 0).all():
            yield f"{place}: a standard deviation of zero"


@dataclass
class Summary:
    """Counts over all data sets, and what was wrong."""

    data_sets: int = 0
    fits: int = 0
    models: Counter[str] = field(default_factory=Counter)
    errors: Counter[str] = field(default_factory=Counter)
    problems: list[str] = field(default_factory=list)
    hits: dict[str, list[tuple[float, ...]]] = field(default_factory=lambda: defaultdict(list))

    def add(self, tally: Tally) -> None:
        self.data_sets += 1
        self.fits += tally.answers
        self.models[tally.model] += 1
        self.errors.update(tally.errors)
        self.problems += [f"{tally.name}: {problem}" for problem in tally.problems]
        for name, numbers in tally.hits.items():
            self.hits[name + (" (ties)" if tally.tied else "")].append(numbers)

    def coverage(self) -> Iterator[tuple[str, float, float, float, bool]]:
        """Method, coverage, expected coverage, standard error, and whether that is in range."""
        for name, rows in sorted(self.hits.items()):
            inside, expected, variance, points = np.sum(rows, axis=0)
            share, promised = inside / points, expected / points
            error = math.sqrt(variance) / points
            base, tied = name.removesuffix(" (ties)"), name.endswith("(ties)")
            low = promised - SHORT.get(base, 0.0) - 4 * error
            low = 0.0 if base.endswith(WARNED) else low
            high = promised + 4 * error if base in EXACT and not tied else 1.0
            yield name, share, promised, error, low <= share <= high
