"""Descent of functions with kinks: BFGS with a line search that does not ask for small slopes."""

import numpy as np

from sharpgp.gp.optimise import Evaluate, Found, guarded

# Wolfe conditions: share of the promised decrease that a step must keep, and of the slope that it
# must lose.
_DECREASE, _SLOPE = 1e-4, 0.5
# Halvings and doublings of a step, and the largest step of an entry.
_MOST_TRIED, _LONGEST = 12, 2.0
# A descent ends after this many steps in a row that gain less than the tolerance.
_PATIENCE = 3


def minimise_kinked(
    evaluate: Evaluate,
    start: np.ndarray,
    lower: np.ndarray,
    upper: np.ndarray,
    *,
    most: int,
    tolerance: float,
) -> Found:
    r"""Minimise a function that is smooth but for kinks, from ``start``, inside a box.

    The slope does not vanish at a kinked minimum, so a line search for small slopes, such as that
    of L-BFGS-B, gives up on the way.  This one accepts a step ``s`` by the weak conditions of
    Wolfe, ``f(x + s) <= f(x) + 1e-4 g's`` and ``g(x + s)'s >= g's / 2``, found by doubling and
    bisection; BFGS with it learns the kinks as directions of large curvature (A. S. Lewis and M. L.
    Overton, "Nonsmooth optimization via quasi-Newton methods", Mathematical Programming, 2013).
    Entries at a bound that the gradient presses against stay there.

    Parameters
    ----------
    evaluate : callable
        See :data:`sharpgp.gp.optimise.Evaluate`.
    start, lower, upper : array [n]
    most : int
        Evaluations.
    tolerance : float
        The descent stops after three steps that gain less than this each.

    Examples
    --------
    >>> def corner(x):  # least at (1, 0), where three planes meet
    ...     planes = np.array([[1.0, 0.0, -1.0], [-1.0, 1.0, 1.0], [-1.0, -1.0, 1.0]])
    ...     values = planes[:, :2] @ x + planes[:, 2]
    ...     return float(values.max()), planes[values.argmax(), :2]
    >>> ends = np.full(2, -5.0), np.full(2, 5.0)
    >>> (
    ...     minimise_kinked(corner, np.array([3.0, 2.0]), *ends, most=60, tolerance=1e-9).x.round(3)
    ...     + 0.0
    ... )
    array([1., 0.])
    """
    evaluate, failures = guarded(evaluate)
    x = np.clip(start, lower, upper)
    value, slope = evaluate(x)
    used, idle = 1, 0
    inverse = np.eye(len(x))
    untouched = True  # by any curvature
    while used < most and idle < _PATIENCE:
        held = ((x <= lower) & (slope > 0)) | ((x >= upper) & (slope < 0))
        direction = np.where(held, 0.0, -inverse @ np.where(held, 0.0, slope))
        if not slope @ direction < 0:
            inverse, direction = np.eye(len(x)), np.where(held, 0.0, -slope)
        size = np.abs(direction).max()
        if size < 1e-12:
            return Found(value, x, True, used, tuple(failures))
        step = min(1.0, (1.0 if untouched else _LONGEST) / size)
        short, long = 0.0, np.inf
        accepted = None
        for _ in range(_MOST_TRIED):
            if used >= most:
                break
            moved = np.clip(x + step * direction, lower, upper)
            used += 1
            new, new_slope = evaluate(moved)
            promised = slope @ (moved - x)
            if new > value + _DECREASE * promised:
                long = step
            else:
                accepted = moved, new, new_slope
                if new_slope @ (moved - x) >= _SLOPE * promised:
                    break
                short = step
            step = 0.5 * (short + long) if np.isfinite(long) else 2.0 * short
        if accepted is None:
            break
        moved, new, new_slope = accepted
        change, bend = moved - x, new_slope - slope
        curvature = change @ bend
        if curvature > 1e-12:
            if untouched:
                inverse, untouched = inverse * curvature / (bend @ bend), False
            shift = np.eye(len(x)) - np.outer(change, bend) / curvature
            inverse = shift @ inverse @ shift.T + np.outer(change, change) / curvature
        idle = idle + 1 if value - new < tolerance else 0
        x, value, slope = moved, new, new_slope
    return Found(value, x, used < most, used, tuple(failures))
