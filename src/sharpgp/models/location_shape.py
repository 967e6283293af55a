"""The law of scores where it differs with the location, as that of counts that pile up at 0."""

import numpy as np
import torch
from torch import Tensor

from sharpgp._stored import Array, agree, stored
from sharpgp.models.model import ScoreShape
from sharpgp.models.shape import QuantileShape

# Levels of the quantiles that make a shape.
_LEVELS = (0.01, 0.025, 0.05, *np.linspace(0.1, 0.9, 9).tolist(), 0.95, 0.975, 0.99)
# Locations at which there is one, and the share of the points that each is learned from.
_KNOTS, _SHARE = 20, 0.1
# Points that it takes to judge whether shapes pay, levels that judge, and what shapes have to gain
# of the CRPS: a part of it, and standard errors.
_LEAST_TO_JUDGE, _JUDGED, _LEAST_GAIN, _ERRORS = 1000, 50, 0.01, 2.0


@stored("LocationShape", knots=Array("K"), tables=Array("K L"), typical=float)
class LocationShape(ScoreShape):
    r"""``z = g_m(b)``: scores ``z`` at a location ``m`` as increasing functions of normal ones.

    At each of some locations, the knots, ``g(Phi^-1(p))`` is the ``p``-quantile of the scores of
    the tenth of the points whose locations are nearest in rank; between knots, quantiles are
    linear in the location.  See :class:`~sharpgp.models.shape.QuantileShape`.

    Parameters
    ----------
    knots : Tensor [K]
        Increasing.
    tables : Tensor [K, L]
        Quantiles of scores.
    typical : float
        Typical slope of ``g``.

    Examples
    --------
    >>> location = torch.linspace(0, 1, 2000, dtype=torch.float64)
    >>> z = torch.special.ndtri((torch.arange(2000).double() * 0.618 + 0.1) % 1) * (1 + location)
    >>> shape = LocationShape.learned(location, z)
    >>> ends = torch.tensor([0.0, 1.0], dtype=torch.float64)
    >>> [round(float(value), 1) for value in shape.stretched(torch.ones(1, 1).double(), ends)[0]]
    [1.0, 1.9]
    """

    def __init__(self, knots: Tensor, tables: Tensor, typical: float) -> None:
        self.knots, self.tables, self.typical = knots, tables, typical

    def _restored(self) -> None:
        agree("levels", self.tables.shape[1], len(_LEVELS))
        agree("knots", len(self.knots) > 1 and bool((self.knots.diff() >= 0).all()), True)
        agree("quantiles in order", bool((self.tables.diff(dim=1) >= 0).all()), True)
        agree("a positive slope", 0.0 < self.typical < float("inf"), True)

    @classmethod
    def learned(cls, location: Tensor, z: Tensor) -> "LocationShape":
        """From the locations [n] and scores [n] of points that the model has not seen."""
        location, order = location.sort(stable=True)
        n, z = len(z), z[order]
        width = max(1, round(_SHARE * n))
        starts = torch.linspace(0, n - width, _KNOTS).round().long().tolist()
        levels = z.new_tensor(_LEVELS)
        knots = torch.stack([location[start : start + width].median() for start in starts])
        tables = torch.stack([torch.quantile(z[start : start + width], levels) for start in starts])
        return cls(knots, tables, QuantileShape.of(levels, tables).typical)

    def stretched(self, beta: Tensor, location: Tensor) -> Tensor:
        """See :meth:`ScoreShape.stretched`."""
        return self._curve.at(beta, self._tables(location))

    def unstretched(self, z: Tensor, location: Tensor) -> Tensor:
        """See :meth:`ScoreShape.unstretched`."""
        return self._curve.scores_of(self._tables(location), z)

    @property
    def _curve(self) -> QuantileShape:
        return QuantileShape(self.tables.new_tensor(_LEVELS), self.typical)

    def _tables(self, location: Tensor) -> Tensor:
        knots, tables = self.knots.to(location), self.tables.to(location)
        right = torch.searchsorted(knots, location.detach()).clamp(1, len(knots) - 1)
        left = right - 1
        apart = (knots[right] - knots[left]).clamp_min(torch.finfo(knots.dtype).tiny)
        share = ((location - knots[left]) / apart).clamp(0.0, 1.0).unsqueeze(-1)
        return torch.lerp(tables[left], tables[right], share)


def shape_that_pays(location: Tensor, spread: Tensor, y: Tensor) -> LocationShape | None:
    r"""Shapes by location, if these points say that a single one is worse; else None.

    Each half of the points is predicted by ``m + s g_m`` from the other half, and by ``m + s z``
    with ``z`` drawn from all its scores.  Shapes are taken if they lower the mean CRPS, in units of
    the spread, by 1 % at least, and by two standard errors.

    Parameters
    ----------
    location, spread, y : Tensor [n]
        Of points that the model has not seen.

    Examples
    --------
    >>> generator = torch.Generator().manual_seed(0)
    >>> noise = torch.randn(2000, dtype=torch.float64, generator=generator)
    >>> location, spread = torch.linspace(1, 9, 2000).double(), torch.ones(2000).double()
    >>> shape_that_pays(location, spread, location + noise) is None
    True
    >>> piled = location + torch.where(location < 5, noise.exp() - 1.6, noise)
    >>> shape_that_pays(location, spread, piled) is None
    False
    """
    n = len(y)
    if n < _LEAST_TO_JUDGE:
        return None
    z = (y - location) / spread
    levels = ((torch.arange(_JUDGED, dtype=y.dtype, device=y.device) + 0.5) / _JUDGED).unsqueeze(-1)
    half = torch.arange(n, device=y.device) % 2 == 0
    losses = y.new_empty(2, n)
    for rest, test in ((half, ~half), (~half, half)):
        shape = LocationShape.learned(location[rest], z[rest])
        one = torch.quantile(z[rest], levels[:, 0]).unsqueeze(-1)
        several = shape.stretched(torch.special.ndtri(levels), location[test])
        for k, guess in enumerate((one, several)):
            missed = z[test] - guess
            pinball = torch.maximum(levels * missed, (levels - 1.0) * missed)
            losses[k, test] = pinball.mean(0)
    gain = losses[0] - losses[1]
    enough = max(_LEAST_GAIN * float(losses[0].mean()), _ERRORS * float(gain.std()) / n**0.5)
    return LocationShape.learned(location, z) if float(gain.mean()) > enough else None
