r"""Actions with the best worst case over an interval.

With ``v(x) = max_a min_{y in I(x)} u(a, y)`` and an interval ``I`` of coverage ``c``,
``P(u(a(X), Y) >= v(X)) >= c``: where ``Y`` is in the interval, its utility is at least the minimum
over it.  The guarantee is that of the interval.
"""

from collections.abc import Callable, Iterable
from dataclasses import dataclass, fields
from numbers import Real
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from sharpgp.exceptions import InvalidInputError

Floats = NDArray[np.float64]
# Places in an interval at which a utility is asked, two of them close to its ends, and levels that
# give its mean.
_PLACES = np.sort(np.concatenate([np.linspace(0.0, 1.0, 33), [1e-4, 1.0 - 1e-4]]))
_LEVELS = (np.arange(100) + 0.5) / 100
# Numbers at once: rows times points.
_MOST_AT_ONCE = 2_000_000
# A utility is linear between two points if a third one is off by less than this share.
_LINEAR = 1e-9


@dataclass(frozen=True)
class Decisions:
    """One decision for each row.

    Attributes
    ----------
    action : array of shape (n,)
    worst_case : array of shape (n,)
        Utility that is reached, or passed, with the coverage of the intervals.
    expected : array of shape (n,)
        Mean utility of the action under the predictive distribution.
    cost_of_safety : array of shape (n,)
        By how much the action with the best mean utility would be better on average.
    exact : array of bool, shape (n,)
        Whether the worst case is exact: the utility of every action is monotone in ``y`` over the
        interval, or linear in pieces; otherwise it is the least over a grid.
    """

    action: NDArray[Any]
    worst_case: Floats
    expected: Floats
    cost_of_safety: Floats
    exact: NDArray[np.bool_]

    def frame(self) -> Any:
        """The same as a pandas data frame."""
        import pandas as pd

        return pd.DataFrame({one.name: getattr(self, one.name) for one in fields(self)})

    def __len__(self) -> int:
        return len(self.action)

    def __str__(self) -> str:
        head = f"{'action':>12}  {'worst case':>10}  {'expected':>10}  {'cost of safety':>14}"
        rows = [
            f"{one!s:>12}  {worst:10.4g}  {mean:10.4g}  {cost:14.4g}"
            for one, worst, mean, cost, _ in zip(
                *(getattr(self, one.name)[:10] for one in fields(self)), strict=True
            )
        ]
        more = [] if len(self) <= 10 else [f"... {len(self)} rows"]
        rough = int((~self.exact).sum())
        note = [f"worst case of {rough} rows: the least over a grid"] if rough else []
        return "\n".join([head, *rows, *more, *note])

    __repr__ = __str__


