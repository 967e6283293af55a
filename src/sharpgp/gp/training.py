"""Training of the base model by marginal likelihood, from several starts, with reported failures.

Named kernels are trained by bounded L-BFGS on the log hyperparameters, with the hand-written
gradient of :func:`sharpgp.gp.linalg.log_marginal_likelihood`: up to thirty times as fast as
BoTorch's fit of the same model (``benchmarks/training.py``), which moreover gives up where a line
search only stalls.  A gpytorch kernel of the user's own is trained by BoTorch, which knows all of
its parameters and priors.  With few points per hyperparameter, named kernels get a weak prior on
lengthscales (:mod:`sharpgp.gp.priors`).
"""

import logging
import math
import warnings
from dataclasses import dataclass, replace
from typing import Literal

import gpytorch
import numpy as np
import torch
from botorch.models import SingleTaskGP
from botorch.optim.fit import fit_gpytorch_mll_scipy
from gpytorch.constraints import GreaterThan
from gpytorch.likelihoods import GaussianLikelihood
from gpytorch.means import ZeroMean
from gpytorch.mlls import ExactMarginalLogLikelihood
from scipy.optimize import minimize
from torch import Tensor

from sharpgp._stored import Maybe, Several, stored
from sharpgp.exceptions import InvalidInputError, NumericalError
from sharpgp.gp.covariance import Covariance, FromGPyTorch, Stationary, make_covariance
from sharpgp.gp.large import likelihood_of
from sharpgp.gp.posterior import DataPosterior, ExactPosterior
from sharpgp.gp.priors import LengthscalePrior, penalty_of
from sharpgp.gp.scaling import Affine
from sharpgp.gp.threads import side_by_side, threads_for

logger = logging.getLogger("sharpgp")

#: Smallest noise variance, relative to the target's variance.
NOISE_FLOOR = 1e-6
# (inverse lengthscale times sqrt(d), signal variance, noise variance) of each start.
_STARTS = ((1.0, 1.0, 0.1), (3.0, 1.0, 0.1), (1.0, 10.0, 0.01), (3.0, 10.0, 0.01))
# Evaluations that each start gets before only the best one goes on.
_SCREENING = 20
_MOST_EVALUATIONS = 300
# Points from which starts run side by side; fewer take no time.
_SIDE_BY_SIDE = 300
#: Points beyond which starts are tried on a part of them only, and how many that part has.
MOST_FROM_SCRATCH = 4000
_FIRST_ROWS = 2000
# A refit stops where 400 points would gain less than a hundredth in log likelihood.
_REFIT_TOLERANCE = 1e-5


@stored(
    "TrainingResult",
    status=str,
    log_likelihood=float,
    evaluations=int,
    failures=Several(str),
    start=int | None,
    prior_weight=Maybe(float),
)
@dataclass(frozen=True)
class TrainingResult:
    """How the training of a base model went.

    ``status`` is ``"converged"``, ``"stopped"`` (evaluations ran out) or ``"retried"`` (some
    starts failed); ``log_likelihood`` is per training point, in standardised units; ``start`` is
    the number of the built-in start that won, if one did; ``prior_weight`` is the weight of the
    prior on lengthscales: 1 below ten points per hyperparameter, 0 from twenty on.
    """

    status: str
    log_likelihood: float
    evaluations: int
    failures: tuple[str, ...] = ()
    start: int | None = None
    prior_weight: float = 0.0


