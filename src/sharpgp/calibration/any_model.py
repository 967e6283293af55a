"""Calibration of models that give quantiles without a GP: NGBoost, quantile forests, a function."""

from collections.abc import Callable
from functools import cached_property
from typing import Any, Literal

import numpy as np
import torch
from numpy.typing import ArrayLike, NDArray
from torch import Tensor

from sharpgp._validation import as_numpy, as_target, as_weights
from sharpgp.calibration.about_points import about_points
from sharpgp.calibration.predictors.covariate_shift import Weights
from sharpgp.calibration.predictors.scored import ScoredPredictor
from sharpgp.calibration.ranks import Ranks
from sharpgp.data.target_bounds import bounds_for
from sharpgp.distribution import PredictiveDistribution
from sharpgp.exceptions import InvalidInputError
from sharpgp.gp.posterior import WithoutDataError
from sharpgp.models.foreign import LEVELS, QuantileSource, gives_points, quantile_source
from sharpgp.models.laws import Table
from sharpgp.models.model import Model
from sharpgp.rows import Inputs, Rows

Floats = NDArray[np.float64]

# Levels at which distributions are tabulated.
_DELTA = torch.tensor(LEVELS, dtype=torch.float64)
# Candidate weights of the ranks; number of folds that compare them; fewest points to do so.
_RANK_WEIGHTS = (0.0, 0.2, 0.4, 0.6, 0.8, 1.0)
_PARTS, _MIN_POINTS_JUDGED = 5, 10


class Quantiles(Model):
    """Laws that interpolate quantiles of a foreign model; the quantiles [T, L] are its inputs.

    Parameters
    ----------
    source : QuantileSource
    typical : float
        See :meth:`sharpgp.models.laws.Table.of_quantiles`.
    """

    gp = None
    device = torch.device("cpu")

    def __init__(self, source: QuantileSource, typical: float) -> None:
        self.source, self.typical = source, typical
        self._levels = torch.from_numpy(source.levels)

    @classmethod
    def from_tables(cls, source: QuantileSource, tables: Tensor) -> "Quantiles":
        """From tables of quantiles, whose mean slope is the typical one."""
        z = torch.special.ndtri(torch.from_numpy(source.levels))
        slope = float((tables[:, -1] - tables[:, 0]).mean() / (z[-1] - z[0]))
        return cls(source, slope or float(tables.abs().max()) or 1.0)

    @property
    def n_features(self) -> int:
        """Number of levels ``L``."""
        return len(self._levels)

    @property
    def rows(self) -> Rows:
        """Raise: there is no training data."""
        raise WithoutDataError(
            f"model: expected one that knows its training data, found {self.source.name}"
        )

    @property
    def y_train(self) -> Tensor:
        """Raise: there is no training data."""
        return self.rows.X[:, 0]

    def law(self, rows: Inputs) -> Table:
        return Table.of_quantiles(self._levels, Rows.of(rows).X, self.typical)

    def extended(self, rows: Inputs, y: Tensor) -> "Quantiles":
        """Raise: a source of quantiles cannot be conditioned."""
        raise InvalidInputError(
            f"model: expected one that can be conditioned on data, found {self.source.name}"
        )

    updated = extended


