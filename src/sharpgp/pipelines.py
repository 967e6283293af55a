"""Calibrated models inside scikit-learn's pipelines, searches and transformed targets."""

import os
import warnings
from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from numpy.typing import ArrayLike
from sklearn.base import BaseEstimator

from sharpgp import persistence
from sharpgp._validation import as_coverage, as_levels, as_numpy, as_target
from sharpgp.calibration.predictors.base import FittedModel
from sharpgp.data.inputs import encode_rows
from sharpgp.distribution import PredictiveDistribution
from sharpgp.exceptions import CalibrationWarning, InvalidInputError
from sharpgp.metrics import ECE_LEVELS, CalibrationReport, calibration_report


def through(model: FittedModel | BaseEstimator) -> "Through":
    """A fitted pipeline, search or transformed target with all methods of the model in it.

    A scikit-learn ``Pipeline`` only has ``predict``.  This adds intervals, quantiles,
    distributions, reports and files.

    Parameters
    ----------
    model : Pipeline, GridSearchCV, TransformedTargetRegressor, or any nesting of these
        Fitted, with a ``SharpGPRegressor`` or the result of a recalibrator's ``fit`` at its core.

    Examples
    --------
    >>> from sklearn.compose import TransformedTargetRegressor
    >>> from sklearn.pipeline import make_pipeline
    >>> from sklearn.preprocessing import StandardScaler
    >>> from sharpgp import SharpGPRegressor
    >>> rng = np.random.default_rng(0)
    >>> X = rng.uniform(0, 6, (80, 1))
    >>> y = np.exp(np.sin(X[:, 0]) + 0.1 * rng.normal(size=80))
    >>> inside = make_pipeline(StandardScaler(), SharpGPRegressor(base="rbf", calibration="loo"))
    >>> model = TransformedTargetRegressor(inside, func=np.log, inverse_func=np.exp).fit(X, y)
    >>> ends = through(model).predict_interval(X, coverage=0.9)
    >>> ends.shape, bool((ends > 0).all())
    ((80, 2), True)
    """
    return model if isinstance(model, Through) else Through(model)


