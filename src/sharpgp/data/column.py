"""One column of a table, and the features that it becomes."""

import math
from collections import Counter
from dataclasses import dataclass

import numpy as np

from sharpgp._stored import agree, stored
from sharpgp.data.reading import Values
from sharpgp.data.texts import Written, learn
from sharpgp.exceptions import InvalidInputError, warn

#: Length in days of each season.
SEASONS = {"day": 1.0, "week": 7.0, "year": 365.2425}
# Data must span this many seasons: one season cannot be told from a trend.
_MIN_SEASONS = {"day": 2, "week": 2, "year": 1}
#: Name of categories that no training row has, or that are too rare.
OTHER = "other"
#: The most frequent categories get a feature each; the others share one, "other".  A limit of
#: memory: with 125 countries, 100 instead of all had four times the CRPS (benchmarks/TRIED.md).
MAX_CATEGORIES = 300
# From this many one-hot features, the most frequent category has its own lengthscale
# (``sharpgp bench evidence mixed_tables``).
_MIN_CATEGORIES_APART = 3
#: With fewer categories, 90 % intervals for new ones rest on few.
MIN_LEVELS = 9
#: What a column may hold.
KINDS = ("number", "boolean", "ordered", "category", "date")


@stored("Column")
@dataclass(frozen=True)
class Column:
    r"""A column: its name, what it holds, and how that becomes features.

    - ``"number"``, ``"boolean"`` (0 and 1), ``"ordered"`` (0, 1, 2, ... in the order of the
      categories): one feature.  A missing value is ``fill``, the median.  If training rows lack
      values, a second feature marks gaps by ``step`` in place of 0: one standard deviation of the
      column, so that both can share a lengthscale.
    - ``"category"``: one 0/1 feature per category, and one for missing values if training rows lack
      any.  They share a lengthscale.  If there are three or more, the most common category has its
      own, as it may be unlike all others.  Unseen categories are ``other``: ``(1 - sqrt(1 + k)) /
      k`` in all ``k`` features, as far from each category as the categories are from one another.
    - ``"date"``: time in days, as a number; and for each of its seasons (day, week, year) a point
      on the unit circle, two features.

    Attributes
    ----------
    n_missing : int
        Training rows that lack the value.
    commonest : str
        The category that most training rows have.
    written : Written or None
        How training rows write numbers or dates as text, if they do.

    Examples
    --------
    >>> Column("colour", "category", ("blue", "red")).features
    ['colour=blue', 'colour=red']
    >>> Column("size", fill=2.5, step=1.2, n_missing=3).features
    ['size', 'size missing']
    """

    name: str
    kind: str = "number"
    categories: tuple[str, ...] = ()
    fill: float = 0.0
    step: float = 1.0
    seasons: tuple[str, ...] = ()
    n_missing: int = 0
    commonest: str = ""
    written: Written | None = None

    def _restored(self) -> None:
        agree("kind of column", self.kind in KINDS, True)
        agree("categories", bool(self.categories), self.kind in ("category", "ordered"))
        agree("seasons", all(season in SEASONS for season in self.seasons), True)
        agree("fill and step", math.isfinite(self.fill) and self.step > 0.0, True)

    @classmethod
    def learn(
        cls, name: str, values: Values, first_row: int = 0, written: Written | None = None
    ) -> "Column":
        """Learn a column from the values of the training rows."""
        n_missing = int(values.missing.sum())
        if values.holds == "text" and values.order is None:
            counts = Counter(values.data[~values.missing].tolist())
            kept = tuple(sorted(text for text, _ in counts.most_common(MAX_CATEGORIES)))
            commonest = min(counts, key=lambda text: (-counts[text], text))
            return cls(name, "category", kept, n_missing=n_missing, commonest=commonest)
        kind = "ordered" if values.order is not None else values.holds
        column = cls(name, kind, values.order or ())
        known = column._numbers(values, first_row)[~values.missing]
        fill, step = float(np.median(known)), float(known.std())
        if kind == "boolean":
            fill = float(fill > 0.5)
        seasons = seasons_of(known) if kind == "date" else ()
        # Magnitudes above 1e150 overflow when squared.
        step = step if 0.0 < step < math.inf else 1.0
        known_as = column.categories, fill, step, seasons, n_missing
        return cls(name, kind, *known_as, written=written)

    @property
    def features(self) -> list[str]:
        """Names of the features."""
        names = [f"{self.name}={value}" for value in self.categories]
        names = names if self.kind == "category" else [self.name]
        names = [*names, f"{self.name} missing"] if self.n_missing else names
        circles = [f"{self.name} {part} of {season}" for season in self.seasons for part in _PARTS]
        return [*names, *circles]

    @property
    def lengthscales(self) -> list[str]:
        """Names of the lengthscales of the features; features with equal names share one."""
        own = self.features[: len(self.features) - 2 * len(self.seasons)]
        circles = [f"{self.name} ({season})" for season in self.seasons for _ in _PARTS]
        apart = f"{self.name}={self.commonest}" if len(own) >= _MIN_CATEGORIES_APART else None
        return [*(name if name == apart else self.name for name in own), *circles]

    @property
    def other(self) -> float:
        """Value of every feature for a category that no training row has."""
        k = len(self.features)
        return (1.0 - math.sqrt(1.0 + k)) / k

    def read(self, values: Values, first_row: int, **settings: str | None) -> Values:
        """Values written as text, parsed into the numbers or dates of the column.

        ``settings``: decimal mark and format of dates, where training rows were no text.
        """
        if values.holds != "text" or self.kind not in ("number", "boolean", "date"):
            return values
        written = self.written or learn(self.name, values, first_row, **settings)
        return written.read(self.name, values, first_row) if written else values

    def encode(self, values: Values, first_row: int) -> np.ndarray:
        """Features (n, f) of values; the first is in row ``first_row``, for errors."""
        if self.kind == "category":
            return self._one_hot(values)
        self._check(values)
        numbers = self._numbers(values, first_row)
        missing = np.isnan(numbers)
        filled = np.where(missing, self.fill, numbers)
        parts = [filled[:, None]]
        if self.n_missing:
            parts.append(np.where(missing, self.step, 0.0)[:, None])
        for season in self.seasons:
            parts.append(np.where(missing[:, None], 0.0, on_circle(filled, season)))
        return np.hstack(parts)

    def decode(self, features: np.ndarray) -> Values:
        """Values from features (n, f); categories that no training row has are "other".

        Examples
        --------
        >>> colour = Column("colour", "category", ("blue", "red"))
        >>> colour.decode(np.array([[0.0, 1.0], [1.0, 0.0]])).data.tolist()
        ['red', 'blue']
        """
        n = len(features)
        none = np.zeros(n, dtype=bool)
        if self.kind == "category":
            names = np.array([*self.categories, *([""] if self.n_missing else []), OTHER, None])
            known = (features == 1.0).any(axis=1)
            place = np.where(known, features.argmax(axis=1), len(names) - 2)
            missing = place == len(self.categories) if self.n_missing else none
            return Values("text", names[:-1][place], missing)
        missing = features[:, 1] > 0.0 if self.n_missing else none
        numbers = np.where(missing, math.nan, features[:, 0])
        if self.kind == "ordered":
            names = np.array([*self.categories, "", None])[:-1]
            place = np.where(missing, len(self.categories), features[:, 0]).astype(int)
            return Values("text", names[place], missing, order=self.categories, declared=True)
        return Values("date" if self.kind == "date" else "number", numbers, missing)

    def _check(self, values: Values) -> None:
        expected = "text" if self.kind == "ordered" else self.kind
        same = values.holds == expected or {values.holds, expected} == {"number", "boolean"}
        if not (same or values.missing.all()):
            wanted = {"number": "numbers", "boolean": "booleans", "date": "dates"}
            raise InvalidInputError(
                f"column {self.name!r}: expected {wanted.get(self.kind, 'categories')} as in "
                f"training, found {values.holds}"
            )

    def _numbers(self, values: Values, first_row: int) -> np.ndarray:
        """Values (n,) as numbers, NaN where missing."""
        if values.missing.all():
            return np.full(len(values.missing), np.nan)
        if self.kind == "ordered":
            position = {text: float(k) for k, text in enumerate(self.categories)}
            unknown = _warn_of_unseen(self, values, position, "missing values")
            found = [position.get(text, math.nan) for text in values.data]
            return np.where(values.missing | unknown, math.nan, found)
        data: np.ndarray = values.data
        bad = np.flatnonzero(np.isinf(data))
        if bad.size:
            raise InvalidInputError(
                f"column {self.name!r}: expected finite numbers, found inf in row "
                f"{first_row + int(bad[0])}"
            )
        return data

    def _one_hot(self, values: Values) -> np.ndarray:
        text = values.data
        if values.holds != "text":
            # Training rows have text here: write numbers as text, too.
            text = np.array([*(f"{value:g}" for value in values.data), None])[:-1]
        position = {name: k for k, name in enumerate(self.categories)}
        known = Values("text", text, values.missing)
        _warn_of_unseen(self, known, position, OTHER)
        where = np.array([position.get(name, -1) for name in text], dtype=np.int64)
        where[values.missing] = len(position) if self.n_missing else -1
        out = np.full((len(where), len(self.features)), self.other)
        out[where >= 0] = 0.0
        rows = np.flatnonzero(where >= 0)
        out[rows, where[rows]] = 1.0
        return out


