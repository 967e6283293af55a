"""What a calibration search minimises, with ``beta`` eliminated: it is always ``q_lin``."""

from collections.abc import Callable

from torch import Tensor

from sharpgp._ranks import q_lin
from sharpgp._validation import check_choice

#: ``(delta [K], residuals [C], sigma [K or 1, C]) -> (objective [K], beta [K])``
Objective = Callable[[Tensor, Tensor, Tensor], tuple[Tensor, Tensor]]


def sharpness(delta: Tensor, r: Tensor, sigma: Tensor) -> tuple[Tensor, Tensor]:
    r"""Mean squared distance of the quantile from the mean.

    ``mean_i (beta sigma_i)^2`` with ``beta = q_lin(delta, r / sigma)``.

    Parameters
    ----------
    delta : Tensor [K]
    r : Tensor [C]
        Residuals ``y - mu``.
    sigma : Tensor [K, C] or [1, C]

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
    beta = q_lin(delta, (r / sigma).expand(len(delta), -1))
    return beta.square() * sigma.square().mean(-1), beta


def pinball(delta: Tensor, r: Tensor, sigma: Tensor) -> tuple[Tensor, Tensor]:
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
    beta = q_lin(delta, (r / sigma).expand(len(delta), -1))
    error = r - beta.unsqueeze(-1) * sigma
    level = delta.unsqueeze(-1)
    return (error * (level - (error < 0).to(error))).mean(-1), beta


OBJECTIVES: dict[str, Objective] = {"sharpness": sharpness, "pinball": pinball}


def get_objective(name: str) -> Objective:
    """Objective by name; an unknown name gets an error that lists the known ones."""
    check_choice(name, "objective", OBJECTIVES)
    return OBJECTIVES[name]
