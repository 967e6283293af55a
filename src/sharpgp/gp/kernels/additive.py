"""A full kernel plus an additive part: functions of one and two features, and a linear one.

Features that share a lengthscale, such as those that encode one column of a table, count as one
feature here: what they are functions of is the distance in all of them.
"""

import copy
import math
from collections.abc import Sequence
from functools import cached_property
from typing import Any

import torch
from torch import Tensor

from sharpgp._stored import Array, Maybe, Several, agree, stored
from sharpgp.gp.compute import block_entries
from sharpgp.gp.kernels.covariance import NOISE, Named
from sharpgp.gp.kernels.fixed_points import FixedPoints, by_covariance
from sharpgp.gp.kernels.stationary import LARGEST_EXPONENT, StationaryAt, stationary_blocks
from sharpgp.gp.ties import Ties, members, of_each, per_feature

_ROOT = math.sqrt(5.0)
# Entries (features times pairs) per batch, few enough to stay in the cache.
_BLOCK = 2**15


@stored(
    "Additive",
    kind=str,
    n_features=int,
    names=Several(str),
    ties=Maybe(Several(int)),
    reach=Maybe(Array("two d")),
)
class Additive(Named):
    r"""A Matern-5/2 kernel of all features plus sums over single features and over pairs.

    ``k = s_0 k_full + s_1/d sum_j e_j + s_2/(d choose 2) sum_{i<j} e_i e_j + s_l/d sum_j x_j x_j'``
    with ``k_full`` a Matern-5/2 kernel with lengthscales ``l_j`` and ``e_j`` a Matern-5/2 kernel of
    feature ``j``, or of those that share a lengthscale, with a lengthscale ``a_j`` of its own.  The
    sum over pairs is ``(p_1^2 - p_2) / 2``, from the power sums ``p_m = sum_j e_j^m``, by Newton's
    identities.  A sum of functions of single features needs far fewer points than one function of
    them all; the full part covers everything else.

    In the linear part ``x_j`` is clipped to its range in the data, extended by the width of that
    range on either side, so that far from all data mean and variance stop growing.

    ``theta = (1/l_1, ..., 1/l_d, 1/a_1, ..., 1/a_d, s_0, s_1, s_2, s_l, noise variance)``.

    References
    ----------
    D. Duvenaud, H. Nickisch and C. E. Rasmussen, "Additive Gaussian processes", NeurIPS 2011.

    Examples
    --------
    >>> kernel = Additive("additive", 2)
    >>> theta = torch.tensor([[1.0, 1, 1, 1, 1, 2, 4, 0, 0.1]], dtype=torch.float64)
    >>> kernel.diag(theta, torch.zeros(1, 2).double()).item()
    7.0
    """

    #: Ends [2, d] to which inputs of the linear part are clipped; None for none.
    reach: Tensor | None = None

    def _names(self) -> tuple[str, ...]:
        features = range(self.n_lengthscales)
        return (
            *(f"inverse_lengthscale_{j}" for j in features),
            *(f"inverse_additive_lengthscale_{j}" for j in features),
            "signal_variance",
            "first_order_variance",
            "second_order_variance",
            "linear_variance",
            "noise_variance",
        )

    @property
    def n_inverse(self) -> int:
        return 2 * self.n_lengthscales

    @property
    def of_all_features(self) -> tuple[bool, ...]:
        """Those of the full part; lengthscales of single features are their own."""
        return tuple(full for full in (True, False) for _ in range(self.n_lengthscales))

    def _restored(self) -> None:
        agree("kernel", self.kind, "additive")
        super()._restored()

    def matrix(self, theta: Tensor, X1: Tensor, X2: Tensor | None = None) -> Tensor:
        return self.blocks(theta, X1[None], None if X2 is None else X2[None])[:, 0]

    def blocks(self, theta: Tensor, X1: Tensor, X2: Tensor | None = None) -> Tensor:
        other = X1 if X2 is None else X2
        full, single = theta[:, : self.n_inverse].split(self.n_lengthscales, -1)
        whole, first, second, linear = theta[:, self.n_inverse : NOISE].unbind(-1)
        given = single, first, second, X1, other
        if torch.is_grad_enabled() and any(leaf.requires_grad for leaf in given):
            with torch.no_grad():
                pairs = Pairs(X1, X2, self.ties)
            orders: Tensor = _AdditiveMatrix.apply(*given, pairs)
        else:
            orders = _orders(*given, self.ties)
        products = self._clipped(X1) @ self._clipped(other).mT
        return (
            stationary_blocks("matern52", per_feature(full, self.ties), whole, X1, X2)
            + orders
            + linear[:, None, None, None] / self.n_features * products
        )

    def relevance(self, theta: Tensor) -> Tensor:
        """That of the full part or that of its own, if larger."""
        return per_feature(theta[: self.n_inverse].view(2, -1).amax(0), self.ties)

    def fix_points(self, X: Tensor) -> FixedPoints:
        """Distances along each feature are computed once."""
        return _AdditiveAt(X, self._clipped(X), self.ties)

    def diag(self, theta: Tensor, X: Tensor) -> Tensor:
        # One feature has no pairs.
        orders = 3 if self.n_lengthscales > 1 else 2
        constant = theta[:, self.n_inverse : self.n_inverse + orders].sum(-1, keepdim=True)
        squares = self._clipped(X).square().sum(-1)
        return constant + theta[:, -2, None] / self.n_features * squares

    def reaching(self, Z: Tensor) -> "Additive":
        """The linear part ends a width beyond the data."""
        low, high = Z.detach().amin(0), Z.detach().amax(0)
        other = copy.copy(self)
        other.reach = torch.stack([low - (high - low), high + (high - low)])
        return other

    def _clipped(self, X: Tensor) -> Tensor:
        return X if self.reach is None else X.clamp(*self.reach)


