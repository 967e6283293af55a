"""Symmetric band or centred interval: which one ``C`` scores like these estimate better."""

import torch
from torch import Tensor

from sharpgp.calibration.levels import whole_rank

_DRAWS = 200
# Scores that stand for all of them; more would change no decision.
_MOST_SCORES = 1000
# What two tails have to gain: scores of the training points are not quite those of new ones.
_MARGIN = 1.01


def band_is_better(scores: Tensor, n_cal: int, coverage: float) -> bool:
    r"""Whether a symmetric band has the lower expected interval score, up to 1 %.

    Of ``scores`` [N] that the calibration will not use, 200 sets of ``C`` are drawn; each gives a
    band, from absolute values, and a centred interval, from two tails, at the ranks that ``C``
    scores have; all ``scores`` judge both.  Few calibration points speak for the band, whose one
    rank is easier to estimate than two; skewed scores speak against it.

    Examples
    --------
    >>> z = torch.randn(500, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    >>> band_is_better(z, 60, 0.95), band_is_better(z.exp() - 1.6, 2000, 0.95)
    (True, False)
    """
    low = whole_rank((1.0 - coverage) / 2.0, n_cal, up=False)
    high = whole_rank((1.0 + coverage) / 2.0, n_cal, up=True)
    middle = whole_rank(coverage, n_cal, up=True)
    if low < 1 or high > n_cal or middle > n_cal:
        return True
    z = scores.detach().cpu()
    z = z[:: -(-len(z) // _MOST_SCORES)]
    pick = torch.randint(len(z), (_DRAWS, n_cal), generator=torch.Generator().manual_seed(0))
    drawn = z[pick]
    radius = drawn.abs().kthvalue(middle, dim=1).values
    ends = drawn.sort(dim=1).values

    def loss(lower: Tensor, upper: Tensor) -> Tensor:
        below = (lower.unsqueeze(-1) - z).clamp(min=0.0)
        above = (z - upper.unsqueeze(-1)).clamp(min=0.0)
        return (upper - lower + 2.0 / (1.0 - coverage) * (below + above).mean(-1)).mean()

    return bool(loss(-radius, radius) <= _MARGIN * loss(ends[:, low - 1], ends[:, high - 1]))
