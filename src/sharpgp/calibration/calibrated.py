"""What every calibration method gives back: a predictor of quantiles and intervals."""

import copy
import math
import warnings
from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import Any, Self

import torch
from torch import Tensor

from sharpgp._validation import as_count, as_coverage, as_features, as_levels, as_target
from sharpgp.calibration.levels import table_levels, whole_rank
from sharpgp.calibration.limits import warn_if_far
from sharpgp.calibration.quantile import points_needed, supported
from sharpgp.distribution import PredictiveDistribution
from sharpgp.exceptions import CalibrationWarning, InvalidInputError, warn
from sharpgp.gp.compute import threads_for
from sharpgp.gp.posterior import Posterior
from sharpgp.metrics import ECE_LEVELS, CalibrationReport, calibration_report

#: Rows that are predicted at a time, so that memory grows with the answers only.
ROWS_AT_ONCE = 2**15


class Calibrated(ABC):
    """A calibrated predictor: what every recalibrator's ``fit`` returns.

    A subclass answers quantiles and symmetric bands at levels that its ``C`` calibration points
    support; this class adds checks, tails, shapes and the full distribution.  Answers are torch
    tensors in the user's units.

    Attributes
    ----------
    posterior : Posterior
    n_cal : int or None
        Number of calibration points ``C``; None where nothing is estimated from such points, and
        every level in (0, 1) can be asked for.
    """

    posterior: Posterior
    n_cal: int | None

    @abstractmethod
    def quantiles(self, X: Tensor, delta: Tensor) -> Tensor:
        """Quantiles [K, T] at supported, increasing levels ``delta`` [K]."""

    @abstractmethod
    def band(self, X: Tensor, coverage: float) -> tuple[Tensor, Tensor]:
        """Lower and upper end [T] of the symmetric band ``mu -+ radius`` at a coverage."""

    def centred_levels(self, coverage: float) -> tuple[float, float]:
        """Levels of the two ends of the centred interval."""
        # Next to 1, the upper level would round to 1, where no distribution has a quantile.
        return (1.0 - coverage) / 2.0, min((1.0 + coverage) / 2.0, math.nextafter(1.0, 0.0))

    def band_supported(self, coverage: float) -> bool:
        """Whether the symmetric band at this coverage is backed by calibration points."""
        return self.n_cal is None or whole_rank(coverage, self.n_cal, up=True) <= self.n_cal

    def prefers_band(self, coverage: float) -> bool:
        """Whether intervals are symmetric bands unless the user says otherwise.

        Where fewer than five calibration points lie in either tail, that is for
        ``(1 - coverage)/2 * (C + 1) < 5``.
        """
        return self.n_cal is not None and (1.0 - coverage) / 2.0 * (self.n_cal + 1) < 5.0

    def predict_mean(self, X: Any) -> Tensor:
        """Predictive mean [T]."""
        return self.posterior.mean(self._features(X))

    def predict_quantiles(self, X: Any, levels: Any) -> Tensor:
        """Quantiles, shape (T,) for a single level and (T, k) for several, never crossing."""
        X = self._features(X)
        warn_if_far(self.posterior, X)
        values, single = as_levels(levels)
        delta = torch.tensor(values, dtype=torch.float64, device=self.posterior.device)
        ordered, position = torch.unique(delta, return_inverse=True)
        table = self._with_tails(X, ordered)[position]
        return table[0] if single else table.mT

    def predict_interval(
        self,
        X: Any,
        coverage: Any = 0.95,
        *,
        symmetric: bool | None = None,
        sample_weight: Any = None,
    ) -> Tensor:
        """Interval ends, shape (T, 2) for a single coverage and (T, 2, k) for several.

        ``symmetric=False`` takes two quantiles, ``True`` the band ``mu -+ radius`` from absolute
        z-scores.  ``None`` chooses by a rule that never looks at the scores that fix ``beta``, and
        so leaves the coverage as promised: see :meth:`prefers_band`.  Several coverages give
        nested intervals.  ``sample_weight`` is for predictors with weighted scores, see
        :meth:`weighted`.
        """
        self._no_weights(sample_weight)
        X = self._features(X)
        warn_if_far(self.posterior, X)
        return nested_intervals(coverage, lambda value: self._interval(X, value, symmetric))

    def predict_std(self, X: Any) -> Tensor:
        """Standard deviation [T] of the predictive distribution, without keeping all of it."""
        X = self._features(X)
        warn_if_far(self.posterior, X)
        return _in_blocks(X, lambda rows: self._table(rows).std)

    def predict_dist(self, X: Any) -> PredictiveDistribution:
        """Full predictive distribution at ``X``, tabulated at a fixed grid of levels."""
        X = self._features(X)
        warn_if_far(self.posterior, X)
        return self._table(X)

    def calibration_report(self, X: Any, y: Any) -> CalibrationReport:
        """Every metric on test data, by name, with the ECE floor; prints as a table."""
        X = self._features(X)
        y = as_target(y, n_rows=X.shape[0])
        with warnings.catch_warnings():
            # Levels that few calibration points cannot support show as a higher ECE floor.
            warnings.simplefilter("ignore", CalibrationWarning)
            quantiles = self.predict_quantiles(X, ECE_LEVELS[1:-1])
            interval = self.predict_interval(X, 0.95)
        warn_if_far(self.posterior, X)
        return calibration_report(
            y.cpu().numpy(),
            mean=self.predict_mean(X).cpu().numpy(),
            dist=self._table(X).numpy(),
            quantiles=quantiles.cpu().numpy(),
            interval=interval.cpu().numpy(),
            n_cal=self.n_cal,
        )

    def updated(self, X: Any, y: Any, *, sample_weight: Any = None) -> "Calibrated":
        """A new predictor that has learned from further labelled points; this one stays.

        Trained hyperparameters are kept.  The points join those that fix ``beta``; where the
        training points do that themselves (``cv``), or nothing does (``vanilla``), the GP is
        conditioned on the new points, too.  Several updates add up to one; only ``cv`` scores
        each batch with what it knew before that batch.

        Parameters
        ----------
        X, y : arrays of shape (n, d) and (n,)
            Points that the predictor has not seen.
        sample_weight : array of shape (n,), optional
            Their weights, where the others have weights.
        """
        X, y = self._labelled(X, y)
        self._no_weights(sample_weight)
        with torch.no_grad(), threads_for(self.posterior.n_dense):
            return self._updated(X, y)

    @property
    def can_be_rescored(self) -> bool:
        """Whether this predictor has scores that new points can join, see :meth:`rescored`."""
        return type(self)._rescored is not Calibrated._rescored

    def rescored(self, X: Any, y: Any, *, keep: int | None = None) -> "Calibrated":
        """A new predictor with the same mean and spread, and ``beta`` from further points, too.

        With ``keep``, from the ``keep`` newest points only: a window that forgets.
        """
        X, y = self._labelled(X, y)
        keep = None if keep is None else as_count(keep, "keep", least=1)
        with torch.no_grad(), threads_for(self.posterior.n_dense):
            return self._rescored(X, y, keep)

    def weighted(self, sample_weight: Any) -> "Calibrated":
        """The same predictor with weighted scores, for a covariate shift."""
        raise InvalidInputError(
            "sample_weight: expected a method that ranks scores (exact, cv, kuleshov18, marx22), "
            f"found one that gives a {type(self).__name__}"
        )

    def labelled_data(self) -> tuple[Tensor, Tensor]:
        """All labelled points that this predictor rests on: training, then calibration."""
        return self.posterior.X_train, self.posterior.y_train

    def _updated(self, X: Tensor, y: Tensor) -> "Calibrated":
        return self._rescored(X, y, None)

    def _rescored(self, X: Tensor, y: Tensor, keep: int | None) -> "Calibrated":
        raise InvalidInputError(
            "expected a predictor with scores that new points can join, found "
            f"{type(self).__name__}; choose another calibration, or start over with refit=True"
        )

    def _labelled(self, X: Any, y: Any) -> tuple[Tensor, Tensor]:
        X = self._features(X)
        return X, as_target(y, n_rows=X.shape[0], device=self.posterior.device)

    def _no_weights(self, sample_weight: Any) -> None:
        if sample_weight is not None:
            raise InvalidInputError(
                "sample_weight: expected a model that was calibrated with weights, found one "
                "without; give them to fit, too"
            )

    def condition_on_observations(self, X: Any, y: Any) -> Self:
        """The same calibration on a GP that has also seen ``X``, ``y``; this one stays.

        Mean and ``sigma`` learn from the new points; hyperparameters and the curves ``beta`` and
        ``theta`` are kept.  Cheap: one factorisation, at the next prediction.

        Parameters
        ----------
        X, y : arrays of shape (n, d) and (n,)

        Examples
        --------
        >>> from sharpgp import Vanilla
        >>> from sharpgp.gp.training import train
        >>> X = torch.linspace(0, 6, 20, dtype=torch.float64)[:, None]
        >>> calibrated = Vanilla().fit(train(X, X[:, 0].sin())[0], None, None)
        >>> calibrated.condition_on_observations([[7.0]], [0.7]).posterior.n_train
        21
        """
        X, y = self._labelled(X, y)
        return self._on(self.posterior.extended(X, y))

    def _on(self, posterior: Posterior) -> Self:
        """The same calibration on another posterior; whatever else holds one has to follow."""
        other = copy.copy(self)
        other.posterior = posterior
        return other

    def table_levels(self) -> Tensor:
        """Levels [K] at which the distribution is tabulated."""
        return table_levels(self.n_cal).to(self.posterior.device)

    def _interval(self, X: Tensor, coverage: float, symmetric: bool | None) -> Tensor:
        symmetric = self.prefers_band(coverage) if symmetric is None else symmetric
        if symmetric and self.band_supported(coverage):
            return _in_blocks(X, lambda rows: torch.stack(self.band(rows, coverage))).mT
        levels = torch.tensor(self.centred_levels(coverage), dtype=torch.float64)
        lower, upper = self._with_tails(X, levels.to(self.posterior.device), coverage, symmetric)
        if symmetric:
            mean = self.posterior.mean(X)
            radius = torch.maximum(upper - mean, mean - lower)
            lower, upper = mean - radius, mean + radius
        return torch.stack([lower, upper], dim=-1)

    def _with_tails(
        self,
        X: Tensor,
        delta: Tensor,
        coverage: float | None = None,
        symmetric: bool | None = None,
    ) -> Tensor:
        """Quantiles [K, T] at any increasing levels, with a warning beyond the supported ones."""
        if self.n_cal is None or bool((inside := supported(delta, self.n_cal)).all()):
            return _in_blocks(X, lambda rows: self.quantiles(rows, delta))
        worst = min(delta[~inside].tolist(), key=lambda p: min(p, 1.0 - p))
        needed = points_needed(worst)
        asked = f"level {worst:g}"
        if coverage is not None:
            needed = points_needed(coverage) if symmetric else needed
            asked = f"coverage {coverage:g}"
        warn(
            f"{asked} needs at least {needed} calibration points, found {self.n_cal}: "
            "the answer comes from a modelled exponential tail, without a guarantee"
        )
        return _in_blocks(X, lambda rows: self.extended_quantiles(rows, delta))

    def extended_quantiles(self, X: Tensor, delta: Tensor) -> Tensor:
        """Quantiles [K, T] at any increasing levels: beyond the supported ones, modelled tails.

        Differentiable in ``X``; unlike :meth:`predict_quantiles` without checks and warnings.
        """
        if self.n_cal is None or bool((inside := supported(delta, self.n_cal)).all()):
            return self.quantiles(X, delta)
        edge = torch.tensor([1.0, self.n_cal], dtype=torch.float64, device=delta.device)
        asked_and_edges = torch.cat([delta[inside], edge / (self.n_cal + 1)]).unique()
        known = self.quantiles(X, asked_and_edges)
        modelled = self._table(X).quantile(delta).mT
        out = torch.empty_like(modelled)
        out[inside] = known[torch.isin(asked_and_edges, delta[inside])]
        low, high = delta < asked_and_edges[0], delta > asked_and_edges[-1]
        out[low] = torch.minimum(modelled[low], known[0])
        out[high] = torch.maximum(modelled[high], known[-1])
        return out

    def _table(self, X: Tensor) -> PredictiveDistribution:
        delta = self.table_levels()
        return PredictiveDistribution(delta, self.quantiles(X, delta))

    def _features(self, X: Any) -> Tensor:
        return as_features(X, n_features=self.posterior.n_features, device=self.posterior.device)


