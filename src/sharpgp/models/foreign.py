"""Models of other packages, asked for quantiles by their documented conventions.

None of these packages is imported: a model is recognised by its methods.
"""

import inspect
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from scipy.special import ndtri
from sklearn.base import clone
from torch import Tensor

from sharpgp.exceptions import InvalidInputError
from sharpgp.models.laws import Law, Table
from sharpgp.models.regressor import as_table
from sharpgp.models.without_gp import RefittedModel
from sharpgp.rows import Inputs, Rows

Floats = NDArray[np.float64]
#: ``(X, levels) -> (n, k)``.
Ask = Callable[[Any, Floats], Any]

_INNER = tuple(round(0.025 * j, 3) for j in range(1, 40))
_OUTER = (0.001, 0.0025, 0.005, 0.01)
#: Levels asked of a model that accepts any.
LEVELS = (*_OUTER, *_INNER, *(round(1.0 - p, 4) for p in reversed(_OUTER)))
_ACCEPTED = (
    "a fitted regressor, a function (X, levels) -> (n, k), fitted quantile regressors by level, "
    "or a fitted model with predict_quantiles, pred_dist, predict(quantiles=...), "
    "predict(output_type='quantiles') or predict(return_std=True)"
)


@dataclass(frozen=True)
class QuantileSource:
    """A fitted model as a table of quantiles.

    Parameters
    ----------
    name : str
        Kind of the model, for messages.
    levels : array [L]
        Strictly increasing in (0, 1).
    ask : callable
        ``(X, levels)`` to quantiles (n, L), or one array (n,) per level.

    Examples
    --------
    >>> model = quantile_source(lambda X, levels: X[:, :1] + ndtri(levels))
    >>> len(model.levels), model.table(np.zeros((3, 2))).shape
    (47, torch.Size([3, 47]))
    """

    name: str
    levels: Floats
    ask: Ask

    def table(self, X: Any) -> Tensor:
        """Quantiles [n, L] at the rows of ``X``, sorted where they crossed.

        ``X`` is anything that the model takes, frames and missing values included; tensors become
        arrays.
        """
        X = X.detach().cpu().numpy() if isinstance(X, Tensor) else X
        found = self.ask(X, self.levels)
        try:
            array = np.asarray(found, dtype=np.float64)
        except (TypeError, ValueError):
            array = np.full((), np.nan)
        rows = len(X) if hasattr(X, "__len__") else array.shape[0] if array.ndim else 0
        if array.shape != (rows, len(self.levels)):
            raise InvalidInputError(
                f"model: expected quantiles of shape ({rows}, {len(self.levels)}), points by "
                f"levels, from {self.name}, found shape {array.shape}"
            )
        if not np.isfinite(array).all():
            raise InvalidInputError(
                f"model: expected finite quantiles from {self.name}, found "
                f"{int((~np.isfinite(array)).sum())} that are not; check X, or give levels without "
                "0 and 1"
            )
        return torch.from_numpy(np.sort(array, axis=1))


def quantile_source(model: Any, levels: Sequence[float] = LEVELS) -> QuantileSource:
    """Find out how to ask a fitted model for quantiles.

    By its methods, in this order:

    - a mapping from levels to fitted regressors, or a list of fitted ones whose level is their
      ``quantile`` or ``alpha`` (scikit-learn's quantile losses); ``levels`` are theirs;
    - one regressor for several levels: ``quantile_alpha=[...]`` (XGBoost's
      ``reg:quantileerror``) or ``loss_function="MultiQuantile:alpha=..."`` (CatBoost);
    - ``pred_dist(X).ppf(level)`` (NGBoost);
    - ``predict_quantiles(X, alpha=levels)`` that gives a frame (skpro), or
      ``predict_quantiles(X, levels)``;
    - ``predict(X, output_type="quantiles", quantiles=levels)``, a list of arrays (TabPFN), or
      ``alphas=levels``, a table (TabICL);
    - ``predict(X, quantiles=levels)`` (quantile-forest);
    - ``predict(X, return_std=True)``: a Gaussian (scikit-learn's Bayesian regressors);
    - it can be called: a function ``(X, levels) -> (n, k)``.

    Examples
    --------
    >>> quantile_source({0.1: "ten"})
    Traceback (most recent call last):
    sharpgp.exceptions.InvalidInputError: model: expected regressors at two or more levels ...
    """
    name = type(model).__name__
    if isinstance(model, Mapping):
        return _by_level(model)
    if isinstance(model, list | tuple):
        return _by_level({_level_of(one): one for one in model})
    if not isinstance(model, type) and (own := _own_levels(model)) is not None:
        order = np.argsort(own)
        return QuantileSource(name, own[order], lambda X, _: np.asarray(model.predict(X))[:, order])
    ask = None if isinstance(model, type) else _convention(model)
    if ask is None and not isinstance(model, type):
        if _takes(model, "return_std"):
            ask = _gaussian(model)
        elif callable(model) and not hasattr(model, "predict"):
            name, ask = getattr(model, "__name__", name), model
    if ask is None:
        found = f"the class {model.__name__}" if isinstance(model, type) else name
        raise InvalidInputError(f"model: expected {_ACCEPTED}, found {found}")
    return QuantileSource(name, np.array(levels, dtype=np.float64), ask)


