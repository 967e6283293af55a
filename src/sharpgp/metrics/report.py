"""All metrics of one predictor on one test set, as a dictionary that prints as a table."""

from __future__ import annotations

from typing import Any

import numpy as np

from sharpgp._numbers import number
from sharpgp._table import as_html
from sharpgp.distribution import PredictiveDistribution
from sharpgp.metrics import scores
from sharpgp.metrics._checks import Floats
from sharpgp.metrics.conditional import excess_risk

#: Fewest test points for judging coverage given the features.
MIN_ROWS_CONDITIONAL = 30
_LABELS = {
    "ece": "ECE (21 levels)",
    "ece_floor": "ECE floor",
    "std": "predictive STD",
    "nll": "NLL",
    "crps": "CRPS",
    "pinball": "pinball loss",
    "rmse": "RMSE of the mean",
}


class CalibrationReport(dict[str, float]):
    """Metrics by name; ``print`` shows them as a table.

    Examples
    --------
    >>> print(CalibrationReport(width_95=2.0, coverage_95=0.95))
    metric              value
    95 % width         2.0000
    95 % coverage      0.9500
    """

    @property
    def rows(self) -> list[tuple[str, str]]:
        """The table as text, the head first."""
        shown = (
            f"{value:.4f}" if value == 0 or 1e-3 <= abs(value) < 1e4 else number(value)
            for value in self.values()
        )
        return [("metric", "value"), *zip(map(_label, self), shown, strict=True)]

    def __str__(self) -> str:
        width = max(len(label) for label, _ in self.rows) + 4
        return "\n".join(f"{label:<{width}}{value:>8}" for label, value in self.rows)

    __repr__ = __str__

    def _repr_html_(self) -> str:
        """A table, for notebooks."""
        return as_html(self.rows)


def _label(name: str) -> str:
    """What a metric is called in a table; for intervals, with their coverage."""
    kind, _, percent = name.rpartition("_")
    words = {"width": "width", "coverage": "coverage", "interval_score": "interval score"}
    words |= {"excess_risk": "excess risk", "excess_risk_chance": "risk by chance"}
    if kind in words:
        return f"{percent} % {words[kind]}"
    return _LABELS.get(name, name)


def calibration_report(
    y: Floats,
    *,
    mean: Floats,
    dist: PredictiveDistribution,
    quantiles: Floats,
    interval: Floats,
    n_cal: int | None,
    X: Floats | None = None,
    for_ece: Floats | None = None,
    coverage: float = 0.95,
    sample_weight: Floats | None = None,
) -> CalibrationReport:
    """Every metric of a predictor on test data, sharpness always beside coverage.

    Parameters
    ----------
    y : array of shape (n,)
    mean : array of shape (n,)
    dist : PredictiveDistribution
        Answering in NumPy arrays.
    quantiles : array of shape (n, 19)
        At the inner 19 of the 21 levels of the ECE; the quantiles at 0 and 1 are infinite.
    interval : array of shape (n, 2)
    n_cal : int or None
        Number of calibration points, for the ECE floor; None if there are none.
    X : array of shape (n, d), optional
        Features, for :func:`~sharpgp.metrics.excess_risk` and its level of chance; from 30 points
        on.
    for_ece : array of shape (n, 19), optional
        Quantiles before they were moved to a bound, for the ECE alone.
    coverage : float
        Coverage of the intervals; the names of their metrics end with it, as in ``width_95``.
    sample_weight : array of shape (n,), optional
        How much each point counts in all means; the excess risk is that of the points alike.

    Examples
    --------
    >>> rng = np.random.default_rng(0)
    >>> y = rng.normal(size=2000)
    >>> levels = scores.ECE_LEVELS[1:-1]
    >>> table = np.quantile(rng.normal(size=(100_000)), levels)[None, :].repeat(2000, 0)
    >>> report = calibration_report(
    ...     y,
    ...     mean=np.zeros(2000),
    ...     dist=PredictiveDistribution(levels, table.T, numpy=True),
    ...     quantiles=table,
    ...     interval=np.tile([-1.96, 1.96], (2000, 1)),
    ...     n_cal=None,
    ... )
    >>> report["ece"] < 5 * report["ece_floor"]
    True
    """
    y = np.asarray(y, dtype=np.float64)
    edge = np.full((len(y), 1), np.inf)
    lower, upper = np.asarray(interval).T
    inner = scores.ECE_LEVELS[1:-1]
    for_ece = quantiles if for_ece is None else for_ece
    percent = f"{100 * coverage:.10g}"
    by_row: dict[str, Any] = {"sample_weight": sample_weight}
    of_intervals = {
        f"width_{percent}": scores.interval_width(lower, upper, **by_row),
        f"coverage_{percent}": scores.interval_coverage(y, lower, upper, **by_row),
        f"interval_score_{percent}": scores.interval_score(y, lower, upper, coverage, **by_row),
    }
    if X is not None and len(y) >= MIN_ROWS_CONDITIONAL:
        found = excess_risk(X, y, lower, upper, coverage, n_cal=n_cal)
        of_intervals[f"excess_risk_{percent}"] = found.value
        of_intervals[f"excess_risk_chance_{percent}"] = found.chance
    return CalibrationReport(
        ece=scores.ece(y, np.hstack([-edge, for_ece, edge]), **by_row),
        ece_floor=scores.ece_floor(n_cal, len(y)),
        std=float(np.average(dist.std, weights=sample_weight)),
        nll=float(-np.average(dist.log_prob(y), weights=sample_weight)),
        **of_intervals,
        crps=float(np.average(dist.crps(y), weights=sample_weight)),
        pinball=scores.pinball_loss(y, quantiles, inner, **by_row),
        rmse=scores.rmse(y, mean, **by_row),
    )
