"""Where an acquisition function is largest: starts near the best points and all over the space."""

import warnings

import torch
from botorch.acquisition import AcquisitionFunction
from botorch.exceptions import BotorchWarning
from botorch.optim import optimize_acqf
from botorch.optim.initializers import initialize_q_batch
from botorch.optim.optimize_mixed import optimize_acqf_mixed_alternating
from torch import Tensor

from sharpgp.bo.constraints import Fixed, Region

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
# Largest such deviations, round by round, where a region is searched without gradients.
_ROUNDS = (0.1, 0.03, 0.01)


def candidates(
    region: Region, best: Tensor, seed: int, fixed: Fixed | None = None
) -> tuple[Tensor, Tensor]:
    """Points all over the region [n, d] and around the best ones [m, d], in unit coordinates."""
    wide = region.sample(GLOBAL, seed, fixed)
    centres = best.repeat_interleave(AROUND, 0)
    return wide, around(region, centres, seed, fixed, (_NEAREST, _FARTHEST))


def around(
    region: Region, centres: Tensor, seed: int, fixed: Fixed | None, far: tuple[float, float]
) -> Tensor:
    """One point of the region near each centre [m, d], between two distances off; some fail."""
    generator, space = torch.Generator().manual_seed(seed), region.space

    def uniform(*shape: int) -> Tensor:
        return torch.rand(*shape, generator=generator, dtype=torch.float64)

    low, high = space.unit_bounds
    deviation = far[0] * (far[1] / far[0]) ** uniform(len(centres), 1)
    step = torch.randn(centres.shape, generator=generator, dtype=torch.float64) * deviation
    near = torch.minimum(torch.maximum(centres + step * (high - low), low), high)
    if bool(space.whole.any()):
        # Values jump: each stays, or is drawn anew.
        fresh, jump = space.snapped(uniform(*near.shape)), uniform(*near.shape) < 1.0 / space.d
        near = torch.where(space.whole, torch.where(jump, fresh, centres), near)
    if fixed or region.given:
        near = region.of(region.repaired(near, fixed, generator))
    return near


def maximise(
    acquisition: AcquisitionFunction,
    region: Region,
    best: Tensor,
    pending: Tensor,
    seed: int,
    fixed: Fixed | None = None,
) -> Tensor:
    """The point [d] where an acquisition function is largest, all in unit coordinates.

    The search also starts around the best points so far [b, d]; what it finds is apart from those
    that are being run [p, d], has the ``fixed`` coordinates and is in the region.  BoTorch's
    searches do it; where inputs take values, or a region is more than sums, what they find is
    beside the best of ever closer points in the region.
    """
    space = region.space
    with warnings.catch_warnings(), torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        # A descent from a poor start may stall; the others go on.
        warnings.simplefilter("ignore", BotorchWarning)
        warnings.simplefilter("ignore", RuntimeWarning)
        point: Tensor
        wide, near = candidates(region, best, seed, fixed)
        mixed, Z = bool(space.whole.any()), torch.cat([wide, near])
        if mixed and not region.given:
            # With sums this search takes seconds to draw its starts.
            point, _ = optimize_acqf_mixed_alternating(
                acquisition,
                space.unit_bounds,
                discrete_dims=space.steps(categorical=False),
                cat_dims=space.steps(categorical=True),
                q=1,
                raw_samples=GLOBAL,
                num_restarts=2 * _NEAR_STARTS,
                options={"maxiter_continuous": _MAX_STEPS},
                fixed_features=dict(fixed or {}),
            )
            Z = torch.cat([Z, point])
        if mixed or not region.simple:
            point = _of_region(acquisition, region, Z, seed, fixed)
        else:
            with torch.no_grad():
                of_wide, of_near = (acquisition(part.unsqueeze(1)) for part in (wide, near))
            start, _ = initialize_q_batch(
                wide.unsqueeze(1), of_wide, n=min(2 * _NEAR_STARTS, len(wide))
            )
            nearest = near[of_near.topk(min(_NEAR_STARTS, len(near))).indices]
            start = torch.cat([start, nearest.unsqueeze(1)])
            point = _climbed(acquisition, region, start, dict(fixed or {}))
    point = point.detach()
    if not bool(apart(point, pending).all()) or not len(region.of(point)):
        others = Z[apart(Z, pending)]
        if len(others):
            with torch.no_grad():
                return others[int(acquisition(others.unsqueeze(1)).argmax())]
    return point[0]


def _climbed(
    acquisition: AcquisitionFunction, region: Region, start: Tensor, fixed: dict[int, float]
) -> Tensor:
    """The best end [1, d] of descents from starts [n, 1, d] that keep to the region's sums."""
    point, _ = optimize_acqf(
        acquisition,
        region.space.unit_bounds,
        q=1,
        num_restarts=len(start),
        batch_initial_conditions=start,
        options={"maxiter": _MAX_STEPS},
        fixed_features=fixed or None,
        inequality_constraints=region.inequalities or None,
        equality_constraints=region.equalities or None,
    )
    found: Tensor = point
    return found


def _of_region(
    acquisition: AcquisitionFunction, region: Region, Z: Tensor, seed: int, fixed: Fixed | None
) -> Tensor:
    """The best point [1, d]: ever closer points around the best of ``Z`` [n, d], and descents.

    Descents keep what takes values, and inputs that are zero where few may be used.
    """
    with torch.no_grad():
        value = acquisition(Z.unsqueeze(1))
        for k, far in enumerate(_ROUNDS):
            centres = Z[value.topk(min(BEST, len(Z))).indices].repeat_interleave(AROUND, 0)
            more = around(region, centres, seed + k, fixed, (far / 10.0, far))
            if len(more):
                Z, value = torch.cat([Z, more]), torch.cat([value, acquisition(more.unsqueeze(1))])
    best, top = Z[value.argmax()], float(value.max())
    few = {j for columns, _ in region.few for j in columns.tolist()}
    tried: set[tuple[float, ...]] = set()
    for start in Z[value.argsort(descending=True)[: 8 * _NEAR_STARTS]]:
        held = {j: float(z) for j, z in enumerate(start) if region.space.whole[j]}
        held |= {j: float(start[j]) for j in few if start[j] == region.zero[j]} | dict(fixed or {})
        key = tuple(held.get(j, -1.0) for j in range(len(start)))
        if key in tried or len(held) == len(start) or len(tried) == _NEAR_STARTS:
            continue
        tried.add(key)
        try:
            point = _climbed(acquisition, region, start[None, None], held)
        except (RuntimeError, ValueError):  # what is left cannot move within the sums
            continue
        with torch.no_grad():
            found = float(acquisition(point.unsqueeze(1)))
        if found > top and len(region.of(point)):
            best, top = point[0], found
    return best[None]


def apart(Z: Tensor, pending: Tensor) -> Tensor:
    """Whether points [n, d] are apart from all pending ones [p, d]."""
    distance = (Z.unsqueeze(1) - pending).abs().amax(-1)
    return (distance >= APART).all(1)
