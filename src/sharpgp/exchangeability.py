r"""Does the assumption hold?  New labelled rows compared with the calibration rows.

Calibration is valid only if new rows are like the calibration rows.  If they
are, the scores of both are exchangeable, and a rank test has the p-value it states: for a model
that has not seen either (``exact`` and other methods with a holdout) in finite samples, for those
whose training points calibrate (``cv``) nearly.

With groups, groups are exchangeable and rows are not: each group is then represented by one of its
rows, drawn at random.

Row after row, :class:`Martingale` bets against the same assumption; its capital is evidence at any
time.  :class:`sharpgp.Online` keeps one.
"""

import math
import random
from bisect import bisect_left, bisect_right, insort
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import ArrayLike
from scipy.stats import ks_2samp, mannwhitneyu

from sharpgp._validation import as_labels, as_numpy, as_target
from sharpgp.calibration.predictors.base import FittedModel, calibrated_of
from sharpgp.calibration.tolerance import scored_parts
from sharpgp.data.inputs import encode_rows, plain
from sharpgp.exceptions import warn

#: Warn of p-values below this.
ALARM_LEVEL = 0.01
# Share of the martingale's capital that changes its bet at each step.
_JUMP_SHARE = 0.01


@dataclass(frozen=True)
class Exchangeability:
    """Result of comparing new rows with calibration rows.

    Attributes
    ----------
    p_value : float
        p-value of both tests below: twice the smaller one.
    centre, size : float
        p-values of rank tests on the scores (is the prediction off to one side?) and on their
        absolute values (has the size of errors changed?).  With ``cv``, only larger errors count,
        as its scores come from fits to fewer rows and are a little too large.
    moved : dict from str to float
        Features whose distribution differs from that in training, with p-values that count all
        features; the clearest first.
    n_old, n_new : int
        How many scores were compared; one per group.
    old, new : arrays
        The scores themselves.
    """

    p_value: float
    centre: float
    size: float
    moved: dict[str, float]
    n_old: int
    n_new: int
    old: np.ndarray = field(repr=False, compare=False)
    new: np.ndarray = field(repr=False, compare=False)

    def __str__(self) -> str:
        verdict = "no sign of a change" if self.p_value >= ALARM_LEVEL else "the data have changed"
        moved = ", ".join(f"{name} (p = {p:.2g})" for name, p in self.moved.items()) or "none"
        return (
            f"{verdict}: p = {self.p_value:.2g} ({self.n_new} new rows beside {self.n_old}; centre "
            f"{self.centre:.2g}, size of errors {self.size:.2g}); features that moved: {moved}"
        )


def compare(
    model: FittedModel, X: ArrayLike, y: ArrayLike, *, groups: ArrayLike | None = None
) -> Exchangeability:
    """Test whether new labelled rows are like the calibration rows of a model.

    Warns if they are not, and names the features that moved.  The p-value is for independent new
    rows; where they come in groups, give ``groups``, or alarms will be false.

    Parameters
    ----------
    model : SharpGPRegressor or Calibrated
        Calibrated by a method that ranks scores: ``exact``, ``cv``, ``kuleshov18``, ...
    X : array or data frame (n, d)
    y : array of shape (n,)
        Rows that neither trained nor calibrated the model.
    groups : array of shape (n,), optional
        Which new rows belong together.  One row per group is compared, also among the calibration
        rows.  By default, each new row is a group of its own.

    Examples
    --------
    >>> from sharpgp import SharpGPRegressor
    >>> rng = np.random.default_rng(0)
    >>> X = rng.uniform(-3, 3, (200, 1))
    >>> y = np.sin(X[:, 0]) + 0.1 * rng.normal(size=200)
    >>> model = SharpGPRegressor(base="rbf", calibration="exact", random_state=0)
    >>> compare(model.fit(X[:100], y[:100]), X[100:], y[100:]).p_value > 0.01
    True
    """
    scored_parts(calibrated_of(model))  # refuses methods without scores
    calibrated: Any = calibrated_of(model).each_once()
    rows = encode_rows(model, X)
    asked = model.rows(X if rows is None else rows)
    target = as_target(plain(y), n_rows=len(asked), device=asked.device)
    theirs = one_per_group(groups, len(asked))
    asked, target = asked[theirs], target[theirs]
    new = as_numpy(calibrated.score(asked, target))
    ours = one_per_group(calibrated.groups, len(calibrated.scores))
    old = as_numpy(calibrated.scores)[ours]
    centre = float(mannwhitneyu(old, new).pvalue)
    sides = "less" if calibrated.in_training else "two-sided"
    size = float(mannwhitneyu(np.abs(old), np.abs(new), alternative=sides).pvalue)
    encoding = None if rows is None else rows.encoding
    # If the GP does not keep its training rows, or there are groups (unknown for training rows),
    # the calibration rows are compared.
    known = getattr(calibrated.model, "X_train", calibrated.X_cal)
    if calibrated.groups is not None:
        known = calibrated.X_cal[ours]
    names = names_of_features(encoding, asked.n_features)
    moved = moved_features(as_numpy(known), as_numpy(asked.X), names)
    p_value = min(1.0, 2.0 * min(centre, size))
    found = Exchangeability(p_value, centre, size, moved, len(old), len(new), old, new)
    if found.p_value < ALARM_LEVEL:
        warn(
            f"new rows differ from the calibration data (p = {found.p_value:.2g}): "
            "coverage is not guaranteed for them; features that moved: "
            f"{', '.join(moved) or 'none alone'}"
        )
    return found


