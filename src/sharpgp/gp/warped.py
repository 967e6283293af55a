r"""A GP on a warped target, for targets whose noise grows with their level.

Counts, prices and forces vary by factors, not by amounts.  ``u = asinh((y - centre) / scale)`` is
linear near ``centre`` and logarithmic far from it on either side; a GP on ``u``, with ``centre``
and ``scale`` trained along with its hyperparameters, answers in the user's units through the
tangent of the inverse map.
"""

import math
from dataclasses import dataclass
from typing import Self

import numpy as np
import torch
from scipy.optimize import minimize
from torch import Tensor

from sharpgp._stored import Array, stored
from sharpgp.exceptions import NumericalError
from sharpgp.gp.covariance import Covariance, Stationary
from sharpgp.gp.linalg import add_to_diagonal, log_marginal_likelihood
from sharpgp.gp.posterior import ExactPosterior, Posterior
from sharpgp.gp.priors import LengthscalePrior, penalty_of
from sharpgp.gp.scaling import Affine
from sharpgp.gp.threads import threads_for
from sharpgp.gp.training import bounds_of, built_in_start

# In standard deviations of the target: below, ties in a discrete target would be all that counts.
_SMALLEST_SCALE, _LARGEST_SCALE = 0.02, 30.0
# How far, in deviations of the warped target, a mean may leave the range of the training targets
# before it is held: the inverse map is exponential.
_OVERSHOOT = 0.5
_MOST_EVALUATIONS = 120


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
    inner=Posterior,
    warp=Warp,
    transient={"theta_R": None, "names": None, "searched": None, "_range": None},
)
class WarpedPosterior(Posterior):
    r"""A GP on a warped target, in the user's units.

    With ``m(x)`` and ``s(theta, x)`` mean and deviation of the warped target,
    ``mu(x) = back(m(x))`` and ``sigma(theta, x) = back'(m(x)) s(theta, x)``: the deviation grows
    with the level where the target's noise does.  ``mu`` is a median rather than a mean.

    Parameters
    ----------
    inner : Posterior
        GP on the warped target.
    warp : Warp

    References
    ----------
    E. Snelson, C. E. Rasmussen and Z. Ghahramani, "Warped Gaussian processes", NeurIPS 2003.

    Examples
    --------
    >>> X = torch.linspace(0, 3, 40, dtype=torch.float64)[:, None]
    >>> y = X[:, 0].exp()
    >>> posterior = train_warped(X, y, Stationary("rbf", 1))
    >>> bool((posterior.mean(X) - y).abs().max() < 0.1)
    True
    """

    def __init__(self, inner: Posterior, warp: Warp) -> None:
        self.inner = inner
        self.warp = warp
        self._restored()

    def _restored(self) -> None:
        inner = self.inner
        self.theta_R, self.names, self.searched = inner.theta_R, inner.names, inner.searched
        u = inner.y_train
        margin = _OVERSHOOT * u.std()
        self._range = u.min() - margin, u.max() + margin

    @property
    def n_train(self) -> int:
        """Number of training points ``N``."""
        return self.inner.n_train

    @property
    def n_features(self) -> int:
        """Number of features ``d``."""
        return self.inner.n_features

    @property
    def device(self) -> torch.device:
        """Where tensors live."""
        return self.inner.device

    @property
    def X_train(self) -> Tensor:
        """Training inputs [N, d] in the user's units."""
        return self.inner.X_train

    @property
    def y_train(self) -> Tensor:
        """Training targets [N] in the user's units."""
        return self.warp.back(self.inner.y_train)

    def mean(self, X: Tensor) -> Tensor:
        """Predictive median ``mu(x)`` [T] under ``theta_R``."""
        return self.warp.back(self._held(self.inner.mean(X)))

    def sigma(self, theta: Tensor, X: Tensor) -> Tensor:
        """Standard deviation [K, T] of a new observation under ``theta``, noise included."""
        return self.inner.sigma(theta, X) * self.warp.slope(self._held(self.inner.mean(X)))

    def loo(self, theta: Tensor) -> tuple[Tensor, Tensor]:
        """Leave-one-out mean and standard deviation [K, N] of the training points."""
        mean, sigma = self.inner.loo(theta)
        mean = self._held(mean)
        return self.warp.back(mean), sigma * self.warp.slope(mean)

    def log_likelihood(self) -> float | None:
        """See :meth:`Posterior.log_likelihood`."""
        inner = self.inner.log_likelihood()
        if inner is None:
            return None
        return inner - float(self.warp.slope(self.inner.y_train).log().mean())

    def log_prior(self) -> float:
        """See :meth:`Posterior.log_prior`."""
        return self.inner.log_prior()

    def subset(self, n: int, generator: torch.Generator) -> "WarpedPosterior":
        """The same GP conditioned on ``n`` random training points only."""
        return WarpedPosterior(self.inner.subset(n, generator), self.warp)

    def conditioned_on(self, X: Tensor, y: Tensor) -> Self:
        """The same GP, hyperparameters and units included, conditioned on other data."""
        return type(self)(self.inner.conditioned_on(X, self.warp.forward(y)), self.warp)

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
) -> WarpedPosterior | None:
    r"""Train a warped GP from scratch by marginal likelihood.

    ``log p(y) = log N(u; 0, Ky) + sum_i log du/dy(y_i)``, over hyperparameters, centre and scale
    of the warp.  None where the kernel is not a named one, or nothing could be factorised.

    Parameters
    ----------
    X : Tensor [N, d]
    y : Tensor [N]
    covariance : Covariance
    start : int, optional
        Number of the built-in start of the hyperparameters.
    prior : LengthscalePrior, optional
        As in :func:`sharpgp.gp.training.train`.
    """
    if not isinstance(covariance, Stationary):
        return None
    x_units, y_units = Affine.standardising(X), Affine.standardising(y)
    objective = _Objective(x_units.forward(X), y_units.forward(y), covariance, prior)
    t = objective.t
    # A tail to the right asks for a logarithm that begins on the left, and the other way round.
    skew = (t - t.mean()).pow(3).mean()
    centre = torch.quantile(t[: 2**20], 0.02 if skew >= 0 else 0.98).item()
    lower, upper = bounds_of(covariance.n_features)
    lower = np.r_[lower, t.min().item() - 3.0, math.log(_SMALLEST_SCALE)]
    upper = np.r_[upper, t.max().item() + 3.0, math.log(_LARGEST_SCALE)]
    origin = np.r_[
        built_in_start(start or 0, covariance.n_features),
        centre,
        math.log(0.5),
    ]
    with threads_for(len(y)):
        found = minimize(
            objective,
            np.clip(origin, lower, upper),
            jac=True,
            method="L-BFGS-B",
            bounds=list(zip(lower, upper, strict=True)),
            options={"maxfun": _MOST_EVALUATIONS, "ftol": 1e-5, "gtol": 1e-6},
        )
    if found.fun >= 1e10:
        return None
    theta = torch.from_numpy(np.exp(found.x[:-2])).to(t)
    scale = y_units.scale * math.exp(found.x[-1])
    warp = Warp(y_units.back(torch.as_tensor(found.x[-2]).to(t)), scale)
    u = warp.forward(y)
    inner = ExactPosterior(
        X, u, covariance, theta, x_units=x_units, y_units=Affine.standardising(u)
    )
    inner.training_start, inner.training_prior = start, prior
    return WarpedPosterior(inner, warp)


