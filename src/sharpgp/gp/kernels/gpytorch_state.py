"""gpytorch kernels as plain values: which ones can be saved, and how they are rebuilt.

A kernel is its class, its settings, its parts and the state of its own parameters, with their
constraints and priors.  Kernels, constraints and priors of other classes, including the user's own,
contain code, which a file cannot; the error names them.
"""

from typing import Any

import torch
from gpytorch import constraints, kernels, priors
from gpytorch.utils.transforms import inv_sigmoid, inv_softplus
from torch import Tensor

from sharpgp._stored import Codec, add_codec, require
from sharpgp.exceptions import SavedModelError

# Constructor arguments that are neither parts nor parameters.
_SETTINGS: dict[type[kernels.Kernel], tuple[str, ...]] = {
    kernels.RBFKernel: ("ard_num_dims",),
    kernels.MaternKernel: ("ard_num_dims", "nu"),
    kernels.RQKernel: ("ard_num_dims",),
    kernels.PeriodicKernel: ("ard_num_dims",),
    kernels.CosineKernel: (),
    kernels.LinearKernel: ("ard_num_dims",),
    kernels.PolynomialKernel: ("power",),
    kernels.PiecewisePolynomialKernel: ("ard_num_dims", "q"),
    kernels.SpectralMixtureKernel: ("ard_num_dims", "num_mixtures"),
    kernels.ConstantKernel: (),
    kernels.ScaleKernel: (),
    kernels.AdditiveKernel: (),
    kernels.ProductKernel: (),
}
_CONSTRAINTS = {
    kind.__name__: kind
    for kind in (
        constraints.Positive,
        constraints.GreaterThan,
        constraints.LessThan,
        constraints.Interval,
    )
}
# Maps of a parameter into its bounds, and back.
_TRANSFORMS: dict[str, tuple[Any, Any]] = {
    "softplus": (torch.nn.Softplus(), inv_softplus),
    "sigmoid": (torch.sigmoid, inv_sigmoid),
    "exp": (torch.exp, torch.log),
    "none": (None, None),
}
_PRIORS: dict[str, tuple[type[priors.Prior], tuple[str, ...]]] = {
    "GammaPrior": (priors.GammaPrior, ("concentration", "rate")),
    "NormalPrior": (priors.NormalPrior, ("loc", "scale")),
    "LogNormalPrior": (priors.LogNormalPrior, ("loc", "scale")),
    "HalfNormalPrior": (priors.HalfNormalPrior, ("scale",)),
    "HalfCauchyPrior": (priors.HalfCauchyPrior, ("scale",)),
    "UniformPrior": (priors.UniformPrior, ("low", "high")),
}


def _take(kernel: kernels.Kernel) -> dict[str, Any]:
    own = {name: value for name, value in kernel._parameters.items() if value is not None}
    if kernel.batch_shape != torch.Size([]):
        raise SavedModelError(f"cannot save {_name(kernel)}: it has a batch")
    return {
        "settings": {name: getattr(kernel, name) for name in _SETTINGS[type(kernel)]},
        "parts": _parts(kernel),
        "active_dims": kernel.active_dims,
        "parameters": {name: value.detach() for name, value in own.items()},
        "frozen": [name for name, value in own.items() if not value.requires_grad],
        "constraints": {
            name.removesuffix("_constraint"): _take_constraint(kernel, constraint)
            for name, constraint in kernel._constraints.items()
        },
        "priors": {name: _take_prior(kernel, name) for name in kernel._priors},
    }


def _take_constraint(kernel: kernels.Kernel, constraint: constraints.Interval) -> dict[str, Any]:
    transform = constraint._transform
    named = [name for name, (known, _) in _TRANSFORMS.items() if known is transform]
    if isinstance(transform, torch.nn.Softplus) and transform.beta == 1:
        named = ["softplus"]
    if type(constraint).__name__ not in _CONSTRAINTS or not named:
        raise SavedModelError(
            f"cannot save {_name(kernel)}: found a constraint of the class "
            f"{type(constraint).__name__} with the transform {transform}"
        )
    return {
        "class": type(constraint).__name__,
        "transform": named[0],
        "lower": constraint.lower_bound.detach(),
        "upper": constraint.upper_bound.detach(),
    }


