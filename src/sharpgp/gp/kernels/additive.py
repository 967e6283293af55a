"""A full kernel plus an additive part: functions of one and two features, and a linear one.

Features that share a lengthscale, such as those that encode one column of a table, count as one
feature here: what they are functions of is the distance in all of them.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Annotated, Any, Self

import torch
from torch import Tensor

from sharpgp._stored import Array, agree, stored
from sharpgp.gp.compute import block_entries
from sharpgp.gp.kernels.covariance import NOISE, Named, without_names
from sharpgp.gp.kernels.fixed_points import FixedPoints, by_covariance
from sharpgp.gp.kernels.stationary import LARGEST_EXPONENT, StationaryAt, stationary_blocks
from sharpgp.gp.ties import Ties, members, of_each, per_feature

_ROOT = math.sqrt(5.0)
# Entries (features times pairs) per batch, few enough to stay in the cache.
_BLOCK = 2**15


@stored("Additive", earlier=without_names)
@dataclass(frozen=True, eq=False, repr=False)
class Additive(Named):
    r"""A Matern-5/2 kernel of all features plus sums over single features and over pairs.

    ``k = s_0 k_full + s_1 e + s_2 e^2 + s_l/d sum_j x_j x_j'`` with ``k_full`` a Matern-5/2 kernel
    with lengthscales ``l_j`` and ``e = 1/d sum_j e_j`` the mean of Matern-5/2 kernels of single
    features ``j``, or of those that share a lengthscale, with a lengthscale ``a_j`` of their own.
    The square of ``e`` is a mean of ``e_i e_j`` over pairs of features.  A sum of functions of
    single features needs far fewer points than one function of them all; the full part covers
    everything else.

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
    reach: Annotated[Tensor | None, Array("two d")] = None

    @cached_property
    def names(self) -> tuple[str, ...]:  # type: ignore[override]
        """See :class:`Covariance`."""
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
        if torch.is_grad_enabled() and any(one.requires_grad for one in (single, X1, other)):
            with torch.no_grad():
                pairs = Pairs(X1, X2, self.ties)
            mean: Tensor = _MeanMatrix.apply(single, X1, other, pairs)
        else:
            mean = _mean(single, X1, other, self.ties)
        whole, *variances = theta[:, self.n_inverse : NOISE].unbind(-1)
        first, second, linear = (one[:, None, None, None] for one in variances)
        products = self._clipped(X1) @ self._clipped(other).mT
        found = stationary_blocks("matern52", per_feature(full, self.ties), whole, X1, X2)
        found = found.addcmul(first.addcmul(second, mean), mean)
        return found.addcmul(linear / self.n_features, products)

    def relevance(self, theta: Tensor) -> Tensor:
        """That of the full part or that of its own, if larger."""
        return per_feature(theta[: self.n_inverse].view(2, -1).amax(0), self.ties)

    def fix_points(self, X: Tensor) -> FixedPoints:
        """Distances along each feature are computed once."""
        return _AdditiveAt(X, self._clipped(X), self.ties)

    def diag(self, theta: Tensor, X: Tensor) -> Tensor:
        *constant, linear = theta[:, self.n_inverse : NOISE, None].unbind(1)
        squares = self._clipped(X).square().sum(-1)
        return torch.stack(constant).sum(0) + linear / self.n_features * squares

    def reaching(self, Z: Tensor) -> Self:
        """The linear part ends a width beyond the data."""
        low, high = Z.detach().amin(0), Z.detach().amax(0)
        return replace(self, reach=torch.stack([low - (high - low), high + (high - low)]))

    def _clipped(self, X: Tensor) -> Tensor:
        return X if self.reach is None else X.clamp(*self.reach)


