"""What every calibration method returns: a predictor of quantiles and intervals."""

import copy
import warnings
from abc import ABC, abstractmethod
from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import Any, ClassVar, Protocol, Self

import numpy as np
import torch
from numpy.typing import ArrayLike
from torch import Tensor

from sharpgp._forwarded import forwarded
from sharpgp._ranks import whole_rank
from sharpgp._stored import Maybe
from sharpgp._validation import (
    as_count,
    as_coverage,
    as_levels,
    as_numpy,
    as_target,
)
from sharpgp.calibration.cautions import warn_if_far, warn_if_unsupported, warn_of_dependence
from sharpgp.calibration.predictors.covariate_shift import (
    Ratio,
    Weights,
    weights_to_learn,
    weights_to_predict,
)
from sharpgp.data.target_bounds import BoundedDistribution, Bounds
from sharpgp.distribution import PredictiveDistribution
from sharpgp.exceptions import CalibrationWarning, InvalidInputError
from sharpgp.gp.compute import threads_for
from sharpgp.gp.posterior import Posterior
from sharpgp.metrics import ECE_LEVELS, CalibrationReport, calibration_report
from sharpgp.models.law_memory import law_of, location_of
from sharpgp.models.laws import Law
from sharpgp.models.model import Model, needed_gp
from sharpgp.rows import Rows

#: Rows per block of predictions: memory grows with the answers only.
ROWS_PER_BLOCK = 2**15


class FittedModel(Protocol):
    """A fitted estimator, or a calibrated predictor: anything that :func:`calibrated_of` takes."""

    def predict_interval(self, X: ArrayLike, coverage: ArrayLike = 0.95, /) -> object:
        """Interval ends at rows ``X``."""

    def rows(self, X: Any, /) -> Rows:
        """Rows ``X`` as its models take them."""


