"""Warnings about answers with a weaker guarantee: far from the data, or from too few points."""

import math
from collections.abc import Collection, Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar

import torch
from torch import Tensor

from sharpgp._numbers import day
from sharpgp._ranks import points_needed, supported
from sharpgp.exceptions import warn
from sharpgp.gp.posterior import Posterior
from sharpgp.gp.priors import LEAST_PER_HYPERPARAMETER

# A constant column may differ by this share of its magnitude, by rounding.
_ROUNDING = 1e-9
#: With fewer points per hyperparameter, leave-one-out scores of one fit are too small.
MIN_ROWS_PER_HYPERPARAMETER = 30
#: ``cv`` covers as promised from 12 rows: 80 % intervals cover 50 % with 4 rows, 76 % with 8.
MIN_ROWS_CV = 12
# Rows are not exchangeable if scores of neighbours in time are correlated beyond this many standard
# errors, and beyond this correlation.
_CORRELATED, _LEAST_CORRELATION = 3.0, 0.2
# Default coverage of intervals.
_DEFAULT_COVERAGE = 0.95
# Names of the features in warnings, None for their numbers; and of those that are days since 1970.
_Names = tuple[Sequence[str] | None, Collection[str]]
_names: ContextVar[_Names] = ContextVar("names of the features", default=(None, ()))


@contextmanager
def features_named(names: Sequence[str] | None, dates: Collection[str] = ()) -> Iterator[None]:
    """Name features like this in warnings raised inside the block; ``dates`` are written as such.

    Examples
    --------
    >>> with features_named(["age", "dose"]):
    ...     _called(1)
    "'dose'"
    >>> _called(1)
    'feature 1'
    """
    token = _names.set((names, dates))
    try:
        yield
    finally:
        _names.reset(token)


def _called(feature: int) -> str:
    names, _ = _names.get()
    return f"feature {feature}" if names is None else repr(names[feature])


def _written(feature: int, value: float) -> str:
    names, dates = _names.get()
    return day(value) if names is not None and names[feature] in dates else f"{value:g}"


def is_far(posterior: Posterior, X: Tensor) -> Tensor:
    """Whether a feature lies outside its training range by more than its width [T, d].

    Points of the same population hardly ever do. Every model extrapolates there.

    Examples
    --------
    >>> from sharpgp.gp.training import train
    >>> X = torch.linspace(0, 6, 40, dtype=torch.float64)[:, None]
    >>> posterior, _ = train(X, X[:, 0].sin())
    >>> is_far(posterior, torch.tensor([[-5.0], [13.0]], dtype=torch.float64))[:, 0].tolist()
    [False, True]
    """
    low, high = posterior.input_range
    slack = (high - low) + _ROUNDING * torch.maximum(low.abs(), high.abs())
    # Marks of an encoding: the first row of a category is not far from the others.
    mark = ((low == 0) | (low == 1)) & (low == high) & ((X == 0) | (X == 1))
    return (X.lt(low - slack) | X.gt(high + slack)) & ~mark


def warn_if_far(posterior: Posterior, X: Tensor) -> None:
    """Warn about points far outside the training data, naming the first one and its feature."""
    with torch.no_grad():
        far = is_far(posterior, X.detach())
        if not bool(far.any()):
            return
        row, feature = far.nonzero()[0].tolist()
        ends = (X[row], *posterior.input_range)
        asked, low, high = (_written(feature, float(end[feature])) for end in ends)
    warn(
        f"{int(far.any(-1).sum())} of {len(X)} points lie far outside the training data (row "
        f"{row}: {_called(feature)} is {asked}, in training {low} to {high}): there predictions "
        "are extrapolated, and calibration guarantees nothing"
    )


def warn_if_unsupported(
    levels: Tensor, coverage: float | None = None, *, n_cal: int, counted: str = "points"
) -> None:
    """Warn about levels [K] that ``C`` points (or groups) do not support: the worst, or a coverage.

    Levels 0 and 1, where quantiles are infinite, need no support.
    """
    levels = levels[(levels > 0.0) & (levels < 1.0)].detach()
    beyond = levels[~supported(levels, n_cal)].tolist()
    if beyond:
        worst = min(beyond, key=lambda p: min(p, 1.0 - p))
        asked = f"level {worst:g}" if coverage is None else f"coverage {coverage:g}"
        warn_of_tail(asked, points_needed(worst), n_cal, counted)


