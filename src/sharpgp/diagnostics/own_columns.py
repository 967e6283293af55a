"""The user's own columns, whatever features they became: numbers, dates, categories by name."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from sharpgp._validation import nearest
from sharpgp.data.encoding import TableEncoding
from sharpgp.exceptions import InvalidInputError

Floats = NDArray[np.float64]

#: Fewest points for judging a group.
MIN_POINTS_PER_GROUP = 10
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
    >>> texts_of(np.array([20089.0 - 1e-9, 20123.5]), dates=True)
    ['2025-01-01', '2025-02-04']
    """
    if dates:
        return [str(np.datetime64(int(np.floor(day + 1e-6)), "D")) for day in edges]
    # Most digits first: edges equal even then differ by rounding alone.
    finest, *coarser = (_rounded(edges, digits) for digits in _DIGITS)
    alike = [texts for texts in coarser if len(set(texts)) == len(set(finest))]
    return alike[-1] if alike else finest


def _rounded(edges: Floats, digits: int) -> list[str]:
    rounded = [float(f"{edge:.{digits}g}") for edge in edges]
    # Years and other numbers of four digits are read without a comma.
    return [f"{v:,.15g}" if abs(v) >= 10_000 else f"{v:.15g}" for v in rounded]
