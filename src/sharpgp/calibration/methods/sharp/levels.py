"""Which confidence levels to train, given the number of calibration points."""

import math
from collections.abc import Sequence

import numpy as np
import torch
from torch import Tensor

from sharpgp._ranks import points_needed, supported
from sharpgp.calibration.ranks import DEFAULT_GRID, thinned
from sharpgp.exceptions import InvalidInputError

#: What a user may pass as ``levels``: None, a count, ``"all"``, one level, or several.
Levels = int | float | str | Sequence[float] | np.ndarray | Tensor | None


def resolve_levels(levels: Levels, n_scores: int) -> Tensor:
    """Levels [K] to train, strictly increasing and supported by ``C`` calibration points.

    ``None`` is the default grid, clipped to ``[1/(C+1), C/(C+1)]``; an integer gives that many
    levels over the same range, denser in the tails; ``"all"`` gives the ``C`` levels ``j/(C+1)``
    of the paper's theorem; numbers in (0, 1) are used as given.

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
        lower = thinned(grid[grid <= 0.5], 0.5 * lowest)
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
