"""Affine maps between the user's units and the standardised ones that the GP works in."""

from dataclasses import dataclass, replace

import torch
from torch import Tensor

from sharpgp._stored import Array, agree, stored
from sharpgp.gp.ties import Ties, of_each, per_feature
from sharpgp.rows import Inputs, Rows

# Rounding gives a constant column a deviation of a few ulp, not exactly zero.
_ROUNDING = 4 * torch.finfo(torch.float64).eps
_TINY = torch.finfo(torch.float64).tiny
#: Largest standardised value.
FARTHEST = 1e100


@stored("Affine")
@dataclass(frozen=True)
class Affine:
    """``standardised = (value - shift) / scale``, columnwise.

    Examples
    --------
    >>> units = Affine.standardising(torch.tensor([1.0, 3.0], dtype=torch.float64))
    >>> units.forward(torch.tensor([1.0, 2.0], dtype=torch.float64)).tolist()
    [-1.0, 0.0]
    """

    shift: Tensor
    scale: Tensor

    @classmethod
    def standardising(cls, values: Tensor, ties: Ties | None = None) -> "Affine":
        """Zero mean and unit standard deviation over the first dimension.

        A constant column keeps its scale.  Means and deviations are computed on values divided
        by their largest magnitude, so that 1e150 does not overflow when squared.

        Columns that share a lengthscale (``ties``) share a scale, too, so that their distances
        keep their proportions: their variances add up to 1.

        Examples
        --------
        >>> values = torch.tensor([[1.0, 0, 0], [0, 1, 0], [0, 1, 0], [0, 0, 1]])
        >>> len(Affine.standardising(values.double(), (0, 0, 0)).scale.unique())
        1
        """
        mean, deviation, magnitude = cls._moments(values)
        varies = deviation > _ROUNDING
        scale = torch.where(varies, deviation * magnitude, torch.ones_like(deviation))
        if ties is not None:
            # In units of the largest, whose square does not overflow.
            largest = per_feature(of_each(scale * varies, ties, "amax"), ties).clamp_min(_TINY)
            total = of_each((scale / largest * varies).square(), ties, "sum").sqrt()
            common = per_feature(total, ties) * largest
            scale = torch.where(common > _TINY, common, scale)
        return cls(mean * magnitude, scale)

    @classmethod
    def is_constant(cls, values: Tensor) -> Tensor:
        """Whether a column varies by no more than rounding."""
        return cls._moments(values)[1] <= _ROUNDING

    @staticmethod
    def _moments(values: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Mean and deviation in units of the largest magnitude, and that magnitude."""
        magnitude = values.abs().amax(0)
        magnitude = torch.where(magnitude > 0, magnitude, torch.ones_like(magnitude))
        unit = values / magnitude
        mean = unit.mean(0)
        return mean, (unit - mean).square().mean(0).sqrt(), magnitude

    @classmethod
    def identity(cls, like: Tensor) -> "Affine":
        """The map that changes nothing, for values shaped like one row of ``like``."""
        return cls(torch.zeros_like(like[0]), torch.ones_like(like[0]))

    def forward(self, values: Tensor) -> Tensor:
        """User's units to standardised, at most :data:`FARTHEST` units away.

        Larger values would change nothing, but their squares would overflow.
        """
        return ((values - self.shift) / self.scale).clamp(-FARTHEST, FARTHEST)

    def back(self, values: Tensor) -> Tensor:
        """Standardised to user's units."""
        return values * self.scale + self.shift

    def rows_forward(self, rows: Inputs, y_units: "Affine") -> Rows:
        """Rows in standardised units; their noise in those of the target's variance.

        Examples
        --------
        >>> X, noise = torch.zeros(2, 1).double(), torch.tensor([4.0, 8.0]).double()
        >>> units = Affine(torch.tensor(1.0).double(), torch.tensor(2.0).double())
        >>> Affine.identity(X).rows_forward(Rows(X, noise), units).noise.tolist()
        [1.0, 2.0]
        """
        rows = Rows.of(rows)
        noise = None if rows.noise is None else rows.noise / y_units.scale.square()
        return replace(rows, X=self.forward(rows.X), noise=noise)

    def rows_back(self, rows: Rows, y_units: "Affine") -> Rows:
        """Rows in the user's units."""
        noise = None if rows.noise is None else rows.noise * y_units.scale.square()
        return replace(rows, X=self.back(rows.X), noise=noise)

    def _restored(self) -> None:
        agree("units", self.scale.shape, self.shift.shape)
        for values in (self.shift, self.scale):
            Array("d" if values.dim() else "", positive=values is self.scale).check(values, {})

    def to(self, device: torch.device | str) -> "Affine":
        """The same map on another device."""
        return Affine(self.shift.to(device), self.scale.to(device))
