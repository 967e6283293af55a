"""Which confidence levels to train and to tabulate, given the number of calibration points."""

import math
from collections.abc import Sequence

import numpy as np
import torch
from torch import Tensor

from sharpgp.calibration.quantile import points_needed, rank, supported
from sharpgp.exceptions import InvalidInputError

#: What a user may pass as ``levels``: None, a count, ``"all"``, one level, or several.
Levels = int | float | str | Sequence[float] | np.ndarray | Tensor | None

#: The default grid: every 0.05, denser in the tails.
DEFAULT_GRID = (
    *(0.005, 0.01, 0.025),
    *(round(0.05 * j, 2) for j in range(1, 20)),
    *(0.975, 0.99, 0.995),
)


def resolve_levels(levels: Levels, n_scores: int) -> Tensor:
    """Levels [K] to train, strictly increasing and supported by ``C`` calibration points.

    ``None`` is the default grid, clipped to ``[1/(C+1), C/(C+1)]``; an integer gives that many
    levels over the same range, denser in the tails; ``"all"`` gives the ``C`` levels ``j/(C+1)``
    of the paper's theorem; numbers in (0, 1) are taken as they are.

    Examples
    --------
    >>> resolve_levels("all", 3).tolist()
    [0.25, 0.5, 0.75]
    >>> len(resolve_levels(None, 1000)), len(resolve_levels(7, 100))
    (25, 7)
    """
    if n_scores < 1:
        raise InvalidInputError("expected at least 1 calibration point, found 0; add data")
    lowest = 1.0 / (n_scores + 1)
    if levels is None:
        grid = torch.tensor(DEFAULT_GRID, dtype=torch.float64).clamp(min=lowest)
        lower = _thinned(grid[grid <= 0.5], 0.5 * lowest)
        return torch.cat([lower, 1.0 - lower.flip(0)]).unique()
    if isinstance(levels, str):
        if levels != "all":
            raise InvalidInputError(
                f"levels: expected None, a count, 'all' or numbers in (0, 1), found {levels!r}"
            )
        return torch.arange(1, n_scores + 1, dtype=torch.float64) / (n_scores + 1)
    if isinstance(levels, (int, np.integer)) and not isinstance(levels, bool):
        return _spread(int(levels), n_scores)
    return _given(levels, n_scores)


def table_levels(n_scores: int | None) -> Tensor:
    """Levels at which a predictive distribution is tabulated.

    Neighbours are at least two ranks apart, so that no density is read off a single gap between
    two scores, and two scores lie in each tail.

    Examples
    --------
    >>> table_levels(19)[:3].tolist()
    [0.1, 0.2, 0.3]
    """
    grid = torch.tensor(DEFAULT_GRID, dtype=torch.float64)
    if n_scores is None:
        return grid
    if n_scores < 2:
        raise InvalidInputError(
            f"a predictive distribution needs at least 2 calibration points, found {n_scores}; "
            "add data"
        )
    gap = 2.0 / (n_scores + 1)
    lower = _thinned(grid[(grid > gap - 1e-12) & (grid <= 0.5)], gap)
    if len(lower) == 0 or lower[0] == 0.5:
        # Too few scores for the rule: the two outermost levels that they support.
        return torch.tensor([1.0, n_scores], dtype=torch.float64) / (n_scores + 1)
    return torch.cat([lower, 1.0 - lower.flip(0)]).unique()


def _thinned(grid: Tensor, gap: float) -> Tensor:
    """Increasing levels with those dropped that are closer than ``gap`` to the one before."""
    kept: list[float] = []
    for value in grid.tolist():
        if not kept or value - kept[-1] > gap - 1e-12:
            kept.append(value)
    return torch.tensor(kept, dtype=torch.float64)


def _spread(count: int, n_scores: int) -> Tensor:
    if count < 1:
        raise InvalidInputError(f"levels: expected at least 1 level, found {count}")
    lowest = 1.0 / (n_scores + 1)
    if count == 1:
        return torch.tensor([0.5], dtype=torch.float64)
    angle = torch.linspace(0.0, math.pi, count, dtype=torch.float64)
    spread = 0.5 * (1.0 - angle.cos())
    grid = lowest + spread * (1.0 - 2.0 * lowest)
    if count > 1 and n_scores == 1:
        raise InvalidInputError(
            f"levels: {count} levels need at least 2 calibration points, found 1; add data"
        )
    return grid


def _given(levels: Levels, n_scores: int) -> Tensor:
    try:
        array = np.atleast_1d(np.asarray(levels, dtype=np.float64))
    except (TypeError, ValueError):
        raise InvalidInputError(f"levels: expected numbers in (0, 1), found {levels!r}") from None
    check_levels(array)
    grid = torch.from_numpy(np.unique(array))
    unsupported = grid[~supported(grid, n_scores)]
    if len(unsupported):
        worst = min(unsupported.tolist(), key=lambda p: min(p, 1 - p))
        raise InvalidInputError(
            f"level {worst:g} needs at least {points_needed(worst)} calibration points, found "
            f"{n_scores}; add calibration data or ask for less extreme levels"
        )
    return grid


def check_levels(levels: np.ndarray) -> None:
    """Raise unless every entry is a number strictly between 0 and 1."""
    if levels.ndim != 1 or levels.size == 0:
        raise InvalidInputError(
            f"levels: expected one or more numbers in (0, 1), found shape {levels.shape}"
        )
    bad = levels[~((levels > 0) & (levels < 1))]
    if bad.size:
        raise InvalidInputError(f"levels: expected numbers in (0, 1), found {bad[0]:g}")


def whole_rank(level: float, n_scores: int, *, up: bool) -> int:
    """Conservative rank: ``ceil`` (or ``floor``) of ``level * (C + 1)``, safe against rounding.

    Examples
    --------
    >>> whole_rank(0.95, 99, up=True), whole_rank(0.025, 99, up=False)
    (95, 2)
    """
    h = float(rank(torch.tensor(level, dtype=torch.float64), n_scores))
    return math.ceil(h) if up else math.floor(h)
