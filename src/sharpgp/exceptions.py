"""Errors and warnings: one tree, so that a caller can catch all of them at once."""

import sys
import warnings


class SharpGPError(Exception):
    """Base class of every error that sharpgp raises on purpose."""


class InvalidInputError(SharpGPError, ValueError):
    """The data or an argument cannot be used; the message says what was expected and found."""


class SeveralOutputsError(InvalidInputError, AttributeError):
    """A model of several outputs was asked for what only one output has; ``hasattr`` is False."""


class NumericalError(SharpGPError, ArithmeticError):
    """A factorisation or a training run failed after every retry."""


class SavedModelError(SharpGPError, ValueError):
    """A model cannot be saved, or a file is not a model that can be loaded."""


class MissingExtraError(SharpGPError, ImportError):
    """An optional dependency is needed; the message names the extra that installs it."""


class CalibrationWarning(UserWarning):
    """The answer comes with less than the usual guarantee; the message says why."""


def warn(message: str, category: type[Warning] = CalibrationWarning) -> None:
    """Warn, and point to the line outside of this package that called it.

    Examples
    --------
    >>> with warnings.catch_warnings(record=True) as caught:
    ...     warnings.simplefilter("always")
    ...     warn("level 0.99 needs at least 99 calibration points")
    >>> caught[0].category.__name__
    'CalibrationWarning'
    """
    level, frame = 1, sys._getframe()
    while frame.f_back is not None and _own(frame.f_globals.get("__name__", "")):
        level, frame = level + 1, frame.f_back
    warnings.warn(message, category, stacklevel=level)


def _own(module: str) -> bool:
    return module == "sharpgp" or module.startswith("sharpgp.")
