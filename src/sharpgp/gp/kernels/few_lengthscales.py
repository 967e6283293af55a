"""A kernel of directions instead of features: few of many, or turned ones."""

from collections.abc import Callable
from functools import cached_property
from typing import Any

import torch
from torch import Tensor

from sharpgp._forwarded import forwarded
from sharpgp._stored import agree, stored
from sharpgp.gp.directions import Directions
from sharpgp.gp.kernels.covariance import Named, without_names
from sharpgp.gp.kernels.fixed_points import FixedPoints
from sharpgp.gp.kernels.stationary import STATIONARY, StationaryAt
from sharpgp.gp.kernels.sums import of_names
from sharpgp.gp.priors import LengthscalePrior
from sharpgp.gp.scaling import Affine
from sharpgp.gp.ties import as_ties


@stored("FewLengthscales", directions=Directions, earlier=without_names)
class FewLengthscales(Named):
    """A kernel in which some directions have a lengthscale each, and the rest share one.

    ``theta = (1/l_1, ..., 1/l_q, 1/l_rest, signal variance, noise variance)`` of a stationary one,
    with distances as in :mod:`sharpgp.gp.directions`.  There is no rest where directions are as
    many as features.  A Laplace kernel sums distances over the directions.

    Examples
    --------
    >>> Z = torch.tensor([[1.0, 2, 0], [-1, 0, 1]], dtype=torch.float64)
    >>> axes = torch.eye(3, dtype=torch.float64)[:, :1]
    >>> kernel = FewLengthscales("rbf", 3, Directions(1).learned(Z, axes, (0,)))
    >>> kernel.names[:2]
    ('inverse_direction_lengthscale_0', 'inverse_shared_lengthscale')
    >>> theta = torch.tensor([[1.0, 0, 1, 0.1]], dtype=torch.float64)
    >>> round(kernel.matrix(theta, Z)[0, 0, 1].item(), 4)  # exp(-2): two deviations apart
    0.1353
    """

    directions: Directions

    def __init__(self, kind: str, n_features: int, directions: Directions) -> None:
        vars(self)["directions"] = directions
        super().__init__(kind, n_features)

    @cached_property
    def names(self) -> tuple[str, ...]:  # type: ignore[override]
        """See :class:`Covariance`."""
        last = None if self.directions.are_whole else self.n_lengthscales - 1
        shared = {f"inverse_lengthscale_{last}": "inverse_shared_lengthscale"}
        names = (shared.get(name, name) for name in self._inner.names)
        own = "inverse_direction_lengthscale"
        return tuple(name.replace("inverse_lengthscale", own) for name in names)

    def _restored(self) -> None:
        agree("kernel", turns(self.kind), True)
        agree("features of directions", len(self.directions.axes), self.n_features)

    sharing = forwarded("directions")
    n_lengthscales = forwarded("directions.n_lengthscales")
    n_inverse = forwarded("_inner.n_inverse")
    of_all_features = forwarded("_inner.of_all_features")

    def units(self, X: Tensor) -> Affine:
        return Affine.standardising(X, self.directions.ties or None)

    def penalty(self, prior: LengthscalePrior | None, Z: Tensor) -> Callable[[Tensor], Any]:
        return self._inner.penalty(prior, self.directions.coordinates(Z))

    def matrix(self, theta: Tensor, X1: Tensor, X2: Tensor | None = None) -> Tensor:
        return self._inner.matrix(theta, *self._coordinates(X1, X2))

    def blocks(self, theta: Tensor, X1: Tensor, X2: Tensor | None = None) -> Tensor:
        return self._inner.blocks(theta, *self._coordinates(X1, X2))

    def diag(self, theta: Tensor, X: Tensor) -> Tensor:
        return self._inner.diag(theta, X)

    def relevance(self, theta: Tensor) -> Tensor:
        return self.directions.relevance(self._inner.relevance(theta))

    def scaled(self, theta: Tensor, Z: Tensor) -> Tensor:
        return self._inner.scaled(theta, self.directions.coordinates(Z))

    def fix_points(self, X: Tensor) -> FixedPoints:
        """Distances in the directions that share a lengthscale are computed once."""
        if self.directions.are_whole or self.kind not in STATIONARY:
            return self._inner.fix_points(self.directions.coordinates(X))
        own, rest = self.directions.parts(X)
        return StationaryAt(
            self.kind, own, self.directions.of_axes or None, squared_distances(rest)
        )

    @cached_property
    def _inner(self) -> Named:
        """The same kernel of the coordinates."""
        ties = self.directions.ties_of_coordinates
        return of_names(self.kind, len(ties), as_ties(ties))

    def _coordinates(self, X1: Tensor, X2: Tensor | None) -> tuple[Tensor, Tensor | None]:
        of = self.directions.coordinates
        return of(X1), None if X2 is None else of(X2)


def turns(kind: str) -> bool:
    """Whether a kernel, or a sum, is one of distances alone, which have any axes.

    Examples
    --------
    >>> turns("rbf"), turns("laplace+matern32"), turns("additive")
    (True, True, False)
    """
    return all(name in (*STATIONARY, "laplace") for name in kind.split("+"))


def squared_distances(X: Tensor) -> Tensor:
    """``|x - x'|^2`` [N, N] between points [N, d].

    Examples
    --------
    >>> squared_distances(torch.tensor([[0.0, 0.0], [3.0, 4.0]])).tolist()
    [[0.0, 25.0], [25.0, 0.0]]
    """
    norms = X.square().sum(1)
    out = torch.addmm(norms.unsqueeze(1) + norms, X, X.mT, alpha=-2.0).clamp_(min=0.0)
    out.diagonal().zero_()
    return out