def _in_blocks(X: Tensor, ask: Callable[[Tensor], Tensor]) -> Tensor:
    """``ask`` for blocks of rows of ``X``, whose answers have the rows last."""
    blocks = [ask(rows) for rows in X.split(ROWS_AT_ONCE)]
    return blocks[0] if len(blocks) == 1 else torch.cat(blocks, dim=-1)


def calibrated_of(model: Any) -> Calibrated:
    """The torch-level predictor of a fitted estimator; a predictor is returned as it is.

    Examples
    --------
    >>> calibrated_of("model")
    Traceback (most recent call last):
    sharpgp.exceptions.InvalidInputError: model: expected a fitted SharpGPRegressor or what ...
    """
    calibrated = getattr(model, "calibrated_", model)
    if not isinstance(calibrated, Calibrated):
        found = type(model).__name__
        if hasattr(model, "fit"):
            found += ", which is not fitted; call its fit first"
        raise InvalidInputError(
            "model: expected a fitted SharpGPRegressor or what a recalibrator's fit returned, "
            f"found {found}"
        )
    return calibrated


def nested_intervals(coverage: Any, interval: Callable[[float], Tensor]) -> Tensor:
    """Ends (T, 2) at one coverage, or (T, 2, k) at several, of which larger contain smaller."""
    values, single = as_coverage(coverage)
    if single:
        return interval(values[0])
    ordered = sorted(set(values))
    ends = torch.stack([interval(value) for value in ordered], dim=-1)
    nested = torch.stack([ends[:, 0].cummin(-1).values, ends[:, 1].cummax(-1).values], dim=1)
    return nested[..., [ordered.index(value) for value in values]]
