"""How the columns of a table become features: learned from training rows, kept with the model."""

import numbers
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import numpy as np

from sharpgp._stored import stored
from sharpgp._table import as_html, as_text
from sharpgp._validation import constant_columns, nearest
from sharpgp.data import texts
from sharpgp.data.column import Column
from sharpgp.data.reading import Values, names_of, values_of
from sharpgp.exceptions import InvalidInputError, warn

# Texts may be numbers if a larger share of them contains a digit.
_NUMBER_SHARE = 0.9
# Whole numbers count as row numbers from this many rows on, if they stay below this multiple of the
# number of rows.
_MANY, _NUMBERED = 20, 2.0


@stored("TableEncoding")
@dataclass(frozen=True)
class TableEncoding:
    """The columns that a model was fitted on, in order, and those it does not use.

    Numbers and dates that are written as text are read as such.  Columns without information
    (constant, empty, or texts that are different in most rows) are left out.  Warnings name both.
    ``marks`` are texts that stand for a missing value.

    Examples
    --------
    >>> import pandas as pd
    >>> table = pd.DataFrame({"size": [1.0, 2.0, None], "colour": ["red", "blue", "red"]})
    >>> encoding = TableEncoding.learn(table)
    >>> encoding.features
    ['size', 'size missing', 'colour=blue', 'colour=red']
    >>> encoding.ties
    (0, 0, 1, 1)
    >>> encoding.encode(table).features.tolist()
    [[1.0, 0.0, 0.0, 1.0], [2.0, 0.0, 1.0, 0.0], [1.5, 0.5, 0.0, 1.0]]
    >>> print(encoding)
    column  holds     features  missing
    size    number           2        1
    colour  category         2        0
    """

    columns: tuple[Column, ...]
    unused: tuple[str, ...] = ()
    marks: tuple[str, ...] = ()

    @classmethod
    def learn(
        cls,
        frame: Any,
        first_row: int = 0,
        *,
        marks: Iterable[Any] = (),
        decimal: str | None = None,
        dates: str | None = None,
    ) -> "TableEncoding":
        """Learn from the training rows; errors name columns.

        Parameters
        ----------
        frame : table
        first_row : int
            Number of the first row, for messages.
        marks : markers of missing values
        decimal, dates : str, optional
            Decimal mark, and format of dates, for texts that could be read in several ways.
        """
        known = tuple(map(text_of_mark, marks))
        read, written = {}, {}
        for name in names_of(frame):
            values = texts.without(values_of(frame, name), known)
            found = texts.learn(name, values, first_row, decimal, dates)
            read[name] = found.read(name, values, first_row) if found else values
            if found:
                written[name] = found
        if not read:
            raise InvalidInputError("X: expected at least one column, found none")
        constant = [name for name, values in read.items() if _is_constant(values)]
        different = [name for name, values in read.items() if texts.differ_in_most_rows(values)]
        unused = [*constant, *different]
        kept = {name: values for name, values in read.items() if name not in unused}
        if not kept:
            raise InvalidInputError(
                "X: expected a column that varies and can be learned from, found only "
                f"{', '.join(map(repr, unused))}"
            )
        _warn_of(constant, "have the same value in every row; left out")
        for name in different:
            _warn_of([name], _why_different(read[name]))
        told = [f"{name!r} ({one.reading})" for name, one in written.items() if name in kept]
        if told:
            more = f" and {len(told) - 5} more" if len(told) > 5 else ""
            warn(
                f"X: text is read as numbers or dates in column(s) {', '.join(told[:5])}{more}",
                UserWarning,
            )
        for name, values in kept.items():
            if pair := texts.nearly_equal(values):
                warn(
                    f"column {name!r}: {pair[0]!r} and {pair[1]!r} count as two categories, but "
                    "differ by spaces or capital letters alone; make them equal if they are one"
                )
        _warn_of(
            [name for name, values in kept.items() if _writes_days(values)],
            "look like dates: whole numbers such as 20240131; write them as 2024-01-31 if they are",
        )
        _warn_of(
            [name for name, values in kept.items() if _counts_rows(values)],
            "look like identifiers: whole numbers that count the rows; drop them if they are",
        )
        columns = [
            Column.learn(name, values, first_row, written.get(name))
            for name, values in kept.items()
        ]
        return cls(tuple(columns), tuple(unused), known)

    @property
    def names(self) -> list[str]:
        """Names of the columns."""
        return [column.name for column in self.columns]

    @property
    def features(self) -> list[str]:
        """Names of the features, in the order of the model's inputs."""
        return [feature for column in self.columns for feature in column.features]

    @property
    def places(self) -> dict[str, list[int]]:
        """For each column, the positions of its features among the model's inputs.

        Examples
        --------
        >>> import pandas as pd
        >>> table = pd.DataFrame({"x": [1, 2, 4, 9], "kind": ["a", "b", "a", "b"]})
        >>> TableEncoding.learn(table).places
        {'x': [0], 'kind': [1, 2]}
        """
        out, start = {}, 0
        for column in self.columns:
            stop = start + len(column.features)
            out[column.name], start = list(range(start, stop)), stop
        return out

    @property
    def dates(self) -> frozenset[str]:
        """Names of the features that are days since the start of 1970."""
        return frozenset(column.name for column in self.columns if column.kind == "date")

    @property
    def lengthscales(self) -> list[str]:
        """Names of the lengthscales, in order."""
        return list(dict.fromkeys(self._lengthscale_of_each))

    @property
    def ties(self) -> tuple[int, ...]:
        """The number of each feature's lengthscale, see :mod:`sharpgp.gp.ties`."""
        number = {name: k for k, name in enumerate(self.lengthscales)}
        return tuple(number[name] for name in self._lengthscale_of_each)

    @property
    def _lengthscale_of_each(self) -> list[str]:
        return [name for column in self.columns for name in column.lengthscales]

    @property
    def n_missing(self) -> int:
        """Number of missing values in the training rows."""
        return sum(column.n_missing for column in self.columns)

    def encode(self, frame: Any, first_row: int = 0, **settings: str | None) -> "Encoded":
        """Features of a table with these columns; errors name column and row.

        ``settings``: decimal mark and format of dates of texts that could be read in several ways.
        """
        require_columns(self.names, names_of(frame))
        read = [
            column.read(
                texts.without(values_of(frame, column.name), self.marks), first_row, **settings
            )
            for column in self.columns
        ]
        pairs = list(zip(self.columns, read, strict=True))
        features = np.hstack([column.encode(values, first_row) for column, values in pairs])
        new = [pair for pair in pairs if pair[1].missing.any() and not pair[0].n_missing]
        _warn_of_gaps([pair for pair in new if pair[0].kind == "category"], "are treated as other")
        _warn_of_gaps(
            [pair for pair in new if pair[0].kind != "category"],
            "are replaced by the median, and intervals do not account for that",
        )
        return Encoded(features, np.column_stack([values.missing for values in read]), self)

    def decode(self, features: np.ndarray) -> dict[str, Values]:
        """Columns by name, decoded from features (n, d).

        Examples
        --------
        >>> import pandas as pd
        >>> table = pd.DataFrame({"x": [1.0, None, 4.0], "kind": ["a", "b", "a"]})
        >>> encoding = TableEncoding.learn(table)
        >>> found = encoding.decode(encoding.encode(table).features)
        >>> found["x"].data.tolist(), found["kind"].data.tolist()
        ([1.0, nan, 4.0], ['a', 'b', 'a'])
        """
        places = self.places
        return {one.name: one.decode(features[:, places[one.name]]) for one in self.columns}

    def _repr_html_(self) -> str:
        """The same table, for notebooks."""
        return as_html(self._rows(), text=2)

    def __str__(self) -> str:
        unused = (f"{name}: not used" for name in self.unused)
        return "\n".join([as_text(self._rows()[: 1 + len(self.columns)], text=2), *unused])

    def _rows(self) -> list[tuple[str, ...]]:
        rows = [("column", "holds", "features", "missing")]
        for column in self.columns:
            holds = ", ".join([column.kind, *column.seasons])
            rows.append((column.name, holds, str(len(column.features)), str(column.n_missing)))
        return [*rows, *((name, "not used", "", "") for name in self.unused)]


