"""The GP of an optimisation: chosen among a few, retrained at every step.

Candidates are two kernels, each on the target as it is and on a warped one; leave-one-out log
density decides.  All are trained when the data have grown by a seventh, in between the chosen one.

Training maximises the library's likelihood a posteriori over lengthscales, noise and a constant
mean: the points of an optimisation gather where results are good, so that theirs is no mean of the
function.  Without a prior on the noise, ten points of a rough function are all noise.
"""

import math
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
import torch
from torch import Tensor

from sharpgp._stored import NumPyArray, stored
from sharpgp.exceptions import NumericalError
from sharpgp.gp.compute import threads_for
from sharpgp.gp.covariance import Named
from sharpgp.gp.exact import ExactPosterior
from sharpgp.gp.kernels import make_covariance, named
from sharpgp.gp.likelihood import likelihood_at
from sharpgp.gp.optimise import minimise, with_gradient
from sharpgp.gp.posterior import DataPosterior
from sharpgp.gp.scaling import Affine
from sharpgp.gp.ties import Ties
from sharpgp.gp.warped import Warp, WarpedPosterior, side_of

#: Kernels that are tried.
KERNELS = ("rbf", "matern52")
#: Growth of the data at which all candidates are trained again.
GROWTH = 1.15
#: Points from which a warp is tried: it has two parameters of its own.
MIN_WARPED = 8
#: What a warp, and the smoother kernel, have to gain in leave-one-out log density, summed over
#: points: with few points they look better by chance (``sharpgp bench evidence bo_choice``).
COST = 4.0
# Log lengthscales, in units of the inputs' range, have this mean plus half the log of their number,
# and this deviation: the mode of the prior that C. Hvarfner, E. O. Hellsten and L. Nardi, "Vanilla
# Bayesian optimization performs great in high dimensions", ICML 2024, propose.
_LENGTHSCALE, _LENGTHSCALE_DEVIATION = math.sqrt(2.0) - 3.0, math.sqrt(3.0)
# Log noise variance, relative to the target's variance: many functions have none at all, so that
# less is believed more readily than more.
_NOISE, _MORE_NOISE, _LESS_NOISE = -5.0, 1.0, 3.0
# Log scale of a warp, in deviations of the target: a scale of 3 is next to none.
_WARP, _WARP_DEVIATION = math.log(2.0), 1.5
_MAX_EVALUATIONS = 80


@stored("Surrogate", posterior=DataPosterior, at=NumPyArray("P"), trained_on=int)
@dataclass(frozen=True, eq=False)
class Surrogate:
    """A trained GP, where its search ended, and the number of points at which it was chosen."""

    posterior: DataPosterior
    at: np.ndarray
    trained_on: int

    @property
    def gp(self) -> ExactPosterior:
        """The GP of the target, or of what a warp makes of it."""
        gp = self.posterior.base if isinstance(self.posterior, WarpedPosterior) else self.posterior
        assert isinstance(gp, ExactPosterior)
        return gp

    @property
    def covariance(self) -> Named:
        """Its kernel."""
        assert isinstance(self.gp.covariance, Named)
        return self.gp.covariance

    @property
    def warp(self) -> Warp | None:
        """What the target goes through before the GP sees it."""
        return self.posterior.warp if isinstance(self.posterior, WarpedPosterior) else None

    def inward(self, y: Tensor) -> Tensor:
        """Targets in the units of :attr:`gp`."""
        return y if self.warp is None else self.warp.forward(y)

    def outward(self, u: Tensor) -> Tensor:
        """Units of :attr:`gp` back to those of the target."""
        return u if self.warp is None else self.warp.back(u)

    def next(self, X: Tensor, y: Tensor, *how: Any) -> "Surrogate":
        """The same kind on all data so far, or a new choice where these have grown enough."""
        if len(y) < GROWTH * self.trained_on and X.shape[1] == self.gp.n_features:
            again = train_map(X, y, self.covariance, warped=self.warp is not None, near=self.at)
            if again is not None:
                return Surrogate(*again, self.trained_on)
        return choose(X, y, *how)


def choose(X: Tensor, y: Tensor, ties: Ties | None = None, known_noise: bool = False) -> Surrogate:
    """Train every candidate from scratch, and take the one that predicts left-out points best.

    ``X`` [N, D] are features in [0, 1], of which some share a lengthscale (``ties``); with
    ``known_noise`` the last is the variance of the noise of each target of ``y`` [N].
    """
    found: list[tuple[float, Surrogate]] = []
    for name in KERNELS:
        covariance = make_covariance(named(name, ties, known_noise), X.shape[1])
        assert isinstance(covariance, Named)
        for warp in (False, True):
            # Noise of known variance has another one after a warp, which depends on the target.
            if warp and (known_noise or len(y) < MIN_WARPED):
                continue
            trained = train_map(X, y, covariance, warped=warp)
            if trained is not None:
                score = left_out_density(trained[0]) - COST * (warp + (name == "rbf"))
                found.append((score, Surrogate(*trained, len(y))))
    if not found:
        raise NumericalError(f"none of the GPs could be trained on {len(y)} results")
    return max(found, key=lambda one: one[0])[1]


