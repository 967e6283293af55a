"""Choice between symmetric band and centred interval, by the estimated interval score."""

import math
from dataclasses import dataclass

import torch
from torch import Tensor

from sharpgp._ranks import whole_rank
from sharpgp.data.target_bounds import Bounds
from sharpgp.gp.posterior import WithoutDataError
from sharpgp.models.gaussian.candidate_scores import SCORED_COVERAGES
from sharpgp.models.model import HeldOut, Learner, Model

_DRAWS = 200
# Representative scores, and scores in a draw: more would change no decision.
_MAX_SCORES = 1000
# Two tails must be better by this factor, as training scores differ from those of new points.
_TAILS_ADVANTAGE = 1.01
# Without training scores, two tails need this many calibration points in each at 95 %.
_MIN_POINTS_PER_TAIL = 5.0


def prefers_band(scores: Tensor | None, n_cal: int) -> bool:
    r"""Whether symmetric bands have the lower expected interval scores, up to 1 %.

    Calibration does not use ``scores`` [N]. 200 sets of ``C`` are drawn from them; each gives a
    band, from absolute values, and a centred interval, from two tails.  Both are scored on all
    ``scores``.  The geometric mean over the coverages 80, 90 and 95 % (if ``C`` points support
    their two tails) decides for all coverages.  Few calibration points favour the band, as one rank
    is easier to estimate than two; skewed scores favour two tails.  Without scores, the band is
    chosen if either tail has fewer than five calibration points at 95 %: for ``C < 199``.

    Examples
    --------
    >>> z = torch.randn(500, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    >>> prefers_band(z, 60), prefers_band(z.exp() - 1.6, 2000)
    (True, False)
    >>> prefers_band(None, 198), prefers_band(None, 199)
    (True, False)
    """
    if scores is None:
        return 0.025 * (n_cal + 1) < _MIN_POINTS_PER_TAIL
    return _bands_pay(_Rows(_representative(scores)), n_cal)


def pile_up(model: Model, bounds: Bounds) -> bool:
    """Whether training targets, if the model knows them, pile up at a bound."""
    try:
        return bounds.has_pile(model.y_train)
    except WithoutDataError:
        return False


def prefers_band_within(
    model: Model, bounds: Bounds, n_cal: int, labels: Tensor | None = None
) -> bool:
    """:func:`prefers_band` with bounds that clip intervals, by held-out predictions.

    An interval that is clipped below can only miss above: a band has all its misses on that side,
    and a centred interval covers more than it must.  Which one scores better depends on the tail;
    without held-out predictions, the band is chosen.  Rows that share one of the ``labels`` [N] are
    left out together.
    """
    if not isinstance(model, Learner):
        return True
    if labels is None:
        labels = torch.arange(len(model.y_train), device=model.device)
    return bands_pay_within(model.leave_one_out(labels, 0), bounds, n_cal)


def bands_pay_within(held: HeldOut, bounds: Bounds, n_cal: int) -> bool:
    """The decision from held-out predictions, in units of the target.

    Examples
    --------
    >>> from sharpgp.models.laws import Normal
    >>> z = torch.randn(500, dtype=torch.float64, generator=torch.Generator().manual_seed(0)).exp()
    >>> law = Normal(torch.zeros(500), torch.ones(500))
    >>> held = HeldOut(torch.arange(500), law, z - 1.0)
    >>> bands_pay_within(held, Bounds(low=-1.0), 400)
    False
    """
    places = _representative(torch.arange(len(held.rows)))
    law, z = held.law.take(places), _representative(held.scores)
    low, high = (
        law.score(torch.full_like(law.location, end)).cpu() if math.isfinite(end) else end
        for end in (bounds.least, bounds.most)
    )
    return _bands_pay(_Rows(z, law.spread.cpu(), low, high), n_cal)


@dataclass(frozen=True)
class _Rows:
    """Scores [N] to judge intervals by, their weights, and the bounds in units of their spreads."""

    z: Tensor
    spread: Tensor | float = 1.0
    low: Tensor | float = -math.inf
    high: Tensor | float = math.inf

    def loss(self, lower: Tensor, upper: Tensor, coverage: float) -> float:
        """Mean interval score of intervals [D]."""
        ends = torch.stack([lower, upper]).unsqueeze(-1).expand(-1, -1, len(self.z))
        lower, upper = ends.clamp(*map(torch.as_tensor, (self.low, self.high)))
        missed = (lower - self.z).clamp(min=0.0) + (self.z - upper).clamp(min=0.0)
        scores = upper - lower + 2.0 / (1.0 - coverage) * missed
        return float((self.spread * scores).mean())


def _representative(values: Tensor) -> Tensor:
    values = values.detach().cpu()
    return values[:: -(-len(values) // _MAX_SCORES)]


def _bands_pay(rows: _Rows, n_cal: int) -> bool:
    z, C = rows.z, min(n_cal, _MAX_SCORES)
    pick = torch.randint(len(z), (_DRAWS, C), generator=torch.Generator().manual_seed(0))
    drawn = z[pick].sort(dim=1).values
    sizes = drawn.abs().sort(dim=1).values
    gains = []
    for coverage in SCORED_COVERAGES:
        low = whole_rank((1.0 - coverage) / 2.0, C, up=False)
        high = whole_rank((1.0 + coverage) / 2.0, C, up=True)
        if low < 1 or high > C:
            continue
        radius = sizes[:, whole_rank(coverage, C, up=True) - 1]
        band = rows.loss(-radius, radius, coverage)
        centred = rows.loss(drawn[:, low - 1], drawn[:, high - 1], coverage)
        gains.append(math.log(band / centred) if min(band, centred) > 0.0 else 0.0)
    return not gains or sum(gains) / len(gains) <= math.log(_TAILS_ADVANTAGE)
