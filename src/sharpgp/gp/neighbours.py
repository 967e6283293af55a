"""The posterior of a nearest-neighbour GP: every prediction from the few points around it."""

import copy
from functools import cached_property
from typing import Self

import torch
from torch import Tensor

from sharpgp._stored import ABSENT, agree, stored
from sharpgp._validation import as_count
from sharpgp.exceptions import InvalidInputError
from sharpgp.gp.compute import threads_for
from sharpgp.gp.conditionals import conditionals, vecchia_likelihood
from sharpgp.gp.covariance import Covariance, Stationary
from sharpgp.gp.kernel_posterior import DERIVED, STORED, KernelPosterior
from sharpgp.gp.nearest import Nearest
from sharpgp.gp.posterior import DataPosterior, TrainingResult
from sharpgp.gp.scaling import Affine
from sharpgp.gp.sizes import MOST_CONDITIONALS, MOST_LEFT_OUT, NEIGHBOURS, drawn_rows
from sharpgp.gp.ties import per_feature
from sharpgp.gp.whitening import Data
from sharpgp.gp.wrapped import WrappedPosterior


@stored(
    "NeighbourPosterior",
    **STORED,
    m=int,
    transient=DERIVED
    | {"_nearest": ABSENT, "_others": ABSENT, "_asked": None, "_kept": None}
    | {"_sample": ABSENT},
)
class NeighbourPosterior(KernelPosterior):
    r"""Posterior of a GP that predicts every point from its ``m`` nearest training points.

    ``mu(x) = k' Ky^-1 y`` under ``theta_R`` and
    ``sigma^2(theta, x) = k(x, x) + noise - k' Ky^-1 k`` under ``theta``, where ``Ky``, ``k`` and
    ``y`` are those of the ``m`` training points nearest to ``x`` in units of the lengthscales of
    ``theta_R``.  Leave-one-out answers are the same with the point itself left out; with ``m >= N``
    everything equals :class:`ExactPosterior`.  ``O(m^3)`` for each point.  Blocks of points run
    side by side, everything else on one thread: answers do not depend on the number of threads.

    Parameters
    ----------
    X : Tensor [N, d]
    y : Tensor [N]
        Training data in the user's units.
    covariance : Stationary
    theta_R : Tensor [P]
        Hyperparameters, in standardised units: the same as those of an exact GP.
    m : int
        Number of neighbours.
    x_units, y_units : Affine
        Maps from the user's units to the standardised ones.
    training : TrainingResult, optional
        How ``theta_R`` was found.

    Examples
    --------
    >>> X = torch.linspace(0, 1, 50, dtype=torch.float64)[:, None]
    >>> theta = torch.tensor([1.0, 1.0, 0.01], dtype=torch.float64)
    >>> gp = NeighbourPosterior(X, X[:, 0].sin(), Stationary("rbf", 1), theta, m=8)
    >>> gp.mean(X).shape, gp.sigma(theta[None], X).shape, gp.n_neighbours
    (torch.Size([50]), torch.Size([1, 50]), 8)
    """

    _asked: tuple[Tensor, Tensor] | None = None
    _kept: tuple[Tensor, Tensor, tuple[Tensor, Tensor]] | None = None

    def __init__(
        self,
        X: Tensor,
        y: Tensor,
        covariance: Covariance,
        theta_R: Tensor,
        *,
        m: int = NEIGHBOURS,
        x_units: Affine | None = None,
        y_units: Affine | None = None,
        training: TrainingResult | None = None,
    ) -> None:
        given = X, y, covariance, theta_R
        super().__init__(*given, x_units=x_units, y_units=y_units, training=training)
        require_stationary(covariance)
        self.m = as_count(m, "Neighbours: m", least=1)

    def _restored(self) -> None:
        super()._restored()
        agree("kernel", isinstance(self.covariance, Stationary), True)
        agree("neighbours", self.m >= 1, True)

    @property
    def n_neighbours(self) -> int:
        """Number of training points that each prediction uses."""
        return min(self.m, self.n_train)

    @threads_for(0)
    def mean(self, X: Tensor) -> Tensor:
        """Predictive mean ``mu(x)`` [T] under ``theta_R``."""
        return self.moments(self.theta_R.unsqueeze(0), X)[0][0]

    @threads_for(0)
    def sigma(self, theta: Tensor, X: Tensor) -> Tensor:
        """Standard deviation [K, T] of a new observation under ``theta``, noise included."""
        return self.moments(theta, X)[1]

    @threads_for(0)
    def loo(self, theta: Tensor) -> tuple[Tensor, Tensor]:
        """Leave-one-out mean and standard deviation [K, N] of the training points."""
        return self._in_user_units(conditionals(self._data, theta, self._X, self._others))

    @threads_for(0)
    def loo_at(self, theta: Tensor, rows: Tensor, near: Tensor) -> tuple[Tensor, Tensor]:
        """:meth:`loo` [K, R] of the points in ``rows`` [R], given those in ``near`` [R, m]."""
        return self._in_user_units(conditionals(self._data, theta, self._X[rows], near))

    @property
    def sampled(self) -> tuple[DataPosterior, Tensor]:
        """See :meth:`DataPosterior.sampled`: at most :data:`MOST_LEFT_OUT` random points."""
        if self.n_train <= MOST_LEFT_OUT:
            return super().sampled
        rows, near = self._sample
        return SampledNeighbours(self, rows, near), rows

    @threads_for(0)
    def moments(self, theta: Tensor, X: Tensor) -> tuple[Tensor, Tensor]:
        """See :meth:`KernelPosterior.moments`; cached, as ``mean`` and ``sigma`` alternate."""
        S = self.x_units.forward(X)
        if torch.is_grad_enabled() and (theta.requires_grad or S.requires_grad):
            return self._in_user_units(self._conditionals(theta, S))
        kept = self._kept
        if kept is None or not (torch.equal(kept[0], theta) and torch.equal(kept[1], S)):
            kept = self._kept = theta.detach().clone(), S, self._conditionals(theta, S)
        return self._in_user_units(kept[2])

    @threads_for(0)
    def log_likelihood(self) -> float:
        """See :meth:`DataPosterior.log_likelihood`; Vecchia's approximation of it.

        With the points in random order; of those after the first ``m``, a random subset of at most
        :data:`MOST_CONDITIONALS` represents all.
        """
        n, m = self.n_train, self.m
        order = torch.randperm(n, generator=torch.Generator().manual_seed(0)).to(self.device)
        later = order[m + 1 :][:: max(1, -(-(n - m - 1) // MOST_CONDITIONALS))]
        with torch.no_grad():
            near = self._nearest.earlier(order, later, m) if len(later) else later
            given = self._data, self.theta_R.unsqueeze(0), order[: m + 1], later, near
            return self._per_point(vecchia_likelihood(*given))

    def retargeted(self, y: Tensor) -> Self:
        """See :meth:`DataPosterior.retargeted`; neighbours are kept, they depend on inputs only."""
        other = copy.copy(self)
        other._y, other._kept = self.y_units.forward(y), None
        return other

    def _again(
        self, X: Tensor, y: Tensor, theta_R: Tensor, x_units: Affine, y_units: Affine
    ) -> Self:
        return type(self)(
            X,
            y,
            self.covariance,
            theta_R,
            m=self.m,
            x_units=x_units,
            y_units=y_units,
            training=self.training,
        )

    @property
    def _data(self) -> Data:
        return Data(self.covariance, self._X, self._y)

    @cached_property
    def _nearest(self) -> Nearest:
        return Nearest(self._X, per_feature(self.theta_R[: self.n_inverse], self.ties))

    @cached_property
    def _others(self) -> Tensor:
        return self._nearest.others(min(self.m, self.n_train - 1))

    @cached_property
    def _sample(self) -> tuple[Tensor, Tensor]:
        """The points that represent all, and their neighbours."""
        rows = drawn_rows(self.n_train, MOST_LEFT_OUT).to(self.device)
        return rows, self.others_of(rows)

    def others_of(self, rows: Tensor) -> Tensor:
        """Neighbours [R, m] of training points, given by index [R], excluding each itself."""
        return self._nearest.others(min(self.m, self.n_train - 1), rows)

    def _near(self, S: Tensor) -> Tensor:
        """Neighbours [T, m] of standardised inputs; the last ones are kept, see ``sigma``."""
        if self._asked is None or not torch.equal(self._asked[0], S):
            self._asked = S, self._nearest.to(S, self.n_neighbours)
        return self._asked[1]

    def _conditionals(self, theta: Tensor, S: Tensor) -> tuple[Tensor, Tensor]:
        return conditionals(self._data, theta, S, self._near(S.detach()))

    def _in_user_units(self, moments: tuple[Tensor, Tensor]) -> tuple[Tensor, Tensor]:
        mean, variance = moments
        return self.y_units.back(mean), variance.sqrt() * self.y_units.scale


class SampledNeighbours(WrappedPosterior):
    """A nearest-neighbour GP that reports only some of its training points.

    It predicts as the GP does, from all points; leave-one-out predictions are those of ``rows``.

    Parameters
    ----------
    base : NeighbourPosterior
    rows : Tensor [n]
        Indices of training points.
    near : Tensor [n, m]
        Their neighbours.

    Examples
    --------
    >>> X = torch.linspace(0, 1, 50, dtype=torch.float64)[:, None]
    >>> theta = torch.tensor([1.0, 1.0, 0.01], dtype=torch.float64)
    >>> gp = NeighbourPosterior(X, X[:, 0].sin(), Stationary("rbf", 1), theta, m=8)
    >>> rows = torch.tensor([7, 3])
    >>> some = SampledNeighbours(gp, rows, gp.others_of(rows))
    >>> torch.equal(some.loo(theta[None])[0], gp.loo(theta[None])[0][:, rows])
    True
    """

    base: NeighbourPosterior

    def __init__(self, base: NeighbourPosterior, rows: Tensor, near: Tensor) -> None:
        super().__init__(base)
        self.rows = rows
        self._near = near

    def _around(self, base: DataPosterior, X: Tensor, y: Tensor) -> DataPosterior:  # type: ignore[override]
        return base

    @property
    def n_train(self) -> int:
        """Number of the points."""
        return len(self.rows)

    @property
    def X_train(self) -> Tensor:
        """Inputs [n, d] of the points, in the user's units."""
        return self.base.x_units.back(self.base.X_standardised[self.rows])

    @property
    def y_train(self) -> Tensor:
        """Targets [n] of the points, in the user's units."""
        return self.base.y_units.back(self.base.y_standardised[self.rows])

    def loo(self, theta: Tensor) -> tuple[Tensor, Tensor]:
        """See :meth:`DataPosterior.loo`: each from its neighbours among all points."""
        return self.base.loo_at(theta, self.rows, self._near)

    def at_rows(self, rows: Tensor) -> Self:
        """See :meth:`DataPosterior.at_rows`: fewer points to report, as many to predict from."""
        return type(self)(self.base, self.rows[rows], self._near[rows])


def require_stationary(covariance: Covariance) -> None:
    """Raise unless neighbours can be searched in units of a covariance's lengthscales."""
    if not isinstance(covariance, Stationary):
        raise InvalidInputError(
            "approximation: expected a kernel 'rbf', 'matern12', 'matern32' or 'matern52' for "
            f"neighbours, found {type(covariance).__name__}; use approximation='sparse'"
        )
