r"""Training of the GP of an optimisation: a prior on everything that ten points cannot tell.

Maximum a posteriori over lengthscales and noise, with the constant mean that is best for these and
the signal variance of the standardised target.  The mean is not that of the data: the points of an
optimisation gather where results are good, and their mean says nothing about the rest of the space.
Without a prior on the noise, ten points of a rough function are taken for noise altogether.
"""

import math
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from sharpgp.gp.compute import threads_for
from sharpgp.gp.covariance import Named
from sharpgp.gp.dense import add_to_diagonal, cholesky, log_marginal_likelihood
from sharpgp.gp.exact import ExactPosterior
from sharpgp.gp.optimise import minimise, with_gradient
from sharpgp.gp.posterior import DataPosterior
from sharpgp.gp.scaling import Affine
from sharpgp.gp.warped import Warp, WarpedPosterior, side_of

# Log lengthscales, in units of the inputs' range, have this mean plus half the log of their number,
# and this deviation: the mode of the prior that C. Hvarfner, E. O. Hellsten and L. Nardi, "Vanilla
# Bayesian optimization performs great in high dimensions", ICML 2024, propose.
_LENGTHSCALE, _LENGTHSCALE_DEVIATION = math.sqrt(2.0) - 3.0, math.sqrt(3.0)
# Log noise variance, relative to the target's variance: many functions have none at all, so that
# less is believed more readily than more.
_NOISE, _MORE_NOISE, _LESS_NOISE = -5.0, 1.0, 3.0
_SMALLEST_NOISE = 1e-6
# Log scale of a warp, in deviations of the target: a scale of 3 is next to none.
_WARP, _WARP_DEVIATION = math.log(2.0), 1.5
_SMALLEST_WARP, _LARGEST_WARP = 0.02, 30.0
_MOST_EVALUATIONS = 80
_TOLERANCE = 1e-6


@dataclass(frozen=True)
class Trained:
    """A trained GP, and where its search ended, for the next one to start from."""

    posterior: DataPosterior
    at: np.ndarray


def train_map(
    X: Tensor, y: Tensor, covariance: Named, *, warped: bool = False, near: np.ndarray | None = None
) -> Trained | None:
    r"""The GP of greatest posterior density ``p(y | l, noise, m) p(l) p(noise)``.

    Parameters
    ----------
    X : Tensor [N, D]
        Inputs in [0, 1]; of a kernel for known noise, the last is the variance of the noise.
    y : Tensor [N]
    covariance : Named
    warped : bool
        Train a warp of the target, too (:class:`sharpgp.gp.warped.Warp`).
    near : array, optional
        A second start, where an earlier search ended.

    Returns
    -------
    Trained or None
        None where nothing could be factorised.

    Examples
    --------
    >>> from sharpgp.gp.kernels import make_covariance
    >>> X = torch.linspace(0, 1, 9, dtype=torch.float64)[:, None]
    >>> trained = train_map(X, (5 * X[:, 0]).sin(), make_covariance("rbf", 1))
    >>> bool((trained.posterior.mean(X) - (5 * X[:, 0]).sin()).abs().max() < 0.05)
    True
    """
    objective = _Objective(X, y, covariance, warped)
    lower, upper, first = objective.bounds()
    starts = [first] if near is None or len(near) != len(first) else [first, near]
    with threads_for(len(y)):
        found = min(
            (
                minimise(
                    objective.evaluate,
                    start,
                    lower,
                    upper,
                    most=_MOST_EVALUATIONS,
                    tolerance=_TOLERANCE,
                )
                for start in starts
            ),
            key=lambda one: one.value,
        )
    return None if found.failed else Trained(objective.posterior(found.x), found.x)


