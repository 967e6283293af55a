"""Scorers for scikit-learn's ``cross_validate`` and ``GridSearchCV``.

A scorer is called as ``scorer(estimator, X, y)``; larger is better, so losses come with a minus
sign, as scikit-learn's own do. The estimator may be a pipeline that ends in a
`sharpgp.SharpGPRegressor`.
"""

import warnings
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike
from sklearn.base import BaseEstimator

from sharpgp._validation import as_coverage, as_numpy, as_target, check_choice
from sharpgp.calibration.predictors.base import FittedModel
from sharpgp.exceptions import CalibrationWarning
from sharpgp.metrics import interval_coverage, interval_score, interval_width
from sharpgp.pipelines import through

__all__ = [
    "IntervalScorer",
    "ReportScorer",
    "by_name",
    "coverage_scorer",
    "crps_scorer",
    "ece_scorer",
    "interval_score_scorer",
    "named",
    "nll_scorer",
    "pinball_scorer",
    "width_scorer",
]


@dataclass(frozen=True)
class ReportScorer:
    """Minus one of the losses in ``calibration_report``, so that larger is better.

    Examples
    --------
    >>> from sklearn.model_selection import cross_val_score
    >>> from sharpgp import SharpGPRegressor
    >>> from sharpgp.toy import make_toy
    >>> toy = make_toy(random_state=0)
    >>> model = SharpGPRegressor(calibration="kuleshov18", random_state=0)
    >>> scores = cross_val_score(model, toy.X_cal, toy.y_cal, scoring=crps_scorer, cv=3)
    >>> scores.shape, bool((scores < 0).all())
    ((3,), True)
    """

    metric: str

    def __call__(self, estimator: FittedModel | BaseEstimator, X: ArrayLike, y: ArrayLike) -> float:
        """Score of a fitted estimator on test data."""
        return -float(through(estimator).calibration_report(X, y)[self.metric])


@dataclass(frozen=True)
class IntervalScorer:
    """A score of the intervals at one coverage: ``"score"``, ``"coverage"`` or ``"width"``.

    ``"score"`` is minus the interval score and ``"width"`` minus the mean width, which means
    nothing without the coverage; ``"coverage"`` is the share covered, to report, not to maximise.

    Examples
    --------
    >>> from sharpgp import SharpGPRegressor
    >>> from sharpgp.toy import make_toy
    >>> toy = make_toy(random_state=0)
    >>> model = SharpGPRegressor(calibration="kuleshov18")
    >>> model = model.fit(toy.X_train, toy.y_train, toy.X_cal, toy.y_cal)
    >>> covered = IntervalScorer("coverage", 0.8)(model, toy.X_test, toy.y_test)
    >>> 0.7 < covered < 0.9
    True
    """

    kind: str = "score"
    coverage: float = 0.95

    def __post_init__(self) -> None:
        check_choice(self.kind, "kind", _KINDS)
        as_coverage(self.coverage)

    def __call__(self, estimator: FittedModel | BaseEstimator, X: ArrayLike, y: ArrayLike) -> float:
        """Score of a fitted estimator on test data."""
        model = through(estimator)
        with warnings.catch_warnings():
            # Unsupported coverages show in the score.
            warnings.simplefilter("ignore", CalibrationWarning)
            lower, upper = as_numpy(model.predict_interval(X, self.coverage)).T
        return _KINDS[self.kind](as_numpy(as_target(y)), lower, upper, self.coverage)


_KINDS: dict[str, Callable[[np.ndarray, np.ndarray, np.ndarray, float], float]] = {
    "score": lambda y, lower, upper, coverage: -interval_score(y, lower, upper, coverage),
    "coverage": lambda y, lower, upper, _: interval_coverage(y, lower, upper),
    "width": lambda _y, lower, upper, _: -interval_width(lower, upper),
}

#: Minus the mean CRPS: calibration and sharpness of the whole distribution.
crps_scorer = ReportScorer("crps")
#: Minus the mean negative log density.
nll_scorer = ReportScorer("nll")
#: Minus the pinball loss, averaged over 19 levels.
pinball_scorer = ReportScorer("pinball")
#: Minus the expected calibration error: calibration alone, blind to sharpness.
ece_scorer = ReportScorer("ece")
#: Minus the interval score at 95 %.
interval_score_scorer = IntervalScorer("score")
#: Share of points in their 95 % interval.
coverage_scorer = IntervalScorer("coverage")
#: Minus the mean width of 95 % intervals; look at the coverage beside it.
width_scorer = IntervalScorer("width")

_BY_NAME: dict[str, ReportScorer | IntervalScorer] = {
    "crps": crps_scorer,
    "nll": nll_scorer,
    "pinball": pinball_scorer,
    "ece": ece_scorer,
    "interval_score": interval_score_scorer,
    "coverage": coverage_scorer,
    "width": width_scorer,
}


def by_name(name: str) -> ReportScorer | IntervalScorer:
    """A scorer by its name; ``"coverage_90"`` is ``"coverage"`` of 90 % intervals.

    Names are ``"crps"``, ``"nll"``, ``"pinball"``, ``"ece"``, ``"interval_score"``, ``"coverage"``
    and ``"width"``; the last three take a coverage in percent.

    Examples
    --------
    >>> by_name("crps"), by_name("width_99.5")
    (ReportScorer(metric='crps'), IntervalScorer(kind='width', coverage=0.995))
    """
    stem, _, percent = name.rpartition("_")
    if name in _BY_NAME:
        return _BY_NAME[name]
    known = _BY_NAME.get(stem)
    try:
        if isinstance(known, IntervalScorer):
            return IntervalScorer(known.kind, float(percent) / 100)
    except ValueError:
        pass
    check_choice(name, "scorer", _BY_NAME)
    return _BY_NAME[name]


def named(*names: str) -> dict[str, ReportScorer | IntervalScorer]:
    """Several scorers at once, as ``cross_validate`` and ``GridSearchCV`` take them.

    Examples
    --------
    >>> from sklearn.model_selection import cross_validate
    >>> from sharpgp import SharpGPRegressor
    >>> from sharpgp.toy import make_toy
    >>> toy = make_toy(random_state=0)
    >>> model = SharpGPRegressor(calibration="kuleshov18", random_state=0)
    >>> scoring = named("crps", "coverage_80")
    >>> found = cross_validate(model, toy.X_cal, toy.y_cal, scoring=scoring, cv=3)
    >>> sorted(key for key in found if key.startswith("test"))
    ['test_coverage_80', 'test_crps']
    """
    return {name: by_name(name) for name in names}
