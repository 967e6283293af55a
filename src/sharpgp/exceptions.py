"""Errors and warnings: one tree, so that a caller can catch all of them at once."""


class SharpGPError(Exception):
    """Base class of every error that sharpgp raises on purpose."""


class InvalidInputError(SharpGPError, ValueError):
    """The data or an argument cannot be used; the message says what was expected and found."""


class NumericalError(SharpGPError, ArithmeticError):
    """A factorisation or a training run failed after every retry."""


class SavedModelError(SharpGPError, ValueError):
    """A model cannot be saved, or a file is not a model that can be loaded."""


class MissingExtraError(SharpGPError, ImportError):
    """An optional dependency is needed; the message names the extra that installs it."""


class CalibrationWarning(UserWarning):
    """An answer is given, but with less than the usual promise; the message says why."""
