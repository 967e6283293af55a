"""Models that were fitted on a table, with the encoding of its columns beside them."""

import os
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from sharpgp import persistence
from sharpgp.estimator import SharpGPRegressor
from sharpgp.exceptions import InvalidInputError, SavedModelError
from sharpgp.tabular.encoding import Column, TableEncoding
from sharpgp.tabular.files import format_of, missing_columns, names_in, read_whole
from sharpgp.tabular.groups import groups_in


class Labelled(NamedTuple):
    """Features [n, d] and target [n], their names, and groups [n] if there are any."""

    X: np.ndarray
    y: np.ndarray
    features: list[str]
    target: str
    groups: list[str] | None


@dataclass(frozen=True)
class SavedModel:
    """A fitted model and the encoding of the table that it was fitted on.

    ``encoding`` is None for a model that was fitted on an array without names: it then takes the
    columns of a table in their order.
    """

    model: SharpGPRegressor
    encoding: TableEncoding | None

    def save(self, path: str | os.PathLike[str]) -> None:
        """Save both in one file."""
        persistence.save(self.model, path, table=self.encoding)

    def encoding_for(
        self, path: str | os.PathLike[str], unused: Iterable[str] = ()
    ) -> TableEncoding:
        """The encoding for a file, which has all columns that it needs."""
        found = names_in(path)
        if self.encoding is None:
            names = [name for name in found if name not in set(unused)]
            if len(names) != self.model.n_features_in_:
                raise InvalidInputError(
                    f"{path}: expected {self.model.n_features_in_} columns, as many as the model "
                    f"has features, found {len(names)}"
                )
            return TableEncoding(tuple(Column(name) for name in names))
        if any(name not in found for name in self.encoding.names):
            raise InvalidInputError(f"{path}: {missing_columns(self.encoding.names, found)}")
        return self.encoding

    def read(
        self,
        path: str | os.PathLike[str],
        *,
        target: str | None = None,
        groups: str | None = None,
    ) -> "Labelled":
        """A whole labelled file, as the model takes it."""
        target = target or (self.encoding.target if self.encoding else None)
        encoding = self.encoding_for(path, [name for name in (target, groups) if name])
        table = read_whole(path)
        try:
            return Labelled(
                encoding.encode(table),
                encoding.encode_target(table, target),
                encoding.features,
                target or "",
                groups_in(table, groups),
            )
        except InvalidInputError as error:
            raise InvalidInputError(f"{path}: {error}") from None


def load_model(path: str | os.PathLike[str], *, device: Any = "auto") -> SavedModel:
    """Load a model that :func:`fit_file` or ``SharpGPRegressor.save`` saved."""
    content = persistence.read(path, device=device)
    model, encoding = content["model"], content.get("table")
    if not isinstance(model, SharpGPRegressor) or not isinstance(encoding, TableEncoding | None):
        raise SavedModelError(
            f"cannot load {path}: expected a SharpGPRegressor, found {type(model).__name__}"
        )
    if encoding is not None and len(encoding.features) != model.n_features_in_:
        raise SavedModelError(f"cannot load {path}: model and table have different features")
    if encoding is None and hasattr(model, "feature_names_in_"):
        encoding = TableEncoding(tuple(Column(str(name)) for name in model.feature_names_in_))
    return SavedModel(model, encoding)


def fit_file(
    path: str | os.PathLike[str],
    target: str,
    model: SharpGPRegressor,
    *,
    drop: Iterable[str] = (),
    groups: str | None = None,
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

    Examples
    --------
    >>> import os, tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     path = os.path.join(folder, "data.csv")
    ...     with open(path, "w") as file:
    ...         _ = file.write("x,kind,y\n")
    ...         _ = file.writelines(f"{i},{'ab'[i % 2]},{i % 7}\n" for i in range(30))
    ...     fitted = fit_file(path, "y", SharpGPRegressor(calibration="kuleshov18"))
    >>> fitted.encoding.features
    ['x', 'kind=a', 'kind=b']
    """
    format_of(path)
    table = read_whole(path)
    try:
        unused = [*drop, *([groups] if groups else [])]
        encoding = TableEncoding.learn(table, target, unused)
        X, y = encoding.encode(table), encoding.encode_target(table)
        together = groups_in(table, groups)
    except InvalidInputError as error:
        raise InvalidInputError(f"{path}: {error}") from None
    return SavedModel(model.fit(X, y, groups=together), encoding)
