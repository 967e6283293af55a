"""What looks wrong in a column of numbers: marks for missing values, values alone, a target's twin.

One idea serves all: a value is suspicious if it lies farther from all others than these lie apart.
"""

import re

import numpy as np

# How marks for missing values are written: 99, 999, 9999, 99.9.
_NINES = re.compile(r"9+\.?9+")
#: Least spread of the middle half of a column, in standard deviations, that passes without a
#: warning: the noise floor of training is 1e-3 standard deviations of the target.
SMALLEST_MIDDLE = 1e-3
#: Values that may lie alone on one side; more of them are a second group of values.
MOST_ALONE = 3
#: Share of the target's variance beyond which a column is asked to be a twin of it.
GIVEN_AWAY = 0.99


def likely_mark(values: np.ndarray) -> float | None:
    """A number of nines that lies farther from all others than they lie apart, if there is one.

    Examples
    --------
    >>> likely_mark(np.array([3.0, 1.0, -999.0, 2.5])), likely_mark(np.array([97.0, 98.0, 99.0]))
    (-999.0, None)
    """
    present = np.unique(values[np.isfinite(values)])
    for mark, others in ((present[:1], present[1:]), (present[-1:], present[:-1])):
        if len(others) < 2 or not _NINES.fullmatch(f"{abs(float(mark[0])):.15g}"):
            continue
        if np.abs(others - mark).min() > np.ptp(others):
            return float(mark[0])
    return None


def alone(values: np.ndarray) -> np.ndarray:
    """Positions of up to :data:`MOST_ALONE` values at an end that lie apart from all others.

    They are at most one value in ten.

    Examples
    --------
    >>> alone(np.array([*range(10), 845.0])), alone(np.array([*range(10), 11.0]))
    (array([10]), array([], dtype=int64))
    """
    order = np.argsort(values, kind="stable")
    for ends in (order[::-1], order):
        for k in range(1, min(MOST_ALONE, len(values) // 10) + 1):
            rest = values[ends[k:]]
            if np.abs(values[ends[k - 1]] - rest[0]) > np.ptp(rest) > 0:
                return np.sort(ends[:k])
    return np.array([], dtype=np.int64)


def is_flattened(values: np.ndarray) -> bool:
    """Whether a few values are so large that, in their units, all the others are one and the same.

    Examples
    --------
    >>> is_flattened(np.array([*range(20), 1e6])), is_flattened(np.arange(20.0))
    (True, False)
    """
    values = values / (np.abs(values).max() or 1.0)
    low, quarter, three_quarters, high = np.quantile(values, [0.1, 0.25, 0.75, 0.9])
    middle = (three_quarters - quarter) or (high - low)
    return bool(0 < middle < SMALLEST_MIDDLE * values.std())


def explained_alone(column: np.ndarray, y: np.ndarray) -> float:
    r"""The share of the variance of ``y`` that one column explains, by its nearest neighbours.

    A line, or :math:`1 - \sum_i (y_i - m_i)^2 / \sum_i (y_i - \bar y)^2` with :math:`m_i` the mean
    of the rows just before and after row ``i`` along the column, whichever explains more.

    Parameters
    ----------
    column, y : arrays of shape (n,)

    Examples
    --------
    >>> x = np.linspace(0, 1, 200)
    >>> explained_alone(x, x**2) > 0.999, explained_alone(np.sin(1e5 * x), x) < 0.5
    (True, True)
    """
    known = np.isfinite(column)
    x, y = column[known], y[known]
    total = float(((y - y.mean()) ** 2).sum()) if len(y) else 0.0
    # Targets in random order among equal values: rows that repeat a value say what it is worth.
    if len(y) < 10 or total == 0 or np.ptp(x) == 0:
        return 0.0
    shuffled = np.random.default_rng(0).permutation(len(y))
    order = shuffled[np.argsort(x[shuffled], kind="stable")]
    ends, inner = y[order], y[order][1:-1]
    by_neighbours = 1 - float(((inner - (ends[:-2] + ends[2:]) / 2) ** 2).sum()) / total
    line = float(np.corrcoef(x, y)[0, 1]) ** 2
    return max(line, by_neighbours)
