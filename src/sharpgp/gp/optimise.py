"""Bounded L-BFGS that survives points where a covariance cannot be factorised."""

from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from typing import Any

import numpy as np
import torch
from scipy.optimize import OptimizeResult, minimize
from threadpoolctl import ThreadpoolController
from torch import Tensor

from sharpgp.exceptions import NumericalError

#: Value and gradient [n] at a point [n]; raises NumericalError where there is none.
Evaluate = Callable[[np.ndarray], tuple[float, np.ndarray]]
#: Value of a failed point: very large but finite, so that the line search steps back.
_FAILED = 1e10


@dataclass(frozen=True, eq=False)
class Found:
    """Where a descent ended.

    ``done`` tells whether it converged before its evaluations ran out; ``failures`` are the
    messages of the evaluations that failed, in their order.
    """

    value: float
    x: np.ndarray
    done: bool
    evaluations: int
    failures: tuple[str, ...]

    @property
    def failed(self) -> bool:
        """Whether every evaluation failed."""
        return not self.value < _FAILED


def minimise(
    evaluate: Evaluate,
    start: np.ndarray,
    lower: np.ndarray | None = None,
    upper: np.ndarray | None = None,
    *,
    most: int,
    tolerance: float | None = None,
    steps: int = 1,
    **options: Any,
) -> Found:
    """Minimise from ``start``, within bounds if there are any.

    Parameters
    ----------
    evaluate : callable
        See :data:`Evaluate`; a point where it raises NumericalError counts as a failure.
    start, lower, upper : array [n]
        A start outside of the bounds is moved to them.
    most : int
        Most evaluations, not counting those of the last line search.
    tolerance : float, optional
        Relative gain of one step below which the descent stops; None for SciPy's default.
    steps : int
        More than 1: the gain is that of so many steps together, as a single step may gain nothing
        far from the end.
    **options
        Further options of SciPy's L-BFGS-B.

    Examples
    --------
    >>> def square(v):
    ...     if v[0] > 2.5:
    ...         raise NumericalError("too far")
    ...     return float(v @ v), 2 * v
    >>> one = np.ones(1)
    >>> found = minimise(square, 2 * one, -one, 3 * one, most=20, tolerance=1e-9)
    >>> bool(abs(found.x[0]) < 1e-6), found.done, found.failures
    (True, True, ())
    """
    evaluate, failures = guarded(evaluate)
    bounds = None
    if lower is not None and upper is not None:
        start, bounds = np.clip(start, lower, upper), list(zip(lower, upper, strict=True))
    stop = None
    if tolerance is not None:
        options["ftol"] = tolerance if steps == 1 else 0.0
        stop = None if steps == 1 else _FlatAfter(steps, tolerance)
    # SciPy's BLAS would start threads even for a dozen entries.
    with _blas_of_scipy().limit(limits=1):
        found = minimize(
            evaluate,
            start,
            jac=True,
            method="L-BFGS-B",
            bounds=bounds,
            callback=stop,
            options={"maxfun": most, **options},
        )
    done = bool(found.nfev < most)
    return Found(float(found.fun), found.x, done, int(found.nfev), tuple(failures))


class _FlatAfter:
    """Ends a descent whose last steps together have gained less than a tolerance."""

    def __init__(self, steps: int, tolerance: float) -> None:
        self._values: deque[float] = deque(maxlen=steps + 1)
        self._tolerance = tolerance

    def __call__(self, intermediate_result: OptimizeResult) -> None:
        self._values.append(intermediate_result.fun)
        first, last = self._values[0], self._values[-1]
        full = len(self._values) == self._values.maxlen
        if full and first - last < self._tolerance * max(1.0, abs(last)):
            raise StopIteration


@cache
def _blas_of_scipy() -> ThreadpoolController:
    """Controller for the threads of SciPy's own BLAS, not torch's."""
    return ThreadpoolController().select(prefix="libscipy_openblas")


def guarded(evaluate: Evaluate) -> tuple[Evaluate, list[str]]:
    """The same, but a failure gives a very large value and no slope, and its message is kept."""
    failures: list[str] = []

    def safe(v: np.ndarray) -> tuple[float, np.ndarray]:
        try:
            return evaluate(v)
        except NumericalError as error:
            failures.append(str(error))
            return _FAILED, np.zeros_like(v)

    return safe, failures


def with_gradient(function: Callable[[Tensor], Tensor], what: str, like: Tensor) -> Evaluate:
    """A scalar torch function as :func:`minimise` takes it.

    Parameters
    ----------
    function : callable
        From a tensor [n] of float64 on the device of ``like`` to a scalar.
    what : str
        What it computes, for the error if that is NaN or inf.
    like : Tensor

    Examples
    --------
    >>> square = with_gradient(lambda v: v.square().sum(), "the sum", torch.zeros(1))
    >>> value, gradient = square(np.array([3.0]))
    >>> value, gradient.tolist()
    (9.0, [6.0])
    """

    def evaluate(v: np.ndarray) -> tuple[float, np.ndarray]:
        leaf = torch.tensor(v, dtype=torch.float64, device=like.device, requires_grad=True)
        value = function(leaf)
        if not torch.isfinite(value):
            raise NumericalError(f"{what} is NaN or inf")
        (gradient,) = torch.autograd.grad(value, leaf)
        return value.item(), gradient.cpu().numpy()

    return evaluate
