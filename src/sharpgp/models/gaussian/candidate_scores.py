"""Scores of held-out residuals, by which candidates for mean and spread are compared."""

from dataclasses import dataclass

import torch
from torch import Tensor

#: Coverages whose interval scores, and levels whose pinball losses, decide between candidates.
SCORED_COVERAGES = (0.8, 0.9, 0.95)
SCORED_LEVELS = tuple(round(0.05 * j, 2) for j in range(1, 20))


@dataclass(frozen=True)
class Scores:
    """Scores of each point, or their gains on others: interval scores of two kinds, and CRPS.

    Attributes
    ----------
    bands, centred : Tensor [B, N]
        Interval scores of symmetric bands and of centred intervals, at each of
        :data:`SCORED_COVERAGES`: they look at the tails.
    pinball : Tensor [N]
        Pinball loss averaged over :data:`SCORED_LEVELS`, which approximates the CRPS.
    """

    bands: Tensor
    centred: Tensor
    pinball: Tensor

    def gain_on(self, others: "Scores") -> "Scores":
        """How much lower these scores are than others, in units of the others' means."""

        def gain(ours: Tensor, theirs: Tensor) -> Tensor:
            return (theirs - ours) / theirs.mean(-1, keepdim=True)

        return Scores(
            gain(self.bands, others.bands),
            gain(self.centred, others.centred),
            gain(self.pinball, others.pinball),
        )

    @property
    def total(self) -> Tensor:
        """Mean of interval scores of bands and pinball loss [N]."""
        return 0.5 * (self.bands.mean(0) + self.pinball)

    @property
    def least(self) -> float:
        """The lowest mean over points of all interval scores."""
        return float(torch.cat([self.bands, self.centred]).mean(-1).min())


def scores_of(r: Tensor, sigma: Tensor) -> Scores:
    """Scores [N] of residuals under a spread, at quantiles of their own z-scores.

    Examples
    --------
    >>> r = torch.linspace(-1, 1, 100, dtype=torch.float64)
    >>> sigma = torch.ones_like(r)
    >>> wrong = scores_of(r, 2.0 - r.abs()).gain_on(scores_of(r, sigma))
    >>> bool(wrong.total.mean() < 0), wrong.least < 0
    (True, True)
    """
    z = r / sigma
    coverage = torch.tensor(SCORED_COVERAGES, dtype=r.dtype, device=r.device)
    half = torch.quantile(z.abs(), coverage)
    low = torch.quantile(z, (1.0 - coverage) / 2.0)
    high = torch.quantile(z, (1.0 + coverage) / 2.0)

    def interval(lower: Tensor, upper: Tensor) -> Tensor:
        ends = lower.unsqueeze(-1) * sigma, upper.unsqueeze(-1) * sigma
        missed = (ends[0] - r).clamp(min=0.0) + (r - ends[1]).clamp(min=0.0)
        return ends[1] - ends[0] + 2.0 / (1.0 - coverage).unsqueeze(-1) * missed

    level = torch.tensor(SCORED_LEVELS, dtype=r.dtype, device=r.device)
    error = r - torch.quantile(z, level).unsqueeze(-1) * sigma
    loss = error * (level.unsqueeze(-1) - (error < 0).to(error))
    return Scores(interval(-half, half), interval(low, high), loss.mean(0))
