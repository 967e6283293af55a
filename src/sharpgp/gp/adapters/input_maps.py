"""A posterior with any fixed map of its inputs and any fixed prior mean."""

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Self

from torch import Tensor

from sharpgp._forwarded import forwarded
from sharpgp.gp.posterior import DataPosterior
from sharpgp.gp.wrappers.wrapper import WrappedPosterior
from sharpgp.rows import Inputs, Rows

#: From inputs [T, d] to inputs [T, d'], or to a prior mean [T].
Map = Callable[[Tensor], Tensor]


@dataclass(frozen=True, eq=False, repr=False)
class MappedPosterior(WrappedPosterior):
    r"""``mu(x) = m(g(x)) + mu_0(g(x))`` and ``sigma(theta, x) = sigma_0(theta, g(x))``.

    Parameters
    ----------
    base : DataPosterior
        The GP on mapped inputs and on targets less the prior mean.
    X, y : Tensor [N, d], Tensor [N]
        Training data in the user's units.
    inputs : Map
        ``g``, such as a warping.
    prior_mean : Map
        ``m``, of mapped inputs and in the target's units.
    """

    base: DataPosterior
    X: Tensor
    y: Tensor
    inputs: Map
    prior_mean: Map

    def _around(self, base: DataPosterior, rows: Rows, y: Tensor) -> Self:
        return type(self)(base, rows.X, y, self.inputs, self.prior_mean)

    def _inputs(self, rows: Rows) -> Rows:
        return replace(rows, X=self.inputs(rows.X))

    def _targets(self, rows: Rows, y: Tensor) -> Tensor:
        return y - self.prior_mean(self.inputs(rows.X))

    @property
    def n_features(self) -> int:
        return self.X.shape[1]

    @property
    def input_range(self) -> tuple[Tensor, Tensor]:
        return self.X.amin(0), self.X.amax(0)

    @property
    def rows(self) -> Rows:
        """The GP's rows, before the map."""
        return replace(self.base.rows, X=self.X)

    y_train = forwarded("y")

    def mean(self, rows: Inputs) -> Tensor:
        Z = self.inputs(Rows.of(rows).X)
        return self.prior_mean(Z) + self.base.mean(Z)

    def loo(self, theta: Tensor) -> tuple[Tensor, Tensor]:
        mean, sigma = self.base.loo(theta)
        return mean + self.prior_mean(self.inputs(self.X)), sigma

    def left_out(self, rows: Tensor) -> tuple[Tensor, Tensor]:
        mean, sigma = self.base.left_out(rows)
        return mean + self.prior_mean(self.inputs(self.X[rows])), sigma
