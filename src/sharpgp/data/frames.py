"""Frames of any package, by narwhals: lazy ones are collected, answers take the rows' kind."""

from collections.abc import Mapping
from typing import Any

import narwhals as nw
import numpy as np
from narwhals.dependencies import is_pandas_dataframe
from numpy.typing import NDArray


def collected(X: Any) -> Any:
    """The rows of a lazy frame (polars, DuckDB, Ibis, PySpark, dask); anything else unchanged.

    Examples
    --------
    >>> collected([[1.0]])
    [[1.0]]
    """
    if is_pandas_dataframe(X):  # its names may repeat, which has a message of its own
        return X
    found = nw.from_native(X, pass_through=True)
    return found.collect().to_native() if isinstance(found, nw.LazyFrame) else X


def as_columns(
    answer: NDArray[np.float64], what: str, asked: Any = ()
) -> dict[str, NDArray[np.float64]]:
    """Means, deviations, intervals or quantiles by name; those of several outputs end in a number.

    Examples
    --------
    >>> list(as_columns(np.zeros((3, 2, 2)), "interval", [0.5, 0.9]))
    ['lower_50', 'upper_50', 'lower_90', 'upper_90']
    >>> list(as_columns(np.zeros((3, 2)), "quantile", 0.25))
    ['quantile_0.25_0', 'quantile_0.25_1']
    """
    levels, several = np.atleast_1d(np.asarray(asked)), np.ndim(asked) > 0 and len(asked) > 0
    if what == "interval":
        names = [f"{end}_{100 * c:.10g}" for c in levels for end in ("lower", "upper")]
        answer = np.swapaxes(answer, 1, 2) if several else answer
    else:
        names = [f"{what}_{level:.10g}" for level in levels] or [what]
    flat = answer.reshape(len(answer), len(names), -1)
    outputs = flat.shape[2]
    return {
        name if outputs == 1 else f"{name}_{j}": flat[:, k, j]
        for k, name in enumerate(names)
        for j in range(outputs)
    }


def like(X: Any, columns: Mapping[str, NDArray[np.float64]]) -> Any:
    """Columns as a frame of the package of ``X``, with the index of a pandas frame.

    Examples
    --------
    >>> import pandas as pd
    >>> like(pd.DataFrame({"x": [1, 2]}, index=["a", "b"]), {"mean": np.array([3.0, 4.0])})
       mean
    a   3.0
    b   4.0
    """
    kind = nw.from_native(X).implementation
    made = nw.from_dict(dict(columns), backend=kind).to_native()
    if kind.is_pandas():
        made.index = X.index
    return made


def has_kind(X: Any) -> bool:
    """Whether :func:`like` can make frames of the kind of ``X``."""
    if is_pandas_dataframe(X):
        return True
    found = nw.from_native(X, pass_through=True)
    lazy = isinstance(found, nw.LazyFrame)
    return isinstance(found, nw.DataFrame) or (lazy and found.implementation.is_polars())
