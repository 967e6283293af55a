r"""The mean of a target over rows that were not labelled: predictions, corrected by their errors.

.. math:: \hat\theta = \lambda \bar f + \frac1n \sum_i (y_i - \lambda f_i), \qquad
          \hat V = s^2 \Bigl(\frac1n + \frac1N\Bigr), \quad
          s^2 = \mathrm{Var}(y_i - \lambda f_i)

with predictions ``f_i`` of labelled rows by fits without them, and their mean over the ``N`` rows
of the pool.  ``lambda``, the slope of ``y`` on ``f``, minimises the variance, so that the interval
is not wider than that of the labelled rows alone, up to its estimation.
"""

from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from scipy.stats import t as student
from torch import Tensor

from sharpgp._validation import as_level, as_numpy
from sharpgp.calibration.predictors.base import Calibrated
from sharpgp.exceptions import InvalidInputError, warn
from sharpgp.exchangeability import ALARM_LEVEL, moved_features, names_of_features
from sharpgp.rows import Inputs, Rows
from sharpgp.selection import held_out_rows

Floats = NDArray[np.float64]
# Fewer labelled rows, or groups, give no interval that can be trusted.
_MIN_UNITS = 10


@dataclass(frozen=True)
class PopulationMean:
    """A mean, total or share over a pool, with an interval; asymptotic, not for single rows.

    Attributes
    ----------
    estimate, lower, upper : float
    classical : tuple of two floats
        The interval from the labelled rows alone.
    weight : float
        ``lambda``: how much predictions count; 0 where they say nothing.
    n_pool, n_labelled : int
        Rows of the pool, and labelled rows (or groups) whose held-out errors correct the mean.
    coverage : float
    """

    estimate: float
    lower: float
    upper: float
    classical: tuple[float, float]
    weight: float
    n_pool: int
    n_labelled: int
    coverage: float

    def __str__(self) -> str:
        share = (self.upper - self.lower) / max(self.classical[1] - self.classical[0], 1e-300)
        return (
            f"{self.estimate:.5g} ({self.coverage:.0%} interval {self.lower:.5g} to "
            f"{self.upper:.5g}; {share:.2f} times as wide as from {self.n_labelled} labelled rows "
            f"alone), over {self.n_pool:,} rows; for labelled rows drawn at random from the pool"
        )

    __repr__ = __str__


def population_mean(
    predictor: Calibrated,
    X: Inputs,
    *,
    coverage: float = 0.95,
    total: bool = False,
    above: float | None = None,
    encoding: Any = None,
) -> PopulationMean:
    """Mean of the target over ``X`` [N, d]; its total, or the share of rows above a limit.

    Needs labelled rows that are like a random sample of the pool; inputs that differ are warned of.

    Examples
    --------
    >>> from sharpgp import CrossValidated
    >>> from sharpgp.gp.training import train
    >>> X = torch.linspace(0, 6, 400, dtype=torch.float64)[:, None]
    >>> y = X[:, 0].sin() + 0.1 * torch.cos(37 * X[:, 0])
    >>> model = CrossValidated(random_state=0).fit(train(X[::8], y[::8])[0])
    >>> found = population_mean(model, X)
    >>> found.lower <= float(y.mean()) <= found.upper
    True
    """
    level, rows = as_level(coverage, "coverage"), Rows.of(X)
    law, y, weights, groups = held_out_rows(predictor, one_per_group=False)
    if len(X) == 0:
        raise InvalidInputError("X: expected the rows of a pool, found none")
    clusters = np.arange(len(y)) if groups is None else as_numpy(groups)
    if len(np.unique(clusters)) < _MIN_UNITS:
        raise InvalidInputError(
            f"population_mean: expected at least {_MIN_UNITS} labelled rows or groups that the "
            f"model has not seen, found {len(np.unique(clusters))}"
        )
    with torch.no_grad():
        f, F = law.location, predictor.location(rows)
        y_, f_, F_ = as_numpy(y), as_numpy(predictor.clip(f)), as_numpy(predictor.clip(F))
        if above is not None:
            limit = torch.full_like(y, above)
            new = predictor.law(rows)  # type: ignore[attr-defined]
            y_ = (y_ > above).astype(np.float64)
            f_ = as_numpy(torch.special.ndtr(-law.score(limit)))
            F_ = as_numpy(torch.special.ndtr(-new.score(F.new_full((len(X),), above))))
    _warn_if_moved(predictor, rows.X, names_of_features(encoding, rows.X.shape[1]))
    w = np.ones(len(y_)) if weights is None else as_numpy(weights)
    mean, half, weight, n = estimate(y_, f_, F_, w / w.mean(), clusters, level)
    plain, wide, _, _ = estimate(y_, 0 * f_, 0 * F_, w / w.mean(), clusters, level)
    unit = float(len(X)) if total else 1.0
    ends = mean - half, mean + half
    if above is not None:
        ends = max(ends[0], 0.0), min(ends[1], 1.0)
    return PopulationMean(
        unit * mean,
        unit * ends[0],
        unit * ends[1],
        (unit * (plain - wide), unit * (plain + wide)),
        weight,
        len(X),
        n,
        level,
    )


def estimate(
    y: Floats, f: Floats, F: Floats, w: Floats, clusters: NDArray, coverage: float
) -> tuple[float, float, float, int]:
    """Mean over the pool, half the width of its interval, ``lambda`` and the number of units.

    Rows of one cluster may depend on one another: their errors are summed first.

    Examples
    --------
    >>> f = np.arange(20.0)
    >>> y = f + np.tile([-0.1, 0.1], 10)
    >>> [round(one, 2) for one in estimate(y, f, f + 5, np.ones(20), np.arange(20), 0.95)[:3]]
    [14.5, 0.07, 1.0]
    """
    centred = f - np.average(f, weights=w)
    slope = float(np.sum(w * centred**2))
    weight = float(np.sum(w * centred * y)) / slope if slope > 0 else 0.0
    e = y - weight * f
    mean = float(weight * F.mean() + np.average(e, weights=w))
    _, place = np.unique(clusters, return_inverse=True)
    off = np.bincount(place, w * (e - np.average(e, weights=w)))
    n, lost = len(off), 2 if slope > 0 else 1
    variance = float((off**2).sum()) / w.sum() ** 2 * n / (n - lost)
    spread = float(np.average((e - np.average(e, weights=w)) ** 2, weights=w))
    half = student.ppf(0.5 + coverage / 2, n - lost) * (variance + spread / len(F)) ** 0.5
    return mean, float(half), weight, n


def _warn_if_moved(predictor: Calibrated, X: Tensor, names: list[str]) -> None:
    X_cal: Tensor = getattr(predictor, "X_cal")  # noqa: B009 (of scored predictors, the only ones asked)
    if predictor.weights is not None:
        return  # labelled rows are meant to be unlike the pool
    moved = moved_features(as_numpy(X_cal), as_numpy(X), names)
    if moved:
        least = min(moved.values())
        warn(
            f"labelled rows are not like the pool (p < {max(least, ALARM_LEVEL / 100):.2g}; "
            f"{', '.join(moved)}): the interval may miss the mean of the pool; give "
            "sample_weight_cal to fit, or label rows drawn at random"
        )
