"""A full kernel plus an additive part: functions of one and two features, and a linear one."""

import math
from typing import Any

import torch
from torch import Tensor

from sharpgp._stored import Maybe, Several, agree, stored
from sharpgp.gp.covariance import Named, stationary_matrix
from sharpgp.gp.sizes import MOST_ADDITIVE
from sharpgp.gp.ties import per_feature

_ROOT = math.sqrt(5.0)
# exp(-100) is far below rounding, and products of such values stay clear of denormal numbers.
_LARGEST_EXPONENT = 100.0


@stored("Additive", kind=str, n_features=int, names=Several(str), ties=Maybe(Several(int)))
class Additive(Named):
    r"""A Matern-5/2 kernel of all features plus sums over single features and over pairs.

    ``k = s_0 k_full + s_1/d sum_j e_j + s_2/(d choose 2) sum_{i<j} e_i e_j + s_l/d sum_j x_j x_j'``
    with ``k_full`` a Matern-5/2 kernel with lengthscales ``l_j`` and ``e_j`` a Matern-5/2 kernel of
    feature ``j`` with a lengthscale ``a_j`` of its own.  The sum over pairs is
    ``(p_1^2 - p_2) / 2``, from the power sums ``p_m = sum_j e_j^m``, by Newton's identities.  A sum
    of functions of single features needs far fewer points than one function of them all; the full
    part keeps whatever is not of that form.

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
        d, other = self.n_features, X1 if X2 is None else X2
        full, single = (
            per_feature(part, self.ties)
            for part in theta[:, : self.n_inverse].split(self.n_lengthscales, -1)
        )
        whole, first, second, linear = theta[:, self.n_inverse : -1].unbind(-1)
        orders: Tensor = _AdditiveMatrix.apply(single, first, second, X1, other, X2 is None)
        return (
            stationary_matrix("matern52", full, whole, X1, X2)
            + orders
            + linear[:, None, None] / d * (X1 @ other.mT)
        )

    def diag(self, theta: Tensor, X: Tensor) -> Tensor:
        """See :meth:`Covariance.diag`."""
        d = self.n_features
        # One feature has no pairs.
        variances = theta[:, self.n_inverse : self.n_inverse + (3 if d > 1 else 2)]
        constant = variances.sum(-1, keepdim=True)
        return constant + theta[:, -2, None] / d * X.square().sum(-1)


class _AdditiveMatrix(torch.autograd.Function):
    """Orders one and two of an additive kernel, on pairs of points, feature by feature.

    A symmetric matrix is computed on the pairs above its diagonal only.  What grows with the number
    of features is kept only where a gradient will need it.
    """

    @staticmethod
    def forward(
        ctx: Any, a: Tensor, first: Tensor, second: Tensor, X1: Tensor, X2: Tensor, same: bool
    ) -> Tensor:
        d, needed = X1.shape[1], any(ctx.needs_input_grad)
        n_pairs = len(X1) * (len(X1) - 1) // 2 if same else len(X1) * len(X2)
        # New memory costs more than the arithmetic: every feature works in the same arrays.
        kept = a.new_empty(2, d if needed else 1, len(a), n_pairs)
        t, decay = a.new_empty(2, len(a), n_pairs)
        sums, squares = a.new_zeros(2, len(a), n_pairs)
        for j in range(d):
            e, slope = kept[:, j if needed else 0]
            torch.mul(_distances(X1[:, j], X2[:, j], same), -_ROOT * a[:, j, None], out=t)
            torch.exp(t.clamp_(min=-_LARGEST_EXPONENT), out=decay)
            torch.mul(t, t, out=slope).mul_(decay)
            torch.mul(t.neg_().add_(1.0), decay, out=e).add_(slope, alpha=1.0 / 3.0)
            slope.mul_(t)
            sums.add_(e)
            squares.addcmul_(e, e)
        pairs = squares.neg_().addcmul_(sums, sums).mul_(0.5 / _n_pairs(d))
        values = first[:, None] / d * sums + second[:, None] * pairs
        ctx.same = same
        ctx.save_for_backward(a, first, second, X1, X2, sums, pairs, kept)
        if not same:
            return values.reshape(-1, len(X1), len(X2))
        return _symmetric(values, first + second * (d > 1), len(X1))

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor | None, ...]:
        a, first, second, X1, X2, sums, pairs, kept = ctx.saved_tensors
        d, G = X1.shape[1], grads[0]
        if ctx.same:
            g = (G + G.mT).flatten(1)[:, _above_diagonal(len(X1), X1.device)]
            on_diagonal = G.diagonal(dim1=-2, dim2=-1).sum(-1)
        else:
            g, on_diagonal = G.flatten(1), torch.zeros_like(first)
        per_pair = second[:, None] / _n_pairs(d)
        by_sum, by_e = g * (per_pair * sums + first[:, None] / d), g * per_pair
        inputs = ctx.needs_input_grad[3] or ctx.needs_input_grad[4]
        grad_a = torch.empty_like(a)
        grad_X1, grad_X2 = (torch.zeros_like(X) if inputs else None for X in (X1, X2))
        for j in range(d):
            # e is a function of a |x - x'|: its slope in the logarithm of that serves both.
            e, slope = kept[:, j]
            by_log = torch.addcmul(by_sum, by_e, e, value=-1.0)
            grad_a[:, j] = torch.linalg.vecdot(by_log, slope) / (-3.0 * a[:, j])
            if grad_X1 is not None and grad_X2 is not None:
                rows, columns = _rows_and_columns(len(X1), len(X2), ctx.same, X1.device)
                apart = X1[rows, j] - X2[columns, j]
                by_x = torch.where(apart == 0.0, 0.0, (by_log * slope).sum(0) / (-3.0 * apart))
                grad_X1[:, j].index_add_(0, rows, by_x)
                grad_X2[:, j].index_add_(0, columns, -by_x)
        by_first = torch.linalg.vecdot(g, sums) / d + on_diagonal
        by_second = torch.linalg.vecdot(g, pairs) + on_diagonal * (d > 1)
        return grad_a, by_first, by_second, grad_X1, grad_X2, None


def _n_pairs(d: int) -> int:
    """Pairs of features, or 1 where there are none: a sum over none is 0 anyway."""
    return max(1, d * (d - 1) // 2)


def _distances(x1: Tensor, x2: Tensor, same: bool) -> Tensor:
    """Distances [P] between the points of every pair that is computed, along one feature."""
    if same:
        return torch.nn.functional.pdist(x1.contiguous().unsqueeze(-1), p=1.0)
    return (x1.unsqueeze(-1) - x2).abs().flatten()


def _above_diagonal(n: int, device: torch.device) -> Tensor:
    rows, columns = torch.triu_indices(n, n, 1, device=device)
    return rows * n + columns


def _rows_and_columns(n: int, m: int, same: bool, device: torch.device) -> tuple[Tensor, Tensor]:
    index = _above_diagonal(n, device) if same else torch.arange(n * m, device=device)
    return index // m, index % m


def _symmetric(values: Tensor, diagonal: Tensor, n: int) -> Tensor:
    """Matrices [K, N, N] from the pairs above their diagonals [K, P] and one value on them [K]."""
    K = values.new_zeros(len(values), n * n)
    K[:, _above_diagonal(n, values.device)] = values
    K = K.reshape(-1, n, n)
    K = K + K.mT
    K.diagonal(dim1=-2, dim2=-1).copy_(diagonal.unsqueeze(-1).expand(-1, n))
    return K
