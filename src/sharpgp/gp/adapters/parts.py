"""Parts of gpytorch and BoTorch models in this library's terms; errors name any others."""

import copy
from typing import Any

import torch
from botorch.models.transforms.input import AffineInputTransform, ChainedInputTransform
from botorch.models.transforms.outcome import Standardize
from gpytorch.kernels import Kernel, MaternKernel, RBFKernel, ScaleKernel
from gpytorch.likelihoods import FixedNoiseGaussianLikelihood, GaussianLikelihood
from gpytorch.means import ConstantMean, ZeroMean
from torch import Tensor

from sharpgp.exceptions import InvalidInputError
from sharpgp.gp.adapters.input_maps import Map
from sharpgp.gp.kernels.covariance import Covariance, Stationary
from sharpgp.gp.kernels.from_gpytorch import FromGPyTorch
from sharpgp.gp.scaling import Affine

_MATERN = {0.5: "matern12", 1.5: "matern32", 2.5: "matern52"}


def double(tensor: Tensor) -> Tensor:
    """A copy in float64, without history."""
    return tensor.detach().to(torch.float64, copy=True)


def covariance_of(kernel: Kernel, noise: Tensor, n_features: int) -> tuple[Covariance, Tensor]:
    """Covariance and ``theta_R`` of a trained kernel.

    Squared-exponential and Matern kernels on all features get the implementation with fast
    gradients, and one lengthscale per feature; all others are used as they are.
    """
    if kernel.batch_shape != torch.Size([]):
        raise InvalidInputError(
            f"model: expected a kernel without a batch, found {tuple(kernel.batch_shape)}"
        )
    scaled = type(kernel) is ScaleKernel
    base = kernel.base_kernel if scaled else kernel
    kind = "rbf" if type(base) is RBFKernel else None
    if type(base) is MaternKernel:
        kind = _MATERN[base.nu]
    if kind is None or base.active_dims is not None:
        covariance = FromGPyTorch(kernel)
        return covariance, covariance.theta_of(copy.deepcopy(kernel).double(), double(noise))
    inverse = (1.0 / double(base.lengthscale)).reshape(-1).expand(n_features)
    signal = double(kernel.outputscale) if scaled else torch.ones_like(inverse[0])
    theta = torch.cat([inverse, signal.reshape(1), double(noise).reshape(1)])
    return Stationary(kind, n_features), theta


def noise_of(likelihood: Any) -> Tensor:
    """Noise variance of a Gaussian likelihood, the same for all points."""
    if isinstance(likelihood, FixedNoiseGaussianLikelihood):
        noise = likelihood.noise.reshape(-1)
        if likelihood.second_noise_covar is None and bool((noise == noise[0]).all()):
            return double(noise[0])
        raise InvalidInputError(
            "model: expected the same noise at all points, found different ones"
        )
    if type(likelihood) is not GaussianLikelihood or likelihood.noise.numel() != 1:
        raise InvalidInputError(
            f"model: expected a GaussianLikelihood, found {type(likelihood).__name__}"
        )
    return double(likelihood.noise.reshape(()))


def target_units(model: Any) -> Affine:
    """Units of the target under an outcome transform."""
    transform = getattr(model, "outcome_transform", None)
    if transform is None:
        zero = torch.zeros((), dtype=torch.float64, device=_device(model))
        return Affine(zero, torch.ones_like(zero))
    if type(transform) is not Standardize:
        raise InvalidInputError(
            "model: expected no outcome transform other than Standardize, "
            f"found {type(transform).__name__}"
        )
    return Affine(double(transform.means).reshape(()), double(transform.stdvs).reshape(()))


def input_units(model: Any, n_features: int) -> Affine | None:
    """Units of the inputs under input transforms; None if these are not affine."""
    device = _device(model)
    shift = torch.zeros(n_features, dtype=torch.float64, device=device)
    scale = torch.ones_like(shift)
    transform = getattr(model, "input_transform", None)
    if transform is None:
        return Affine(shift, scale)
    for part in transform.values() if isinstance(transform, ChainedInputTransform) else [transform]:
        on_both = part.transform_on_train and part.transform_on_eval
        if not (isinstance(part, AffineInputTransform) and on_both) or part.reverse:
            return None
        coefficient, offset = double(part.coefficient), double(part.offset)
        if coefficient.numel() != n_features:
            return None
        # (x - shift) / scale, and then (. - offset) / coefficient
        shift = shift + scale * offset.reshape(-1)
        scale = scale * coefficient.reshape(-1)
    return Affine(shift, scale)


def input_map(model: Any) -> Map:
    """The model's input transforms as they are, on a copy."""
    transform = getattr(model, "input_transform", None)
    if transform is None:
        return lambda X: X
    parts = transform.values() if isinstance(transform, ChainedInputTransform) else [transform]
    for part in parts:
        if not (part.transform_on_train and part.transform_on_eval):
            raise InvalidInputError(
                "model: expected input transforms that apply in training and in evaluation, found "
                f"{type(part).__name__} that does not"
            )
    frozen = _frozen(transform)

    def mapped(X: Tensor) -> Tensor:
        Z: Tensor = frozen(X)
        if Z.shape[:-1] != X.shape[:-1]:
            raise InvalidInputError(
                "model: expected input transforms that keep the number of points, found "
                f"{type(transform).__name__}"
            )
        return Z

    return mapped


def prior_mean_of(module: Any, units: Affine) -> tuple[Tensor | None, Map]:
    """Prior mean in the target's units: its value, if it is constant, and the function."""
    if type(module) in (ZeroMean, ConstantMean):
        constant = torch.zeros_like(units.shift)
        if type(module) is ConstantMean:
            constant = double(module.constant).reshape(())
        value = constant * units.scale
        return value, lambda Z: value.expand(Z.shape[0])
    frozen = _frozen(module)
    return None, lambda Z: frozen(Z) * units.scale


def _frozen(module: Any) -> Any:
    """A copy in float64 that is no longer trained."""
    frozen = copy.deepcopy(module).double().eval()
    for parameter in frozen.parameters():
        parameter.requires_grad_(False)
    return frozen


def _device(model: Any) -> torch.device:
    return next(iter(model.parameters())).device
