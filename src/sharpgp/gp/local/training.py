"""Training of a nearest-neighbour GP: hyperparameters from a random part of the rows."""

import logging
from dataclasses import replace
from typing import Literal

import numpy as np
import torch
from torch import Tensor

from sharpgp.gp.compute import threads_for
from sharpgp.gp.kernels import Kernel, kernel_of, make_covariance
from sharpgp.gp.local.posterior import LocalPosterior, require_named
from sharpgp.gp.posterior import Start, TrainingResult, retrain
from sharpgp.gp.priors import LengthscalePrior
from sharpgp.gp.scaling import Affine
from sharpgp.gp.sizes import FIRST_ROWS, NEIGHBOURS
from sharpgp.gp.training import chosen_prior, maximise_likelihood, prior_of, start_of

logger = logging.getLogger("sharpgp")

# Rows on which several starts are tried; only the best one goes on with more.
_STARTED_ON = 500


def train_neighbours(
    X: Tensor,
    y: Tensor,
    kernel: Kernel = "rbf",
    *,
    m: int = NEIGHBOURS,
    start: Tensor | int | None = None,
    random_state: int | None = 0,
    prior: LengthscalePrior | Literal["auto"] | None = "auto",
) -> tuple[LocalPosterior, TrainingResult]:
    r"""Train a nearest-neighbour GP.

    Hyperparameters maximise the marginal likelihood of an exact GP on :data:`FIRST_ROWS` random
    rows, from the best of several starts on a third of these; neighbours are then searched among
    all rows, in units of the lengthscales.

    Parameters
    ----------
    X : Tensor [N, d]
    y : Tensor [N]
    kernel : str or NamedKernel
        A named one.
    m : int
        Number of neighbours.
    start : Tensor [P] or int, optional
        Hyperparameters to start from, or the number of one of the built-in starts.
    random_state : int, optional
        Seed of the random rows.
    prior : LengthscalePrior or None
        As in :func:`sharpgp.gp.training.train`, for the number of points trained on.

    Returns
    -------
    posterior : LocalPosterior
    result : TrainingResult
        With Vecchia's log likelihood per point of all rows as ``log_likelihood``.

    Examples
    --------
    >>> X = torch.linspace(0, 6, 200, dtype=torch.float64)[:, None]
    >>> posterior, result = train_neighbours(X, X[:, 0].sin(), m=10)
    >>> posterior.n_neighbours
    10
    """
    covariance = make_covariance(kernel, X.shape[1])
    require_named(covariance)
    y_units = Affine.standardising(y)
    x_units = covariance.units(X, y_units)
    rng = np.random.default_rng(random_state)
    drawn = rng.permutation(len(y))[: FIRST_ROWS["neighbours"]]
    rows = torch.from_numpy(drawn).to(X.device)
    prior = chosen_prior(prior, covariance, len(rows))
    part = x_units.forward(X[rows]), y_units.forward(y[rows])
    with threads_for(len(rows)):
        number = start if isinstance(start, int) else None
        if len(rows) > _STARTED_ON and not isinstance(start, Tensor):
            some = part[0][:_STARTED_ON], part[1][:_STARTED_ON]
            _, start, first = maximise_likelihood(*some, covariance, start, rng, prior=prior)
            number = first.start
        _, theta, result = maximise_likelihood(*part, covariance, start, rng, prior=prior)
    given = X, y, covariance, theta
    posterior = LocalPosterior(*given, neighbours=m, x_units=x_units, y_units=y_units)
    likelihood = posterior.log_likelihood() + float(y_units.scale.log())
    number = result.start if number is None else number
    posterior.training = replace(result, log_likelihood=likelihood, start=number)
    logger.debug("training: %s", posterior.training)
    return posterior, posterior.training


@retrain.register
def retrain_neighbours(
    posterior: LocalPosterior, X: Tensor, y: Tensor, start: Start
) -> LocalPosterior:
    """Train the same kind of nearest-neighbour GP on other data; neighbours are searched again."""
    number = start_of(posterior, start)
    again, result = train_neighbours(
        X,
        y,
        kernel_of(posterior.covariance),
        m=posterior.neighbours,
        start=posterior.theta_R if start == "warm" else number,
        prior=prior_of(posterior, min(len(y), FIRST_ROWS["neighbours"]), start),
    )
    again.training = replace(result, start=number)
    return again
