r"""A GP on a warped target, for targets whose noise grows with their level.

Counts, prices and forces often vary by factors rather than by amounts.
``u = asinh((y - centre) / scale)`` is linear near ``centre`` and logarithmic far from it on either
side; a GP on ``u``, with ``centre`` and ``scale`` trained along with its hyperparameters, predicts
in the user's units through the tangent of the inverse map.
"""

import math
from dataclasses import dataclass
from functools import cached_property
from typing import Annotated, Self

import numpy as np
import torch
from torch import Tensor

from sharpgp._stored import Array, stored
from sharpgp.exceptions import InvalidInputError
from sharpgp.gp.compute import threads_for
from sharpgp.gp.exact.likelihood import likelihood_at
from sharpgp.gp.exact.posterior import ExactPosterior
from sharpgp.gp.kernels.by_name import kernel_of
from sharpgp.gp.kernels.covariance import Covariance, Named
from sharpgp.gp.optimise import minimise, with_gradient
from sharpgp.gp.posterior import DataPosterior, Posterior, Start
from sharpgp.gp.priors import LengthscalePrior
from sharpgp.gp.scaling import Affine
from sharpgp.gp.training import (
    REFIT_TOLERANCE,
    STEPS,
    bounds_of,
    prior_of,
    result_of,
    start_of,
    train,
)
from sharpgp.gp.wrappers.wrapper import WrappedPosterior
from sharpgp.rows import Inputs, Rows

# In standard deviations of the target: below, ties in a discrete target would be all that counts.
# As many times as large, a warp is next to linear.
_SMALLEST_SCALE = 0.02
# How far a mean may leave the range of the training targets before it is held, as the inverse map
# is exponential: so many deviations of the warped target, or farther, to where the inverse map is
# so many times as steep as at the end of the range.  Where a warp is next to linear, that is far.
_OVERSHOOT = 0.5
_STEEPER = 2.0
_MOST_EVALUATIONS = 120


@stored("Warp")
@dataclass(frozen=True)
class Warp:
    """``u = asinh((y - centre) / scale)``, increasing on the whole line.

    Examples
    --------
    >>> warp = Warp(torch.tensor(1.0).double(), torch.tensor(2.0).double())
    >>> y = torch.tensor([-3.0, 1.0, 50.0], dtype=torch.float64)
    >>> warp.back(warp.forward(y)).tolist()
    [-3.0, 1.0, 50.0]
    """

    centre: Annotated[Tensor, Array()]
    scale: Annotated[Tensor, Array(positive=True)]

    def forward(self, y: Tensor) -> Tensor:
        """User's units to warped."""
        return ((y - self.centre) / self.scale).asinh()

    def back(self, u: Tensor) -> Tensor:
        """Warped to user's units."""
        return self.centre + self.scale * u.sinh()

    def slope(self, u: Tensor) -> Tensor:
        """Derivative of :meth:`back`, by which deviations grow on the way back."""
        return self.scale * u.cosh()