class Through:
    r"""The calibrated model inside a fitted scikit-learn object, in the outer units.

    ``X`` passes the steps before the model.  If an increasing function transformed the target,
    quantiles are transformed back: with ``t = g(y)``, ``Q_y(p) = g^{-1}(Q_t(p))``, and coverage
    does not change.  A decreasing function swaps the ends.  Means do not pass through ``g``:
    :meth:`predict` is the outer object's own ``predict``, and ``predict_dist(X).mean`` is the mean.

    Attributes
    ----------
    model : SharpGPRegressor or Calibrated
        The model at the core.
    steps : list
        Fitted transformers of ``X``, outermost first.
    targets : list
        Fitted transformers of ``y``, outermost first.
    """

    def __init__(self, outside: FittedModel | BaseEstimator) -> None:
        self.outside: Any = outside
        self.steps: list[Any] = []
        self.targets: list[Any] = []
        model: Any = outside
        while True:
            if hasattr(model, "best_estimator_"):
                model = model.best_estimator_
            elif hasattr(model, "steps"):
                if len(model.steps) > 1:
                    self.steps.append(model[:-1])
                model = model[-1]
            elif hasattr(model, "regressor_") and hasattr(model, "transformer_"):
                self.targets.append(model.transformer_)
                model = model.regressor_
            else:
                break
        if not hasattr(model, "predict_interval"):
            raise InvalidInputError(
                "model: expected a fitted SharpGPRegressor or a pipeline that ends in one, "
                f"found {type(model).__name__}"
            )
        self.model: Any = model

    def features(self, X: ArrayLike) -> ArrayLike:
        """``X`` as the model at the core sees it."""
        inside: Any = X
        for step in self.steps:
            inside = step.transform(inside)
        return inside

    def predict(self, X: ArrayLike) -> np.ndarray:
        """The outer object's own ``predict``, shape (n,)."""
        predict = getattr(self.outside, "predict", None) or self.outside.predict_mean
        return as_numpy(predict(X))

    def predict_interval(
        self, X: ArrayLike, coverage: ArrayLike = 0.95, *, symmetric: bool | None = None
    ) -> np.ndarray:
        """Interval ends, (n, 2), or (n, 2, k) for ``k`` coverages."""
        as_coverage(coverage)
        ends = as_numpy(
            self.model.predict_interval(self.features(X), coverage, symmetric=symmetric)
        )
        return np.sort(self._to_outer(ends), axis=1)

    def predict_quantiles(self, X: ArrayLike, levels: ArrayLike) -> np.ndarray:
        """Quantiles, (n,) for a single level and (n, k) for several; they never cross."""
        values, single = as_levels(levels)
        asked = np.asarray(values, dtype=np.float64)
        if self.targets and not self._increasing(X):
            asked = 1 - asked
        table = self._to_outer(as_numpy(self.model.predict_quantiles(self.features(X), asked)))
        return table[:, 0] if single else table

    def predict_dist(self, X: ArrayLike) -> PredictiveDistribution:
        """Full predictive distributions, answering in NumPy arrays.

        Tails continue the table of transformed quantiles.
        """
        inside = self.model.predict_dist(self.features(X)).numpy()
        if not self.targets:
            return inside
        levels, table = inside.levels, self._to_outer(inside.quantiles)
        if table[0, 0] > table[0, -1]:
            levels, table = 1 - levels[::-1], table[:, ::-1]
        return PredictiveDistribution(levels.copy(), table.T.copy(), numpy=True)

    def calibration_report(self, X: ArrayLike, y: ArrayLike) -> CalibrationReport:
        """Every metric on test data, by name, in the outer units."""
        if not self.targets:
            return self.model.calibration_report(self.features(X), y)
        inside = self.features(X)
        rows = encode_rows(self.model, inside)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", CalibrationWarning)
            return calibration_report(
                as_numpy(as_target(y)),
                mean=self.predict(X),
                dist=self.predict_dist(X),
                quantiles=self.predict_quantiles(X, ECE_LEVELS[1:-1]),
                interval=self.predict_interval(X, 0.95),
                n_cal=getattr(self.model, "calibrated_", self.model).n_cal,
                X=as_numpy(inside) if rows is None else rows.features,
            )

    def save(self, path: str | os.PathLike[str]) -> None:
        """Save all of it in one file, without pickle.

        The model is saved as always, and scikit-learn's transformers by skops, which writes their
        state and no code (extra ``skops``).  :func:`load` reads it again.
        """
        persistence.save(self.model, path, steps=self.steps, targets=self.targets)

    def _increasing(self, X: Any) -> bool:
        """Whether the inverse transform of the target increases on the predictions."""
        inside: Any = self.features(X)
        ends = as_numpy(self.model.predict_quantiles(inside[:1], [0.25, 0.75]))
        low, high = self._to_outer(ends)[0]
        return bool(low <= high)

    def _to_outer(self, values: np.ndarray) -> np.ndarray:
        """Values of the innermost target in the outer units."""
        for target in reversed(self.targets):
            flat = target.inverse_transform(values.reshape(-1, 1))
            values = np.asarray(flat, dtype=np.float64).reshape(values.shape)
        if not np.isfinite(values).all():
            raise InvalidInputError(
                "target: expected a transform whose inverse is finite at every quantile, found "
                "infinite or missing values; choose a transform that is defined everywhere"
            )
        return values


def load(
    path: str | os.PathLike[str],
    *,
    trusted: Sequence[str] = (),
    device: str | torch.device = "auto",
) -> "Loaded":
    """Load what :meth:`Through.save` saved; its answers are the same, bit for bit.

    Parameters
    ----------
    path : str or path
    trusted : sequence of str
        Full names of other types of transformers that may be loaded; skops knows those of
        scikit-learn and NumPy.  A file that needs others is refused, and they are named.
    device : {"auto", "cpu", "cuda"} or torch device

    Returns
    -------
    Loaded
        With all methods of :class:`Through`.
    """
    content = persistence.read(path, device=device, trusted=trusted)
    return Loaded(content["model"], content.get("steps", []), content.get("targets", []))


class Loaded(Through):
    """Result of :func:`load`: the model and its transformers, without the pipeline around them."""

    def __init__(
        self, model: FittedModel, steps: list[BaseEstimator], targets: list[BaseEstimator]
    ) -> None:
        self.outside = self
        self.model, self.steps, self.targets = model, steps, targets

    def predict(self, X: ArrayLike) -> np.ndarray:
        """The prediction of the original pipeline, shape (n,)."""
        predict = getattr(self.model, "predict_mean", None) or self.model.predict
        return self._to_outer(as_numpy(predict(self.features(X))))
