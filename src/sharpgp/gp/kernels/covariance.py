"""Covariance functions as functions of a flat vector ``theta``.

The calibration hyperparameters ``theta`` are ordered so that larger entries mean larger posterior
variance: inverse lengthscales first, then variances, and the noise variance last.  Kernels with a
name share one interface with any gpytorch kernel, see :mod:`sharpgp.gp.kernels.from_gpytorch`.
"""

from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any, Self

import torch
from torch import Tensor

from sharpgp._stored import agree, stored
from sharpgp.gp.dense import add_each_to_diagonal, add_to_diagonal
from sharpgp.gp.directions import Directions
from sharpgp.gp.kernels.fixed_points import ByAutograd, FixedPoints
from sharpgp.gp.kernels.stationary import (
    SIGNAL,
    STATIONARY,
    StationaryAt,
    stationary_blocks,
    stationary_matrix,
)
from sharpgp.gp.priors import LengthscalePrior, penalty_of
from sharpgp.gp.scaling import Affine
from sharpgp.gp.ties import Ties, are_ties, as_ties, per_feature
from sharpgp.rows import Rows

if TYPE_CHECKING:
    import gpytorch

#: Place of the noise variance in ``theta``, the same for every kernel.
NOISE = -1


class Covariance(ABC):
    """``k(theta, x, x')`` for a batch of ``theta``, differentiable in ``theta`` and the inputs.

    ``names`` labels the entries of ``theta``; the last one is always the noise variance.  ``ties``
    tells which features share a lengthscale, see :mod:`sharpgp.gp.ties`.
    """

    names: tuple[str, ...]
    ties: Ties | None = None

    @property
    def sharing(self) -> Ties | Directions | None:
        """Ties of features; or which directions have a lengthscale of their own."""
        return self.ties

    @abstractmethod
    def matrix(self, theta: Tensor, X1: Tensor, X2: Tensor | None = None) -> Tensor:
        """Return ``k(theta, X1, X2)`` as [K, N, M]; without ``X2`` that of ``X1`` with itself."""

    @abstractmethod
    def diag(self, theta: Tensor, X: Tensor) -> Tensor:
        """Prior variances ``k(theta, x, x)`` [K, T], without noise."""

    def of_observations(self, theta: Tensor, rows: Rows) -> Tensor:
        """Covariances [K, N, N] of observations: with the noise of ``theta`` and of the rows."""
        K, noise = self.matrix(theta, rows.X), theta[:, NOISE]
        if rows.noise is None:
            return add_to_diagonal(K, noise)
        return add_each_to_diagonal(K, noise.unsqueeze(-1) + rows.noise)

    def prior(self, theta: Tensor, rows: Rows) -> Tensor:
        """Prior variances [K, T] of observations, noise included."""
        variance = self.diag(theta, rows.X) + theta[:, NOISE, None]
        return variance if rows.noise is None else variance + rows.noise

    def fix_points(self, X: Tensor) -> FixedPoints:
        """``k(theta, X, X)``, to be evaluated for many ``theta``."""
        return ByAutograd(lambda theta: self.matrix(theta, X))

    @property
    @abstractmethod
    def n_inverse(self) -> int:
        """How many entries of ``theta`` are inverse lengthscales; they come first."""

    @property
    def n_theta(self) -> int:
        """Length ``P`` of ``theta``."""
        return len(self.names)

    def units(self, X: Tensor) -> Affine:
        """Standardised units of inputs [N, d]."""
        return Affine.standardising(X, self.ties)

    def reaching(self, Z: Tensor) -> Self:
        """The same for predictions from data at ``Z`` [N, d], in the units of ``theta``.

        A kernel that grows with its inputs stops growing somewhere beyond the data.
        """
        return self

    def penalty(self, prior: LengthscalePrior | None, Z: Tensor) -> Callable[[Tensor], Any]:
        """See :func:`sharpgp.gp.priors.penalty_of`."""
        return penalty_of(prior, Z, self.ties)

    @property
    def searched(self) -> Tensor:
        """Mask [P] of the entries that a calibration search moves.

        A common factor of all variances only rescales ``sigma``, which ``beta`` absorbs; the
        first variance is therefore held at its trained value.
        """
        mask = torch.ones(self.n_theta, dtype=torch.bool)
        if self.n_inverse < self.n_theta - 1:
            mask[self.n_inverse] = False
        return mask


