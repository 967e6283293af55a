"""Measured quantities under their models: limits, several objectives, what is left to gain."""

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from botorch.acquisition import AcquisitionFunction
from botorch.acquisition.multi_objective import logei
from botorch.acquisition.multi_objective.logei import qLogExpectedHypervolumeImprovement
from botorch.models.model import Model
from botorch.posteriors.posterior import Posterior
from botorch.sampling.normal import SobolQMCNormalSampler
from botorch.utils.multi_objective.box_decompositions.non_dominated import (
    FastNondominatedPartitioning,
)
from torch import Tensor

from sharpgp._stored import stored
from sharpgp.bo.acquisition import NODES
from sharpgp.bo.record import Record
from sharpgp.bo.small_sample import SmallSamplePredictor, joint_draws
from sharpgp.exceptions import InvalidInputError

# Draws of all objectives behind an expected hypervolume.
_DRAWS = 128
_NUMBER = r"([-+]?[\d.]+(?:[eE][-+]?\d+)?)"


@stored("Limit")
@dataclass(frozen=True)
class Limit:
    """A measured quantity that has to be between two values.

    Examples
    --------
    >>> Limit.of("impurity <= 0.5"), Limit.of("2 <= `pH value` <= 7").name
    (Limit(name='impurity', low=-inf, high=0.5), 'pH value')
    """

    name: str
    low: float
    high: float

    @classmethod
    def of(cls, text: Any) -> "Limit":
        """From ``"impurity <= 0.5"``, or with a bound on either side."""
        form = rf"(?:{_NUMBER}\s*(<=?|>=?))?\s*`?([^<>=`]*[^<>=`\s])`?\s*(?:(<=?|>=?)\s*{_NUMBER})?"
        found = re.fullmatch(form, text.strip()) if isinstance(text, str) else None
        if found is None or not (found[1] or found[5]):
            raise InvalidInputError(
                f'limits: expected such as "impurity <= 0.5" or "2 <= pH <= 7", found {text!r}'
            )
        low, high = -np.inf, np.inf
        for bound, sense in ((found[1], found[2]), (found[5], (found[4] or "").translate(_FLIP))):
            if bound and sense[0] == "<":
                low = float(bound)
            elif bound:
                high = float(bound)
        if not low < high:
            raise InvalidInputError(
                f"limits: expected a smaller and then a larger number, found {text!r}"
            )
        return cls(found[3], low, high)

    def __str__(self) -> str:
        low = f"{self.low:g} <= " if self.low > -np.inf else ""
        return f"{low}{self.name}" + (f" <= {self.high:g}" if self.high < np.inf else "")


_FLIP = str.maketrans("<>", "><")


class Quantity:
    """One measured quantity of unit coordinates, as its model and the law of its scores say.

    ``search`` takes the law of searches, ``latent`` the function rather than results; the function
    counts as known at ``pending`` points [p, d].
    """

    def __init__(
        self,
        record: Record,
        *,
        search: bool = False,
        latent: bool = True,
        pending: Tensor | None = None,
    ) -> None:
        self.record, self.surrogate = record, record.trained()
        self.predictor = SmallSamplePredictor(
            self.surrogate.gp,
            record.law_of_search() if search else record.law(),
            latent=latent,
            pending=None if pending is None else record.features(pending),
        )

    def means(self, Z: Tensor) -> Tensor:
        """Means [n] in the units of the GP, large ones better."""
        return self.surrogate.gp.mean(self.record.features(Z))

    def results(self, u: Tensor) -> Tensor:
        """Results from the units of the GP."""
        return self.record.sign * self.surrogate.outward(u)

    def interval(self, Z: Tensor, coverage: float) -> Tensor:
        """Intervals [n, 2] of results at [n, d]."""
        ends = self.results(self.predictor.predict_interval(self.record.features(Z), coverage))
        return ends if self.record.sign > 0 else ends.flip(-1)

    def log_met(self, Z: Tensor, limit: Limit) -> list[Tensor]:
        """Log probabilities [n] of being on the right side of each end of a limit, at [n, d]."""
        location, spread = self.predictor.moments(self.record.features(Z))
        found = []
        for bound, below in ((limit.high, True), (limit.low, False)):
            if np.isfinite(bound):
                target = torch.tensor([self.record.sign * bound], dtype=torch.float64)
                score = (self.surrogate.inward(target) - location) / spread
                below = below == (self.record.sign > 0)
                found.append(self.predictor.law.log_cdf(score, upper=not below))
        return found

    def probability(self, Z: Tensor, limit: Limit) -> Tensor:
        """Probability [n] of meeting a limit at [n, d]."""
        with torch.no_grad():
            met = torch.ones(len(Z), dtype=torch.float64)
            for one in self.log_met(Z, limit):
                met = met + one.expm1()
            return met.clamp(0.0, 1.0)

    def draws(self, Z: Tensor, n: int, seed: int) -> Tensor:
        """Joint draws [n, T] of the function at [T, d], large ones better."""
        generator = torch.Generator().manual_seed(seed)
        return self.surrogate.outward(
            joint_draws(self.predictor, self.record.features(Z), n, generator)
        )


class Within(AcquisitionFunction):
    """An acquisition function of features, plus the log probability of meeting all limits.

    Without a function, as where no run has met the limits yet, it is that probability alone.
    """

    def __init__(
        self,
        inner: AcquisitionFunction | None,
        features: Callable[[Tensor], Tensor],
        limits: Sequence[tuple[Quantity, Limit]],
    ) -> None:
        super().__init__(model=None)  # type: ignore[arg-type]
        self.inner, self.features, self.limits = inner, features, limits

    def forward(self, X: Tensor) -> Tensor:
        """Values at ``X`` [..., 1, d]."""
        total = torch.zeros(X.shape[:-2], dtype=X.dtype)
        if self.inner is not None:
            total = total + self.inner(self.features(X))
        for quantity, limit in self.limits:
            for found in quantity.log_met(X.reshape(-1, X.shape[-1]), limit):
                total = total + found.reshape(X.shape[:-2])
        return total


