"""The law of a value that is rounded: counts, grades, anything on multiples of a step."""

import math
from collections.abc import Callable, Iterator

import torch
from torch import Tensor

from sharpgp._quantile_table import DistributionTable

# Multiples of the step are enumerated between the quantiles at the first level and at 1 minus it,
# but at most this many steps beyond those at the second. The end ones get the remaining
# probability.
_LEAST, _SMALL_TAIL, _MOST = 1e-9, 1e-6, 5000
# Entries of a block of probabilities.
_BLOCK = 2**21
# Tolerance for multiples of the step, as a share of it.
_SLACK = 1e-9
# Smaller probabilities come from the density: a difference of distribution functions has no correct
# digits.
_SMALL = 1e-9


class RoundedTable(DistributionTable):
    """The law of ``Y`` rounded to the nearest multiple of ``step``, for ``Y`` of another law."""

    def __init__(self, law: DistributionTable, step: float) -> None:
        self._law, self._step = law, step
        levels = law.mean().new_tensor([[_LEAST, _SMALL_TAIL, 1 - _SMALL_TAIL, 1 - _LEAST]])
        ends = self._nearest(law.quantile(levels)) / step
        low, lower, upper, high = (ends[:, j : j + 1] for j in range(4))
        # Steps too fine to be enumerated, or to matter.
        self._fine = upper - lower > _MOST
        self._low = torch.maximum(low, lower - _MOST)
        high = torch.minimum(high, upper + _MOST)
        size = torch.where(self._fine, 0.0, high - self._low)
        self._size = int(size.max()) + 1 if len(size) else 1

    def quantiles(self) -> Tensor:
        return self._nearest(self._law.quantiles())

    def quantile(self, p: Tensor) -> Tensor:
        """The smallest value whose probability up to it is ``p``."""
        return self._nearest(self._law.quantile(p))

    def interval_end(self, p: Tensor, *, up: bool) -> Tensor:
        return self._nearest(self._law.interval_end(p, up=up))

    def mean(self) -> Tensor:
        return torch.where(self._fine, self._law.mean(), self._expected(lambda values: values))

    def std(self) -> Tensor:
        mean = self.mean()
        found = self._expected(lambda values: (values - mean).square()).sqrt()
        return torch.where(self._fine, self._law.std(), found)

    def cdf(self, y: Tensor) -> Tensor:
        """It jumps at every multiple of the step."""
        return self._law.cdf(((y / self._step + _SLACK).floor() + 0.5) * self._step)

    def log_density(self, y: Tensor) -> Tensor:
        """The log probability of ``y``, if it is a multiple."""
        k = (y / self._step).round()
        mass = self._law.cdf((k + 0.5) * self._step) - self._law.cdf((k - 0.5) * self._step)
        density = self._law.log_density(k * self._step) + math.log(self._step)
        found = torch.where(mass > _SMALL, mass.clamp_min(_SMALL).log(), density)
        multiple = (y / self._step - k).abs() <= _SLACK * k.abs().clamp_min(1.0)
        return torch.where(multiple, found, -torch.inf)

    def crps(self, y: Tensor) -> Tensor:
        """Between two multiples of the step the cdf is constant."""
        first, last = self._low * self._step, (self._low + self._size) * self._step
        total = (first - y).clamp_min(0) + (y - last).clamp_min(0)
        for values, cdf, _ in self._blocks():
            after = ((values + self._step - y) / self._step).clamp(0, 1)
            cells = after * (1 - cdf).square() + (1 - after) * cdf.square()
            total = total + self._step * cells.sum(1, keepdim=True)
        return torch.where(self._fine, self._law.crps(y), total)

    def _nearest(self, values: Tensor) -> Tensor:
        # Ties between two multiples go down; no negative zero.
        return (values / self._step - 0.5).ceil() * self._step + 0.0

    def _expected(self, function: Callable[[Tensor], Tensor]) -> Tensor:
        """Expected value [n, 1] of a function of the values."""
        parts = [
            (mass * function(values)).sum(1, keepdim=True) for values, _, mass in self._blocks()
        ]
        return torch.cat(parts, 1).sum(1, keepdim=True)

    def _blocks(self) -> Iterator[tuple[Tensor, Tensor, Tensor]]:
        """Multiples of the step, their cumulative and their own probabilities, in blocks [n, k]."""
        low, size = self._low, self._size
        width = max(1, _BLOCK // max(1, len(low)))
        below = torch.zeros_like(low)
        for start in range(0, size, width):
            k = torch.arange(start, min(start + width, size)).to(low)
            cdf = self._law.cdf((low + k + 0.5) * self._step)
            if start + width >= size:
                cdf = torch.cat([cdf[:, :-1], torch.ones_like(low)], 1)
            yield (low + k) * self._step, cdf, torch.diff(cdf, dim=1, prepend=below)
            below = cdf[:, -1:]