def decide(
    ends: Floats,
    quantiles: Callable[[slice, Floats], Floats],
    actions: Iterable[Any],
    utility: Callable[[Any, Floats], ArrayLike],
) -> Decisions:
    """The action of each row with the best worst case over its interval.

    Parameters
    ----------
    ends : array of shape (n, 2)
        Finite ends of the intervals.
    quantiles : callable
        ``quantiles(rows, levels)`` gives quantiles (n, k) of some rows.
    actions : iterable of A
        What can be done: numbers, names, or any other objects.
    utility : callable
        ``utility(action, y)`` for an array of targets, of the same shape.

    Examples
    --------
    >>> ends = np.array([[80.0, 120.0], [10.0, 30.0]])
    >>> law = lambda rows, levels: ends[rows, :1] + (ends[rows, 1:] - ends[rows, :1]) * levels
    >>> found = decide(ends, law, range(0, 150, 10), lambda a, y: 3 * np.minimum(a, y) - a)
    >>> found.action.tolist(), found.worst_case.tolist(), bool(found.exact.all())
    ([80, 10], [160.0, 20.0], True)
    """
    choices = [] if callable(actions) else list(actions)
    if not choices:
        raise InvalidInputError(
            f"actions: expected a list of at least one, found {actions!r}; write decide(X, "
            "actions, utility)"
        )
    if not np.isfinite(ends).all():
        raise InvalidInputError(
            "decide: expected intervals with finite ends, found infinite ones; ask for less"
        )
    n = len(ends)
    worst, mean = np.empty((len(choices), n)), np.empty((len(choices), n))
    exact = np.ones((len(choices), n), dtype=bool)
    step = max(1, _MOST_AT_ONCE // (len(_LEVELS) * 2))
    for start in range(0, n, step):
        rows = slice(start, min(start + step, n))
        likely = quantiles(rows, _LEVELS)
        for k, action in enumerate(choices):
            worst[k, rows], exact[k, rows] = worst_case(ends[rows], action, utility)
            mean[k, rows] = _asked(utility, action, likely).mean(axis=1)
    best, every = worst.argmax(axis=0), np.arange(n)
    found = np.empty(len(choices), dtype=object)
    found[:] = choices
    plain = np.asarray(choices)
    chosen = (plain if plain.ndim == 1 and len(plain) == len(choices) else found)[best]
    expected = mean[best, every]
    certain = np.asarray(exact.all(axis=0))
    return Decisions(chosen, worst[best, every], expected, mean.max(axis=0) - expected, certain)


def worst_case(
    ends: Floats, action: Any, utility: Callable[[Any, Floats], ArrayLike]
) -> tuple[Floats, NDArray[np.bool_]]:
    """Least utility of an action over each interval, and whether it is exact.

    Beside the ends and a grid, the place where two lines through neighbouring points meet is asked:
    the kink of a utility that is linear in pieces.

    Examples
    --------
    >>> ends = np.array([[0.0, 10.0]])
    >>> worst_case(ends, 3.3, lambda a, y: np.abs(y - a))
    (array([0.]), array([ True]))
    >>> worst_case(ends, 0, lambda a, y: np.cos(y))[1]
    array([False])
    """
    low, high = ends[:, :1], ends[:, 1:]
    y = low + (high - low) * _PLACES
    y[:, -1:] = high
    u = _asked(utility, action, y)
    h, du = np.diff(y, axis=1), np.diff(u, axis=1)
    slope = np.divide(du, h, out=np.zeros_like(du), where=h > 0)
    close = _LINEAR * np.abs(u).max(axis=1, keepdims=True) + 1e-300
    # The lines through points i - 1, i and through i + 1, i + 2 meet in cell (i, i + 1) at a kink.
    before, after, inside = slope[:, :-2], slope[:, 2:], h[:, 1:-1]
    turn = np.where(np.abs(after - before) * inside > close, before - after, np.inf)
    x = np.clip((du[:, 1:-1] - after * inside) / turn, 0.0, inside)
    # No lines meet in the first and last cell: these are narrow, and have to be straight.
    more = [y[:, 1:-2] + x, 0.5 * (y[:, :1] + y[:, 1:2]), 0.5 * (y[:, -2:-1] + y[:, -1:])]
    if isinstance(action, Real):
        more.append(np.clip(np.full_like(low, float(action)), low, high))
    at = _asked(utility, action, np.concatenate(more, axis=1))
    n = x.shape[1]
    straight = np.stack([u[:, :2].mean(axis=1), u[:, -2:].mean(axis=1)], axis=1)
    lines = np.concatenate([u[:, 1:-2] + x * before, straight], axis=1)
    pieces = (np.abs(at[:, : n + 2] - lines) <= 1e3 * close).all(axis=1)
    monotone = (du >= -close).all(axis=1) | (du <= close).all(axis=1)
    return np.minimum(u.min(axis=1), at.min(axis=1)), np.asarray(pieces | monotone)


def _asked(utility: Callable[[Any, Floats], ArrayLike], action: Any, y: Floats) -> Floats:
    found = np.asarray(utility(action, y), dtype=np.float64)
    if found.ndim == 0:  # the same for every y
        found = np.full(y.shape, float(found))
    if found.shape != y.shape or np.isnan(found).any():
        raise InvalidInputError(
            f"utility: expected a number for each of {y.shape} targets, found "
            + ("NaN" if found.shape == y.shape else f"shape {found.shape}")
        )
    return found