@dataclass(frozen=True)
class Encoded:
    """Encoded rows: an estimator uses their features directly.

    Repeated questions about the same rows then encode them once.

    Attributes
    ----------
    features : array of shape (n, d)
    missing : array of shape (n, c)
        Which values of the ``c`` columns the table lacks.
    encoding : TableEncoding
    """

    features: np.ndarray
    missing: np.ndarray
    encoding: TableEncoding

    def __len__(self) -> int:
        return len(self.features)

    def __getitem__(self, rows: np.ndarray) -> "Encoded":
        return Encoded(self.features[rows], self.missing[rows], self.encoding)

    @property
    def gaps(self) -> list[str]:
        """For each row the names of its missing columns, joined by commas; "" if complete.

        Examples
        --------
        >>> import pandas as pd
        >>> table = pd.DataFrame({"x": [1.0, None, 2.0], "y": [1.0, 2.0, None]})
        >>> TableEncoding.learn(table).encode(table).gaps
        ['', 'x', 'y']
        """
        names = self.encoding.names
        return [", ".join(names[j] for j in np.flatnonzero(row)) for row in self.missing]


def require_columns(wanted: Iterable[str], found: Iterable[str]) -> None:
    """Raise unless all wanted columns are found.

    Examples
    --------
    >>> require_columns(["x", "y"], ["x", "z"])
    Traceback (most recent call last):
    ...
    sharpgp.exceptions.InvalidInputError: expected the column(s) y, found x, z
    """
    names = list(found)
    if lacking := [name for name in wanted if name not in names]:
        shown = ", ".join(names[:8]) + (", ..." if len(names) > 8 else "")
        shown += nearest(lacking[0], names)
        raise InvalidInputError(f"expected the column(s) {', '.join(lacking)}, found {shown}")


