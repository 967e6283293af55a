"""Hyperparameters and inducing inputs that maximise the bound of all rows, by passes over them."""

from collections.abc import Callable
from dataclasses import replace

import numpy as np
import torch
from torch import Tensor

from sharpgp._validation import as_numpy
from sharpgp.exceptions import NumericalError
from sharpgp.gp.bound import BoundGradient
from sharpgp.gp.bound_training import search_box
from sharpgp.gp.optimise import minimise
from sharpgp.gp.sparse import SparsePosterior
from sharpgp.gp.training import result_of
from sharpgp.tabular.streamed.sums import Pull, Sums, Training, Visit, bound_and_gradient
from sharpgp.tabular.streamed.work import Work

#: Sums of a pass over all units, which is saved under a name.
Pass = Callable[[str, Visit | Pull], Sums]


def refined(
    gp: SparsePosterior, training: Training, run: Pass, work: Work, steps: int
) -> SparsePosterior:
    """A GP that was trained on a sample, trained on with all rows.

    Bounded L-BFGS from where the sample led to; each of ``steps`` evaluations of the bound and its
    gradient is two passes over the rows.  Evaluations are saved: after an interruption the search
    meets the same points again, and goes on where it was.

    Parameters
    ----------
    gp : SparsePosterior
        Trained on the sample, which it stays conditioned on.
    training : Training
    run : callable
        See :data:`Pass`.
    work : Work
    steps : int
    """
    p, shape = len(gp.theta_R), gp.inducing_standardised.shape
    low, high = gp.range_standardised
    lower, upper = search_box(p, shape, low, high)
    count = 0

    def evaluate(v: np.ndarray) -> tuple[float, np.ndarray]:
        nonlocal count
        count += 1
        name = f"bound-{count:03d}"
        found = work.once(name, lambda: _evaluation(name, v, p, training, run))
        work.drop(f"{name}-sums", f"{name}-gradient")
        if not np.isfinite(found["value"]):
            raise NumericalError("the bound of the marginal likelihood is NaN or inf")
        return found["value"], as_numpy(found["gradient"])

    start = np.r_[as_numpy(gp.theta_R.log()), as_numpy(gp.inducing_standardised).ravel()]
    found = minimise(
        evaluate, start, lower, upper, most=steps, tolerance=1e-6, maxiter=steps, maxcor=20
    )
    if found.failed:
        raise NumericalError(f"training on all rows failed: {found.failures[-1]}")
    theta, Z = _point(found.x, p, training)
    began = gp.training
    result = result_of(found, [found], None if began is None else began.start, None, 0.0)
    # The steps are few by design, so that using them up is no sign of trouble.
    result = replace(result, status="retried" if found.failures else "converged")
    given = gp.X_train, gp.y_train, gp.covariance, theta, gp.x_units.back(Z)
    return SparsePosterior(*given, x_units=gp.x_units, y_units=gp.y_units, training=result)


def _evaluation(
    name: str, v: np.ndarray, p: int, training: Training, run: Pass
) -> dict[str, float | Tensor]:
    """Minus the bound per row at a point, and its gradient; NaN where there is none."""
    theta, Z = _point(v, p, training)
    visit = Visit(training, theta, Z)
    try:
        sums = run(f"{name}-sums", visit)
        gradient = BoundGradient.of(visit.factors(sums))
        pulled = run(f"{name}-gradient", Pull(visit, gradient))
    except NumericalError:
        return {"value": float("nan"), "gradient": torch.zeros(len(v), dtype=torch.float64)}
    bound, by_theta, by_Z = bound_and_gradient(visit, sums, gradient, pulled)
    n = int(sums["n"])
    slope = torch.cat([by_theta * theta, by_Z.ravel()])
    return {"value": -bound / n, "gradient": -slope / n}


def _point(v: np.ndarray, p: int, training: Training) -> tuple[Tensor, Tensor]:
    """``theta`` [P] and ``Z`` [M, d] of a point of the search."""
    given = torch.from_numpy(v).to(training.x_units.scale)
    return given[:p].exp(), given[p:].reshape(-1, len(training.x_units.scale))
