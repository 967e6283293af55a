"""Weights of several models, from their held-out predictions."""

from collections.abc import Callable, Sequence

import numpy as np
import torch
from scipy.optimize import minimize
from torch import Tensor
from torch.special import ndtr

from sharpgp.exceptions import InvalidInputError
from sharpgp.models.laws import Law

#: Strength of the pull to equal weights, divided by the number of points
#: (``sharpgp bench evidence pooling``: 0 to 3 are alike, 30 is too much).
PULL = 1.0
# Models with smaller shares hardly change a prediction, and each takes its time
# (``sharpgp bench evidence pooling``).
_LEAST_SHARE = 0.05
#: Levels of the absolute scores whose mean is their size.
SIZE_LEVELS = (0.5, 0.6, 0.7, 0.8, 0.9)
# Scores at which laws are compared.
_NODES = torch.linspace(-4.0, 4.0, 33, dtype=torch.float64)
# Levels of the quantiles by which a law with the ranks of its scores is judged.
_SCORED = ((torch.arange(99.0) + 0.5) / 99).double()


def unit_size(scores: Tensor, weights: Tensor | None = None) -> float:
    """Size of scores: their mean absolute quantile over the levels 0.5 to 0.9.

    It is close to their deviation if they are normal, and robust to outliers.

    Examples
    --------
    >>> from torch.special import ndtri
    >>> round(unit_size(4.0 * ndtri((torch.arange(100).double() + 0.5) / 100)), 1)
    4.3
    """
    levels = torch.tensor(SIZE_LEVELS, dtype=scores.dtype, device=scores.device)
    # A perfect model has scores of 0; its spread must not become 0.
    return max(float(quantile(scores.abs(), levels, weights).mean()), 1e-12)


def quantile(values: Tensor, levels: Tensor, weights: Tensor | None = None) -> Tensor:
    """Quantiles [L] of values [N], of which each counts by its weight [N].

    Each value is at the middle of its share, with linear interpolation.  Without weights, torch's
    quantiles, which run from the least to the greatest value.

    Examples
    --------
    >>> values, levels = torch.tensor([3.0, 1.0, 2.0]), torch.tensor([0.0, 0.25, 0.5])
    >>> quantile(values, levels).tolist()
    [1.0, 1.5, 2.0]
    >>> quantile(values, levels, torch.tensor([1.0, 6.0, 1.0])).tolist()
    [1.0, 1.0, 1.2857142686843872]
    """
    if weights is None:
        return torch.quantile(values, levels)
    z, order = values.sort()
    w = weights[order]
    middle = (w.cumsum(0) - 0.5 * w) / w.sum()
    above = torch.searchsorted(middle, levels.contiguous()).clamp(1, len(z) - 1)
    left, right = middle[above - 1], middle[above]
    share = ((levels - left) / (right - left)).clamp(0.0, 1.0)
    return torch.lerp(z[above - 1], z[above], share)


def crps_of_scores(law: Law, scores: Tensor, y: Tensor, weights: Tensor | None = None) -> float:
    """Mean CRPS of the values of all scores [N] under the law of each of ``N`` points.

    Twice the mean pinball loss of quantiles at the middles of 99 equal parts.  Scores and points
    count by their weights [N], if given.

    Examples
    --------
    >>> from sharpgp.models.laws import Normal
    >>> y = torch.linspace(-1, 1, 200).double()
    >>> law = Normal(torch.zeros_like(y), torch.ones_like(y))
    >>> round(crps_of_scores(law, y, y), 1)  # of a uniform law on [-1, 1]: a third
    0.3
    """
    levels = _SCORED.to(y.device)
    missed = y - law.value(quantile(scores, levels, weights).unsqueeze(-1))
    levels = levels.unsqueeze(-1)
    loss = torch.maximum(levels * missed, (levels - 1.0) * missed)
    if weights is not None:
        loss = loss * (weights / weights.mean())
    return float(2.0 * loss.mean())


