"""The GP of an optimisation: chosen among a few, retrained at every step.

They are the library's GPs, trained as everywhere, but for a prior on all hyperparameters, without
which ten points of a rough function are all noise, and for their mean: the points of an
optimisation gather where results are good, so that theirs is no mean of the function.
"""

import math
from dataclasses import dataclass

import torch
from torch import Tensor

from sharpgp._stored import stored
from sharpgp.exceptions import NumericalError
from sharpgp.gp.exact.posterior import ExactPosterior
from sharpgp.gp.kernels.by_name import kernel_of, make_covariance, named
from sharpgp.gp.kernels.covariance import Named
from sharpgp.gp.posterior import DataPosterior
from sharpgp.gp.priors import LengthscalePrior
from sharpgp.gp.ties import Ties
from sharpgp.gp.training import train
from sharpgp.gp.wrappers.target_warp import Warp, WarpedPosterior, train_warped
from sharpgp.rows import Inputs, Rows

#: Kernels that are tried.
KERNELS = ("rbf", "matern52")
#: Growth of the data at which all candidates are trained again.
GROWTH = 1.15
#: Points from which a warp is tried: it has two parameters of its own.
MIN_WARPED = 8
#: What a warp, and the smoother kernel, have to gain in leave-one-out log density, summed over
#: points: with few points they look better by chance (``sharpgp bench evidence bo_choice``).
COST = 4.0
# Log noise variance, relative to the target's variance: many functions have none at all, so that
# less is believed more readily than more.
_NOISE, _MORE_NOISE, _LESS_NOISE = -5.0, 1.0, 3.0


@stored("SearchPrior")
@dataclass(frozen=True)
class SearchPrior(LengthscalePrior):
    r"""A prior on lengthscales, signal and noise variance, for any number of points.

    Log-normal, all: lengthscales about the mode rather than the mean of the log-normal that the
    reference proposes, ``log(l_j / r_j) ~ N(sqrt(2) - 3 + log(d) / 2, 3)``, the signal variance
    about that of the target, and the noise about ``e^-5`` of it.
    """

    fades: bool = False

    def centre(self, Z: Tensor, ties: Ties | None = None) -> Tensor:
        """Mode [P] of the log inverse lengthscales, log signal and log noise variance."""
        inverse = super().centre(Z, ties) + self.deviation**2
        return torch.cat([inverse, inverse.new_tensor([0.0, _NOISE])])

    def penalty(self, log_theta: Tensor, centre: Tensor) -> Tensor:
        """Negative log density of log hyperparameters [P], up to a constant."""
        excess = log_theta - centre
        width = torch.where(excess[-1] > 0, _MORE_NOISE, _LESS_NOISE)
        others = excess[-2].square() + (excess[-1] / width).square()
        return super().penalty(log_theta[:-2], centre[:-2]) + 0.5 * self.weight * others


@stored("Surrogate")
@dataclass(frozen=True, eq=False)
class Surrogate:
    """A trained GP, and the number of points at which it was chosen."""

    posterior: DataPosterior
    trained_on: int

    @property
    def gp(self) -> ExactPosterior:
        """The GP of the target, or of what a warp makes of it."""
        gp = self.posterior.base if isinstance(self.posterior, WarpedPosterior) else self.posterior
        assert isinstance(gp, ExactPosterior)
        return gp

    @property
    def knows_noise(self) -> bool:
        """Whether the results came with the variance of their noise."""
        return self.gp.rows.noise is not None

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

    def next(self, X: Inputs, y: Tensor, ties: Ties | None = None) -> "Surrogate":
        """The same kind on all data so far, or a new choice where these have grown enough."""
        rows = Rows.of(X)
        alike = (rows.n_features, rows.noise is None) == (self.gp.n_features, not self.knows_noise)
        if len(y) < GROWTH * self.trained_on and alike:
            try:
                again = self.posterior.retrained(rows, y, start="warm")
                return Surrogate(recentred(again), self.trained_on)
            except NumericalError:
                pass  # from scratch
        return choose(rows, y, ties)


def choose(X: Inputs, y: Tensor, ties: Ties | None = None) -> Surrogate:
    """Train every candidate from scratch, and take the one that predicts left-out points best.

    ``X`` [N, D] are rows with features in [0, 1], of which some share a lengthscale (``ties``), and
    ``y`` [N] their targets.
    """
    rows = Rows.of(X)
    found: list[tuple[float, Surrogate]] = []
    for name in KERNELS:
        covariance = make_covariance(named(name, ties), rows.n_features)
        assert isinstance(covariance, Named)
        for warped in (False, True):
            # Noise of known variance has another one after a warp, which depends on the target.
            if warped and (rows.noise is not None or len(y) < MIN_WARPED):
                continue
            posterior = trained(rows, y, covariance, warped=warped)
            if posterior is not None:
                score = left_out_density(posterior) - COST * (warped + (name == "rbf"))
                found.append((score, Surrogate(posterior, len(y))))
    if not found:
        raise NumericalError(f"none of the GPs could be trained on {len(y)} results")
    return max(found, key=lambda one: one[0])[1]


def trained(X: Inputs, y: Tensor, covariance: Named, *, warped: bool) -> DataPosterior | None:
    """One candidate; None if nothing could be factorised."""
    prior = SearchPrior()
    try:
        if not warped:
            return recentred(train(X, y, kernel_of(covariance), start=0, prior=prior)[0])
        found = train_warped(X, y, covariance, prior=prior)
        return None if found is None else recentred(found)
    except NumericalError:
        return None


def recentred(posterior: DataPosterior) -> DataPosterior:
    """The same GP about its likeliest mean, see :meth:`ExactPosterior.recentred`."""
    if isinstance(posterior, WarpedPosterior):
        return WarpedPosterior(recentred(posterior.base), posterior.warp)
    assert isinstance(posterior, ExactPosterior)
    return posterior.recentred()


def left_out_density(posterior: DataPosterior) -> float:
    """Sum of leave-one-out log densities of the target, in its own units."""
    total = float(posterior.loo_log_density().sum())
    return total if math.isfinite(total) else -math.inf
