"""Kernels by name, or of gpytorch, as covariances."""

import gpytorch

from sharpgp.exceptions import InvalidInputError
from sharpgp.gp.additive import Additive
from sharpgp.gp.covariance import STATIONARY, Covariance, FromGPyTorch, Named, Stationary

#: Every kernel name.
KERNELS = (*STATIONARY, "additive")


def make_covariance(kernel: str | gpytorch.kernels.Kernel, n_features: int) -> Covariance:
    """Covariance for a kernel's name or a gpytorch kernel.

    Examples
    --------
    >>> make_covariance("matern52", 2).names[-1]
    'noise_variance'
    """
    if isinstance(kernel, str):
        if kernel not in KERNELS:
            raise InvalidInputError(
                f"kernel: expected one of {', '.join(KERNELS)} or a gpytorch kernel, "
                f"found {kernel!r}"
            )
        return (Additive if kernel == "additive" else Stationary)(kernel, n_features)
    if isinstance(kernel, gpytorch.kernels.Kernel):
        return FromGPyTorch(kernel)
    raise InvalidInputError(
        f"kernel: expected a name or a gpytorch kernel, found {type(kernel).__name__}"
    )


def kernel_of(covariance: Covariance) -> str | gpytorch.kernels.Kernel:
    """What :func:`make_covariance` was given.

    Examples
    --------
    >>> kernel_of(make_covariance("matern52", 2))
    'matern52'
    """
    if isinstance(covariance, FromGPyTorch):
        return covariance.as_gpytorch()
    assert isinstance(covariance, Named)
    return covariance.kind
