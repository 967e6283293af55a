"""A full kernel plus an additive part: functions of one and two features, and a linear one."""

import math
from typing import Any

import torch
from torch import Tensor

from sharpgp._stored import Maybe, Several, agree, stored
from sharpgp.gp.covariance import Named
from sharpgp.gp.fixed_points import FixedPoints
from sharpgp.gp.sizes import MOST_ADDITIVE
from sharpgp.gp.stationary import LARGEST_EXPONENT, StationaryAt, stationary_matrix
from sharpgp.gp.ties import Ties, of_each, per_feature

_ROOT = math.sqrt(5.0)
# Entries (features times pairs) per batch, few enough to stay in the cache.
_BLOCK = 2**15


@stored("Additive", kind=str, n_features=int, names=Several(str), ties=Maybe(Several(int)))
class Additive(Named):
    r"""A Matern-5/2 kernel of all features plus sums over single features and over pairs.

    ``k = s_0 k_full + s_1/d sum_j e_j + s_2/(d choose 2) sum_{i<j} e_i e_j + s_l/d sum_j x_j x_j'``
    with ``k_full`` a Matern-5/2 kernel with lengthscales ``l_j`` and ``e_j`` a Matern-5/2 kernel of
    feature ``j`` with a lengthscale ``a_j`` of its own.  The sum over pairs is
    ``(p_1^2 - p_2) / 2``, from the power sums ``p_m = sum_j e_j^m``, by Newton's identities.  A sum
    of functions of single features needs far fewer points than one function of them all; the full
    part covers everything else.

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

    most_trained = MOST_ADDITIVE

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
        """See :meth:`Covariance.n_inverse`."""
        return 2 * self.n_lengthscales

    def _restored(self) -> None:
        agree("kernel", self.kind, "additive")
        super()._restored()

    def matrix(self, theta: Tensor, X1: Tensor, X2: Tensor | None = None) -> Tensor:
        """See :meth:`Covariance.matrix`."""
        with torch.no_grad():
            pairs = Pairs(X1, X2)
        other = X1 if X2 is None else X2
        full, single = (
            per_feature(part, self.ties)
            for part in theta[:, : self.n_inverse].split(self.n_lengthscales, -1)
        )
        whole, first, second, linear = theta[:, self.n_inverse : -1].unbind(-1)
        orders: Tensor = _AdditiveMatrix.apply(single, first, second, X1, other, pairs)
        products = X1 @ other.mT
        return (
            stationary_matrix("matern52", full, whole, X1, X2)
            + orders
            + linear[:, None, None] / self.n_features * products
        )

    def at(self, X: Tensor) -> FixedPoints:
        """See :meth:`Covariance.at`: distances along each feature are computed once."""
        return _AdditiveAt(X, self.ties)

    def diag(self, theta: Tensor, X: Tensor) -> Tensor:
        """See :meth:`Covariance.diag`."""
        d = self.n_features
        # One feature has no pairs.
        variances = theta[:, self.n_inverse : self.n_inverse + (3 if d > 1 else 2)]
        constant = variances.sum(-1, keepdim=True)
        return constant + theta[:, -2, None] / d * X.square().sum(-1)


class Pairs:
    """Pairs of points, and how far apart they are along each feature.

    For a set of points with itself, only the pairs above the diagonal.

    Parameters
    ----------
    X1 : Tensor [N, d]
    X2 : Tensor [M, d] or None
        None: the same points.

    Examples
    --------
    >>> Pairs(torch.tensor([[0.0], [1.0], [3.0]]), None).distances.tolist()
    [[1.0, 3.0, 2.0]]
    """

    def __init__(self, X1: Tensor, X2: Tensor | None) -> None:
        self.same, self.shape = X2 is None, (len(X1), len(X1 if X2 is None else X2))
        n, m = self.shape
        if X2 is None:
            self.rows, self.columns = torch.triu_indices(n, n, 1, device=X1.device)
            columns = X1.mT.contiguous().unsqueeze(-1)
            self.distances = torch.stack(
                [torch.nn.functional.pdist(column, p=1.0) for column in columns]
            )
        else:
            index = torch.arange(n * m, device=X1.device)
            self.rows, self.columns = index // m, index % m
            self.distances = (X1.mT.unsqueeze(-1) - X2.mT.unsqueeze(-2)).abs().flatten(1)

    def matrices(self, values: Tensor, diagonal: Tensor) -> Tensor:
        """Matrices [K, N, M] of values [K, P], with one value on each diagonal [K], if any."""
        n, m = self.shape
        if not self.same:
            return values.reshape(-1, n, m)
        out = values.new_empty(len(values), n * n)
        out[:, self.rows * n + self.columns] = values
        out[:, self.columns * n + self.rows] = values
        out = out.reshape(-1, n, n)
        out.diagonal(dim1=-2, dim2=-1).copy_(diagonal.unsqueeze(-1).expand(-1, n))
        return out

    def gradients(self, G: Tensor) -> tuple[Tensor, Tensor]:
        """Gradients of values [K, P] and diagonals [K], from those of matrices [K, N, M]."""
        if not self.same:
            return G.flatten(1), G.new_zeros(len(G))
        n, flat = self.shape[0], G.flatten(1)
        g = flat[:, self.rows * n + self.columns] + flat[:, self.columns * n + self.rows]
        return g, G.diagonal(dim1=-2, dim2=-1).sum(-1)


class _AdditiveMatrix(torch.autograd.Function):
    """Orders one and two of an additive kernel, on pairs of points, all features at once.

    Whatever grows with the number of features is kept only if a gradient needs it.
    """

    @staticmethod
    def forward(
        ctx: Any, a: Tensor, first: Tensor, second: Tensor, X1: Tensor, X2: Tensor, pairs: Pairs
    ) -> Tensor:
        (levels, d), n_pairs = a.shape, pairs.distances.shape[1]
        needed = any(ctx.needs_input_grad)
        size = min(n_pairs, max(1, _BLOCK // (levels * d)))
        new = pairs.distances.new_empty
        kept = new(2, levels, d, n_pairs if needed else 0)
        sums, squares = new(2, levels, n_pairs)
        blocks = new(3, levels * d * size)
        inverse = (-_ROOT * a).unsqueeze(-1)
        for start in range(0, n_pairs, size or 1):
            block = slice(start, min(start + size, n_pairs))
            shape = levels, d, block.stop - block.start
            u, decay, slope = (one[: math.prod(shape)].view(shape) for one in blocks)
            torch.mul(pairs.distances[:, block], inverse, out=u).clamp_(min=-LARGEST_EXPONENT)
            torch.exp(u, out=decay)
            torch.mul(u, u, out=slope).mul_(decay)
            u.neg_().add_(1.0)
            e = decay.mul_(u).add_(slope, alpha=1.0 / 3.0)
            torch.sum(e, 1, out=sums[:, block])
            if needed:
                torch.mul(slope, u, out=kept[0, ..., block])
                torch.mul(kept[0, ..., block], e, out=kept[1, ..., block])
            torch.sum(e.mul_(e), 1, out=squares[:, block])
        products = squares.neg_().addcmul_(sums, sums).mul_(0.5 / _n_pairs(d))
        values = first[:, None] / d * sums + second[:, None] * products
        ctx.pairs = pairs
        ctx.save_for_backward(a, first, second, X1, X2, sums, products, kept)
        return pairs.matrices(values, first + second * (d > 1))

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor | None, ...]:
        a, first, second, X1, X2, sums, products, kept = ctx.saved_tensors
        d, pairs = X1.shape[1], ctx.pairs
        g, on_diagonal = pairs.gradients(grads[0])
        by_product = second[:, None] / _n_pairs(d) * g
        by_sum = by_product * sums + first[:, None] / d * g
        # e is a function of a |x - x'|: its slope in the logarithm of that serves both.
        slope, e_slope = kept
        by_log = slope @ by_sum.unsqueeze(-1) - e_slope @ by_product.unsqueeze(-1)
        grad_a = by_log.squeeze(-1) / (-3.0 * a)
        grad_X1 = grad_X2 = None
        if ctx.needs_input_grad[3] or ctx.needs_input_grad[4]:
            apart = (X1[pairs.rows] - X2[pairs.columns]).mT
            by_log = (slope * by_sum.unsqueeze(1) - e_slope * by_product.unsqueeze(1)).sum(0)
            by_x = torch.where(apart == 0.0, 0.0, by_log / (-3.0 * apart)).mT
            grad_X1 = torch.zeros_like(X1).index_add_(0, pairs.rows, by_x)
            grad_X2 = torch.zeros_like(X2).index_add_(0, pairs.columns, -by_x)
        by_first = torch.linalg.vecdot(g, sums) / d + on_diagonal
        by_second = torch.linalg.vecdot(g, products) + on_diagonal * (d > 1)
        return grad_a, by_first, by_second, grad_X1, grad_X2, None


class _AdditiveAt(FixedPoints):
    """The kernel on fixed points: feature by feature, on the pairs below the diagonal."""

    def __init__(self, X: Tensor, ties: Ties | None) -> None:
        n, d = X.shape
        self._ties, self._n_lengthscales = ties, d if ties is None else len(set(ties))
        self._full = StationaryAt("matern52", X)
        self._products = X @ X.mT / d
        rows, columns = torch.tril_indices(n, n, -1, device=X.device)
        self._below = rows * n + columns
        self._apart = torch.stack([(x[rows] - x[columns]).abs() for x in X.mT])
        self._e, self._slope = torch.empty_like(self._apart), torch.empty_like(self._apart)
        self._sums, self._second, self._u, self._decay = X.new_empty(4, len(rows))
        self._K = X.new_empty(n, n)

    def matrix(self, theta: Tensor) -> Tensor:
        """See :meth:`FixedPoints.matrix`."""
        m = self._n_lengthscales
        full, self._a = (per_feature(part, self._ties) for part in theta[: 2 * m].split(m))
        whole, self._first, second, linear = theta[2 * m : -1]
        d, self._weight = len(self._a), second / _n_pairs(len(self._a))
        self._sum_up()
        values = torch.mul(self._sums, self._first / d, out=self._u)
        values.add_(self._second.mul(self._weight))
        K = self._K.zero_()
        K.view(-1).index_copy_(0, self._below, values)
        K.add_(K.mT.clone())  # the upper triangle was 0
        K.diagonal().fill_(self._first + second * (d > 1))
        return K.add_(self._full.of_parts(full, whole)).add_(linear * self._products)

    def _sum_up(self) -> None:
        """``e_j`` and its slope in ``log a_j`` for every feature, and sums of orders one, two."""
        sums, squares, u, decay = self._sums.zero_(), self._second.zero_(), self._u, self._decay
        for apart, e, slope, inverse in zip(
            self._apart, self._e, self._slope, -_ROOT * self._a, strict=True
        ):
            torch.mul(apart, inverse, out=u).clamp_(min=-LARGEST_EXPONENT)
            torch.exp(u, out=decay)
            torch.mul(u, u, out=slope).mul_(decay)
            u.neg_().add_(1.0)
            torch.mul(decay, u, out=e).add_(slope, alpha=1.0 / 3.0)
            slope.mul_(u)
            sums.add_(e)
            squares.addcmul_(e, e)
        squares.neg_().addcmul_(sums, sums).mul_(0.5)

    def contracted(self, G: Tensor) -> Tensor:
        """See :meth:`FixedPoints.contracted`."""
        d, trace = len(self._a), G.diagonal().sum()
        g = G.reshape(-1).index_select(0, self._below).mul_(2.0)
        by_product = g * self._weight
        by_sum = torch.addcmul(g * (self._first / d), by_product, self._sums, out=self._u)
        by_a = torch.stack(
            [
                slope @ torch.addcmul(by_sum, e, by_product, value=-1.0, out=self._decay)
                for e, slope in zip(self._e, self._slope, strict=True)
            ]
        ) / (-3.0 * self._a)
        by_w, by_whole = self._full.contracted_parts(G)
        return torch.cat(
            [
                *(of_each(part, self._ties, "sum") for part in (by_w, by_a)),
                torch.stack(
                    [
                        by_whole,
                        g @ self._sums / d + trace,
                        g @ self._second / _n_pairs(d) + trace * (d > 1),
                        (G * self._products).sum(),
                        trace.new_zeros(()),
                    ]
                ),
            ]
        )


def _n_pairs(d: int) -> int:
    """Pairs of features, or 1 where there are none: a sum over none is 0 anyway."""
    return max(1, d * (d - 1) // 2)