class _Objective:
    """Negative log posterior density per point.

    A function of log lengthscales and log noise and, of a warp, of centre and log scale.
    """

    def __init__(self, X: Tensor, y: Tensor, covariance: Named, warped: bool) -> None:
        self.X, self.y, self.covariance, self.warped = X, y, covariance, warped
        self.y_units = Affine.standardising(y)
        self.t = self.y_units.forward(y)
        self.n = covariance.n_lengthscales
        self.evaluate = with_gradient(self, "the posterior density", y)
        # The prior is about the whole range of an input, not about that of the data.
        scale = torch.ones(X.shape[1], dtype=X.dtype)
        if covariance.known_noise:
            scale[-1] = self.y_units.scale.square()
        self.x_units = Affine(torch.zeros_like(scale), scale)
        self.Z = self.x_units.forward(X)
        self.centre = _LENGTHSCALE + 0.5 * math.log(self.n)

    def bounds(self) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Box of the search, and where it starts: at the mode of the prior."""
        lower = [math.log(0.01)] * self.n + [math.log(_SMALLEST_NOISE)]
        upper = [math.log(1e3)] * self.n + [math.log(2.0)]
        start = [self.centre] * self.n + [_NOISE]
        if self.warped:
            low, high = self.t.min().item(), self.t.max().item()
            lower += [low - 2.0, math.log(_SMALLEST_WARP)]
            upper += [high + 2.0, math.log(_LARGEST_WARP)]
            end = 0.05 if side_of(self.t) == "low" else 0.95
            start += [float(torch.quantile(self.t, end)), _WARP]
        return np.array(lower), np.array(upper), np.array(start)

    def __call__(self, leaf: Tensor) -> Tensor:
        theta = self._theta(leaf)
        noise, target, slopes = leaf[self.n], self.t, torch.zeros_like(leaf[0])
        penalty = 0.5 * ((leaf[: self.n] - self.centre) / _LENGTHSCALE_DEVIATION).square().sum()
        width = torch.where(noise > _NOISE, _MORE_NOISE, _LESS_NOISE)
        penalty = penalty + 0.5 * ((noise - _NOISE) / width).square()
        if self.warped:
            centre, scale = leaf[-2], leaf[-1].exp()
            u = ((self.t - centre) / scale).asinh()
            deviation = u.std(correction=0)
            slopes = (
                -0.5 * ((self.t - centre).square() + scale.square()).log() - deviation.log()
            ).sum()
            target = (u - u.mean()) / deviation
            penalty = penalty + 0.5 * ((leaf[-1] - _WARP) / _WARP_DEVIATION).square()
        Ky = add_to_diagonal(self.covariance.matrix(theta, self.Z), theta[:, -1])
        # The best mean is a maximum, too, so that no gradient passes through it.
        fit = log_marginal_likelihood(Ky, (target - best_mean(Ky, target)).unsqueeze(0))[0]
        return -(fit + slopes - penalty) / len(self.t)

    def _theta(self, leaf: Tensor) -> Tensor:
        """``theta`` [1, P]: inverse lengthscales, signal variance 1, noise."""
        one = torch.ones_like(leaf[:1])
        return torch.cat([(-leaf[: self.n]).exp(), one, leaf[self.n : self.n + 1].exp()])[None]

    def posterior(self, at: np.ndarray) -> DataPosterior:
        """The GP at the end of a search, in the user's units."""
        leaf = torch.from_numpy(at).to(self.t)
        theta, y, y_units, warp = self._theta(leaf)[0], self.y, self.y_units, None
        if self.warped:
            scale = self.y_units.scale * math.exp(at[-1])
            warp = Warp(self.y_units.back(leaf[-2]), scale)
            y = warp.forward(self.y)
            y_units = Affine.standardising(y)
        Ky = add_to_diagonal(self.covariance.matrix(theta[None], self.Z), theta[-1:])
        mean = best_mean(Ky, y_units.forward(y))
        # In these units the prior mean is 0.
        y_units = Affine(y_units.back(mean), y_units.scale)
        gp = ExactPosterior(
            self.X, y, self.covariance, theta, x_units=self.x_units, y_units=y_units
        )
        return gp if warp is None else WarpedPosterior(gp, warp)


def best_mean(Ky: Tensor, t: Tensor) -> Tensor:
    """The constant mean under which targets [N] with covariance [1, N, N] are likeliest.

    Examples
    --------
    >>> best_mean(torch.eye(3).double()[None], torch.tensor([1.0, 2.0, 6.0]).double()).item()
    3.0
    """
    with torch.no_grad():
        L = cholesky(Ky)[0][0]
        ones = torch.ones_like(t)
        weights = torch.cholesky_solve(ones.unsqueeze(-1), L).squeeze(-1)
        return (weights @ t) / weights.sum()
