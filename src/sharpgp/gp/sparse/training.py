"""Training of a sparse GP, by Titsias' bound, and of whichever kind of GP is chosen."""

import logging
from dataclasses import replace
from typing import Literal

import numpy as np
import torch
from torch import Tensor

from sharpgp.gp.compute import threads_for
from sharpgp.gp.direction_search import with_directions
from sharpgp.gp.kernels.by_name import Kernel, kernel_of, make_covariance
from sharpgp.gp.kernels.covariance import NOISE, Covariance, Named
from sharpgp.gp.posterior import Start, TrainingResult, retrain
from sharpgp.gp.priors import LengthscalePrior
from sharpgp.gp.scaling import Affine
from sharpgp.gp.sparse.elbo_training import maximise_bound, unexplained
from sharpgp.gp.sparse.inducing import cluster_centres
from sharpgp.gp.sparse.posterior import SparsePosterior
from sharpgp.gp.sparse.whitening import Data
from sharpgp.gp.training import (
    chosen_prior,
    maximise_likelihood,
    prior_of,
    start_of,
)
from sharpgp.rows import Inputs, Rows

logger = logging.getLogger("sharpgp")

# Rows of the exact GP whose hyperparameters sparse training starts from.
_FIRST_ROWS = 1000
# Most rows for steps on all of them, by kind of device, and rows of a batch beyond.
_MOST_FULL_BATCH = {"cpu": 20_000, "cuda": 200_000}
_BATCH_ROWS = {"cpu": 10_000, "cuda": 50_000}
# Number of batches before the last steps on all rows.
_BATCHES = 4
_MOST_EVALUATIONS = 200
#: Evaluations of a fit that continues another.  Fits from scratch, as in cross-validation, get as
#: many as the full fit, because early stopping changes the size of the spread.
REFIT_EVALUATIONS = 60


def train_sparse(
    X: Inputs,
    y: Tensor,
    kernel: Kernel = "rbf",
    *,
    n_inducing: int = 300,
    start: Tensor | int | None = None,
    inducing: Tensor | None = None,
    random_state: int | None = 0,
    most: int = _MOST_EVALUATIONS,
    prior: LengthscalePrior | Literal["auto"] | None = "auto",
) -> tuple[SparsePosterior, TrainingResult]:
    r"""Train a sparse GP by maximising Titsias' bound of the marginal likelihood.

    1. Hyperparameters of an exact GP on 1,000 random rows;
    2. inducing inputs by k-means, in the metric of those hyperparameters;
    3. noise raised by the variance left :func:`unexplained` by these inducing inputs;
    4. bounded L-BFGS on the bound of all rows, over both.  Beyond 20,000 rows it
       first goes through a few random batches of 10,000 rows, each from where the
       last one left off, and takes only the last steps on all rows: a batch that holds many times
       the number of inducing inputs already tells where these belong, while the noise and the
       lengthscales gain from all rows.

    Parameters
    ----------
    X : Rows or Tensor [N, d]
    y : Tensor [N]
    kernel : str, NamedKernel or gpytorch kernel
    n_inducing : int
        Number of inducing inputs ``M``.
    start : Tensor [P] or int, optional
        Hyperparameters to start from instead of step 1, or the number of the built-in start that
        step 1 uses.
    inducing : Tensor [M, d], optional
        Inducing inputs to start from, instead of step 2.
    random_state : int, optional
        Seed of the random rows and of k-means.
    most : int
        Most evaluations of the bound on all rows; with batches, a tenth of that on all rows and a
        fifth on each batch.
    prior : LengthscalePrior or None
        As in :func:`sharpgp.gp.training.train`; added to the bound, too.

    Returns
    -------
    posterior : SparsePosterior
    result : TrainingResult
        With the bound per point as ``log_likelihood``.

    References
    ----------
    M. Titsias, "Variational Learning of Inducing Variables in Sparse Gaussian Processes",
    AISTATS 2009.

    Examples
    --------
    >>> X = torch.linspace(0, 6, 200, dtype=torch.float64)[:, None]
    >>> posterior, result = train_sparse(X, X[:, 0].sin(), n_inducing=15)
    >>> posterior.n_inducing
    15
    """
    rows = Rows.of(X)
    covariance = make_covariance(kernel, rows.n_features)
    y_units = Affine.standardising(y)
    x_units = covariance.units(rows.X)
    data = Data(covariance, x_units.forward(rows.X), y_units.forward(y))
    rng = np.random.default_rng(random_state)
    prior = chosen_prior(prior, data.covariance, len(y))
    number = start if isinstance(start, int) else None
    with threads_for(0):
        if isinstance(start, Tensor):
            theta = start
        else:
            some = torch.from_numpy(rng.permutation(len(y))[:_FIRST_ROWS]).to(rows.device)
            first = data.X[some], data.y[some]
            covariance = with_directions(covariance, *first, x_units.scale)
            covariance, theta, first_result = maximise_likelihood(
                *first, covariance, start, rng, prior=prior
            )
            data = replace(data, covariance=covariance)
            number = first_result.start
        if inducing is None:
            weight = relevance(data.covariance, theta)
            Z = cluster_centres(data.X, n_inducing, weight, seed=int(rng.integers(2**31)))
        else:
            Z = x_units.forward(inducing)
        if not isinstance(start, Tensor):
            # With the noise of an exact GP, the bound penalises few inducing inputs so strongly
            # that the first steps would explain everything as noise, and stay there.
            theta = torch.cat([theta[:NOISE], theta[NOISE:] + unexplained(data, theta, Z)])
        theta, Z, result = _in_batches(data, theta, Z, rng, number, most, prior)
    logger.debug("training: %s", result)
    given = rows, y, data.covariance, theta, x_units.back(Z)
    return SparsePosterior(*given, x_units=x_units, y_units=y_units, training=result), result


