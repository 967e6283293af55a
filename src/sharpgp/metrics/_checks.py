"""Checks shared by the metrics: flat arrays of one length, quantile tables, levels."""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike, NDArray

from sharpgp.exceptions import InvalidInputError

Floats = NDArray[np.float64]


def covered_points(y: ArrayLike, lower: ArrayLike, upper: ArrayLike) -> Floats:
    y, lower, upper = flat_columns(y=y, lower=lower, upper=upper)
    return ((lower <= y) & (y <= upper)).astype(np.float64)


def flat_columns(**arrays: ArrayLike) -> list[Floats]:
    """Check that all are flat, of one length, nonempty and without NaN; ``y`` also finite."""
    columns = {name: np.asarray(a, dtype=np.float64) for name, a in arrays.items()}
    first, *_ = columns.values()
    for name, a in columns.items():
        if a.ndim != 1 or a.shape != first.shape or not len(a):
            shapes = ", ".join(f"{key} {value.shape}" for key, value in columns.items())
            raise InvalidInputError(
                f"expected flat arrays of equal length n >= 1, found {shapes}; pass one value per "
                "point"
            )
        if np.isnan(a).any() or (name == "y" and np.isinf(a).any()):
            raise InvalidInputError(
                f"{name}: expected {'finite values' if name == 'y' else 'no NaN'}, found "
                f"{int((~np.isfinite(a)).sum())} non-finite of {len(a)}; remove or impute them"
            )
    return list(columns.values())


def flat_levels(levels: ArrayLike, k: int | None = None) -> Floats:
    p = np.asarray(levels, dtype=np.float64)
    if p.ndim != 1 or not len(p) or not ((p >= 0) & (p <= 1)).all():
        raise InvalidInputError(
            f"levels: expected a flat array in [0, 1], found {p.tolist()!r:.60}; pass probabilities"
        )
    if k is not None and len(p) != k:
        raise InvalidInputError(
            f"levels: expected {k}, one per column of the quantiles, found {len(p)}; "
            "pass the quantiles as (n, k), points first"
        )
    return p


def check_sizes(name: str, n_cal: int | None, n_test: int) -> None:
    if (n_cal is not None and n_cal < 1) or n_test < 1:
        raise InvalidInputError(
            f"{name}: expected n_cal >= 1 and n_test >= 1, found {n_cal} and {n_test}; "
            "pass the sizes of the calibration and test sets"
        )


def quantile_table(y: ArrayLike, quantiles: ArrayLike) -> tuple[Floats, Floats]:
    (y,) = flat_columns(y=y)
    q = np.asarray(quantiles, dtype=np.float64)
    if q.ndim != 2 or len(q) != len(y) or np.isnan(q).any():
        raise InvalidInputError(
            f"quantiles: expected shape ({len(y)}, k) without NaN, found {q.shape} with "
            f"{int(np.isnan(q).sum())} NaN; pass one row per observation, levels along columns"
        )
    return y, q


def feature_table(X: ArrayLike, y: ArrayLike) -> Floats:
    X, n = np.asarray(X, dtype=np.float64), len(flat_columns(y=y)[0])
    if X.ndim != 2 or len(X) != n or n < 2 or not X.shape[1] or not np.isfinite(X).all():
        raise InvalidInputError(
            f"X: expected finite features of shape ({n}, d) for at least 2 points, "
            f"found shape {X.shape}; reshape a single feature with X[:, None]"
        )
    return X
