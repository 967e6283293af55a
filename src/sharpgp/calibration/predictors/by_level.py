"""Predictors with their own quantile function: the GP's, a network's, the paper's, CV+."""

from abc import abstractmethod
from functools import partial

import torch
from torch import Tensor

from sharpgp._ranks import points_needed, supported
from sharpgp._tail import Tail
from sharpgp.calibration import intervals
from sharpgp.calibration.cautions import warn_if_unsupported, warn_of_tail
from sharpgp.calibration.predictors.base import Calibrated
from sharpgp.calibration.ranks import centred_levels, table_levels
from sharpgp.calibration.tails import outer_ranks, pooled_tail
from sharpgp.distribution import PredictiveDistribution
from sharpgp.rows import Rows

# Intervals are closed. Ends move outward by this share of the width, so that rounding excludes no
# point at an end.
_SLACK = 2e-10


class LevelPredictor(Calibrated):
    """Predictions from quantiles at levels that ``C`` points support, bands, and tails."""

    def location(self, X: Rows) -> Tensor:
        return self.posterior.mean(X)

    @abstractmethod
    def quantiles_inside(self, X: Rows, delta: Tensor) -> Tensor:
        """Quantiles [K, T] at supported, increasing levels ``delta`` [K]."""

    @abstractmethod
    def band(self, X: Rows, coverage: float) -> tuple[Tensor, Tensor]:
        """Lower and upper end [T] of the symmetric band ``mu -+ radius`` at a coverage."""

    @property
    def prefers_band(self) -> bool:
        """Whether intervals are symmetric bands by default."""
        return self.n_cal is not None and intervals.prefers_band(None, self.n_cal)

    def centred_levels(self, coverage: float) -> tuple[float, float]:
        """Levels of the two ends of the centred interval."""
        return centred_levels(coverage)

    def table_levels(self) -> Tensor:
        """Levels [K] at which the distribution is tabulated."""
        return table_levels(self.n_cal).to(self.device)

    def tail(self, X: Rows) -> Tail | None:
        """What lies beyond the outermost ranks at ``X``; None where every level is supported."""
        if self.n_cal is None:
            return None
        C, k = self.n_cal, outer_ranks(self.n_cal)
        ranks = torch.arange(1, k + 1, dtype=torch.float64, device=X.device)
        levels = torch.cat([ranks, C + 1 - ranks]).unique() / (C + 1)
        return pooled_tail(self.quantiles_inside(X, levels).mT, C)

    def with_tail(self, X: Rows, delta: Tensor) -> tuple[Tensor, Tail | None]:
        """:meth:`quantiles_inside` and :meth:`tail` together: predictors may share work."""
        return self.quantiles_inside(X, delta), self.tail(X)

    def quantiles(self, X: Rows, delta: Tensor) -> Tensor:
        if self.n_cal is None or bool(supported(delta, self.n_cal).all()):
            return self.quantiles_inside(X, delta)
        first, last = 1.0 / (self.n_cal + 1), self.n_cal / (self.n_cal + 1)
        clamped, position = delta.clamp(first, last).unique(return_inverse=True)
        known, tail = self.with_tail(X, clamped)
        assert tail is not None
        below = tail.excess((delta / first).clamp(max=1.0).unsqueeze(-1))
        above = tail.excess(((1.0 - delta) / (1.0 - last)).clamp(max=1.0).unsqueeze(-1))
        return known[position] - below + above

    def interval_ends(
        self, X: Rows, coverages: list[float], symmetric: bool | None, weights: Tensor | None
    ) -> Tensor:
        ends = torch.stack([self._interval(X, c, symmetric) for c in coverages], dim=1)
        lower, upper = ends[0].cummin(0).values, ends[1].cummax(0).values
        slack = _SLACK * (upper - lower)
        return torch.stack([lower - slack, upper + slack])

    def distribution(self, X: Rows) -> PredictiveDistribution:
        delta = self.table_levels()
        caution = None if self.n_cal is None else partial(warn_if_unsupported, n_cal=self.n_cal)
        quantiles, tail = self.with_tail(X, delta)
        return PredictiveDistribution(delta, quantiles, tail=tail, caution=caution)

    def is_band(self, coverage: float, symmetric: bool | None) -> bool:
        """The band if it was chosen, or if there are too few points for two tails."""
        if symmetric is not None:
            return symmetric
        levels = torch.tensor(centred_levels(coverage), dtype=torch.float64)
        return self.prefers_band or (
            self.n_cal is not None and not bool(supported(levels, self.n_cal).all())
        )

    def _interval(self, X: Rows, coverage: float, symmetric: bool | None) -> Tensor:
        band = self.is_band(coverage, symmetric)
        if band and self.band_supported(coverage):
            return torch.stack(self.band(X, coverage))
        levels = torch.tensor(self.centred_levels(coverage), dtype=torch.float64, device=X.device)
        ends = self.quantiles(X, levels)
        if not band:
            return ends
        mean = self.location(X)
        radius = torch.maximum(ends[1] - mean, mean - ends[0])
        return torch.stack([mean - radius, mean + radius])

    def _warn_of_coverage(
        self, coverage: float, symmetric: bool | None, weights: Tensor | None, n_rows: int
    ) -> None:
        if self.n_cal is None:
            return
        if not self.is_band(coverage, symmetric):
            levels = torch.tensor(self.centred_levels(coverage), dtype=torch.float64)
            warn_if_unsupported(levels, coverage, n_cal=self.n_cal)
        elif not self.band_supported(coverage):
            warn_of_tail(f"coverage {coverage:g}", points_needed(coverage), self.n_cal)


class HeldOutPredictor(LevelPredictor):
    """Its own quantile function, from calibration points ``X_cal`` [C, d], ``y_cal`` [C]."""

    rows_cal: Rows
    y_cal: Tensor

    @abstractmethod
    def calibrated_on(self, X: Rows, y: Tensor) -> "HeldOutPredictor":
        """The same with other calibration points; all else that the method learned is kept."""

    @property
    def X_cal(self) -> Tensor:
        """Features [C, d] of the calibration points."""
        return self.rows_cal.X

    def labelled_data(self) -> tuple[Rows, Tensor]:
        rows, y = self.posterior.rows, self.posterior.y_train
        return Rows.join(rows, self.rows_cal), torch.cat([y, self.y_cal])

    @property
    def can_be_rescored(self) -> bool:
        return True

    def _rescored(self, X: Rows, y: Tensor, keep: int | None) -> "HeldOutPredictor":
        newest = slice(None if keep is None else -keep, None)
        rows = Rows.join(self.rows_cal, X)[newest]
        return self.calibrated_on(rows, torch.cat([self.y_cal, y])[newest])
