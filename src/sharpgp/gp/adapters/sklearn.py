"""scikit-learn's GaussianProcessRegressor: its kernels, translated to gpytorch's."""

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from gpytorch import kernels
from sklearn.gaussian_process import GaussianProcessRegressor
from sklearn.gaussian_process import kernels as theirs

from sharpgp.exceptions import InvalidInputError
from sharpgp.gp.adapters.parts import covariance_of
from sharpgp.gp.exact.posterior import ExactPosterior
from sharpgp.gp.scaling import Affine


def from_sklearn(model: GaussianProcessRegressor) -> ExactPosterior:
    """The posterior of a fitted ``GaussianProcessRegressor``."""
    if not isinstance(model, GaussianProcessRegressor) or not hasattr(model, "X_train_"):
        raise InvalidInputError(
            "model: expected a fitted GP, found one that is not; call fit first"
        )
    X = np.asarray(model.X_train_, dtype=np.float64)
    y = np.asarray(model.y_train_, dtype=np.float64)
    if y.ndim != 1:
        raise InvalidInputError(f"model: expected one output, found {y.shape[1]}")
    alpha = np.unique(model.alpha)
    if len(alpha) != 1:
        raise InvalidInputError(
            "model: expected the same alpha at all points, found different ones"
        )
    kernel, noise = translated(model.kernel_, X.shape[1])
    variance = torch.tensor(noise + float(alpha[0]), dtype=torch.float64)
    covariance, theta = covariance_of(kernel.double(), variance, X.shape[1])
    # One number each, or one per output, by version and by normalize_y.
    shift, scale = (np.ravel(value)[0] for value in (model._y_train_mean, model._y_train_std))
    units = Affine(*(torch.tensor(float(v), dtype=torch.float64) for v in (shift, scale)))
    return ExactPosterior(
        torch.from_numpy(X), units.back(torch.from_numpy(y)), covariance, theta, y_units=units
    )


def translated(kernel: Any, n_features: int) -> tuple[kernels.Kernel, float]:
    """A gpytorch kernel equal to scikit-learn's without its white noise, and that noise.

    Examples
    --------
    >>> _, noise = translated(2.0 * theirs.RBF() + theirs.WhiteKernel(0.1), 1)
    >>> noise
    0.1
    """
    signals, noise = [], 0.0
    for term in _terms(kernel):
        level = _noise_level(term)
        if level is None:
            signals.append(_translated(term, n_features))
        else:
            noise += level
    if not signals:
        raise InvalidInputError(f"model: expected a kernel beside the noise, found {kernel}")
    return (signals[0] if len(signals) == 1 else kernels.AdditiveKernel(*signals)), noise


def _terms(kernel: Any) -> list[Any]:
    if isinstance(kernel, theirs.Sum):
        return _terms(kernel.k1) + _terms(kernel.k2)
    return [kernel]


def _noise_level(term: Any) -> float | None:
    """Variance of a term that is white noise, or a multiple of it."""
    if isinstance(term, theirs.WhiteKernel):
        return float(term.noise_level)
    if isinstance(term, theirs.Product):
        for factor, other in ((term.k1, term.k2), (term.k2, term.k1)):
            level = _noise_level(other)
            if isinstance(factor, theirs.ConstantKernel) and level is not None:
                return float(factor.constant_value) * level
    return None


def _translated(kernel: Any, d: int) -> kernels.Kernel:
    for kind, translate in _TRANSLATIONS.items():
        if type(kernel) is kind:
            return translate(kernel, d).double()
    raise _unknown(kernel)


def _unknown(kernel: Any, reason: str = "") -> InvalidInputError:
    known = ", ".join(kind.__name__ for kind in _TRANSLATIONS)
    return InvalidInputError(
        f"model: expected a kernel made of {known} and WhiteKernel, found "
        f"{type(kernel).__name__}{reason}"
    )


def _sum(kernel: Any, d: int) -> kernels.Kernel:
    return kernels.AdditiveKernel(*(_translated(term, d) for term in _terms(kernel)))


def _product(kernel: Any, d: int) -> kernels.Kernel:
    for factor, other in ((kernel.k1, kernel.k2), (kernel.k2, kernel.k1)):
        if isinstance(factor, theirs.ConstantKernel):
            scaled = kernels.ScaleKernel(_translated(other, d)).double()
            scaled.outputscale = float(factor.constant_value)
            return scaled
    return kernels.ProductKernel(_translated(kernel.k1, d), _translated(kernel.k2, d))


def _lengthscales(ours: kernels.Kernel, value: Any) -> kernels.Kernel:
    ours = ours.double()
    ours.lengthscale = torch.as_tensor(np.atleast_1d(value), dtype=torch.float64)
    return ours


def _ard(kernel: Any) -> int | None:
    return len(kernel.length_scale) if kernel.anisotropic else None


def _rbf(kernel: Any, d: int) -> kernels.Kernel:
    return _lengthscales(kernels.RBFKernel(ard_num_dims=_ard(kernel)), kernel.length_scale)


def _matern(kernel: Any, d: int) -> kernels.Kernel:
    if math.isinf(kernel.nu):
        return _rbf(kernel, d)
    if kernel.nu not in (0.5, 1.5, 2.5):
        raise _unknown(kernel, f" with nu={kernel.nu:g}")
    ours = kernels.MaternKernel(nu=kernel.nu, ard_num_dims=_ard(kernel))
    return _lengthscales(ours, kernel.length_scale)


def _rational(kernel: Any, d: int) -> kernels.Kernel:
    ours = _lengthscales(kernels.RQKernel(), kernel.length_scale)
    ours.alpha = float(kernel.alpha)
    return ours


def _periodic(kernel: Any, d: int) -> kernels.Kernel:
    if d != 1:
        raise _unknown(kernel, f" on {d} features, where gpytorch's means something else")
    # gpytorch's lengthscale is the square of scikit-learn's.
    ours = _lengthscales(kernels.PeriodicKernel(), kernel.length_scale**2)
    ours.period_length = float(kernel.periodicity)
    return ours


def _linear(kernel: Any, d: int) -> kernels.Kernel:
    linear = kernels.LinearKernel().double()
    linear.variance = 1.0
    return kernels.AdditiveKernel(linear, _constant_of(float(kernel.sigma_0) ** 2))


def _polynomial(kernel: Any, d: int) -> kernels.Kernel:
    power = kernel.exponent
    if type(kernel.kernel) is not theirs.DotProduct or power != int(power):
        raise _unknown(kernel, f" of {type(kernel.kernel).__name__}")
    ours = kernels.PolynomialKernel(power=int(power)).double()
    ours.offset = float(kernel.kernel.sigma_0) ** 2
    return ours


def _constant(kernel: Any, d: int) -> kernels.Kernel:
    return _constant_of(float(kernel.constant_value))


def _constant_of(value: float) -> kernels.Kernel:
    ours = kernels.ConstantKernel().double()
    ours.constant = torch.tensor(value, dtype=torch.float64)
    return ours


_TRANSLATIONS: dict[type, Callable[[Any, int], kernels.Kernel]] = {
    theirs.ConstantKernel: _constant,
    theirs.RBF: _rbf,
    theirs.Matern: _matern,
    theirs.RationalQuadratic: _rational,
    theirs.ExpSineSquared: _periodic,
    theirs.DotProduct: _linear,
    theirs.Exponentiation: _polynomial,
    theirs.Sum: _sum,
    theirs.Product: _product,
}