class _Objective:
    """Negative log likelihood, or posterior, per point.

    A function of ``log theta``, centre and log scale.
    """

    def __init__(
        self, Z: Tensor, t: Tensor, covariance: Stationary, prior: LengthscalePrior | None = None
    ) -> None:
        self.Z, self.t, self.covariance = Z, t, covariance
        self.penalty = penalty_of(prior, Z)

    def __call__(self, v: np.ndarray) -> tuple[float, np.ndarray]:
        leaf = torch.tensor(v, dtype=torch.float64, device=self.t.device, requires_grad=True)
        theta, centre, scale = leaf[:-2].exp().unsqueeze(0), leaf[-2], leaf[-1].exp()
        u = ((self.t - centre) / scale).asinh()
        deviation = u.std(correction=0)
        log_slopes = -0.5 * ((self.t - centre).square() + scale.square()).log() - deviation.log()
        try:
            Ky = add_to_diagonal(self.covariance.matrix(theta, self.Z), theta[:, -1])
            fit = log_marginal_likelihood(Ky, ((u - u.mean()) / deviation).unsqueeze(0))[0]
            value = -(fit + log_slopes.sum() - self.penalty(leaf)) / len(self.t)
            if not torch.isfinite(value):
                raise NumericalError("the marginal likelihood came out as NaN or inf")
        except NumericalError:
            return 1e10, np.zeros_like(v)  # very bad, but finite: the line search steps back
        (gradient,) = torch.autograd.grad(value, leaf)
        return value.item(), gradient.cpu().numpy()
