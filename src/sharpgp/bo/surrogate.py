r"""The GP of an optimisation: chosen among a few, retrained at every step.

Candidates are two kernels, each on the target as it is and on a warped one
(:mod:`sharpgp.gp.warped`); leave-one-out log density of the target, in closed form, decides.  All
candidates are trained when the data have grown by a seventh; in between the chosen one is trained
again, from the start and from where it was.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from torch import Tensor

from sharpgp._stored import NumPyArray, stored
from sharpgp.bo.training import train_map
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
MIN_WARPED = 8
#: What a warp, and the smoother kernel, have to gain in leave-one-out log density, summed over
#: points: with few points they look better by chance (``sharpgp bench evidence bo_choice``).
COST = 4.0


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

    @property
    def knows_noise(self) -> bool:
        """Whether the last feature is the variance of an observation's noise."""
        return self.covariance.known_noise

    def inward(self, y: Tensor) -> Tensor:
        """Targets in the units of :attr:`gp`."""
        return y if self.warp is None else self.warp.forward(y)

    def outward(self, u: Tensor) -> Tensor:
        """Units of :attr:`gp` back to those of the target."""
        return u if self.warp is None else self.warp.back(u)

    def next(self, X: Tensor, y: Tensor, **how: Any) -> "Surrogate":
        """The same kind on all data so far, or a new choice where these have grown enough."""
        if len(y) < GROWTH * self.trained_on and X.shape[1] == self.gp.n_features:
            again = train_map(X, y, self.covariance, warped=self.warp is not None, near=self.at)
            if again is not None:
                return Surrogate(*again, self.trained_on)
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
        Features in [0, 1]; with ``known_noise`` the last is the variance of the noise of each.
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
    >>> choose(X / 3, (3 * X[:, 0]).exp()).warp is not None
    True
    """
    found: list[tuple[float, Surrogate]] = []
    for name in kernels:
        covariance = make_covariance(named(name, ties, known_noise), X.shape[1])
        assert isinstance(covariance, Named)
        for warp in (False, True):
            # Noise of known variance has another one after a warp, which depends on the target.
            if warp and (not warped or known_noise or len(y) < MIN_WARPED):
                continue
            trained = train_map(X, y, covariance, warped=warp)
            if trained is not None:
                score = left_out_density(trained[0]) - COST * (warp + (name == "rbf"))
                found.append((score, Surrogate(*trained, len(y))))
    if not found:
        raise NumericalError(f"none of the GPs could be trained on {len(y)} results")
    return max(found, key=lambda one: one[0])[1]


def left_out_density(posterior: DataPosterior) -> float:
    """Sum of leave-one-out log densities of the target, in its own units.

    Examples
    --------
    >>> import torch
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
