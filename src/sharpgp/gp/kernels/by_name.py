"""Covariances from kernel names or gpytorch kernels."""

import sys
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeAlias, TypeGuard

from sharpgp.exceptions import InvalidInputError
from sharpgp.gp.directions import Directions
from sharpgp.gp.kernels.covariance import STATIONARY, Covariance, Named
from sharpgp.gp.kernels.few_lengthscales import FewLengthscales, turns
from sharpgp.gp.kernels.sums import of_names
from sharpgp.gp.ties import Ties, as_ties
from sharpgp.names import KERNELS, is_kernel_name

if TYPE_CHECKING:
    import gpytorch


@dataclass(frozen=True)
class NamedKernel:
    """A kernel's name, and what its features are.

    ``ties`` says which of them share a lengthscale (:mod:`sharpgp.gp.ties`), or how many
    directions have one of their own (:mod:`sharpgp.gp.directions`).
    """

    name: str
    ties: Ties | Directions | None = None


#: What names a covariance.
Kernel: TypeAlias = "str | NamedKernel | gpytorch.kernels.Kernel"


def is_gpytorch_kernel(base: Any) -> "TypeGuard[gpytorch.kernels.Kernel]":
    """Whether ``base`` is a gpytorch kernel, without loading gpytorch, which made it if it is one.

    Examples
    --------
    >>> is_gpytorch_kernel("rbf")
    False
    """
    theirs = sys.modules.get("gpytorch")
    return theirs is not None and isinstance(base, theirs.kernels.Kernel)


def named(kernel: Kernel, ties: Ties | Directions | None) -> Kernel:
    """A named kernel with ties; a gpytorch kernel keeps the lengthscales it was built with.

    Examples
    --------
    >>> named("rbf", (0, 1, 1)), named("rbf", None)
    (NamedKernel(name='rbf', ties=(0, 1, 1)), 'rbf')
    """
    if not isinstance(ties, Directions):
        ties = as_ties(ties)
    return kernel if ties is None or not isinstance(kernel, str) else NamedKernel(kernel, ties)


def make_covariance(kernel: Kernel, n_features: int) -> Covariance:
    """Covariance for a kernel's name, or several with a plus between, or a gpytorch kernel.

    Examples
    --------
    >>> make_covariance("matern52", 2).names[-1]
    'noise_variance'
    """
    ties: Ties | Directions | None = None
    if isinstance(kernel, NamedKernel):
        ties = kernel.ties
        kernel = kernel.name
    if isinstance(kernel, str):
        if not is_kernel_name(kernel):
            raise InvalidInputError(
                f"kernel: expected one of {', '.join(KERNELS)}, a sum such as 'rbf+matern12' or a "
                f"gpytorch kernel, found {kernel!r}"
            )
        if isinstance(ties, Directions):
            if ties.are_learned or (kernel in STATIONARY and not ties.asks_for_all(n_features)):
                return FewLengthscales(kernel, n_features, ties)
            ties = as_ties(ties.ties or None)
        return of_names(kernel, n_features, ties)
    if is_gpytorch_kernel(kernel):
        from sharpgp.gp.kernels.from_gpytorch import FromGPyTorch

        return FromGPyTorch(kernel)
    raise InvalidInputError(
        f"kernel: expected a name or a gpytorch kernel, found {type(kernel).__name__}"
    )


def asks_to_turn(kernel: Kernel, n_features: int) -> Directions | None:
    """Directions of a kernel of all of them, once the first fit's gradients are known.

    Examples
    --------
    >>> asks_to_turn(NamedKernel("rbf", Directions(2)), 2).most, asks_to_turn("rbf", 2)
    (2, None)
    """
    if not isinstance(kernel, NamedKernel) or not isinstance(kernel.ties, Directions):
        return None
    asked = kernel.ties
    whole = turns(kernel.name) and asked.asks_for_all(n_features) and not asked.are_learned
    return asked if whole else None


def kernel_of(covariance: Covariance, *, learned: bool = False) -> Kernel:
    """The kernel that :func:`make_covariance` was given; with directions if they are ``learned``.

    Examples
    --------
    >>> kernel_of(make_covariance("matern52", 2))
    'matern52'
    """
    if isinstance(covariance, Named):
        return named(covariance.kind, _given_ties(covariance, learned))
    from sharpgp.gp.kernels.from_gpytorch import FromGPyTorch

    assert isinstance(covariance, FromGPyTorch)
    return covariance.as_gpytorch()


def _given_ties(covariance: Named, learned: bool) -> Ties | Directions | None:
    ties = covariance.sharing
    return ties.forgotten() if isinstance(ties, Directions) and not learned else ties
