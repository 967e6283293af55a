"""Attributes and methods that are those of another object."""

from operator import attrgetter
from typing import Any


def forwarded(to: str) -> Any:
    """What the object in the attribute ``to`` has under the same name.

    Examples
    --------
    >>> class Named:
    ...     def __init__(self, text):
    ...         self.text = text
    ...
    ...     upper = forwarded("text")
    >>> Named("a").upper()
    'A'
    """
    return _Forwarded(to)


class _Forwarded:
    """What another object has under the same name."""

    def __init__(self, to: str) -> None:
        self._to = to

    def __set_name__(self, owner: type, name: str) -> None:
        self._ask = attrgetter(f"{self._to}.{name}")

    def __get__(self, one: object, owner: type | None = None) -> Any:
        return self if one is None else self._ask(one)
