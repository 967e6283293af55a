r"""Known noise variances: one per row, stored as its last feature; replicates are merged to fit.

Observations ``y_i = f(x_i) + e_i`` with known variances ``v_i`` of ``e_i``.  The variance is one
more column of the model's inputs, so that every observation keeps its own through splits and
refits, and a prediction is for an observation with the given noise.

Models are fitted to rows with equal ``x`` as one, which is exact: the likelihood of
``y_1, ..., y_m`` is, up to a factor without ``f``, that of their weighted mean
``sum(y_i / v_i) / sum(1 / v_i)`` with the variance ``1 / sum(1 / v_i)``.  Single rows calibrate,
because single rows are predicted.  So a variance that is too small does not make intervals too
narrow.
"""

from typing import Any

import numpy as np

from sharpgp.data.inputs import plain
from sharpgp.data.rows import LabelledRows
from sharpgp.exceptions import InvalidInputError

#: From this many replicates, a row's variance is estimated from them alone.
MIN_REPLICATES = 10


def append_noise(X: np.ndarray, noise: Any, usual: float | None) -> np.ndarray:
    """Append noise variances to inputs (n, d): those given, or the ``usual`` one.

    Without ``usual`` the model knows no noise, and its inputs are ``X`` (n, d).

    Examples
    --------
    >>> append_noise(np.ones((2, 1)), [0.1, 0.2], 0.3).tolist()
    [[1.0, 0.1], [1.0, 0.2]]
    """
    if usual is None:
        if noise is not None:
            raise InvalidInputError(
                "noise: expected a model that was fitted with noise, found one without; give it to "
                "fit, too"
            )
        return X
    return np.column_stack([X, as_variances(usual if noise is None else noise, len(X))])


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
    """Rows with variances as last feature, and the usual variance."""
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
    train = LabelledRows(
        np.column_stack([train.X, variances]), train.y, train.groups, known_noise=True
    )
    if cal is not None:
        X_cal = np.column_stack([cal.X, as_variances(noise_cal, len(cal))])
        cal = LabelledRows(X_cal, cal.y, cal.groups, known_noise=True)
    return train, cal, usual


def merge_replicates(rows: LabelledRows) -> LabelledRows:
    """Merge replicates: rows of a group that agree in all features but the variance.

    They stay in order.

    Examples
    --------
    >>> X = np.array([[0.0, 1.0], [0.0, 1.0], [5.0, 2.0]])
    >>> rows = LabelledRows(X, np.array([1.0, 3.0, 7.0]), known_noise=True)
    >>> merge_replicates(rows).X.tolist(), merge_replicates(rows).y.tolist()
    ([[0.0, 0.5], [5.0, 2.0]], [2.0, 7.0])
    """
    where = rows.input_numbers()
    _, first = np.unique(where, return_index=True)
    if len(first) == len(rows):
        return rows
    # Variances in units of the least positive one; a variance of 0 outweighs all others.
    variances = rows.X[:, -1]
    unit = variances[variances > 0.0].min() if (variances > 0.0).any() else 1.0
    precision = 1.0 / np.maximum(variances / unit, 1e-12)
    total = np.bincount(where, precision)
    mean = np.bincount(where, precision * rows.y) / total
    X = rows.X[first].copy()
    exact = np.bincount(where, variances == 0.0) > 0
    X[:, -1] = np.where(exact, 0.0, unit / total)
    return LabelledRows(
        X, mean, None if rows.groups is None else rows.groups[first], known_noise=True
    )


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
