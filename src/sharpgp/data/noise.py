r"""Known noise variances: one per row; replicates are merged to fit.

Observations ``y_i = f(x_i) + e_i`` with known variances ``v_i`` of ``e_i``.  A row has its own
(:class:`sharpgp.rows.Rows`), which a GP adds to its diagonal.  A prediction is for an observation
with the given noise.

Models are fitted to rows with equal ``x`` as one, which is exact: the likelihood of
``y_1, ..., y_m`` is, up to a factor without ``f``, that of their weighted mean
``sum(y_i / v_i) / sum(1 / v_i)`` with the variance ``1 / sum(1 / v_i)``.  Single rows calibrate,
because single rows are predicted.  So a variance that is too small does not make intervals too
narrow.
"""

from dataclasses import replace
from typing import Any

import numpy as np

from sharpgp.data.inputs import plain
from sharpgp.data.rows import LabelledRows
from sharpgp.exceptions import InvalidInputError

#: From this many replicates, a row's variance is estimated from them alone.
MIN_REPLICATES = 10


def noise_to_predict(noise: Any, usual: float | None, n_rows: int) -> np.ndarray | None:
    """Variances (n,) of observations to predict: those given, or the ``usual`` one.

    Without ``usual`` the model knows no noise, and there is none.

    Examples
    --------
    >>> noise_to_predict(None, 0.3, 2), noise_to_predict(None, None, 2)
    (array([0.3, 0.3]), None)
    """
    if usual is None:
        if noise is not None:
            raise InvalidInputError(
                "noise: expected a model that was fitted with noise, found one without; give it to "
                "fit, too"
            )
        return None
    return as_variances(usual if noise is None else noise, n_rows)


def as_variances(noise: Any, n_rows: int) -> np.ndarray:
    """Variances (n,), from one for all rows or one each; finite and not negative.

    Examples
    --------
    >>> as_variances(0.5, 2)
    array([0.5, 0.5])
    """
    try:
        variances = np.asarray(plain(noise), dtype=np.float64)
    except (TypeError, ValueError):
        raise InvalidInputError(f"noise: expected variances, found {noise!r}") from None
    if variances.ndim == 0:
        variances = np.full(n_rows, float(variances))
    if variances.shape != (n_rows,):
        raise InvalidInputError(
            f"noise: expected one variance, or {n_rows}, one per row, found shape {variances.shape}"
        )
    bad = variances[~(np.isfinite(variances) & (variances >= 0.0))]
    if bad.size:
        raise InvalidInputError(f"noise: expected finite variances of at least 0, found {bad[0]:g}")
    return variances


def with_noise(
    train: LabelledRows, cal: LabelledRows | None, noise: Any, noise_cal: Any
) -> tuple[LabelledRows, LabelledRows | None, float]:
    """Rows with the variances of their noise, and the usual variance."""
    if noise is None or (cal is None) != (noise_cal is None):
        given = "noise" if noise_cal is None else "noise_cal"
        raise InvalidInputError(
            f"noise: expected noise with X and noise_cal with X_cal, found {given} only"
        )
    if isinstance(noise, str):
        if noise != "replicates":
            raise InvalidInputError(f"noise: expected variances or 'replicates', found {noise!r}")
        variances = from_replicates(train.X, train.y)
    else:
        variances = as_variances(noise, len(train))
    usual = float(np.median(variances))
    train = replace(train, noise=variances)
    if cal is not None:
        cal = replace(cal, noise=as_variances(noise_cal, len(cal)))
    return train, cal, usual


def merge_replicates(rows: LabelledRows) -> LabelledRows:
    """Merge replicates: rows of a group that agree in all features.

    They stay in order.

    Examples
    --------
    >>> X, y = np.array([[0.0], [0.0], [5.0]]), np.array([1.0, 3.0, 7.0])
    >>> few = merge_replicates(LabelledRows(X, y, noise=np.array([1.0, 1.0, 2.0])))
    >>> few.X.tolist(), few.y.tolist(), few.noise.tolist()
    ([[0.0], [5.0]], [2.0, 7.0], [0.5, 2.0])
    """
    where, variances = rows.input_numbers(), rows.noise
    _, first = np.unique(where, return_index=True)
    if variances is None or len(first) == len(rows):
        return rows
    # Variances in units of the least positive one; a variance of 0 outweighs all others.
    unit = variances[variances > 0.0].min() if (variances > 0.0).any() else 1.0
    precision = 1.0 / np.maximum(variances / unit, 1e-12)
    total = np.bincount(where, precision)
    exact = np.bincount(where, variances == 0.0) > 0
    mean = np.bincount(where, precision * rows.y) / total
    return replace(rows[first], y=mean, noise=np.where(exact, 0.0, unit / total))


def from_replicates(X: np.ndarray, y: np.ndarray) -> np.ndarray:
    """Estimate variances (n,) from rows with equal ``X`` (n, d).

    A row with at least :data:`MIN_REPLICATES` gets the variance of its replicates; all others get
    the variance within replicates, pooled over all rows.

    Examples
    --------
    >>> from_replicates(np.array([[0.0], [0.0], [1.0]]), np.array([1.0, 3.0, 9.0])).tolist()
    [2.0, 2.0, 2.0]
    """
    _, where, count = np.unique(X, axis=0, return_inverse=True, return_counts=True)
    where = where.reshape(-1)
    mean = np.bincount(where, y) / count
    squares = np.bincount(where, (y - mean[where]) ** 2)
    freedom = int((count - 1).sum())
    if not (freedom and squares.sum() > 0.0):
        raise InvalidInputError(
            "noise: expected rows with equal X and different y to estimate it from, found none; "
            "give variances"
        )
    pooled = squares.sum() / freedom
    own = squares / np.maximum(count - 1, 1)
    enough = (count >= MIN_REPLICATES) & (own > 0.0)
    return np.where(enough, own, pooled)[where]
