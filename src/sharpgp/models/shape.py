"""Distributions of any shape, given by tables of quantiles, as maps of normal scores."""

import torch
from torch import Tensor

from sharpgp.models.model import Model

# Least slope between neighbours, in units of the typical slope: ties can be told apart.
_LEAST_INSIDE = 1e-6
# Least slope of a tail: a model that is sure of one value does not send scores to infinity.
_LEAST_OUTSIDE = 1e-2


class QuantileShape(Model):
    r"""``Q = g_x(beta)``: ``g_x`` is linear between ``(Phi^-1(p_j), q_j(x))``, and beyond them.

    The inputs of this model are tables [T, L] of sorted quantiles ``q_j(x)``.  A score is
    ``z = g_x^-1(y)``; the model that gave the quantiles is calibrated if scores of new points are
    standard normal.  Tails have the slope of the outermost cell, but at least the mean slope of
    the row.

    Parameters
    ----------
    levels : Tensor [L]
        ``p_j``, strictly increasing.
    typical : float
        Typical slope of ``g``, positive: slopes are at least a millionth of it, those of tails a
        hundredth.

    Examples
    --------
    >>> p = torch.tensor([0.1, 0.5, 0.9], dtype=torch.float64)
    >>> q = torch.tensor([[-1.0, 0.0, 4.0]], dtype=torch.float64)
    >>> shape = QuantileShape(p, 1.0)
    >>> z = torch.special.ndtri(p)
    >>> shape.at(z.unsqueeze(-1), q)[:, 0].tolist()
    [-1.0, 0.0, 4.0]
    >>> bool((shape.scores_of(q, q[:, 2]) - z[2]).abs() < 1e-12)
    True
    """

    def __init__(self, levels: Tensor, typical: float) -> None:
        self.levels, self.typical = levels, typical
        self.z = torch.special.ndtri(levels)

    @classmethod
    def of(cls, levels: Tensor, table: Tensor) -> "QuantileShape":
        """With the mean slope of the rows of a table [T, L] as the typical one.

        Only rows that are (nearly) sure of one value depend on it.
        """
        z = torch.special.ndtri(levels)
        slope = float((table[:, -1] - table[:, 0]).mean() / (z[-1] - z[0]))
        return cls(levels, slope or float(table.abs().max()) or 1.0)

    @property
    def n_features(self) -> int:
        """Number of levels ``L``."""
        return len(self.levels)

    @property
    def device(self) -> torch.device:
        """Where tensors live."""
        return self.levels.device

    def location(self, X: Tensor) -> Tensor:
        """See :meth:`Model.location`: the median of the model."""
        return self.at(X.new_zeros(1, 1), X)[0]

    def spread(self, X: Tensor) -> Tensor:
        """See :meth:`Model.spread`: half the distance of the quantiles at -1 and 1."""
        low, high = self.at(X.new_tensor([[-1.0], [1.0]]), X)
        return (high - low) / 2.0

    def at(self, beta: Tensor, X: Tensor) -> Tensor:
        """See :meth:`Model.at`."""
        nodes, low, high = self._curve(X)
        beta = beta.expand(-1, len(X))
        cell = self._cell(torch.searchsorted(self.z, beta.contiguous()))
        left, right = nodes.gather(1, cell.T).T, nodes.gather(1, cell.T + 1).T
        share = (beta - self.z[cell]) / (self.z[cell + 1] - self.z[cell])
        inside = torch.lerp(left, right, share.clamp(0.0, 1.0))
        below, above = (self.z[0] - beta).clamp(min=0.0), (beta - self.z[-1]).clamp(min=0.0)
        return inside - below * low + above * high

    def scores_of(self, X: Tensor, y: Tensor) -> Tensor:
        """See :meth:`Model.scores_of`."""
        nodes, low, high = self._curve(X)
        cell = self._cell(torch.searchsorted(nodes, y.unsqueeze(1).contiguous()))
        left, right = nodes.gather(1, cell)[:, 0], nodes.gather(1, cell + 1)[:, 0]
        z_left, z_right = self.z[cell[:, 0]], self.z[cell[:, 0] + 1]
        inside = torch.lerp(z_left, z_right, ((y - left) / (right - left)).clamp(0.0, 1.0))
        below, above = (nodes[:, 0] - y).clamp(min=0.0), (y - nodes[:, -1]).clamp(min=0.0)
        return inside - below / low + above / high

    def extended(self, X: Tensor, y: Tensor) -> "QuantileShape":
        """The same: what gave the quantiles cannot be conditioned."""
        return self

    updated = extended

    def _cell(self, found: Tensor) -> Tensor:
        return (found - 1).clamp(0, len(self.z) - 2)

    def _curve(self, table: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Strictly increasing nodes [T, L], and slopes [T] of the lower and the upper tail."""
        dz = self.z.diff()
        ramp = torch.cat([dz.new_zeros(1), dz.cumsum(0)]) * (_LEAST_INSIDE * self.typical)
        # A large offset needs steps that it does not swallow.
        size = table.abs().amax(1, keepdim=True) / self.typical
        ramp = ramp * (1.0 + size * (4.0 * torch.finfo(table.dtype).eps / _LEAST_INSIDE / dz.min()))
        steps = table - ramp
        down = steps.flip(1).cummin(1).values.flip(1)
        # Halfway between what the left and the right allow: a tie has its value in the middle.
        nodes = (steps.cummax(1).values + down) / 2.0 + ramp
        mean = (nodes[:, -1] - nodes[:, 0]) / (self.z[-1] - self.z[0])
        least = mean.clamp(min=_LEAST_OUTSIDE * self.typical)
        outer = (nodes[:, [1, -1]] - nodes[:, [0, -2]]) / dz[[0, -1]]
        low, high = torch.maximum(outer, least.unsqueeze(1)).T
        return nodes, low, high