class ForeignPredictor(ScoredPredictor):
    r"""``Q(delta, x) = value(x, beta(delta))``: the law of a foreign model, ``beta`` from ranks.

    Values run through the model's own quantiles, ``value(x, Phi^-1(p)) = q_p(x)``.  A new point's
    score is exchangeable with those of the calibration points, whatever the law, so that intervals
    and quantiles have the guarantees of :class:`sharpgp.Exact`.  The "symmetric" band is symmetric
    in scores.

    The distribution of :meth:`predict_dist` is tuned for CRPS and need not keep ranks.  Its
    ``beta`` is ``(1 - w) Phi^-1(delta) + w beta(delta)``, see :attr:`trust`.  If scores are
    distributed differently at different points, their common ranks repair coverage but can cost
    CRPS; and few ranks add noise to what a model already knows well.
    """

    model: Quantiles

    @cached_property
    def trust(self) -> float:
        """Weight ``w`` of the ranks in :meth:`predict_dist`, from 0 (the model's own) to 1.

        The one with the lowest cross-validated CRPS on the calibration points (ranks from the other
        four fifths), plus half a standard error of its difference from the model's own.  It costs
        next to nothing if the model is calibrated, and helps if not (``sharpgp bench evidence
        foreign``).
        """
        C = len(self.scores)
        if C < _MIN_POINTS_JUDGED:
            return 0.0
        weights = self.scores.new_ones(C) if self.weights is None else self.weights
        part = torch.arange(C) % _PARTS
        losses = self.scores.new_zeros(len(_RANK_WEIGHTS), C)
        for k in range(_PARTS):
            test, rest = part == k, (part != k) & (weights > 0)
            if int(rest.sum()) < _MIN_POINTS_JUDGED // 2:
                return 0.0
            beta = smooth_beta(Ranks(self.scores[rest], weights[rest]), _DELTA)
            for w, loss in zip(_RANK_WEIGHTS, losses, strict=True):
                loss[test] = self._dist(self.rows_cal[test], beta, w).crps(self.y_cal[test])
        share = weights / weights.sum()
        worse = losses - losses[0]
        mean = worse @ share
        error = ((worse - mean.unsqueeze(1)).square() @ share.square()).sqrt()
        return _RANK_WEIGHTS[int((mean + 0.5 * error).argmin())]

    def location(self, X: Rows) -> Tensor:
        """The mean of the distribution."""
        mean: Tensor = self.distribution(X).mean
        return mean

    def distribution(self, X: Rows) -> PredictiveDistribution:
        beta = smooth_beta(self.ranks, _DELTA)
        return self._dist(X, beta, self.trust, self._caution)

    def _dist(
        self, X: Rows, beta: Tensor, trust: float, caution: Callable[..., None] | None = None
    ) -> PredictiveDistribution:
        beta = torch.lerp(torch.special.ndtri(_DELTA), beta, trust)
        return PredictiveDistribution(
            _DELTA, self.model.value(X, beta.unsqueeze(-1)), caution=caution
        )

    def weighted(self, sample_weight: Weights) -> ScoredPredictor:
        """An array (C,) only."""
        if callable(sample_weight):
            raise InvalidInputError(
                "sample_weight: expected an array with a weight for every calibration point, "
                "found a function"
            )
        return super().weighted(sample_weight)

    def rows(self, X: Any) -> Rows:
        return Rows(self.model.source.table(X))

    _near_features = rows

    # What the user's model takes is answered in NumPy arrays, and torch in torch.

    def predict(self, X: ArrayLike) -> Tensor | Floats:
        """Predictive means (n,), as every regressor of scikit-learn has them."""
        return self.predict_mean(X)

    def predict_mean(self, X: ArrayLike | Rows) -> Tensor | Floats:  # type: ignore[override]
        return _of_kind(X, super().predict_mean(X))

    def predict_std(self, X: ArrayLike | Rows) -> Tensor | Floats:  # type: ignore[override]
        return _of_kind(X, super().predict_std(X))

    def predict_quantiles(  # type: ignore[override]
        self, X: ArrayLike | Rows, levels: ArrayLike
    ) -> Tensor | Floats:
        return _of_kind(X, super().predict_quantiles(X, levels))

    def predict_interval(  # type: ignore[override]
        self,
        X: ArrayLike | Rows,
        coverage: ArrayLike = 0.95,
        *,
        symmetric: bool | None = None,
        sample_weight: ArrayLike | None = None,
    ) -> Tensor | Floats:
        ends = super().predict_interval(
            X, coverage, symmetric=symmetric, sample_weight=sample_weight
        )
        return _of_kind(X, ends)

    def predict_dist(self, X: ArrayLike | Rows) -> PredictiveDistribution:
        found = super().predict_dist(X)
        return found if isinstance(X, Tensor | Rows) else found.numpy()


