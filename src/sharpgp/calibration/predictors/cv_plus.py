"""CV+ intervals: every point is compared with the fit that did not see it."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Annotated

import torch
from torch import Tensor

from sharpgp._ranks import rank, whole_rank
from sharpgp._stored import Array, Maybe, agree, stored
from sharpgp._tail import Tail
from sharpgp.calibration.predictors.base import ModelPredictor
from sharpgp.calibration.predictors.by_level import LevelPredictor
from sharpgp.calibration.tails import pooled_tail
from sharpgp.gp.compute import block_entries
from sharpgp.models.model import Model
from sharpgp.rows import Rows


@stored("PlusPredictor", n_cal=Maybe(int))
@dataclass(eq=False, repr=False)
class PlusPredictor(ModelPredictor, LevelPredictor):
    r"""Quantiles of ``value_k(x, z_i)`` over all points ``i``, left out by fit ``k``.

    The symmetric band at coverage ``c`` runs from the ``floor((1-c)(N+1))``-th smallest
    ``value_k(x, -|z_i|)`` to the ``ceil(c(N+1))``-th smallest ``value_k(x, |z_i|)``, and contains
    the mean, which is that of the fit on all data (at coverages far below one half the two ends
    could otherwise change places).  Whatever the fits, it covers with at least the probability
    given by :meth:`worst_case`.

    Parameters
    ----------
    model : Model
        Fit on all data.
    fits : list of Model
        Fits without each of the parts.
    scores : list of Tensor [n]
        z-scores of each part under the fit without it.

    References
    ----------
    R. F. Barber, E. J. Candes, A. Ramdas and R. J. Tibshirani, "Predictive inference with the
    jackknife+", Annals of Statistics, 2021, theorem 4; for scores other than residuals, C. Gupta,
    A. Kuchibhotla and A. Ramdas, "Nested conformal prediction", Pattern Recognition, 2022.
    """

    model: Model
    fits: Sequence[Model]
    scores: Sequence[Annotated[Tensor, Array("n")]]

    def __post_init__(self) -> None:
        agree("fits and parts", len(self.fits), len(self.scores))
        self.n_cal: int = sum(len(part) for part in self.scores)

    def worst_case(self, coverage: float) -> float:
        """Lower bound on the probability that the band covers, for exchangeable data.

        ``1 - 2 alpha - min(2 (1 - 1/K) / (N/K + 1), (1 - K/N) / (K + 1))`` with ``K`` parts of
        equal size and ``alpha = 1 - coverage``.
        """
        K, N = len(self.fits), self.n_cal
        slack = min(2.0 * (1.0 - 1.0 / K) / (N / K + 1.0), (1.0 - K / N) / (K + 1.0))
        return max(0.0, 1.0 - 2.0 * (1.0 - coverage) - slack)

    @property
    def prefers_band(self) -> bool:
        """Always: the worst case is stated for the band."""
        return True

    def centred_levels(self, coverage: float) -> tuple[float, float]:
        """Levels of the two ends of the centred interval, moved outward to whole ranks."""
        lower, upper = super().centred_levels(coverage)
        N = self.n_cal
        low, high = whole_rank(lower, N, up=False), whole_rank(upper, N, up=True)
        return (low / (N + 1) if low >= 1 else lower), (high / (N + 1) if high <= N else upper)

    def quantiles_inside(self, X: Rows, delta: Tensor) -> Tensor:
        return self.with_tail(X, delta)[0]

    def with_tail(self, X: Rows, delta: Tensor) -> tuple[Tensor, Tail]:
        """Both from the sorted values at every point."""
        h = rank(delta, self.n_cal)
        below = h.floor().clamp(1, self.n_cal - 1).long()
        blocks, tails = [], []
        for block in X.split(max(1, block_entries(X.device) // self.n_cal)):
            ordered = self._pooled(block, self.scores).sort(dim=-1).values
            lower, upper = ordered[:, below - 1], ordered[:, below]
            blocks.append(torch.lerp(lower, upper, (h - below).expand_as(lower)))
            tails.append(pooled_tail(ordered, self.n_cal))
        return torch.cat(blocks).mT, Tail(torch.cat([t.scale for t in tails]), tails[0].degrees)

    def band(self, X: Rows, coverage: float) -> tuple[Tensor, Tensor]:
        k = whole_rank(coverage, self.n_cal, up=True)
        ends = []
        for block in X.split(max(1, block_entries(X.device) // self.n_cal)):
            above = self._pooled(block, [z.abs() for z in self.scores])
            below = self._pooled(block, [-z.abs() for z in self.scores])
            # The floor((1-c)(N+1))-th smallest from below is the ceil(c(N+1))-th largest.
            low = -(-below).kthvalue(k, dim=-1).values
            high, mean = above.kthvalue(k, dim=-1).values, self.location(block)
            ends.append(torch.stack([low.minimum(mean), high.maximum(mean)]))
        lower, upper = torch.cat(ends, dim=-1)
        return lower, upper

    def _conditioned(self, X: Rows, y: Tensor) -> "PlusPredictor":
        fits = [fit.extended(X, y) for fit in self.fits]
        return PlusPredictor(self.model.extended(X, y), fits, self.scores)

    def _pooled(self, X: Rows, scores: Sequence[Tensor]) -> Tensor:
        """``value_k(x, z_i)`` [T, N] for the scores of all parts."""
        parts = []
        for fit, z in zip(self.fits, scores, strict=True):
            parts.append(fit.value(X, z.unsqueeze(-1)).mT)
        return torch.cat(parts, dim=-1)
