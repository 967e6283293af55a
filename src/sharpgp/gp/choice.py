"""Exact or sparse: chosen by the number of training points."""

import logging

import gpytorch
from torch import Tensor

from sharpgp._validation import as_count
from sharpgp.gp.inducing import cluster_centres
from sharpgp.gp.posterior import DataPosterior, ExactPosterior
from sharpgp.gp.sparse import SparsePosterior
from sharpgp.gp.sparse_training import relevance, train_sparse
from sharpgp.gp.training import TrainingResult, train

logger = logging.getLogger("sharpgp")

#: Training points up to which a GP is exact unless the user says otherwise, by kind of device.
MOST_EXACT = {"cpu": 3000, "cuda": 10_000}
#: Inducing inputs of a sparse GP, unless the user says otherwise.
INDUCING = 300


def inducing_for(n_train: int, device_type: str, inducing: int | None = None) -> int | None:
    """Number of inducing inputs that ``n_train`` points get; None for an exact GP.

    ``inducing`` is what the user asked for, None for the rule: exact up to
    :data:`MOST_EXACT` points, else :data:`INDUCING` inducing inputs.

    Examples
    --------
    >>> inducing_for(500, "cpu"), inducing_for(50_000, "cpu"), inducing_for(500, "cpu", 20)
    (None, 300, 20)
    """
    if inducing is None:
        return None if n_train <= MOST_EXACT[device_type] else INDUCING
    return min(as_count(inducing, "inducing", least=1), n_train)


def train_chosen(
    X: Tensor,
    y: Tensor,
    kernel: str | gpytorch.kernels.Kernel = "rbf",
    *,
    inducing: int | None = None,
    random_state: int | None = 0,
) -> tuple[DataPosterior, TrainingResult]:
    """Train the kind of GP that :func:`inducing_for` chooses.

    Examples
    --------
    >>> import torch
    >>> X = torch.linspace(0, 6, 60, dtype=torch.float64)[:, None]
    >>> train_chosen(X, X[:, 0].sin())[0].n_inducing is None
    True
    >>> train_chosen(X, X[:, 0].sin(), inducing=10)[0].n_inducing
    10
    """
    m = inducing_for(len(y), X.device.type, inducing)
    kind = "an exact GP" if m is None else f"a sparse GP with {m} inducing inputs"
    logger.debug("training %s on %d points (%s)", kind, len(y), X.device)
    if m is None:
        return train(X, y, kernel, random_state=random_state)
    return train_sparse(X, y, kernel, n_inducing=m, random_state=random_state)


def condition(trained: ExactPosterior, X: Tensor, y: Tensor) -> DataPosterior:
    """The GP that was trained on a part of the data, on all of them: exact or sparse by size."""
    m = inducing_for(len(y), X.device.type)
    if m is None:
        return trained.conditioned_on(X, y)
    Z = cluster_centres(
        trained.x_units.forward(X), m, relevance(trained.covariance, trained.theta_R)
    )
    return SparsePosterior(
        X,
        y,
        trained.covariance,
        trained.theta_R,
        trained.x_units.back(Z),
        x_units=trained.x_units,
        y_units=trained.y_units,
    )
