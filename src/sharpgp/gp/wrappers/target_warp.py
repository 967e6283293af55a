r"""A GP on a warped target, for targets whose noise grows with their level.

Counts, prices and forces often vary by factors rather than by amounts.
``u = asinh((y - centre) / scale)`` is linear near ``centre`` and logarithmic far from it on either
side; a GP on ``u``, with ``centre`` and ``scale`` trained along with its hyperparameters, predicts
in the user's units through the tangent of the inverse map.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal, Self

import numpy as np
import torch
from torch import Tensor

from sharpgp._stored import Array, agree, stored
from sharpgp.gp.compute import threads_for
from sharpgp.gp.direction_search import with_directions
from sharpgp.gp.exact.likelihood import likelihood_at
from sharpgp.gp.exact.posterior import ExactPosterior
from sharpgp.gp.kernels.by_name import kernel_of, make_covariance
from sharpgp.gp.kernels.covariance import Covariance, Named
from sharpgp.gp.optimise import Found, minimise, with_gradient
from sharpgp.gp.posterior import DataPosterior, Start
from sharpgp.gp.priors import LengthscalePrior
from sharpgp.gp.scaling import Affine
from sharpgp.gp.training import bounds_of, built_in_start, prior_of, result_of, start_of
from sharpgp.gp.wrappers.wrapper import WrappedPosterior

# In standard deviations of the target: below, ties in a discrete target would be all that counts.
_SMALLEST_SCALE, _LARGEST_SCALE = 0.02, 30.0
# The inverse map is exponential, so a mean is held where it leaves the range of training targets by
# this many deviations of the warped target; or farther, where the inverse map is this many times as
# steep as at the end of the range.  Where a warp is next to linear, that is far.
_OVERSHOOT = 0.5
_STEEPER = 2.0
_MOST_EVALUATIONS = 120
# Evaluations from each side before only the best one continues.
_TRIED_FOR = 20

#: Where among the targets the search for a warp's centre begins, ...
Side = Literal["low", "high", "middle"]
#: ... as a quantile of theirs.
_CENTRES: dict[Side, float] = {"low": 0.02, "high": 0.98, "middle": 0.5}


@stored("Warp", centre=Array(), scale=Array(positive=True))
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

    centre: Tensor
    scale: Tensor

    def forward(self, y: Tensor) -> Tensor:
        """User's units to warped."""
        return ((y - self.centre) / self.scale).asinh()

    def back(self, u: Tensor) -> Tensor:
        """Warped to user's units."""
        return self.centre + self.scale * u.sinh()

    def slope(self, u: Tensor) -> Tensor:
        """Derivative of :meth:`back`, by which deviations grow on the way back."""
        return self.scale * u.cosh()


