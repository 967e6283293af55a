"""The rule for what lies beyond the outermost scores."""

import torch
from torch import Tensor

from sharpgp._tail import Tail
from sharpgp.exceptions import InvalidInputError

# Fewer would leave the mean excess to two or three values, and the variance infinite.
_LEAST_SCORES, _LEAST_DEGREES = 3, 3.0


def outer_ranks(n_scores: int) -> int:
    """Number ``k`` of scores used for a tail: a tenth, at least three, at most a half.

    Examples
    --------
    >>> [outer_ranks(C) for C in (2, 5, 19, 39, 99)]
    [1, 3, 3, 4, 10]
    """
    return min(max(_LEAST_SCORES, round(0.1 * (n_scores + 1))), (n_scores + 1) // 2)


def check_enough(n_scores: int) -> None:
    """Raise if there are too few points for any tail."""
    if n_scores < 2:
        raise InvalidInputError(
            f"a predictive distribution needs at least 2 calibration points, found {n_scores}; "
            "add data"
        )


def group_weights(weights: Tensor, groups: Tensor) -> Tensor:
    """Weight [G] of each group, from those of its points [C]; groups count from 0.

    Examples
    --------
    >>> group_weights(torch.tensor([0.5, 1.0, 0.5]), torch.tensor([0, 1, 0])).tolist()
    [1.0, 1.0]
    """
    return weights.new_zeros(int(groups.max()) + 1).index_add(0, groups, weights)


def pooled_tail(
    z: Tensor,
    n_scores: int,
    *,
    level: Tensor | None = None,
    weights: Tensor | None = None,
    groups: Tensor | None = None,
    ends: Tensor | None = None,
    upper_only: bool = False,
) -> Tail:
    r"""Distribution beyond the first and the last of sorted scores, the same on both sides.

    Each side has ``k`` outermost scores (:func:`outer_ranks`); in all, ``m = 2 (k - 1)`` exceed
    their ``k``-th.  With ``tau`` the mean of these excesses, exponential excesses beyond the
    ``k``-th score have the predictive quantiles ``tau m ((p_k / p)^(1/m) - 1)``.  The tail is that
    curve from the outermost score on: its scale there is ``tau + e / m``, where ``e`` is how far
    the outermost scores exceed the ``k``-th, as a mean of both sides.

    Parameters
    ----------
    z : Tensor [..., C]
        Scores, sorted along the last axis.
    n_scores : int
        Effective number of points of equal weight.
    level, weights : Tensor [C], optional
        Levels and weights of the scores, where these are not equal.  The outer scores are then
        those with levels up to ``k / (n_scores + 1)``, and ``m`` is their effective number.
    groups : Tensor [C], optional
        Groups of the scores, counted from 0.  Scores in the same group as a ``k``-th score do not
        count as excesses over it, and ``m`` is the effective number of groups with excesses.
    ends : Tensor [2], optional
        Where the tails begin, if not at the outermost scores.
    upper_only : bool
        Whether there is no tail below, as absolute scores have none.

    Examples
    --------
    >>> tail = pooled_tail(torch.arange(1.0, 20.0, dtype=torch.float64), 19)
    >>> float(tail.scale), tail.degrees
    (2.0, 4.0)
    """
    check_enough(n_scores)
    C = z.shape[-1]
    low = high = outer_ranks(n_scores)
    if level is not None:
        share = low / (n_scores + 1) + 1e-9
        low = max(1, int((level <= share).sum()))
        high = max(1, int((level >= 1.0 - share).sum()))
    if groups is None:
        groups = torch.arange(C, device=z.device)
    first, last = low - 1, C - high
    others = [groups[:first] != groups[first], groups[last + 1 :] != groups[last]]
    under, over = others[0].nonzero()[:, 0], last + 1 + others[1].nonzero()[:, 0]
    if upper_only:
        under = under[:0]
    outer = torch.cat([under, over])
    if len(outer) == 0:  # two points: only their distance is known
        return Tail(z[..., -1] - z[..., 0], _LEAST_DEGREES)
    start, end = z[..., first], z[..., last]
    excess = torch.cat([start[..., None] - z[..., under], z[..., over] - end[..., None]], dim=-1)
    w = (z.new_ones(C) if weights is None else weights)[outer]
    degrees = float(w.sum().square() / group_weights(w, groups[outer]).square().sum())
    degrees = max(_LEAST_DEGREES, degrees)
    lower, upper = (z[..., 0], z[..., -1]) if ends is None else ends
    reach = upper - end if upper_only else (start - lower + upper - end) / 2.0
    return Tail(excess @ w / w.sum() + reach.clamp(min=0.0) / degrees, degrees)
