"""A law about the predictions of a regressor that says nothing of its error."""

from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import ArrayLike
from scipy.special import ndtri
from torch import Tensor

from sharpgp._validation import as_numpy, as_target
from sharpgp.data.folds import row_labels
from sharpgp.models.foreign import LEVELS, Floats, QuantileSource
from sharpgp.models.gaussian.gaussian_model import magnitude
from sharpgp.models.gaussian.scale_model import ScaleModel, held_out_log_squares
from sharpgp.models.gaussian.spread_choice import honest_share
from sharpgp.policy import LEARNED_ROWS, drawn_rows

# Calibration rows from which on half of them learn the width: the others suffice for 99 %.
_MIN_ROWS = 200


@dataclass(frozen=True)
class _Width:
    """``unit exp(share g(x) / 2)`` of a scale model ``g``, or ``unit`` without one."""

    unit: float
    share: float = 0.0
    scale: ScaleModel | None = None

    @classmethod
    def learned(cls, X: Tensor, residuals: Tensor) -> "_Width":
        """A scale model as far as residuals that it has not seen gain by it."""
        one = torch.ones_like(residuals)
        share = honest_share(residuals, one, held_out_log_squares(X, residuals, row_labels(X), 0))
        found = cls(1.0, share, ScaleModel(X, residuals) if share else None)
        width = torch.from_numpy(found.at(X.numpy(), len(X)))
        return cls(float(magnitude(residuals / width)), share, found.scale)

    def at(self, X: Any, n: int) -> Floats:
        """At ``n`` rows."""
        if self.scale is None:
            return np.full(n, self.unit)
        with torch.no_grad():
            g = self.scale.log_square(torch.from_numpy(np.asarray(as_numpy(X), dtype=np.float64)))
        return self.unit * np.exp(0.5 * self.share * g.numpy())


def about_points(model: Any, X: Any, y: ArrayLike) -> tuple[QuantileSource, Tensor]:
    """Quantiles of a normal law about a fitted regressor's predictions, and rows to calibrate them.

    Its width is constant, as a shape that ranks scale.  From 200 rows of numbers on it is learned
    from a random half of them, 500 at most, by a scale model, where that gains; it has then not
    seen the rows that calibrate.

    Parameters
    ----------
    model : fitted regressor
    X : array or frame with C rows
        Whatever the model takes.
    y : array (C,)
        Targets of rows that the model was not trained on.

    Returns
    -------
    source : QuantileSource
    rows : Tensor [n]
        Numbers of the rows that calibrate.

    Examples
    --------
    >>> from sklearn.linear_model import Ridge
    >>> X = np.linspace(-1, 1, 400)[:, None]
    >>> y = (0.1 + (X[:, 0] > 0)) * np.random.default_rng(0).normal(size=400)
    >>> source, rows = about_points(Ridge().fit(X, y), X, y)
    >>> low, high = np.ptp(source.table(X[[10, -10]]).numpy(), axis=1)
    >>> len(rows), bool(high > 3 * low)
    (200, True)
    """

    def predicted(X: Any) -> Floats:
        X = X.detach().cpu().numpy() if isinstance(X, Tensor) else X
        return np.asarray(model.predict(X), dtype=np.float64).reshape(-1)

    mean = predicted(X)
    target = as_target(y, n_rows=len(mean))
    residuals, rows = target - torch.from_numpy(mean), torch.arange(len(mean))
    width, numbers = _Width(float(magnitude(residuals)) if len(mean) else 1.0), _numbers(X)
    if len(mean) >= _MIN_ROWS and numbers is not None:
        some = drawn_rows(len(mean), len(mean) // 2)
        rows, some = rows[~torch.isin(rows, some)], some[:LEARNED_ROWS]
        width = _Width.learned(numbers[some], residuals[some])

    def ask(X: Any, levels: Floats) -> Floats:
        mean = predicted(X)
        return mean[:, None] + width.at(X, len(mean))[:, None] * ndtri(levels)

    name = type(model).__name__
    return QuantileSource(name, np.array(LEVELS, dtype=np.float64), ask), rows


def _numbers(X: Any) -> Tensor | None:
    """Features [C, d], where they are finite numbers."""
    try:
        found = np.asarray(as_numpy(X), dtype=np.float64)
    except (TypeError, ValueError):
        return None
    usable = found.ndim == 2 and bool(np.isfinite(found).all())
    return torch.from_numpy(found) if usable else None
