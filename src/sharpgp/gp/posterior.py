"""What a trained GP can answer under any hyperparameters, in the user's units."""

import copy
from abc import ABC, abstractmethod
from typing import Any, Self

import torch
from torch import Tensor

from sharpgp._stored import Array, Maybe, agree, stored
from sharpgp.exceptions import InvalidInputError, warn
from sharpgp.gp.covariance import Covariance
from sharpgp.gp.large import MOST_BATCHED, factor_of, likelihood_of, loo_of, variance_of
from sharpgp.gp.linalg import add_to_diagonal, cholesky, posterior_variance
from sharpgp.gp.priors import LengthscalePrior, penalty_of
from sharpgp.gp.scaling import Affine

#: Matrix entries that one block of work may hold (2^25 doubles are 256 MiB).
BLOCK_ENTRIES = 2**25
#: Entries of the factors of several ``theta`` that are kept between predictions (1 GiB).
KEPT_ENTRIES = 4 * BLOCK_ENTRIES
# Noise above this share of the signal variance, per training point, is out of rounding's reach.
_ROUNDING_PER_POINT = 1e-14


class Posterior(ABC):
    """A GP conditioned on data: the one interface that calibration works through.

    ``theta_R`` [P] are the hyperparameters that the mean uses; ``sigma`` and ``loo`` take any
    other ``theta`` [K, P], so that levels can be batched.  Inputs and answers are in the user's
    units, inputs of shape [T, d].
    """

    theta_R: Tensor
    names: tuple[str, ...]
    searched: Tensor

    @property
    @abstractmethod
    def n_train(self) -> int:
        """Number of training points ``N``."""

    @property
    @abstractmethod
    def n_features(self) -> int:
        """Number of features ``d``."""

    @property
    def n_inducing(self) -> int | None:
        """Number of inducing inputs of a sparse GP; None for an exact one."""
        return None

    @property
    @abstractmethod
    def device(self) -> torch.device:
        """Where tensors live."""

    @abstractmethod
    def mean(self, X: Tensor) -> Tensor:
        """Predictive mean ``mu(x)`` [T] under ``theta_R``."""

    @abstractmethod
    def sigma(self, theta: Tensor, X: Tensor) -> Tensor:
        """Standard deviation [K, T] of a new observation under ``theta``, noise included."""

    @abstractmethod
    def loo(self, theta: Tensor) -> tuple[Tensor, Tensor]:
        """Leave-one-out mean and standard deviation [K, N] of the training points."""

    @abstractmethod
    def conditioned_on(self, X: Tensor, y: Tensor) -> Self:
        """The same GP, hyperparameters and units included, conditioned on other data."""

    def at_rows(self, rows: Tensor) -> Self:
        """The same GP conditioned on some of its training points only, by their numbers."""
        return self.conditioned_on(self.X_train[rows], self.y_train[rows])

    def subset(self, n: int, generator: torch.Generator) -> Self:
        """The same GP conditioned on ``n`` random training points only."""
        if not 1 <= n <= self.n_train:
            raise InvalidInputError(
                f"subset: expected between 1 and {self.n_train} training points, found {n}"
            )
        return self.at_rows(torch.randperm(self.n_train, generator=generator)[:n].to(self.device))

    def extended(self, X: Tensor, y: Tensor) -> Self:
        """The same GP, hyperparameters and units included, conditioned on further data, too."""
        return self.conditioned_on(torch.cat([self.X_train, X]), torch.cat([self.y_train, y]))

    def retrained(self, X: Tensor, y: Tensor, *, warm: bool = False) -> "Posterior":
        """The same kind of GP, trained on other data from scratch or from its hyperparameters.

        A warm start saves most of the time, but keeps what the hyperparameters knew of the old
        data; where that matters, as in cross-validation, training starts from scratch.  A
        posterior that came trained from elsewhere need not be able to do this.
        """
        raise InvalidInputError(
            "expected a GP that can be trained again on other data, found "
            f"{type(self).__name__}; use a calibration that keeps the model, such as 'exact'"
        )

    def jitter(self, theta: Tensor) -> Tensor:
        """What factorising the covariance under ``theta`` takes, relative to its diagonal [K]."""
        return torch.zeros(len(theta), dtype=theta.dtype, device=theta.device)

    def log_likelihood(self) -> float | None:
        """Log density of the targets under ``theta_R``, per training point, in the user's units.

        Of a sparse GP a lower bound of it; None where there is no such thing.
        """
        return None

    def log_prior(self) -> float:
        """Log density of ``theta_R`` under the prior that it was trained with, per training point.

        Up to a constant; 0 without a prior.  With :meth:`log_likelihood`, what training maximised.
        """
        return 0.0

    def retargeted(self, y: Tensor) -> Self:
        """The same GP conditioned on other targets [N] at the same training inputs."""
        return self.conditioned_on(self.X_train, y)

    @property
    @abstractmethod
    def X_train(self) -> Tensor:
        """Training inputs [N, d] in the user's units."""

    @property
    @abstractmethod
    def y_train(self) -> Tensor:
        """Training targets [N] in the user's units."""


