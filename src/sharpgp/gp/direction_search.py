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
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np
import torch
from torch import Tensor

from sharpgp.gp.compute import threads_for
from sharpgp.gp.dense import cholesky
from sharpgp.gp.directions import Directions
from sharpgp.gp.exact.likelihood import likelihood_at
from sharpgp.gp.kernels.covariance import NOISE, Covariance
from sharpgp.gp.kernels.few_lengthscales import FewLengthscales
from sharpgp.gp.kernels.stationary import SIGNAL
from sharpgp.gp.optimise import minimise, with_gradient
from sharpgp.gp.ties import members, of_each
from sharpgp.rows import Inputs, Rows

# Of each descent: evaluations at most, and gain below which it stops.
_MOST_EVALUATIONS, _TOLERANCE = 12, 1e-4
# Rounds in which features are chosen: the GP of the second knows the effects of the first.
_ROUNDS = 2
# A feature's own kernel exp(-(x - x')^2 / 4) by its first powers: level, slope and curvature.
_ORDERS, _SQUARED_LENGTHSCALE = 4, 2.0
# (inverse lengthscale, signal and noise variance) of the starts with one lengthscale.
_STARTS = ((1.0, 1.0, 0.1), (1.0, 10.0, 0.01))
_LOWEST, _HIGHEST, _LEAST_NOISE = 1e-4, 1e4, 1e-6


def with_directions(
    covariance: Covariance, rows: Inputs, t: Tensor, scale: Tensor | None = None
) -> Covariance:
    """A covariance of few lengthscales with its directions, which it learns unless it has them.

    Any other covariance as it is.  From standardised rows and targets ``t`` [N]; ``scale`` [d] is
    what the features were divided by.

    Examples
    --------
    >>> Z = torch.randn(60, 30, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    >>> kernel = FewLengthscales("rbf", 30, Directions(2))
    >>> found = with_directions(kernel, Z, (2 * Z[:, 4]).sin() + 0.2 * Z[:, 9])
    >>> found.sharing.axes.nonzero()[:, 0].tolist()
    [4, 9]
    """
    if not isinstance(covariance, FewLengthscales) or covariance.directions.are_learned:
        return covariance
    with threads_for(len(t)):
        found = _learned(covariance.kind, covariance.directions, Rows.of(rows), t, scale)
    return FewLengthscales(covariance.kind, covariance.n_features, found)


def _learned(
    kind: str, directions: Directions, rows: Rows, t: Tensor, scale: Tensor | None
) -> Directions:
    search = _Search(kind, directions, rows, t)
    tied = search.tied()
    found = [search.features(tied), search.components(tied, torch.ones_like(rows.X[0]))]
    if scale is not None:
        found.append(search.components(tied, scale / scale.max()))
    return min(found, key=lambda one: one.price).directions


@dataclass(frozen=True)
class _Step:
    """Directions, ``log theta`` with them, and the negative log likelihood plus the price."""

    directions: Directions
    log_theta: np.ndarray
    price: float


