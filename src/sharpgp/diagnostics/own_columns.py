"""The user's own columns, whatever features they became: numbers, dates, categories by name."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from sharpgp._validation import nearest
from sharpgp.data.encoding import TableEncoding
from sharpgp.diagnostics.chance import MIN_POINTS_PER_GROUP, Floats
from sharpgp.exceptions import InvalidInputError
from sharpgp.metrics import BinnedCoverage, coverage_along

# Digits of the edges of groups, tried in turn.
_DIGITS = (6, 5, 4, 3)
#: Most categories of a column that are judged one by one; all others are judged together.
MAX_CATEGORIES_SHOWN = 12


@dataclass(frozen=True)
class OwnColumn:
    """A column of the user's table.

    Attributes
    ----------
    name : str
    values : array of shape (n,)
        Numbers, days since 1970, or positions in ``labels``.
    labels : tuple of str
        Categories, the most frequent first; empty for numbers and dates.
    dates : bool
    """

    name: str
    values: Floats
    labels: tuple[str, ...] = ()
    dates: bool = False

    def coverage(self, y: Floats, lower: Floats, upper: Floats, n_bins: int = 5) -> BinnedCoverage:
        """Coverage in bins of equal count, or of each category.

        Examples
        --------
        >>> column = OwnColumn("city", np.array([0.0, 1, 0]), ("Bern", "Oslo"))
        >>> column.coverage(np.zeros(3), np.array([-1, 1, -1.0]), np.ones(3)).coverage.tolist()
        [1.0, 0.0]
        """
        if not self.labels:
            return coverage_along(self.values, y, lower, upper, n_bins)
        each = [
            coverage_along(self.values[here], y[here], lower[here], upper[here], 1)
            for k in range(len(self.labels))
            if (here := self.values == k).any()
        ]
        there = [float(one.edges[-1]) for one in each]
        edges = np.array([-1.0, *there])
        parts = (np.concatenate([one[k] for one in each]) for k in (1, 2, 3))
        return BinnedCoverage(edges, *parts)

    def edge_texts(self, edges: Floats) -> list[list[str]]:
        """Texts of the two ends of each bin; a category's name twice."""
        if self.labels:
            return [[self.labels[int(edge)]] * 2 for edge in edges[1:]]
        texts = texts_of(edges, dates=self.dates)
        return [texts[i : i + 2] for i in range(len(texts) - 1)]

    def ticks(self, edges: Floats) -> list[str]:
        """A label for each bin."""
        return [end if self.labels else f"≤ {end}" for _, end in self.edge_texts(edges)]


def own_columns(
    X: Floats, names: Sequence[str], encoding: TableEncoding | None
) -> tuple[OwnColumn, ...]:
    """The columns that features (n, d) stand for.

    Examples
    --------
    >>> import pandas as pd
    >>> table = pd.DataFrame({"x": [1.0, 2.0, 4.0], "kind": ["a", "b", "b"]})
    >>> encoding = TableEncoding.learn(table)
    >>> x, kind = own_columns(encoding.encode(table).features, [], encoding)
    >>> kind.labels, kind.values.tolist()
    (('b', 'a'), [1.0, 0.0, 0.0])
    """
    if encoding is None:
        return tuple(OwnColumn(name, X[:, j]) for j, name in enumerate(names))
    found = []
    for column, values in zip(encoding.columns, encoding.decode(X).values(), strict=True):
        first = X[:, encoding.places[column.name][0]]
        if values.holds == "text":
            texts = np.where(values.missing, "missing", values.data)
            found.append(_by_label(column.name, texts, values.order))
        elif column.kind == "boolean":
            found.append(_by_label(column.name, np.where(first > 0.5, "true", "false"), None))
        else:
            # Gaps are judged separately; here they are the median.
            found.append(OwnColumn(column.name, first, dates=column.kind == "date"))
    return tuple(found)


def column_named(columns: Sequence[OwnColumn], wanted: int | str) -> OwnColumn:
    """A column by name or position; an error lists the names."""
    names = [column.name for column in columns]
    if isinstance(wanted, str) and wanted in names:
        return columns[names.index(wanted)]
    if isinstance(wanted, int | np.integer) and 0 <= wanted < len(names):
        return columns[int(wanted)]
    shown = ", ".join(names[:8]) + (", ..." if len(names) > 8 else "")
    meant = nearest(wanted, names) if isinstance(wanted, str) else ""
    raise InvalidInputError(f"feature: expected one of {shown}, found {wanted!r}{meant}")


def _by_label(name: str, texts: np.ndarray, order: tuple[str, ...] | None) -> OwnColumn:
    labels, counts = np.unique(texts.astype(str), return_counts=True)
    often = sorted(zip(-counts, labels, strict=True))
    kept = [
        str(label)
        for n, label in often[:MAX_CATEGORIES_SHOWN]
        if -n >= MIN_POINTS_PER_GROUP or len(often) < 3
    ]
    if order is not None:
        kept = sorted(kept, key=lambda label: order.index(label) if label in order else len(order))
    rest = len(labels) > len(kept)
    place = {label: k for k, label in enumerate(kept)}
    values = np.array([place.get(str(text), len(kept)) for text in texts], dtype=np.float64)
    return OwnColumn(name, values, (*kept, *(["all others"] if rest else [])))


def texts_of(edges: Floats, *, dates: bool = False) -> list[str]:
    """Edges [k] with enough digits to tell them apart; days since 1970 as dates.

    Examples
    --------
    >>> texts_of(np.array([0.123456, 4.0, 15.01])), texts_of(np.array([2001.0, 2004.0, 2008.0]))
    (['0.123', '4', '15'], ['2001', '2004', '2008'])
    >>> texts_of(np.array([0.3, 0.1 + 0.2]))  # they differ by rounding
    ['0.3', '0.3']
    >>> texts_of(np.array([20089.0, 20123.5]), dates=True)
    ['2025-01-01', '2025-02-04']
    """
    if dates:
        return [str(np.datetime64(int(np.floor(day)), "D")) for day in edges]
    # Most digits first: edges equal even then differ by rounding alone.
    finest, *coarser = (_rounded(edges, digits) for digits in _DIGITS)
    alike = [texts for texts in coarser if len(set(texts)) == len(set(finest))]
    return alike[-1] if alike else finest


def _rounded(edges: Floats, digits: int) -> list[str]:
    rounded = [float(f"{edge:.{digits}g}") for edge in edges]
    # Years and other numbers of four digits are read without a comma.
    return [f"{v:,.15g}" if abs(v) >= 10_000 else f"{v:.15g}" for v in rounded]
