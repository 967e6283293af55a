"""Any gpytorch kernel as a covariance; gpytorch is loaded only where a user gave its kernel."""

import copy
import math
import warnings
from threading import Lock
from typing import Any

import gpytorch
import numpy as np
import torch
from torch import Tensor
from torch.func import functional_call

from sharpgp._stored import agree, stored
from sharpgp.exceptions import InvalidInputError, NumericalError
from sharpgp.gp.kernels.covariance import Covariance
from sharpgp.gp.optimise import Found

_gpytorch = Lock()


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
        X2 = X1 if X2 is None else X2
        return torch.stack([self._evaluate(row, X1, X2) for row in theta])

    def diag(self, theta: Tensor, X: Tensor) -> Tensor:
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


def fit_by_botorch(
    Z: Tensor, t: Tensor, covariance: FromGPyTorch, rng: np.random.Generator, noise_floor: float
) -> tuple[FromGPyTorch, Tensor, Found]:
    """BoTorch's fit of a kernel whose parameters only gpytorch knows, with retries."""
    from botorch.models import SingleTaskGP
    from botorch.optim.fit import fit_gpytorch_mll_scipy

    try:
        covariance.as_gpytorch().to(Z)(Z[:2]).to_dense()
    except (RuntimeError, IndexError) as error:
        raise InvalidInputError(
            f"kernel: expected a kernel for {Z.shape[1]} feature(s), found one that fails: "
            f"{str(error).splitlines()[0]}"
        ) from None
    failures: list[str] = []
    evaluations = 0
    for attempt in range(4):
        likelihood = gpytorch.likelihoods.GaussianLikelihood(
            noise_constraint=gpytorch.constraints.GreaterThan(noise_floor)
        ).to(Z)
        likelihood.noise = 0.1
        model = SingleTaskGP(
            Z,
            t.unsqueeze(-1),
            likelihood=likelihood,
            covar_module=covariance.as_gpytorch().to(Z),
            mean_module=gpytorch.means.ZeroMean(),
            outcome_transform=None,
        )
        if attempt:
            with torch.no_grad():
                for parameter in model.covar_module.parameters():
                    noise = rng.normal(0.0, 0.5, tuple(parameter.shape))
                    parameter.add_(torch.from_numpy(np.asarray(noise)).to(parameter))
        mll = gpytorch.mlls.ExactMarginalLogLikelihood(likelihood, model)
        try:
            before = _mean_log_likelihood(mll, Z, t)
            with warnings.catch_warnings(), _exact_algebra():
                # BoTorch warns about every stalled step; the outcome is judged below instead.
                warnings.simplefilter("ignore")
                fit = fit_gpytorch_mll_scipy(mll)
            evaluations += fit.step
            value = _mean_log_likelihood(mll, Z, t)
        except (RuntimeError, ValueError) as error:
            failures.append(f"{type(error).__name__}: {str(error).splitlines()[0]}")
            continue
        if math.isfinite(value) and value > before:
            theta = covariance.theta_of(model.covar_module, likelihood.noise)
            found = Found(-value, theta.log().cpu().numpy(), True, evaluations, tuple(failures))
            return covariance.frozen_at(model.covar_module), theta, found
        failures.append(f"no progress from a log likelihood of {before:.4g} per point")
    raise NumericalError(f"training failed from 4 starts; last failure: {failures[-1]}")


def _mean_log_likelihood(
    mll: gpytorch.mlls.ExactMarginalLogLikelihood, Z: Tensor, t: Tensor
) -> float:
    mll.train()
    with torch.no_grad(), _exact_algebra():
        return float(mll(mll.model(Z), t))


def _exact_algebra() -> gpytorch.settings.fast_computations:
    """Cholesky throughout: no conjugate gradients, whatever the size."""
    return gpytorch.settings.fast_computations(False, False, False)
