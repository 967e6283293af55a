"""Ranks among ``C`` scores by the N+1 rule, and quantiles between them."""

import math

import torch
from torch import Tensor

from sharpgp.exceptions import InvalidInputError

#: 0.95 * 100 is slightly above 95 in floating point; ranks this close to a whole number are
#: rounded.
RANK_TOLERANCE = 1e-9


def rank(delta: Tensor, n_scores: int) -> Tensor:
    """Fractional rank ``delta * (C + 1)``, with rounding errors at whole numbers removed.

    Examples
    --------
    >>> rank(torch.tensor([0.07, 0.5], dtype=torch.float64), 99).tolist()
    [7.0, 50.0]
    """
    h = delta * (n_scores + 1)
    nearest = h.round()
    return torch.where((h - nearest).abs() <= RANK_TOLERANCE * (n_scores + 1), nearest, h)


def supported(delta: Tensor, n_scores: int) -> Tensor:
    """Whether ``1/(C+1) <= delta <= C/(C+1)``: where a finite quantile can be exact.

    Examples
    --------
    >>> supported(torch.tensor([0.01, 0.05, 0.95], dtype=torch.float64), 19).tolist()
    [False, True, True]
    """
    h = rank(delta, n_scores)
    return (h >= 1) & (h <= n_scores)


def whole_rank(level: float, n_scores: int, *, up: bool) -> int:
    """Conservative rank: ``ceil`` (or ``floor``) of ``level * (C + 1)``, safe against rounding.

    Examples
    --------
    >>> whole_rank(0.95, 99, up=True), whole_rank(0.025, 99, up=False)
    (95, 2)
    """
    h = float(rank(torch.tensor(level, dtype=torch.float64), n_scores))
    return math.ceil(h) if up else math.floor(h)


def points_needed(delta: float) -> int:
    """Smallest number of calibration points ``C`` that supports the level ``delta``.

    Examples
    --------
    >>> points_needed(0.975), points_needed(0.05)
    (39, 19)
    """
    tail = min(delta, 1.0 - delta)
    return math.ceil(1.0 / tail - 1.0 - 1e-6)


def q_lin(delta: Tensor, z: Tensor) -> Tensor:
    r"""Linearly interpolated order statistics of the scores ``z``.

    Maps ``j/(C+1)`` to the ``j``-th smallest score and is linear in between; differentiable in
    ``z`` through the two order statistics that it uses.

    Parameters
    ----------
    delta : Tensor [K]
        Levels in ``[1/(C+1), C/(C+1)]``.
    z : Tensor [K, C] or [C]
        Scores; one row per level, or one set for all levels.

    Returns
    -------
    Tensor [K]

    References
    ----------
    Capone, Hirche and Pleiss, "Sharp Calibrated Gaussian Processes", NeurIPS 2023, section 5.

    Examples
    --------
    >>> z = torch.tensor([3.0, 1.0, 2.0], dtype=torch.float64)
    >>> q_lin(torch.tensor([0.25, 0.375, 0.75], dtype=torch.float64), z).tolist()
    [1.0, 1.5, 3.0]
    """
    C = z.shape[-1]
    if not bool(supported(delta, C).all()):
        worst = delta[~supported(delta, C)][0].item()
        raise InvalidInputError(
            f"level {worst:g} needs at least {points_needed(worst)} calibration points, "
            f"found {C}; add calibration data or ask for less extreme levels"
        )
    h = rank(delta, C)
    lower = h.floor().clamp(max=C - 1).long()
    weight = h - lower
    ordered = z.sort(dim=-1).values
    at, after = (lower - 1).clamp(min=0), lower.clamp(max=C - 1)
    if ordered.dim() == 1:
        below, above = ordered[at], ordered[after]
    else:
        below = ordered.gather(-1, at.unsqueeze(-1)).squeeze(-1)
        above = ordered.gather(-1, after.unsqueeze(-1)).squeeze(-1)
    return torch.lerp(below, above, weight)
