"""Which directions get lengthscales of their own, learned from labelled rows.

**Many features.**  A GP with one lengthscale for all features is trained first.  From there, two
candidates are trained a little further:

- the features along which the likelihood grows fastest as their lengthscale shrinks;
- the principal components with the largest variance.

The one with the larger likelihood is taken, less ``log(G choose q) / 2`` for a choice of ``q``
among ``G`` features: the extended Bayesian information criterion.  Components are chosen without a
look at the target.

**Few features** all have lengthscales of their own.  The gradients of the mean that was learned
with these have principal axes, too, those of ``M = sum_i grad mu(x_i) grad mu(x_i)'``: where
functions vary along sums of features, they are better axes than the features.  Lengthscales along
them are learned from there, and taken if that gains in likelihood more than their angles cost, one
nat each (Akaike's price of a parameter).

References
----------
J. Chen and Z. Chen, "Extended Bayesian information criteria for model selection with large model
spaces", Biometrika 2008; for the price of a choice.
A. Radhakrishnan, D. Beaglehole, P. Pandit and M. Belkin, "Mechanism for feature learning in neural
networks and backpropagation-free machine learning models", Science 2024; for the axes of gradients.
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
from sharpgp.gp.kernels.covariance import NOISE, Covariance, Named
from sharpgp.gp.kernels.few_lengthscales import FewLengthscales
from sharpgp.gp.kernels.stationary import SIGNAL
from sharpgp.gp.optimise import minimise, with_gradient
from sharpgp.gp.ties import members, of_each, per_feature
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


@dataclass(frozen=True)
class Turned:
    """A covariance along the axes of gradients, where to start, and what its angles cost.

    Attributes
    ----------
    covariance : Named
    start : Tensor [P]
        ``theta``, of about the same covariances as those before.
    price : float
    """

    covariance: Named
    start: Tensor
    price: float


def turned(covariance: Named, theta: Tensor, rows: Rows, t: Tensor, asked: Directions) -> Turned:
    """A covariance turned to the axes of its GP's gradients, for standardised data.

    The same sum of squared inverse lengthscales is spread over the axes as the gradients are.

    Examples
    --------
    >>> from sharpgp.gp.kernels.covariance import Stationary
    >>> Z = torch.randn(60, 2, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    >>> theta = torch.tensor([1.0, 1.0, 1.0, 0.01], dtype=torch.float64)
    >>> t = (Z[:, 0] + Z[:, 1]).sin()
    >>> found = turned(Stationary("rbf", 2), theta, Rows(Z), t, Directions(2)).covariance
    >>> [round(abs(v), 1) for v in found.sharing.axes[:, 0].tolist()]
    [0.7, 0.7]
    """
    d = covariance.n_features
    r = min(asked.most, d)
    slopes = _slopes(covariance, theta, rows, t)
    values, axes = (part.flip(-1) for part in torch.linalg.eigh(slopes.mT @ slopes))
    directions = asked.learned(rows.X, axes[:, :r].contiguous(), tuple(range(r)))
    share = values.clamp_min(_LOWEST * float(values[0])) / values.sum()
    if r < d:  # what is left over is of the mean size
        share = torch.cat([share[:r], share[r:].mean().reshape(1)])
    along = share.sqrt() * directions.scale[: len(share)]
    inverse, variances = theta.split([covariance.n_inverse, len(theta) - covariance.n_inverse])
    of_parts = per_feature(inverse.view(-1, covariance.n_lengthscales), covariance.ties)
    whole = of_parts.square().sum(-1, keepdim=True).sqrt()
    start = torch.cat([(whole * along).flatten(), variances])
    kernel = FewLengthscales(covariance.kind, d, directions)
    return Turned(kernel, start, r * d - r * (r + 1) / 2)


def _slopes(covariance: Named, theta: Tensor, rows: Rows, t: Tensor) -> Tensor:
    """Gradients [N, d] of the mean in the features, at the rows."""
    one = theta.unsqueeze(0)
    with torch.no_grad():
        L = cholesky(covariance.of_observations(one, rows))[0][0]
        weights = torch.cholesky_solve(t.unsqueeze(-1), L)
    with torch.enable_grad():
        at = rows.X.detach().requires_grad_()
        return torch.autograd.grad((covariance.matrix(one, at, rows.X)[0] @ weights).sum(), at)[0]


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
        inverse = torch.from_numpy(step.log_theta[:SIGNAL]).to(self.Z).exp()
        directions = step.directions
        return directions.relevance(per_feature(inverse, directions.ties_of_coordinates))

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
