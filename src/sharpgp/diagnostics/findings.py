"""Predictions for test data beside observations."""

import hashlib
from collections import Counter
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from sharpgp.data.encoding import TableEncoding
from sharpgp.data.table_check import Suspicion, suspicions
from sharpgp.diagnostics.chance import COVERAGE_LOOKS, MIN_POINTS_PER_GROUP, Floats, bands_of_chance
from sharpgp.diagnostics.curves import LevelCurves
from sharpgp.diagnostics.own_columns import OwnColumn, own_columns
from sharpgp.exchangeability import Exchangeability
from sharpgp.metrics import ECE_LEVELS, CalibrationReport, coverage_band, coverage_by
from sharpgp.models.pool import Member


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
    X, y : arrays of shape (n, d) and (n,)
    feature_names : tuple of d str
    mean, pit : arrays of shape (n,)
        Predictive mean, and ``F(y)`` under the predictive distribution.
    quantiles : array of shape (n, 19)
        At the inner 19 of the 21 levels of the ECE.
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
    n_seen : int
        Test points that are among those that trained or calibrated the model.
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
    """

    method: str
    n_train: int
    n_cal: int | None
    X: Floats
    y: Floats
    feature_names: tuple[str, ...]
    mean: Floats
    pit: Floats
    quantiles: Floats
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
    n_seen: int = 0
    counted: str = "points"
    gaps: tuple[str, ...] | None = None
    n_missing: int = 0
    exchangeability: Exchangeability | None = None
    X_train: Floats | None = None
    out_of_fold: bool = False

    @property
    def relevant(self) -> dict[str, float]:
        """Relevance of each feature, or column of a table, by name; largest first."""
        if self.relevance is None:
            return {}
        names = self.feature_names if self.encoding is None else tuple(self.encoding.names)
        order = np.argsort(-self.relevance, kind="stable")
        return {names[j]: float(self.relevance[j]) for j in order}

    @property
    def looks(self) -> int:
        """Number of groupings examined: along features, rows and widths, and by gaps."""
        return COVERAGE_LOOKS * (len(self.columns) + 2 + bool(self.gap_patterns))

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
        """Suspicious values among these rows, see :func:`sharpgp.check`."""
        columns = {one.name: one.values for one in self.columns if not (one.labels or one.dates)}
        return tuple(suspicions(columns, self.y, self.target or "the target", first_row=1))

    @property
    def n_copies(self) -> int:
        """Test points that repeat an earlier one in all features and the target."""
        return len(self.y) - len(np.unique(self._rows, axis=0))

    @property
    def fingerprint(self) -> str:
        """Twelve digits that tell these test data from others: of the SHA-256 of their bytes."""
        return hashlib.sha256(np.ascontiguousarray(self._rows).tobytes()).hexdigest()[:12]

    @property
    def _rows(self) -> Floats:
        return np.column_stack([self.X, self.y])

    @property
    def levels(self) -> Floats:
        """Levels of ``quantiles``, shape (19,)."""
        return ECE_LEVELS[1:-1]

    @property
    def gap_patterns(self) -> list[str]:
        """Missing columns of each row; empty if no row lacks anything.

        Complete rows are "complete"; patterns of fewer than :data:`MIN_POINTS_PER_GROUP` rows are
        pooled as "others".
        """
        if self.gaps is None or not any(self.gaps):
            return []
        counts = Counter(self.gaps)
        return [
            (gap or "complete") if counts[gap] >= MIN_POINTS_PER_GROUP else "others"
            for gap in self.gaps
        ]

    def coverage_by_gaps(self, k: int) -> dict[str, tuple[int, float]]:
        """Points and coverage of the intervals of ``coverages[k]``, by :attr:`gap_patterns`."""
        if not self.gap_patterns:
            return {}
        return coverage_by(self.gap_patterns, self.y, self.lower[:, k], self.upper[:, k])

    def gaps_beyond_chance(self, k: int) -> list[str]:
        """Patterns of gaps whose coverage leaves the band of chance for all groups."""
        by_pattern = self.coverage_by_gaps(k)
        confidence = 1 - 0.05 / (max(len(by_pattern), 1) * self.looks)
        out = []
        for pattern, (size, covered) in by_pattern.items():
            band = coverage_band(float(self.coverages[k]), self.n_cal, size, confidence)
            if size >= MIN_POINTS_PER_GROUP and not band[0] <= covered <= band[1]:
                out.append(pattern)
        return out

    def straying_column(self, k: int) -> OwnColumn:
        """The column along which intervals of ``coverages[k]`` leave the band of chance most."""
        coverage, strays = float(self.coverages[k]), []
        for column in self.columns:
            bins = column.coverage(self.y, self.lower[:, k], self.upper[:, k])
            low, high = bands_of_chance(bins, coverage, self.n_cal, self.looks)
            strays.append(np.maximum(low - bins.coverage, bins.coverage - high).max())
        return self.columns[int(np.argmax(strays))]
