"""Answers to arguments by which other libraries know what is here."""

from collections.abc import Callable
from functools import wraps
from inspect import signature
from typing import ParamSpec, TypeVar

P = ParamSpec("P")
R = TypeVar("R")


def hinted(**advice: str) -> Callable[[Callable[P, R]], Callable[P, R]]:
    """Decorator: a TypeError for one of these arguments says what to use instead.

    Examples
    --------
    >>> @hinted(alpha="coverage=0.9")
    ... def interval(coverage: float = 0.95) -> float:
    ...     return coverage
    >>> interval(alpha=0.1)
    Traceback (most recent call last):
    TypeError: interval: expected one of its arguments (coverage), found alpha; use coverage=0.9
    """

    def wrap(function: Callable[P, R]) -> Callable[P, R]:
        known = [name for name in signature(function).parameters if name != "self"]

        @wraps(function)
        def call(*args: P.args, **kwargs: P.kwargs) -> R:
            for name in kwargs.keys() - set(known):
                if name in advice:
                    what = function.__qualname__.removesuffix(".__init__").rpartition(".")[2]
                    raise TypeError(
                        f"{what}: expected one of its arguments ({', '.join(known)}), found "
                        f"{name}; use {advice[name]}"
                    )
            return function(*args, **kwargs)

        return call

    return wrap
