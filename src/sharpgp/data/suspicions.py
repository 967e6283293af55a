"""Suspicious numbers: markers of missing values, far values, a copy of the target."""

import re
from dataclasses import dataclass

import numpy as np

# How marks for missing values are written: 99, 999, 9999, 99.9.
_NINES = re.compile(r"9+\.?9+")
#: Warn if the middle half of a column spans less, in standard deviations: training cannot resolve
#: less than its noise floor, 1e-3 standard deviations of the target.
MIN_MIDDLE_SPREAD = 1e-3
# The rule of plausible_range.  More than three far targets are not typing errors.
_TIMES_AS_FAR, _NEXT, _CHANCE, _MOST = 10.0, 20, 1e-4, 3
# Fewer targets say nothing about a tail.
_MIN_TARGETS = 5
#: A column that explains a larger share of the target's variance is suspected to be its twin.
TWIN_SHARE = 0.99


@dataclass(frozen=True)
class Suspicion:
    """A finding: its kind, what was found, and what to do.

    ``stops`` says that a fit would refuse the table.
    """

    kind: str
    says: str
    cure: str = ""
    stops: bool = False


def likely_mark(values: np.ndarray) -> float | None:
    """A likely marker such as -999: nines, farther from all values than their range; or None.

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


def plausible_range(y: np.ndarray) -> tuple[float, float]:
    r"""Range (low, high) of the plausible targets (n,); infinite if none is far.

    A target is far if it lies at least ten times as far from the median as the farthest of the
    others, and a tail as heavy as that of the next 20 targets (at most a quarter of all)
    reaches there with a probability of one in ten thousand at most.

    With ``m_1 >= m_2 >= ...`` the distances from the median, a Pareto tail makes ``e_i = i
    log(m_i / m_(i+1))`` independent exponentials with one mean. For the ``j <= 3`` farthest
    targets, and ``k`` that follow, ``P(e_j > x) = (1 + x / S)^-k`` with the sum ``S`` of
    ``e_(j+1)`` to ``e_(j+k)``.  Tails of normal, lognormal and t distributions grow no heavier
    farther out, so honest ones pass.

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
        if k < _MIN_TARGETS or not (m[j] >= m[j + k] > 0.0 and np.isfinite(m[0])):
            continue
        if m[j - 1] / _TIMES_AS_FAR < m[j]:
            continue
        i = np.arange(j + 1, j + k + 1)
        total = float((i * np.log(m[i - 1] / m[i])).sum())
        beyond = j * np.log(m[j - 1] / m[j])
        if beyond >= total * (_CHANCE ** (-1.0 / k) - 1.0):
            return float(middle - m[j]), float(middle + m[j])
    return -np.inf, np.inf


def is_flattened(values: np.ndarray) -> bool:
    """Whether a few values are so large that all others look equal beside them.

    Examples
    --------
    >>> is_flattened(np.array([*range(20), 1e6])), is_flattened(np.arange(20.0))
    (True, False)
    """
    values = values / (np.abs(values).max() or 1.0)
    low, quarter, three_quarters, high = np.quantile(values, [0.1, 0.25, 0.75, 0.9])
    middle = (three_quarters - quarter) or (high - low)
    return bool(0 < middle < MIN_MIDDLE_SPREAD * values.std())


def share_explained(column: np.ndarray, y: np.ndarray) -> float:
    r"""Share of the variance of ``y`` that one column explains, by nearest neighbours.

    A line, or :math:`1 - \sum_i (y_i - m_i)^2 / \sum_i (y_i - \bar y)^2` with :math:`m_i` the mean
    of the rows just before and after row ``i`` along the column, whichever explains more.

    Parameters
    ----------
    column, y : arrays of shape (n,)

    Examples
    --------
    >>> x = np.linspace(0, 1, 200)
    >>> share_explained(x, x**2) > 0.999, share_explained(np.sin(1e5 * x), x) < 0.5
    (True, True)
    """
    known = np.isfinite(column)
    x, y = column[known], y[known]
    total = float(((y - y.mean()) ** 2).sum()) if len(y) else 0.0
    # Rows with equal values come in random order, so that their own order explains nothing.
    if len(y) < 10 or total == 0 or np.ptp(x) == 0:
        return 0.0
    shuffled = np.random.default_rng(0).permutation(len(y))
    order = shuffled[np.argsort(x[shuffled], kind="stable")]
    ends, inner = y[order], y[order][1:-1]
    by_neighbours = 1 - float(((inner - (ends[:-2] + ends[2:]) / 2) ** 2).sum()) / total
    line = float(np.corrcoef(x, y)[0, 1]) ** 2
    return max(line, by_neighbours)


def repeated_rows(
    rows: np.ndarray, known: np.ndarray | None = None
) -> tuple[np.ndarray, np.ndarray]:
    """Which rows (n, d + 1) are among ``known`` ones (m, d + 1), and which repeat an earlier row.

    The last column is the target.  Rows of few values are equal by chance: rows with equal features
    must agree in the target far more often than others do.

    Examples
    --------
    >>> rows = np.array([[0.1, 5.0], [0.2, 6.0], [0.1, 5.0], [0.3, 7.0]])
    >>> [part.tolist() for part in repeated_rows(rows, np.array([[0.3, 7.0], [0.4, 8.0]]))]
    [[False, False, False, True], [False, False, True, False]]
    """
    n, none = len(rows), np.zeros(len(rows), dtype=bool)
    if known is None or known.shape[1] != rows.shape[1]:
        known = np.zeros((0, rows.shape[1]))
    both = np.vstack([rows, known])
    scale = both.std(axis=0)
    scale[scale == 0] = 1.0
    # Standardising data and back changes the last digits.
    both = np.round((both - both.mean(axis=0)) / scale * 1e7) + 0.0
    of_input, of_row = (
        np.unique(part, axis=0, return_inverse=True)[1].reshape(-1) for part in (both[:, :-1], both)
    )
    counts = np.unique(both[:, -1], return_counts=True)[1] / len(both)
    needed = (1 + float((counts**2).sum())) / 2

    def pairs(code: np.ndarray) -> tuple[float, float]:
        ours, theirs = (np.bincount(part, minlength=len(both)) for part in (code[:n], code[n:]))
        return float(ours @ theirs), float((ours * (ours - 1)).sum())

    (seen_x, copies_x), (seen, copies) = pairs(of_input), pairs(of_row)
    first = np.unique(of_row[:n], return_index=True)[1]
    earlier = ~np.isin(np.arange(n), first)
    return (
        np.isin(of_row[:n], of_row[n:]) if seen > needed * seen_x else none,
        earlier if copies > needed * copies_x else none,
    )
