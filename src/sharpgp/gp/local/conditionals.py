"""Points conditioned on landmarks and a few rows each: batches of small factorisations."""

import copy
import math
from dataclasses import replace
from functools import cached_property
from typing import Any, Self

import torch
from torch import Tensor
from torch.utils.checkpoint import checkpoint

from sharpgp.gp.compute import block_entries
from sharpgp.gp.dense import (
    add_each_to_diagonal,
    add_to_diagonal,
    cholesky,
    log_marginal_likelihood,
)
from sharpgp.gp.kernels.covariance import NOISE, Named
from sharpgp.gp.sparse.whitening import Data, by_rows, join, row_blocks, solve

# Blocks of work that ``w`` of all rows may fill, if it is kept.
_KEPT = 4
# Rows of ``w`` that pass through the cache count by this much less than what stays in it.
_STREAMED = 16


def _solve_by_factor(L: Tensor, B: Tensor) -> Tensor:
    # For batches on a CPU several times as fast as cholesky_solve.
    V = torch.linalg.solve_triangular(L, B, upper=False)
    return torch.linalg.solve_triangular(L.mT, V, upper=True)


class _SymmetricSolve(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, A: Tensor, B: Tensor) -> Tensor:
        L = cholesky(A)[0]
        U = _solve_by_factor(L, B)
        if any(ctx.needs_input_grad):
            ctx.save_for_backward(L, U)
        return U

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor, Tensor]:
        L, U = ctx.saved_tensors
        back = _solve_by_factor(L, grads[0])
        return -back @ U.mT, back


def symmetric_solve(A: Tensor, B: Tensor) -> Tensor:
    r"""``A^-1 B`` for symmetric positive definite ``A`` [..., N, N] and ``B`` [..., N, T].

    With ``G`` the incoming gradient, the derivatives are ``A^-1 G`` for ``B`` and
    ``-A^-1 G (A^-1 B)'`` for ``A``.

    Examples
    --------
    >>> symmetric_solve(4.0 * torch.eye(2), torch.ones(2, 1)).flatten().tolist()
    [0.25, 0.25]
    """
    solution: Tensor = _SymmetricSolve.apply(A, B)
    return solution


