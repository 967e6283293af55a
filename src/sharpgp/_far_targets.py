r"""Single targets so far from all others that they are errors: named, and clipped for training.

The rule: a target is far if it lies at least ten times as far from the median as the farthest of
the others, and a tail as heavy as that of the next 20 targets (at most a quarter of all) reaches
there with a probability of one in ten thousand at most.

With ``m_1 >= m_2 >= ...`` the distances from the median, a Pareto tail makes
``e_i = i log(m_i / m_(i+1))`` independent exponentials with one mean.  For the ``j <= 3`` farthest
targets, and ``k`` that follow, ``P(e_j > x) = (1 + x / S)^-k`` with the sum ``S`` of ``e_(j+1)`` to
``e_(j+k)``.  Tails of normal, lognormal and t distributions grow no heavier beyond, so that honest
ones pass.

Models learn from a far target as if it were as far as the farthest of the others.  Rows that are
held out to calibrate keep theirs: there one row has one rank, however large its error.  Where all
rows train and calibrate (``cv``), this costs a coverage of ``j / (n + 1)`` at most.
"""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any

import numpy as np

from sharpgp._inputs import plain
from sharpgp.exceptions import warn

# The rule above.  More than three are no slips of the pen.
_TIMES_AS_FAR, _NEXT, _CHANCE, _MOST = 10.0, 20, 1e-4, 3
# Fewer targets tell nothing about a tail.
_LEAST = 5
# Numbers of the rows as the user counts them; None: from 0.
_numbers: ContextVar[Sequence[int] | None] = ContextVar("numbers of the rows", default=None)


@contextmanager
def rows_numbered(numbers: Sequence[int]) -> Iterator[None]:
    """Warnings inside number rows so."""
    token = _numbers.set(numbers)
    try:
        yield
    finally:
        _numbers.reset(token)


def plausible_range(y: np.ndarray) -> tuple[float, float]:
    """Ends between which all targets (n,) lie but those that are far; infinite if none is.

    Examples
    --------
    >>> y = np.sin(np.arange(60.0))
    >>> y[7] = 700.0
    >>> low, high = plausible_range(y)
    >>> bool(-1.2 < low < -0.9), bool(0.9 < high < 1.2)
    (True, True)
    """
    with np.errstate(over="ignore"):
        middle = np.median(y)
        m = np.sort(np.abs(y - middle))[::-1]
    k = min(_NEXT, len(m) // 4)
    for j in range(min(_MOST, len(m) - k - 1), 0, -1):
        if k < _LEAST or not (m[j] >= m[j + k] > 0.0 and np.isfinite(m[0])):
            continue
        if m[j - 1] / _TIMES_AS_FAR < m[j]:
            continue
        i = np.arange(j + 1, j + k + 1)
        total = float((i * np.log(m[i - 1] / m[i])).sum())
        beyond = j * np.log(m[j - 1] / m[j])
        if beyond >= total * (_CHANCE ** (-1.0 / k) - 1.0):
            return float(middle - m[j]), float(middle + m[j])
    return -np.inf, np.inf


def warn_of_far_targets(y: Any) -> None:
    """Name the rows of ``y`` (n,) or (n, p) whose targets are far from all others."""
    try:
        columns = np.asarray(plain(y), dtype=np.float64)
    except (TypeError, ValueError):
        return  # refused elsewhere
    if columns.ndim not in (1, 2) or np.isinf(columns).any():
        return
    for j, column in enumerate(columns.reshape(len(columns), -1).T):
        rows = np.flatnonzero(~np.isnan(column))
        low, high = plausible_range(column[rows]) if rows.size else (-np.inf, np.inf)
        others = column[rows][(column[rows] >= low) & (column[rows] <= high)]
        for row in rows[(column[rows] < low) | (column[rows] > high)]:
            away = abs(column[row] - others.mean()) / max(others.std(), np.finfo(float).tiny)
            numbers = _numbers.get()
            name = int(row) if numbers is None else int(numbers[row])
            where = f" (output {j})" if columns.ndim == 2 and columns.shape[1] > 1 else ""
            warn(
                f"y: row {name}{where} is {column[row]:g}, {away:.0f} standard deviations from the "
                f"others, which are between {others.min():g} and {others.max():g}; check it",
                UserWarning,
            )