def gives_points(model: Any) -> bool:
    """Whether a fitted model predicts a number for each row, and nothing of its law.

    Examples
    --------
    >>> from sklearn.linear_model import BayesianRidge, Ridge
    >>> gives_points(Ridge()), gives_points(BayesianRidge())
    (True, False)
    """
    if isinstance(model, type) or not callable(getattr(model, "predict", None)):
        return False
    more = _own_levels(model) is not None or _convention(model) is not None
    return not more and not _takes(model, "return_std")


def gives_quantiles(estimator: Any) -> bool:
    """Whether an estimator can be fitted, and has a method of its own for quantiles.

    Examples
    --------
    >>> from sklearn.linear_model import BayesianRidge
    >>> gives_quantiles(BayesianRidge())  # a mean and a deviation are not quantiles
    False
    """
    if isinstance(estimator, str | type) or not hasattr(estimator, "fit"):
        return False
    return _convention(estimator) is not None


def _convention(model: Any) -> Ask | None:
    """How to ask a model that has a method for quantiles; None if it has none."""
    if callable(getattr(model, "pred_dist", None)):
        return lambda X, levels: _columns(map(_ppf(model.pred_dist(X)), levels.tolist()))
    if callable(method := getattr(model, "predict_quantiles", None)):
        if "alpha" in _parameters(method):
            return lambda X, levels: method(X, alpha=levels.tolist())
        return lambda X, levels: method(X, levels)
    if _takes(model, "output_type") and _takes(model, "quantiles"):
        return lambda X, levels: _columns(
            model.predict(X, output_type="quantiles", quantiles=levels.tolist())
        )
    if _takes(model, "output_type") and _takes(model, "alphas"):
        return lambda X, levels: model.predict(X, output_type="quantiles", alphas=levels.tolist())
    if _takes(model, "quantiles"):
        return lambda X, levels: model.predict(X, quantiles=levels.tolist())
    return None


def _own_levels(model: Any) -> Floats | None:
    """Levels [k] of a regressor that predicts several quantiles at once; None for any other."""
    settings = model.get_params() if callable(getattr(model, "get_params", None)) else {}
    levels = settings.get("quantile_alpha")
    loss = re.fullmatch(r"MultiQuantile:alpha=([\d.,\s]+)", str(settings.get("loss_function")))
    if loss:
        levels = [float(level) for level in loss[1].split(",")]
    if levels is None or np.ndim(levels) != 1 or len(levels) < 2:
        return None
    return np.asarray(levels, dtype=np.float64)


def _ppf(distribution: Any) -> Callable[[float], Any]:
    """The quantile function of a distribution, as SciPy and NGBoost call it."""
    found: Callable[[float], Any] | None = getattr(distribution, "ppf", None)
    if found is None:
        raise InvalidInputError(
            f"model: expected distributions with a ppf from pred_dist, found "
            f"{type(distribution).__name__}; give a function (X, levels) -> (n, k)"
        )
    return found


def _gaussian(model: Any) -> Ask:
    def ask(X: Any, levels: Floats) -> Floats:
        mean, std = (np.asarray(part, np.float64) for part in model.predict(X, return_std=True))
        return np.asarray(mean.reshape(-1, 1) + std.reshape(-1, 1) * ndtri(levels))

    return ask


