"""Attributes that are those of another object."""

from operator import attrgetter
from typing import Any


def forwarded(path: str) -> Any:
    """A property that is an attribute of another object.

    Examples
    --------
    >>> class Named:
    ...     text = "a"
    ...     doc = forwarded("text.__doc__")
    >>> Named().doc == str.__doc__
    True
    """
    return property(attrgetter(path), doc=f"``self.{path}``.")
