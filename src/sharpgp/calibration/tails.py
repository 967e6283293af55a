"""The one rule for what lies beyond the outermost scores."""

import torch
from torch import Tensor

from sharpgp._tail import Tail
from sharpgp.exceptions import InvalidInputError

# Fewer would leave the mean excess to two or three values, and the variance infinite.
_LEAST_SCORES, _LEAST_DEGREES = 3, 3.0


def outer_ranks(n_scores: int) -> int:
    """Number ``k`` of scores that tell about a tail: a tenth, at least three, at most a half.

    Examples
    --------
    >>> [outer_ranks(C) for C in (2, 5, 19, 39, 99)]
    [1, 3, 3, 4, 10]
    """
    return min(max(_LEAST_SCORES, round(0.1 * (n_scores + 1))), (n_scores + 1) // 2)


def check_enough(n_scores: int) -> None:
    """Raise where there are too few points for any tail."""
    if n_scores < 2:
        raise InvalidInputError(
            f"a predictive distribution needs at least 2 calibration points, found {n_scores}; "
            "add data"
        )


def pooled_tail(
    z: Tensor, n_scores: int, *, level: Tensor | None = None, weights: Tensor | None = None
) -> Tail:
    r"""Law of what lies beyond the first and the last of sorted scores, the same on both sides.

    Of the ``k`` outermost scores on each side (:func:`outer_ranks`), ``m = 2 (k - 1)`` exceed the
    ``k``-th.  With ``tau`` the mean of these excesses, exponential excesses beyond the ``k``-th
    score have the predictive quantiles ``tau m ((p_k / p)^(1/m) - 1)``.  The tail is that curve
    from the outermost score on: its scale there is ``tau + e / m``, where ``e`` is how far the
    outermost scores exceed the ``k``-th, as a mean of both sides.

    Parameters
    ----------
    z : Tensor [..., C]
        Scores, sorted along the last axis.
    n_scores : int
        Number of points of equal weight that they are worth.
    level, weights : Tensor [C], optional
        Levels and weights of the scores, where these are not equal.  The outer scores are then
        those with levels up to ``k / (n_scores + 1)``, and ``m`` is their effective number.

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
    below = z[..., low - 1 : low] - z[..., : low - 1]
    above = z[..., C - high + 1 :] - z[..., C - high : C - high + 1]
    excess = torch.cat([below, above], dim=-1)
    if excess.shape[-1] == 0:  # two points: their distance is all there is
        return Tail(z[..., -1] - z[..., 0], _LEAST_DEGREES)
    weights = z.new_ones(C) if weights is None else weights
    w = torch.cat([weights[: low - 1], weights[C - high + 1 :]])
    degrees = max(_LEAST_DEGREES, float(w.sum().square() / w.square().sum()))
    mean = excess @ w / w.sum()
    reach = (z[..., low - 1] - z[..., 0] + z[..., -1] - z[..., C - high]) / 2.0
    return Tail(mean + reach / degrees, degrees)