@dataclass(frozen=True)
class _Search:
    """Steps of a search for directions, from standardised data."""

    kind: str
    asked: Directions
    rows: Rows
    t: Tensor

    @property
    def Z(self) -> Tensor:
        """Standardised features [N, d]."""
        return self.rows.X

    @cached_property
    def groups(self) -> list[list[int]]:
        """Features that count as one."""
        return members(self.asked.ties or None, self.Z.shape[1])

    def tied(self) -> _Step:
        """One lengthscale for all features."""
        none = self.asked.learned(self.Z, self.Z.new_zeros(self.Z.shape[1], 0), ())
        return min(
            (self._descent(none, np.log(start)) for start in _STARTS), key=lambda one: one.price
        )

    def features(self, step: _Step) -> _Step:
        """Lengthscales for the features that gain most, in rounds."""
        q = min(self.asked.most, len(self.groups) - 1)
        chosen: list[int] = []
        for stage in range(_ROUNDS):
            gains = self._gains(step)
            gains[chosen] = -math.inf
            more = q * (stage + 1) // _ROUNDS - len(chosen)
            chosen += gains.argsort(descending=True, stable=True)[:more].tolist()
            columns = [j for g in chosen for j in self.groups[g]]
            axes = torch.eye(self.Z.shape[1]).to(self.Z)[:, columns]
            of_axes = tuple(k for k, g in enumerate(chosen) for _ in self.groups[g])
            step = self._onwards(self.asked.learned(self.Z, axes, of_axes), step)
        G = len(self.groups)
        choices = math.lgamma(G + 1) - math.lgamma(q + 1) - math.lgamma(G - q + 1)
        return replace(step, price=step.price + 0.5 * choices)

    def components(self, step: _Step, scale: Tensor) -> _Step:
        """Lengthscales for the principal components, in some units, of the largest variance."""
        rows = (self.Z - self.Z.mean(0)) * scale
        loadings = torch.linalg.svd(rows, full_matrices=False)[2][: self.asked.most].mT
        # Along c in those units is along c times the scale in these.
        axes = torch.linalg.qr(loadings * scale.unsqueeze(1))[0]
        return self._onwards(self.asked.learned(self.Z, axes, tuple(range(axes.shape[1]))), step)

    def _onwards(self, directions: Directions, step: _Step) -> _Step:
        """A descent that begins at the same covariance."""
        inverse = self._inverse(step)
        of_own = (directions.axes.square().mT @ inverse.square()).sqrt() * directions.scale[:-1]
        own = of_own.new_ones(directions.n_lengthscales - 1)
        own[list(directions.of_axes)] = of_own
        rest = inverse.min() * directions.scale[-1:]
        log_inverse = torch.cat([own, rest]).log().cpu().numpy()
        return self._descent(directions, np.r_[log_inverse, step.log_theta[SIGNAL:]])

    def _inverse(self, step: _Step) -> Tensor:
        """Inverse lengthscales of features [d]."""
        q = step.directions.n_lengthscales
        return step.directions.relevance(torch.from_numpy(step.log_theta[:q]).to(self.Z).exp())

    def _descent(self, directions: Directions, start: np.ndarray) -> _Step:
        kernel = FewLengthscales(self.kind, self.Z.shape[1], directions)
        likelihood, t = likelihood_at(kernel, self.rows), self.t
        evaluate = with_gradient(lambda u: -likelihood(u.exp(), t), "the marginal likelihood", t)
        lower, upper = np.full(len(start), _LOWEST), np.full(len(start), _HIGHEST)
        lower[NOISE] = _LEAST_NOISE
        box = np.log(lower), np.log(upper)
        found = minimise(evaluate, start, *box, most=_MOST_EVALUATIONS, tolerance=_TOLERANCE)
        return _Step(directions, found.x, found.value)

    def _gains(self, step: _Step) -> Tensor:
        """How the likelihood changes if the kernel is multiplied by one of each group alone [G]."""
        theta = torch.from_numpy(np.exp(step.log_theta)).to(self.Z)
        kernel = FewLengthscales(self.kind, self.Z.shape[1], step.directions)
        K = kernel.matrix(theta[None], self.Z)
        Ky = kernel.of_observations(theta[None], self.rows)
        Ky_inverse = torch.cholesky_inverse(cholesky(Ky)[0][0])
        alpha, weights = (Ky_inverse @ self.t).unsqueeze(1), Ky_inverse * K[0]
        feature, gains = (
            (-0.5 * self.Z.square() / _SQUARED_LENGTHSCALE).exp(),
            self.Z.new_zeros(self.Z.shape[1]),
        )
        for order in range(_ORDERS):
            scaled = alpha * feature
            gains += (scaled * (K[0] @ scaled) - feature * (weights @ feature)).sum(0)
            feature = feature * self.Z / math.sqrt(_SQUARED_LENGTHSCALE * (order + 1.0))
        return of_each(gains, self.asked.ties or None, "sum")
