"""The posterior of an exact GP."""

import copy
from collections.abc import Callable
from typing import Self, TypeVar

import torch
from torch import Tensor

from sharpgp._stored import stored
from sharpgp.exceptions import warn
from sharpgp.gp.compute import (
    MAX_ROWS_BATCHED,
    MAX_ROWS_ONE_THREAD,
    block_entries,
    side_by_side,
    threads_for,
)
from sharpgp.gp.dense import cholesky, loo_given_factor, variance_given_factor
from sharpgp.gp.exact.in_blocks import factor_of, likelihood_of, loo_of, variance_of
from sharpgp.gp.kernel_posterior import STORED, KernelPosterior
from sharpgp.gp.kernels.covariance import NOISE
from sharpgp.gp.scaling import Affine
from sharpgp.rows import Inputs, Rows, rows_of_earlier

# Blocks of factors of several ``theta`` that are kept between predictions.
_KEPT = 4
# Points whose predictions are one thread's at a time.
_ROWS = 256
# Noise above this share of the signal variance, per training point, is out of rounding's reach.
_ROUNDING_PER_POINT = 1e-14

Answer = TypeVar("Answer")


@stored(
    "ExactPosterior",
    **STORED,
    earlier=rows_of_earlier,
    transient={"_weights": None, "_factors": None, "_left_out": None},
)
class ExactPosterior(KernelPosterior):
    r"""Posterior of an exact GP.

    ``mu(x) = k(x)' Ky^-1 y`` under ``theta_R`` and
    ``sigma^2(theta, x) = k(x, x) + noise - k(x)' Ky^-1 k(x)`` under ``theta``, where
    ``Ky = K(theta) + noise I`` on the training points.  Noise is that of ``theta``, plus a row's
    own where that is known.

    Examples
    --------
    >>> from sharpgp.gp.kernels.covariance import Stationary
    >>> X = torch.linspace(0, 1, 5, dtype=torch.float64)[:, None]
    >>> y = X[:, 0].sin()
    >>> theta = torch.tensor([1.0, 1.0, 0.01], dtype=torch.float64)
    >>> gp = ExactPosterior(X, y, Stationary("rbf", 1), theta)
    >>> gp.mean(X).shape, gp.sigma(theta[None], X).shape
    (torch.Size([5]), torch.Size([1, 5]))
    """

    _weights: Tensor | None = None
    _factors: tuple[Tensor, Tensor] | None = None
    _left_out: tuple[Tensor, Tensor, Tensor] | None = None

    def mean(self, rows: Inputs) -> Tensor:
        theta, weights = self.theta_R.unsqueeze(0), self.weights
        blocks = self._by_blocks(
            lambda block: self.covariance.matrix(theta, block.X, self._X)[0] @ weights,
            self._inward(rows),
        )
        return self.y_units.back(torch.cat(blocks))

    def _by_blocks(self, ask: Callable[[Rows], Answer], rows: Rows) -> list[Answer]:
        """Of blocks of points, side by side, one thread each, unless one is worth all threads."""
        in_turn = self.device.type != "cpu" or self.n_train > MAX_ROWS_ONE_THREAD
        size = self._rows_per_block(1) if in_turn else min(_ROWS, self._rows_per_block(1))
        with threads_for(self.n_train):
            return side_by_side(ask, list(rows.split(size)), in_turn=in_turn)

    @property
    def weights(self) -> Tensor:
        """``Ky^-1 y`` [N] under ``theta_R``, in standardised units; kept between predictions."""
        if self._weights is None:
            L = self._factor(self.theta_R.unsqueeze(0))[0]
            with threads_for(self.n_train):
                self._weights = torch.cholesky_solve(self._y.unsqueeze(-1), L).squeeze(-1)
        return self._weights

    def sigma(self, theta: Tensor, rows: Inputs) -> Tensor:
        Z = self._inward(rows)
        levels = self._levels_per_block()
        if theta.requires_grad or theta.shape[0] <= levels:
            variance = self._variance(theta, Z)
        else:
            variance = torch.cat([self._variance(part, Z) for part in theta.split(levels)])
        return variance.sqrt() * self.y_units.scale

    def mean_and_sigma(self, rows: Inputs) -> tuple[Tensor, Tensor]:
        """Covariances with training points are shared."""
        theta, Z = self.theta_R.unsqueeze(0), self._inward(rows)
        L, weights = self._factor(theta), self.weights

        def moments(block: Rows) -> tuple[Tensor, Tensor]:
            Ks = self.covariance.matrix(theta, block.X, self._X)
            prior = self.covariance.prior(theta, block)
            return Ks[0] @ weights, _positive(variance_given_factor(L, Ks.mT, prior), prior)[0]

        found = self._by_blocks(moments, Z)
        mean, variance = (torch.cat(part) for part in zip(*found, strict=True))
        return self.y_units.back(mean), variance.sqrt() * self.y_units.scale

    def loo(self, theta: Tensor) -> tuple[Tensor, Tensor]:
        """Leave-one-out mean and standard deviation [K, N] of the training points.

        The last ones are kept: what learns a spread asks for them several times.
        """
        if theta.requires_grad:
            return self._loo(theta)
        kept = self._left_out  # threads may share this GP: what one of them replaces stays whole
        if kept is None or not torch.equal(kept[0], theta):
            self._left_out = kept = (theta.clone(), *self._loo(theta))
        return kept[1:]

    def _loo(self, theta: Tensor) -> tuple[Tensor, Tensor]:
        kept = self._factors
        if kept is not None and torch.equal(kept[0], theta) and self.n_train <= MAX_ROWS_BATCHED:
            residual, variance = loo_given_factor(kept[1], self._y)
        else:
            residual, variance = loo_of(self.covariance, theta, self.rows_standardised, self._y)
        mean = self.y_units.back(self._y - residual)
        return mean, variance.sqrt() * self.y_units.scale

    def jitter(self, theta: Tensor) -> Tensor:
        """Factorises only where rounding may reach the noise."""
        signal = self.covariance.diag(theta, self._X).amax(-1)
        doubtful = (theta[:, NOISE] < _ROUNDING_PER_POINT * self.n_train * signal).nonzero()[:, 0]
        out = torch.zeros_like(signal)
        with torch.no_grad():
            for k in doubtful.tolist():
                Ky = self._covariance_of_data(theta[k : k + 1])
                out[k] = cholesky(Ky)[1][0] / Ky.diagonal(dim1=-2, dim2=-1).mean()
        return out

    def moments(self, theta: Tensor, rows: Inputs) -> tuple[Tensor, Tensor]:
        Z = self._inward(rows)
        whole = len(theta) * self.n_train**2 <= _KEPT * block_entries(self.device)
        size = len(theta) if whole else self._levels_per_block()
        parts = [self._moments(part, Z) for part in theta.split(size)]
        mean, variance = (torch.cat(part) for part in zip(*parts, strict=True))
        return self.y_units.back(mean), variance.sqrt() * self.y_units.scale

    def _moments(self, theta: Tensor, Z: Rows) -> tuple[Tensor, Tensor]:
        L = self._factor(theta)
        weights = torch.cholesky_solve(self._y.expand(len(theta), -1).unsqueeze(-1), L)
        Ks = self.covariance.matrix(theta, self._X, Z.X)
        prior = self.covariance.prior(theta, Z)
        variance = _positive(variance_given_factor(L, Ks, prior), prior)
        return (Ks.mT @ weights).squeeze(-1), variance

    def latent_covariance(self, X1: Tensor, X2: Tensor) -> Tensor:
        """Covariances [A, B] of the function without noise at ``X1`` [A, d] and ``X2`` [B, d].

        ``k(x, x') - k(x)' Ky^-1 k(x')`` under ``theta_R``, in squared units of the target.
        """
        theta, units = self.theta_R.unsqueeze(0), self.x_units.forward
        L, Z1, Z2 = self._factor(theta)[0], units(X1), units(X2)
        V1, V2 = (
            torch.linalg.solve_triangular(
                L, self.covariance.matrix(theta, self._X, Z)[0], upper=False
            )
            for Z in (Z1, Z2)
        )
        prior = self.covariance.matrix(theta, Z1, Z2)[0]
        return (prior - V1.mT @ V2) * self.y_units.scale.square()

    def retargeted(self, y: Tensor) -> Self:
        """Factors are kept, as they do not depend on targets."""
        other = copy.copy(self)
        other._y, other._weights, other._left_out = self.y_units.forward(y), None, None
        return other

    def recentred(self) -> Self:
        r"""The same GP about the constant mean that is likeliest, ``1' Ky^-1 y / 1' Ky^-1 1``.

        Factors are kept.

        Examples
        --------
        Many results of one place say nothing about the others:

        >>> from sharpgp.gp.kernels.covariance import Stationary
        >>> X = torch.tensor([[0.0], [0.98], [0.99], [1.0]], dtype=torch.float64)
        >>> y = torch.tensor([0.0, 1.0, 1.0, 1.0], dtype=torch.float64)
        >>> gp = ExactPosterior(X, y, Stationary("rbf", 1), torch.tensor([3.0, 1.0, 0.01]).double())
        >>> far = torch.tensor([[99.0]], dtype=torch.float64)
        >>> round(gp.mean(far).item(), 2), round(gp.recentred().mean(far).item(), 2)
        (0.0, 0.5)
        """
        L = self._factor(self.theta_R.unsqueeze(0))[0]
        weights = torch.cholesky_solve(torch.ones_like(self._y).unsqueeze(-1), L).squeeze(-1)
        y, other = self.y_train, copy.copy(self)
        other.y_units = Affine((weights @ y) / weights.sum(), self.y_units.scale)
        other._y, other._weights, other._left_out = other.y_units.forward(y), None, None
        return other

    def log_likelihood(self) -> float:
        theta = self.theta_R.unsqueeze(0)
        with torch.no_grad():
            rows = self.rows_standardised
            return self._per_point(likelihood_of(self.covariance, theta, rows, self._y))

    def _variance(self, theta: Tensor, rows: Rows) -> Tensor:
        Z, prior = rows.X, self.covariance.prior(theta, rows)
        if theta.requires_grad:
            variance = variance_of(self.covariance, theta, self.rows_standardised, Z, prior)
        else:
            L = self._factor(theta)
            blocks = zip(
                Z.split(self._rows_per_block(theta.shape[0])),
                prior.split(self._rows_per_block(theta.shape[0]), -1),
                strict=True,
            )
            parts = [
                variance_given_factor(L, self.covariance.matrix(theta, self._X, block), kss)
                for block, kss in blocks
            ]
            variance = torch.cat(parts, -1)
        return _positive(variance, prior)

    def _covariance_of_data(self, theta: Tensor) -> Tensor:
        return self.covariance.of_observations(theta, self.rows_standardised)

    def _factor(self, theta: Tensor) -> Tensor:
        """Cholesky factors for ``theta``; the last ones are kept, as predictions come in blocks."""
        if self._factors is None or not torch.equal(self._factors[0], theta):
            # The threads of a fit: a model from a file then answers to the last digit alike.
            with torch.no_grad(), threads_for(self.n_train):
                if len(theta) == 1 and self.n_train > MAX_ROWS_BATCHED:
                    self._factors = None  # one matrix at a time
                    L, jitter = factor_of(self.covariance, theta[0], self.rows_standardised)
                    L = L.unsqueeze(0)
                else:
                    L, jitter = cholesky(self._covariance_of_data(theta))
            if bool((jitter > 0).any()):
                warn(
                    f"the covariance of the {self.n_train} training points is singular to "
                    f"rounding: a jitter of {float(jitter.max()):.1e} was added to its diagonal "
                    "(in standardised units); remove duplicate rows"
                )
            self._factors = (theta.detach().clone(), L)
        return self._factors[1]

    def _levels_per_block(self) -> int:
        return max(1, block_entries(self.device) // self.n_train**2)

    def _rows_per_block(self, n_levels: int) -> int:
        return max(1, block_entries(self.device) // (self.n_train * n_levels))


def _positive(variance: Tensor, prior: Tensor) -> Tensor:
    """Rounding may take a near-noiseless variance below zero; it is never exactly zero."""
    return torch.maximum(variance, 1e-12 * prior.detach())
