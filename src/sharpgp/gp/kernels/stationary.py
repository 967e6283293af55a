"""Squared-exponential and Matern covariances, with gradients by matrix products only."""

import math
from collections.abc import Iterator
from typing import Any

import torch
from torch import Tensor

from sharpgp.gp.compute import block_entries
from sharpgp.gp.kernels.fixed_points import FixedPoints
from sharpgp.gp.ties import Ties, of_each, per_feature

#: Kernel names that the stationary implementation knows, with the Matern smoothness.
STATIONARY = {"rbf": math.inf, "matern12": 0.5, "matern32": 1.5, "matern52": 2.5}
#: Place of the signal variance in ``theta`` of a stationary kernel, after its inverse lengthscales.
SIGNAL = -2

#: ``exp(-100)`` is far below rounding, and products of such values stay clear of denormal numbers,
#: which slow a factorisation several times.
LARGEST_EXPONENT = 100.0


def stationary_matrix(
    kind: str, inverse: Tensor, variance: Tensor, X1: Tensor, X2: Tensor | None
) -> Tensor:
    """Stationary covariances [K, N, M] under inverse lengthscales [K, d] and variances [K]."""
    other = X1 if X2 is None else X2
    K: Tensor = _StationaryMatrix.apply(inverse, variance, X1, other, X2 is None, STATIONARY[kind])
    return K


def stationary_blocks(
    kind: str, inverse: Tensor, variance: Tensor, X1: Tensor, X2: Tensor | None
) -> Tensor:
    """:func:`stationary_matrix` of sets of points [B, N, d] and [B, M, d]: [K, B, N, M]."""
    shape = len(variance), len(X1)
    w, s = inverse.repeat_interleave(len(X1), 0), variance.repeat_interleave(len(X1), 0)
    first, second = (
        None if X is None else X.expand(*shape[:1], *X.shape).flatten(0, 1) for X in (X1, X2)
    )
    assert first is not None
    return stationary_matrix(kind, w, s, first, second).unflatten(0, shape)


class _StationaryMatrix(torch.autograd.Function):
    """Covariance matrix of a stationary kernel, with gradients by matrix products only.

    gpytorch's own kernels keep several N x N intermediates per call and take two to three times
    as long; here the backward pass costs one N x M x d product.
    """

    @staticmethod
    def forward(
        ctx: Any, w: Tensor, s: Tensor, X1: Tensor, X2: Tensor, same: bool, smoothness: float
    ) -> Tensor:
        Z1, Z2 = X1 * w.unsqueeze(-2), X2 * w.unsqueeze(-2)
        squares = Z1.square().sum(-1).unsqueeze(-1) + Z2.square().sum(-1).unsqueeze(-2)
        K = squares.baddbmm_(Z1, Z2.mT, alpha=-2.0).clamp_(min=0.0)
        if same:
            K.diagonal(dim1=-2, dim2=-1).zero_()
        ctx.gaussian = math.isinf(smoothness)
        needed = any(ctx.needs_input_grad)
        slope = torch.empty_like(K) if needed and not ctx.gaussian else None
        _profile(K, slope, s[:, None, None], smoothness)
        if needed:
            ctx.save_for_backward(w, s, X1, X2, K, K if slope is None else slope)
        return K

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor | None, ...]:
        w, s, X1, X2, K, slope = ctx.saved_tensors
        A = grads[0] * slope
        rows, columns = A.sum(-1), A.sum(-2)
        AX2 = A @ X2
        # The slope of the squared-exponential kernel is -K/2, so K itself serves as the slope.
        scale = -1.0 if ctx.gaussian else 2.0
        grad_w = grad_s = grad_X1 = grad_X2 = None
        if ctx.needs_input_grad[0]:
            squares = rows.unsqueeze(-2) @ X1.square() + columns.unsqueeze(-2) @ X2.square()
            grad_w = scale * w * (squares.squeeze(-2) - 2.0 * (X1 * AX2).sum(-2))
        if ctx.needs_input_grad[1]:
            products = rows if ctx.gaussian else torch.linalg.vecdot(grads[0], K)
            grad_s = products.sum(-1) / s
        if ctx.needs_input_grad[2]:
            back = scale * w.square().unsqueeze(-2) * (X1 * rows.unsqueeze(-1) - AX2)
            grad_X1 = back.sum_to_size(X1.shape)
        if ctx.needs_input_grad[3]:
            back = scale * w.square().unsqueeze(-2) * (X2 * columns.unsqueeze(-1) - A.mT @ X1)
            grad_X2 = back.sum_to_size(X2.shape)
        return grad_w, grad_s, grad_X1, grad_X2, None, None