_PARTS = ("sine", "cosine")


def _warn_of_unseen(
    column: Column, values: Values, known: dict[str, int] | dict[str, float], taken_as: str
) -> np.ndarray:
    """Warn about categories that no training row has; their mask (n,)."""
    unseen = np.array([text not in known for text in values.data], dtype=bool) & ~values.missing
    if unseen.any() and len(known) < MAX_CATEGORIES:
        names = sorted(set(values.data[unseen].tolist()))
        shown = ", ".join(repr(name) for name in names[:3]) + (", ..." if len(names) > 3 else "")
        rests = taken_as == "other" and len(known) < MIN_LEVELS
        few = f"; intervals there rest on {len(known)} categories at most" if rests else ""
        warn(
            f"column {column.name!r}: {shown} in {int(unseen.sum())} of {len(unseen)} rows, but in "
            f"no training row; treated as {taken_as}{few}"
        )
    return unseen


def seasons_of(days: np.ndarray) -> tuple[str, ...]:
    """Seasons (year, week, day) that dates (n,), in days, span often enough.

    Examples
    --------
    >>> seasons_of(np.arange(800.0)), seasons_of(np.arange(0.0, 3.0, 1 / 24))
    (('week', 'year'), ('day',))
    """
    span = float(np.ptp(days))
    found = []
    for name, length in SEASONS.items():
        within = np.unique(np.floor(days) % 7 if name == "week" else days % length)
        if span >= _MIN_SEASONS[name] * length and len(within) > 1:
            found.append(name)
    return tuple(found)


def on_circle(days: np.ndarray, season: str) -> np.ndarray:
    """Sine and cosine (n, 2) of the time within a season.

    Examples
    --------
    >>> on_circle(np.array([0.0, 7.0]), "week").round(12).tolist()
    [[0.0, 1.0], [-0.0, 1.0]]
    """
    angle = 2.0 * np.pi * days / SEASONS[season]
    return np.column_stack([np.sin(angle), np.cos(angle)])