def warn_of_tail(asked: str, needed: int, n_cal: int, counted: str = "points") -> None:
    """Warn about an answer from the tail: it needs more points (or groups) than there are."""
    warn(
        f"{asked} needs at least {needed} calibration {counted}, found {n_cal}: the answer comes "
        "from a modelled tail, without a guarantee"
    )


def warn_of_weights(
    coverage: float, unbacked: int, n_rows: int, n_effective: float, counted: str
) -> None:
    """Warn about test points whose weights are too large for those of the calibration points."""
    warn(
        f"coverage {coverage:g} is not backed at {unbacked} of {n_rows} points: their weights are "
        f"too large for {n_effective:.1f} effective calibration {counted}; the answer comes from a "
        "modelled tail, without a guarantee"
    )


def warn_if_few_groups(n_groups: int, n_points: int, *, held_out: bool) -> None:
    """Warn about too few groups for the usual coverages, however many points they have."""
    if n_groups < points_needed(_DEFAULT_COVERAGE):
        more = "hold out more groups with cal_size, or use calibration='cv'"
        warn(
            f"only {n_groups} groups calibrate: intervals for new groups are based on these, not "
            f"on {n_points} points, and beyond {n_groups / (n_groups + 1):.0%} on a modelled tail; "
            + (more if held_out else "add groups")
        )


def warn_of_dependence(n_groups: int, n_points: int) -> None:
    """Warn if a method treats points of the same group as independent."""
    warn(
        f"this method treats {n_points} points of {n_groups} groups as independent: intervals for "
        "new groups may cover less than requested; use calibration='cv' or 'exact'"
    )


def warn_if_few_rows(n_rows: int) -> None:
    """Warn about too few rows for refits to represent the full fit."""
    if n_rows < MIN_ROWS_CV:
        warn(
            f"cv: {n_rows} rows are too few to refit without a part of them: intervals may cover "
            f"much less than requested; give it {MIN_ROWS_CV} or more"
        )


def warn_of_merging(method: str, n_copies: int, n_rows: int) -> None:
    """Warn if a method drops copies and does not distinguish known from new inputs."""
    warn(
        f"{method}: {n_copies} of {n_rows} training rows repeat others in X and y, and are used "
        "once: if inputs are common among new rows, too, intervals may cover less than requested; "
        "use calibration='cv' or 'exact'"
    )


def warn_if_overfitted(posterior: Posterior) -> None:
    """Warn about too many hyperparameters: scores of training points are then too small.

    Below :data:`MIN_ROWS_PER_HYPERPARAMETER` points for each, coverages fall short by two points or
    more (``sharpgp bench evidence hostile``); below ten, by much more.
    """
    N, P = posterior.n_train, len(posterior.theta_R)
    if N > MIN_ROWS_PER_HYPERPARAMETER * P:
        return
    how_much = "much less" if N < LEAST_PER_HYPERPARAMETER * P else "a few points less"
    warn(
        f"loo: {P} hyperparameters overfit {N} training points: intervals may cover {how_much} "
        "than requested; use calibration='cv', which refits"
    )


def warn_if_correlated(scores: Tensor, times: Tensor, name: str) -> None:
    """Warn if scores [C] are correlated in time [C]: the future is then harder to predict.

    Tests the lag-one correlation ``r`` of the scores in order of time.  Its standard error is ``1 /
    sqrt(C)`` for scores in random order.

    Examples
    --------
    >>> import warnings
    >>> times = torch.arange(100.0, dtype=torch.float64)
    >>> with warnings.catch_warnings(record=True) as caught:
    ...     warnings.simplefilter("always")
    ...     warn_if_correlated((times / 9).sin(), times, "day")
    ...     warn_if_correlated((9.7 * times).cos(), times, "day")
    >>> len(caught)
    1
    """
    z = scores[times.argsort(stable=True)]
    z = z - z.mean()
    r = float((z[1:] * z[:-1]).sum() / z.square().sum().clamp_min(torch.finfo(z.dtype).tiny))
    if r > max(_LEAST_CORRELATION, _CORRELATED / math.sqrt(len(z))):
        warn(
            f"errors of neighbouring rows by {name!r} are alike (correlation {r:.2f}): intervals "
            "are for rows between these, and rows that come later may be missed more often; for "
            f"these, sort the rows by {name!r} and use calibration=CrossValidated(folds='ordered')"
        )