def _by_level(models: Mapping[Any, Any]) -> QuantileSource:
    try:
        fitted = dict(sorted((float(level), one) for level, one in models.items()))
    except (TypeError, ValueError):
        fitted = {}
    levels = np.array(list(fitted))
    usable = all(callable(getattr(one, "predict", None)) for one in fitted.values())
    if len(fitted) < 2 or not usable or not ((levels > 0) & (levels < 1)).all():
        raise InvalidInputError(
            "model: expected regressors at two or more levels in (0, 1), each with a predict, "
            f"found {len(models)} at {', '.join(map(str, models)) or 'none'}"
        )
    return QuantileSource(
        f"{len(fitted)} regressors",
        levels,
        lambda X, _: _columns(one.predict(X) for one in fitted.values()),
    )


def _level_of(regressor: Any) -> float:
    """The level that a regressor, or the last step of a pipeline, was fitted for."""
    last = _last(regressor)
    loss = getattr(last, "loss", None) or getattr(last, "objective", None)
    # ``alpha`` often means something else, so the loss must say that it is a level.
    names = ["quantile", "alpha"] if loss == "quantile" else [] if loss else ["quantile"]
    levels = [getattr(last, name, None) for name in names]
    level = next((value for value in levels if isinstance(value, float)), None)
    if level is None:
        raise InvalidInputError(
            "model: expected regressors with a quantile loss, whose level is their quantile or "
            f"alpha, found {type(last).__name__}; give a mapping {{level: regressor}}"
        )
    return level


def _columns(columns: Any) -> Any:
    """Arrays (n,), one per level, as a table (n, k); tables stay as they are."""
    if isinstance(columns, np.ndarray) and columns.ndim == 2:
        return columns
    return np.stack([np.asarray(one, np.float64).reshape(-1) for one in columns], axis=1)


def _last(model: Any) -> Any:
    steps = getattr(model, "steps", None)
    return steps[-1][1] if steps else model


def _takes(model: Any, parameter: str) -> bool:
    """Whether ``predict`` has a parameter; a pipeline passes it to its last step."""
    return parameter in _parameters(getattr(_last(model), "predict", None))


def _parameters(method: Any) -> Mapping[str, Any]:
    try:
        return inspect.signature(method).parameters
    except (TypeError, ValueError):
        return {}


class ForeignModel(RefittedModel):
    """The law that runs through the quantiles of an estimator.

    The estimator is cloned and fitted, also without each part.  It cannot be conditioned on further
    data, and ignores them.

    Parameters
    ----------
    estimator : scikit-learn estimator
        With one of the methods of :func:`sharpgp.models.foreign.quantile_source`.
    X : Rows or Tensor [N, d]
    y : Tensor [N]
    names : array of str, optional
        Column names; with them the estimator is given data frames.

    Examples
    --------
    >>> from sklearn.base import BaseEstimator
    >>> class Line(BaseEstimator):
    ...     def fit(self, X, y):
    ...         return self
    ...
    ...     def predict(self, X, quantiles):
    ...         return X[:, :1] + 2.0 * torch.special.ndtri(torch.tensor(quantiles)).numpy()
    >>> X = torch.linspace(0, 6, 60, dtype=torch.float64)[:, None]
    >>> model = ForeignModel(Line(), X, X[:, 0])
    >>> law = model.law(X[-1:])
    >>> round(float(law.location), 6), round(float(law.spread), 6)
    (6.0, 2.0)
    """

    def __init__(self, estimator: Any, X: Inputs, y: Tensor, names: Any = None) -> None:
        super().__init__(X, y)
        self.estimator, self.names = estimator, names
        fitted = clone(estimator).fit(as_table(self.X_train, names), y.cpu().numpy())
        self.source = quantile_source(fitted)
        self.typical = float(y.std()) or 1.0

    def law(self, rows: Inputs) -> Law:
        """Without a gradient."""
        X = Rows.of(rows).X
        table = self.source.table(as_table(X, self.names)).to(X)
        return Table.of_quantiles(torch.from_numpy(self.source.levels).to(X), table, self.typical)

    def relearned(self, rows: Inputs, y: Tensor, labels: Tensor, seed: int) -> "ForeignModel":
        return ForeignModel(self.estimator, rows, y, self.names)