def _mean(a: Tensor, X1: Tensor, X2: Tensor, ties: Ties | None) -> Tensor:
    """Mean of kernels of single features [K, B, N, M], of sets [B, N, d] and [B, M, d].

    Blocks of pairs of points stay in the cache, where features take their turns.
    """
    (levels, d), (B, N, D), M = a.shape, X1.shape, X2.shape[1]
    left, right = X1.movedim(2, 0).unsqueeze(3), X2.movedim(2, 0).unsqueeze(2)
    entries = _BLOCK if X1.device.type == "cpu" else block_entries(X1.device)
    rows = max(1, entries // max(1, M))
    sets = max(1, rows // max(1, N))
    work, out = X1.new_empty(2, max(entries, M)), X1.new_empty(levels, B, N, M)
    places = [(b, i) for b in range(0, B, sets) for i in range(0, N, rows)]
    for k in range(levels):
        w = per_feature(_ROOT * a[k], ties)[:, None, None, None]
        scaled, other = (w * left).contiguous(), (w * right).contiguous()
        for b, i in places:
            values = out[k, b : b + sets, i : i + rows].zero_()
            u, e = work[:, : values.numel()].view(2, *values.shape)
            A = scaled[:, b : b + sets, i : i + rows].unbind()
            Z = other[:, b : b + sets].unbind()
            for part in members(ties, D):
                _exponent(A, Z, part, u)
                torch.exp(u, out=e)
                e.addcmul_(e, u.addcmul_(u, u, value=-1.0 / 3.0), value=-1.0)
                values.add_(e)
            values.div_(d)
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
            left, right = (A.index_select(1, places) for places in self._places)
            out = out.view(len(A), -1)
        else:
            left, right, out = A.unsqueeze(2), B.unsqueeze(1), out.view(self.shape)
        if left.shape[-1] == 1:
            torch.sub(left[..., 0], right[..., 0], out=out).abs_()
        else:
            torch.linalg.vector_norm(left - right, dim=-1, out=out)

    def matrices(self, values: Tensor) -> Tensor:
        """Matrices [K, B, N, M] of values [K, P], with 1 on the diagonals, if any."""
        B, n, m = self.shape
        if not self.same:
            return values.reshape(len(values), B, n, m)
        values = values.reshape(len(values), B, len(self.rows))
        out = values.new_empty(len(values), B, n * n)
        out[..., self.rows * n + self.columns] = values
        out[..., self.columns * n + self.rows] = values
        out = out.reshape(len(values), B, n, n)
        out.diagonal(dim1=-2, dim2=-1).fill_(1.0)
        return out

    def gradients(self, G: Tensor) -> Tensor:
        """Gradients of values [K, P], from those of matrices [K, B, N, M]."""
        if not self.same:
            return G.flatten(1)
        n, flat = self.shape[1], G.flatten(2)
        g = flat[..., self.rows * n + self.columns] + flat[..., self.columns * n + self.rows]
        return g.flatten(1)


class _MeanMatrix(torch.autograd.Function):
    """:func:`_mean` with gradients, on pairs of points."""

    @staticmethod
    def forward(ctx: Any, a: Tensor, X1: Tensor, X2: Tensor, pairs: Pairs) -> Tensor:
        found = [_Means(pairs.distances) for _ in a]
        values = torch.stack([one.at(row) for one, row in zip(found, a, strict=True)])
        ctx.pairs, ctx.found = pairs, found
        ctx.save_for_backward(a, X1, X2)
        return pairs.matrices(values)

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor | None, ...]:
        (a, X1, X2), pairs = ctx.saved_tensors, ctx.pairs
        g = pairs.gradients(grads[0])
        several = list(zip(ctx.found, g, strict=True))
        grad_a = torch.stack([one.by_log(row) for one, row in several]) / a
        grad_X1 = grad_X2 = None
        if ctx.needs_input_grad[1] or ctx.needs_input_grad[2]:
            # e is a function of a |x - x'|: its slope in the logarithm of that serves both.
            by_log = sum(one.slopes * row for one, row in several) / len(a.T)
            apart = X1[:, pairs.rows] - X2[:, pairs.columns]
            by_square = torch.where(by_log == 0.0, 0.0, by_log / pairs.distances.square())
            by_x = per_feature(by_square.mT, pairs.ties).view_as(apart) * apart
            grad_X1 = torch.zeros_like(X1).index_add_(1, pairs.rows, by_x)
            grad_X2 = torch.zeros_like(X2).index_add_(1, pairs.columns, -by_x)
        return grad_a, grad_X1, grad_X2, None


class _Means:
    """Means of kernels of single features, of pairs of points, with gradients.

    Parameters
    ----------
    distances : Tensor [d, pairs]
        Along each feature.  They are kept in blocks of pairs, that of all features in one place.
    """

    def __init__(self, distances: Tensor) -> None:
        (self._d, self._n), device = distances.shape, distances.device
        entries = _BLOCK if device.type == "cpu" else block_entries(device)
        size = min(max(1, self._n), max(1, entries // self._d))
        blocks = -(-self._n // size)
        padded = torch.nn.functional.pad(distances, (0, blocks * size - self._n))
        self._apart = padded.view(self._d, blocks, size).movedim(1, 0).contiguous()
        self._slopes = torch.empty_like(self._apart)
        self._work = distances.new_empty(2, self._d, size)
        self._sums, self._g = distances.new_zeros(2, blocks, size)

    def at(self, a: Tensor) -> Tensor:
        """The means [pairs] under inverse lengthscales [d], in memory that the next call uses."""
        (u, e), inverse = self._work, (-_ROOT * a).unsqueeze(-1)
        for apart, slope, total in zip(self._apart, self._slopes, self._sums, strict=True):
            torch.mul(apart, inverse, out=u).clamp_(min=-LARGEST_EXPONENT)
            torch.exp(u, out=e)
            # With u = -r: e = (1 + r + r^2/3) exp(-r), whose slope in log r is
            # -r^2 (1 + r) exp(-r) / 3.
            torch.mul(u, e, out=slope)
            e.sub_(slope)
            slope.mul_(u)
            e.add_(slope, alpha=1.0 / 3.0)
            slope.addcmul_(slope, u, value=-1.0)
            torch.sum(e, 0, out=total)
        return self._sums.view(-1)[: self._n].div_(self._d)

    def by_log(self, g: Tensor) -> Tensor:
        """Gradient [d] for the logarithms of the inverse lengthscales, from that of means."""
        self._g.view(-1)[: self._n] = g
        products = torch.bmm(self._slopes, self._g.unsqueeze(-1)).sum(0).squeeze(-1)
        return products / (-3.0 * self._d)

    @property
    def slopes(self) -> Tensor:
        """Slopes [d, pairs] of kernels in the logarithms of their inverse lengthscales."""
        return self._slopes.movedim(1, 0).reshape(self._d, -1)[:, : self._n] / -3.0


class _AdditiveAt(FixedPoints):
    """The kernel on fixed points: the additive part on the pairs above the diagonal."""

    def __init__(self, X: Tensor, linear: Tensor, ties: Ties | None) -> None:
        self._ties, self._full = ties, StationaryAt("matern52", X)
        pairs = Pairs(X[None], None, ties)
        self._above = pairs.rows * len(X) + pairs.columns
        self._means, self._d = _Means(pairs.distances), len(pairs.distances)
        products = linear @ linear.mT / X.shape[1]
        self._products, self._squares = products.view(-1)[self._above], products.diagonal()
        self._values = torch.empty_like(self._products)

    def matrix(self, theta: Tensor, out: Tensor) -> None:
        n_inverse = 2 * self._d
        full, self._a = theta[:n_inverse].chunk(2)
        self._variances = whole, first, second, linear = theta[n_inverse:NOISE].unbind()
        self._full.of_parts(per_feature(full, self._ties), whole, out)
        self._mean = self._means.at(self._a)
        values = torch.mul(self._mean, second, out=self._values).add_(first).mul_(self._mean)
        values.addcmul_(self._products, linear)
        out.view(-1).index_add_(0, self._above, values)
        out.diagonal().add_(first + second).addcmul_(self._squares, linear)

    def contracted(self, inverse: Tensor, alpha: Tensor, total: Tensor) -> Tensor:
        (whole, first, second, linear), e = self._variances, self._mean
        on = 0.5 * (alpha.square() - inverse.diagonal())
        g = by_covariance(inverse, alpha).view(-1).index_select(0, self._above).mul_(2.0)
        by_linear = g @ self._products + on @ self._squares
        slope = torch.mul(e, 2.0 * second, out=self._values).add_(first).mul_(g)
        by_a = self._means.by_log(slope) / self._a
        by_first = g.mul_(e).sum() + on.sum()
        by_second = g @ e + on.sum()
        rest = first * by_first + second * by_second + linear * by_linear
        variances = [(total - rest) / whole, by_first, by_second, by_linear, on.new_zeros(())]
        by_w = of_each(self._full.by_inverse_lengthscales(inverse, alpha), self._ties, "sum")
        return torch.cat([by_w, by_a, torch.stack(variances)])
