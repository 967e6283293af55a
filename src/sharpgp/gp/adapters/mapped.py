"""A posterior behind maps of its inputs and a prior mean that are fixed, whatever they are."""

import copy
from collections.abc import Callable
from typing import Self

import torch
from torch import Tensor

from sharpgp.gp.posterior import DataPosterior, Posterior

#: From inputs [T, d] to inputs [T, d'], or to a prior mean [T].
Map = Callable[[Tensor], Tensor]


class MappedPosterior(Posterior):
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

    def __init__(
        self, base: DataPosterior, X: Tensor, y: Tensor, inputs: Map, prior_mean: Map
    ) -> None:
        self.base = base
        self.theta_R, self.names, self.searched = base.theta_R, base.names, base.searched
        self._X, self._y = X, y
        self._inputs, self._prior_mean = inputs, prior_mean

    @property
    def n_train(self) -> int:
        """Number of training points ``N``."""
        return self.base.n_train

    @property
    def n_features(self) -> int:
        """Number of features ``d``."""
        return self._X.shape[1]

    @property
    def n_inducing(self) -> int | None:
        """Number of inducing inputs of a sparse GP; None for an exact one."""
        return self.base.n_inducing

    @property
    def device(self) -> torch.device:
        """Where tensors live."""
        return self.base.device

    @property
    def X_train(self) -> Tensor:
        """Training inputs [N, d] in the user's units."""
        return self._X

    @property
    def y_train(self) -> Tensor:
        """Training targets [N] in the user's units."""
        return self._y

    def mean(self, X: Tensor) -> Tensor:
        """See :meth:`Posterior.mean`."""
        Z = self._inputs(X)
        return self._prior_mean(Z) + self.base.mean(Z)

    def sigma(self, theta: Tensor, X: Tensor) -> Tensor:
        """See :meth:`Posterior.sigma`."""
        return self.base.sigma(theta, self._inputs(X))

    def loo(self, theta: Tensor) -> tuple[Tensor, Tensor]:
        """See :meth:`Posterior.loo`."""
        mean, sigma = self.base.loo(theta)
        return mean + self._prior_mean(self._inputs(self._X)), sigma

    def log_prior(self) -> float:
        """See :meth:`Posterior.log_prior`."""
        return self.base.log_prior()

    def conditioned_on(self, X: Tensor, y: Tensor) -> Self:
        """See :meth:`Posterior.conditioned_on`."""
        Z = self._inputs(X)
        return self._around(self.base.conditioned_on(Z, y - self._prior_mean(Z)), X, y)

    def retrained(self, X: Tensor, y: Tensor, *, warm: bool = False) -> Posterior:
        """See :meth:`Posterior.retrained`; the maps and the prior mean stay as they are."""
        Z = self._inputs(X)
        again = self.base.retrained(Z, y - self._prior_mean(Z), warm=warm)
        return self._around(again, X, y)

    def _around(self, base: Posterior, X: Tensor, y: Tensor) -> Self:
        other = copy.copy(self)
        assert isinstance(base, DataPosterior)
        MappedPosterior.__init__(other, base, X, y, self._inputs, self._prior_mean)
        return other