def _orders(
    a: Tensor, first: Tensor, second: Tensor, X1: Tensor, X2: Tensor, ties: Ties | None
) -> Tensor:
    """Orders one and two of an additive kernel [K, B, N, M], of sets [B, N, d] and [B, M, d].

    Blocks of pairs of points stay in the cache, where features take their turns.
    """
    (levels, d), (B, N, D), M = a.shape, X1.shape, X2.shape[1]
    left, right = X1.movedim(2, 0).unsqueeze(3), X2.movedim(2, 0).unsqueeze(2)
    entries = _BLOCK if X1.device.type == "cpu" else block_entries(X1.device)
    rows = max(1, entries // max(1, M))
    sets = max(1, rows // max(1, N))
    work, out = X1.new_empty(4, max(entries, M)), X1.new_empty(levels, B, N, M)
    places = [(b, i) for b in range(0, B, sets) for i in range(0, N, rows)]
    for k in range(levels):
        w = per_feature(_ROOT * a[k], ties)[:, None, None, None]
        scaled, other = (w * left).contiguous(), (w * right).contiguous()
        for b, i in places:
            values = out[k, b : b + sets, i : i + rows]
            sums, products, u, e = work[:, : values.numel()].view(4, *values.shape)
            sums.zero_(), products.zero_()
            A = scaled[:, b : b + sets, i : i + rows].unbind()
            Z = other[:, b : b + sets].unbind()
            for part in members(ties, D):
                _exponent(A, Z, part, u)
                torch.exp(u, out=e)
                e.addcmul_(e, u.addcmul_(u, u, value=-1.0 / 3.0), value=-1.0)
                sums.add_(e)
                products.addcmul_(e, e)
            products.neg_().addcmul_(sums, sums).mul_(0.5 / _n_pairs(d))
            torch.mul(sums, first[k] / d, out=values).addcmul_(products, second[k])
    return out


def _exponent(A: Sequence[Tensor], B: Sequence[Tensor], part: list[int], out: Tensor) -> None:
    """Write minus the distances in some features, which are not more than makes a difference."""
    torch.sub(A[part[0]], B[part[0]], out=out)
    if len(part) > 1:
        out.square_()
        for j in part[1:]:
            out.add_((A[j] - B[j]).square_())
        out.sqrt_()
    out.abs_().neg_().clamp_(min=-LARGEST_EXPONENT)


class Pairs:
    """Pairs of points of each of some sets, and how far apart they are along each feature.

    For a set of points with itself, only the pairs above the diagonal.

    Parameters
    ----------
    X1 : Tensor [B, N, d]
    X2 : Tensor [B, M, d] or None
        None: the same points.
    ties : tuple of int, optional
        Features that count as one, by the distance in all of them.

    Examples
    --------
    >>> Pairs(torch.tensor([[[0.0], [1.0], [3.0]]]), None).distances.tolist()
    [[1.0, 3.0, 2.0]]
    >>> Pairs(torch.tensor([[[0.0, 0.0], [3.0, 4.0]]]), None, (0, 0)).distances.tolist()
    [[5.0]]
    """

    def __init__(self, X1: Tensor, X2: Tensor | None, ties: Ties | None = None) -> None:
        self.same, self.ties = X2 is None, ties
        other = X1 if X2 is None else X2
        self.shape, self.device = (len(X1), X1.shape[1], other.shape[1]), X1.device
        parts = members(ties, X1.shape[2])
        n_pairs = len(X1) * (len(self.rows) if self.same else X1.shape[1] * other.shape[1])
        self.distances = X1.new_empty(len(parts), n_pairs)
        for out, j in zip(self.distances, parts, strict=True):
            self._along(X1[..., j], other[..., j], out)

    @cached_property
    def _places(self) -> tuple[Tensor, Tensor]:
        _, n, m = self.shape
        if self.same:
            rows, columns = torch.triu_indices(n, n, 1, device=self.device)
            return rows, columns
        index = torch.arange(n * m, device=self.device)
        return index // m, index % m

    @property
    def rows(self) -> Tensor:
        """Number of the first point of each pair."""
        return self._places[0]

    @property
    def columns(self) -> Tensor:
        """Number of the second point of each pair."""
        return self._places[1]

    def _along(self, A: Tensor, B: Tensor, out: Tensor) -> None:
        """Distances between points [B, N, p] and [B, M, p], of all pairs, flat."""
        if self.same:
            left, right, out = A[:, self.rows], A[:, self.columns], out.view(len(A), -1)
        else:
            left, right, out = A.unsqueeze(2), B.unsqueeze(1), out.view(self.shape)
        if left.shape[-1] == 1:
            torch.sub(left[..., 0], right[..., 0], out=out).abs_()
        else:
            torch.linalg.vector_norm(left - right, dim=-1, out=out)

    def matrices(self, values: Tensor, diagonal: Tensor) -> Tensor:
        """Matrices [K, B, N, M] of values [K, P], with one value on each diagonal [K], if any."""
        B, n, m = self.shape
        if not self.same:
            return values.reshape(len(values), B, n, m)
        values = values.reshape(len(values), B, len(self.rows))
        out = values.new_empty(len(values), B, n * n)
        out[..., self.rows * n + self.columns] = values
        out[..., self.columns * n + self.rows] = values
        out = out.reshape(len(values), B, n, n)
        out.diagonal(dim1=-2, dim2=-1).copy_(diagonal[:, None, None].expand(-1, B, n))
        return out

    def gradients(self, G: Tensor) -> tuple[Tensor, Tensor]:
        """Gradients of values [K, P] and diagonals [K], from those of matrices [K, B, N, M]."""
        if not self.same:
            return G.flatten(1), G.new_zeros(len(G))
        n, flat = self.shape[1], G.flatten(2)
        g = flat[..., self.rows * n + self.columns] + flat[..., self.columns * n + self.rows]
        return g.flatten(1), G.diagonal(dim1=-2, dim2=-1).sum((-1, -2))


class _AdditiveMatrix(torch.autograd.Function):
    """:func:`_orders` with gradients, on pairs of points, all features at once."""

    @staticmethod
    def forward(
        ctx: Any, a: Tensor, first: Tensor, second: Tensor, X1: Tensor, X2: Tensor, pairs: Pairs
    ) -> Tensor:
        (levels, d), n_pairs = a.shape, pairs.distances.shape[1]
        new = pairs.distances.new_empty
        kept = new(2, levels, d, n_pairs)
        sums, products = new(2, levels, n_pairs)
        _sum_orders(pairs.distances, a, sums, products, kept)
        values = first[:, None] / d * sums + second[:, None] * products
        ctx.pairs = pairs
        ctx.save_for_backward(a, first, second, X1, X2, sums, products, kept)
        return pairs.matrices(values, first + second * (d > 1))

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor | None, ...]:
        a, first, second, X1, X2, sums, products, kept = ctx.saved_tensors
        d, pairs = a.shape[1], ctx.pairs
        g, on_diagonal = pairs.gradients(grads[0])
        by_product = second[:, None] / _n_pairs(d) * g
        by_sum = by_product * sums + first[:, None] / d * g
        # e is a function of a |x - x'|: its slope in the logarithm of that serves both.
        slope, e_slope = kept
        by_log = slope @ by_sum.unsqueeze(-1) - e_slope @ by_product.unsqueeze(-1)
        grad_a = by_log.squeeze(-1) / (-3.0 * a)
        grad_X1 = grad_X2 = None
        if ctx.needs_input_grad[3] or ctx.needs_input_grad[4]:
            apart = X1[:, pairs.rows] - X2[:, pairs.columns]
            by_log = (slope * by_sum.unsqueeze(1) - e_slope * by_product.unsqueeze(1)).sum(0)
            by_square = torch.where(by_log == 0.0, 0.0, by_log / (-3.0 * pairs.distances.square()))
            by_x = per_feature(by_square.mT, pairs.ties).view_as(apart) * apart
            grad_X1 = torch.zeros_like(X1).index_add_(1, pairs.rows, by_x)
            grad_X2 = torch.zeros_like(X2).index_add_(1, pairs.columns, -by_x)
        by_first = torch.linalg.vecdot(g, sums) / d + on_diagonal
        by_second = torch.linalg.vecdot(g, products) + on_diagonal * (d > 1)
        return grad_a, by_first, by_second, grad_X1, grad_X2, None


def _sum_orders(apart: Tensor, a: Tensor, sums: Tensor, products: Tensor, kept: Tensor) -> None:
    """Sums of ``e_j``, and means of ``e_i e_j`` over pairs of features, in blocks of points' pairs.

    Parameters
    ----------
    apart : Tensor [d, pairs]
        Distances along each feature.
    a : Tensor [K, d]
    sums, products : Tensor [K, pairs]
        Where to write them.
    kept : Tensor [2, K, d, pairs]
        Where to write what gradients need: the slope of ``e_j`` in ``log a_j``, times -3, and its
        product with ``e_j``.
    """
    (levels, d), n_pairs = a.shape, apart.shape[1]
    entries = _BLOCK if apart.device.type == "cpu" else block_entries(apart.device)
    size = min(n_pairs, max(1, entries // (levels * d)))
    blocks = apart.new_empty(3, levels * d * size)
    inverse = (-_ROOT * a).unsqueeze(-1)
    for start in range(0, n_pairs, size or 1):
        block = slice(start, min(start + size, n_pairs))
        shape = levels, d, block.stop - block.start
        u, decay, slope = (one[: math.prod(shape)].view(shape) for one in blocks)
        torch.mul(apart[:, block], inverse, out=u).clamp_(min=-LARGEST_EXPONENT)
        torch.exp(u, out=decay)
        torch.mul(u, u, out=slope).mul_(decay)
        u.neg_().add_(1.0)
        e = decay.mul_(u).add_(slope, alpha=1.0 / 3.0)
        torch.sum(e, 1, out=sums[:, block])
        torch.mul(slope, u, out=kept[0, ..., block])
        torch.mul(kept[0, ..., block], e, out=kept[1, ..., block])
        torch.sum(e.mul_(e), 1, out=products[:, block])
    products.neg_().addcmul_(sums, sums).mul_(0.5 / _n_pairs(d))


class _AdditiveAt(FixedPoints):
    """The kernel on fixed points: orders one and two on the pairs above the diagonal."""

    def __init__(self, X: Tensor, linear: Tensor, ties: Ties | None) -> None:
        n, d = X.shape
        self._X, self._ties = linear, ties
        self._full = StationaryAt("matern52", X)
        self._dots = linear @ linear.mT / d
        self._pairs = pairs = Pairs(X[None], None, ties)
        self._above = pairs.rows * n + pairs.columns
        self._sums, self._products, self._values = X.new_empty(3, 1, len(self._above))
        self._kept = X.new_empty(2, 1, *pairs.distances.shape)

    def matrix(self, theta: Tensor, out: Tensor) -> None:
        d = len(self._pairs.distances)
        full, self._a = theta[: 2 * d].split(d)
        self._variances = whole, first, second, linear = theta[2 * d : NOISE].unbind()
        self._full.of_parts(per_feature(full, self._ties), whole, out)
        _sum_orders(self._pairs.distances, self._a[None], self._sums, self._products, self._kept)
        values = torch.mul(self._sums, first / d, out=self._values)
        values.addcmul_(self._products, second)
        out.addcmul_(self._dots, linear)
        out.view(-1).index_add_(0, self._above, values[0])
        out.diagonal().add_(first + second * (d > 1))

    def contracted(self, inverse: Tensor, alpha: Tensor, total: Tensor) -> Tensor:
        d, X, (whole, first, second, linear) = len(self._a), self._X, self._variances
        sums, products, slope, e_slope = self._sums[0], self._products[0], *self._kept[:, 0]
        trace = 0.5 * (alpha.square() - inverse.diagonal()).sum()
        g = by_covariance(inverse, alpha).view(-1).index_select(0, self._above).mul_(2.0)
        by_product = g * (second / _n_pairs(d))
        by_sum = torch.addcmul(g * (first / d), by_product, sums, out=self._values[0])
        by_a = (slope @ by_sum - e_slope @ by_product) / (-3.0 * self._a)
        by_first = g @ sums / d + trace
        by_second = g @ products + trace * (d > 1)
        by_linear = 0.5 * ((alpha @ X).square().sum() - (X * (inverse @ X)).sum()) / X.shape[1]
        rest = first * by_first + second * by_second + linear * by_linear
        variances = [(total - rest) / whole, by_first, by_second, by_linear, trace.new_zeros(())]
        by_w = of_each(self._full.by_inverse_lengthscales(inverse, alpha), self._ties, "sum")
        return torch.cat([by_w, by_a, torch.stack(variances)])


def _n_pairs(d: int) -> int:
    """Pairs of features, or 1 where there are none: a sum over none is 0 anyway."""
    return max(1, d * (d - 1) // 2)
