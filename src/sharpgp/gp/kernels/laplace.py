"""A rough kernel of distances that are summed over features: a product of functions of one each."""

import torch
from torch import Tensor

from sharpgp._stored import agree, stored
from sharpgp.gp.kernels.covariance import ConstantVariance, without_names
from sharpgp.gp.kernels.fixed_points import FixedPoints, by_covariance
from sharpgp.gp.kernels.stationary import LARGEST_EXPONENT, SIGNAL
from sharpgp.gp.ties import Ties, of_each, per_feature


@stored("Laplace", earlier=without_names)
class Laplace(ConstantVariance):
    r"""``k = s exp(-sum_j |x_j - x_j'| / l_j)``, a product of kernels of single features.

    As rough as a Matern-1/2 kernel, but along the axes: its functions step and bend where single
    features do.  ``theta = (1/l_1, ..., 1/l_d, signal variance, noise variance)``.

    Examples
    --------
    >>> kernel = Laplace("laplace", 2)
    >>> theta = torch.tensor([[2.0, 1.0, 3.0, 0.1]], dtype=torch.float64)
    >>> X = torch.tensor([[0.0, 0.0], [0.25, 0.5]], dtype=torch.float64)
    >>> [round(v, 4) for v in kernel.matrix(theta, X)[0, 0].tolist()]
    [3.0, 1.1036]
    """

    def _restored(self) -> None:
        agree("kernel", self.kind, "laplace")
        super()._restored()

    def matrix(self, theta: Tensor, X1: Tensor, X2: Tensor | None = None) -> Tensor:
        return self.blocks(theta, X1[None], None if X2 is None else X2[None])[:, 0]

    def blocks(self, theta: Tensor, X1: Tensor, X2: Tensor | None = None) -> Tensor:
        w = per_feature(theta[:, :SIGNAL], self.ties)[:, None, None, :]
        Z1, Z2 = w * X1, w * (X1 if X2 is None else X2)
        shape = Z1.shape[:2]
        far = torch.cdist(Z1.flatten(0, 1), Z2.flatten(0, 1), p=1.0).unflatten(0, shape)
        return theta[:, SIGNAL, None, None, None] * far.clamp(max=LARGEST_EXPONENT).neg_().exp_()

    def fix_points(self, X: Tensor) -> FixedPoints:
        """Distances along each feature are computed once."""
        return _LaplaceAt(X, self.ties)


class _LaplaceAt(FixedPoints):
    """The kernel on fixed points, by the pairs above the diagonal."""

    def __init__(self, X: Tensor, ties: Ties | None) -> None:
        n = len(X)
        rows, columns = torch.triu_indices(n, n, 1, device=X.device)
        self._above, self._ties = rows * n + columns, ties
        self._far = torch.stack(
            [(x[:, None] - x).abs_().view(-1).index_select(0, self._above) for x in X.T]
        )
        self._k, self._g = X.new_empty(2, len(rows))

    def matrix(self, theta: Tensor, out: Tensor) -> None:
        out.view(-1).index_copy_(0, self._above, self._at(theta))
        out.diagonal().fill_(self._s)

    def add_to(self, theta: Tensor, out: Tensor) -> None:
        out.view(-1).index_add_(0, self._above, self._at(theta))
        out.diagonal().add_(self._s)

    def _at(self, theta: Tensor) -> Tensor:
        """Covariances of the pairs."""
        self._s = theta[SIGNAL]
        k = torch.mv(self._far.T, per_feature(theta[:SIGNAL], self._ties), out=self._k)
        return k.clamp_(max=LARGEST_EXPONENT).neg_().exp_().mul_(self._s)

    def contracted_alone(self, inverse: Tensor, alpha: Tensor) -> tuple[Tensor, Tensor]:
        g = by_covariance(inverse, alpha).view(-1)
        products = torch.index_select(g, 0, self._above, out=self._g).mul_(self._k).mul_(2.0)
        by_w = of_each(-(self._far @ products), self._ties, "sum")
        by_s = products.sum() / self._s + 0.5 * (alpha.square() - inverse.diagonal()).sum()
        return torch.cat([by_w, by_s.reshape(1), by_w.new_zeros(1)]), by_s * self._s

    def contracted(self, inverse: Tensor, alpha: Tensor, total: Tensor) -> Tensor:
        return self.contracted_alone(inverse, alpha)[0]
