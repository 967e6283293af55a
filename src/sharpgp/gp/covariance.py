"""Covariance functions as functions of a flat vector ``theta``.

The calibration hyperparameters ``theta`` are ordered so that larger entries mean larger posterior
variance: inverse lengthscales first, then variances, and the noise variance last.  Two
implementations share one interface: hand-differentiated stationary kernels, and any gpytorch
kernel.
"""

import copy
from abc import ABC, abstractmethod
from collections.abc import Callable
from threading import Lock
from typing import Any, ClassVar

import gpytorch
import torch
from torch import Tensor
from torch.func import functional_call

from sharpgp._stored import Maybe, Several, agree, stored
from sharpgp.exceptions import InvalidInputError
from sharpgp.gp.fixed_points import ByAutograd, FixedPoints
from sharpgp.gp.priors import LengthscalePrior, penalty_of
from sharpgp.gp.scaling import Affine
from sharpgp.gp.stationary import STATIONARY, StationaryAt, stationary_matrix
from sharpgp.gp.ties import Ties, are_ties, as_ties, per_feature

_gpytorch = Lock()


class Covariance(ABC):
    """``k(theta, x, x')`` for a batch of ``theta``, differentiable in ``theta`` and the inputs.

    ``names`` labels the entries of ``theta``; the last one is always the noise variance.  ``ties``
    tells which features share a lengthscale, see :mod:`sharpgp.gp.ties`.
    """

    names: tuple[str, ...]
    ties: Ties | None = None
    #: Whether the last feature is the variance of each observation's noise.
    known_noise: ClassVar[bool] = False
    #: Whether the last feature is the logarithm of each observation's relative noise.
    weighted: ClassVar[bool] = False

    def relative_noise(self, X: Tensor) -> Tensor:
        """Noise variances of observations at ``X`` [N, d], in units of ``theta``'s, [N]."""
        return X.new_ones(len(X))

    @abstractmethod
    def matrix(self, theta: Tensor, X1: Tensor, X2: Tensor | None = None) -> Tensor:
        """Return ``k(theta, X1, X2)`` as [K, N, M]; without ``X2`` that of ``X1`` with itself."""

    @abstractmethod
    def diag(self, theta: Tensor, X: Tensor) -> Tensor:
        """Prior variances ``k(theta, x, x)`` [K, T], without noise."""

    def at(self, X: Tensor) -> FixedPoints:
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

    def units(self, X: Tensor, y_units: Affine) -> Affine:
        """Standardised units of inputs [N, d], where targets have theirs."""
        return Affine.standardising(X, self.ties)

    def reaching(self, Z: Tensor) -> "Covariance":
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


class Named(Covariance):
    """A built-in kernel with a name and hand-written gradients; see :mod:`sharpgp.gp.kernels`.

    All its hyperparameters are entries of ``theta``, so that training works on ``theta`` itself.
    """

    kind: str
    n_features: int

    def __init__(self, kind: str, n_features: int, ties: Ties | None = None) -> None:
        self.kind = kind
        self.n_features = n_features
        if as_ties(ties) is not None:
            self.ties = as_ties(ties)
        self.names = self._names()

    @abstractmethod
    def _names(self) -> tuple[str, ...]:
        """See :class:`Covariance`."""

    @property
    def n_lengthscales(self) -> int:
        """Number of lengthscales: one per feature, fewer where features share them."""
        return self.n_features if self.ties is None else len(set(self.ties))

    def _restored(self) -> None:
        agree("ties of features", are_ties(self.ties, self.n_features), True)
        agree("hyperparameters", self.names, self._names())

    #: Points that its hyperparameters are trained on at most; None for all.
    most_trained: ClassVar[int | None] = None


@stored("Stationary", kind=str, n_features=int, names=Several(str), ties=Maybe(Several(int)))
class Stationary(Named):
    """Squared-exponential and Matern kernels with one lengthscale per feature.

    ``theta = (1/l_1, ..., 1/l_d, signal variance, noise variance)``, with fewer lengthscales where
    features share them (``ties``).

    Examples
    --------
    >>> kernel = Stationary("rbf", 1)
    >>> theta = torch.tensor([[2.0, 3.0, 0.1]], dtype=torch.float64)
    >>> X = torch.tensor([[0.0], [0.5]], dtype=torch.float64)
    >>> [round(v, 4) for v in kernel.matrix(theta, X)[0, 0].tolist()]
    [3.0, 1.8196]
    """

    def _names(self) -> tuple[str, ...]:
        inverse = tuple(f"inverse_lengthscale_{j}" for j in range(self.n_lengthscales))
        return (*inverse, "signal_variance", "noise_variance")

    @property
    def n_inverse(self) -> int:
        """See :meth:`Covariance.n_inverse`."""
        return self.n_lengthscales

    def _restored(self) -> None:
        agree("kernel", self.kind in STATIONARY, True)
        super()._restored()

    def matrix(self, theta: Tensor, X1: Tensor, X2: Tensor | None = None) -> Tensor:
        """See :meth:`Covariance.matrix`; inputs may also differ from level to level [K, N, d]."""
        inverse = per_feature(theta[:, :-2], self.ties)
        return stationary_matrix(self.kind, inverse, theta[:, -2], X1, X2)

    def at(self, X: Tensor) -> FixedPoints:
        """See :meth:`Covariance.at`."""
        return StationaryAt(self.kind, X, self.ties)

    def diag(self, theta: Tensor, X: Tensor) -> Tensor:
        """See :meth:`Covariance.diag`."""
        return theta[:, -2, None].expand(-1, X.shape[0])

    def as_gpytorch(self) -> gpytorch.kernels.Kernel:
        """A fresh gpytorch kernel of the same form."""
        base: gpytorch.kernels.Kernel
        if self.kind == "rbf":
            base = gpytorch.kernels.RBFKernel(ard_num_dims=self.n_features)
        else:
            nu = STATIONARY[self.kind]
            base = gpytorch.kernels.MaternKernel(nu=nu, ard_num_dims=self.n_features)
        return gpytorch.kernels.ScaleKernel(base).double()