@stored(
    "WarpedPosterior",
    base=DataPosterior,
    warp=Warp,
    side=str,
    transient={"theta_R": None, "names": None, "searched": None, "training": None, "_range": None},
)
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
    side : str
        Where the search for the warp's centre began, which its refits begin with, too.

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

    def __init__(self, base: DataPosterior, warp: Warp, side: Side = "low") -> None:
        super().__init__(base)
        self.warp, self.side = warp, side
        self._range = self._held_range()

    def _restored(self) -> None:
        agree("side of a warp", self.side in _CENTRES, True)
        self._take_over()
        self._range = self._held_range()

    def _held_range(self) -> tuple[Tensor, Tensor]:
        u = self.base.y_train
        low, high, margin = u.min(), u.max(), _OVERSHOOT * u.std()
        lower = torch.minimum(low - margin, -(_STEEPER * low.cosh()).acosh())
        upper = torch.maximum(high + margin, (_STEEPER * high.cosh()).acosh())
        return lower, upper

    def _around(self, base: DataPosterior, X: Tensor, y: Tensor) -> Self:
        return type(self)(base, self.warp, self.side)

    def _targets(self, X: Tensor, y: Tensor) -> Tensor:
        return self.warp.forward(y)

    @property
    def y_train(self) -> Tensor:
        return self.warp.back(self.base.y_train)

    def mean(self, X: Tensor) -> Tensor:
        """Predictive median ``mu(x)`` [T] under ``theta_R``."""
        return self.warp.back(self._held(self.base.mean(X)))

    def sigma(self, theta: Tensor, X: Tensor) -> Tensor:
        """Standard deviation [K, T] of a new observation under ``theta``, noise included."""
        return self._deviation(self.base.mean(X), self.base.sigma(theta, X))

    def mean_and_sigma(self, X: Tensor) -> tuple[Tensor, Tensor]:
        """Covariances with training points are shared."""
        mean, sigma = self.base.mean_and_sigma(X)
        return self.warp.back(self._held(mean)), self._deviation(mean, sigma)

    def loo(self, theta: Tensor) -> tuple[Tensor, Tensor]:
        """Leave-one-out mean and standard deviation [K, N] of the training points."""
        mean, sigma = self.base.loo(theta)
        return self.warp.back(self._held(mean)), self._deviation(mean, sigma)

    def loo_log_density(self) -> Tensor:
        """With the log slopes of the warp."""
        return self.base.loo_log_density() - self.warp.slope(self.base.y_train).log()

    def left_out(self, rows: Tensor) -> tuple[Tensor, Tensor]:
        mean, sigma = self.base.left_out(rows)
        return self.warp.back(self._held(mean)), self._deviation(mean, sigma)

    def log_likelihood(self) -> float:
        """With the log slopes of the warp.

        A density of the targets themselves, so that it can be compared with that of any other GP.
        """
        return self.base.log_likelihood() - float(self.warp.slope(self.base.y_train).log().mean())

    def retrained(self, X: Tensor, y: Tensor, *, start: Start = "same") -> DataPosterior:
        """The warp is trained again, too.

        From scratch, as by :func:`train_warped`; a warm start keeps the warp.
        """
        if start != "warm" and isinstance(self.base, ExactPosterior):
            again = retrain_warped(self.base, X, y, start, side=self.side)
            if again is not None:
                return again
        return super().retrained(X, y, start=start)

    def _deviation(self, mean: Tensor, sigma: Tensor) -> Tensor:
        held = self._held(mean)
        return (sigma + (mean - held).abs()) * self.warp.slope(held)

    def _held(self, u: Tensor) -> Tensor:
        low, high = self._range
        return torch.maximum(torch.minimum(u, high), low)


def train_warped(
    X: Tensor,
    y: Tensor,
    covariance: Covariance,
    *,
    start: int | None = None,
    prior: LengthscalePrior | None = None,
    side: Side | None = None,
) -> WarpedPosterior | None:
    r"""Train a warped GP from scratch by marginal likelihood.

    ``log p(y) = log N(u; 0, Ky) + sum_i log du/dy(y_i)``, over hyperparameters, centre and scale of
    the warp.  Returns None if the kernel is not a named one, noise is known, or no start could be
    factorised.

    Parameters
    ----------
    X : Tensor [N, d]
    y : Tensor [N]
    covariance : Covariance
    start : int, optional
        Number of the built-in start of the hyperparameters.
    prior : LengthscalePrior, optional
        As in :func:`sharpgp.gp.training.train`.
    side : str, optional
        Where the search for the centre begins: ``"low"``, ``"high"`` or ``"middle"``.  None: away
        from the longer tail of the targets, see :func:`side_of`.
    """
    search = _Search.from_data(X, y, covariance, start, prior)
    if search is None:
        return None
    side = side_of(y) if side is None else side
    return search.posterior(side, [search.descent(search.origin(side), _MOST_EVALUATIONS)])