@stored("WarpedPosterior")
@dataclass(frozen=True, eq=False, repr=False)
class WarpedPosterior(WrappedPosterior):
    r"""A GP on a warped target, in the user's units.

    With ``m(x)`` and ``s(theta, x)`` mean and deviation of the warped target,
    ``mu(x) = back(m(x))`` and ``sigma(theta, x) = back'(m(x)) s(theta, x)``: the deviation grows
    with the level where the target's noise does.  ``mu`` is a median rather than a mean.

    Beyond the training targets, where ``back`` explodes, ``m(x)`` is held at the end ``e`` of a
    range, and ``sigma`` says how far: ``s(theta, x) + |m(x) - e|`` takes the place of ``s``.

    Parameters
    ----------
    base : DataPosterior
        GP on the warped target.
    warp : Warp

    References
    ----------
    E. Snelson, C. E. Rasmussen and Z. Ghahramani, "Warped Gaussian processes", NeurIPS 2003.

    Examples
    --------
    >>> X = torch.linspace(0, 3, 40, dtype=torch.float64)[:, None]
    >>> y = X[:, 0].exp()
    >>> from sharpgp.gp.kernels.by_name import make_covariance
    >>> posterior = train_warped(X, y, make_covariance("rbf", 1))
    >>> bool((posterior.mean(X) - y).abs().max() < 0.1)
    True
    """

    base: DataPosterior
    warp: Warp

    @cached_property
    def _range(self) -> tuple[Tensor, Tensor]:
        u = self.base.y_train
        low, high, margin = u.min(), u.max(), _OVERSHOOT * u.std()
        lower = torch.minimum(low - margin, -(_STEEPER * low.cosh()).acosh())
        upper = torch.maximum(high + margin, (_STEEPER * high.cosh()).acosh())
        return lower, upper

    def _around(self, base: DataPosterior, rows: Rows, y: Tensor) -> Self:
        return type(self)(base, self.warp)

    def _inputs(self, rows: Rows) -> Rows:
        if rows.noise is not None:
            raise InvalidInputError(
                "noise: expected rows without noise of their own to condition a warped GP on, "
                "found some with; train it on all rows"
            )
        return rows

    def _targets(self, rows: Rows, y: Tensor) -> Tensor:
        return self.warp.forward(y)

    @property
    def y_train(self) -> Tensor:
        return self.warp.back(self.base.y_train)

    def mean(self, rows: Inputs) -> Tensor:
        """Predictive median ``mu(x)`` [T] under ``theta_R``."""
        return self.warp.back(self._held(self.base.mean(rows)))

    def sigma(self, theta: Tensor, rows: Inputs) -> Tensor:
        """Standard deviation [K, T] of a new observation under ``theta``, noise included."""
        rows, inside = Rows.of(rows), Rows.of(rows).without("noise")
        sigma = self._deviation(self.base.mean(inside), self.base.sigma(theta, inside))
        return sigma if rows.noise is None else (sigma.square() + rows.noise).sqrt()

    def mean_and_sigma(self, rows: Inputs) -> tuple[Tensor, Tensor]:
        """Covariances with training points are shared."""
        rows = Rows.of(rows)
        mean, sigma = self.base.mean_and_sigma(rows.without("noise"))
        sigma = self._deviation(mean, sigma)
        if rows.noise is not None:
            sigma = (sigma.square() + rows.noise).sqrt()
        return self.warp.back(self._held(mean)), sigma

    def loo(self, theta: Tensor) -> tuple[Tensor, Tensor]:
        """Leave-one-out mean and standard deviation [K, N] of the training points."""
        mean, sigma = self.base.loo(theta)
        return self.warp.back(self._held(mean)), self._deviation(mean, sigma)

    def loo_log_density(self) -> Tensor:
        """With the log slopes of the warp."""
        return self.base.loo_log_density() - self.warp.slope(self.base.y_train).log()

    def left_out(self, which: Tensor) -> tuple[Tensor, Tensor]:
        mean, sigma = self.base.left_out(which)
        return self.warp.back(self._held(mean)), self._deviation(mean, sigma)

    def log_likelihood(self) -> float:
        """With the log slopes of the warp.

        A density of the targets themselves, so that it can be compared with that of any other GP.
        """
        return self.base.log_likelihood() - float(self.warp.slope(self.base.y_train).log().mean())

    def retrained(self, rows: Inputs, y: Tensor, *, start: Start = "same") -> DataPosterior:
        """The warp is trained again, too.

        From a GP without one, see :func:`warped`; a warm start keeps the warp.
        """
        if start != "warm" and isinstance(self.base, ExactPosterior):
            plain = self.base.retrained(rows, y, start=start)
            again = warped(plain)
            if again is not None:
                return again
        return super().retrained(rows, y, start=start)

    def _deviation(self, mean: Tensor, sigma: Tensor) -> Tensor:
        held = self._held(mean)
        return (sigma + (mean - held).abs()) * self.warp.slope(held)

    def _held(self, u: Tensor) -> Tensor:
        low, high = self._range
        return torch.maximum(torch.minimum(u, high), low)


