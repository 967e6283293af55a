"""Laws and means of the last rows that a model was asked for, so that asking again costs nothing.

Means, intervals, quantiles, figures and scores of the same rows all follow from one law.  A model
never changes, an update makes another one: so what it was asked is known by the content of the
rows.  The memory belongs to the running program.  It is no attribute of a model, and so in no file,
pickle or copy, and it goes with its model.
"""

from collections.abc import Callable
from itertools import accumulate, takewhile
from typing import Any, NamedTuple, Protocol, TypeVar
from weakref import WeakKeyDictionary

import torch
from torch import Tensor

from sharpgp.models.laws import Law
from sharpgp.rows import Inputs, Rows

#: Bytes that the laws of one model may take; the last ones asked stay.
MOST_BYTES = 2**26

Answer = TypeVar("Answer", Law, Tensor)


class Asked(Protocol):
    """A model, see :class:`sharpgp.models.model.Model`."""

    def law(self, X: Any, /) -> Law:
        """The law of the target at each row."""

    def location(self, X: Any, /) -> Tensor:
        """Its centre."""


class _Kept(NamedTuple):
    """An answer at rows [T, d], known by what laws depend on."""

    content: tuple[Tensor | None, ...]
    answer: Law | Tensor
    size: int


# Tuples are replaced as a whole: threads may lose an entry, and never see half of one.
_memory: WeakKeyDictionary[Asked, tuple[_Kept, ...]] = WeakKeyDictionary()


def law_of(model: Asked, X: Inputs) -> Law:
    """The law of a model at rows [T, d], asked once.

    Examples
    --------
    >>> from sharpgp.gp import train
    >>> from sharpgp.models.gaussian.plain_gp import PosteriorModel
    >>> X = torch.linspace(0, 6, 30, dtype=torch.float64)[:, None]
    >>> model = PosteriorModel(train(X, X[:, 0].sin())[0])
    >>> law_of(model, X) is law_of(model, X.clone()), law_of(model, X + 1) is law_of(model, X)
    (True, False)
    """
    return _asked(model, X, Law, model.law)


def location_of(model: Asked, X: Inputs) -> Tensor:
    """The centre [T] of a model's predictions, from its law where that is known."""
    law = _found(model, X, Law)
    found = _asked(model, X, Tensor, model.location) if law is None else law.location
    return found.clone()


def _asked(model: Asked, X: Inputs, kind: type[Any], ask: Callable[[Any], Answer]) -> Answer:
    content = _content(X)
    if content is None:
        return ask(X)
    answer: Answer | None = _found(model, X, kind)
    if answer is None:
        answer = ask(X)
        copied = tuple(None if part is None else part.detach().clone() for part in content)
        several = (_Kept(copied, answer, _bytes(copied) + _bytes(answer)), *_memory.get(model, ()))
        sizes = accumulate(one.size for one in several)
        fitting = takewhile(lambda pair: pair[1] <= MOST_BYTES, zip(several, sizes, strict=True))
        _memory[model] = tuple(one for one, _ in fitting)
    return answer


def _found(model: Asked, X: Inputs, kind: type[Any]) -> Any:
    """What is known of the rows; None if nothing is."""
    content = _content(X)
    if content is None:
        return None
    alike = (one for one in _memory.get(model, ()) if isinstance(one.answer, kind))
    return next((one.answer for one in alike if all(map(_same, one.content, content))), None)


def _content(X: Inputs) -> tuple[Tensor | None, ...] | None:
    """What a law may depend on: all but weights; None if gradients are needed."""
    rows = Rows.of(X)
    if torch.is_grad_enabled() and rows.X.requires_grad:
        return None
    return rows.X, rows.noise, rows.unit


def _same(one: Tensor | None, other: Tensor | None) -> bool:
    if one is None or other is None:
        return one is other
    return one.dtype == other.dtype and one.device == other.device and torch.equal(one, other)


def _bytes(value: Any) -> int:
    """Memory of the tensors of a law."""
    if isinstance(value, Tensor):
        return value.numel() * value.element_size()
    if isinstance(value, list | tuple):
        return sum(map(_bytes, value))
    return sum(map(_bytes, vars(value).values())) if isinstance(value, Law) else 0
