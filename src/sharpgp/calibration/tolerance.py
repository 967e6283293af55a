r"""Tolerance intervals: ranks that cover for the calibration set at hand, with a given confidence.

Of ``C`` independent scores without ties, those up to the ``k``-th smallest hold a share of all
further ones with the law ``Beta(k, C + 1 - k)``, whatever the law of the scores (Wilks, 1941);
ties only add to it.  The proofs are in ``docs/method.md``, *What is promised*.
"""

import copy
import math
from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from scipy.optimize import brentq
from scipy.special import betaincinv, rel_entr
from scipy.stats import binom
from torch import Tensor

from sharpgp._validation import as_coverage, as_level, as_levels
from sharpgp.calibration.predictors.base import Calibrated
from sharpgp.calibration.predictors.scored import ScoredPredictor
from sharpgp.calibration.ranks import Ranks, WiderRanks
from sharpgp.data.folds import one_per_label
from sharpgp.exceptions import InvalidInputError


def tolerance_rank(coverage: float, confidence: float, n: int) -> int:
    """Smallest ``k`` with ``P(Beta(k, n+1-k) >= coverage) >= confidence``; ``n + 1`` if none.

    Examples
    --------
    >>> tolerance_rank(0.9, 0.95, 29), tolerance_rank(0.9, 0.95, 28), tolerance_rank(0.9, 0.95, 100)
    (29, 29, 96)
    """
    # P(Beta(k, n + 1 - k) >= c) = P(Binomial(n, c) <= k - 1)
    return min(int(binom.ppf(confidence, n, coverage)) + 1, n + 1)


def units_needed(coverage: float, confidence: float, ends: int = 1) -> int:
    """Smallest number of scores that allow a band (one end), or a centred interval (two).

    Examples
    --------
    >>> units_needed(0.9, 0.95), units_needed(0.9, 0.95, ends=2)
    (29, 46)
    """
    most = math.ceil((5.0 - 2.0 * math.log1p(-confidence)) / (1.0 - coverage))
    n = np.arange(ends, most + 2)
    return int(n[np.argmax(binom.cdf(n - ends, n, coverage) >= confidence)])


def covered_at_least(k: int, n: int, confidence: float) -> float:
    """What ``k`` of ``n`` scores hold with this confidence: a quantile of ``Beta(k, n + 1 - k)``.

    Examples
    --------
    >>> round(covered_at_least(92, 101, 0.95), 3)
    0.85
    """
    return float(betaincinv(k, n + 1 - k, 1.0 - confidence)) if 0 < k <= n else 0.0


def covered_by_groups(coverage: float, n: int, confidence: float) -> float:
    r"""The same where ``n`` groups calibrate, each with the mass ``1/(n + 1)``.

    The smallest ``b`` with ``n kl(s, b) >= -log(1 - confidence)`` and ``b <= s``, where
    ``s = coverage (n + 1) / n`` is the share of the groups' mass within, and ``kl`` the divergence
    of two coins (Chernoff's bound, which holds for shares in [0, 1], too).

    Examples
    --------
    >>> covered_by_groups(0.9, 100, 0.95) < covered_at_least(91, 100, 0.95)
    True
    """
    s = min(coverage * (n + 1) / n, 1.0)

    def excess(b: float) -> float:
        return n * float(rel_entr(s, b) + rel_entr(1.0 - s, 1.0 - b)) + math.log1p(-confidence)

    return float(brentq(excess, 1e-300, s))


