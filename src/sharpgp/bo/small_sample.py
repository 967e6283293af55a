r"""Calibration from ten points on: few scores, shrunk to the quantiles of the GP itself."""

import math
from typing import Any

import numpy as np
import torch
from torch import Tensor

from sharpgp.calibration.predictors.base import Calibrated
from sharpgp.calibration.ranks import centred_levels, table_levels
from sharpgp.distribution import PredictiveDistribution
from sharpgp.gp.dense import cholesky
from sharpgp.gp.exact.posterior import ExactPosterior
from sharpgp.rows import Inputs, Rows

#: Scores that the normal law counts for.
PRIOR_SCORES = 10.0
#: A score beyond this counts as this: it caps the influence of a single outlier.
MAX_SCORE = 10.0
#: Surprises of a model from few points, a normal law of scores: its mean and deviation.
SURPRISE_MEAN, SURPRISE_DEVIATION = -2.0, 5.0
# Width of the normal around a score, in units of the scores' spread at ten scores.
_BANDWIDTH = 0.35
# Steps of the bisection for a quantile; the bracket is halved at each.
_HALVINGS = 60


class ScoreLaw:
    r"""The law of a score, ``F = (m F_0 + sum_i w_i Phi((z - z_i) / h)) / (m + sum_i w_i)``.

    ``F_0`` is normal, but for a share ``e`` that is left to surprises, as a search asks where a
    wrong model promises most: ``(1 - e) N(0, 1) + e N(-2, 5^2)``.  The width ``h`` shrinks with the
    effective number of scores ``z_i`` [C], which are drawn together by as much as ``h`` spreads
    them, so that their variance is kept.
    """

    def __init__(
        self, scores: Tensor, weights: Tensor | None = None, *, surprise: float = 0.0
    ) -> None:
        weights = torch.ones_like(scores) if weights is None else weights
        centres, widths = _smoothed(scores.clamp(-MAX_SCORE, MAX_SCORE), weights)
        own = scores.new_tensor([1.0 - surprise, surprise]) * PRIOR_SCORES
        self.centres = torch.cat([scores.new_tensor([0.0, SURPRISE_MEAN]), centres])
        self.widths = torch.cat([scores.new_tensor([1.0, SURPRISE_DEVIATION]), widths])
        self.weights = torch.cat([own, weights])
        self.weights = self.weights / self.weights.sum()

    def cdf(self, z: Tensor) -> Tensor:
        """``P(score <= z)`` for ``z`` [K], as [K]."""
        u = (z.unsqueeze(-1) - self.centres) / self.widths
        return torch.special.ndtr(u) @ self.weights

    def log_cdf(self, z: Tensor, *, upper: bool = False) -> Tensor:
        """``log P(score <= z)`` for ``z`` [K], or of ``score > z``, far out in the tails, too."""
        u = (z.unsqueeze(-1) - self.centres) / self.widths
        return (torch.special.log_ndtr(-u if upper else u) + self.weights.log()).logsumexp(-1)

    def quantile(self, levels: Tensor) -> Tensor:
        """The inverse of :meth:`cdf` at levels [K] in (0, 1)."""
        own = torch.special.ndtri(levels).unsqueeze(-1) * self.widths + self.centres
        low, high = own.amin(-1), own.amax(-1)  # some component has less mass below, some has more
        for _ in range(_HALVINGS):
            middle = 0.5 * (low + high)
            below = self.cdf(middle) < levels
            low, high = torch.where(below, middle, low), torch.where(below, high, middle)
        return 0.5 * (low + high)


def _smoothed(scores: Tensor, weights: Tensor) -> tuple[Tensor, Tensor]:
    """Centres and widths [C] of the normals that stand for scores."""
    if not len(scores):
        return scores, scores
    total = float(weights.sum())
    mean = (weights @ scores) / total
    spread = ((weights @ (scores - mean).square()) / total).sqrt().clamp(min=0.1)
    effective = total**2 / float(weights.square().sum())
    h = _BANDWIDTH * (10.0 / effective) ** 0.2
    return mean + math.sqrt(1.0 - h * h) * (scores - mean), (h * spread).expand_as(scores)


