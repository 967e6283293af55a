r"""Targets that are probably errors: far from all others, named in a warning, clipped for training.

The rule is that of :func:`sharpgp.data.suspicions.plausible_range`.

In training, a far target is clipped to the farthest of the others.  Held-out calibration rows keep
theirs: one row has one rank, however large its error.  Where all rows train and calibrate (``cv``),
``j`` far targets cost at most ``j / (n + 1)`` of coverage.
"""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any

import numpy as np

from sharpgp.data.inputs import plain
from sharpgp.data.suspicions import plausible_range
from sharpgp.exceptions import warn

# Numbers of the rows as the user counts them; None: from 0.
_numbers: ContextVar[Sequence[Any] | None] = ContextVar("numbers of the rows", default=None)


@contextmanager
def number_rows(numbers: Sequence[Any]) -> Iterator[None]:
    """Number rows in warnings like this, inside the block."""
    token = _numbers.set(numbers)
    try:
        yield
    finally:
        _numbers.reset(token)


def warn_of_far_targets(y: Any) -> None:
    """Name the rows of ``y`` (n,) or (n, p) whose targets are far from all others."""
    try:
        columns = np.asarray(plain(y), dtype=np.float64)
    except (TypeError, ValueError, OverflowError):
        return  # checked elsewhere
    if columns.ndim not in (1, 2) or np.isinf(columns).any():
        return
    for j, column in enumerate(columns.reshape(len(columns), -1).T):
        rows = np.flatnonzero(~np.isnan(column))
        low, high = plausible_range(column[rows]) if rows.size else (-np.inf, np.inf)
        others = column[rows][(column[rows] >= low) & (column[rows] <= high)]
        for row in rows[(column[rows] < low) | (column[rows] > high)]:
            away = abs(column[row] - others.mean()) / max(others.std(), np.finfo(float).tiny)
            numbers = _numbers.get()
            name = int(row) if numbers is None else numbers[row]
            where = f" (output {j})" if columns.ndim == 2 and columns.shape[1] > 1 else ""
            warn(
                f"y: row {name}{where} is {column[row]:g}, {away:.0f} standard deviations from the "
                f"others, which are between {others.min():g} and {others.max():g}; check it",
                UserWarning,
            )
