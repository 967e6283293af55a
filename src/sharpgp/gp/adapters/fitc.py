"""The posterior that gpytorch's SGPR predicts with: the fully independent training conditional."""

import math
from typing import NamedTuple

import torch
from torch import Tensor

from sharpgp._stored import Array, stored
from sharpgp.gp.compute import block_entries
from sharpgp.gp.dense import cholesky
from sharpgp.gp.kernel_posterior import STORED
from sharpgp.gp.kernels.covariance import NOISE
from sharpgp.gp.posterior import Start
from sharpgp.gp.sparse.posterior import InducingPosterior, SparsePosterior
from sharpgp.gp.sparse.training import retrain_sparse
from sharpgp.rows import Inputs


class _Parts(NamedTuple):
    """For one ``theta``: ``L``, ``V = L^-1 Kmn``, ``1 / lambda`` [N] and the factor of ``B``."""

    L: Tensor
    V: Tensor
    precision: Tensor
    LB: Tensor


@stored("FitcPosterior", **STORED, _Z=Array("M d"), transient={"_kept": None})
class FitcPosterior(InducingPosterior):
    r"""Posterior of a sparse GP whose training points are independent given the inducing ones.

    With ``a = L^-1 k(Z, x)``, ``V = L^-1 Kmn``, ``L L' = Kmm``,
    ``lambda_i = noise + k(x_i, x_i) - V_i' V_i`` and ``B = I + V diag(1/lambda) V'``,

    ``mu(x) = a' B^-1 V diag(1/lambda) y`` under ``theta_R`` and
    ``sigma^2(theta, x) = k(x, x) + noise - a' a + a' B^-1 a`` under ``theta``.

    gpytorch trains its SGPR by Titsias' bound and predicts with this posterior (its setting
    ``sgpr_diagonal_correction``, which is on by default).

    Parameters
    ----------
    X, y, covariance, theta_R, inducing, x_units, y_units
        As in :class:`sharpgp.gp.sparse.posterior.InducingPosterior`.

    References
    ----------
    E. Snelson and Z. Ghahramani, "Sparse Gaussian Processes using Pseudo-inputs", NeurIPS 2005.
    """

    _kept: tuple[Tensor, list[_Parts]] | None = None

    def mean(self, rows: Inputs) -> Tensor:
        return self._means(self.theta_R.unsqueeze(0), rows)[0]

    def sigma(self, theta: Tensor, rows: Inputs) -> Tensor:
        inside = self._inward(rows)
        S, prior = inside.X, self.covariance.prior(theta, inside)
        levels = []
        for row, parts in zip(theta, self._parts(theta), strict=True):
            reduction = []
            for block in S.split(self._rows_per_block()):
                a = self._whitened(row, parts.L, block)
                b = torch.linalg.solve_triangular(parts.LB, a, upper=False)
                reduction.append(a.square().sum(-2) - b.square().sum(-2))
            levels.append(torch.cat(reduction))
        # Rounding may take a near-noiseless variance below zero; it is never exactly zero.
        variance = torch.maximum(prior - torch.stack(levels), 1e-12 * prior.detach())
        return variance.sqrt() * self.y_units.scale

    def loo(self, theta: Tensor) -> tuple[Tensor, Tensor]:
        """By the Woodbury form of ``(Q + diag(lambda))^-1``."""
        means, sigmas = [], []
        for parts in self._parts(theta):
            W = torch.linalg.solve_triangular(parts.LB, parts.V * parts.precision, upper=False)
            diagonal = parts.precision - W.square().sum(-2)
            weights = parts.precision * self._y - W.mT @ (W @ self._y)
            means.append(self._y - weights / diagonal)
            sigmas.append(diagonal.rsqrt())
        return self.y_units.back(torch.stack(means)), torch.stack(sigmas) * self.y_units.scale

    def moments(self, theta: Tensor, rows: Inputs) -> tuple[Tensor, Tensor]:
        return self._means(theta, rows), self.sigma(theta, rows)

    def log_likelihood(self) -> float:
        """That of ``N(0, Q + diag(lambda))``."""
        (parts,) = self._parts(self.theta_R.unsqueeze(0))
        scaled = parts.precision * self._y
        u = torch.linalg.solve_triangular(parts.LB, (parts.V @ scaled).unsqueeze(-1), upper=False)
        square = self._y @ scaled - u.square().sum()
        half_log_determinant = parts.LB.diagonal().log().sum() - 0.5 * parts.precision.log().sum()
        constant = 0.5 * self.n_train * math.log(2.0 * math.pi)
        return self._per_point((-0.5 * square - half_log_determinant - constant).unsqueeze(0))

    def retrained(self, rows: Inputs, y: Tensor, *, start: Start = "same") -> "FitcPosterior":
        """By Titsias' bound, as gpytorch trains its SGPR."""
        data = self.rows, self.y_train, self.covariance, self.theta_R, self.inducing
        sparse = SparsePosterior(
            *data, x_units=self.x_units, y_units=self.y_units, training=self.training
        )
        again = retrain_sparse(sparse, rows, y, start)
        given = rows, y, again.covariance, again.theta_R, again.inducing
        return FitcPosterior(
            *given, x_units=again.x_units, y_units=again.y_units, training=again.training
        )

    def _means(self, theta: Tensor, rows: Inputs) -> Tensor:
        S = self._inward(rows).X
        levels = []
        for row, parts in zip(theta, self._parts(theta), strict=True):
            right = parts.V @ (parts.precision * self._y)
            weights = torch.cholesky_solve(right.unsqueeze(-1), parts.LB)
            weights = torch.linalg.solve_triangular(parts.L.mT, weights, upper=True)
            blocks = S.split(self._rows_per_block())
            Ks = (self.covariance.matrix(row.unsqueeze(0), block, self._Z)[0] for block in blocks)
            levels.append(torch.cat([(K @ weights).squeeze(-1) for K in Ks]))
        return self.y_units.back(torch.stack(levels))

    def _parts(self, theta: Tensor) -> list[_Parts]:
        """Factors for every ``theta``; the last ones are kept where they need no gradient."""
        if theta.requires_grad:
            return [self._factorised(row) for row in theta]
        if self._kept is None or not torch.equal(self._kept[0], theta):
            with torch.no_grad():
                self._kept = theta.clone(), [self._factorised(row) for row in theta]
        return self._kept[1]

    def _factorised(self, theta: Tensor) -> _Parts:
        L, _ = cholesky(self.covariance.matrix(theta.unsqueeze(0), self._Z)[0])
        V = self._whitened(theta, L, self._X)
        own = self.covariance.diag(theta.unsqueeze(0), self._X)[0]
        precision = 1.0 / (theta[NOISE] + (own - V.square().sum(-2)).clamp(min=0.0))
        B = (V * precision) @ V.mT + torch.eye(len(V), dtype=V.dtype, device=V.device)
        return _Parts(L, V, precision, cholesky(B)[0])

    def _whitened(self, theta: Tensor, L: Tensor, S: Tensor) -> Tensor:
        Ks = self.covariance.matrix(theta.unsqueeze(0), self._Z, S)[0]
        a: Tensor = torch.linalg.solve_triangular(L, Ks, upper=False)
        return a

    def _rows_per_block(self) -> int:
        return max(1, block_entries(self.device) // len(self._Z))
