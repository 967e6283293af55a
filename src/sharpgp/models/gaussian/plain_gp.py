"""A trained GP with its own spread, or with a constant one."""

from dataclasses import dataclass
from typing import Self

import torch
from torch import Tensor

from sharpgp._stored import stored
from sharpgp.gp.posterior import Posterior
from sharpgp.models.model import GPModel
from sharpgp.rows import Inputs


@stored("PosteriorModel")
@dataclass(frozen=True, eq=False, repr=False)
class PosteriorModel(GPModel):
    """``mu(x)`` and ``sigma(theta_R, x)`` of a posterior.

    Examples
    --------
    >>> import torch
    >>> from sharpgp.gp.training import train
    >>> X = torch.linspace(0, 6, 30, dtype=torch.float64)[:, None]
    >>> model = PosteriorModel(train(X, X[:, 0].sin())[0])
    >>> bool(model.score(X, model.value(X, torch.ones(1, 1).double())[0]).sub(1).abs().max() < 1e-9)
    True
    """

    posterior: Posterior

    def location(self, rows: Inputs) -> Tensor:
        return self.posterior.mean(rows)

    def location_and_spread(self, rows: Inputs) -> tuple[Tensor, Tensor]:
        return self.posterior.mean_and_sigma(rows)

    def extended(self, rows: Inputs, y: Tensor) -> Self:
        return type(self)(self.posterior.extended(rows, y))

    updated = extended


@stored("ConstantSpread")
class ConstantSpread(PosteriorModel):
    """``mu(x)`` of a posterior, and a spread of 1 everywhere.

    Examples
    --------
    >>> import torch
    >>> from sharpgp.gp.training import train
    >>> X = torch.linspace(0, 6, 30, dtype=torch.float64)[:, None]
    >>> ConstantSpread(train(X, X[:, 0].sin())[0]).law(X[:2]).spread.tolist()
    [1.0, 1.0]
    """

    normalised = False

    def location_and_spread(self, rows: Inputs) -> tuple[Tensor, Tensor]:
        location = self.location(rows)
        return location, torch.ones_like(location)