def train(
    X: Tensor,
    y: Tensor,
    kernel: str | gpytorch.kernels.Kernel = "rbf",
    *,
    start: Tensor | int | None = None,
    random_state: int | None = 0,
    tolerance: float = 1e-7,
    prior: LengthscalePrior | Literal["auto"] | None = "auto",
) -> tuple[ExactPosterior, TrainingResult]:
    r"""Train an exact GP with zero prior mean by maximising its marginal likelihood.

    ``log p(y) = -1/2 y' Ky^-1 y - 1/2 log|Ky| - N/2 log(2 pi)`` over lengthscales, signal and
    noise variance, on standardised inputs and target; plus the log density of the prior on
    lengthscales, where there is one.

    Parameters
    ----------
    X : Tensor [N, d]
    y : Tensor [N]
    kernel : str or gpytorch kernel
    start : Tensor [P] or int, optional
        Hyperparameters to start from, or the number of one of the built-in starts, instead of
        trying all of these (named kernels only).
    random_state : int, optional
        Seed of further starts, which are drawn only when the first ones fail.
    tolerance : float
        Gain in log likelihood per point below which training stops (named kernels only).
    prior : LengthscalePrior or None
        Prior on lengthscales (named kernels only).  By default a weak one, which counts in full
        below ten points per hyperparameter and not at all from twenty on: maximum likelihood
        overfits that many lengthscales.  None: no prior.

    Returns
    -------
    posterior : ExactPosterior
    result : TrainingResult

    Raises
    ------
    NumericalError
        If every start fails.

    Examples
    --------
    >>> X = torch.linspace(0, 6, 40, dtype=torch.float64)[:, None]
    >>> posterior, result = train(X, X[:, 0].sin())
    >>> result.status
    'converged'
    >>> round(result.prior_weight, 3)  # 13 points per hyperparameter
    0.667
    """
    x_units, y_units = Affine.standardising(X), Affine.standardising(y)
    Z, t = x_units.forward(X), y_units.forward(y)
    covariance = make_covariance(kernel, X.shape[1])
    rng = np.random.default_rng(random_state)
    prior = chosen_prior(prior, covariance, len(y))
    with threads_for(len(y)):
        theta, result = maximise_likelihood(Z, t, covariance, start, rng, tolerance, prior)
    logger.debug("training: %s", result)
    posterior = ExactPosterior(X, y, covariance, theta, x_units=x_units, y_units=y_units)
    posterior.training_start, posterior.training_prior = result.start, prior
    return posterior, result


def chosen_prior(
    prior: LengthscalePrior | Literal["auto"] | None, covariance: Covariance, n_train: int
) -> LengthscalePrior | None:
    """The prior as asked for; by default that for so many points, for a named kernel.

    Examples
    --------
    >>> chosen_prior("auto", Stationary("rbf", 4), 90).weight
    0.5
    """
    if not isinstance(covariance, Stationary):
        return None
    if prior == "auto":
        return LengthscalePrior().for_size(n_train, covariance.n_theta)
    return prior


def retrain(
    posterior: ExactPosterior, X: Tensor, y: Tensor, *, warm: bool = False
) -> ExactPosterior:
    """Train the same kind of GP on other data, from scratch or from its hyperparameters.

    A warm start saves most of the time, but keeps what the hyperparameters knew of the old data;
    where that matters, as in cross-validation, start from scratch: from the built-in start that
    served the old data best, and with the prior that they had, so that a refit without a few
    points is of the same kind.  After a warm start the number of points tells the prior's weight.

    Examples
    --------
    >>> X = torch.linspace(0, 6, 40, dtype=torch.float64)[:, None]
    >>> posterior, _ = train(X, X[:, 0].sin())
    >>> retrain(posterior, X[::2], X[::2, 0].sin()).n_train
    20
    """
    covariance = posterior.covariance
    if not isinstance(covariance, Stationary):
        return train(X, y, covariance.as_gpytorch())[0]
    start = posterior.theta_R if warm else posterior.training_start
    prior = passed_on(posterior, len(y), warm=warm)
    again, _ = train(X, y, covariance.kind, start=start, tolerance=_REFIT_TOLERANCE, prior=prior)
    again.training_start = posterior.training_start
    return again


def passed_on(posterior: DataPosterior, n_train: int, *, warm: bool) -> LengthscalePrior | None:
    """The prior with which the same kind of GP is trained on other data."""
    prior = posterior.training_prior
    if prior is None or not warm:
        return prior
    return prior.for_size(n_train, posterior.covariance.n_theta)


