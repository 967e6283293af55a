"""Weights of several models from their out-of-fold predictions, and what the weighted pool says."""

from collections.abc import Callable

import numpy as np
import torch
from scipy.optimize import minimize
from torch import Tensor

from sharpgp.exceptions import InvalidInputError

#: Strength of the pull to equal weights, divided by the number of points
#: (``sharpgp bench evidence pooling``: 0 to 3 are alike, 30 is too much).
PULL = 1.0
# A model whose share is smaller changes no prediction that anyone would notice, and costs a fit.
_LEAST_SHARE = 0.01
_MOST_EVALUATIONS = 60
_LEVELS = (0.5, 0.6, 0.7, 0.8, 0.9)
# Floors of a spread that are tried, in mean held-out errors.
_FLOORS = (0.0, 0.25, 1.0)


def unit_sizes(location: Tensor, spread: Tensor, y: Tensor) -> Tensor:
    """Factors [K] by which spreads are multiplied so that scores are of size 1.

    The size of scores ``|y - m_k| / s_k`` is their mean quantile over the levels 0.5 to 0.9, close
    to their deviation if they are normal and not that of a few outliers if they are not.

    Parameters
    ----------
    location, spread : Tensor [K, N]
    y : Tensor [N]

    Examples
    --------
    >>> y = torch.linspace(-1, 1, 101, dtype=torch.float64)
    >>> location, spread = torch.zeros(2, 101).double(), torch.ones(2, 101).double()
    >>> spread[1] = 4.0
    >>> sizes = unit_sizes(location, spread, y)
    >>> round((sizes[0] / sizes[1]).item(), 6)
    4.0
    """
    z = ((y - location) / spread).abs()
    levels = torch.tensor(_LEVELS, dtype=z.dtype, device=z.device)
    # A perfect model has scores of 0; its spread must not become 0.
    return torch.quantile(z, levels, dim=1).mean(0).clamp_min(1e-12)


def spread_floors(
    location: Tensor, spread: Tensor, y: Tensor, weights: Tensor | None = None
) -> Tensor:
    """Floors [K] of spreads: the multiple of a model's mean error with the least held-out CRPS.

    Leaves of equal targets have no spread at all, although other targets turn up there.  Without
    a floor such points have endless scores, and the unit of all spreads explodes.  Models that
    need no floor get 0.

    Parameters
    ----------
    location, spread : Tensor [K, N]
        Predictions of every model for points that it has not seen.
    y : Tensor [N]

    Examples
    --------
    >>> y = torch.cat([torch.zeros(80), torch.linspace(-9, 9, 20)]).double()
    >>> location, spread = torch.zeros(2, 100).double(), torch.ones(2, 100).double()
    >>> spread[1, :90] = 1e-3
    >>> floors = spread_floors(location, spread, y)
    >>> floors[0].item(), floors[1].item() > 0.1
    (0.0, True)
    """
    found = []
    for m, s in zip(location, spread, strict=True):
        error = (y - m).abs().mean()
        floors = [share * error for share in _FLOORS]

        def loss(floor: Tensor, m: Tensor = m, s: Tensor = s) -> float:
            return float(pooled_crps(m, s.maximum(floor), y, weights)[0])

        found.append(min(floors, key=loss))
    return torch.stack(found)


def sized(spread: Tensor, units: Tensor, floors: Tensor) -> Tensor:
    """Spreads [K, T] above their floors [K], in units [K]."""
    return spread.maximum(floors.unsqueeze(-1)) * units.unsqueeze(-1)


def pooled_location_spread(
    weights: Tensor, location: Tensor, spread: Tensor
) -> tuple[Tensor, Tensor]:
    r"""Location and spread [T] of a pool: mean and deviation of the mixture of its models.

    ``m = sum_k w_k m_k`` and ``s^2 = sum_k w_k (s_k^2 + (m_k - m)^2)``: where models disagree, the
    pool is less certain than any of them.

    Parameters
    ----------
    weights : Tensor [K]
        Non-negative, with sum 1.
    location, spread : Tensor [K, T]
        Spreads in the units of :func:`unit_sizes`.

    Examples
    --------
    >>> weights = torch.tensor([0.5, 0.5], dtype=torch.float64)
    >>> location = torch.tensor([[0.0], [2.0]], dtype=torch.float64)
    >>> m, s = pooled_location_spread(weights, location, torch.zeros_like(location))
    >>> m.item(), s.item()
    (1.0, 1.0)
    """
    w = weights.unsqueeze(-1)
    m = (w * location).sum(0)
    return m, (w * (spread.square() + (location - m).square())).sum(0).sqrt()


def pooled_crps(
    location: Tensor, spread: Tensor, y: Tensor, weights: Tensor | None = None
) -> tuple[Tensor, Tensor, Tensor]:
    r"""Mean CRPS of ``m_i + s_i z``, ``z`` drawn from the scores ``(y_j - m_j) / s_j``; slopes.

    With ``d_i = mean_j |z_i - z_j|`` it is ``mean_i s_i (d_i - mean(d) / 2)``, exactly.  Sorting
    gives all ``d_i``, and what they change by, in ``N log N``.

    Parameters
    ----------
    location, spread, y : Tensor [N]
    weights : Tensor [N], optional
        By which all means are taken; None for equal ones.

    Returns
    -------
    crps : Tensor
        One value.
    by_location, by_spread : Tensor [N]
        Its derivatives with respect to ``m`` and ``s``.

    References
    ----------
    T. Gneiting and A. E. Raftery, "Strictly proper scoring rules, prediction, and estimation",
    JASA, 2007, section 4.2.

    Examples
    --------
    >>> y = torch.tensor([0.0, 1.0], dtype=torch.float64)
    >>> crps, *_ = pooled_crps(torch.zeros(2).double(), torch.ones(2).double(), y)
    >>> crps.item()
    0.25
    """
    z, order = ((y - location) / spread).sort()
    s = spread[order]
    w = torch.ones_like(z) if weights is None else weights[order]
    w = w / w.sum()
    # Points below less points above, by weight and by spread; the point itself is neither.
    count = 2.0 * w.cumsum(0) - w - 1.0
    sums, spreads = (w * z).cumsum(0), (w * s).cumsum(0)
    balance = 2.0 * spreads - w * s - spreads[-1]
    distance = count * z - 2.0 * sums + w * z + sums[-1]
    excess = distance - 0.5 * (w @ distance)
    by_score = w * ((s - spreads[-1]) * count + balance)
    back = order.argsort()
    by_location = (-by_score / s)[back]
    return w @ (s * excess), by_location, (w * excess - by_score * z / s)[back]


