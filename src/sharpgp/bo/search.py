"""Where an acquisition function is largest: starts near the best points and all over the space."""

import warnings
from collections.abc import Callable

import torch
from botorch.acquisition import AcquisitionFunction
from botorch.exceptions import BotorchWarning
from botorch.optim import optimize_acqf
from botorch.optim.initializers import initialize_q_batch
from botorch.optim.optimize_mixed import optimize_acqf_mixed_alternating
from botorch.utils.transforms import t_batch_mode_transform
from torch import Tensor

from sharpgp.bo.space import Space

#: Space-filling candidates, and those around each of the best points.
GLOBAL, AROUND = 512, 24
#: Best points so far around which candidates are drawn.
BEST = 4
# Descents from the best candidates of either kind.
_STARTS_OF_EACH = 3
# Steps of a descent; acquisition functions are smooth, and the next point need not be exact.
_MOST_STEPS = 60
# Deviations of candidates around a best point, in units of the space, smallest and largest.
_NEAREST, _FARTHEST = 0.003, 0.2


class OfFeatures(AcquisitionFunction):
    """An acquisition function of features, as one of unit coordinates."""

    def __init__(self, inner: AcquisitionFunction, features: Callable[[Tensor], Tensor]) -> None:
        super().__init__(model=inner.model)
        self.inner, self.features = inner, features

    @t_batch_mode_transform(expected_q=1)  # type: ignore[arg-type]
    def forward(self, X: Tensor) -> Tensor:
        """Values at ``X`` [..., 1, d]."""
        value: Tensor = self.inner(self.features(X))
        return value


def candidates(space: Space, best: Tensor, seed: int) -> tuple[Tensor, Tensor]:
    """Space-filling points [n, d] and points around the best ones [m, d], in unit coordinates.

    Examples
    --------
    >>> space = Space.of([[0.0, 0.0], [1.0, 1.0]])
    >>> wide, near = candidates(space, torch.full((1, 2), 0.5, dtype=torch.float64), seed=0)
    >>> len(wide), len(near), bool((near - 0.5).abs().median() < 0.1)
    (512, 24, True)
    """
    generator = torch.Generator().manual_seed(seed)
    wide = space.sobol(GLOBAL, seed)
    low, high = space.unit_bounds
    centres = best.repeat_interleave(AROUND, 0)
    span = torch.rand(len(centres), 1, generator=generator, dtype=torch.float64)
    deviation = _NEAREST * (_FARTHEST / _NEAREST) ** span
    step = torch.randn(centres.shape, generator=generator, dtype=torch.float64) * deviation
    near = torch.minimum(torch.maximum(centres + step * (high - low), low), high)
    if space.mixed:
        # Whole numbers jump: each stays, or is drawn anew.
        fresh = space.snapped(torch.rand(near.shape, generator=generator, dtype=torch.float64))
        jump = torch.rand(near.shape, generator=generator, dtype=torch.float64) < 1.0 / space.d
        whole = torch.zeros(space.d, dtype=torch.bool)
        whole[[*space.integer, *space.categorical]] = True
        near = torch.where(whole, torch.where(jump, fresh, centres), near)
    return wide, near


def maximise(
    acquisition: AcquisitionFunction,
    space: Space,
    best: Tensor,
    seed: int,
    features: Callable[[Tensor], Tensor] | None = None,
) -> Tensor:
    """The point [1, d], in unit coordinates, where an acquisition function is largest.

    Parameters
    ----------
    acquisition : AcquisitionFunction
    space : Space
    best : Tensor [b, d]
        The best points so far, in unit coordinates.
    seed : int
    features : callable, optional
        From unit coordinates to what the acquisition function takes; by default they are the same.

    Examples
    --------
    >>> from sharpgp import Vanilla
    >>> from sharpgp.bo.acquisition import CalibratedUpperConfidenceBound
    >>> from sharpgp.gp.training import train
    >>> X = torch.linspace(0, 1, 9, dtype=torch.float64)[:, None]
    >>> model = Vanilla().fit(train(X, -(X[:, 0] - 0.3).square())[0], None, None)
    >>> bound = CalibratedUpperConfidenceBound(model, 0.6)
    >>> x = maximise(bound, Space.of([[0.0], [1.0]]), X[2:3], seed=0)
    >>> bool(abs(x.item() - 0.3) < 0.05)
    True
    """
    outer = acquisition if features is None else OfFeatures(acquisition, features)
    with warnings.catch_warnings(), torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        # A descent from a poor start may stall; the others go on.
        warnings.simplefilter("ignore", BotorchWarning)
        warnings.simplefilter("ignore", RuntimeWarning)
        if space.mixed:
            point, _ = optimize_acqf_mixed_alternating(
                outer,
                space.unit_bounds,
                discrete_dims=space.steps(space.integer),
                cat_dims=space.steps(space.categorical),
                q=1,
                raw_samples=GLOBAL,
                num_restarts=2 * _STARTS_OF_EACH,
                options={"maxiter_continuous": _MOST_STEPS},
            )
        else:
            wide, near = candidates(space, best, seed)
            with torch.no_grad():
                of_wide, of_near = (outer(part.unsqueeze(1)) for part in (wide, near))
            start, _ = initialize_q_batch(wide.unsqueeze(1), of_wide, n=2 * _STARTS_OF_EACH)
            nearest = near[of_near.topk(_STARTS_OF_EACH).indices]
            start = torch.cat([start, nearest.unsqueeze(1)])
            point, _ = optimize_acqf(
                outer,
                space.unit_bounds,
                q=1,
                num_restarts=len(start),
                batch_initial_conditions=start,
                options={"maxiter": _MOST_STEPS},
            )
    found: Tensor = point.detach()
    return found