class SmallSamplePredictor(Calibrated):
    r"""``Q(delta, x) = mu(x) + beta(delta) sigma(x)`` with ``beta`` from a :class:`ScoreLaw`.

    ``latent`` ones are of the function rather than of an observation: ``sigma`` without the noise.
    The function counts as known, without noise, at ``pending`` points [p, D].
    """

    n_cal = None

    def __init__(
        self,
        posterior: ExactPosterior,
        law: ScoreLaw,
        *,
        latent: bool = False,
        pending: Tensor | None = None,
    ) -> None:
        self.posterior: ExactPosterior = posterior
        self.law, self.is_latent = law, latent
        self.pending = None if pending is None or not len(pending) else pending
        self._known: tuple[Tensor, Tensor] | None = None
        if self.pending is not None:
            self._factor = cholesky(posterior.latent_covariance(self.pending, self.pending))[0]

    def location(self, X: Rows) -> Tensor:
        return self.posterior.mean(X)

    def moments(self, X: Inputs) -> tuple[Tensor, Tensor]:
        """Location and spread [T], from one evaluation of the kernel."""
        theta = self.posterior.theta_R.unsqueeze(0)
        mean, sigma = self.posterior.moments(theta, X)
        if not self.is_latent:
            return mean[0], sigma[0]
        variance = sigma[0].square()
        least = 1e-9 * variance.detach().max()  # rounding may leave nothing where it is known
        variance = variance - theta[0, -1] * self.posterior.y_units.scale.square()
        if self.pending is not None:
            shared = self.posterior.latent_covariance(self.pending, Rows.of(X).X)
            explained = torch.linalg.solve_triangular(self._factor, shared, upper=False)
            variance = variance - explained.square().sum(0)
        return mean[0], variance.clamp(min=least).sqrt()

    def quantiles(self, X: Rows, delta: Tensor) -> Tensor:
        """Those of the score asked for last are kept."""
        if self._known is None or not torch.equal(self._known[0], delta):
            self._known = delta, self.law.quantile(delta)
        location, spread = self.moments(X)
        return location + self._known[1].unsqueeze(-1) * spread

    def interval_ends(
        self, X: Rows, coverages: list[float], symmetric: bool | None, weights: Tensor | None
    ) -> Tensor:
        """``symmetric`` takes the farther of the two ends."""
        location, spread = self.moments(X)
        levels = [level for coverage in coverages for level in centred_levels(coverage)]
        beta = self.law.quantile(location.new_tensor(levels)).reshape(-1, 2)
        if symmetric:
            beta = beta.abs().amax(1, keepdim=True) * beta.new_tensor([-1.0, 1.0])
        return location + beta.mT.unsqueeze(-1) * spread

    def distribution(self, X: Rows) -> PredictiveDistribution:
        delta = table_levels(None).to(X.device)
        return PredictiveDistribution(delta, self.quantiles(X, delta))

    def _near_features(self, X: Any) -> Rows:
        """Features, none of which is far away: a search stays within its bounds."""
        return self.rows(X)

    def _warn_of_coverage(self, *of: Any) -> None:
        """Nothing to warn of: beyond the scores the normal law answers."""


def leave_one_out_scores(posterior: ExactPosterior) -> Tensor:
    """Scores [N] of training points under the GP without each of them, in closed form.

    Its hyperparameters have seen them, so that these scores are a little too small.
    """
    mean, sigma = posterior.loo(posterior.theta_R.unsqueeze(0))
    return (posterior.y_train - mean[0]) / sigma[0]


def joint_draws(
    predictor: SmallSamplePredictor, X: Tensor, n: int, generator: torch.Generator | None = None
) -> Tensor:
    r"""Joint draws [n, T] of the function at ``X`` [T, D], with calibrated marginals.

    A draw of the GP has the normal scores ``u(x) = (f(x) - mu(x)) / sigma(x)``, which depend on one
    another as the GP says; the function is then drawn as ``mu(x) + F^-1(Phi(u(x))) sigma(x)`` with
    the law ``F`` of the scores.  The predictor is a latent one: of the function, without noise.
    """
    with torch.no_grad():
        L = cholesky(predictor.posterior.latent_covariance(X, X))[0]
        noise = torch.randn(len(X), n, dtype=X.dtype, generator=generator)
        u = (L @ noise / L.square().sum(-1, keepdim=True).sqrt()).mT
        location, spread = predictor.moments(X)
        nodes = torch.linspace(-7.0, 7.0, 141, dtype=X.dtype)
        table = predictor.law.quantile(torch.special.ndtr(nodes))
        return location + torch.from_numpy(np.interp(u, nodes, table)) * spread


def probability_of_gain(draws: Tensor, amount: float, runs: int) -> float:
    """Probability that ``runs`` more runs find a point better than the best by over ``amount``.

    ``P(max_(i <= runs) f(x_i) > f(x_0) + amount)`` over joint ``draws`` [n, T + 1] of the function:
    at the best point ``x_0`` that was run, and at candidates all over the space and around the best
    points, of which each of ``x_1, x_2, ...`` is the likeliest to gain so much where those before
    it do not: as a search learns from what it runs, those likeliest by themselves are too alike.
    """
    gains = (draws[:, 1:] - draws[:, :1] > amount).double()
    for _ in range(runs):
        if not gains.numel() or not bool((every := gains.sum(0)).any()):
            break
        gains = gains[gains[:, int(every.argmax())] == 0]
    return 1.0 - len(gains) / len(draws)