@retrain.register
def retrain_sparse(
    posterior: SparsePosterior, X: Inputs, y: Tensor, start: Start
) -> SparsePosterior:
    """Train the same kind of sparse GP on other data: see ``DataPosterior.retrained``.

    Inducing inputs are chosen again unless the start is warm.
    """
    covariance, warm = posterior.covariance, start == "warm"
    named = isinstance(covariance, Named)
    number = start_of(posterior, start) if named else None
    again, result = train_sparse(
        X,
        y,
        kernel_of(covariance, learned=warm),
        n_inducing=min(posterior.n_inducing, len(y)),
        start=posterior.theta_R if warm else number,
        inducing=posterior.inducing if warm else None,
        most=REFIT_EVALUATIONS if warm else _MOST_EVALUATIONS,
        prior=prior_of(posterior, len(y), start),
    )
    again.training = replace(result, start=number)
    return again


def _in_batches(
    data: Data,
    theta: Tensor,
    Z: Tensor,
    rng: np.random.Generator,
    number: int | None,
    most: int,
    prior: LengthscalePrior | None,
) -> tuple[Tensor, Tensor, TrainingResult]:
    n, device = len(data.y), data.X.device
    if n <= _MOST_FULL_BATCH[device.type]:
        return maximise_bound(data, theta, Z, most=most, number=number, prior=prior)
    evaluations, failures = 0, list[str]()
    for rows in np.array_split(rng.permutation(n), -(-n // _BATCH_ROWS[device.type]))[:_BATCHES]:
        chosen = torch.from_numpy(np.sort(rows)).to(device)
        batch = Data(data.covariance, data.X[chosen], data.y[chosen])
        theta, Z, part = maximise_bound(batch, theta, Z, most=most // 5, prior=prior)
        evaluations, failures = evaluations + part.evaluations, [*failures, *part.failures]
        logger.debug("training on a batch of %d rows: %s", len(chosen), part)
    theta, Z, last = maximise_bound(data, theta, Z, most=most // 10, number=number, prior=prior)
    # Steps on all rows are few by design, so running out of them is normal.
    status = "retried" if failures or last.failures else "converged"
    return (
        theta,
        Z,
        replace(
            last,
            status=status,
            evaluations=evaluations + last.evaluations,
            failures=tuple(dict.fromkeys([*failures, *last.failures])),
        ),
    )


def relevance(covariance: Covariance, theta: Tensor) -> Tensor:
    """Inverse lengthscale of every feature [d]; ones if the kernel has none."""
    if isinstance(covariance, Named):
        return covariance.relevance(theta)
    return theta.new_ones(1)