class StationaryAt(FixedPoints):
    """A stationary kernel on fixed points; ``theta`` as that of ``Stationary``.

    Blocks of rows, right of the diagonal, are worked on while they are in the cache.

    Parameters
    ----------
    kind : str
    X : Tensor [N, d]
    ties : tuple of int, optional
    shared : Tensor [N, N], optional
        Squared distances in further features, which share one more lengthscale, the last.

    Examples
    --------
    >>> X = torch.tensor([[0.0], [0.5]], dtype=torch.float64)
    >>> theta = torch.tensor([2.0, 3.0, 0.1], dtype=torch.float64)
    >>> K = torch.empty(2, 2, dtype=torch.float64)
    >>> StationaryAt("rbf", X).matrix(theta, K)
    >>> [round(v, 4) for v in K[0].tolist()]
    [3.0, 1.8196]
    """

    def __init__(
        self, kind: str, X: Tensor, ties: Ties | None = None, shared: Tensor | None = None
    ) -> None:
        self._smoothness, self._X, self._ties = STATIONARY[kind], X, ties
        self._shared = shared
        self._gaussian = math.isinf(self._smoothness)
        self._slope = X.new_empty(len(X), len(X))
        # What sums over squared differences are made of; and what counts for both triangles.
        self._powers = torch.cat([X.new_ones(len(X), 1), X, X.square()], 1)
        self._twice = 2.0 * self._powers
        n = len(X)
        size = min(n, max(1, block_entries(X.device, in_threads=True) // (2 * n)))
        self._starts = range(0, n, size)
        self._block = X.new_empty(size * n)

    def _blocks(self) -> Iterator[tuple[slice, slice]]:
        """Rows, and columns from the diagonal on."""
        n = len(self._X)
        for start in self._starts:
            yield slice(start, min(start + self._starts.step, n)), slice(start, n)

    def matrix(self, theta: Tensor, out: Tensor) -> None:
        w = theta[:SIGNAL]
        if self._shared is not None:
            w, self._w_shared = w[:-1], w[-1]
        self.of_parts(per_feature(w, self._ties), theta[SIGNAL], out)

    def contracted(self, inverse: Tensor, alpha: Tensor, total: Tensor) -> Tensor:
        by_w = of_each(self.by_inverse_lengthscales(inverse, alpha), self._ties, "sum")
        if self._shared is not None:
            by_w = torch.cat([by_w, self._by_shared(inverse, alpha).reshape(1)])
        return torch.cat([by_w, (total / self._s).reshape(1), by_w.new_zeros(1)])

    def of_parts(self, w: Tensor, s: Tensor, out: Tensor) -> None:
        """Write covariances under inverse lengthscales [d] and a variance, as :meth:`matrix`."""
        self._w, self._s = w, s
        Z = self._X * w
        squares = Z.square().sum(-1)
        for rows, columns in self._blocks():
            slope = self._slope[rows, columns]
            K = slope if self._gaussian else out[rows, columns]
            torch.add(squares[rows, None], squares[columns], out=K)
            K.addmm_(Z[rows], Z[columns].mT, alpha=-2.0).clamp_(min=0.0)
            if self._shared is not None:
                K.addcmul_(self._shared[rows, columns], self._w_shared.square())
            K.diagonal().zero_()
            _profile(K, None if self._gaussian else slope, s, self._smoothness)
            if self._gaussian:
                out[rows, columns] = K

    def by_inverse_lengthscales(self, inverse: Tensor, alpha: Tensor) -> Tensor:
        """Gradient for the inverse lengthscales [d]; arguments as of :meth:`contracted`."""
        d = self._X.shape[1]
        weighted, twice = alpha.unsqueeze(-1) * self._powers, alpha.unsqueeze(-1) * self._twice
        sums = torch.empty_like(self._powers)
        for rows, columns in self._blocks():
            slope, beyond = self._slope[rows, columns], slice(rows.stop, None)
            n = len(slope)
            A = self._block[: slope.numel()].view_as(slope)
            torch.mul(inverse[rows, columns], slope, out=A)
            by_alpha = (slope[:, :n] @ weighted[rows]).addmm_(slope[:, n:], twice[beyond])
            by_inverse = (A[:, :n] @ self._powers[rows]).addmm_(A[:, n:], self._twice[beyond])
            sums[rows] = by_alpha.mul_(alpha[rows, None]).sub_(by_inverse)
        ones, products, squares = sums.split([1, d, d], 1)
        X, X_squares = self._powers[:, 1:].split([d, d], 1)
        apart = (ones * X_squares + squares - 2.0 * X * products).sum(0)
        # The slope of the squared-exponential kernel is -K/2, and K itself was kept as the slope.
        return (-0.5 if self._gaussian else 1.0) * self._w * apart

    def _by_shared(self, inverse: Tensor, alpha: Tensor) -> Tensor:
        """Gradient for the last inverse lengthscale; arguments as of :meth:`contracted`."""
        assert self._shared is not None
        total = alpha.new_zeros(())
        for rows, columns in self._blocks():
            A = self._slope[rows, columns] * self._shared[rows, columns]
            A *= torch.outer(alpha[rows], alpha[columns]).sub_(inverse[rows, columns])
            total += 2.0 * A.sum() - A[:, : len(A)].sum()
        return (-0.5 if self._gaussian else 1.0) * self._w_shared * total


def _profile(squared: Tensor, slope: Tensor | None, variance: Tensor, smoothness: float) -> None:
    """Turn squared distances into covariances in place.

    Write the slope with respect to them, if asked for.  The squared-exponential kernel needs none:
    it is ``-covariance / 2``.
    """
    if math.isinf(smoothness):
        squared.mul_(-0.5).clamp_(min=-LARGEST_EXPONENT).exp_().mul_(variance)
        return
    r = squared.sqrt_().mul_(math.sqrt(2.0 * smoothness)).clamp_(max=LARGEST_EXPONENT)
    decay = torch.neg(r, out=slope).exp_().mul_(variance)
    if slope is None:
        _without_slope(r, decay, smoothness)
    elif smoothness == 0.5:
        # The slope -exp(-r)/(2r) is unbounded at 0, but always multiplies a difference squared.
        near = r <= 1e-7
        inverse = r.clamp(min=1e-7).reciprocal_().mul_(-0.5)
        r.copy_(decay)
        slope.mul_(inverse).masked_fill_(near, 0.0)
    elif smoothness == 1.5:
        torch.addcmul(decay, r, decay, out=r)
        slope.mul_(-1.5)
    else:
        first_order = torch.addcmul(decay, r, decay)
        torch.addcmul(first_order, r.mul_(r), decay, value=1.0 / 3.0, out=r)
        torch.mul(first_order, -5.0 / 6.0, out=slope)


def _without_slope(r: Tensor, decay: Tensor, smoothness: float) -> None:
    """Turn scaled distances into covariances in place, from ``variance exp(-r)``."""
    if smoothness == 0.5:
        r.copy_(decay)
        return
    if smoothness == 2.5:
        r.addcmul_(r, r, value=1.0 / 3.0)
    torch.addcmul(decay, r, decay, out=r)