class Conditionals:
    r"""Observations given landmarks ``S`` and a few more rows each, under ``theta`` [K, P].

    With ``L L' = K_SS + noise I`` and ``w(x) = L^-1 k(S, x)``, what the landmarks leave of the
    covariance of two points is ``k(x, x') - w(x)' w(x')``, and of a target ``y - w(x)' L^-1 y_S``.
    A point is conditioned on its rows ``N`` in these terms: with ``R`` the covariance left of
    ``y_N``, and ``r`` that of ``y_N`` with the point,

    ``mu = w' L^-1 y_S + r' R^-1 (y_N - W_N' L^-1 y_S)`` and
    ``sigma^2 = k(x, x) + noise - w' w - r' R^-1 r``.

    That is the exact GP of ``S`` and ``N``, in ``O(m^2 M + m^3)`` for each point.  ``w`` of all
    rows but landmarks is computed once and kept where it takes at most 1 GiB, or 2 on a GPU;
    otherwise that of the ``m`` rows of each point is computed with the point, in ``O(m M^2)``.

    A landmark ``j`` is left out in closed form: with ``P`` the inverse of the covariance of ``S``
    and ``N`` and ``b = (P k)_j``, the mean loses ``b (P y)_j / P_jj``, and the variance gains
    ``b^2 / P_jj``.

    Parameters
    ----------
    data : Data
    landmarks : Tensor [M]
        Rows of the data; there may be none.
    theta : Tensor [K, P]

    Examples
    --------
    >>> from sharpgp.gp.kernels.covariance import Stationary
    >>> X = torch.tensor([[0.0], [3.0]], dtype=torch.float64)
    >>> data = Data(Stationary("rbf", 1), X, X[:, 0])
    >>> theta = torch.tensor([[1.0, 1.0, 1.0]], dtype=torch.float64)
    >>> none, second = torch.empty(0, dtype=torch.int64), torch.tensor([[1]])
    >>> mean, variance = Conditionals(data, none, theta).moments(X[1:], second)
    >>> mean.item(), variance.item()
    (1.5, 1.5)
    >>> torch.equal(Conditionals(data, second[0], theta).moments(X[1:], none[None])[0], mean)
    True
    """

    def __init__(self, data: Data, landmarks: Tensor, theta: Tensor) -> None:
        assert isinstance(data.covariance, Named)
        self._data, self._rows, self._theta = data, landmarks, theta
        self._covariance, self._S = data.covariance, data.X[landmarks]
        if len(landmarks):
            Ky = self._covariance.of_observations(theta, data.take(landmarks))
            self._L = cholesky(Ky)[0]
        else:
            self._L = theta.new_empty(len(theta), 0, 0)

    def with_targets(self, y: Tensor) -> Self:
        """The same for other targets [N]; nothing else depends on them."""
        other = copy.copy(self)
        other._data = replace(self._data, y=y)
        return other

    def moments(
        self, X: Tensor, near: Tensor, left_out: Tensor | None = None
    ) -> tuple[Tensor, Tensor]:
        """Mean and variance [K, T] of observations at ``X`` [T, d], given rows ``near`` [T, m].

        Points have the noise of ``theta``, and none of their own.
        In blocks of points; with gradients, blocks are recomputed in the backward pass instead of
        being kept.

        Parameters
        ----------
        X : Tensor [T, d]
        near : Tensor [T, m]
            None of them a landmark.
        left_out : Tensor [T], optional
            Number of the landmark that a point is not conditioned on, -1 for none.
        """
        if not len(X):
            return (none := self._L.new_empty(len(self._theta), 0)), none
        gradients = torch.is_grad_enabled() and (self._L.requires_grad or X.requires_grad)
        c = solve(self._L, self._data.y[self._rows].expand(len(self._theta), -1).unsqueeze(-1))
        kept = None if gradients else self._white
        inverse = None if left_out is None else self._inverse()
        levels, M, m = len(self._theta), len(self._rows), near.shape[1]
        # Covariances of a block of points stay in the cache; rows of w pass through it.
        entries = levels * ((m + 1) ** 2 + m * M // _STREAMED)

        def block(rows: slice) -> tuple[Tensor, Tensor]:
            w, found = self._whiten(X[rows]), []
            for few in row_blocks(w.shape[1], entries, X.device):
                given = X[rows][few], near[rows][few], w[:, few], c, kept
                leave = None if left_out is None else (left_out[rows][few], inverse)
                if gradients:
                    one = checkpoint(self._conditional, *given, leave, use_reentrant=False)
                else:
                    one = self._conditional(*given, leave)
                found.append(one)
            mean, variance = (torch.cat(parts, -1) for parts in zip(*found, strict=True))
            return mean, variance

        # Whitening takes as many points at a time as stay in the cache themselves.
        blocks = list(by_rows(block, len(X), levels * max(m + 1, M), X.device))
        mean, variance = (torch.cat(parts, -1) for parts in zip(*blocks, strict=True))
        return mean, variance

    def _conditional(
        self,
        X: Tensor,
        near: Tensor,
        w: Tensor,
        c: Tensor,
        kept: Tensor | None,
        leave: tuple[Tensor, Tensor | None] | None,
    ) -> tuple[Tensor, Tensor]:
        theta, X_near, m = self._theta, self._data.X[near], near.shape[1]
        if kept is None:
            W = torch.cat([self._whiten(X_near), w.unsqueeze(2)], 2)
        else:
            each = torch.nn.functional.pad(self._place[near], (0, 1))
            W = kept.index_select(1, each.flatten()).unflatten(1, each.shape)
            W[:, :, m] = w
        # Neighbours and the point itself, which comes last, given landmarks.
        J = self._covariance.blocks(theta, torch.cat([X_near, X.unsqueeze(1)], 1))
        products, noise = (
            (W.flatten(0, 1), W.mT.flatten(0, 1)),
            theta[:, NOISE, None].expand(-1, len(X)),
        )
        if J.requires_grad or W.requires_grad:
            J = torch.baddbmm(J.flatten(0, 1), *products, alpha=-1.0).view_as(J)
            J = add_to_diagonal(J, noise)
            if self._data.noise is not None:
                J = add_each_to_diagonal(J, self._noise_of(near))
        else:
            J.view(-1, m + 1, m + 1).baddbmm_(*products, alpha=-1.0)
            J.diagonal(dim1=-2, dim2=-1).add_(noise.unsqueeze(-1))
            if self._data.noise is not None:
                J.diagonal(dim1=-2, dim2=-1).add_(self._noise_of(near))
        R, r, variance = J[..., :m, :m], J[..., :m, m:], J[..., m, m]
        rest, mean = (W.flatten(1, 2) @ c).unflatten(1, W.shape[1:3]).split([m, 1], 2)
        rest = self._data.y[near].unsqueeze(-1) - rest
        q = w.new_empty(*w.shape[:2], 0, w.shape[2])
        if leave is not None:
            left_out, inverse = leave
            assert inverse is not None
            q = (inverse[:, left_out] * (left_out >= 0).unsqueeze(-1)).unsqueeze(2)
        Z, b = (W @ q.mT).split([m, 1], 2)
        weights, by_Z = symmetric_solve(R, torch.cat([r, Z], -1)).split([1, Z.shape[-1]], -1)
        mean = mean[..., 0, 0] + (weights * rest).sum((-1, -2))
        variance = variance - (weights * r).sum((-1, -2))
        if leave is not None:
            P = (q @ q.mT + Z.mT @ by_Z)[..., 0, 0] + (left_out < 0)
            a = (q @ c.unsqueeze(1) - by_Z.mT @ rest)[..., 0, 0]
            b = (b - by_Z.mT @ r)[..., 0, 0]
            mean = mean - b * a / P
            variance = variance + b.square() / P
        # Rounding may take a near-noiseless variance below zero; it is never exactly zero.
        prior = self._covariance.diag(theta, X) + theta[:, NOISE, None]
        return mean, torch.maximum(variance, 1e-12 * prior.detach())

    def _noise_of(self, near: Tensor) -> Tensor:
        """The own noise [T, m + 1] of neighbours [T, m], and none of the point itself."""
        assert self._data.noise is not None
        return torch.nn.functional.pad(self._data.noise[near], (0, 1))

    def _whiten(self, X: Tensor) -> Tensor:
        """``w`` [K, ..., M] of points [..., d]."""
        out = self._L.new_empty(len(self._theta), 0, X.shape[:-1].numel())
        if len(self._rows):
            points = X.reshape(-1, X.shape[-1])
            out = solve(self._L, self._covariance.matrix(self._theta, self._S, points))
        return out.mT.contiguous().unflatten(1, X.shape[:-1])

    @cached_property
    def _place(self) -> Tensor:
        """Of each row [N] that is not a landmark, its number among these; -1 for landmarks."""
        rest = torch.ones(len(self._data.X), dtype=torch.bool, device=self._data.X.device)
        rest[self._rows] = False
        return torch.where(rest, rest.cumsum(0) - 1, -1)

    @cached_property
    def _white(self) -> Tensor | None:
        """``w`` [K, R, M] of all rows but landmarks; None if these are none, or too many."""
        X, (levels, M) = self._data.X[self._place >= 0], self._L.shape[:2]
        if not 0 < len(X) <= _KEPT * block_entries(X.device) // max(1, levels * M):
            return None
        parts = by_rows(lambda rows: self._whiten(X[rows]).mT, len(X), levels * M, X.device)
        return join(parts, self._L.new_empty(levels, len(X), M).mT).mT

    def _inverse(self) -> Tensor:
        """``L^-1`` with a row for each landmark, transposed: [K, M, M]."""
        M = len(self._rows)
        identity = torch.eye(M, dtype=self._L.dtype, device=self._L.device)
        return solve(self._L, identity.expand_as(self._L)).mT


def vecchia_likelihood(
    data: Data, theta: Tensor, landmarks: Tensor, first: Tensor, later: Tensor, near: Tensor
) -> Tensor:
    r"""Log density [K] of all targets, each given landmarks and the nearest of earlier rows.

    ``log p(y_F) + (N - F) mean_i log p(y_i | y_S, y_near(i))``, with landmarks ``S`` and ``F`` rows
    that come first, these among them, whose density is exact, and the mean over some of those that
    come later.

    Parameters
    ----------
    data : Data
    theta : Tensor [K, P]
    landmarks, first, later : Tensor [M], Tensor [F], Tensor [R]
        Indices of rows; there may be more later rows than these.
    near : Tensor [R, m]
        Indices of the rows that each of ``later`` is conditioned on.

    References
    ----------
    A. V. Vecchia, "Estimation and Model Identification for Continuous Spatial Processes", Journal
    of the Royal Statistical Society B 50 (1988).
    """
    K = data.covariance.of_observations(theta, data.take(first))
    density = log_marginal_likelihood(K, data.y[first].expand(len(theta), -1))
    if len(later):
        mean, variance = Conditionals(data, landmarks, theta).moments(data.X[later], near)
        variance = variance if data.noise is None else variance + data.noise[later]
        square = (data.y[later] - mean).square() / variance
        each = -0.5 * (square + variance.log() + math.log(2.0 * math.pi))
        density = density + (len(data.y) - len(first)) * each.mean(-1)
    return density