def _of_kind(X: object, answer: Tensor) -> Tensor | Floats:
    return answer if isinstance(X, Tensor | Rows) else as_numpy(answer)


def smooth_beta(ranks: Ranks, delta: Tensor) -> Tensor:
    """``beta`` [K] without gaps between single scores: linear between levels two ranks apart.

    Examples
    --------
    >>> ranks = Ranks(torch.arange(1.0, 20.0, dtype=torch.float64))
    >>> smooth_beta(ranks, torch.tensor([0.3, 0.5], dtype=torch.float64)).round(decimals=6).tolist()
    [6.0, 10.0]
    """
    nodes = ranks.nodes()
    inside = np.interp(delta.numpy(), nodes.numpy(), ranks.table(nodes).numpy())
    known = (delta >= nodes[0]) & (delta <= nodes[-1])
    return torch.where(known, torch.from_numpy(inside), ranks.beta(delta))


def calibrate(
    model: object,
    X_cal: ArrayLike,
    y_cal: ArrayLike,
    *,
    sample_weight: ArrayLike | None = None,
    y_bounds: Literal["auto"] | tuple[float | None, float | None] | None = "auto",
) -> ForeignPredictor:
    """Calibrate a fitted model of any kind, with a finite-sample guarantee.

    The model is only evaluated, never changed; its shape is kept, including skew and several peaks.
    For exchangeable data, intervals have the coverage they claim, as those of
    :class:`sharpgp.Exact` do.  The distribution is the model's own unless calibration improves its
    CRPS; see :class:`sharpgp.calibration.any_model.ForeignPredictor`.

    About a regressor that predicts points only, intervals have a constant width.  With 200
    calibration rows of numbers or more, a random half of these teaches where errors are large, and
    the other half calibrates.

    Parameters
    ----------
    model : fitted model, regressors by level, or function
        A regressor, or one that gives quantiles or a distribution, in any of the ways that
        :func:`sharpgp.models.foreign.quantile_source` knows.
    X_cal : array or frame with C rows
        Whatever the model takes.
    y_cal : array (C,)
        Targets of points that the model was not trained on.
    sample_weight : array (C,), optional
        Weights, see :class:`sharpgp.calibration.predictors.scored.ScoredPredictor`.
    y_bounds : "auto", (low, high) or None
        Bounds on all predictions, see :mod:`sharpgp.data.target_bounds`; ``"auto"`` where targets
        pile up.

    Returns
    -------
    Calibrated
        With ``predict``, ``predict_interval``, ``predict_quantiles``, ``predict_dist``, ...; they
        take what the model takes, and return NumPy arrays; for torch tensors, tensors.

    Examples
    --------
    >>> from sklearn.linear_model import BayesianRidge
    >>> X = np.linspace(0, 6, 300)[:, None]
    >>> y = X[:, 0] + X[:, 0] * np.sin(99 * X[:, 0])
    >>> model = BayesianRidge().fit(X[::3], y[::3])
    >>> calibrated = calibrate(model, X[1::3], y[1::3])
    >>> calibrated.predict_interval(X[2::3], coverage=0.9).shape
    (100, 2)
    """
    rows: Tensor | None = None
    if gives_points(model):
        source, rows = about_points(model, X_cal, y_cal)
    else:
        source = quantile_source(model)
    tables = source.table(X_cal)
    y = as_target(y_cal, n_rows=len(tables))
    if len(y) < 2:
        raise InvalidInputError(f"y_cal: expected two or more calibration points, found {len(y)}")
    if rows is not None:
        if sample_weight is not None:
            sample_weight = as_weights(sample_weight, n_rows=len(y))[rows]
        tables, y = tables[rows], y[rows]
    found = Quantiles.from_tables(source, tables)
    calibrated = ForeignPredictor(found, Rows(tables), y, found.score(tables, y))
    bounds = bounds_for(y_bounds, as_numpy(y))
    if sample_weight is None:
        return calibrated.with_bounds(bounds)
    weighted = calibrated.weighted(sample_weight)
    assert isinstance(weighted, ForeignPredictor)
    return weighted.with_bounds(bounds)
