"""Which directions of many features get lengthscales of their own, learned from labelled rows.

A GP with one lengthscale for all features is trained first.  From there, two candidates are
trained a little further:

- the features along which the likelihood grows fastest as their lengthscale shrinks;
- the principal components with the largest variance.

The one with the larger likelihood is taken, less ``log(G choose q) / 2`` for a choice of ``q``
among ``G`` features: the extended Bayesian information criterion.  Components are chosen without a
look at the target.

References
----------
J. Chen and Z. Chen, "Extended Bayesian information criteria for model selection with large model
spaces", Biometrika 2008; for the price of a choice.
"""

import math

import numpy as np
import torch
from torch import Tensor

from sharpgp.gp.compute import threads_for
from sharpgp.gp.directions import Directions
from sharpgp.gp.exact.likelihood import likelihood_at
from sharpgp.gp.kernels.covariance import NOISE, Covariance
from sharpgp.gp.kernels.few_lengthscales import FewLengthscales
from sharpgp.gp.kernels.known_noise import KnownNoise
from sharpgp.gp.kernels.stationary import SIGNAL, StationaryAt
from sharpgp.gp.optimise import Found, minimise, with_gradient
from sharpgp.gp.ties import Ties, members, of_each

_MOST_EVALUATIONS = 30
# (inverse lengthscale, signal and noise variance) of the starts with one lengthscale.
_STARTS = ((1.0, 1.0, 0.1), (1.0, 10.0, 0.01))
_LOWEST, _HIGHEST, _LEAST_NOISE = 1e-4, 1e4, 1e-6


def with_directions(covariance: Covariance, Z: Tensor, t: Tensor) -> Covariance:
    """A covariance of few lengthscales with its directions, which it learns unless it has them.

    Any other covariance as it is.  From standardised inputs ``Z`` [N, d] and targets ``t`` [N].

    Examples
    --------
    >>> Z = torch.randn(60, 30, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    >>> kernel = FewLengthscales("rbf", 30, Directions(2))
    >>> found = with_directions(kernel, Z, (2 * Z[:, 4]).sin() + 0.2 * Z[:, 9])
    >>> found.ties.axes.nonzero()[:, 0].tolist()
    [4, 9]
    """
    if isinstance(covariance, KnownNoise):
        base = with_directions(covariance.base, Z[:, :-1], t)
        return covariance if base is covariance.base else type(covariance)(base)
    if not isinstance(covariance, FewLengthscales) or covariance.directions.are_learned:
        return covariance
    with threads_for(len(t)):
        found = _learned(covariance.kind, covariance.directions, Z, t)
    return FewLengthscales(covariance.kind, covariance.n_features, found)


def _learned(kind: str, directions: Directions, Z: Tensor, t: Tensor) -> Directions:
    none = directions.learned(Z, Z.new_zeros(Z.shape[1], 0), ())
    tied = FewLengthscales(kind, Z.shape[1], none)
    first = min(
        (_descent(tied, Z, t, np.log(start)) for start in _STARTS), key=lambda one: one.value
    )
    gains, groups = _gains(kind, directions.ties or None, Z / none.scale, t, first.x)
    q = min(directions.most, len(groups) - 1)
    best = gains.argsort(descending=True, stable=True)[:q].tolist()
    of_axes = tuple(k for k, g in enumerate(best) for _ in groups[g])
    chosen = [j for g in best for j in groups[g]]
    features = torch.eye(Z.shape[1], dtype=Z.dtype, device=Z.device)[:, chosen]
    components = torch.linalg.svd(Z - Z.mean(0), full_matrices=False)[2][:q].mT.contiguous()
    n_choices = math.lgamma(len(groups) + 1) - math.lgamma(q + 1) - math.lgamma(len(groups) - q + 1)
    candidates = [
        (directions.learned(Z, features, of_axes), 0.5 * n_choices),
        (directions.learned(Z, components, tuple(range(components.shape[1]))), 0.0),
    ]
    return min(
        candidates,
        key=lambda one: _onwards(kind, one[0], Z, t, none, first).value + one[1] / len(t),
    )[0]


def _onwards(
    kind: str, directions: Directions, Z: Tensor, t: Tensor, tied: Directions, first: Found
) -> Found:
    """Where a descent arrives that begins at the same covariance as with one lengthscale."""
    q = directions.n_lengthscales - 1
    own = directions.scale.new_ones(q)
    own[list(directions.of_axes)] = directions.scale[:-1]
    scale = torch.cat([own, directions.scale[-1:]]) / tied.scale
    start = np.r_[first.x[0] + scale.log().cpu().numpy(), first.x[1:]]
    return _descent(FewLengthscales(kind, Z.shape[1], directions), Z, t, start)


def _descent(kernel: FewLengthscales, Z: Tensor, t: Tensor, start: np.ndarray) -> Found:
    likelihood = likelihood_at(kernel, Z)
    evaluate = with_gradient(
        lambda u: -likelihood(u.exp(), t) / len(t), "the marginal likelihood", Z
    )
    lower, upper = np.full(len(start), _LOWEST), np.full(len(start), _HIGHEST)
    lower[NOISE] = _LEAST_NOISE
    return minimise(evaluate, start, np.log(lower), np.log(upper), most=_MOST_EVALUATIONS)


def _gains(
    kind: str, ties: Ties | None, Z: Tensor, t: Tensor, log_theta: np.ndarray
) -> tuple[Tensor, list[list[int]]]:
    """By how much the likelihood grows with each feature's own inverse lengthscale [G].

    At one lengthscale for all; and which features each of them is that of.
    """
    theta = torch.from_numpy(np.exp(log_theta)).to(Z)
    inverse = theta[0].expand(Z.shape[1])
    at = StationaryAt(kind, Z)
    K = Z.new_empty(len(Z), len(Z))
    at.of_parts(inverse, theta[SIGNAL], K)
    L = torch.linalg.cholesky(K.triu() + K.triu(1).mT + theta[NOISE] * torch.eye(len(Z)).to(K))
    Ki = torch.cholesky_inverse(L)
    by_feature = at.by_inverse_lengthscales(Ki, Ki @ t)
    return of_each(by_feature, ties, "sum"), members(ties, Z.shape[1])