class Calibrated(ABC):
    """A calibrated predictor: what every recalibrator's ``fit`` returns.

    A subclass computes quantiles, interval ends and distributions; this class adds checks,
    warnings, shapes and bounds.  Results are torch tensors in the user's units.

    Attributes
    ----------
    posterior : Posterior
    n_cal : int or None
        Number of calibration points ``C``; with weights, their effective number, and with groups,
        the number of groups.  None if nothing is estimated from such points; every level in (0, 1)
        is then available.
    counted : str
        What ``n_cal`` counts: ``"points"`` or ``"groups"``.
    bounds : Bounds or None
        Bounds that the results of all ``predict_`` methods respect.
    """

    posterior: Posterior
    n_cal: int | None
    counted: str = "points"
    bounds: Bounds | None = None
    #: Weights of the calibration points, and the function of the inputs that gives them, if any.
    weights: Tensor | None = None
    ratio: Ratio | None = None
    # Attributes that any predictor may have in a file, besides those of its class.
    __stored__: ClassVar[dict[str, Any]] = {"bounds": Maybe(Bounds)}
    #: Predictor for points whose last feature is the number of a known group, if there are groups;
    #: see :mod:`sharpgp.calibration.predictors.known_groups`.
    by_group: "Calibrated | None" = None

    @abstractmethod
    def location(self, X: Rows) -> Tensor:
        """Centre [T] of the predictions."""

    @abstractmethod
    def quantiles(self, X: Rows, delta: Tensor) -> Tensor:
        """Quantiles [K, T] at increasing levels ``delta`` [K], from tails where necessary.

        Differentiable in ``X``; unlike :meth:`predict_quantiles`, without checks and warnings.
        """

    @abstractmethod
    def interval_ends(
        self, X: Rows, coverages: list[float], symmetric: bool | None, weights: Tensor | None
    ) -> Tensor:
        """Interval ends [2, K, T] at increasing coverages, nested."""

    @abstractmethod
    def distribution(self, X: Rows) -> PredictiveDistribution:
        """The distribution at ``X`` [T, d], tabulated at a fixed grid of levels."""

    @property
    def can_be_rescored(self) -> bool:
        """Whether new points can join its scores, see :meth:`rescored`."""
        return False

    def band_supported(self, coverage: float) -> bool:
        """Whether calibration points support the symmetric band at this coverage."""
        return self.n_cal is None or whole_rank(coverage, self.n_cal, up=True) <= self.n_cal

    def with_bounds(self, bounds: Bounds | None) -> Self:
        """The same predictor for a target within bounds; None for no bounds."""
        return self.bounded(bounds)

    def bounded(self, bounds: Bounds | None) -> Self:
        """The same with other bounds; the choice of intervals stays."""
        if bounds == self.bounds:
            return self
        other = copy.copy(self)
        other.bounds = bounds
        return other

    def clip(self, values: Tensor) -> Tensor:
        """Values clipped to the bounds, if there are any."""
        return values if self.bounds is None else self.bounds.clip(values)

    def _threads(self) -> AbstractContextManager[None]:
        """One thread per operation, and several of them for independent work."""
        return threads_for(n_dense(self.gp))

    def __repr__(self) -> str:
        points = "" if self.n_cal is None else f"{self.n_cal:,} calibration {self.counted}, "
        bounds = "" if self.bounds is None else f", within {self.bounds!r}"
        return f"<{type(self).__name__}: {points}{self._based_on!r}{bounds}>"

    @property
    def _based_on(self) -> Any:
        return self.posterior

    @property
    def gp(self) -> Posterior | None:
        """The GP that it is based on; None without one."""
        return self.posterior

    @property
    def n_features(self) -> int:
        """Number of features ``d``."""
        return self.posterior.n_features

    @property
    def n_train(self) -> int:
        """Number of training points."""
        n: int = self.posterior.n_train
        return n

    @property
    def device(self) -> torch.device:
        """Where tensors live."""
        return self.posterior.device

    def predict_mean(self, X: ArrayLike | Rows) -> Tensor:
        """Predictive mean [T]."""
        with self._threads():
            return self.clip(self.location(self.rows(X)))

    def predict_quantiles(self, X: ArrayLike | Rows, levels: ArrayLike) -> Tensor:
        """Quantiles, shape (T,) for a single level and (T, k) for several, never crossing."""
        return self._quantiles_at(self._near_features(X), levels)

    def _quantiles_at(self, X: Rows, levels: Any) -> Tensor:
        values, single = as_levels(levels)
        delta = torch.tensor(values, dtype=torch.float64, device=X.device)
        ordered, position = torch.unique(delta, return_inverse=True)
        if self.n_cal is not None:
            warn_if_unsupported(ordered, n_cal=self.n_cal, counted=self.counted)
        with self._threads():
            table = self.clip(in_blocks(lambda rows: self.quantiles(rows, ordered), X))[position]
        return table[0] if single else table.mT

    def predict_interval(
        self,
        X: ArrayLike | Rows,
        coverage: ArrayLike = 0.95,
        *,
        symmetric: bool | None = None,
        sample_weight: ArrayLike | None = None,
    ) -> Tensor:
        """Interval ends, shape (T, 2) for a single coverage and (T, 2, k) for several.

        ``symmetric=False`` takes two quantiles, ``True`` the band ``mu -+ radius`` from absolute
        z-scores.  ``None`` takes what was chosen at fit, by a rule that does not use the scores
        that fix ``beta`` and so preserves the coverage: see
        :func:`sharpgp.calibration.intervals.prefers_band`.  Several coverages give nested
        intervals.  ``sample_weight`` is for predictors with weighted scores, see :meth:`weighted`.
        """
        return self._interval_at(self._near_features(X), coverage, symmetric, sample_weight)

    def _interval_at(
        self, X: Rows, coverage: Any, symmetric: bool | None = None, sample_weight: Any = None
    ) -> Tensor:
        values, single = as_coverage(coverage)
        weights = self.test_weights(X, sample_weight)
        ordered = sorted(set(values))
        for value in ordered:
            self._warn_of_coverage(value, symmetric, weights, len(X))
        with self._threads():
            ends = in_blocks(
                lambda rows, w: self.interval_ends(rows, ordered, symmetric, w), X, weights
            )
        ends = self.clip(ends).permute(2, 0, 1)[..., [ordered.index(value) for value in values]]
        return ends[..., 0] if single else ends

    def predict_std(self, X: ArrayLike | Rows) -> Tensor:
        """Standard deviation [T] of the predictive distribution, without storing all of it."""
        rows = self._near_features(X)
        with self._threads():
            return in_blocks(lambda block: self._distribution_at(block).std, rows)

    def predict_dist(self, X: ArrayLike | Rows) -> PredictiveDistribution:
        """Full predictive distribution at ``X``, tabulated at a fixed grid of levels.

        Its intervals are centred.  At the outermost ranks and beyond it agrees with
        :meth:`predict_quantiles`; :meth:`predict_interval` moves ends outward to whole ranks, to
        keep its guarantee, and so is wider by up to a rank on either side.
        """
        return self._distribution_at(self._near_features(X))

    def _distribution_at(self, X: Rows) -> PredictiveDistribution:
        with self._threads():
            found = self.distribution(X)
        return found if self.bounds is None else BoundedDistribution(found, self.bounds)

    def calibration_report(
        self, X: ArrayLike | Rows, y: ArrayLike, coverage: float = 0.95
    ) -> CalibrationReport:
        """Every metric on test data, by name, with the ECE floor; prints as a table."""
        rows = self._near_features(X)
        y = as_target(y, n_rows=len(rows))
        with warnings.catch_warnings():
            # Levels that too few calibration points support raise the ECE floor.
            warnings.simplefilter("ignore", CalibrationWarning)
            quantiles = self._quantiles_at(rows, ECE_LEVELS[1:-1])
            free = quantiles
            if self.bounds is not None:
                free = self.with_bounds(None)._quantiles_at(rows, ECE_LEVELS[1:-1])
            interval = self._interval_at(rows, coverage)
        return calibration_report(
            y.cpu().numpy(),
            mean=self.clip(self.location(rows)).cpu().numpy(),
            dist=self._distribution_at(rows).numpy(),
            quantiles=quantiles.cpu().numpy(),
            interval=interval.cpu().numpy(),
            n_cal=self.n_cal,
            X=as_numpy(self._columns_of(rows)),
            # Levels whose quantiles lie at a bound cannot be told apart.
            for_ece=free.cpu().numpy(),
            coverage=coverage,
            sample_weight=self._weights_of_report(rows),
        )

    def updated(
        self,
        X: ArrayLike | Rows,
        y: ArrayLike,
        *,
        sample_weight: ArrayLike | None = None,
        groups: ArrayLike | None = None,
    ) -> "Calibrated":
        """A new predictor that has learned from additional labelled points; this one is unchanged.

        Trained hyperparameters are kept.  The points join those that fix ``beta``; where these are
        the training points themselves (``cv``), or there are none (``vanilla``), the GP is
        conditioned on the new points, too.  Several updates are equivalent to one, except that
        ``cv`` scores each batch by the model before that batch.

        Parameters
        ----------
        X, y : arrays of shape (n, d) and (n,)
            Points that the predictor has not seen.
        sample_weight : array of shape (n,), optional
            Their weights, if the earlier points have weights.
        groups : array of shape (n,), optional
            Whole numbers, as in the fit; by default each point is of a new group.
        """
        rows, y, bounds = self._labelled(X, y)
        weights = self._new_weights(rows, sample_weight)
        units = None if groups is None else torch.as_tensor(groups, device=rows.device).long()
        with torch.no_grad(), self._threads():
            return self._updated(rows, y, weights, units).bounded(bounds)

    def rescored(
        self, X: ArrayLike | Rows, y: ArrayLike, *, keep: int | None = None
    ) -> "Calibrated":
        """A new predictor with the same mean and spread, and ``beta`` from additional points, too.

        With ``keep``, from the ``keep`` newest points only: a window that forgets.
        """
        rows, y, bounds = self._labelled(X, y)
        keep = None if keep is None else as_count(keep, "keep", least=1)
        with torch.no_grad(), self._threads():
            return self._rescored(rows, y, keep).bounded(bounds)

    def weighted(self, sample_weight: Weights) -> "Calibrated":
        """The same predictor with weighted scores, for a covariate shift."""
        raise InvalidInputError(
            "sample_weight: expected a method that ranks scores (exact, cv, kuleshov18, marx22), "
            f"found one that gives a {type(self).__name__}; use calibration='exact'"
        )

    def for_groups(self, groups: Tensor) -> "Calibrated":
        """The same predictor for new groups; ``groups`` [C] are those of the calibration points.

        Points of one group carry less information than as many points of different groups; a
        predictor that treats them as independent warns.
        """
        n_groups = len(groups.unique())
        if self.n_cal is not None and n_groups < len(groups):
            warn_of_dependence(n_groups, len(groups))
        return self

    def each_once(self) -> Any:
        """The predictor with a single part and every row once; None for methods without scores."""
        return None

    def compact(self) -> "Calibrated":
        """The same answers without what only updates and reports need; by default all of it."""
        return self

    def at_own_points(self) -> Any:
        """The predictor at its own calibration points, each by fits that have not seen it."""
        raise InvalidInputError(
            "X, y: expected test data, found none; without them, reports need scores of "
            "points that the model has not seen, as with calibration='cv' or 'exact'"
        )

    def labelled_data(self) -> tuple[Rows, Tensor]:
        """All labelled points that this predictor is based on: training, then calibration."""
        return self.posterior.rows, self.posterior.y_train

    def condition_on_observations(self, X: ArrayLike | Rows, y: ArrayLike) -> Self:
        """The same calibration on a GP that has also seen ``X``, ``y``; this one is unchanged.

        Mean and ``sigma`` learn from the new points; hyperparameters and ``beta`` are kept.
        Cheap: one factorisation, at the next prediction.

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
        rows, y, bounds = self._labelled(X, y)
        return self._conditioned(rows, y).bounded(bounds)

    def _conditioned(self, X: Rows, y: Tensor) -> Self:
        """The same calibration on additional data; attributes based on the posterior follow."""
        other = copy.copy(self)
        other.posterior = self.posterior.extended(X, y)
        return other

    def _updated(
        self, X: Rows, y: Tensor, weights: Tensor | None, units: Tensor | None = None
    ) -> "Calibrated":
        """See :meth:`updated`, on checked data; ``weights`` [n] if the earlier points have some."""
        return self._rescored(X, y, None)

    def _rescored(self, X: Rows, y: Tensor, keep: int | None) -> "Calibrated":
        raise InvalidInputError(
            "expected a predictor that can take new calibration points, found "
            f"{type(self).__name__}; choose another calibration, or start over with refit=True"
        )

    @abstractmethod
    def _warn_of_coverage(
        self, coverage: float, symmetric: bool | None, weights: Tensor | None, n_rows: int
    ) -> None:
        """Warn if an end will come from a tail."""

    def test_weights(self, X: Rows, sample_weight: Any) -> Tensor | None:
        """Weights [T] of points to predict, in units of the largest calibration weight."""
        return weights_to_predict(X, sample_weight, self.weights, self.ratio)

    def _new_weights(self, X: Rows, sample_weight: Any) -> Tensor | None:
        """Weights [n] of points to learn from; None for equal ones."""
        return weights_to_learn(X, sample_weight, self.weights, self.ratio)

    def rows(self, X: ArrayLike | Rows) -> Rows:
        """Checked rows: as they were given, or without roles from features."""
        return Rows.checked(X, n_features=self.n_features, device=self.device)

    def _near_features(self, X: Any) -> Rows:
        rows = self.rows(X)
        if self.gp is not None:
            warn_if_far(self.gp, rows.X)
        return rows

    def _weights_of_report(self, rows: Rows) -> np.ndarray | None:
        """How much each row counts in a report; None if all count alike."""
        return None

    def _columns_of(self, X: Rows) -> Tensor:
        """Features of the rows that :meth:`rows` stands for."""
        return X.X

    def _labelled(self, X: Any, y: Any) -> tuple[Rows, Tensor, Bounds | None]:
        """Checked rows, and bounds that also hold their targets."""
        rows = self.rows(X)
        y = as_target(y, n_rows=len(rows), device=rows.device)
        bounds = None if self.bounds is None else self.bounds.revise(as_numpy(y))
        return rows, y, bounds


class ModelPredictor(Calibrated):
    """A predictor based on scores and values of a model, with or without a GP."""

    model: Model

    @property
    def posterior(self) -> Posterior:  # type: ignore[override]
        """The GP that the model is based on; an error without one."""
        return needed_gp(self.model)

    @property
    def _based_on(self) -> Any:
        return type(self.model).__name__ if self.gp is None else self.gp

    gp = forwarded("model.gp")
    n_features = forwarded("model.n_features")
    device = forwarded("model.device")

    @property
    def n_train(self) -> int:
        return len(self.model.y_train) if self.gp is None else super().n_train

    def law(self, X: Rows) -> Law:
        """The law of the model at rows [T], kept for further questions about them."""
        return law_of(self.model, X)

    def location(self, X: Rows) -> Tensor:
        return location_of(self.model, X)


def n_dense(gp: Posterior | None) -> int:
    """Points whose covariance is one dense matrix; 0 without a GP."""
    return 0 if gp is None else gp.n_dense


def in_blocks(ask: Callable[..., Tensor], rows: Rows, *more: Tensor | None) -> Tensor:
    """``ask`` in blocks of rows; answers have the rows last, and None stays None."""
    if len(rows) <= ROWS_PER_BLOCK:
        return ask(rows, *more)
    count = -(-len(rows) // ROWS_PER_BLOCK)
    parts = [[None] * count if part is None else part.split(ROWS_PER_BLOCK) for part in more]
    blocks = zip(rows.split(ROWS_PER_BLOCK), *parts, strict=True)
    return torch.cat([ask(*block) for block in blocks], dim=-1)


def calibrated_of(model: FittedModel) -> Calibrated:
    """The torch-level predictor of a fitted estimator; predictors are returned unchanged.

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