def left_out_density(posterior: DataPosterior) -> float:
    """Sum of leave-one-out log densities of the target, in its own units."""
    gp, slopes = posterior, 0.0
    if isinstance(posterior, WarpedPosterior):
        gp = posterior.base
        slopes = float(posterior.warp.slope(gp.y_train).log().sum())
    mean, sigma = gp.loo(gp.theta_R.unsqueeze(0))
    z = (gp.y_train - mean[0]) / sigma[0]
    density = -0.5 * z.square() - sigma[0].log() - 0.5 * math.log(2.0 * math.pi)
    total = float(density.sum()) - slopes
    return total if math.isfinite(total) else -math.inf


def train_map(
    X: Tensor, y: Tensor, covariance: Named, *, warped: bool = False, near: np.ndarray | None = None
) -> tuple[DataPosterior, np.ndarray] | None:
    """The GP of greatest posterior density ``p(y | l, noise, m) p(l) p(noise)``.

    And where its search ended; ``near`` is a second start.  None if nothing could be factorised.
    """
    objective = _Objective(X, y, covariance, warped)
    lower, upper, first = objective.bounds()
    starts = [first] if near is None or len(near) != len(first) else [first, near]
    descend, most = partial(minimise, objective.evaluate, tolerance=1e-6), _MAX_EVALUATIONS
    with threads_for(len(y)):
        tried = [descend(start, lower, upper, most=most) for start in starts]
    best = min(tried, key=lambda one: one.value)
    return None if best.failed else (objective.posterior(best.x), best.x)


class _Objective:
    """Negative log posterior density per point.

    A function of log lengthscales, log noise, mean and, of a warp, of centre and log scale.
    """

    def __init__(self, X: Tensor, y: Tensor, covariance: Named, warped: bool) -> None:
        self.X, self.y, self.covariance, self.warped = X, y, covariance, warped
        self.y_units = Affine.standardising(y)
        self.t = self.y_units.forward(y)
        self.n = covariance.n_lengthscales
        # The prior is about the whole range of an input, not about that of the data.
        scale = torch.ones(X.shape[1], dtype=X.dtype)
        if covariance.known_noise:
            scale[-1] = self.y_units.scale.square()
        self.x_units = Affine(torch.zeros_like(scale), scale)
        self.likelihood = likelihood_at(covariance, self.x_units.forward(X))
        self.evaluate = with_gradient(self, "the posterior density", y)
        self.centre = _LENGTHSCALE + 0.5 * math.log(self.n)

    def bounds(self) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Box of the search, and where it starts: at the mode of the prior."""
        low, high = self.t.min().item(), self.t.max().item()
        # (low, high, start) of each; noise below the first bound is out of rounding's reach.
        rows = [(math.log(0.01), math.log(1e3), self.centre)] * self.n
        rows += [(math.log(1e-6), math.log(2.0), _NOISE), (low - 2.0, high + 2.0, 0.0)]
        if self.warped:
            end = 0.05 if side_of(self.t) == "low" else 0.95
            rows += [(low - 2.0, high + 2.0, float(torch.quantile(self.t, end)))]
            rows += [(math.log(0.02), math.log(30.0), _WARP)]
        lower, upper, start = np.array(rows).T
        return lower, upper, start

    def __call__(self, leaf: Tensor) -> Tensor:
        noise, mean = leaf[self.n], leaf[self.n + 1]
        width = torch.where(noise > _NOISE, _MORE_NOISE, _LESS_NOISE)
        lengths = (leaf[: self.n] - self.centre) / _LENGTHSCALE_DEVIATION
        fit = -0.5 * (lengths.square().sum() + ((noise - _NOISE) / width).square())
        target = self.t
        if self.warped:
            centre, scale = leaf[-2], leaf[-1].exp()
            u = ((self.t - centre) / scale).asinh()
            deviation = u.std(correction=0)
            slopes = -0.5 * ((self.t - centre).square() + scale.square()).log() - deviation.log()
            fit = fit + slopes.sum() - 0.5 * ((leaf[-1] - _WARP) / _WARP_DEVIATION).square()
            target = (u - u.mean()) / deviation
        return -(fit + self.likelihood(self._theta(leaf), target - mean)) / len(self.t)

    def _theta(self, leaf: Tensor) -> Tensor:
        """``theta`` [P]: inverse lengthscales, signal variance 1, noise."""
        noise = leaf[self.n : self.n + 1]
        return torch.cat([(-leaf[: self.n]).exp(), torch.ones_like(noise), noise.exp()])

    def posterior(self, at: np.ndarray) -> DataPosterior:
        """The GP at the end of a search, in the user's units."""
        leaf = torch.from_numpy(at).to(self.t)
        y, y_units, warp = self.y, self.y_units, None
        if self.warped:
            warp = Warp(self.y_units.back(leaf[-2]), self.y_units.scale * leaf[-1].exp())
            y = warp.forward(self.y)
            y_units = Affine.standardising(y)
        # In these units the prior mean is 0.
        units = Affine(y_units.back(leaf[self.n + 1]), y_units.scale)
        given = self.X, y, self.covariance, self._theta(leaf)
        gp = ExactPosterior(*given, x_units=self.x_units, y_units=units)
        return gp if warp is None else WarpedPosterior(gp, warp)