def text_of_mark(mark: Any) -> str:
    """A marker of missing values, as text.

    Examples
    --------
    >>> text_of_mark(-999.0), text_of_mark(" ? ")
    ('-999', '?')
    """
    return f"{mark:.15g}" if isinstance(mark, numbers.Real) else str(mark).strip()


def _why_different(values: Values) -> str:
    present = values.data[~values.missing]
    digits = np.mean([any(char.isdigit() for char in text) for text in present])
    more = ""
    if digits > _NUMBER_SHARE:
        more = "; if they hold a number, give it a column of its own"
    elif np.mean([" " in text for text in present]) > 0.5:
        more = "; for their words, put a vectoriser before the model"
    return f"have another text in most rows, such as {str(present[0])!r}; left out{more}"


def _warn_of(names: list[str], why: str) -> None:
    if names:
        warn(f"X: column(s) {', '.join(map(repr, names))} {why}", UserWarning)


def _warn_of_gaps(found: list[tuple[Column, Values]], then: str) -> None:
    """Warn once about columns that have gaps but had none in training."""
    if found:
        rows = np.any([values.missing for _, values in found], axis=0)
        names = [repr(column.name) for column, _ in found]
        more = f" and {len(names) - 5} more" if len(names) > 5 else ""
        warn(
            f"column(s) {', '.join(names[:5])}{more}: values are missing in {int(rows.sum())} of "
            f"{len(rows)} rows, though in none of the training rows; they {then}"
        )


def _is_constant(values: Values) -> bool:
    """Whether all rows are equal up to rounding: all missing, or one value without gaps."""
    present = values.data[~values.missing]
    if len(present) == 0:
        return True
    if values.missing.any():
        return False
    if values.holds == "number" and np.isfinite(present).all():
        return constant_columns(present[:, None]).size > 0
    return bool((present == present[0]).all())


def _writes_days(values: Values) -> bool:
    """Whether whole numbers are days, such as 20240131."""
    present = values.data[~values.missing]
    if (
        not values.whole
        or not len(present)
        or not (19000101 <= present.min() <= present.max() < 3e7)
    ):
        return False
    return texts.are_days(f"{value:.0f}" for value in np.unique(present))


def _counts_rows(values: Values) -> bool:
    """Whether whole numbers are row numbers: distinct, with few gaps."""
    n = len(values.data)
    if not values.whole or n <= _MANY or values.missing.any():
        return False
    return bool(np.ptp(values.data) < _NUMBERED * n) and len(np.unique(values.data)) == n
