"""What a GP predicts under any hyperparameters, in the user's units: two interfaces.

A :class:`Posterior` predicts at new inputs, which is all that calibration with held-out data needs.
A :class:`DataPosterior` also knows the data it is conditioned on: it can leave points out, take
more, and be retrained.
"""

from abc import ABC, abstractmethod
from dataclasses import dataclass
from functools import singledispatch
from typing import Any, Literal, Self

import torch
from torch import Tensor

from sharpgp._stored import stored
from sharpgp.exceptions import InvalidInputError
from sharpgp.gp.directions import Directions
from sharpgp.gp.priors import LengthscalePrior
from sharpgp.gp.ties import Ties
from sharpgp.rows import Inputs, Rows

#: Where training starts: at the present hyperparameters, at the built-in start that led to them, or
#: at all built-in starts.
Start = Literal["warm", "same", "fresh"]


@stored("TrainingResult")
@dataclass(frozen=True)
class TrainingResult:
    """How the training of a GP went.

    ``status`` is ``"converged"``, ``"stopped"`` (evaluations ran out) or ``"retried"`` (some
    starts failed); ``log_likelihood`` is per training point, in standardised units; ``start`` is
    the number of the built-in start that won, if one did; ``prior`` is that on lengthscales.
    ``most`` is the largest number of points that training sees; None for all.
    """

    status: str
    log_likelihood: float
    evaluations: int
    failures: tuple[str, ...] = ()
    start: int | None = None
    prior: LengthscalePrior | None = None
    most: int | None = None

    @property
    def prior_weight(self) -> float:
        """Weight of the prior: 1 below ten points per hyperparameter, 0 from twenty on."""
        return 0.0 if self.prior is None else self.prior.weight


class WithoutDataError(InvalidInputError, AttributeError):
    """A GP was asked for training data that it does not have."""


class Posterior(ABC):
    """A GP conditioned on data: what calibration needs from any GP.

    ``theta_R`` [P] are the hyperparameters that the mean uses; ``sigma`` takes any other ``theta``
    [K, P], so that levels can be batched.  ``names`` labels their entries, and ``searched`` [P]
    tells which of them a calibration may move.  It is asked for rows, or for their features [T, d]
    alone, in the user's units; a row's own noise is part of ``sigma``.  Access to training data
    raises :class:`WithoutDataError`.
    """

    theta_R: Tensor
    names: tuple[str, ...]
    searched: Tensor
    #: How it was trained; None for a GP trained elsewhere.
    training: TrainingResult | None = None

    def __repr__(self) -> str:
        rows = getattr(self, "n_train", None)
        trained = "" if rows is None else f"{rows:,} training points, "
        return f"<{type(self).__name__}: {trained}{self.n_features} features>"

    @property
    def gp(self) -> "Posterior":
        """Itself: models have a GP, too."""
        return self

    @property
    @abstractmethod
    def n_features(self) -> int:
        """Number of features ``d``."""

    @property
    @abstractmethod
    def n_inverse(self) -> int:
        """How many entries of ``theta`` are inverse lengthscales; they come first."""

    @property
    def ties(self) -> Ties | Directions | None:
        """Which features share a lengthscale, see :mod:`sharpgp.gp.ties`; None where none do.

        Or which directions have one of their own, see :mod:`sharpgp.gp.directions`.
        """
        return None

    @property
    def n_inducing(self) -> int | None:
        """Number of inducing inputs of a sparse GP; None for any other."""
        return None

    @property
    def n_neighbours(self) -> int | None:
        """Training points that a nearest-neighbour GP predicts from; None for any other GP."""
        return None

    @property
    @abstractmethod
    def n_dense(self) -> int:
        """Points whose covariance is one dense matrix: ``N`` of an exact GP, 0 of any other."""

    @property
    @abstractmethod
    def device(self) -> torch.device:
        """Where tensors live."""

    @property
    @abstractmethod
    def input_range(self) -> tuple[Tensor, Tensor]:
        """Lowest and highest value [d] of each feature among its inputs."""

    @abstractmethod
    def mean(self, rows: Inputs) -> Tensor:
        """Predictive mean ``mu(x)`` [T] under ``theta_R``."""

    @abstractmethod
    def sigma(self, theta: Tensor, rows: Inputs) -> Tensor:
        """Standard deviation [K, T] of a new observation under ``theta``, noise included."""

    def mean_and_sigma(self, rows: Inputs) -> tuple[Tensor, Tensor]:
        """Predictive mean and standard deviation [T] under ``theta_R``, which may share work."""
        return self.mean(rows), self.sigma(self.theta_R.unsqueeze(0), rows)[0]

    def jitter(self, theta: Tensor) -> Tensor:
        """Jitter [K] that the covariance under ``theta`` needs, relative to its diagonal."""
        return torch.zeros(len(theta), dtype=theta.dtype, device=theta.device)

    def __getattr__(self, name: str) -> Any:
        # Called for missing attributes only: for members of DataPosterior, the error says why.
        if hasattr(DataPosterior, name) and not isinstance(self, DataPosterior):
            raise WithoutDataError(
                f"expected a GP that knows its training data, found {type(self).__name__}; use a "
                "calibration that needs held-out data only, such as 'paper' or 'kuleshov18'"
            )
        raise AttributeError(f"{type(self).__name__!r} object has no attribute {name!r}")