class _Marginals(Posterior):
    """Independent quantities at points, each with the law of its own scores."""

    def __init__(self, location: Tensor, spread: Tensor, tables: Sequence[np.ndarray]) -> None:
        self.location, self.spread, self.tables = location, spread, tables

    @property
    def device(self) -> torch.device:
        """That of the locations."""
        return self.location.device

    @property
    def dtype(self) -> torch.dtype:
        """That of the locations."""
        return self.location.dtype

    @property
    def base_sample_shape(self) -> torch.Size:
        """One normal number for each point and quantity."""
        return self.location.shape

    @property
    def batch_range(self) -> tuple[int, int]:
        """All but points and quantities."""
        return 0, -2

    def _extended_shape(self, sample_shape: torch.Size = torch.Size()) -> torch.Size:  # noqa: B008
        return sample_shape + self.location.shape

    def rsample(self, sample_shape: torch.Size | None = None) -> Tensor:
        shape = self._extended_shape(sample_shape or torch.Size())
        return self.rsample_from_base_samples(shape, torch.randn(shape, dtype=self.dtype))

    def rsample_from_base_samples(self, sample_shape: torch.Size, base_samples: Tensor) -> Tensor:
        scores = [
            np.interp(u, NODES.numpy(), table)
            for u, table in zip(base_samples.unbind(-1), self.tables, strict=True)
        ]
        return self.location + torch.from_numpy(np.stack(scores, -1)) * self.spread


class Objectives(Model):
    """Several quantities as one BoTorch model of unit coordinates, each in units of its GP.

    For BoTorch's multi-objective acquisition functions; objectives are independent given a point.
    """

    def __init__(self, quantities: Sequence[Quantity]) -> None:
        super().__init__()
        self.quantities = quantities
        self.tables = [
            one.predictor.law.quantile(torch.special.ndtr(NODES)).numpy() for one in quantities
        ]

    @property
    def num_outputs(self) -> int:
        """Number of objectives."""
        return len(self.quantities)

    @property
    def batch_shape(self) -> torch.Size:
        """None."""
        return torch.Size()

    def posterior(self, X: Tensor, *_: Any, **__: Any) -> Posterior:
        """Independent laws at ``X`` [..., q, d]."""
        rows = X.reshape(-1, X.shape[-1])
        parts = []
        for one in self.quantities:
            location, spread = one.predictor.moments(one.record.features(rows))
            units = one.surrogate.gp.y_units
            parts.append(torch.stack([units.forward(location), spread / units.scale]))
        location, spread = torch.stack(parts, -1).reshape(2, *X.shape[:-1], len(parts))
        return _Marginals(location, spread, self.tables)

    def means(self, Z: Tensor) -> Tensor:
        """Means [n, m] at [n, d]."""
        columns = [one.surrogate.gp.y_units.forward(one.means(Z)) for one in self.quantities]
        return torch.stack(columns, -1)


def hypervolume_improvement(
    model: Objectives, Z: Tensor, met: Tensor, worst: Mapping[int, float]
) -> qLogExpectedHypervolumeImprovement:
    """Log expected hypervolume improvement on those points [n, d] that have ``met`` the limits.

    An objective with a limit has the ``worst`` value that it may take in the reference point.
    """
    Y = model.means(Z)
    reference = reference_of(Y)
    Y = Y[met] if bool(met.any()) else reference[None]
    for k, value in worst.items():
        one = model.quantities[k]
        target = one.surrogate.inward(torch.tensor([value], dtype=torch.float64))
        reference[k] = one.surrogate.gp.y_units.forward(target)[0]
    # BoTorch would compile a kernel, and wait for ever for the lock of a process that was killed.
    logei._load_attempted = True
    return qLogExpectedHypervolumeImprovement(
        model,
        ref_point=reference,
        partitioning=FastNondominatedPartitioning(reference, Y),  # type: ignore[arg-type]
        sampler=SobolQMCNormalSampler(torch.Size([_DRAWS]), seed=0),
    )


def reference_of(Y: Tensor) -> Tensor:
    """The point [m] from which the hypervolume of results [n, m] is measured: the worst of each.

    From the worst of the front alone it would not pay to look beyond its ends.
    """
    return Y.amin(0) - 0.01 * (Y.amax(0) - Y.amin(0))


def volume_of(Y: Tensor, reference: Tensor) -> float:
    """Hypervolume of points [n, m]."""
    return float(FastNondominatedPartitioning(reference, Y).compute_hypervolume())


def added_volume(Y: Tensor, front: Tensor, reference: Tensor) -> Tensor:
    """Hypervolume [...] that points [..., m] add to a front [n, m], each alone.

    Examples
    --------
    >>> front, zero = torch.tensor([[1.0, 2.0], [2.0, 1.0]]), torch.zeros(2)
    >>> added_volume(torch.tensor([[2.0, 2.0], [1.0, 1.0], [3.0, 0.5]]), front, zero).tolist()
    [1.0, 0.0, 0.5]
    """
    low, high = FastNondominatedPartitioning(ref_point=reference, Y=front).hypercell_bounds
    total = torch.zeros(Y.shape[:-1], dtype=Y.dtype)
    for lower, upper in zip(low, high, strict=True):
        total += (torch.minimum(Y, upper) - lower).clamp(min=0.0).prod(-1)
    return total
