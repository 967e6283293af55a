"""The kind of GP for many rows: learned from some of them, conditioned on all."""

import math
from functools import partial
from typing import Any

import torch
from torch import Tensor

from sharpgp.gp.kernel_posterior import KernelPosterior
from sharpgp.gp.kernels.by_name import Kernel, make_covariance
from sharpgp.gp.kernels.covariance import Named
from sharpgp.gp.local.posterior import LocalPosterior
from sharpgp.gp.posterior import DataPosterior, Posterior, Start, retrain
from sharpgp.gp.sparse.training import train_sparse
from sharpgp.gp.training import retrain_exact, train
from sharpgp.gp.wrappers.wrapper import WrappedPosterior
from sharpgp.policy import (
    INDUCING,
    JUDGED_ROWS,
    LEARNED_ROWS,
    QUICK_LOSS,
    SEARCHED_ROWS,
    Policy,
)
from sharpgp.rows import Inputs, Rows


def condition(
    trained: Posterior,
    rows: Inputs,
    y: Tensor,
    policy: Policy,
    *,
    in_blocks: bool | None = None,
) -> DataPosterior:
    """A GP with the hyperparameters of another one, conditioned on rows [N] and ``y`` [N].

    Exactly up to the policy's number of rows; beyond, from landmarks and neighbours.  ``in_blocks``
    says whether its points share factors where they may, by default as left-out rows decide.

    Examples
    --------
    >>> import torch
    >>> X = torch.linspace(0, 6, 200, dtype=torch.float64)[:, None]
    >>> trained, _ = train(X[::5], X[::5, 0].sin())
    >>> few = Policy(exact_rows=100, landmarks=20, neighbours=10)
    >>> condition(trained, X, X[:, 0].sin(), few)
    <LocalPosterior: 200 training points, 1 features>
    >>> condition(trained, X, X[:, 0].sin(), Policy())
    <ExactPosterior: 200 training points, 1 features>
    """
    if isinstance(trained, WrappedPosterior):
        again = partial(condition, policy=policy, in_blocks=in_blocks)
        return trained.conditioned_by(again, rows, y)
    if not isinstance(trained, KernelPosterior) or not isinstance(trained.covariance, Named):
        found: DataPosterior = trained.conditioned_on(rows, y)
        return found
    sizes = {"landmarks": policy.landmarks, "neighbours": policy.neighbours}
    local = partial(LocalPosterior.from_trained, trained, rows, y, **sizes)
    size = policy.cell_rows(len(y), y.device.type)
    if in_blocks is None and trained.n_train > policy.learned_rows:  # compared before
        in_blocks = shares_factors(trained)
    if size and in_blocks:
        return local().in_blocks(size)
    full = trained.conditioned_on(rows, y) if policy.is_exact(len(y)) else local()
    return _cheaper(full, local().in_blocks(size)) if size and in_blocks is None else full


def shares_factors(gp: Posterior) -> bool:
    """Whether points of a GP, or of the one that it wraps, share the factors of their cell."""
    while isinstance(gp, WrappedPosterior):
        gp = gp.base
    return isinstance(gp, LocalPosterior) and gp.block_rows > 0


def _cheaper(full: DataPosterior, blocks: LocalPosterior) -> DataPosterior:
    """The same GP in blocks of rows, if it then predicts left-out points about as well."""
    with torch.no_grad():
        judged = blocks.rows_of_some_cells(JUDGED_ROWS)
        y = blocks.y_train[judged]
        own, shared = (normal_crps(y, *gp.left_out(judged)) for gp in (full, blocks))
    return blocks if shared <= QUICK_LOSS * own else full


def normal_crps(y: Tensor, mean: Tensor, sigma: Tensor, spread: Tensor | float = 0.0) -> float:
    """Mean CRPS of normal laws, of which ``y`` is known, or normal with a deviation of its own.

    ``E |N(y - mean, sigma^2 + spread^2)| - sigma / sqrt(pi)``.

    Examples
    --------
    >>> one = torch.ones(1, dtype=torch.float64)
    >>> round(normal_crps(0 * one, 0 * one, one), 3), round(normal_crps(0 * one, one, one, one), 3)
    (0.234, 0.835)
    """
    apart = (sigma.square() + spread**2).sqrt()
    z = (y - mean) / apart
    density = (-0.5 * z.square()).exp() / math.sqrt(2.0 * math.pi)
    distance = apart * (z * (2.0 * torch.special.ndtr(z) - 1.0) + 2.0 * density)
    return float((distance - sigma / math.sqrt(math.pi)).mean())


def train_chosen(
    X: Inputs,
    y: Tensor,
    kernel: Kernel = "rbf",
    policy: Policy | None = None,
    *,
    searched: bool = True,
    random_state: int | None = 0,
    **training: Any,
) -> DataPosterior:
    """Train the kind of GP that the policy gives these rows.

    ``searched`` says that a method will evaluate it under many other hyperparameters;
    ``training`` are settings of :func:`~sharpgp.gp.training.train`.

    Examples
    --------
    >>> import torch
    >>> X = torch.linspace(0, 6, 60, dtype=torch.float64)[:, None]
    >>> train_chosen(X, X[:, 0].sin()).n_inducing is None
    True
    >>> train_chosen(X, X[:, 0].sin(), policy=Policy(inducing=10)).n_inducing
    10
    """
    policy, rows = policy or Policy(), Rows.of(X)
    named = isinstance(make_covariance(kernel, rows.n_features), Named)
    m = policy.inducing
    n, approximates = len(y), policy.landmarks > 0 and policy.exact_rows is not None
    many = n > SEARCHED_ROWS[rows.device.type] if searched else not policy.is_exact(n)
    if m is None and approximates and many and (searched or not named):
        m = INDUCING
    if m is not None:
        m = min(m, n)
        return train_sparse(rows, y, kernel, n_inducing=m, random_state=random_state)[0]
    gp, _ = train(rows, y, kernel, random_state=random_state, **training)
    return gp if searched and policy.landmarks else condition(gp, rows, y, policy)


@retrain.register
def retrain_local(posterior: LocalPosterior, X: Inputs, y: Tensor, start: Start) -> DataPosterior:
    """Learn from a part of other data, and condition on all of them in the same way."""
    again = retrain_exact(posterior, X, y, start, most=LEARNED_ROWS)
    sizes = {"landmarks": posterior.landmarks, "neighbours": posterior.neighbours}
    return LocalPosterior.from_trained(again, X, y, **sizes, seed=posterior.seed)
