"""How the columns of a table become features: numbers as they are, categories one-hot."""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import numpy as np

from sharpgp._stored import Several, agree, stored
from sharpgp.exceptions import InvalidInputError
from sharpgp.tabular.files import missing_columns

#: Different texts in a column beyond which it is taken for an identifier, not for categories.
MOST_CATEGORIES = 100


#: What a column may hold.
KINDS = ("number", "boolean", "category")


@stored("Column", name=str, kind=str, categories=Several(str))
@dataclass(frozen=True)
class Column:
    """One column of a table: its name, what it holds, and the categories if it holds those."""

    name: str
    kind: str = "number"
    categories: tuple[str, ...] = ()

    def _restored(self) -> None:
        agree("kind of column", self.kind in KINDS, True)
        agree("categories", bool(self.categories), self.kind == "category")

    @property
    def features(self) -> list[str]:
        """Names of the features that it becomes."""
        return [f"{self.name}={value}" for value in self.categories] or [self.name]

    def arrow_type(self) -> Any:
        """What it is read as from a CSV file."""
        import pyarrow as pa

        return {"number": pa.float64(), "boolean": pa.bool_(), "category": pa.string()}[self.kind]

    def encode(self, values: Any, first_row: int) -> np.ndarray:
        """Features [n, f] of an Arrow array whose first value is in row ``first_row``."""
        if self.kind != "category":
            return _numbers(values, self.name, first_row)[:, None]
        import pyarrow as pa
        import pyarrow.compute as pc

        text = _text(values)
        position = pc.index_in(text, value_set=pa.array(self.categories, pa.string()))
        if position.null_count:
            row = _first(position.is_null())
            value = text[row].as_py()
            if value is None:
                raise _missing(self.name, first_row + row)
            known = ", ".join(self.categories[:8]) + (", ..." if len(self.categories) > 8 else "")
            raise InvalidInputError(
                f"column {self.name!r}: expected one of {known}, found {value!r} in row "
                f"{first_row + row}; no row of the training data has it"
            )
        out = np.zeros((len(text), len(self.categories)))
        out[np.arange(len(text)), position.to_numpy(zero_copy_only=False)] = 1.0
        return out


@stored("TableEncoding", columns=Several(Column), target=str | None)
@dataclass(frozen=True)
class TableEncoding:
    """The columns that a model was fitted on, in order, and the target's name.

    Examples
    --------
    >>> import pyarrow as pa
    >>> table = pa.table({"size": [1.0, 2.0], "colour": ["red", "blue"], "y": [0.1, 0.2]})
    >>> encoding = TableEncoding.learn(table, target="y")
    >>> encoding.features
    ['size', 'colour=blue', 'colour=red']
    >>> encoding.encode(table).tolist()
    [[1.0, 0.0, 1.0], [2.0, 1.0, 0.0]]
    """

    columns: tuple[Column, ...]
    target: str | None = None

    @classmethod
    def learn(cls, table: Any, target: str, drop: Iterable[str] = ()) -> "TableEncoding":
        """Take every column except the target and those to drop; errors name the column."""
        unused = [target, *drop]
        if any(name not in table.column_names for name in unused):
            raise InvalidInputError(missing_columns(unused, table.column_names))
        names = [name for name in table.column_names if name not in unused]
        if not names:
            raise InvalidInputError("expected at least one column beside the target, found none")
        return cls(tuple(_column(name, table[name]) for name in names), target)

    @property
    def names(self) -> list[str]:
        """Names of the columns."""
        return [column.name for column in self.columns]

    @property
    def features(self) -> list[str]:
        """Names of the features, in the order of the model's inputs."""
        return [feature for column in self.columns for feature in column.features]

    def encode(self, table: Any, first_row: int = 1) -> np.ndarray:
        """Features [n, d] of an Arrow table or batch; errors name column and row."""
        parts = [column.encode(table[column.name], first_row) for column in self.columns]
        return np.hstack(parts)

    def encode_target(self, table: Any, target: str | None = None) -> np.ndarray:
        """Target [n] of an Arrow table, under another name than in training if given."""
        name = target or self.target
        if name is None or name not in table.schema.names:
            raise InvalidInputError(missing_columns([name or "target"], table.schema.names))
        return _numbers(table[name], name, 1)


def _column(name: str, values: Any) -> Column:
    """Decide what a column is by the values that a model is fitted on."""
    import pyarrow as pa
    import pyarrow.compute as pc

    kind = values.type
    if pa.types.is_null(kind):
        raise InvalidInputError(f"column {name!r}: expected values, found none; drop it")
    if _numeric(kind):
        return Column(name, "boolean" if pa.types.is_boolean(kind) else "number")
    if not (pa.types.is_dictionary(kind) or _textual(kind)):
        raise InvalidInputError(
            f"column {name!r}: expected numbers or categories, found {kind}; convert or drop it"
        )
    text = _text(values)
    different = pc.unique(text.drop_null()).to_pylist()
    numbers = [value for value in different if _is_number(value)]
    if 0 < len(different) - len(numbers) < len(numbers):
        odd = next(value for value in different if not _is_number(value))
        row = _first(pc.equal(text, odd)) + 1
        raise InvalidInputError(
            f"column {name!r}: expected numbers, found {odd!r} in row {row}; repair or drop it"
        )
    if len(different) > MOST_CATEGORIES:
        raise InvalidInputError(
            f"column {name!r}: expected at most {MOST_CATEGORIES} categories, found "
            f"{len(different)} different texts; drop it"
        )
    return Column(name, "category", tuple(sorted(different)))


def _numbers(values: Any, name: str, first_row: int) -> np.ndarray:
    """A column as float64 [n], without missing values."""
    import pyarrow as pa

    if not _numeric(values.type):
        raise InvalidInputError(f"column {name!r}: expected numbers, found {values.type}")
    if values.null_count:
        raise _missing(name, first_row + _first(values.is_null()))
    if pa.types.is_boolean(values.type):
        values = values.cast(pa.int8())
    numbers = np.asarray(values.cast(pa.float64(), safe=False))
    bad = np.flatnonzero(~np.isfinite(numbers))
    if bad.size:
        row = first_row + int(bad[0])
        if np.isnan(numbers[bad[0]]):
            raise _missing(name, row)
        raise InvalidInputError(f"column {name!r}: expected finite numbers, found inf in row {row}")
    return numbers


def _text(values: Any) -> Any:
    """Categories as one Arrow array of strings."""
    import pyarrow as pa

    if isinstance(values, pa.ChunkedArray):
        values = values.combine_chunks()
    if pa.types.is_dictionary(values.type):
        values = values.dictionary_decode()
    return values.cast(pa.string())


def _missing(name: str, row: int) -> InvalidInputError:
    return InvalidInputError(
        f"column {name!r}: expected a value, found none in row {row}; fill it in, or drop the row "
        "or the column"
    )


def _numeric(kind: Any) -> bool:
    from pyarrow import types

    return bool(
        types.is_integer(kind)
        or types.is_floating(kind)
        or types.is_boolean(kind)
        or types.is_decimal(kind)
    )


def _textual(kind: Any) -> bool:
    from pyarrow import types

    return bool(types.is_string(kind) or types.is_large_string(kind) or types.is_string_view(kind))


def _is_number(text: str) -> bool:
    try:
        float(text)
    except ValueError:
        return False
    return True


def _first(mask: Any) -> int:
    """Position of the first true value."""
    return int(np.argmax(np.asarray(mask)))