@dataclass(frozen=True)
class _Search:
    """Searches for a warped GP: data as given and in standardised units, and where to begin."""

    X: Tensor
    y: Tensor
    covariance: Named
    start: int | None
    prior: LengthscalePrior | None
    units: tuple[Affine, Affine]
    standardised: tuple[Tensor, Tensor]

    @classmethod
    def from_data(
        cls,
        X: Tensor,
        y: Tensor,
        covariance: Covariance,
        start: int | None,
        prior: LengthscalePrior | None,
    ) -> "_Search | None":
        """None where there can be no warp."""
        # A warp changes the variance of known noise by an amount that depends on the target.
        if not isinstance(covariance, Named) or covariance.known_noise:
            return None
        y_units = Affine.standardising(y)
        x_units = covariance.units(X, y_units)
        standardised = x_units.forward(X), y_units.forward(y)
        covariance = with_directions(covariance, *standardised, x_units.scale)
        assert isinstance(covariance, Named)
        return cls(X, y, covariance, start, prior, (x_units, y_units), standardised)

    def origin(self, side: Side) -> np.ndarray:
        """``log theta``, centre and log scale that a search from a side begins with."""
        _, t = self.standardised
        centre = torch.quantile(t[: 2**20], _CENTRES[side]).item()
        return np.r_[built_in_start(self.start or 0, self.covariance), centre, math.log(0.5)]

    def descent(self, origin: np.ndarray, most: int) -> Found:
        """End of a search after at most this many evaluations."""
        Z, t = self.standardised
        objective = _Objective(Z, t, self.covariance, self.prior)
        lower, upper = bounds_of(self.covariance)
        lower = np.r_[lower, t.min().item() - 3.0, math.log(_SMALLEST_SCALE)]
        upper = np.r_[upper, t.max().item() + 3.0, math.log(_LARGEST_SCALE)]
        box = origin, lower, upper
        with threads_for(len(t)):
            return minimise(objective.evaluate, *box, most=most, tolerance=1e-5, gtol=1e-6)

    def posterior(self, side: Side, tried: Sequence[Found]) -> WarpedPosterior | None:
        """The GP that the last search found; None where nothing could be factorised."""
        found = tried[-1]
        if found.failed:
            return None
        (Z, t), (x_units, y_units) = self.standardised, self.units
        theta = torch.from_numpy(np.exp(found.x[:-2])).to(t)
        scale = y_units.scale * math.exp(found.x[-1])
        warp = Warp(y_units.back(torch.as_tensor(found.x[-2]).to(t)), scale)
        u = warp.forward(self.y)
        penalty = float(self.covariance.penalty(self.prior, Z)(theta.log())) / len(t)
        base = ExactPosterior(
            self.X,
            u,
            self.covariance,
            theta,
            x_units=x_units,
            y_units=Affine.standardising(u),
            training=result_of(found, tried, self.start, self.prior, penalty),
        )
        return WarpedPosterior(base, warp, side)


def side_of(y: Tensor) -> Side:
    """The side that the longer tail is not on: a tail asks for a logarithm.

    Examples
    --------
    >>> side_of(torch.tensor([0.0, 1.0, 10.0])), side_of(torch.tensor([0.0, 9.0, 10.0]))
    ('low', 'high')
    """
    return "low" if (y - y.mean()).pow(3).mean() >= 0 else "high"


def retrain_warped(
    posterior: ExactPosterior,
    X: Tensor,
    y: Tensor,
    start: Start = "same",
    *,
    side: Side | None = None,
) -> WarpedPosterior | None:
    """A warped GP on other data, from the start and with the prior that ``posterior`` had."""
    number, prior = start_of(posterior, start), prior_of(posterior, len(y), start)
    covariance = make_covariance(kernel_of(posterior.covariance), X.shape[1])
    return train_warped(X, y, covariance, start=number, prior=prior, side=side)


def best_warped(posterior: ExactPosterior) -> WarpedPosterior | None:
    """A warped GP on the data of a plain one, from the side that is ahead after a few steps.

    The likelihood has several maxima.  A search that begins on the wrong side often ends where the
    warp is next to linear, or in a poorer one.
    """
    X, y = posterior.X_train, posterior.y_train
    start, prior = start_of(posterior), prior_of(posterior, len(y), "same")
    search = _Search.from_data(X, y, posterior.covariance, start, prior)
    if search is None:
        return None

    tried = {side: search.descent(search.origin(side), _TRIED_FOR) for side in _CENTRES}
    best = min(tried, key=lambda side: tried[side].value)
    onwards = search.descent(tried[best].x, _MOST_EVALUATIONS - _TRIED_FOR)
    return search.posterior(best, [*tried.values(), onwards])


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