class DataPosterior(Posterior):
    """A GP that holds its covariance, hyperparameters, units and standardised training data."""

    #: The prior on lengthscales that training used; None for a GP that came otherwise.
    training_prior: LengthscalePrior | None = None

    def __init__(
        self,
        X: Tensor,
        y: Tensor,
        covariance: Covariance,
        theta_R: Tensor,
        *,
        x_units: Affine | None = None,
        y_units: Affine | None = None,
    ) -> None:
        self.covariance = covariance
        self.names = covariance.names
        self.searched = covariance.searched
        self.theta_R = theta_R
        self.x_units = x_units or Affine.identity(X)
        self.y_units = y_units or Affine.identity(y)
        self._X = self.x_units.forward(X)
        self._y = self.y_units.forward(y)
        #: Which of the built-in starts training took; None for a GP that came otherwise.
        self.training_start: int | None = None

    def _restored(self) -> None:
        agree("length of theta_R", len(self.theta_R), self.covariance.n_theta)
        agree("units of the inputs", self.x_units.shift.shape, self._X[0].shape)
        agree("units of the target", self.y_units.shift.shape, self._y[0].shape)
        # Kernels of gpytorch do not tell how many features they take.
        theta = self.theta_R.unsqueeze(0)
        agree("kernel of a point", self.covariance.matrix(theta, self._X[:1]).shape, (1, 1, 1))
        self.names, self.searched = self.covariance.names, self.covariance.searched

    @property
    def n_train(self) -> int:
        """Number of training points ``N``."""
        return self._X.shape[0]

    @property
    def n_features(self) -> int:
        """Number of features ``d``."""
        return self._X.shape[1]

    @property
    def device(self) -> torch.device:
        """Where tensors live."""
        return self._X.device

    @property
    def X_train(self) -> Tensor:
        """Training inputs [N, d] in the user's units."""
        return self.x_units.back(self._X)

    @property
    def y_train(self) -> Tensor:
        """Training targets [N] in the user's units."""
        return self.y_units.back(self._y)

    @property
    def X_standardised(self) -> Tensor:
        """Training inputs [N, d] in the units that the covariance works in."""
        return self._X

    @property
    def y_standardised(self) -> Tensor:
        """Training targets [N] in the units that the covariance works in."""
        return self._y

    def _per_point(self, log_likelihood: Tensor) -> float:
        """A log likelihood [1] of the standardised targets as :meth:`log_likelihood` has it."""
        return float(log_likelihood[0] / self.n_train - self.y_units.scale.log())

    def log_prior(self) -> float:
        """See :meth:`Posterior.log_prior`."""
        penalty = penalty_of(self.training_prior, self._X)
        return -float(penalty(self.theta_R.log())) / self.n_train

    @abstractmethod
    def moments(self, theta: Tensor, X: Tensor) -> tuple[Tensor, Tensor]:
        """Predictive mean and standard deviation [K, T], both under each ``theta`` [K, P]."""

    @abstractmethod
    def in_units(self, theta_R: Tensor, x_units: Affine, y_units: Affine) -> "DataPosterior":
        """The same data and covariance in other standardised units, with ``theta_R`` in those."""


#: What files hold of every GP with its data; names and searched follow from the covariance.
STORED: dict[str, Any] = {
    "covariance": Covariance,
    "theta_R": Array("P", positive=True),
    "x_units": Affine,
    "y_units": Affine,
    "_X": Array("N d"),
    "_y": Array("N"),
    "training_start": int | None,
    "training_prior": Maybe(LengthscalePrior | None),
}
DERIVED: dict[str, Any] = {"names": None, "searched": None}


