"""Where an acquisition function is largest: starts near the best points and all over the space."""

import warnings
from collections.abc import Callable

import torch
from botorch.acquisition import AcquisitionFunction
from botorch.exceptions import BotorchWarning
from botorch.optim import optimize_acqf
from botorch.optim.initializers import initialize_q_batch
from botorch.optim.optimize_mixed import optimize_acqf_mixed_alternating
from torch import Tensor

from sharpgp.bo.space import Space

#: Space-filling candidates, and those around each of the best points.
GLOBAL, AROUND = 512, 24
#: Best points so far around which candidates are drawn.
BEST = 4
# Descents from the best candidates around the best points; twice as many from the others.
_NEAR_STARTS = 3
# Steps of a descent; acquisition functions are smooth, and the next point need not be exact.
_MAX_STEPS = 60
#: Points of one batch differ by so much of the range of one input at least: a search that has
#: converged would ask for the same point again and again.
APART = 0.01
# Deviations of candidates around a best point, in units of the space, smallest and largest.
_NEAREST, _FARTHEST = 0.003, 0.2


class OfUnit(AcquisitionFunction):
    """An acquisition function of features, as one of unit coordinates."""

    def __init__(self, inner: AcquisitionFunction, features: Callable[[Tensor], Tensor]) -> None:
        super().__init__(model=inner.model)
        self.inner, self.features = inner, features

    def forward(self, X: Tensor) -> Tensor:
        """Values at ``X`` [..., 1, d]."""
        value: Tensor = self.inner(self.features(X))
        return value


def candidates(space: Space, best: Tensor, seed: int) -> tuple[Tensor, Tensor]:
    """Space-filling points [n, d] and points around the best ones [m, d], in unit coordinates."""
    generator = torch.Generator().manual_seed(seed)

    def uniform(*shape: int) -> Tensor:
        return torch.rand(*shape, generator=generator, dtype=torch.float64)

    low, high = space.unit_bounds
    centres = best.repeat_interleave(AROUND, 0)
    deviation = _NEAREST * (_FARTHEST / _NEAREST) ** uniform(len(centres), 1)
    step = torch.randn(centres.shape, generator=generator, dtype=torch.float64) * deviation
    near = torch.minimum(torch.maximum(centres + step * (high - low), low), high)
    if bool(space.whole.any()):
        # Values jump: each stays, or is drawn anew.
        fresh, jump = space.snapped(uniform(*near.shape)), uniform(*near.shape) < 1.0 / space.d
        near = torch.where(space.whole, torch.where(jump, fresh, centres), near)
    return space.sobol(GLOBAL, seed), near


def maximise(
    acquisition: AcquisitionFunction, space: Space, best: Tensor, pending: Tensor, seed: int
) -> Tensor:
    """The point [d] where an acquisition function is largest, all in unit coordinates.

    The search also starts around the best points so far [b, d]; what it finds is apart from those
    that are being run [p, d].
    """
    with warnings.catch_warnings(), torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        # A descent from a poor start may stall; the others go on.
        warnings.simplefilter("ignore", BotorchWarning)
        warnings.simplefilter("ignore", RuntimeWarning)
        point: Tensor
        wide, near = candidates(space, best, seed)
        if bool(space.whole.any()):
            point, _ = optimize_acqf_mixed_alternating(
                acquisition,
                space.unit_bounds,
                discrete_dims=space.steps(categorical=False),
                cat_dims=space.steps(categorical=True),
                q=1,
                raw_samples=GLOBAL,
                num_restarts=2 * _NEAR_STARTS,
                options={"maxiter_continuous": _MAX_STEPS},
            )
        else:
            with torch.no_grad():
                of_wide, of_near = (acquisition(part.unsqueeze(1)) for part in (wide, near))
            start, _ = initialize_q_batch(wide.unsqueeze(1), of_wide, n=2 * _NEAR_STARTS)
            nearest = near[of_near.topk(min(_NEAR_STARTS, len(near))).indices]
            start = torch.cat([start, nearest.unsqueeze(1)])
            point, _ = optimize_acqf(
                acquisition,
                space.unit_bounds,
                q=1,
                num_restarts=len(start),
                batch_initial_conditions=start,
                options={"maxiter": _MAX_STEPS},
            )
    if not bool(apart(point, pending).all()):
        others = torch.cat([wide, near])
        others = others[apart(others, pending)]
        if len(others):
            with torch.no_grad():
                return others[int(acquisition(others.unsqueeze(1)).argmax())]
    return point.detach()[0]


def apart(Z: Tensor, pending: Tensor) -> Tensor:
    """Whether points [n, d] are apart from all pending ones [p, d]."""
    distance = (Z.unsqueeze(1) - pending).abs().amax(-1)
    return (distance >= APART).all(1)
