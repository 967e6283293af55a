r"""Where predictions are off: one test for all places, and one for all points together.

PITs of calibrated predictions are exchangeable, whatever the columns say.  For each part of each
grouping (:mod:`sharpgp.diagnostics.groupings`), the deviation of the part from all points is
standardised: of the normal scores of the PITs (is the prediction off to one side?), of the normal
scores of ``|PIT - 1/2|`` (are errors larger or smaller?), of the shares missed by each interval.
The maximum of all of them is compared with its law under permutations of the PITs over the points,
or over the groups of points.  This has exact size, however many parts overlap.

A permutation holds the set of PITs fixed, so that it asks *where*.  Whether all points together are
off is asked of the PITs beside the uniform law, with the error of the calibration points.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property, lru_cache
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.special import gammaln, ndtri
from scipy.stats import rankdata

from sharpgp.diagnostics.groupings import Grouping
from sharpgp.diagnostics.own_columns import MIN_POINTS_PER_GROUP, Floats
from sharpgp.metrics import ECE_LEVELS

Bools = NDArray[np.bool_]

#: A calibrated page has a finding once in twenty; the tests of a page share this equally.
PAGE_LEVEL = 0.05
#: Permutations, and draws of a calibrated predictor.
DRAWS = 999
# Draws at a time, and most points and calibration points of such a draw: with more, the law of the
# statistics differs by its scale alone.
_BATCH, _MAX_DRAWN = 50, 1000


@dataclass(frozen=True)
class Points:
    """What is known of the test points that are judged.

    Attributes
    ----------
    pit : array of shape (n,)
        Drawn at random where the target has an atom.
    missed : array of shape (n, K)
        Points outside of the interval of each coverage.
    coverages : array of shape (K,)
    groups : array of shape (n,), optional
        Which points belong together, counted from 0.
    """

    pit: Floats
    missed: Bools
    coverages: Floats
    groups: NDArray[np.int64] | None = None

    def take(self, kept: Bools) -> "Points":
        """Some of the points."""
        groups = None
        if self.groups is not None:
            groups = np.asarray(np.unique(self.groups[kept], return_inverse=True)[1])
        return Points(self.pit[kept], self.missed[kept], self.coverages, groups)

    def moved_to(self, pit: Floats) -> "Points":
        """The same points with other PITs."""
        missed = np.abs(pit - 0.5)[:, None] > self.coverages / 2
        return Points(pit, missed, self.coverages, self.groups)

    @property
    def scores(self) -> Floats:
        """Normal scores (n, 2) of the ranks of the PITs, and of their distances from 1/2."""
        ranks = (rankdata(v) for v in (self.pit, np.abs(self.pit - 0.5)))
        return np.column_stack([ndtri((rank - 0.5) / len(self.pit)) for rank in ranks])

    @property
    def shares(self) -> Bools:
        """What shares (n, K + 1) are of: points missed, and above the predicted median."""
        return np.column_stack([self.missed, self.pit > 0.5])


class Contrasts:
    """Parts and trends of some points, and how far their statistics deviate.

    ``deviations`` has a row for each part, then one for each trend, and the columns of
    ``Points.scores`` and ``Points.shares``; trends have scores only.
    """

    def __init__(self, parts: Sequence[tuple[Grouping, int]], kept: Bools, points: Points) -> None:
        self.n = int(kept.sum())
        self.inside = np.array(
            [g.inside(j)[kept] if j >= 0 else np.zeros(self.n, bool) for g, j in parts],
            dtype=np.float32,
        ).reshape(len(parts), self.n)
        self.trends = [
            (row, _centred_ranks(g.trend[kept]))
            for row, (g, j) in enumerate(parts)
            if j < 0 and g.trend is not None
        ]
        self.size = self.inside.sum(1).astype(np.int64)
        self.judged = (self.size >= MIN_POINTS_PER_GROUP) & (
            self.size <= self.n - MIN_POINTS_PER_GROUP
        )
        scores = points.scores
        spread = np.maximum(scores.std(0, ddof=1), 1e-12)
        self.values = np.column_stack([(scores - scores.mean(0)) / spread, points.shares])
        self.values = self.values.astype(np.float32)
        totals = points.shares.sum(0)
        self.tables = {m: _scores_of_counts(self.n, totals, m) for m in {*self.size[self.judged]}}

    def deviations(self, order: NDArray[np.int64]) -> Floats:
        """Standardised deviations [b, R, S] for points in ``b`` orders [b, n]."""
        b, n = order.shape
        drawn = self.values[order].transpose(1, 0, 2).reshape(n, -1)
        total = (self.inside @ drawn).reshape(len(self.inside), b, -1).transpose(1, 0, 2)
        out = np.zeros(total.shape)
        for m, table in self.tables.items():
            rows = np.flatnonzero(self.judged & (self.size == m))
            out[:, rows, :2] = total[:, rows, :2] / np.sqrt(m * (1 - m / n))
            counts = np.rint(total[:, rows, 2:]).astype(np.int64)
            out[:, rows, 2:] = table[np.arange(len(table)), counts]
        for row, trend in self.trends:
            along = (trend.astype(np.float32) @ drawn).reshape(b, -1)[:, :2]
            out[:, row, :2] = along / max(float(np.sqrt(trend @ trend)), 1e-12)
        return out

    def band(self, row: int, k: int, limit: float) -> tuple[float, float]:
        """Shares of a part that deviate by at most ``limit``; [0, 1] for one that is not judged."""
        if not self.judged[row]:
            return 0.0, 1.0
        m = int(self.size[row])
        allowed = np.flatnonzero(np.abs(self.tables[m][k]) <= limit)
        return float(allowed[0]) / m, float(allowed[-1]) / m


@dataclass(frozen=True)
class PlacesTest:
    """The test of all places.

    Attributes
    ----------
    parts : tuple of (Grouping, int)
        Each part by its number; -1 for the trend along a grouping.
    points : Points
    limit : array of shape (R, S)
        Deviations beyond are found.
    """

    parts: tuple[tuple[Grouping, int], ...]
    points: Points
    limit: Floats

    def excess(self, points: Points, kept: Bools) -> Floats:
        """Deviations (R, S) of some points, or changed ones, in units of their limits."""
        found = Contrasts(self.parts, kept, points)
        return np.asarray(found.deviations(np.arange(found.n)[None])[0] / self.limit)

    def row_of(self, grouping: Grouping, j: int) -> int:
        """Row of a part among the deviations."""
        return self._rows[grouping.kind, grouping.name, j]

    def band(self, grouping: Grouping, j: int, k: int) -> tuple[float, float]:
        """Where the share covered of part ``j`` falls by chance, at coverage ``k``."""
        row = self.row_of(grouping, j)
        low, high = self._contrasts.band(row, k, self.limit[row, k + 2])
        return 1 - high, 1 - low

    @cached_property
    def _rows(self) -> dict[tuple[str, str, int], int]:
        return {(g.kind, g.name, j): row for row, (g, j) in enumerate(self.parts)}

    @cached_property
    def _contrasts(self) -> Contrasts:
        return Contrasts(self.parts, np.ones(len(self.points.pit), bool), self.points)


def places_test(points: Points, groupings: Sequence[Grouping], level: float) -> PlacesTest:
    """Deviations of all places and their limits, from one set of permutations.

    Coverage by width is what a page is asked first: it shares ``2 level`` with all other places
    equally.
    """
    parts = [(g, j) for g in groupings for j in range(len(g.says))]
    parts += [(g, -1) for g in groupings if g.trend is not None]
    n = len(points.pit)
    found = Contrasts(parts, np.ones(n, bool), points)
    rng = np.random.default_rng(0)
    drawn = [
        np.abs(found.deviations(_orders(points.groups, n, min(_BATCH, DRAWS - i), rng)))
        for i in range(0, DRAWS, _BATCH)
    ]
    z = np.concatenate(drawn)
    # Points of a group are alike, and so parts that hold whole groups stray more than others.
    scale = np.ones(z.shape[1:])
    if points.groups is not None:
        scale = np.maximum(1.0, np.sqrt((z**2).mean(0)))
    z /= scale
    first = np.array([g.kind == "width" for g, _ in parts])
    limit = np.empty(z.shape[1:])
    for family in (first, ~first):
        most = z[:, family].reshape(DRAWS, -1).max(1, initial=0.0)
        # The largest of the draws and the page itself: p <= level.
        limit[family] = max(np.sort(most)[-max(1, int(level * (DRAWS + 1)))], 1e-9)
    return PlacesTest(tuple(parts), points, limit * scale)


def whole_p_value(points: Points, n_cal: int | None) -> float:
    """p-value of all PITs beside the uniform law, by what calibrated predictors would have.

    Moments, shares, the calibration error and the farthest dot of the reliability diagram have a
    p-value each; their minimum is compared with that of draws of ``n_cal`` calibration and as many
    test points.
    """
    null = _null_of(points, n_cal)
    least = _p_values(np.vstack([_whole_statistics(points.pit, points.coverages), null])).min(1)
    return float((least <= least[0]).mean())


def reliability_reach(points: Points, n_cal: int | None, level: float) -> float:
    """How far a dot of the reliability diagram may lie off, in units of ``sqrt(p (1 - p))``.

    With any dot farther off, :func:`whole_p_value` is at most ``level``.
    """
    null = _null_of(points, n_cal)
    p = _p_values(null)
    # A few draws to spare: the page itself is one of those that it is compared with.
    clear = np.sort(p.min(1))[max(0, int(0.8 * level * DRAWS))]
    return float(null[p[:, -1] >= clear, -1].max())


def _null_of(points: Points, n_cal: int | None) -> Floats:
    """Statistics [DRAWS, S] of calibrated predictors with as many points."""
    size, cal, ratio = float(effective_size(points)), float(n_cal or 0), 1.0
    if max(size, cal) > _MAX_DRAWN:
        ratio = _MAX_DRAWN / max(size, cal)
        size, cal = size * ratio, cal * ratio
    expected = np.concatenate([[0.0, 0.0], 1 - points.coverages, [0.0, 0.0]])
    null = _whole_null(
        max(2, round(size)), max(2, round(cal)) if n_cal else 0, tuple(points.coverages)
    )
    return np.asarray(expected + (null - expected) * np.sqrt(ratio))


def _p_values(statistics: Floats) -> Floats:
    """p-value [b, S] of each statistic among all of them."""
    z = statistics - statistics.mean(0)
    z[:, :-2] = np.abs(z[:, :-2])  # a distance is suspicious only if it is large
    return np.column_stack([rankdata(-column, method="max") for column in z.T]) / len(z)


def effective_size(points: Points) -> float:
    """Number of independent points: fewer than there are, where those of a group are alike."""
    n = len(points.pit)
    if points.groups is None:
        return float(n)
    z = points.scores - points.scores.mean(0)
    of_groups = np.array([np.bincount(points.groups, weights=column) for column in z.T])
    alike = (of_groups**2).sum(1) / np.maximum((z**2).sum(0), 1e-12)
    return max(2.0, n / max(1.0, float(alike.max())))


def _whole_statistics(pit: Floats, coverages: Floats) -> Floats:
    """Mean normal scores of side and size, shares missed, and distances from uniform [..., S].

    PITs are [..., n].
    """
    size = np.abs(2 * pit - 1)
    scores = [ndtri(np.clip(v, 1e-6, 1 - 1e-6)).mean(-1) for v in (pit, size)]
    missed = [(size > coverage).mean(-1) for coverage in coverages]
    levels = ECE_LEVELS[1:-1]
    gaps = np.stack([(pit <= level).mean(-1) - level for level in levels], axis=-1)
    farthest = np.abs(gaps / np.sqrt(levels * (1 - levels))).max(-1)
    return np.stack([*scores, *missed, np.sqrt((gaps**2).mean(-1)), farthest], axis=-1)


@lru_cache(maxsize=64)
def _whole_null(n: int, n_cal: int, coverages: tuple[float, ...]) -> Floats:
    """Statistics [DRAWS, S] of ``n`` PITs whose levels ``n_cal`` points have set."""
    rng, asked = np.random.default_rng(0), np.array(coverages)
    out, nodes = [], np.zeros((_BATCH, n_cal + 2))
    for _ in range(0, DRAWS, _BATCH):
        pit = rng.random((_BATCH, n))
        if n_cal:
            nodes[:, 1:-1], nodes[:, -1] = np.sort(rng.random((_BATCH, n_cal)), axis=1), 1.0
            # One search for all draws: each has its own unit of the line.
            apart = 2.0 * np.arange(_BATCH)[:, None]
            flat = (nodes + apart).ravel()
            above = np.searchsorted(flat, (pit + apart).ravel())
            low, high = flat[above - 1], flat[above]
            within = ((pit + apart).ravel() - low) / np.maximum(high - low, 1e-300)
            pit = ((above - 1) % (n_cal + 2) + within).reshape(_BATCH, n) / (n_cal + 1)
        out.append(_whole_statistics(pit, asked))
    return np.concatenate(out)[:DRAWS]


def _orders(
    groups: NDArray[np.int64] | None, n: int, b: int, rng: np.random.Generator
) -> NDArray[np.int64]:
    """Permutations [b, n] of the points; with groups, of the groups, whose points stay together."""
    if groups is None:
        return rng.permuted(np.tile(np.arange(n), (b, 1)), axis=1)
    own = np.argsort(groups, kind="stable")
    out = np.empty((b, n), dtype=np.int64)
    for row in out:
        keys = rng.permutation(int(groups.max()) + 1)[groups]
        row[own] = np.lexsort((rng.random(n), keys))
    return out


def _scores_of_counts(n: int, totals: NDArray[np.int64], m: int) -> Floats:
    """Normal scores [K, m + 1] of counts among ``m`` of ``n`` points, ``totals`` (K,) in all.

    Those of mid-p-values of the hypergeometric law, which a permutation of the points gives.
    """
    count, total = np.arange(m + 1), np.asarray(totals)[:, None]
    with np.errstate(invalid="ignore"):
        log_p = _log_choose(total, count) + _log_choose(n - total, m - count) - _log_choose(n, m)
    p = np.exp(np.where((count <= total) & (m - count <= n - total), log_p, -np.inf))
    below, above = np.cumsum(p, 1) - p / 2, np.cumsum(p[:, ::-1], 1)[:, ::-1] - p / 2
    z = ndtri(np.clip(np.minimum(below, above), 1e-300, 0.5))
    return np.asarray(np.where(below < above, z, -z))


def _log_choose(n: Any, k: Any) -> Floats:
    return np.asarray(gammaln(n + 1.0) - gammaln(k + 1.0) - gammaln(n - k + 1.0))


def _centred_ranks(values: Floats) -> Floats:
    ranks = rankdata(values)
    return np.asarray(ranks - ranks.mean())