def maximise_likelihood(
    Z: Tensor,
    t: Tensor,
    covariance: Covariance,
    start: Tensor | int | None,
    rng: np.random.Generator,
    tolerance: float = 1e-7,
    prior: LengthscalePrior | None = None,
) -> tuple[Tensor, TrainingResult]:
    """Hyperparameters [P] with the greatest marginal likelihood, for standardised data.

    Beyond :data:`MOST_FROM_SCRATCH` points, starts are tried on a random part of them, and only
    what that part gives is improved on all points.
    """
    if isinstance(covariance, Stationary):
        if len(t) <= MOST_FROM_SCRATCH or isinstance(start, Tensor):
            return _train_stationary(Z, t, covariance, start, rng, tolerance, prior)
        rows = torch.from_numpy(rng.permutation(len(t))[:_FIRST_ROWS]).to(Z.device)
        part = Z[rows], t[rows]
        theta, first = _train_stationary(*part, covariance, start, rng, tolerance, prior)
        theta, result = _train_stationary(Z, t, covariance, theta, rng, tolerance, prior)
        return theta, replace(result, start=first.start)
    assert isinstance(covariance, FromGPyTorch)
    return _train_with_botorch(Z, t, covariance, rng)


class _Objective:
    """Negative log likelihood, or posterior, per point as a function of ``log theta``."""

    def __init__(
        self, Z: Tensor, t: Tensor, covariance: Stationary, prior: LengthscalePrior | None = None
    ) -> None:
        self.Z, self.t, self.covariance = Z, t, covariance
        self.penalty = penalty_of(prior, Z)
        self.evaluations = 0
        self.failures: list[str] = []

    def __call__(self, u: np.ndarray) -> tuple[float, np.ndarray]:
        self.evaluations += 1
        leaf = torch.tensor(u, dtype=torch.float64, device=self.Z.device, requires_grad=True)
        theta = leaf.exp().unsqueeze(0)
        try:
            value = -likelihood_of(self.covariance, theta, self.Z, self.t)[0] / len(self.t)
            if not torch.isfinite(value):
                raise NumericalError("the marginal likelihood came out as NaN or inf")
            value = value + self.penalty(leaf) / len(self.t)
        except NumericalError as error:
            # Very bad, but finite: the line search then steps back.
            self.failures.append(str(error))
            return 1e10, np.zeros_like(u)
        (gradient,) = torch.autograd.grad(value, leaf)
        return value.item(), gradient.cpu().numpy()


def bounds_of(n_features: int) -> tuple[np.ndarray, np.ndarray]:
    """Box of ``log theta`` that training stays in."""
    lower = np.log(np.r_[np.full(n_features, 1e-4), 1e-4, NOISE_FLOOR])
    return lower, np.log(np.r_[np.full(n_features, 1e2), 1e4, 10.0])


def built_in_start(number: int, n_features: int) -> np.ndarray:
    """``log theta`` of one of the starts that training tries."""
    inverse, signal, noise = _STARTS[number]
    return np.log(np.r_[np.full(n_features, inverse / math.sqrt(n_features)), signal, noise])


