"""The first pass: which columns there are, what they hold, and a sample of the rows."""

import re
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from sharpgp.exceptions import InvalidInputError, warn
from sharpgp.frames.column import MOST_CATEGORIES, Column
from sharpgp.frames.encoding import TableEncoding
from sharpgp.frames.reading import values_of
from sharpgp.tabular.labelled import groups_in
from sharpgp.tabular.streamed.draw import Draw
from sharpgp.tabular.streamed.rows import Unit, batches_of

# Different texts of a column that are counted; beyond, the sample tells which are frequent.
_MOST_COUNTED = 10_000


@dataclass(frozen=True)
class Table:
    """Which columns of the files are what, and which rows are drawn."""

    features: tuple[str, ...]
    target: str
    groups: str | None
    draw: Draw

    @property
    def names(self) -> list[str]:
        """Every column that is read."""
        return [*self.features, self.target, *([self.groups] if self.groups else [])]

    def roles(self, batch: Any, unit: Unit, place: int) -> tuple[np.ndarray, np.ndarray]:
        """Masks of the rows of a batch that are held out, and that are sampled."""
        groups = in_row(lambda: groups_in(batch, self.groups), unit.row + place)
        return self.draw.of(unit.first + place, batch.num_rows, groups)

    def targets(self, batch: Any, row: int) -> tuple[np.ndarray, np.ndarray]:
        """Targets of a batch that begins with row ``row``, and which of them are there."""
        values = values_of(batch, self.target)
        if values.holds not in ("number", "boolean") and not values.missing.all():
            raise InvalidInputError(
                f"column {self.target!r}: expected numbers, found {values.holds}"
            )
        data = values.data
        if values.missing.all():
            data = np.full(len(values.missing), np.nan)
        _check_finite(data, self.target, row)
        return data, ~values.missing


def _check_finite(data: np.ndarray, name: str, row: int) -> None:
    """Raise where a column's numbers, from row ``row`` on, are infinite."""
    bad = np.flatnonzero(np.isinf(data))
    if bad.size:
        raise InvalidInputError(
            f"column {name!r}: expected finite numbers, found inf in row {row + int(bad[0])}"
        )


def in_row(ask: Any, row: int) -> Any:
    """``ask()``, with row numbers of its errors counted from ``row`` instead of 1."""
    try:
        return ask()
    except InvalidInputError as error:
        text = re.sub(
            r"in row (\d+)", lambda found: f"in row {int(found[1]) + row - 1}", str(error)
        )
        raise InvalidInputError(text) from None


@dataclass
class Census:
    """What a pass over rows has counted, and the rows that were drawn, as Arrow tables."""

    rows: int = 0
    unlabelled: int = 0
    missing: Counter[str] = field(default_factory=Counter)
    texts: dict[str, Counter[str] | None] = field(default_factory=dict)
    sample: list[Any] = field(default_factory=list)
    held: list[Any] = field(default_factory=list)

    def add(self, other: "Census") -> None:
        """Take further rows in."""
        self.rows += other.rows
        self.unlabelled += other.unlabelled
        self.missing.update(other.missing)
        for name, counts in other.texts.items():
            self.texts[name] = _together(self.texts.get(name, Counter()), counts)
        self.sample += other.sample
        self.held += other.held


def _together(one: Counter[str] | None, other: Counter[str] | None) -> Counter[str] | None:
    """Counts of both; None where there are too many different texts."""
    if one is None or other is None:
        return None
    both = one + other
    return both if len(both) <= _MOST_COUNTED else None


@dataclass(frozen=True)
class Survey:
    """Counts the rows of one unit: a function that can be sent to where the unit is visited."""

    table: Table
    batch_rows: int

    def __call__(self, unit: Unit) -> Census:
        """The census of a unit."""
        found = Census()
        for place, batch in batches_of(unit, self.table.names, self.batch_rows):
            try:
                found.add(self._batch(batch, unit, place))
            except InvalidInputError as error:
                raise InvalidInputError(f"{unit.source}: {error}") from None
        return found

    def _batch(self, batch: Any, unit: Unit, place: int) -> Census:
        import pyarrow as pa

        held, sampled = self.table.roles(batch, unit, place)
        _, there = self.table.targets(batch, unit.row + place)
        found = Census(int(there.sum()), int((~there).sum()))
        for name in self.table.features:
            values = values_of(batch, name)
            if values.holds == "number":
                _check_finite(values.data, name, unit.row + place)
            found.missing[name] = int((values.missing & there).sum())
            if values.holds == "text" and values.order is None:
                present = values.data[~values.missing & there].tolist()
                found.texts[name] = _together(Counter(), Counter(present))
        for rows, into in ((held & there, found.held), (sampled & there, found.sample)):
            if rows.any():
                into.append(pa.Table.from_batches([batch.filter(pa.array(rows))]))
        return found


def drawn_rows(tables: Sequence[Any], what: str) -> Any:
    """The tables of drawn rows as one."""
    import pyarrow as pa

    rows = sum(table.num_rows for table in tables)
    if rows < 2:
        raise InvalidInputError(
            f"expected rows with a target, at least 2 of them to {what}, found {rows}"
        )
    whole = pa.concat_tables(map(_open_where_empty, tables), promote_options="permissive")
    empty = [pa.float64() if pa.types.is_null(one) else one for one in whole.schema.types]
    return whole.cast(pa.schema(list(zip(whole.column_names, empty, strict=True))))


def _open_where_empty(table: Any) -> Any:
    """The table with columns of no type where they hold nothing, so that others tell theirs."""
    import pyarrow as pa

    for place, name in enumerate(table.column_names):
        if table.column(place).null_count == table.num_rows:
            table = table.set_column(place, name, pa.nulls(table.num_rows))
    return table


def encoding_of(sample: Any, census: Census, marks: Sequence[str] = ()) -> TableEncoding:
    """How columns become features: learned from the sample, with gaps and categories of all rows.

    Medians, deviations, seasons and how text is read are those of the sample.
    """
    try:
        learned = TableEncoding.learn(sample, first_row=1, marks=marks)
    except InvalidInputError as error:
        # Its rows are not numbered as those of the files are.
        raise InvalidInputError(re.sub(r" in row \d+", "", str(error))) from None
    columns = tuple(_completed(column, census) for column in learned.columns)
    if census.unlabelled:
        warn(
            f"{census.unlabelled} of {census.rows + census.unlabelled} targets are missing; these "
            "rows are left out",
            UserWarning,
        )
    return replace(learned, columns=columns)


def _completed(column: Column, census: Census) -> Column:
    missing = max(census.missing[column.name], column.n_missing)  # of text, some marks are gaps
    counts = census.texts.get(column.name)
    if column.kind != "category" or counts is None:
        return replace(column, n_missing=missing)
    # The order of equal counts is that of the names: it must not depend on who counted first.
    frequent = sorted(counts, key=lambda text: (-counts[text], text))[:MOST_CATEGORIES]
    return replace(
        column,
        n_missing=missing,
        categories=tuple(sorted(frequent)),
        commonest=frequent[0] if frequent else "",
    )