@stored(
    "FromGPyTorch",
    kernel=gpytorch.kernels.Kernel,
    _fixed=dict,
    transient={"_entries": None, "names": None},
)
class FromGPyTorch(Covariance):
    """Any gpytorch kernel, with its lengthscales and variances as ``theta``.

    Lengthscales enter inverted; parameters called ``outputscale`` or ``variance`` enter as they
    are; every other parameter (a period, a power, an offset) keeps its trained value, because
    nothing is known about the sign of its influence on the posterior variance.

    Examples
    --------
    >>> kernel = gpytorch.kernels.ScaleKernel(gpytorch.kernels.PeriodicKernel())
    >>> FromGPyTorch(kernel).names
    ('inverse_base_kernel.lengthscale_0', 'outputscale_0', 'noise_variance')
    """

    def __init__(self, kernel: gpytorch.kernels.Kernel) -> None:
        if kernel.batch_shape != torch.Size([]):
            raise InvalidInputError(
                f"expected a kernel without a batch, found batch_shape={tuple(kernel.batch_shape)}"
            )
        self.kernel = copy.deepcopy(kernel).double()
        self._read_entries()
        self._fixed = _values(self.kernel)

    def _read_entries(self) -> None:
        """Find the parameters of the kernel that are entries of ``theta``, and name them."""
        self._entries: list[tuple[str, Any, torch.Size, bool]] = []
        names: list[str] = []
        parameters = sorted(
            self.kernel.named_parameters_and_constraints(),
            key=lambda item: "lengthscale" not in item[0],
        )
        for raw_name, parameter, constraint in parameters:
            name = raw_name.replace("raw_", "")
            kind = name.rpartition(".")[2]
            if kind not in ("lengthscale", "outputscale", "variance"):
                continue
            inverted = kind == "lengthscale"
            self._entries.append((raw_name, constraint, parameter.shape, inverted))
            prefix = "inverse_" if inverted else ""
            names.extend(f"{prefix}{name}_{j}" for j in range(parameter.numel()))
        self.names = (*names, "noise_variance")

    @property
    def n_inverse(self) -> int:
        """See :meth:`Covariance.n_inverse`."""
        return sum(shape.numel() for _, _, shape, inverted in self._entries if inverted)

    def _restored(self) -> None:
        own = {name: (p.dtype, p.shape) for name, p in self.kernel.named_parameters()}
        fixed = {name: (p.dtype, p.shape) for name, p in self._fixed.items()}
        agree("parameters of the kernel", fixed, own)
        self._read_entries()

    def frozen_at(self, kernel: gpytorch.kernels.Kernel) -> "FromGPyTorch":
        """The same covariance, with the parameters outside ``theta`` taken from a trained kernel.

        :meth:`as_gpytorch` still returns an untrained kernel, so that refits start where training
        did.
        """
        other = copy.copy(self)
        other._fixed = _values(kernel)
        return other

    def _evaluate(self, row: Tensor, *args: Tensor, diag: bool = False) -> Tensor:
        values = dict(self._fixed)
        start = 0
        for raw_name, constraint, shape, inverted in self._entries:
            entry = row[start : start + shape.numel()].reshape(shape)
            start += shape.numel()
            value = 1.0 / entry if inverted else entry
            values[raw_name] = value if constraint is None else constraint.inverse_transform(value)
        # Both change state that other threads see: a setting, and the kernel's parameters.
        with _gpytorch, gpytorch.settings.lazily_evaluate_kernels(False):
            out = functional_call(self.kernel, values, args, {"diag": diag}, strict=False)
        return out if isinstance(out, Tensor) else out.to_dense()

    def matrix(self, theta: Tensor, X1: Tensor, X2: Tensor | None = None) -> Tensor:
        """See :meth:`Covariance.matrix`."""
        X2 = X1 if X2 is None else X2
        return torch.stack([self._evaluate(row, X1, X2) for row in theta])

    def diag(self, theta: Tensor, X: Tensor) -> Tensor:
        """See :meth:`Covariance.diag`."""
        return torch.stack([self._evaluate(row, X, X, diag=True) for row in theta])

    def as_gpytorch(self) -> gpytorch.kernels.Kernel:
        """A fresh gpytorch kernel of the same form."""
        return copy.deepcopy(self.kernel)

    def theta_of(self, kernel: gpytorch.kernels.Kernel, noise: Tensor) -> Tensor:
        """Read ``theta`` [P] off a kernel made by :meth:`as_gpytorch`."""
        raw = dict(kernel.named_parameters())
        parts = []
        for raw_name, constraint, _, inverted in self._entries:
            value = raw[raw_name].detach()
            value = value if constraint is None else constraint.transform(value)
            parts.append((1.0 / value if inverted else value).reshape(-1))
        return torch.cat([*parts, noise.detach().reshape(1)]).clone()


def _values(kernel: gpytorch.kernels.Kernel) -> dict[str, Tensor]:
    return {name: value.detach().clone() for name, value in kernel.named_parameters()}