def one_per_group(groups: ArrayLike | None, n_rows: int) -> np.ndarray:
    """One row of each group, drawn at random but the same every time; without groups, all rows.

    Examples
    --------
    >>> one_per_group(["a", "b", "b"], 3).tolist() in ([0, 1], [0, 2])
    True
    """
    if groups is None:
        return np.arange(n_rows)
    labels = as_labels(groups, n_rows=n_rows).numpy()
    order = np.random.default_rng(0).permutation(n_rows)
    return np.sort(order[np.unique(labels[order], return_index=True)[1]])


def moved_features(
    before: np.ndarray, after: np.ndarray, names: Sequence[str], level: float = ALARM_LEVEL
) -> dict[str, float]:
    """Features (n, d) whose distribution differs between two tables, the clearest first.

    With p-values below ``level`` of Kolmogorov and Smirnov's test, times the number of features.

    Examples
    --------
    >>> rows = np.random.default_rng(0).normal(size=(80, 2))
    >>> list(moved_features(rows[:40], rows[40:] + np.array([0.0, 3.0]), ["age", "dose"]))
    ['dose']
    """
    found = {}
    # A model keeps its rows in other units, so they come back with rounding errors.
    size = np.maximum(np.abs(before).max(axis=0), np.abs(after).max(axis=0))
    columns = (np.round(rows / np.where(size > 0, size, 1.0), 12).T for rows in (before, after))
    for name, ours, theirs in zip(names, *columns, strict=True):
        p = min(1.0, len(names) * float(ks_2samp(ours, theirs).pvalue))
        if p < level:
            found[name] = p
    return dict(sorted(found.items(), key=lambda item: item[1]))


def names_of_features(encoding: Any, n_features: int) -> list[str]:
    """Names of the features of an encoding, or ``x0, x1, ...``."""
    names = None if encoding is None else encoding.features
    names = [f"x{j}" for j in range(n_features)] if names is None else list(names)
    return names if len(names) == n_features else [*names, "noise variance"]


class Martingale:
    r"""A conformal test martingale: capital that grows only where rows are not exchangeable.

    Each new score ``z_t`` gets the p-value ``p_t``, the share of all scores so far that are at
    least as large, ties broken at random.  While rows are exchangeable, p-values are independent
    and uniform, and no bet on them has an expected gain: for capital ``M_t`` that began as 1,

    ``P(max_t M_t >= 1 / alpha) <= alpha``,

    however long one looks (Ville's inequality).  One half of the capital bets on the scores, one
    on their absolute values, each by the simple jumper: three accounts grow by
    ``1 + e (p_t - 1/2)`` with ``e = -1, 0, 1``, and exchange 1 % of their capital at each step.

    This assumes that every row, old and new, could have come at any other place.  A stream that
    comes group by group, or whose rows depend on those before them, breaks it without any change:
    show the martingale one row of each group.

    Parameters
    ----------
    scores : array of shape (C,)
        Scores of the calibration points.

    Attributes
    ----------
    log_path : list of float
        ``log10 M_t`` after each new score.

    References
    ----------
    V. Vovk, I. Petej, I. Nouretdinov, E. Ahlberg, L. Carlsson and A. Gammerman, "Retrain or not
    retrain: conformal test martingales for change-point detection", COPA 2021.

    Examples
    --------
    >>> rng = np.random.default_rng(0)
    >>> same, larger = Martingale(rng.normal(size=200)), Martingale(rng.normal(size=200))
    >>> same.observe(rng.normal(size=200))
    >>> larger.observe(3 * rng.normal(size=200))
    >>> same.p_value > 0.01, larger.p_value < 0.01
    (True, True)
    """

    def __init__(self, scores: Any) -> None:
        old = np.asarray(scores, dtype=np.float64)
        self._bets = (_Jumper(old), _Jumper(np.abs(old)))
        self.log_path: list[float] = []

    def observe(self, scores: Any) -> None:
        """Add new scores, in order."""
        signed, sizes = self._bets
        for z in np.asarray(scores, dtype=np.float64).tolist():
            signed.observe(z)
            sizes.observe(abs(z))
            both = np.logaddexp(signed.log_capital, sizes.log_capital) - math.log(2.0)
            self.log_path.append(float(both) / math.log(10.0))

    @property
    def p_value(self) -> float:
        """``1 / max_t M_t``, valid at any time; at most 1."""
        return float(10.0 ** -max([0.0, *self.log_path]))


class _Jumper:
    """The bets of one martingale; see there."""

    def __init__(self, scores: np.ndarray) -> None:
        self.known = sorted(scores.tolist())
        self.shares = [1 / 3] * 3
        self.log_capital = 0.0
        self.random = random.Random(0)

    def observe(self, z: float) -> None:
        """Bet on the rank of a new score among those known, which it then joins."""
        n, low, high = len(self.known), bisect_left(self.known, z), bisect_right(self.known, z)
        p = (n - high + self.random.random() * (high - low + 1)) / (n + 1)
        moved = [(1.0 - _JUMP_SHARE) * share + _JUMP_SHARE / 3 for share in self.shares]
        grown = [share * (1.0 + e * (p - 0.5)) for share, e in zip(moved, (-1, 0, 1), strict=True)]
        self.log_capital += math.log(sum(grown))
        self.shares = [share / sum(grown) for share in grown]
        insort(self.known, z)