def crps_products(laws: Sequence[Law], y: Tensor, weights: Tensor | None = None) -> Tensor:
    r"""``H`` [K, K] such that the mean CRPS of the mixture of ``K`` laws is ``w' H w``.

    ``H_kl = mean_i int (F_k - 1[y_i <= t]) (F_l - 1[y_i <= t]) dt``, by the midpoint rule between
    values of all laws at fixed scores, so that every law is resolved where it changes.  With
    ``weights`` [N] of the points, their weighted mean.

    Examples
    --------
    >>> from sharpgp.models.laws import Normal
    >>> y = torch.zeros(1).double()
    >>> round(crps_products([Normal(y, y + 1.0)], y).item(), 2)  # (2^0.5 - 1) / pi^0.5
    0.23
    """
    nodes = _NODES.to(y.device).unsqueeze(-1)
    t = torch.cat([*(law.value(nodes) for law in laws), y.unsqueeze(0)]).sort(dim=0).values
    middle, width = 0.5 * (t[1:] + t[:-1]), t.diff(dim=0)
    if weights is not None:
        width = width * (weights / weights.mean())
    above = (middle >= y).to(y)
    away = torch.stack([ndtr(law.score(middle)) - above for law in laws]).flatten(1)
    return (away * width.flatten()) @ away.T / len(y)


def pool_weights(products: Tensor, n: int, *, pull: float = PULL) -> Tensor:
    r"""Weights [K] on the simplex with the least out-of-fold CRPS of the mixture.

    Minimises ``w' H w / c + (pull / N) K sum_k (w_k - 1/K)^2`` with ``c`` the least CRPS of a
    single model, a convex problem.  The pull to equal weights falls with the number ``N`` of
    points; it also splits weight evenly among models with the same predictions.

    Parameters
    ----------
    products : Tensor [K, K]
        ``H``, see :func:`crps_products`.
    n : int
    pull : float

    Returns
    -------
    Tensor [K]
        Shares under 5 % are set to 0.

    References
    ----------
    Y. Yao, A. Vehtari, D. Simpson and A. Gelman, "Using stacking to average Bayesian predictive
    distributions", Bayesian Analysis, 2018.

    Examples
    --------
    >>> pool_weights(torch.tensor([[1.0, 2.0], [2.0, 5.0]]).double(), 100).tolist()
    [1.0, 0.0]
    """
    H = products.detach().double().cpu()
    if not bool(torch.isfinite(H).all()):
        k = int((~torch.isfinite(H.diagonal())).nonzero()[0, 0])
        raise InvalidInputError(
            f"pool: expected finite scores of every model, found others in model {k}; leave it out"
        )
    k = len(H)
    least = H.diagonal().min().clamp_min(torch.finfo(torch.float64).tiny)
    scaled: np.ndarray = (H / least).numpy()
    strength = pull * k / n

    def objective(w: np.ndarray) -> tuple[float, np.ndarray]:
        away, product = w - 1.0 / k, scaled @ w
        return float(w @ product + strength * away @ away), 2.0 * (product + strength * away)

    best = np.eye(k)[int(scaled.diagonal().argmin())]
    # Among models of very different scale, a descent may stop short of the simplex's edge.
    found = [_descend(objective, start) for start in (np.full(k, 1.0 / k), best)] + [best]
    return torch.from_numpy(min(map(_without_least, found), key=lambda w: objective(w)[0]))


def _without_least(w: np.ndarray) -> np.ndarray:
    """The same weights without negligible shares: less than half of an equal one, if many share."""
    w = np.where(w < min(_LEAST_SHARE, 0.5 / len(w)), 0.0, w)
    return np.asarray(w / w.sum())


def _descend(
    objective: Callable[[np.ndarray], tuple[float, np.ndarray]], start: np.ndarray
) -> np.ndarray:
    """The best point of the simplex that a descent from ``start`` finds."""
    found = minimize(
        objective,
        start,
        jac=True,
        method="SLSQP",
        bounds=[(0.0, 1.0)] * len(start),
        constraints={"type": "eq", "fun": lambda w: w.sum() - 1.0, "jac": np.ones_like},
        options={"ftol": 1e-9},
    )
    w = np.clip(found.x, 0.0, None)
    return w / w.sum() if np.isfinite(w).all() and w.sum() > 0.0 else start
