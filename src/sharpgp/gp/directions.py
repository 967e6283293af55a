"""Lengthscales of directions: some have one of their own, the rest of many features share one.

With standardised inputs ``z`` [d], orthonormal columns ``U`` [d, r] and scales ``s`` [r + 1],

``D^2(z, z') = sum_k (w_k u_k'(z - z') / s_k)^2 + (w_rest / s_rest)^2 |(I - UU')(z - z')|^2``.

Columns of ``U`` are features, principal components of the rows that the GP learns from, or the
directions that a function's gradients have; with as many of them as features nothing is left to
share.  Which of them is learned with the GP's hyperparameters, see
:mod:`sharpgp.gp.direction_search`.
"""

from dataclasses import dataclass, field, replace
from typing import Annotated

import torch
from torch import Tensor

from sharpgp._stored import Array, agree, stored
from sharpgp.gp.ties import Ties, are_ties, of_each, per_feature

_TINY = 1e-12


@stored("Directions")
@dataclass(frozen=True, eq=False)
class Directions:
    """Which directions have lengthscales of their own: ``most`` at most, once they are learned.

    Attributes
    ----------
    most : int
    ties : tuple of int
        Features that count as one, such as those that encode one column of a table; () for none.
    axes : Tensor [d, r]
        Orthonormal columns ``U``; of no features before they are learned.
    of_axes : tuple of int [r]
        The number of each column's lengthscale, see :mod:`sharpgp.gp.ties`.
    scale : Tensor [r + 1]
        Deviations along the columns, and of all the rest.

    Examples
    --------
    >>> Z = torch.tensor([[1.0, 2, 0], [-1, 0, 1]], dtype=torch.float64)
    >>> found = Directions(1).learned(Z, torch.eye(3, dtype=torch.float64)[:, :1], (0,))
    >>> found.ties_of_coordinates, found.coordinates(Z).shape
    ((0, 1, 1, 1), torch.Size([2, 4]))
    """

    most: int
    ties: Ties = ()
    axes: Annotated[Tensor, Array("d r", empty=True)] = field(
        default_factory=lambda: torch.zeros(0, 0, dtype=torch.float64)
    )
    of_axes: Ties = ()
    scale: Annotated[Tensor, Array("m", positive=True)] = field(
        default_factory=lambda: torch.ones(1, dtype=torch.float64)
    )

    def _restored(self) -> None:
        r = self.axes.shape[1]
        agree("lengthscales of directions", are_ties(self.of_axes, r), True)
        agree("scales of directions", len(self.scale), r + 1)

    @property
    def are_learned(self) -> bool:
        """Whether the columns are known."""
        return len(self.axes) > 0

    @property
    def are_whole(self) -> bool:
        """Whether there are as many columns as features, so that there is no rest."""
        return self.are_learned and self.axes.shape[1] == len(self.axes)

    @property
    def n_lengthscales(self) -> int:
        """Number of lengthscales, that of the rest included."""
        own = len(set(self.of_axes)) if self.are_learned else self.most
        return own if self.are_whole else own + 1

    @property
    def ties_of_coordinates(self) -> Ties:
        """The number of the lengthscale of each of the :meth:`coordinates` [r + d], or [d]."""
        rest = 0 if self.are_whole else len(self.axes)
        return (*self.of_axes, *[self.n_lengthscales - 1] * rest)

    def asks_for_all(self, n_features: int) -> bool:
        """Whether there may be as many lengthscales as columns of a table have."""
        return self.most >= (len(set(self.ties)) or n_features)

    def forgotten(self) -> "Directions":
        """The same before they were learned."""
        return Directions(self.most, self.ties)

    def learned(self, Z: Tensor, axes: Tensor, of_axes: Ties) -> "Directions":
        """The same with columns [d, r], in units of their deviations at ``Z`` [N, d]."""
        own, rest = _split(Z, axes)
        squares = torch.cat([own, rest], 1).var(0, correction=0)
        r = axes.shape[1]
        of_own = per_feature(of_each(squares[:r], of_axes or None, "sum"), of_axes or None)
        scale = torch.cat([of_own, squares[r:].sum().reshape(1)]).sqrt()
        scale = torch.where(scale > _TINY, scale, torch.ones_like(scale))
        return replace(self, axes=axes, of_axes=of_axes, scale=scale)

    def parts(self, Z: Tensor) -> tuple[Tensor, Tensor]:
        """Coordinates [N, r] along the directions, and [N, d] of the rest, in their units."""
        own, rest = _split(Z, self.axes)
        return own / self.scale[:-1], rest / self.scale[-1]

    def coordinates(self, Z: Tensor) -> Tensor:
        """Both parts [..., r + d], whose lengthscales are :attr:`ties_of_coordinates`; or [..., d].

        The rest is left out where there is none.
        """
        own, rest = self.parts(Z)
        return own if self.are_whole else torch.cat([own, rest], -1)

    def relevance(self, inverse: Tensor) -> Tensor:
        """Inverse lengthscale [d] along each feature alone, from those of :meth:`coordinates`."""
        own, rest = inverse.split([self.axes.shape[1], len(inverse) - self.axes.shape[1]])
        squares = self.axes.square()
        found = squares @ (own / self.scale[:-1]).square()
        if len(rest):
            beyond = (1.0 - squares.sum(1)).clamp_min(0.0)
            found = found + beyond * (rest / self.scale[-1]).square()
        return found.sqrt()


def _split(Z: Tensor, axes: Tensor) -> tuple[Tensor, Tensor]:
    own = Z @ axes
    return own, Z - own @ axes.mT
