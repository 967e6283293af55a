r"""The GP of an optimisation: chosen among a few, retrained at every step.

Candidates are two kernels, each on the target as it is and on a warped one
(:mod:`sharpgp.gp.warped`), and on request one with noise that differs from place to place
(:mod:`sharpgp.bo.noise`); leave-one-out log density of the target, in closed form, decides.  All
candidates are trained when the data have grown by a seventh; in between the chosen one is trained
again, from the start and from where it was.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor

from sharpgp._stored import NumPyArray, stored
from sharpgp.bo.noise import COST, LEAST_LEARNED, LearnedNoise, learn_noise
from sharpgp.bo.training import Trained, train_map
from sharpgp.exceptions import NumericalError
from sharpgp.gp.covariance import Named
from sharpgp.gp.exact import ExactPosterior
from sharpgp.gp.kernels import make_covariance, named
from sharpgp.gp.posterior import DataPosterior
from sharpgp.gp.ties import Ties
from sharpgp.gp.warped import Warp, WarpedPosterior

#: Kernels that are tried.
KERNELS = ("rbf", "matern52")
#: Growth of the data at which all candidates are trained again.
GROWTH = 1.15
#: Points from which a warp is tried: it has two parameters of its own.
LEAST_WARPED = 8
#: What a warp has to gain in leave-one-out log density, summed over points: more than chance gives
#: it on designs of Levy's function, less than it gains on Rosenbrock's, of many magnitudes.
WARP_COST = 4.0
#: What a kernel has to gain on the other.  Points that are predicted well by chance are predicted
#: best by the smoothest kernel: see ``sharpgp bench evidence bo_choice``.
KERNEL_COSTS = {"rbf": 4.0}


@stored(
    "Surrogate",
    posterior=DataPosterior,
    at=NumPyArray("P"),
    trained_on=int,
    noise=LearnedNoise | None,
)
@dataclass(frozen=True, eq=False)
class Surrogate:
    """A trained GP, where its search ended, and the number of points at which it was chosen.

    ``noise`` is what was learned about noise that differs from place to place, if it was.
    """

    posterior: DataPosterior
    at: np.ndarray
    trained_on: int
    noise: LearnedNoise | None = None

    @property
    def gp(self) -> ExactPosterior:
        """The GP of the target, or of what a warp makes of it."""
        gp = self.posterior.base if isinstance(self.posterior, WarpedPosterior) else self.posterior
        assert isinstance(gp, ExactPosterior)
        return gp

    @property
    def kernel(self) -> str:
        """Name of its kernel."""
        covariance = self.gp.covariance
        assert isinstance(covariance, Named)
        return covariance.kind

    @property
    def warp(self) -> Warp | None:
        """What the target goes through before the GP sees it."""
        return self.posterior.warp if isinstance(self.posterior, WarpedPosterior) else None

    @property
    def knows_noise(self) -> bool:
        """Whether the last feature is the variance of an observation's noise."""
        return bool(getattr(self.gp.covariance, "known_noise", False))

    @property
    def told_noise(self) -> bool:
        """Whether variances of the noise were told, not learned."""
        return self.knows_noise and self.noise is None

    def inward(self, y: Tensor) -> Tensor:
        """Targets in the units of :attr:`gp`."""
        return y if self.warp is None else self.warp.forward(y)

    def outward(self, u: Tensor) -> Tensor:
        """Units of :attr:`gp` back to those of the target."""
        return u if self.warp is None else self.warp.back(u)

    def next(self, X: Tensor, y: Tensor, **how: Any) -> "Surrogate":
        """The same kind on all data so far, or a new choice where these have grown enough."""
        if len(y) < GROWTH * self.trained_on:
            covariance = self.gp.covariance
            assert isinstance(covariance, Named)
            F = X if self.noise is None else _with_noise(X, self.noise.variance(X))
            again = train_map(F, y, covariance, warped=self.warp is not None, near=self.at)
            if again is not None:
                return Surrogate(again.posterior, again.at, self.trained_on, self.noise)
        return choose(X, y, **how)


def choose(
    X: Tensor,
    y: Tensor,
    *,
    ties: Ties | None = None,
    known_noise: bool = False,
    kernels: Sequence[str] = KERNELS,
    warped: bool = True,
    learned_noise: bool = False,
) -> Surrogate:
    """Train every candidate from scratch, and take the one that predicts left-out points best.

    Parameters
    ----------
    X : Tensor [N, D]
        Features in [0, 1]; with ``known_noise`` the last is the variance of the noise of each.
    y : Tensor [N]
    ties : tuple of int, optional
        Features that share a lengthscale.
    known_noise : bool
    kernels : sequence of str
    warped : bool
        Whether a warped target is tried, too.
    learned_noise : bool
        Whether noise that differs from place to place is tried, too.

    Examples
    --------
    >>> X = torch.linspace(0, 3, 16, dtype=torch.float64)[:, None]
    >>> choose(X / 3, (3 * X[:, 0]).exp()).warp is not None
    True
    """
    candidates: list[tuple[float, Trained]] = []
    for name in kernels:
        covariance = _covariance(name, ties, known_noise, X.shape[1])
        for warp in (False, True):
            # Noise of known variance has another one after a warp, which depends on the target.
            if warp and (not warped or known_noise or len(y) < LEAST_WARPED):
                continue
            trained = train_map(X, y, covariance, warped=warp)
            if trained is not None:
                score = _judged(trained.posterior, name, WARP_COST * warp)
                candidates.append((score, trained))
    if not candidates:
        raise NumericalError(f"none of the GPs could be trained on {len(y)} results")
    score, best = max(candidates, key=lambda one: one[0])
    if learned_noise and not known_noise and len(y) >= LEAST_LEARNED:
        found = _with_learned_noise(candidates, ties)
        if found is not None and _judged(found.posterior, found.kernel, COST) > score:
            return found
    return Surrogate(best.posterior, best.at, len(y))


def _judged(posterior: DataPosterior, kernel: str, cost: float) -> float:
    """What a candidate is chosen by: its density, less what it costs."""
    return left_out_density(posterior) - KERNEL_COSTS.get(kernel, 0.0) - cost


def _with_learned_noise(
    candidates: Sequence[tuple[float, Trained]], ties: Ties | None
) -> Surrogate | None:
    """The best candidate without a warp, trained again with the noise that its scores tell of."""
    gps = [(score, one.posterior) for score, one in candidates]
    exact = [(score, gp) for score, gp in gps if isinstance(gp, ExactPosterior)]
    if not exact:
        return None
    _, gp = max(exact, key=lambda one: one[0])
    noise, variances = learn_noise(gp)
    assert isinstance(gp.covariance, Named)
    covariance = _covariance(gp.covariance.kind, ties, True, gp.n_features + 1)
    again = train_map(_with_noise(gp.X_train, variances), gp.y_train, covariance)
    return None if again is None else Surrogate(again.posterior, again.at, gp.n_train, noise)


def _covariance(name: str, ties: Ties | None, known_noise: bool, n_features: int) -> Named:
    covariance = make_covariance(named(name, ties, known_noise), n_features)
    assert isinstance(covariance, Named)
    return covariance


def _with_noise(F: Tensor, variances: Tensor) -> Tensor:
    """Features [N, D + 1] with the variances [N] of the noise as the last."""
    return torch.cat([F, variances.unsqueeze(-1)], -1)


def left_out_density(posterior: DataPosterior) -> float:
    """Sum of leave-one-out log densities of the target, in its own units.

    Examples
    --------
    >>> X = torch.linspace(0, 3, 16, dtype=torch.float64)[:, None]
    >>> from sharpgp.gp.training import train
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
