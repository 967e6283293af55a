"""Attributes and methods that are those of another object."""

from operator import attrgetter
from typing import Any


def forwarded(path: str) -> Any:
    """A property that is an attribute, or a method, of another object.

    Examples
    --------
    >>> class Named:
    ...     text = "a"
    ...     upper = forwarded("text.upper")
    >>> Named().upper()
    'A'
    """
    return property(attrgetter(path), doc=f"``self.{path}``.")