class DataPosterior(Posterior):
    """A GP that knows its training data: rows [N], and ``y_train`` [N]."""

    @property
    @abstractmethod
    def rows(self) -> Rows:
        """Training rows [N] in the user's units."""

    @property
    def X_train(self) -> Tensor:
        """Features [N, d] of the training rows."""
        return self.rows.X

    @property
    @abstractmethod
    def y_train(self) -> Tensor:
        """Training targets [N] in the user's units."""

    @property
    def n_train(self) -> int:
        """Number of training points ``N``."""
        return len(self.y_train)

    @property
    def n_dense(self) -> int:
        exact = self.n_inducing is None and self.n_neighbours is None
        return self.n_train if exact else 0

    @property
    def input_range(self) -> tuple[Tensor, Tensor]:
        X = self.X_train
        return X.amin(0), X.amax(0)

    @abstractmethod
    def loo(self, theta: Tensor) -> tuple[Tensor, Tensor]:
        """Leave-one-out mean and standard deviation [K, N] of the training points."""

    def loo_log_density(self) -> Tensor:
        """Log density [N] of every training target, given all others."""
        with torch.no_grad():
            mean, sigma = self.loo(self.theta_R.unsqueeze(0))
            return torch.distributions.Normal(mean[0], sigma[0], validate_args=False).log_prob(
                self.y_train
            )

    def left_out(self, rows: Tensor) -> tuple[Tensor, Tensor]:
        """Mean and deviation [n] of some training points, by number, each left out by itself."""
        mean, sigma = self.loo(self.theta_R.unsqueeze(0))
        return mean[0][rows], sigma[0][rows]

    @abstractmethod
    def log_likelihood(self) -> float:
        """Log density of the targets under ``theta_R``, per training point, in the user's units.

        For a sparse GP, a lower bound; for a nearest-neighbour GP, Vecchia's approximation.
        """

    @abstractmethod
    def conditioned_on(self, rows: Inputs, y: Tensor) -> Self:
        """The same GP, hyperparameters and units included, conditioned on other data."""

    def at_rows(self, which: Tensor) -> Self:
        """The same GP conditioned on some of its training points only, given by index."""
        return self.conditioned_on(self.rows[which], self.y_train[which])

    def subset(self, n: int, generator: torch.Generator) -> Self:
        """The same GP conditioned on ``n`` random training points only."""
        if not 1 <= n <= self.n_train:
            raise InvalidInputError(
                f"subset: expected between 1 and {self.n_train} training points, found {n}"
            )
        return self.at_rows(torch.randperm(self.n_train, generator=generator)[:n].to(self.device))

    def extended(self, rows: Inputs, y: Tensor) -> Self:
        """The same GP, hyperparameters and units included, conditioned on additional data, too."""
        return self.conditioned_on(Rows.join(self.rows, rows), torch.cat([self.y_train, y]))

    def retargeted(self, y: Tensor) -> Self:
        """The same GP conditioned on other targets [N] at the same training inputs."""
        return self.conditioned_on(self.rows, y)

    @property
    def scored_rows(self) -> Tensor:
        """Training points [n], by number, that are enough to judge the GP by leaving out each.

        All of them, unless each needs a search among many points.
        """
        return torch.arange(self.n_train, device=self.device)

    @property
    def can_leave_out(self) -> bool:
        """Whether the result of :meth:`at_rows` knows nothing of the points left out."""
        return True

    def keeping_together(self, groups: Tensor | None) -> Self:
        """The same GP, told which rows of its future training data belong together."""
        return self

    def retrained(self, rows: Inputs, y: Tensor, *, start: Start = "same") -> "DataPosterior":
        """The same kind of GP, trained on other data.

        Parameters
        ----------
        rows : Rows or Tensor [N, d]
        y : Tensor [N]
        start : {"same", "fresh", "warm"}
            Start from the built-in start that was best for the old data, try all of these again, or
            continue from the present hyperparameters.  A warm start saves most of the time, but its
            hyperparameters remember the old data.  Where that matters, as in cross-validation,
            training starts from scratch.
        """
        return retrain(self, rows, y, start)


@singledispatch
def retrain(posterior: DataPosterior, rows: Inputs, y: Tensor, start: Start) -> DataPosterior:
    """Train the same kind of GP on other data; each training module registers its kind."""
    raise InvalidInputError(
        "expected a GP that can be retrained on other data, found "
        f"{type(posterior).__name__}; use a calibration that keeps the model, such as 'exact'"
    )