def pool_weights(
    location: Tensor,
    spread: Tensor,
    y: Tensor,
    row_weights: Tensor | None = None,
    *,
    pull: float = PULL,
) -> Tensor:
    r"""Weights [K] on the simplex with the least out-of-fold CRPS of the pool.

    Minimises ``crps(w) / c + (pull / N) K sum_k (w_k - 1/K)^2``, with ``crps`` of
    :func:`pooled_crps` at the location and spread of :func:`pooled_location_spread` and ``c`` the
    least CRPS of a single model: neither units nor a common factor of spreads matter.  The pull to
    equal weights falls with the number of points; it also makes models that say the same share
    their weight.  The search starts from equal weights and from the best single model.

    Parameters
    ----------
    location, spread : Tensor [K, N]
        Predictions of every model for points that it has not seen.
    y : Tensor [N]
    pull : float

    Returns
    -------
    Tensor [K]
        Shares under 1 % are set to 0.

    References
    ----------
    Y. Yao, A. Vehtari, D. Simpson and A. Gelman, "Using stacking to average Bayesian predictive
    distributions", Bayesian Analysis, 2018.

    Examples
    --------
    >>> generator = torch.Generator().manual_seed(0)
    >>> y = torch.randn(200, dtype=torch.float64, generator=generator)
    >>> location = torch.stack([0.9 * y, torch.zeros_like(y)])
    >>> spread = torch.ones_like(location)
    >>> pool_weights(location, spread, y).tolist()
    [1.0, 0.0]
    """
    location, spread, y = (a.detach().double().cpu() for a in (location, spread, y))
    _check(location, spread, y)
    k, n = location.shape
    if k == 1:
        return torch.ones(1, dtype=torch.float64)
    s = spread * unit_sizes(location, spread, y).unsqueeze(-1)
    rows = None if row_weights is None else row_weights.detach().double().cpu()
    each = zip(location, s, strict=True)
    single = torch.stack([pooled_crps(*one, y, rows)[0] for one in each])
    best = int(single.argmin())
    single = single.clamp_min(torch.finfo(torch.float64).tiny)
    unit = single[best]
    strength = pull * k / n

    def objective(weights: np.ndarray) -> tuple[float, np.ndarray]:
        w = torch.from_numpy(weights)
        m, deviation = pooled_location_spread(w, location, s)
        crps, by_m, by_s = pooled_crps(m, deviation, y, rows)
        # On the simplex sum_k w_k (m_k - m) is 0, so m moves the squared spread only directly.
        by_w = location @ by_m + (s.square() + (location - m).square()) @ (0.5 * by_s / deviation)
        away = w - 1.0 / k
        value = crps / unit + strength * away.square().sum()
        return value.item(), (by_w / unit + 2.0 * strength * away).numpy()

    # A little inside the simplex: at a corner some gradients are those of a spread at its edge.
    # Models get less the worse they are, as one that is far worse dominates the CRPS of any pool
    # that it is part of.
    corner = (0.05 / k * unit / single).numpy()
    corner[best] += 1.0 - corner.sum()
    found = [_descend(objective, start) for start in (np.full(k, 1.0 / k), corner)]
    # A descent among models of very different size may not get to the edge that it aims at.
    found.append(np.eye(k)[best])
    w = min((_without_least(one) for one in found), key=lambda one: objective(one)[0])
    return torch.from_numpy(w)


def _without_least(w: np.ndarray) -> np.ndarray:
    """The same weights without shares that change no prediction."""
    w = np.where(w < _LEAST_SHARE, 0.0, w)
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
        options={"maxiter": _MOST_EVALUATIONS, "ftol": 1e-7},
    )
    w = np.clip(found.x, 0.0, None)
    return w / w.sum() if np.isfinite(w).all() and w.sum() > 0.0 else start


def _check(location: Tensor, spread: Tensor, y: Tensor) -> None:
    shapes = tuple(location.shape), tuple(spread.shape), tuple(y.shape)
    if location.dim() != 2 or shapes[0] != shapes[1] or shapes[0][1:] != shapes[2]:
        raise InvalidInputError(
            "pool: expected location and spread [K, N] and y [N], found "
            f"{', '.join(str(list(shape)) for shape in shapes)}"
        )
    finite = bool(torch.isfinite(location).all() and torch.isfinite(spread).all())
    if not finite or not bool((spread > 0).all()):
        k = next(
            k
            for k in range(len(location))
            if not torch.isfinite(location[k]).all()
            or not (torch.isfinite(spread[k]) & (spread[k] > 0)).all()
        )
        raise InvalidInputError(
            f"pool: expected finite locations and positive spreads, found others in model {k}; "
            "leave it out"
        )
