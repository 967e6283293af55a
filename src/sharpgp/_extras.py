"""Optional packages: which extra brings one, and the error where it is missing."""

from importlib.util import find_spec

from sharpgp.exceptions import MissingExtraError


def need(extra: str, *packages: str) -> None:
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
                f'expected the package {package}, found none; pip install "sharpgp[{extra}]"'
            )