@stored("ExactPosterior", **STORED, transient=DERIVED | {"_weights": None, "_factors": None})
class ExactPosterior(DataPosterior):
    r"""Posterior of an exact GP.

    ``mu(x) = k(x)' Ky^-1 y`` under ``theta_R`` and
    ``sigma^2(theta, x) = k(x, x) + noise - k(x)' Ky^-1 k(x)`` under ``theta``, where
    ``Ky = K(theta) + noise I`` on the training points.

    Parameters
    ----------
    X : Tensor [N, d]
    y : Tensor [N]
        Training data in the user's units.
    covariance : Covariance
    theta_R : Tensor [P]
        Hyperparameters, in standardised units.
    x_units, y_units : Affine
        Maps from the user's units to the standardised ones.

    Examples
    --------
    >>> from sharpgp.gp.covariance import Stationary
    >>> X = torch.linspace(0, 1, 5, dtype=torch.float64)[:, None]
    >>> y = X[:, 0].sin()
    >>> theta = torch.tensor([1.0, 1.0, 0.01], dtype=torch.float64)
    >>> gp = ExactPosterior(X, y, Stationary("rbf", 1), theta)
    >>> gp.mean(X).shape, gp.sigma(theta[None], X).shape
    (torch.Size([5]), torch.Size([1, 5]))
    """

    _weights: Tensor | None = None
    _factors: tuple[Tensor, Tensor] | None = None

    def mean(self, X: Tensor) -> Tensor:
        """Predictive mean ``mu(x)`` [T] under ``theta_R``."""
        theta = self.theta_R.unsqueeze(0)
        if self._weights is None:
            L = self._factor(theta)[0]
            self._weights = torch.cholesky_solve(self._y.unsqueeze(-1), L)
        weights = self._weights
        blocks = [
            (self.covariance.matrix(theta, block, self._X)[0] @ weights).squeeze(-1)
            for block in self.x_units.forward(X).split(self._rows_per_block(1))
        ]
        return self.y_units.back(torch.cat(blocks))

    def sigma(self, theta: Tensor, X: Tensor) -> Tensor:
        """Standard deviation [K, T] of a new observation under ``theta``, noise included."""
        Z = self.x_units.forward(X)
        levels = self._levels_per_block()
        if theta.requires_grad or theta.shape[0] <= levels:
            variance = self._variance(theta, Z)
        else:
            variance = torch.cat([self._variance(part, Z) for part in theta.split(levels)])
        return variance.sqrt() * self.y_units.scale

    def loo(self, theta: Tensor) -> tuple[Tensor, Tensor]:
        """Leave-one-out mean and standard deviation [K, N] of the training points."""
        residual, variance = loo_of(self.covariance, theta, self._X, self._y)
        mean = self.y_units.back(self._y - residual)
        return mean, variance.sqrt() * self.y_units.scale

    def jitter(self, theta: Tensor) -> Tensor:
        """See :meth:`Posterior.jitter`; factorises only where rounding may reach the noise."""
        signal = self.covariance.diag(theta, self._X).amax(-1)
        doubtful = (theta[:, -1] < _ROUNDING_PER_POINT * self.n_train * signal).nonzero()[:, 0]
        out = torch.zeros_like(signal)
        with torch.no_grad():
            for k in doubtful.tolist():
                Ky = self._covariance_of_data(theta[k : k + 1])
                out[k] = cholesky(Ky)[1][0] / Ky.diagonal(dim1=-2, dim2=-1).mean()
        return out

    def conditioned_on(self, X: Tensor, y: Tensor) -> "ExactPosterior":
        """The same GP, hyperparameters and units included, conditioned on other data."""
        other = ExactPosterior(
            X, y, self.covariance, self.theta_R, x_units=self.x_units, y_units=self.y_units
        )
        other.training_prior = self.training_prior
        return other

    def moments(self, theta: Tensor, X: Tensor) -> tuple[Tensor, Tensor]:
        """See :meth:`DataPosterior.moments`."""
        Z = self.x_units.forward(X)
        whole = len(theta) * self.n_train**2 <= KEPT_ENTRIES
        size = len(theta) if whole else self._levels_per_block()
        parts = [self._moments(part, Z) for part in theta.split(size)]
        mean, variance = (torch.cat(part) for part in zip(*parts, strict=True))
        return self.y_units.back(mean), variance.sqrt() * self.y_units.scale

    def in_units(self, theta_R: Tensor, x_units: Affine, y_units: Affine) -> "ExactPosterior":
        """See :meth:`DataPosterior.in_units`."""
        data = self.X_train, self.y_train
        other = ExactPosterior(*data, self.covariance, theta_R, x_units=x_units, y_units=y_units)
        other.training_prior = self.training_prior
        return other

    def _moments(self, theta: Tensor, Z: Tensor) -> tuple[Tensor, Tensor]:
        L = self._factor(theta)
        weights = torch.cholesky_solve(self._y.expand(len(theta), -1).unsqueeze(-1), L)
        Ks = self.covariance.matrix(theta, self._X, Z)
        prior = self.covariance.diag(theta, Z) + theta[:, -1:]
        variance = posterior_variance(L, Ks, prior, L)
        # Rounding may take a near-noiseless variance below zero; it is never exactly zero.
        variance = torch.maximum(variance, 1e-12 * prior)
        return (Ks.mT @ weights).squeeze(-1), variance

    def retrained(self, X: Tensor, y: Tensor, *, warm: bool = False) -> "ExactPosterior":
        """See :meth:`Posterior.retrained`."""
        from sharpgp.gp.training import retrain  # training makes posteriors

        return retrain(self, X, y, warm=warm)

    def retargeted(self, y: Tensor) -> Self:
        """See :meth:`Posterior.retargeted`; factors are kept, they do not depend on targets."""
        other = copy.copy(self)
        other._y, other._weights = self.y_units.forward(y), None
        return other

    def log_likelihood(self) -> float:
        """See :meth:`Posterior.log_likelihood`."""
        theta = self.theta_R.unsqueeze(0)
        with torch.no_grad():
            return self._per_point(likelihood_of(self.covariance, theta, self._X, self._y))

    def _variance(self, theta: Tensor, Z: Tensor) -> Tensor:
        prior = self.covariance.diag(theta, Z) + theta[:, -1:]
        floor = 1e-12 * prior.detach()
        if theta.requires_grad:
            variance = variance_of(self.covariance, theta, self._X, Z, prior)
        else:
            L = self._factor(theta)
            blocks = zip(
                Z.split(self._rows_per_block(theta.shape[0])),
                prior.split(self._rows_per_block(theta.shape[0]), -1),
                strict=True,
            )
            parts = [
                posterior_variance(L, self.covariance.matrix(theta, self._X, block), kss, L)
                for block, kss in blocks
            ]
            variance = torch.cat(parts, -1)
        # Rounding may take a near-noiseless variance below zero; it is never exactly zero.
        return torch.maximum(variance, floor)

    def _covariance_of_data(self, theta: Tensor) -> Tensor:
        return add_to_diagonal(self.covariance.matrix(theta, self._X), theta[:, -1])

    def _factor(self, theta: Tensor) -> Tensor:
        """Cholesky factors for ``theta``; the last ones are kept, as predictions come in blocks."""
        if self._factors is None or not torch.equal(self._factors[0], theta):
            with torch.no_grad():
                if len(theta) == 1 and self.n_train > MOST_BATCHED:
                    self._factors = None  # one matrix at a time
                    L, jitter = factor_of(self.covariance, theta[0], self._X)
                    L = L.unsqueeze(0)
                else:
                    L, jitter = cholesky(self._covariance_of_data(theta))
            if bool((jitter > 0).any()):
                warn(
                    f"the covariance of the {self.n_train} training points is singular to "
                    f"rounding: a jitter of {float(jitter.max()):.1e} was added to its diagonal "
                    "(in standardised units); remove rows that repeat one another"
                )
            self._factors = (theta.detach().clone(), L)
        return self._factors[1]

    def _levels_per_block(self) -> int:
        return max(1, BLOCK_ENTRIES // self.n_train**2)

    def _rows_per_block(self, n_levels: int) -> int:
        return max(1, BLOCK_ENTRIES // (self.n_train * n_levels))
