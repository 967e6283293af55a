"""A column that tells which rows of a table belong together."""

from typing import Any

from sharpgp.exceptions import InvalidInputError
from sharpgp.frames.encoding import missing_columns


def groups_in(table: Any, name: str | None) -> list[str] | None:
    """Which rows of a table belong together, as text; every row has to tell."""
    if name is None:
        return None
    if name not in table.column_names:
        raise InvalidInputError(missing_columns([name], table.column_names))
    labels = table[name].to_pylist()
    if None in labels:
        raise InvalidInputError(
            f"column {name!r}: expected a group in every row, found none in row "
            f"{labels.index(None) + 1}"
        )
    return [str(label) for label in labels]
