"""A sparse GP that does not keep its rows: sums over them are enough to predict."""

from typing import Self

import torch
from torch import Tensor

from sharpgp._stored import Array, stored
from sharpgp.exceptions import InvalidInputError
from sharpgp.gp.compute import threads_for
from sharpgp.gp.covariance import Covariance
from sharpgp.gp.dense import cholesky
from sharpgp.gp.kernel_posterior import CovariancePosterior
from sharpgp.gp.posterior import TrainingResult
from sharpgp.gp.scaling import Affine
from sharpgp.gp.whitening import (
    Data,
    Factors,
    factors_of,
    inducing_covariance,
    whitened_sums,
)
from sharpgp.gp.woodbury import means_at, reductions_at, weights_of


@stored(
    "SummedPosterior",
    covariance=Covariance,
    theta_R=Array("P", positive=True),
    _Z=Array("M d"),
    _square=Array("M M"),
    _product=Array("M"),
    n_train=int,
    _low=Array("d"),
    _high=Array("d"),
    x_units=Affine,
    y_units=Affine,
    training=TrainingResult | None,
    transient={"names": None, "searched": None, "_factors": None, "_weights": None},
)
class SummedPosterior(CovariancePosterior):
    r"""Posterior of a sparse GP, from ``V V'`` and ``V y`` of its rows; the rows are not kept.

    With inducing inputs ``Z``, ``L L' = k(Z, Z)`` and ``V = L^-1 k(Z, X)`` under ``theta_R``, mean
    and ``sigma(theta_R, x)`` are those of :class:`~sharpgp.gp.sparse.SparsePosterior`, to rounding.
    Under another ``theta``, what was learned from the data is kept in whitened coordinates:
    ``w = L^-1 k(Z, x)`` follows ``theta``, ``V V'`` does not.

    Parameters
    ----------
    covariance : Covariance
    theta_R : Tensor [P]
        Hyperparameters, in standardised units.
    inducing : Tensor [M, d]
        Inducing inputs, standardised.
    square : Tensor [M, M]
        ``V V'`` of the standardised rows under ``theta_R``.
    product : Tensor [M]
        ``V y``, likewise.
    n_train : int
        Number of rows ``N``.
    input_range : pair of Tensor [d]
        Lowest and highest value of every feature, in the user's units.
    x_units, y_units : Affine
        Maps from the user's units to the standardised ones.
    training : TrainingResult, optional
        How ``theta_R`` and ``inducing`` were found.

    Examples
    --------
    >>> from sharpgp.gp.covariance import Stationary
    >>> X = torch.linspace(0, 6, 200, dtype=torch.float64)[:, None]
    >>> theta, Z = torch.tensor([1.0, 1.0, 0.01], dtype=torch.float64), X[::20]
    >>> nothing = SummedPosterior(
    ...     Stationary("rbf", 1),
    ...     theta,
    ...     Z,
    ...     X.new_zeros(10, 10),
    ...     X.new_zeros(10),
    ...     n_train=0,
    ...     input_range=(Z.amin(0), Z.amax(0)),
    ...     x_units=Affine.identity(X),
    ...     y_units=Affine.identity(X[:, 0]),
    ... )
    >>> halves = nothing.extended(X[:100], X[:100, 0].sin()).extended(X[100:], X[100:, 0].sin())
    >>> bool((halves.mean(X) - X[:, 0].sin()).abs().max() < 0.1), halves.n_train
    (True, 200)
    """

    def __init__(
        self,
        covariance: Covariance,
        theta_R: Tensor,
        inducing: Tensor,
        square: Tensor,
        product: Tensor,
        *,
        n_train: int,
        input_range: tuple[Tensor, Tensor],
        x_units: Affine,
        y_units: Affine,
        training: TrainingResult | None = None,
    ) -> None:
        super().__init__(covariance, theta_R, x_units, y_units, training)
        self._Z, self._square, self._product = inducing, square, product
        self.n_train, (self._low, self._high) = n_train, input_range
        self._factors: tuple[Tensor, Factors] | None = None
        self._weights: Tensor | None = None

    def _restored(self) -> None:
        self._agree(self._Z, self._product)

    @property
    def n_features(self) -> int:
        """Number of features ``d``."""
        return self._Z.shape[1]

    @property
    def n_inducing(self) -> int:
        """Number of inducing inputs ``M``."""
        return len(self._Z)

    @property
    def n_dense(self) -> int:
        """See :meth:`Posterior.n_dense`."""
        return 0

    @property
    def device(self) -> torch.device:
        """Where tensors live."""
        return self._Z.device

    @property
    def inducing(self) -> Tensor:
        """Inducing inputs [M, d] in the user's units."""
        return self.x_units.back(self._Z)

    @property
    def input_range(self) -> tuple[Tensor, Tensor]:
        """See :meth:`Posterior.input_range`."""
        return self._low, self._high

    @threads_for(0)
    def mean(self, X: Tensor) -> Tensor:
        """Predictive mean ``mu(x)`` [T] under ``theta_R``."""
        theta = self.theta_R.unsqueeze(0)
        if self._weights is None:
            self._weights = weights_of(self._factor(theta))
        S = self.x_units.forward(X)
        return self.y_units.back(means_at(self.covariance, theta, self._Z, self._weights, S)[0])

    @threads_for(0)
    def sigma(self, theta: Tensor, X: Tensor) -> Tensor:
        """Standard deviation [K, T] of a new observation under ``theta``, noise included."""
        S = self.x_units.forward(X)
        prior = self.covariance.diag(theta, S) + theta[:, -1:]
        if theta.requires_grad:
            w, u = self._factors_under(theta).whiten(self.covariance.matrix(theta, self._Z, S))
            reduction = w.square().sum(-2) - u.square().sum(-2)
        else:
            reduction = reductions_at(self.covariance, theta, self._Z, self._factor(theta), S)
        # Rounding may take a near-noiseless variance below zero; it is never exactly zero.
        variance = torch.maximum(prior - reduction, 1e-12 * prior.detach())
        return variance.sqrt() * self.y_units.scale

    @threads_for(0)
    def extended(self, X: Tensor, y: Tensor) -> Self:
        """The same GP, hyperparameters and units included, with additional rows."""
        if X.ndim != 2 or X.shape[1] != self.n_features:
            raise InvalidInputError(
                f"X: expected inputs of shape (n, {self.n_features}), found {tuple(X.shape)}"
            )
        theta = self.theta_R.unsqueeze(0)
        data = Data(self.covariance, self.x_units.forward(X), self.y_units.forward(y))
        with torch.no_grad():
            square, product = whitened_sums(data, theta, self._Z, self._factor(theta).L)
        ends = torch.stack([*self.input_range, *X])
        return type(self)(
            self.covariance,
            self.theta_R,
            self._Z,
            self._square + square[0],
            self._product + product[0],
            n_train=self.n_train + len(y),
            input_range=(ends.amin(0), ends.amax(0)),
            x_units=self.x_units,
            y_units=self.y_units,
            training=self.training,
        )

    def _factor(self, theta: Tensor) -> Factors:
        """Factors for ``theta`` [K, P]; the last ones are kept for more rows."""
        if self._factors is None or not torch.equal(self._factors[0], theta):
            with torch.no_grad():
                self._factors = theta.detach().clone(), self._factors_under(theta)
        return self._factors[1]

    def _factors_under(self, theta: Tensor) -> Factors:
        L = cholesky(inducing_covariance(self.covariance, theta, self._Z))[0]
        square = self._square.expand_as(L)
        return factors_of(L, square, self._product.expand(len(theta), -1), theta[:, -1])