@dataclass(frozen=True, eq=False, repr=False)
class Named(Covariance):
    """A built-in kernel with a name and hand-written gradients.

    See :mod:`sharpgp.gp.kernels.by_name`.  All its hyperparameters are entries of ``theta``, so
    that training works on ``theta`` itself.
    """

    kind: str
    n_features: int
    ties: Ties | None = None

    def __post_init__(self) -> None:
        vars(self)["ties"] = as_ties(self.ties)

    @abstractmethod
    def blocks(self, theta: Tensor, X1: Tensor, X2: Tensor | None = None) -> Tensor:
        """:meth:`matrix` of each of some sets of points, [B, N, d] and [B, M, d]: [K, B, N, M]."""

    @abstractmethod
    def relevance(self, theta: Tensor) -> Tensor:
        """The largest inverse lengthscale [d] of each feature, under one ``theta`` [P]."""

    def scaled(self, theta: Tensor, Z: Tensor) -> Tensor:
        """Points [N, p] whose Euclidean distances tell which of ``Z`` [N, d] are near."""
        return Z * self.relevance(theta)

    @property
    def of_all_features(self) -> tuple[bool, ...]:
        """Whether each inverse lengthscale is one of a distance in all features."""
        return (True,) * self.n_inverse

    @property
    def n_lengthscales(self) -> int:
        """Number of lengthscales: one per feature, fewer where features share them."""
        return self.n_features if self.ties is None else len(set(self.ties))

    def _restored(self) -> None:
        agree("ties of features", are_ties(self.ties, self.n_features), True)


def without_names(values: dict[str, Any]) -> dict[str, Any]:
    """The values of a kernel in a file of an earlier version, which repeats what follows."""
    return {key: value for key, value in values.items() if key != "names"}


class ConstantVariance(Named):
    """A kernel whose prior variance is the same everywhere.

    ``theta = (inverse lengthscales, signal variance, noise variance)``, with one lengthscale per
    feature, fewer where features share them (``ties``).
    """

    @cached_property
    def names(self) -> tuple[str, ...]:  # type: ignore[override]
        """See :class:`Covariance`."""
        inverse = tuple(f"inverse_lengthscale_{j}" for j in range(self.n_lengthscales))
        return (*inverse, "signal_variance", "noise_variance")

    @property
    def n_inverse(self) -> int:
        return self.n_lengthscales

    def relevance(self, theta: Tensor) -> Tensor:
        return per_feature(theta[: self.n_inverse], self.ties)

    def diag(self, theta: Tensor, X: Tensor) -> Tensor:
        return theta[:, SIGNAL, None].expand(-1, X.shape[0])


@stored("Stationary", earlier=without_names)
class Stationary(ConstantVariance):
    """Squared-exponential and Matern kernels with one lengthscale per feature.

    ``theta = (1/l_1, ..., 1/l_d, signal variance, noise variance)``.

    Examples
    --------
    >>> kernel = Stationary("rbf", 1)
    >>> theta = torch.tensor([[2.0, 3.0, 0.1]], dtype=torch.float64)
    >>> X = torch.tensor([[0.0], [0.5]], dtype=torch.float64)
    >>> [round(v, 4) for v in kernel.matrix(theta, X)[0, 0].tolist()]
    [3.0, 1.8196]
    """

    def _restored(self) -> None:
        agree("kernel", self.kind in STATIONARY, True)
        super()._restored()

    def matrix(self, theta: Tensor, X1: Tensor, X2: Tensor | None = None) -> Tensor:
        inverse = per_feature(theta[:, :SIGNAL], self.ties)
        return stationary_matrix(self.kind, inverse, theta[:, SIGNAL], X1, X2)

    def blocks(self, theta: Tensor, X1: Tensor, X2: Tensor | None = None) -> Tensor:
        inverse = per_feature(theta[:, :SIGNAL], self.ties)
        return stationary_blocks(self.kind, inverse, theta[:, SIGNAL], X1, X2)

    def fix_points(self, X: Tensor) -> FixedPoints:
        return StationaryAt(self.kind, X, self.ties)

    def as_gpytorch(self) -> "gpytorch.kernels.Kernel":
        """A fresh gpytorch kernel of the same form."""
        import gpytorch

        base: gpytorch.kernels.Kernel
        if self.kind == "rbf":
            base = gpytorch.kernels.RBFKernel(ard_num_dims=self.n_features)
        else:
            nu = STATIONARY[self.kind]
            base = gpytorch.kernels.MaternKernel(nu=nu, ard_num_dims=self.n_features)
        return gpytorch.kernels.ScaleKernel(base).double()
