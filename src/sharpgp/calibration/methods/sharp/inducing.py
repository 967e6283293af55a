"""Inducing inputs as calibration hyperparameters: moved to make quantiles sharp."""

from collections.abc import Callable

import numpy as np
import torch
from torch import Tensor

from sharpgp.calibration.methods.sharp.path import Problem
from sharpgp.exceptions import InvalidInputError
from sharpgp.gp.posterior import Posterior
from sharpgp.gp.sparse import SparsePosterior
from sharpgp.models.search import Budget, descend

#: Evaluations of the search over inducing inputs.
MOST_EVALUATIONS = 60


def move_inducing(
    posterior: Posterior, problem_of: Callable[[Posterior], Problem], delta: Tensor
) -> Posterior:
    r"""The posterior with inducing inputs moved for sharpness; its mean is unchanged.

    Minimises the mean over levels of the log objective jointly over the inducing inputs and one
    ``theta`` for all levels, from where training left them; only the inducing inputs are kept, as
    every level then searches its own ``theta``.

    Parameters
    ----------
    posterior : Posterior
        Must be sparse.
    problem_of : callable
        The calibration problem of a posterior.
    delta : Tensor [K]
    """
    if not isinstance(posterior, SparsePosterior):
        raise InvalidInputError(
            "move_inducing: expected a sparse GP, found "
            f"{type(posterior).__name__}; train one with approximation=Sparse(m=300), or leave "
            "move_inducing off"
        )
    family = problem_of(posterior).family
    Z, p = posterior.inducing_standardised, len(family.start)
    low, high = (end.expand_as(Z).cpu().numpy().ravel() for end in posterior.range_standardised)
    best: tuple[float, np.ndarray] = (np.inf, Z.cpu().numpy().ravel())
    base: Tensor | None = None

    def evaluate(v: np.ndarray) -> tuple[float, np.ndarray]:
        nonlocal best, base
        leaf = torch.from_numpy(v).to(Z).requires_grad_()
        problem = problem_of(posterior.moved(leaf[p:].reshape(Z.shape)))
        sigma = problem.sigma(family.theta(leaf[:p]).unsqueeze(0))
        value, _ = problem.objective(delta, problem.r, sigma)
        logs = value.clamp_min(1e-300).log()
        base = logs.detach() if base is None else base
        # Levels near the centre have objectives near zero, where gains are mostly noise.
        total = (logs - base).clamp_min(-3.0).mean()
        if total.item() < best[0]:
            best = total.item(), v[p:].copy()
        (gradient,) = torch.autograd.grad(total, leaf)
        return total.item(), gradient.cpu().numpy()

    descend(
        evaluate,
        np.r_[family.start, best[1]],
        np.r_[family.lower, low],
        np.r_[family.upper, high],
        budget=Budget(MOST_EVALUATIONS),
        max_evaluations=MOST_EVALUATIONS,
        tolerance=1e-4,
    )
    return posterior.moved(torch.from_numpy(best[1]).to(Z).reshape(Z.shape))
