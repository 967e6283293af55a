"""Models that were fitted on a table in a file, with the target's name beside them."""

import os
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Any

from sharpgp import persistence
from sharpgp._far_targets import rows_numbered
from sharpgp.estimator import SharpGPRegressor
from sharpgp.exceptions import InvalidInputError, SavedModelError
from sharpgp.frames.column import Column
from sharpgp.frames.encoding import TableEncoding
from sharpgp.tabular.files import AS_GUESSED, check_columns, names_in, read_whole
from sharpgp.tabular.labelled import Labelled, as_fitted, groups_in, labelled, training_rows
from sharpgp.tabular.layout import Reading


@dataclass(frozen=True)
class SavedModel:
    """A fitted model, and the name of its target, if it is known.

    A model fitted on an array takes the columns of a table in their order, as numbers.
    """

    model: SharpGPRegressor
    target: str | None = None

    @property
    def missing(self) -> tuple[str, ...]:
        """Texts that mark a missing value, besides the usual ones."""
        encoding: TableEncoding | None = getattr(self.model, "encoding_", None)
        return () if encoding is None else tuple(encoding.marks)

    def save(self, path: str | os.PathLike[str]) -> None:
        """Save all of it in one file."""
        persistence.save(self.model, path, target=self.target)

    def encoding_for(
        self,
        path: str | os.PathLike[str],
        unused: Iterable[str] = (),
        reading: Reading = AS_GUESSED,
    ) -> TableEncoding:
        """The encoding for a file, which has all columns that it needs."""
        encoding: TableEncoding | None = getattr(self.model, "encoding_", None)
        if encoding is None:
            names = [name for name in names_in(path, reading) if name not in set(unused)]
            if len(names) != self.model.n_features_in_:
                raise InvalidInputError(
                    f"{path}: expected {self.model.n_features_in_} columns, as many as the model "
                    f"has features, found {len(names)}"
                )
            return TableEncoding(tuple(Column(name) for name in names))
        check_columns(path, encoding.names, reading)
        return encoding

    def read(
        self,
        path: str | os.PathLike[str],
        *,
        target: str | None = None,
        groups: str | None = None,
        reading: Reading = AS_GUESSED,
    ) -> Labelled:
        """A whole labelled file, without rows that have no target."""
        target = target or self.target
        encoding = self.encoding_for(path, [name for name in (target, groups) if name], reading)
        table, reading = read_whole(path, self.missing, reading)
        try:
            table, y, numbers = labelled(table, target or "target", self.missing, reading.decimal)
            rows = as_fitted(self.model, encoding, table, 1)
            return Labelled(rows, y, target or "", groups_in(table, groups), numbers)
        except InvalidInputError as error:
            raise InvalidInputError(f"{path}: {error}") from None


def load_model(path: str | os.PathLike[str], *, device: Any = "auto") -> SavedModel:
    """Load a model that :func:`fit_file` or ``SharpGPRegressor.save`` saved."""
    content = persistence.read(path, device=device)
    model, target = content["model"], content.get("target")
    if not isinstance(model, SharpGPRegressor) or not isinstance(target, str | None):
        raise SavedModelError(
            f"cannot load {path}: expected a SharpGPRegressor, found {type(model).__name__}"
        )
    encoding = getattr(model, "encoding_", None)
    if encoding is not None and "missing" in content:  # files of earlier versions
        model.encoding_ = replace(encoding, marks=tuple(map(str, content["missing"])))
    return SavedModel(model, target)


def fit_file(
    path: str | os.PathLike[str],
    target: str,
    model: SharpGPRegressor,
    *,
    drop: Iterable[str] = (),
    groups: str | None = None,
    missing: Sequence[str] = (),
    reading: Reading = AS_GUESSED,
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
    reading : Reading
        Encoding, decimal mark, lines above the header and the like, where they are not guessed.

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
    columns: dict[str, Any] = {"drop": drop, "groups": groups, "missing": missing}
    return fit_rows(training_rows(path, target, **columns, reading=reading), model)


def fit_rows(rows: Labelled, model: SharpGPRegressor) -> SavedModel:
    """Fit a model on rows that :func:`~sharpgp.tabular.labelled.training_rows` has read."""
    with rows_numbered(rows.numbers.tolist()):
        model = model.fit(rows.X, rows.y, groups=rows.groups)
    return SavedModel(model, rows.target)