def train_warped(
    X: Inputs,
    y: Tensor,
    covariance: Covariance,
    *,
    start: int | None = None,
    prior: LengthscalePrior | None = None,
) -> WarpedPosterior | None:
    """A warped GP by marginal likelihood, from the GP without a warp: see :func:`warped`.

    Arguments are those of :func:`sharpgp.gp.training.train`.  Returns None where there is no warp.
    """
    kernel, number = kernel_of(covariance), start or 0
    plain, _ = train(X, y, kernel, start=number, tolerance=REFIT_TOLERANCE, prior=prior)
    return warped(plain)


def warped(posterior: Posterior) -> WarpedPosterior | None:
    r"""A warped GP on the data of a plain one, by marginal likelihood.

    ``log p(y) = log N(u; 0, Ky) + sum_i log du/dy(y_i)``, over hyperparameters, centre and scale of
    the warp.  The search begins with the plain GP's hyperparameters and a warp about the median.
    From there it needs half the evaluations that it takes from scratch, and is seldom caught in
    one of the poorer maxima.

    Returns None if the GP is not exact, the kernel not a named one, noise is known, or nothing
    could be factorised.
    """
    if not isinstance(posterior, ExactPosterior):
        return None
    covariance = posterior.covariance
    # A warp changes the variance of known noise by an amount that depends on the target.
    if not isinstance(covariance, Named) or posterior.rows.noise is not None:
        return None
    Z, t = posterior.X_standardised, posterior.y_standardised
    prior = prior_of(posterior, len(t), "same")
    lower, upper = bounds_of(covariance)
    box = (
        np.r_[posterior.theta_R.log().cpu().numpy(), float(t.median()), math.log(0.5)],
        np.r_[lower, t.min().item() - 3.0, math.log(_SMALLEST_SCALE)],
        np.r_[upper, t.max().item() + 3.0, -math.log(_SMALLEST_SCALE)],
    )
    with threads_for(len(t)):
        found = minimise(
            _Objective(Z, t, covariance, prior).evaluate,
            *box,
            most=_MOST_EVALUATIONS,
            tolerance=REFIT_TOLERANCE,
            steps=STEPS,
        )
    if found.failed:
        return None
    theta = torch.from_numpy(np.exp(found.x[:-2])).to(t)
    scale = posterior.y_units.scale * math.exp(found.x[-1])
    warp = Warp(posterior.y_units.back(torch.as_tensor(found.x[-2]).to(t)), scale)
    u = warp.forward(posterior.y_train)
    penalty = float(covariance.penalty(prior, Z)(theta.log())) / len(t)
    base = ExactPosterior(
        posterior.rows,
        u,
        covariance,
        theta,
        x_units=posterior.x_units,
        y_units=Affine.standardising(u),
        training=result_of(found, [found], start_of(posterior), prior, penalty),
    )
    return WarpedPosterior(base, warp)


class _Objective:
    """Negative log likelihood, or posterior, per point.

    A function of ``log theta``, centre and log scale.
    """

    def __init__(
        self, Z: Tensor, t: Tensor, covariance: Named, prior: LengthscalePrior | None = None
    ) -> None:
        self.t, self.likelihood = t, likelihood_at(covariance, Z)
        self.penalty = covariance.penalty(prior, Z)
        self.evaluate = with_gradient(self, "the marginal likelihood", t)

    def __call__(self, leaf: Tensor) -> Tensor:
        theta, centre, scale = leaf[:-2].exp(), leaf[-2], leaf[-1].exp()
        u = ((self.t - centre) / scale).asinh()
        deviation = u.std(correction=0)
        log_slopes = -0.5 * ((self.t - centre).square() + scale.square()).log() - deviation.log()
        fit = self.likelihood(theta, (u - u.mean()) / deviation)
        return -(fit + log_slopes.sum() - self.penalty(leaf)) / len(self.t)