def _take_prior(kernel: kernels.Kernel, name: str) -> dict[str, Any]:
    prior, closure, _ = kernel._priors[name]
    known = _PRIORS.get(type(prior).__name__)
    of_gpytorch = (closure.__module__ or "").startswith("gpytorch.kernels")
    if known is None or prior._transform is not None or not of_gpytorch:
        raise SavedModelError(
            f"cannot save {_name(kernel)}: expected a prior among {', '.join(_PRIORS)} on one of "
            f"its parameters, found {type(prior).__name__} as {name}"
        )
    values = {key: torch.as_tensor(getattr(prior, key)).detach() for key in known[1]}
    return {"class": type(prior).__name__, "values": values}


def _build(cls: type[kernels.Kernel], values: dict[str, Any]) -> kernels.Kernel:
    parameters, settings, parts = values["parameters"], values["settings"], values["parts"]
    if set(settings) != set(_SETTINGS[cls]):
        raise SavedModelError(f"{cls.__name__}: found the settings {sorted(settings)}")
    # A number that sets the size of something is not larger than the parameters that it sizes.
    largest = max([16, *(value.numel() for value in parameters.values())])
    for name, value in settings.items():
        if value is not None and not 0 <= value <= largest:
            raise SavedModelError(f"{cls.__name__}.{name}: found {value}")
    given = {name: value for name, value in settings.items() if value is not None}
    given |= {name: _build_prior(prior) for name, prior in values["priors"].items()}
    for part in parts:
        require(part, kernels.Kernel)
    kernel = cls(*parts, **given)
    if _parts(kernel) != parts:
        raise SavedModelError(f"{cls.__name__}: found {len(parts)} parts")
    kernel.active_dims = _active(values["active_dims"])
    own = {name: value for name, value in kernel._parameters.items() if value is not None}
    if own.keys() != parameters.keys():
        raise SavedModelError(f"{cls.__name__}: found the parameters {sorted(parameters)}")
    for name, value in parameters.items():
        require(value, Tensor)
        if value.shape != own[name].shape or not bool(torch.isfinite(value).all()):
            raise SavedModelError(
                f"{cls.__name__}.{name}: found {tuple(value.shape)}, or no number"
            )
        kernel._parameters[name] = torch.nn.Parameter(value.clone(), name not in values["frozen"])
    for name, constraint in values["constraints"].items():
        if name not in own:
            raise SavedModelError(f"{cls.__name__}: found a constraint on {name}")
        kernel.register_constraint(name, _build_constraint(constraint), replace=True)
    return kernel


def _build_constraint(values: dict[str, Any]) -> constraints.Interval:
    lower, upper = values["lower"], values["upper"]
    if not bool((lower < upper).all()):
        raise SavedModelError("expected constraints with a lower bound below the upper one")
    constraint = _CONSTRAINTS[values["class"]].__new__(_CONSTRAINTS[values["class"]])
    # The constructors differ, and all round the bounds to the default type of floats.
    constraints.Interval.__init__(constraint, lower, upper, *_TRANSFORMS[values["transform"]])
    constraint.lower_bound, constraint.upper_bound = lower, upper
    return constraint


def _build_prior(values: dict[str, Any]) -> priors.Prior:
    cls, names = _PRIORS[values["class"]]
    return cls(*(values["values"][name] for name in names))


def _active(dims: Tensor | None) -> Tensor | None:
    if dims is not None and (dims.dtype != torch.int64 or bool((dims < 0).any())):
        raise SavedModelError("expected active dimensions, whole numbers of at least 0")
    return dims


def _parts(kernel: kernels.Kernel) -> list[kernels.Kernel]:
    if isinstance(kernel, kernels.ScaleKernel):
        return [kernel.base_kernel]
    return list(getattr(kernel, "kernels", []))


def _name(kernel: kernels.Kernel) -> str:
    return type(kernel).__name__


def _codec(cls: type[kernels.Kernel]) -> Codec:
    return Codec(f"gpytorch.{cls.__name__}", _take, lambda values: _build(cls, values))


for _cls in _SETTINGS:
    add_codec(_cls, _codec(_cls))
