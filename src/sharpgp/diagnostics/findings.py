"""Predictions for test data beside observations."""

import hashlib
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from sharpgp._numbers import number
from sharpgp.data.encoding import Encoded, TableEncoding
from sharpgp.data.leaks import leaks, leaks_of
from sharpgp.data.suspicions import Suspicion
from sharpgp.data.table_check import suspicions
from sharpgp.diagnostics.curves import LevelCurves
from sharpgp.diagnostics.groupings import Grouping, groupings
from sharpgp.diagnostics.own_columns import Floats, OwnColumn, own_columns
from sharpgp.diagnostics.places import PAGE_LEVEL, PlacesTest, Points, places_test
from sharpgp.exchangeability import Exchangeability
from sharpgp.metrics import ECE_LEVELS, CalibrationReport, ece_floor
from sharpgp.models.pool import Member
from sharpgp.promise import Promise

#: Coverage that is looked at first, if it is among those that were asked.
FIRST_COVERAGE = 0.95


@dataclass(frozen=True)
class Diagnostics:
    """Predictions at test points beside the observations.

    Attributes
    ----------
    method : str
        Name of the calibration.
    n_train, n_cal : int, int or None
        Sizes; ``n_cal`` is None if nothing is estimated from calibration points.
    counted : str
        What ``n_cal`` counts: points or groups.
    row : array of shape (n,)
        Numbers of the points in the test data, from 1.
    X, y : arrays of shape (n, d) and (n,)
    feature_names : tuple of d str
    mean, pit : arrays of shape (n,)
        Predictive mean, and ``F(y)`` under the predictive distribution; where this jumps, a point
        drawn between both ends of the jump.
    atoms : array of shape (n,)
        Which targets are values where the distribution jumps.
    coverages : array of shape (k,)
    lower, upper : arrays of shape (n, k)
        Interval ends at these coverages.
    backed : tuple of k bool
        Whether the calibration points support the coverage; otherwise a modelled tail is used.
    curves : LevelCurves or None
        None for methods without such curves.
    report : CalibrationReport
    target, unit : str
        Name and unit of the target; empty if unknown.
    members : tuple of Member
        The pooled models, with weights.
    relevance : array of shape (d,) or None
        See :func:`sharpgp.relevance.relevance`; one number per column of a table.
    encoding : TableEncoding or None
        How the columns of a table became features.
    groups : array of shape (n,) or None
        Which test points belong together.
    n_given : int
        Rows of the test data.
    n_seen, n_copies : int
        Rows that are left out: among those that trained or calibrated the model, or copies of
        other test rows.
    gaps : tuple of n str, or None
        For each row of a data frame the names of the columns that it lacks.
    n_missing : int
        Number of missing values in these rows.
    exchangeability : Exchangeability or None
        Test of whether these rows are like the calibration rows, for methods that rank scores.
    X_train : array of shape (m, d) or None
        Features of the rows that trained the model.
    out_of_fold : bool
        Whether these are the calibration rows, predicted by fits without them.
    promise : Promise or None
        What the model promises to such rows, for calibrated models.
    """

    method: str
    n_train: int
    n_cal: int | None
    row: NDArray[np.int64]
    X: Floats
    y: Floats
    feature_names: tuple[str, ...]
    mean: Floats
    pit: Floats
    atoms: NDArray[np.bool_]
    coverages: Floats
    lower: Floats
    upper: Floats
    backed: tuple[bool, ...]
    curves: LevelCurves | None
    report: CalibrationReport
    target: str = ""
    unit: str = ""
    members: tuple[Member, ...] = ()
    relevance: Floats | None = None
    encoding: TableEncoding | None = None
    groups: NDArray[Any] | None = None
    n_given: int = 0
    n_seen: int = 0
    n_copies: int = 0
    counted: str = "points"
    gaps: tuple[str, ...] | None = None
    n_missing: int = 0
    exchangeability: Exchangeability | None = None
    X_train: Floats | None = None
    out_of_fold: bool = False
    promise: Promise | None = None

    @property
    def relevant(self) -> dict[str, float]:
        """Relevance of each feature, or column of a table, by name; largest first."""
        if self.relevance is None:
            return {}
        names = self.feature_names if self.encoding is None else tuple(self.encoding.names)
        order = np.argsort(-self.relevance, kind="stable")
        return {names[j]: float(self.relevance[j]) for j in order}

    @property
    def first(self) -> int:
        """Position of the coverage that is looked at first: 95 %, or the nearest."""
        return int(np.abs(self.coverages - FIRST_COVERAGE).argmin())

    @cached_property
    def covered(self) -> NDArray[np.bool_]:
        """Points (n, k) within their intervals.

        A target tied with an end, as only values with a probability of their own are, counts as
        its PIT says: the share of its probability that the interval needs.
        """
        y, inside = self.y[:, None], np.abs(self.pit - 0.5)[:, None] <= self.coverages / 2
        tied = self.atoms[:, None] & ((y == self.lower) | (y == self.upper))
        return np.where(tied, inside, (self.lower <= y) & (y <= self.upper))

    @cached_property
    def groupings(self) -> tuple[Grouping, ...]:
        """Every way to part the points that is examined."""
        return groupings(self)

    @property
    def points(self) -> Points:
        """What the tests need of the points."""
        return Points(self.pit, ~self.covered, self.coverages, self.groups)

    @cached_property
    def places(self) -> PlacesTest:
        """The test of where predictions are off."""
        return places_test(self.points, self.groupings, self.level)

    @cached_property
    def excess(self) -> Floats:
        """Deviations of all places, in units of their limits."""
        return self.places.excess(self.points, np.ones(len(self.y), dtype=bool))

    def excess_of(self, grouping: Grouping, j: int) -> float:
        """The largest deviation of a part, in units of its limit."""
        return float(np.abs(self.excess[self.places.row_of(grouping, j)]).max())

    def stray(self, grouping: Grouping) -> float:
        """The largest deviation of all parts of a grouping, in units of their limits."""
        return max((self.excess_of(grouping, j) for j in range(len(grouping.says))), default=0.0)

    @property
    def grouped_errors(self) -> bool:
        """Whether errors of a group must not be alike: the fit did not know groups."""
        return self.groups is not None and self.counted != "groups"

    @property
    def level(self) -> float:
        """Level of each test of the page, which share :data:`PAGE_LEVEL`."""
        return PAGE_LEVEL / (2 + (not self.out_of_fold) + self.grouped_errors)

    @cached_property
    def columns(self) -> tuple[OwnColumn, ...]:
        """The user's columns, in their order."""
        return own_columns(self.X, self.feature_names, self.encoding)

    @cached_property
    def columns_in_training(self) -> tuple[OwnColumn, ...]:
        """The same for the training rows; empty if they are unknown."""
        if self.X_train is None or self.X_train.shape[1] != self.X.shape[1]:
            return ()
        return own_columns(self.X_train, self.feature_names, self.encoding)

    @cached_property
    def suspicions(self) -> tuple[Suspicion, ...]:
        """Leaks and suspicious values among these rows, see :func:`sharpgp.check`."""
        target = self.target or "the target"
        columns = {one.name: one.values for one in self.columns if not (one.labels or one.dates)}
        if self.encoding is None:
            found = leaks(columns, self.y, target)
        else:
            rows = Encoded(self.X, np.zeros((len(self.y), 0)), self.encoding)
            found = leaks_of(rows, self.y, target)
        return (*found, *suspicions(columns, self.y, target, first_row=1))

    @property
    def fingerprint(self) -> str:
        """Twelve digits that tell these test data from others: of the SHA-256 of their bytes."""
        return hashlib.sha256(np.column_stack([self.X, self.y]).tobytes()).hexdigest()[:12]

    @property
    def levels(self) -> Floats:
        """Inner levels of the ECE, shape (19,)."""
        return ECE_LEVELS[1:-1]

    @property
    def observed(self) -> Floats:
        """Share of the points at or below the quantile of each level, shape (19,)."""
        return np.asarray((self.pit[:, None] <= self.levels).mean(0))

    @property
    def ece_ratio(self) -> float:
        """Calibration error in units of what chance alone gives."""
        error = float(((self.observed - self.levels) ** 2).sum() / len(ECE_LEVELS))
        return error / ece_floor(self.n_cal, len(self.y))

    @property
    def explained(self) -> float:
        """Share of the target's variance that predictions explain; at least 0."""
        total = float(self.y.var())
        error = float(np.mean((self.y - self.mean) ** 2))
        return max(0.0, 1 - error / total) if total > 0 else 0.0

    def show(self, value: float) -> str:
        """A value of the target, with three digits of its deviation."""
        return number(value, like=float(self.y.std()))
