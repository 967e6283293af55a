"""Training of the base model by marginal likelihood, with retries that are reported."""

import logging
import math
import warnings
from dataclasses import dataclass

import gpytorch
import torch
from botorch.exceptions.errors import ModelFittingError
from botorch.fit import fit_gpytorch_mll
from botorch.models import SingleTaskGP
from gpytorch.constraints import GreaterThan
from gpytorch.likelihoods import GaussianLikelihood
from gpytorch.means import ZeroMean
from gpytorch.mlls import ExactMarginalLogLikelihood
from torch import Tensor

from sharpgp.exceptions import NumericalError
from sharpgp.gp.covariance import Covariance, Stationary, make_covariance
from sharpgp.gp.posterior import Exact
from sharpgp.gp.scaling import Affine

logger = logging.getLogger("sharpgp")

#: Smallest noise variance, relative to the target's variance.
NOISE_FLOOR = 1e-6


@dataclass(frozen=True)
class TrainingResult:
    """How the training of a base model went.

    ``status`` is ``"converged"`` or ``"retried"``; ``log_likelihood`` is per training point, in
    standardised units.
    """

    status: str
    log_likelihood: float
    attempts: int


def train(
    X: Tensor,
    y: Tensor,
    kernel: str | gpytorch.kernels.Kernel = "rbf",
    *,
    max_attempts: int = 4,
    random_state: int | None = 0,
) -> tuple[Exact, TrainingResult]:
    r"""Train an exact GP with zero prior mean by maximising its marginal likelihood.

    ``log p(y) = -1/2 y' Ky^-1 y - 1/2 log|Ky| - N/2 log(2 pi)`` over lengthscales, signal and
    noise variance, on standardised inputs and target, with BoTorch's bounded L-BFGS.

    Parameters
    ----------
    X : Tensor [N, d]
    y : Tensor [N]
    kernel : str or gpytorch kernel
    max_attempts : int
        Starting points tried when an attempt fails or makes no progress.
    random_state : int
        Seed of the further starting points.

    Returns
    -------
    posterior : Exact
    result : TrainingResult

    Raises
    ------
    NumericalError
        If every attempt fails.

    Examples
    --------
    >>> X = torch.linspace(0, 6, 40, dtype=torch.float64)[:, None]
    >>> posterior, result = train(X, X[:, 0].sin())
    >>> result.status
    'converged'
    """
    x_units, y_units = Affine.standardising(X), Affine.standardising(y)
    Z, t = x_units.forward(X), y_units.forward(y)
    covariance = make_covariance(kernel, X.shape[1])
    generator = torch.Generator().manual_seed(random_state or 0)
    best: tuple[float, Tensor] | None = None
    failures: list[str] = []
    attempts = 0
    while attempts < max_attempts:
        attempts += 1
        try:
            likelihood, theta = _attempt(Z, t, covariance, attempts, generator)
        except (ModelFittingError, NumericalError, gpytorch.utils.errors.NanError) as error:
            failures.append(str(error).splitlines()[0] if str(error) else type(error).__name__)
            logger.info("training attempt %d failed: %s", attempts, failures[-1])
            continue
        if best is None or likelihood > best[0]:
            best = (likelihood, theta)
        if _explains_something(theta):
            break
        failures.append("no progress beyond pure noise")
    if best is None:
        raise NumericalError(
            f"training failed in {attempts} attempts (last: {failures[-1]}); expected a kernel "
            "matrix that can be factorised, check for duplicate rows with different scales"
        )
    status = "converged" if not failures else "retried"
    posterior = Exact(X, y, covariance, best[1], x_units=x_units, y_units=y_units)
    return posterior, TrainingResult(status, best[0], attempts)


def _attempt(
    Z: Tensor, t: Tensor, covariance: Covariance, attempt: int, generator: torch.Generator
) -> tuple[float, Tensor]:
    """One run of BoTorch's fit; returns the log likelihood per point and ``theta``."""
    likelihood = GaussianLikelihood(noise_constraint=GreaterThan(NOISE_FLOOR)).to(Z)
    model = SingleTaskGP(
        Z,
        t.unsqueeze(-1),
        likelihood=likelihood,
        covar_module=covariance.as_gpytorch().to(Z.device),
        mean_module=ZeroMean(),
        outcome_transform=None,
    )
    _start(model, covariance, attempt, generator)
    mll = ExactMarginalLogLikelihood(likelihood, model)
    with warnings.catch_warnings(), gpytorch.settings.fast_computations(False, False, False):
        # BoTorch warns about every abandoned step; the outcome is judged here instead.
        warnings.simplefilter("ignore")
        fit_gpytorch_mll(mll, max_attempts=1, pick_best_of_all_attempts=True)
    model.train()
    with torch.no_grad(), gpytorch.settings.fast_computations(False, False, False):
        value = float(mll(model(Z), t))
    theta = covariance.theta_of(model.covar_module, likelihood.noise)
    if not (math.isfinite(value) and torch.isfinite(theta).all()):
        raise NumericalError("the marginal likelihood came out as NaN or inf")
    return value, theta


def _start(
    model: SingleTaskGP, covariance: Covariance, attempt: int, generator: torch.Generator
) -> None:
    """Starting values: lengthscales grow with the dimension, as distances do."""
    if isinstance(covariance, Stationary):
        exponent = torch.empty(1).uniform_(-0.7, 0.7, generator=generator)
        spread = 1.0 if attempt == 1 else 10.0 ** float(exponent)
        model.covar_module.outputscale = 1.0
        model.covar_module.base_kernel.lengthscale = spread * math.sqrt(covariance.n_features)
    elif attempt > 1:
        with torch.no_grad():
            for parameter in model.covar_module.parameters():
                parameter.add_(torch.randn(parameter.shape, generator=generator).to(parameter))
    model.likelihood.noise = 0.1 if attempt == 1 else 0.01


def _explains_something(theta: Tensor) -> bool:
    """Whether the fit is more than pure noise (then another start is worth trying)."""
    noise = float(theta[-1])
    return noise < 0.98
