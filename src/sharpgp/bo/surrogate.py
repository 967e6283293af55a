r"""The GP of an optimisation: chosen among a few, retrained at every step.

Candidates are two kernels, each on the target as it is and on a warped one
(:mod:`sharpgp.gp.warped`); leave-one-out log density of the target, in closed form, decides.
Training from scratch costs as much as several steps, so all candidates are trained when the data
have grown by a seventh, and in between the chosen one goes on from where it was.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from torch import Tensor

from sharpgp._stored import stored
from sharpgp.exceptions import NumericalError
from sharpgp.gp.exact import ExactPosterior
from sharpgp.gp.kernels import make_covariance, named
from sharpgp.gp.posterior import DataPosterior
from sharpgp.gp.priors import LengthscalePrior
from sharpgp.gp.ties import Ties
from sharpgp.gp.training import train
from sharpgp.gp.warped import Warp, WarpedPosterior, train_warped

#: Kernels that are tried.
KERNELS = ("matern52", "rbf")
#: Growth of the data at which all candidates are trained again.
GROWTH = 1.15
#: Points from which a warp is tried: it has two parameters of its own.
LEAST_WARPED = 6
# What a warp has to gain in leave-one-out log density, summed over points, for its two parameters.
_WARP_COST = 2.0
_PRIOR = LengthscalePrior(fades=False)
# Gain in log likelihood per point below which training stops.
_TOLERANCE = 1e-5


@stored("Surrogate", posterior=DataPosterior, trained_on=int)
@dataclass(frozen=True)
class Surrogate:
    """A trained GP, and the number of points at which its kind was chosen."""

    posterior: DataPosterior
    trained_on: int

    @property
    def gp(self) -> ExactPosterior:
        """The GP of the target, or of what a warp makes of it."""
        gp = self.posterior.base if isinstance(self.posterior, WarpedPosterior) else self.posterior
        assert isinstance(gp, ExactPosterior)
        return gp

    @property
    def warp(self) -> Warp | None:
        """What the target goes through before the GP sees it."""
        return self.posterior.warp if isinstance(self.posterior, WarpedPosterior) else None

    @property
    def knows_noise(self) -> bool:
        """Whether the last feature is the variance of an observation's noise."""
        return bool(getattr(self.gp.covariance, "known_noise", False))

    def inward(self, y: Tensor) -> Tensor:
        """Targets in the units of :attr:`gp`."""
        return y if self.warp is None else self.warp.forward(y)

    def outward(self, u: Tensor) -> Tensor:
        """Units of :attr:`gp` back to those of the target."""
        return u if self.warp is None else self.warp.back(u)

    def next(self, X: Tensor, y: Tensor, **how: Any) -> "Surrogate":
        """The same kind on all data so far, or a new choice where these have grown enough."""
        if len(y) >= GROWTH * self.trained_on:
            return choose(X, y, **how)
        try:
            return Surrogate(self.posterior.retrained(X, y, start="warm"), self.trained_on)
        except NumericalError:
            return choose(X, y, **how)


def choose(
    X: Tensor,
    y: Tensor,
    *,
    ties: Ties | None = None,
    known_noise: bool = False,
    kernels: Sequence[str] = KERNELS,
    warped: bool = True,
) -> Surrogate:
    """Train every candidate from scratch, and take the one that predicts left-out points best.

    Parameters
    ----------
    X : Tensor [N, D]
        Features; with ``known_noise`` the last is the variance of each observation's noise.
    y : Tensor [N]
    ties : tuple of int, optional
        Features that share a lengthscale.
    known_noise : bool
    kernels : sequence of str
    warped : bool
        Whether a warped target is tried, too.

    Examples
    --------
    >>> import torch
    >>> X = torch.linspace(0, 3, 16, dtype=torch.float64)[:, None]
    >>> choose(X, (3 * X[:, 0]).exp()).warp is not None
    True
    """
    candidates: list[tuple[float, DataPosterior]] = []
    for name in kernels:
        kernel = named(name, ties, known_noise)
        plain = train(X, y, kernel, prior=_PRIOR, tolerance=_TOLERANCE)[0]
        candidates.append((left_out_density(plain), plain))
        if warped and not known_noise and len(y) >= LEAST_WARPED:
            start = plain.training.start if plain.training else None
            other = train_warped(
                X, y, make_covariance(kernel, X.shape[1]), start=start, prior=_PRIOR
            )
            if other is not None:
                candidates.append((left_out_density(other) - _WARP_COST, other))
    return Surrogate(max(candidates, key=lambda one: one[0])[1], len(y))


def left_out_density(posterior: DataPosterior) -> float:
    """Sum of leave-one-out log densities of the target, in its own units.

    Examples
    --------
    >>> import torch
    >>> X = torch.linspace(0, 3, 16, dtype=torch.float64)[:, None]
    >>> good, poor = (train(X, X[:, 0].sin(), kernel)[0] for kernel in ("rbf", "matern12"))
    >>> left_out_density(good) > left_out_density(poor)
    True
    """
    gp, slopes = posterior, 0.0
    if isinstance(posterior, WarpedPosterior):
        gp = posterior.base
        slopes = float(posterior.warp.slope(gp.y_train).log().sum())
    mean, sigma = gp.loo(gp.theta_R.unsqueeze(0))
    z = (gp.y_train - mean[0]) / sigma[0]
    density = -0.5 * z.square() - sigma[0].log() - 0.5 * math.log(2.0 * math.pi)
    total = float(density.sum()) - slopes
    return total if math.isfinite(total) else -math.inf
