"""gpytorch's ExactGP, SGPR and BoTorch's SingleTaskGP."""

import warnings
from typing import Any

import gpytorch
import torch
from gpytorch.kernels import InducingPointKernel
from gpytorch.models import ExactGP
from torch import Tensor

from sharpgp.exceptions import InvalidInputError
from sharpgp.gp.adapters.fitc import FitcPosterior
from sharpgp.gp.adapters.input_maps import MappedPosterior
from sharpgp.gp.adapters.parts import (
    covariance_of,
    double,
    input_map,
    input_units,
    noise_of,
    prior_mean_of,
    target_units,
)
from sharpgp.gp.exact.posterior import ExactPosterior
from sharpgp.gp.posterior import DataPosterior
from sharpgp.gp.scaling import Affine

# Points at which the model's own predictions are compared with the posterior's.
_CHECKED = 20


def from_exact_gp(model: ExactGP) -> DataPosterior:
    """The posterior of a gpytorch ``ExactGP``, BoTorch's ``SingleTaskGP`` among them."""
    X, y = _training_data(model)
    if y.dim() != 1 or X.dim() != 2:
        raise InvalidInputError(
            f"model: expected one output and no batch, found targets of shape {tuple(y.shape)}"
        )
    for part in ("mean_module", "covar_module"):
        if not hasattr(model, part):
            raise InvalidInputError(
                f"model: expected a GP with a mean_module and a covar_module, found "
                f"{type(model).__name__} without {part}"
            )
    y_units, x_units = target_units(model), input_units(model, X.shape[1])
    constant, prior_mean = prior_mean_of(model.mean_module, y_units)
    noise = noise_of(model.likelihood)
    y = y_units.back(y)
    posterior: DataPosterior
    if x_units is not None and constant is not None:
        # A constant prior mean is the same as another origin of the target.
        y_units = Affine(y_units.shift + constant, y_units.scale)
        posterior = _conditioned(model, X, y, noise, x_units, y_units)
    else:
        inputs = input_map(model)
        Z = inputs(X)
        base = _conditioned(model, Z, y - prior_mean(Z), noise, Affine.identity(Z), y_units)
        posterior = MappedPosterior(base, X, y, inputs, prior_mean)
    _check(model, posterior)
    return posterior


def _conditioned(
    model: ExactGP, X: Tensor, y: Tensor, noise: Tensor, x_units: Affine, y_units: Affine
) -> DataPosterior:
    kernel = model.covar_module
    if isinstance(kernel, InducingPointKernel):
        covariance, theta = covariance_of(kernel.base_kernel, noise, X.shape[1])
        inducing = x_units.back(double(kernel.inducing_points))
        return FitcPosterior(X, y, covariance, theta, inducing, x_units=x_units, y_units=y_units)
    covariance, theta = covariance_of(kernel, noise, X.shape[1])
    return ExactPosterior(X, y, covariance, theta, x_units=x_units, y_units=y_units)


def _training_data(model: Any) -> tuple[Tensor, Tensor]:
    """Untransformed inputs [N, d] and transformed targets [N]."""
    if model.train_inputs is None or len(model.train_inputs) != 1:
        raise InvalidInputError("model: expected a GP with one tensor of training inputs")
    X = model.train_inputs[0]
    if getattr(model, "_has_transformed_inputs", False):
        X = model._original_train_inputs
    return double(X.unsqueeze(-1) if X.dim() == 1 else X), double(model.train_targets)


def _check(model: ExactGP, posterior: DataPosterior) -> None:
    """Compare with the model's own predictions: its forward may do more than its parts."""
    X = posterior.X_train[:: max(1, posterior.n_train // _CHECKED)]
    ours = posterior.mean(X)
    theirs = double(_predicted(model, X))
    spread = posterior.sigma(posterior.theta_R.unsqueeze(0), X)[0]
    tolerance = 1e-3 if next(iter(model.parameters())).dtype == torch.float64 else 0.1
    if not bool(((ours - theirs).abs() <= tolerance * spread).all()):
        raise InvalidInputError(
            "model: expected a forward that is the prior of mean_module and covar_module, found "
            f"{type(model).__name__} whose predictions differ"
        )


def _predicted(model: Any, X: Tensor) -> Tensor:
    """The model's own mean, in the user's units; the model keeps its mode."""
    training = model.training
    X = X.to(next(iter(model.parameters())).dtype)
    try:
        with torch.no_grad(), warnings.catch_warnings(), _exact_algebra():
            warnings.simplefilter("ignore")
            if hasattr(model, "posterior"):
                mean: Tensor = model.posterior(X).mean.squeeze(-1)
            else:
                mean = model.eval()(X).mean
    finally:
        model.train(training)
    return mean


def _exact_algebra() -> Any:
    return gpytorch.settings.fast_computations(False, False, False)