def _train_stationary(
    Z: Tensor,
    t: Tensor,
    covariance: Stationary,
    start: Tensor | int | None,
    rng: np.random.Generator,
    tolerance: float,
    prior: LengthscalePrior | None = None,
) -> tuple[Tensor, TrainingResult]:
    d = covariance.n_features
    lower, upper = bounds_of(d)

    def descend(u: np.ndarray, evaluations: int) -> _Descent:
        objective = _Objective(Z, t, covariance, prior)
        found = minimize(
            objective,
            np.clip(u, lower, upper),
            jac=True,
            method="L-BFGS-B",
            bounds=list(zip(lower, upper, strict=True)),
            options={"maxfun": evaluations, "ftol": tolerance, "gtol": 1e-6},
        )
        return _Descent(float(found.fun), found.x, bool(found.nfev < evaluations), objective)

    def descents(starts: list[np.ndarray]) -> list[_Descent]:
        if len(starts) == 1:
            return [descend(starts[0], _MOST_EVALUATIONS)]
        alone = len(t) < _SIDE_BY_SIDE or Z.device.type != "cpu"
        return side_by_side(lambda u: descend(u, _SCREENING), starts, alone=alone)

    starts = [built_in_start(number, d) for number in range(len(_STARTS))]
    if isinstance(start, Tensor):
        starts = [start.log().cpu().numpy()]
    elif start is not None:
        starts = [starts[start]]
    tried = descents(starts)
    best = min(tried, key=lambda one: one.value)
    number = tried.index(best) if start is None else start if isinstance(start, int) else None
    if best.value >= 1e10:  # every start failed: draw others before giving up
        tried += descents([starts[0] + rng.normal(0.0, 1.0, d + 2) for _ in range(4)])
        best = min(tried, key=lambda one: one.value)
        number = None
    if best.value >= 1e10:
        raise NumericalError(
            f"training failed from {len(tried)} starts; last failure: "
            f"{tried[-1].objective.failures[-1]}"
        )
    if not best.done:
        best = descend(best.u, _MOST_EVALUATIONS - _SCREENING)
        tried.append(best)
    failures = tuple(dict.fromkeys(f for one in tried for f in one.objective.failures))
    status = "retried" if failures else "converged" if best.done else "stopped"
    theta = torch.from_numpy(np.exp(best.u)).to(Z)
    evaluations = sum(one.objective.evaluations for one in tried)
    value = -best.value + float(best.objective.penalty(theta.log())) / len(t)
    weight = prior.weight if prior is not None else 0.0
    return theta, TrainingResult(status, value, evaluations, failures, number, weight)


@dataclass(frozen=True, eq=False)
class _Descent:
    """Where the optimiser got from one start, whether it was done, and what it evaluated."""

    value: float
    u: np.ndarray
    done: bool
    objective: _Objective


def _train_with_botorch(
    Z: Tensor, t: Tensor, covariance: FromGPyTorch, rng: np.random.Generator
) -> tuple[Tensor, TrainingResult]:
    """BoTorch's fit of a kernel with parameters that only gpytorch knows; retries from noise."""
    try:
        covariance.as_gpytorch().to(Z)(Z[:2]).to_dense()
    except (RuntimeError, IndexError) as error:
        raise InvalidInputError(
            f"kernel: expected a kernel for {Z.shape[1]} feature(s), found one that fails on "
            f"them: {str(error).splitlines()[0]}"
        ) from None
    failures: list[str] = []
    evaluations = 0
    for attempt in range(4):
        likelihood = GaussianLikelihood(noise_constraint=GreaterThan(NOISE_FLOOR)).to(Z)
        likelihood.noise = 0.1
        model = SingleTaskGP(
            Z,
            t.unsqueeze(-1),
            likelihood=likelihood,
            covar_module=covariance.as_gpytorch().to(Z),
            mean_module=ZeroMean(),
            outcome_transform=None,
        )
        if attempt:
            with torch.no_grad():
                for parameter in model.covar_module.parameters():
                    noise = rng.normal(0.0, 0.5, tuple(parameter.shape))
                    parameter.add_(torch.from_numpy(np.asarray(noise)).to(parameter))
        mll = ExactMarginalLogLikelihood(likelihood, model)
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
            status = "retried" if failures else "converged"
            return theta, TrainingResult(status, value, evaluations, tuple(failures))
        failures.append(f"no progress from a log likelihood of {before:.4g} per point")
    raise NumericalError(f"training failed from 4 starts; last failure: {failures[-1]}")


def _mean_log_likelihood(mll: ExactMarginalLogLikelihood, Z: Tensor, t: Tensor) -> float:
    mll.train()
    with torch.no_grad(), _exact_algebra():
        return float(mll(mll.model(Z), t))


def _exact_algebra() -> gpytorch.settings.fast_computations:
    """Cholesky throughout: no conjugate gradients, whatever the size."""
    return gpytorch.settings.fast_computations(False, False, False)
