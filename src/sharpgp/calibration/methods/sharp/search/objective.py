"""What a calibration search minimises, with ``beta`` eliminated: it is always ``q_lin``."""

from collections.abc import Callable
from typing import Protocol

import torch
from torch import Tensor

from sharpgp._ranks import q_lin, rank
from sharpgp._validation import check_choice

#: ``(delta [K], scores [K, C]) -> beta [K]``
Quantile = Callable[[Tensor, Tensor], Tensor]


class Objective(Protocol):
    """What to minimise at each level [K], and the ``beta`` [K] that goes with it."""

    def __call__(
        self, delta: Tensor, r: Tensor, sigma: Tensor, quantile: Quantile = q_lin
    ) -> tuple[Tensor, Tensor]:
        """Objective and ``beta`` [K] at ``delta`` [K], for ``r`` [C] and ``sigma`` [K or 1, C]."""


def smooth_quantile(delta: Tensor, z: Tensor) -> Tensor:
    r"""Order statistics averaged over ranks that differ by chance alone.

    The weight of the ``j``-th smallest score is that of a normal density around the rank
    ``delta (C + 1)``, whose standard deviation is that of a rank, ``sqrt(C delta (1 - delta))``.
    A search on it passes the kinks where two scores change places; shapes as in
    :func:`sharpgp._ranks.q_lin`.

    Examples
    --------
    >>> z = torch.linspace(-2, 2, 99, dtype=torch.float64)
    >>> round(smooth_quantile(torch.tensor([0.5]).double(), z).item(), 6)
    0.0
    """
    C = z.shape[-1]
    ranks = torch.arange(1, C + 1, dtype=z.dtype, device=z.device)
    width = (C * delta * (1.0 - delta)).sqrt().unsqueeze(-1)
    weight = (-0.5 * ((ranks - rank(delta, C).unsqueeze(-1)) / width).square()).softmax(-1)
    return (weight * z.sort(dim=-1).values).sum(-1)


def sharpness(
    delta: Tensor, r: Tensor, sigma: Tensor, quantile: Quantile = q_lin
) -> tuple[Tensor, Tensor]:
    r"""Mean squared distance of the quantile from the mean.

    ``mean_i (beta sigma_i)^2`` with ``beta = q_lin(delta, r / sigma)``.

    Parameters
    ----------
    delta : Tensor [K]
    r : Tensor [C]
        Residuals ``y - mu``.
    sigma : Tensor [K, C] or [1, C]
    quantile : callable
        Computes ``beta``.

    Returns
    -------
    objective, beta : Tensor [K]

    Examples
    --------
    >>> import torch
    >>> r = torch.tensor([-1.0, 0.0, 2.0], dtype=torch.float64)
    >>> value, beta = sharpness(torch.tensor([0.75]).double(), r, torch.ones(1, 3).double())
    >>> value.item(), beta.item()
    (4.0, 2.0)
    """
    beta = quantile(delta, (r / sigma).expand(len(delta), -1))
    return beta.square() * sigma.square().mean(-1), beta


def pinball(
    delta: Tensor, r: Tensor, sigma: Tensor, quantile: Quantile = q_lin
) -> tuple[Tensor, Tensor]:
    r"""Mean pinball loss of the quantile: ``max(delta e, (delta - 1) e)``, ``e = r - beta sigma``.

    Shapes as in :func:`sharpness`.

    Examples
    --------
    >>> import torch
    >>> r = torch.tensor([-1.0, 0.0, 1.0], dtype=torch.float64)
    >>> value, beta = pinball(torch.tensor([0.5]).double(), r, torch.ones(1, 3).double())
    >>> round(value.item(), 4), beta.item()
    (0.3333, 0.0)
    """
    beta = quantile(delta, (r / sigma).expand(len(delta), -1))
    error = r - beta.unsqueeze(-1) * sigma
    level = delta.unsqueeze(-1)
    return (error * (level - (error < 0).to(error))).mean(-1), beta


OBJECTIVES: dict[str, Objective] = {
    "sharpness": sharpness,
    "pinball": pinball,
}


def get_objective(name: str) -> Objective:
    """Objective by name; an unknown name gets an error that lists the known ones."""
    check_choice(name, "objective", OBJECTIVES)
    return OBJECTIVES[name]
