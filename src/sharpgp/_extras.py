"""Optional packages: which extra or distribution brings each, and the error if one is missing."""

from contextlib import suppress
from importlib.metadata import entry_points
from importlib.util import find_spec
from typing import Any, NoReturn

from sharpgp.exceptions import MissingExtraError

#: The distribution with the experiments and their baselines.
LABORATORY = "sharpgp-benchmarks"
#: Its commands, and its calibration methods by the names of their classes.
LABORATORY_COMMANDS = ("bench", "datasets")
LABORATORY_METHODS = {
    "Capone22": "capone22",
    "FullyBayesian": "fully_bayesian",
    "Kuleshov22": "kuleshov22",
}
#: Entry points by which other distributions add commands: each names a typer application.
COMMANDS = "sharpgp.commands"
#: Entry points by which other distributions add calibration methods: each names a class.
METHODS = "sharpgp.methods"
#: The same for bases.
BASES = "sharpgp.bases"


def need(extra: str, *packages: str, distribution: str = "sharpgp") -> None:
    """Raise an error of one line that names the extra, unless all packages are installed.

    Examples
    --------
    >>> need("plots", "no_such_package")
    Traceback (most recent call last):
        ...
    sharpgp.exceptions.MissingExtraError: expected the package no_such_package, found none; pip
    install "sharpgp[plots]"
    """
    for package in packages:
        if find_spec(package) is None:
            raise MissingExtraError(
                f'expected the package {package}, found none; pip install "{distribution}[{extra}]"'
            )


def need_distribution(distribution: str, what: str) -> NoReturn:
    """Raise an error of one line that names the distribution which brings ``what``.

    Examples
    --------
    >>> need_distribution(LABORATORY, "sharpgp bench")
    Traceback (most recent call last):
        ...
    sharpgp.exceptions.MissingExtraError: sharpgp bench: expected the package sharpgp-benchmarks,
    found none; pip install sharpgp-benchmarks, or pip install ./benchmarks in a checkout
    """
    raise MissingExtraError(
        f"{what}: expected the package {distribution}, found none; pip install {distribution}, or "
        "pip install ./benchmarks in a checkout"
    )


def entry_point_names(group: str) -> list[str]:
    """Sorted names of the entry points of a group, over all installed distributions.

    Examples
    --------
    >>> entry_point_names("sharpgp.no_such_group")
    []
    """
    return sorted({point.name for point in entry_points(group=group)})


def entry_point(group: str, name: str) -> Any:
    """The object of an entry point, or None if no distribution has it.

    If its import fails, a one-line MissingExtraError is raised.

    Examples
    --------
    >>> entry_point("sharpgp.no_such_group", "bench") is None
    True
    """
    for point in entry_points(group=group, name=name):
        try:
            return point.load()
        except (ImportError, AttributeError) as error:
            raise MissingExtraError(
                f"{name}: expected to import {point.value}, found: {error}; install its package "
                "again"
            ) from error
    return None


def loadable_entry_points(group: str) -> list[str]:
    """Names of the entry points of a group that can be imported; imports them.

    Examples
    --------
    >>> loadable_entry_points("sharpgp.no_such_group")
    []
    """
    names = []
    for name in entry_point_names(group):
        with suppress(MissingExtraError):
            entry_point(group, name)
            names.append(name)
    return names
