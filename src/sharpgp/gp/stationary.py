"""Squared-exponential and Matern covariances, with gradients by matrix products only."""

import math
from typing import Any

import torch
from torch import Tensor

from sharpgp.gp.fixed_points import FixedPoints
from sharpgp.gp.ties import Ties, of_each, per_feature

#: Kernel names that the stationary implementation knows, with the Matern smoothness.
STATIONARY = {"rbf": math.inf, "matern12": 0.5, "matern32": 1.5, "matern52": 2.5}

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
        gaussian = math.isinf(smoothness)
        slope = None if gaussian else torch.empty_like(K)
        _profile(K, slope, smoothness)
        variance = s[:, None, None]
        K.mul_(variance)
        ctx.gaussian = gaussian
        ctx.save_for_backward(w, s, X1, X2, K, K if slope is None else slope.mul_(variance))
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

    Parameters
    ----------
    kind : str
    X : Tensor [N, d]
    ties : tuple of int, optional

    Examples
    --------
    >>> X = torch.tensor([[0.0], [0.5]], dtype=torch.float64)
    >>> theta = torch.tensor([2.0, 3.0, 0.1], dtype=torch.float64)
    >>> [round(v, 4) for v in StationaryAt("rbf", X).matrix(theta)[0].tolist()]
    [3.0, 1.8196]
    """

    def __init__(self, kind: str, X: Tensor, ties: Ties | None = None) -> None:
        self._smoothness, self._X, self._ties = STATIONARY[kind], X, ties
        self._squares = X.square()
        self._K = X.new_empty(len(X), len(X))
        self._A = torch.empty_like(self._K)
        self._gaussian = math.isinf(self._smoothness)
        self._slope = self._K if self._gaussian else torch.empty_like(self._K)

    def matrix(self, theta: Tensor) -> Tensor:
        """See :meth:`FixedPoints.matrix`."""
        return self.of_parts(per_feature(theta[:-2], self._ties), theta[-2])

    def contracted(self, G: Tensor) -> Tensor:
        """See :meth:`FixedPoints.contracted`."""
        by_w, by_s = self.contracted_parts(G)
        return torch.cat([of_each(by_w, self._ties, "sum"), by_s.reshape(1), by_s.new_zeros(1)])

    def of_parts(self, w: Tensor, s: Tensor) -> Tensor:
        """Covariances [N, N] under inverse lengthscales [d] and a variance."""
        self._w, self._s = w, s
        Z = self._X * w
        squares = Z.square().sum(-1)
        K = torch.add(squares.unsqueeze(-1), squares, out=self._K)
        K.addmm_(Z, Z.mT, alpha=-2.0).clamp_(min=0.0)
        K.diagonal().zero_()
        _profile(K, None if self._gaussian else self._slope, self._smoothness)
        if not self._gaussian:
            self._slope.mul_(s)
        return K.mul_(s)

    def contracted_parts(self, G: Tensor) -> tuple[Tensor, Tensor]:
        """Gradients for the inverse lengthscales [d] and the variance."""
        A = torch.mul(G, self._slope, out=self._A)
        rows = A.sum(0)
        scale = -2.0 if self._gaussian else 4.0
        by_w = scale * self._w * (rows @ self._squares - (self._X * (A @ self._X)).sum(0))
        products = rows.sum() if self._gaussian else torch.mul(G, self._K, out=self._A).sum()
        return by_w, products / self._s


def _profile(squared: Tensor, slope: Tensor | None, smoothness: float) -> None:
    """Turn squared distances into correlations in place; return the slope with respect to them.

    The squared-exponential kernel needs no slope: it is ``-correlation / 2``.
    """
    if math.isinf(smoothness):
        squared.mul_(-0.5).clamp_(min=-LARGEST_EXPONENT).exp_()
        return
    assert slope is not None
    r = squared.sqrt_().mul_(math.sqrt(2.0 * smoothness)).clamp_(max=LARGEST_EXPONENT)
    decay = torch.neg(r, out=slope).exp_()
    if smoothness == 0.5:
        # The slope -exp(-r)/(2r) is unbounded at 0, but always multiplies a difference squared.
        near = r <= 1e-7
        inverse = r.clamp(min=1e-7).reciprocal_().mul_(-0.5)
        r.copy_(decay)
        slope.mul_(inverse).masked_fill_(near, 0.0)
    elif smoothness == 1.5:
        r.add_(1.0).mul_(decay)
        slope.mul_(-1.5)
    else:
        one_more = r + 1.0
        r.mul_(r).mul_(1.0 / 3.0).add_(one_more).mul_(decay)
        slope.mul_(one_more).mul_(-5.0 / 6.0)
