"""The posterior of a sparse GP: the same predictions as the exact one's, in ``O(N M^2)``."""

from collections.abc import Iterator
from functools import cached_property
from typing import Any

import torch
from torch import Tensor

from sharpgp._stored import Array, agree, stored
from sharpgp.exceptions import InvalidInputError
from sharpgp.gp.compute import block_entries, threads_for
from sharpgp.gp.kernel_posterior import STORED, KernelPosterior
from sharpgp.gp.kernels.covariance import Covariance
from sharpgp.gp.posterior import TrainingResult
from sharpgp.gp.scaling import Affine
from sharpgp.gp.sparse.elbo import variational_bound
from sharpgp.gp.sparse.whitening import Data, Factors, factorise
from sharpgp.gp.sparse.woodbury import (
    means_at,
    reductions_at,
    sparse_leave_one_out,
    sparse_variance,
    weights_of,
)
from sharpgp.rows import Inputs, rows_of_earlier


class InducingPosterior(KernelPosterior):
    """A GP that sees its data through inducing inputs ``Z`` [M, d].

    Subclasses take exactly the arguments of this class, so that they can be rebuilt on other data
    and in other units.

    Parameters
    ----------
    X, y, covariance, theta_R, x_units, y_units, training
        As in :class:`~sharpgp.gp.kernel_posterior.KernelPosterior`; rows without noise of their
        own.
    inducing : Tensor [M, d]
        Inducing inputs in the user's units.
    """

    def __init__(
        self,
        X: Inputs,
        y: Tensor,
        covariance: Covariance,
        theta_R: Tensor,
        inducing: Tensor,
        *,
        x_units: Affine | None = None,
        y_units: Affine | None = None,
        training: TrainingResult | None = None,
    ) -> None:
        given = X, y, covariance, theta_R
        super().__init__(*given, x_units=x_units, y_units=y_units, training=training)
        if self._noise is not None:
            raise InvalidInputError(
                "noise: expected rows without noise of their own for a sparse GP, found some with; "
                "use approximation='exact'"
            )
        d = self.n_features
        if inducing.ndim != 2 or inducing.shape[1] != d or not len(inducing):
            raise InvalidInputError(
                f"inducing: expected inputs of shape (M, {d}), found {tuple(inducing.shape)}"
            )
        self._Z = self.x_units.forward(inducing)

    def _restored(self) -> None:
        super()._restored()
        agree("features of the inducing inputs", self._Z.shape[1], self.n_features)

    @property
    def n_inducing(self) -> int:
        return len(self._Z)

    @property
    def inducing(self) -> Tensor:
        """Inducing inputs [M, d] in the user's units."""
        return self.x_units.back(self._Z)

    @property
    def _settings(self) -> dict[str, Any]:
        return {"inducing": self.inducing}


