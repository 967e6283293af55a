"""Models that were fitted on a table in a file, with the target's name beside them."""

import os
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from sharpgp import persistence
from sharpgp.estimator import SharpGPRegressor
from sharpgp.exceptions import InvalidInputError, SavedModelError, warn
from sharpgp.frames.column import Column
from sharpgp.frames.encoding import (
    Encoded,
    TableEncoding,
    missing_columns,
    refuse_odd_numbers,
)
from sharpgp.frames.reading import values_of
from sharpgp.tabular.files import format_of, names_in, read_whole
from sharpgp.tabular.groups import groups_in


class Labelled(NamedTuple):
    """Rows as a model takes them, their targets [n], the target's name, and groups [n] if any."""

    X: Encoded | np.ndarray
    y: np.ndarray
    target: str
    groups: list[str] | None


@dataclass(frozen=True)
class SavedModel:
    """A fitted model, the name of its target, if it is known, and how its files mark gaps.

    ``missing`` are texts that mark a missing value, besides the usual ones.  A model fitted
    on an array takes the columns of a table in their order, as numbers.
    """

    model: SharpGPRegressor
    target: str | None = None
    missing: tuple[str, ...] = ()

    def save(self, path: str | os.PathLike[str]) -> None:
        """Save all of it in one file."""
        persistence.save(self.model, path, target=self.target, missing=self.missing)

    def encoding_for(
        self, path: str | os.PathLike[str], unused: Iterable[str] = ()
    ) -> TableEncoding:
        """The encoding for a file, which has all columns that it needs."""
        found = names_in(path)
        encoding: TableEncoding | None = getattr(self.model, "encoding_", None)
        if encoding is None:
            names = [name for name in found if name not in set(unused)]
            if len(names) != self.model.n_features_in_:
                raise InvalidInputError(
                    f"{path}: expected {self.model.n_features_in_} columns, as many as the model "
                    f"has features, found {len(names)}"
                )
            return TableEncoding(tuple(Column(name) for name in names))
        if any(name not in found for name in encoding.names):
            raise InvalidInputError(f"{path}: {missing_columns(encoding.names, found)}")
        return encoding

    def read(
        self,
        path: str | os.PathLike[str],
        *,
        target: str | None = None,
        groups: str | None = None,
    ) -> Labelled:
        """A whole labelled file, without rows that have no target."""
        target = target or self.target
        encoding = self.encoding_for(path, [name for name in (target, groups) if name])
        table = read_whole(path, self.missing)
        try:
            table, y = labelled(table, target or "target")
            rows = as_fitted(self.model, encoding, table, 1)
            return Labelled(rows, y, target or "", groups_in(table, groups))
        except InvalidInputError as error:
            raise InvalidInputError(f"{path}: {error}") from None


def as_fitted(
    model: SharpGPRegressor, encoding: TableEncoding, table: Any, first_row: int
) -> Encoded | np.ndarray:
    """Rows of an Arrow table as the model takes them."""
    rows = encoding.encode(table, first_row)
    return rows if hasattr(model, "encoding_") else rows.features


def labelled(table: Any, target: str) -> tuple[Any, np.ndarray]:
    """The rows of an Arrow table that have a target, and these targets [n].

    Rows are counted from 1 in messages, without the header.
    """
    if target not in table.column_names:
        raise InvalidInputError(missing_columns([target], table.column_names))
    values = values_of(table, target)
    if values.missing.all():
        raise InvalidInputError(f"column {target!r}: expected values, found none")
    if values.holds not in ("number", "boolean"):
        raise InvalidInputError(f"column {target!r}: expected numbers, found {values.holds}")
    bad = np.flatnonzero(np.isinf(values.data))
    if bad.size:
        raise InvalidInputError(
            f"column {target!r}: expected finite numbers, found inf in row {int(bad[0]) + 1}"
        )
    if not values.missing.any():
        return table, values.data
    rows = np.flatnonzero(values.missing) + 1
    shown = ", ".join(str(row) for row in rows[:8]) + (", ..." if len(rows) > 8 else "")
    warn(
        f"column {target!r}: {len(rows)} of {len(values.data)} values are missing; row(s) {shown} "
        "are left out",
        UserWarning,
    )
    return table.take(np.flatnonzero(~values.missing)), values.data[~values.missing]


def load_model(path: str | os.PathLike[str], *, device: Any = "auto") -> SavedModel:
    """Load a model that :func:`fit_file` or ``SharpGPRegressor.save`` saved."""
    content = persistence.read(path, device=device)
    model, target = content["model"], content.get("target")
    missing = tuple(map(str, content.get("missing", ())))
    if not isinstance(model, SharpGPRegressor) or not isinstance(target, str | None):
        raise SavedModelError(
            f"cannot load {path}: expected a SharpGPRegressor, found {type(model).__name__}"
        )
    return SavedModel(model, target, missing)


def fit_file(
    path: str | os.PathLike[str],
    target: str,
    model: SharpGPRegressor,
    *,
    drop: Iterable[str] = (),
    groups: str | None = None,
    missing: Sequence[str] = (),
) -> SavedModel:
    r"""Fit a model on a CSV, Excel or Parquet file.

    Parameters
    ----------
    path : str or path
    target : str
        Name of the target's column.
    model : SharpGPRegressor
    drop : names of columns that are not used
    groups : str, optional
        Name of a column, no feature, that tells which rows belong together.
    missing : sequence of str
        Texts that mark a missing value in CSV and Excel files, such as ``"?"`` or ``"-999"``,
        besides empty ones and ``NA``; later files of this model are read in the same way.

    Examples
    --------
    >>> import os, tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     path = os.path.join(folder, "data.csv")
    ...     with open(path, "w") as file:
    ...         _ = file.write("x,kind,y\n")
    ...         _ = file.writelines(f"{i % 9},{'ab'[i % 2]},{i % 7}\n" for i in range(30))
    ...     fitted = fit_file(path, "y", SharpGPRegressor(calibration="kuleshov18"))
    >>> fitted.model.encoding_.features
    ['x', 'kind=a', 'kind=b']
    """
    format_of(path)
    table = read_whole(path, missing)
    try:
        unused = [target, *drop, *([groups] if groups else [])]
        if any(name not in table.column_names for name in unused):
            raise InvalidInputError(missing_columns(unused, table.column_names))
        if len(set(unused)) == len(table.column_names):
            raise InvalidInputError("expected at least one column besides the target, found none")
        together = groups_in(table, groups)
        for name in (name for name in table.column_names if name not in unused):
            refuse_odd_numbers(name, values_of(table, name), first_row=1)
        rows, y = labelled(table, target)
        if together is not None and len(y) < len(together):
            together = groups_in(rows, groups)
        rows = rows.drop_columns(sorted(set(unused)))
        X = TableEncoding.learn(rows, first_row=1).encode(rows, first_row=1)
    except InvalidInputError as error:
        raise InvalidInputError(f"{path}: {error}") from None
    return SavedModel(model.fit(X, y, groups=together), target, tuple(missing))