class ToleranceRanks(Ranks):
    """Ranks that hold every coverage with a confidence; scores have equal weights and no groups.

    Examples
    --------
    >>> ranks = ToleranceRanks(Ranks(torch.arange(1.0, 47.0, dtype=torch.float64)), 0.95)
    >>> one = torch.ones(1, dtype=torch.float64)
    >>> [round(float(end)) for end in ranks.interval_ends(0.9, one)[:2]]
    [1, 46]
    """

    def __init__(self, ranks: Ranks, confidence: float) -> None:
        vars(self).update(vars(ranks))
        self.confidence = confidence

    def beta(self, delta: Tensor) -> Tensor:
        """Quantiles [K] with at least ``delta`` of all scores below, or ``1 - delta`` above.

        The former from 0.5 on; infinite where the scores are too few.
        """
        return torch.stack([self._one_sided(level) for level in delta.tolist()])

    def _one_sided(self, level: float) -> Tensor:
        upper = level >= 0.5
        k = tolerance_rank(level if upper else 1.0 - level, self.confidence, self.n)
        z = self.z if upper else -self.z.flip(0)
        end = z[k - 1] + self._slack(z[k - 1]) if k <= self.n else z.new_tensor(torch.inf)
        return end if upper else -end

    def interval_ends(self, coverage: float, weight: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """``[z_(l), z_(u)]`` with ``u - l`` the rank that is needed; what is left out is shared."""
        omitted = self.n + 1 - tolerance_rank(coverage, self.confidence, self.n)
        backed = torch.full_like(weight, omitted >= 2, dtype=torch.bool)
        low, high = self.z[max(omitted // 2, 1) - 1], self.z[-max(omitted - omitted // 2, 1)]
        low, high = low - self._slack(low), high + self._slack(high)
        return low.expand_as(weight), high.expand_as(weight), backed

    def radius(self, coverage: float, weight: Tensor) -> tuple[Tensor, Tensor]:
        k = tolerance_rank(coverage, self.confidence, self.n)
        size = self.z.abs().sort().values
        radius = size[min(k, self.n) - 1]
        backed = torch.full_like(weight, k <= self.n, dtype=torch.bool)
        return (radius + self._slack(radius)).expand_as(weight), backed

    def centred_supported(self, coverage: float, weight: Tensor) -> Tensor:
        return self.interval_ends(coverage, weight)[2]


class WiderToleranceRanks(WiderRanks):
    """The wider of two, at every level."""

    def beta(self, delta: Tensor) -> Tensor:
        one, other = (ranks.beta(delta) for ranks, _ in self.both)
        return torch.where(delta >= 0.5, torch.maximum(one, other), torch.minimum(one, other))


def with_confidence(
    predictor: Calibrated,
    confidence: Any,
    *,
    coverage: Any = None,
    levels: Any = None,
    symmetric: bool | None = None,
) -> Calibrated:
    """The predictor whose intervals, or quantiles, hold for this fitted model with a confidence.

    Groups, and inputs that count once, are each represented by one of their rows, drawn at random.

    Examples
    --------
    >>> from sharpgp import Exact
    >>> from sharpgp.gp.training import train
    >>> X = torch.linspace(0, 6, 120, dtype=torch.float64)[:, None]
    >>> y = X[:, 0].sin() + 0.1 * torch.cos(37 * X[:, 0])
    >>> exact = Exact().fit(train(X[::2], y[::2])[0], X[1::2], y[1::2])
    >>> sure = with_confidence(exact, 0.95, coverage=0.9)
    >>> width = [float(one.predict_interval(X[:1], 0.9).diff()) for one in (exact, sure)]
    >>> width[0] < width[1]
    True
    """
    sure = as_level(confidence, "confidence")
    if levels is None:
        wanted, ends = as_coverage(coverage)[0], 2 if symmetric is False else 1
    else:
        wanted, ends = [max(level, 1.0 - level) for level in as_levels(levels)[0]], 1
    parts = scored_parts(predictor)
    if any(part.weights is not None for part in parts):
        raise InvalidInputError(
            "confidence: expected calibration rows of equal weight, found weights, for which no "
            "statement about one fitted model is known; leave confidence out"
        )
    found = [_tolerant(part, sure) for part in parts]
    least = min(found, key=lambda ranks: ranks.n)
    for share in wanted:
        if tolerance_rank(share, sure, least.n) > least.n + 1 - ends:
            needed = units_needed(share, sure, ends)
            raise InvalidInputError(
                f"coverage {share:g} with confidence {sure:g} needs at least {needed} calibration "
                f"{predictor.counted}, found {least.n}; ask for less, or calibrate with more"
            )
    other: Any = copy.copy(predictor)
    other.ranks_of, other.n_cal = found, least.n
    return other


def scored_parts(predictor: Calibrated) -> Sequence[ScoredPredictor]:
    """The predictors of all parts; an error for methods that do not rank scores."""
    if isinstance(predictor, ScoredPredictor):
        return predictor.by_part()
    raise InvalidInputError(
        "expected a model by a method that ranks scores, such as 'exact' or 'cv', found a "
        f"{type(predictor).__name__}; choose calibration='exact'"
    )


def _tolerant(part: ScoredPredictor, confidence: float) -> Ranks:
    ranks = part.ranks
    if part.units is not None:
        ranks = Ranks(part.scores[one_per_label(part.units, 0)])
    found: Ranks = ToleranceRanks(ranks, confidence)
    if part.drawn is not None:
        also = ToleranceRanks(Ranks(part.scores[part.drawn > 0]), confidence)
        found = WiderToleranceRanks(found, also)
        found.n = min(ranks.n, also.n)
    return found