@stored(
    "SparsePosterior",
    **STORED,
    earlier=rows_of_earlier,
    _Z=Array("M d"),
    transient={"_weights": None, "_factors": None},
)
class SparsePosterior(InducingPosterior):
    r"""Posterior of a sparse GP, by Titsias' variational approximation.

    With ``M`` inducing inputs ``Z``, ``k = k(Z, x)`` and
    ``A = Kmm + Kmn Knm / noise``,

    ``mu(x) = k' A^-1 Kmn y / noise`` under ``theta_R``, and
    ``sigma^2(theta, x) = k(x, x) + noise - k' Kmm^-1 k + k' A^-1 k`` under ``theta``.

    Leave-one-out answers are those of this predictor without the point, with hyperparameters and
    inducing inputs held fixed (:func:`sharpgp.gp.sparse.woodbury.sparse_leave_one_out`).  With the
    training inputs as inducing inputs everything equals :class:`ExactPosterior`.  Blocks of rows
    run side by side, everything else on one thread (``threads_for(0)``): answers do not depend on
    the number of threads.

    Parameters
    ----------
    X, y, covariance, theta_R, inducing, x_units, y_units, training
        As in :class:`InducingPosterior`.

    References
    ----------
    M. Titsias, "Variational Learning of Inducing Variables in Sparse Gaussian Processes",
    AISTATS 2009.

    Examples
    --------
    >>> from sharpgp.gp.kernels.covariance import Stationary
    >>> X = torch.linspace(0, 1, 50, dtype=torch.float64)[:, None]
    >>> y = X[:, 0].sin()
    >>> theta = torch.tensor([1.0, 1.0, 0.01], dtype=torch.float64)
    >>> gp = SparsePosterior(X, y, Stationary("rbf", 1), theta, X[::10])
    >>> gp.mean(X).shape, gp.sigma(theta[None], X).shape, gp.n_inducing
    (torch.Size([50]), torch.Size([1, 50]), 5)
    """

    _factors: tuple[Tensor, list[Factors]] | None = None
    _weights: Tensor | None = None

    @cached_property
    def _data(self) -> Data:
        return Data(self.covariance, self._X, self._y)

    @threads_for(0)
    def mean(self, rows: Inputs) -> Tensor:
        theta = self.theta_R.unsqueeze(0)
        if self._weights is None:
            (factors,) = self._factor(theta)
            self._weights = weights_of(factors)[0]
        means = self._means(theta, self._weights.unsqueeze(0), self._inward(rows).X)
        return self.y_units.back(means[0])

    @threads_for(0)
    def sigma(self, theta: Tensor, rows: Inputs) -> Tensor:
        inside = self._inward(rows)
        S, prior = inside.X, self.covariance.prior(theta, inside)
        if theta.requires_grad or self._Z.requires_grad:
            parts = (part.split(self._levels_per_block()) for part in (theta, prior))
            levels = [
                sparse_variance(self._data, part, self._Z, S, kss)
                for part, kss in zip(*parts, strict=True)
            ]
            variance = torch.cat(levels)
        else:
            variance = prior - self._reduction(theta, S)
        # Rounding may take a near-noiseless variance below zero; it is never exactly zero.
        variance = torch.maximum(variance, 1e-12 * prior.detach())
        return variance.sqrt() * self.y_units.scale

    @threads_for(0)
    def loo(self, theta: Tensor) -> tuple[Tensor, Tensor]:
        parts = [self._loo(part) for part in theta.split(self._levels_per_block())]
        mean, sigma = (torch.cat(part) for part in zip(*parts, strict=True))
        return mean, sigma

    @threads_for(0)
    def moments(self, theta: Tensor, rows: Inputs) -> tuple[Tensor, Tensor]:
        S = self._inward(rows).X
        means = [self._means(part, weights_of(f), S) for f, part in self._parts(theta)]
        return self.y_units.back(torch.cat(means)), self.sigma(theta, rows)

    @threads_for(0)
    def log_likelihood(self) -> float:
        """Titsias' bound."""
        with torch.no_grad():
            return self._per_point(
                variational_bound(self._data, self.theta_R.unsqueeze(0), self._Z)
            )

    def _means(self, theta: Tensor, weights: Tensor, S: Tensor) -> Tensor:
        return means_at(self.covariance, theta, self._Z, weights, S)

    def _reduction(self, theta: Tensor, S: Tensor) -> Tensor:
        """By how much the data reduce the prior variance [K, T], in blocks of levels and rows."""
        parts = self._parts(theta)
        return torch.cat([reductions_at(self.covariance, t, self._Z, f, S) for f, t in parts])

    def _loo(self, theta: Tensor) -> tuple[Tensor, Tensor]:
        prior = self.covariance.diag(theta, self._X)
        residual, variance = sparse_leave_one_out(self._data, theta, self._Z, prior)
        variance = torch.maximum(variance, 1e-12 * prior.detach())
        return self.y_units.back(self._y - residual), variance.sqrt() * self.y_units.scale

    def _factor(self, theta: Tensor) -> list[Factors]:
        """Factors for ``theta``, by blocks of levels; the last ones are kept for more rows."""
        if self._factors is None or not torch.equal(self._factors[0], theta):
            parts = theta.detach().split(self._levels_per_block())
            found = [factorise(self._data, part, self._Z) for part in parts]
            self._factors = (theta.detach().clone(), found)
        return self._factors[1]

    def _parts(self, theta: Tensor) -> Iterator[tuple[Factors, Tensor]]:
        """Blocks of levels, with their factors."""
        return zip(self._factor(theta), theta.split(self._levels_per_block()), strict=True)

    def _levels_per_block(self) -> int:
        return max(1, block_entries(self.device, in_threads=True) // self.n_inducing**2)
