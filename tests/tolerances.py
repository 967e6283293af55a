r"""How close two right answers are on any machine: rounding, finite differences, optimisers.

Machines differ in the order of their sums and in fused operations, that is by rounding; what
rounding becomes depends on the case.  Tests take their tolerances from here, or from an oracle
whose error they know, and never from what one machine gave.
"""

import numpy as np
import torch
from scipy import linalg

EPS = float(np.finfo(float).eps)


def condition_number(A: np.ndarray | torch.Tensor) -> float:
    """Largest over smallest eigenvalue of a symmetric matrix."""
    values = linalg.eigvalsh(np.asarray(A))
    return float(values[-1] / max(values[0], EPS * values[-1]))


def rounding(A: np.ndarray | torch.Tensor) -> float:
    r"""Relative error of variances and of solutions by a Cholesky factor of ``A``.

    The factor is that of a matrix which is off by ``n eps |A|`` (Higham, "Accuracy and stability
    of numerical algorithms", section 10.1), so that ``A^-1 b`` is off by ``n eps cond(A)``.  The
    same bounds a variance ``k_* - k' A^-1 k`` relative to itself, however much cancels: with
    ``u = A^-1 k`` its error is ``n eps |A| |u|^2``, and the noise alone gives it
    ``noise |u|^2``.  Never below what the sums around it need.
    """
    return max(len(A) * EPS * condition_number(A), 1e-12)


def slopes(f, x: np.ndarray, step: float = 3e-3) -> tuple[np.ndarray, np.ndarray]:
    """Central differences of fourth order along each coordinate of ``x``, and their own error.

    Twice the step is off by sixteen times as much, so that the two are further apart than the
    shorter one is from the derivative.  The step loses as much by its length as by rounding where
    values are right to eleven digits.
    """
    found = []
    for axis in step * np.eye(len(x)):
        at = {m: float(f(x + m * axis)) for m in (-4, -2, -1, 1, 2, 4)}
        found.append(
            [(at[-2 * m] - 8 * at[-m] + 8 * at[m] - at[2 * m]) / (12 * m * step) for m in (1, 2)]
        )
    short, twice = np.transpose(found)
    return short, np.abs(twice - short)


def rounding_of_slopes(A: np.ndarray | torch.Tensor, values: float, step: float = 3e-3) -> float:
    """What rounding adds to :func:`slopes` of values of the size ``values`` that need ``A^-1``."""
    return 1.5 * rounding(A) * values / step


def same_optimum(n: int, stop: float = 1e-7) -> float:
    """How far two trainings end from one another, in predictive standard deviations.

    L-BFGS stops where a step gains less than ``stop`` in log likelihood per point; what is left
    to gain is taken to be ten such steps.  Hyperparameters that are ``delta`` below the optimum
    are within ``sqrt(2 delta)`` of their posterior standard deviations, and moving them by one of
    these moves a prediction by less than its own standard deviation.
    """
    return float(np.sqrt(2 * 10 * stop * n))
