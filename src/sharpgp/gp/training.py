"""Training of the base model by marginal likelihood, from several starts, with reported failures.

Named kernels are trained by bounded L-BFGS on the log hyperparameters, with the hand-written
gradient of :func:`sharpgp.gp.exact.likelihood.likelihood_at`: up to thirty times as fast as
BoTorch's fit of the same model (``sharpgp bench evidence training``), which also gives up when a
line search merely stalls.  A user's gpytorch kernel is trained by BoTorch, which knows all of its
parameters and priors.  With few points per hyperparameter, named kernels get a weak prior on
lengthscales (:mod:`sharpgp.gp.priors`).
"""

import logging
import math
import threading
from collections.abc import Sequence
from dataclasses import replace
from typing import Any, Literal

import numpy as np
import torch
from torch import Tensor

from sharpgp.exceptions import InvalidInputError, NumericalError
from sharpgp.gp.compute import side_by_side, threads_for
from sharpgp.gp.direction_search import turned, with_directions
from sharpgp.gp.directions import Directions
from sharpgp.gp.exact.likelihood import likelihood_at
from sharpgp.gp.exact.posterior import ExactPosterior
from sharpgp.gp.kernel_posterior import KernelPosterior
from sharpgp.gp.kernels.by_name import KERNELS, Kernel, asks_to_turn, kernel_of, make_covariance
from sharpgp.gp.kernels.covariance import NOISE, Covariance, Named
from sharpgp.gp.optimise import Found, minimise, with_gradient
from sharpgp.gp.posterior import Start, TrainingResult, retrain
from sharpgp.gp.priors import LengthscalePrior
from sharpgp.gp.scaling import Affine
from sharpgp.rows import Inputs, Rows

logger = logging.getLogger("sharpgp")

#: A covariance, its hyperparameters [P], and how they were found.
Trained = tuple[Covariance, Tensor, TrainingResult]
#: Smallest noise variance, relative to the target's variance.
NOISE_FLOOR = 1e-6
# Evaluations of each start before only the best one continues.
_TRIED_FOR = 20
# (inverse lengthscale times sqrt(d), signal variance, noise variance) of each start.  From long
# lengthscales all features count at first; from short ones what is rough is not taken for noise.
_STARTS = ((1.0, 1.0, 0.1), (0.5, 10.0, 0.03), (3.0, 10.0, 0.01))
_MOST_EVALUATIONS = 300
#: Steps together, and their gain in log likelihood per point, below which training stops; ...
STEPS, TOLERANCE = 5, 1e-7
#: ... and learning: less than half a unit in the log likelihood of 500 points.
REFIT_TOLERANCE = 1e-3


def train(
    X: Inputs,
    y: Tensor,
    kernel: Kernel = "rbf",
    *,
    start: Tensor | int | Sequence[int] | None = None,
    random_state: int | None = 0,
    tolerance: float = TOLERANCE,
    prior: LengthscalePrior | Literal["auto"] | None = "auto",
    most: int | None = None,
) -> tuple[ExactPosterior, TrainingResult]:
    r"""Train an exact GP with zero prior mean by maximising its marginal likelihood.

    ``log p(y) = -1/2 y' Ky^-1 y - 1/2 log|Ky| - N/2 log(2 pi)`` over lengthscales, signal and
    noise variance, on standardised inputs and target; plus the log density of the prior on
    lengthscales, where there is one.

    Parameters
    ----------
    X : Rows or Tensor [N, d]
    y : Tensor [N]
    kernel : str, NamedKernel or gpytorch kernel
    start : Tensor [P], int or sequence of int, optional
        Hyperparameters to start from, or the number of one or some of the built-in starts, instead
        of trying all of these (named kernels only).
    random_state : int, optional
        Seed of the rows that training sees, where these are not all, and of further starts, which
        are drawn only when the first ones fail.
    tolerance : float
        Gain in log likelihood per point, by :data:`STEPS` steps, below which training stops (named
        kernels only).
    prior : LengthscalePrior or None
        Prior on lengthscales (named kernels only).  By default a weak one, which counts in full
        below ten points per hyperparameter and not at all from twenty on: maximum likelihood
        overfits that many lengthscales.  None: no prior.
    most : int, optional
        Number of random points that training sees at most (named kernels only); the GP is
        conditioned on all.

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
    rows = Rows.of(X)
    covariance = make_covariance(kernel, rows.n_features)
    y_units = Affine.standardising(y)
    x_units = covariance.units(rows.X)
    Z, t = x_units.rows_forward(rows, y_units), y_units.forward(y)
    rng = np.random.default_rng(random_state)
    if isinstance(covariance, Named) and most is not None and most < len(y):
        some = torch.from_numpy(rng.permutation(len(y))[:most]).to(Z.device)
        Z, t = Z[some], t[some]
    covariance = with_directions(covariance, Z, t, x_units.scale)
    prior = chosen_prior(prior, covariance, len(t))
    with threads_for(len(t)):
        found = maximise_likelihood(Z, t, covariance, start, rng, tolerance, prior)
        if (asked := asks_to_turn(kernel, rows.n_features)) is not None:
            found = _likelier_turned(Z, t, found, asked, rng, tolerance)
    covariance, theta, result = found
    result = replace(result, most=most)
    logger.debug("training: %s", result)
    given = rows, y, covariance, theta
    return ExactPosterior(*given, x_units=x_units, y_units=y_units, training=result), result


def chosen_prior(
    prior: LengthscalePrior | Literal["auto"] | None, covariance: Covariance, n_train: int
) -> LengthscalePrior | None:
    """The prior as asked for; by default that for so many points, for a named kernel.

    Examples
    --------
    >>> chosen_prior("auto", make_covariance("rbf", 4), 90).weight
    0.5
    """
    if not isinstance(covariance, Named):
        return None
    if prior == "auto":
        return LengthscalePrior().for_size(n_train, covariance.n_theta)
    return prior


@retrain.register(ExactPosterior)
def retrain_exact(
    posterior: KernelPosterior, X: Inputs, y: Tensor, start: Start, most: int | None = None
) -> ExactPosterior:
    """Train the same kind of exact GP on other data: see ``DataPosterior.retrained``.

    With the prior it had, so that a refit without a few points is of the same kind.  After a warm
    start, the prior's weight follows the number of points.

    Examples
    --------
    >>> X = torch.linspace(0, 6, 40, dtype=torch.float64)[:, None]
    >>> posterior, _ = train(X, X[:, 0].sin())
    >>> posterior.retrained(X[::2], X[::2, 0].sin()).n_train
    20
    """
    covariance = posterior.covariance
    if not isinstance(covariance, Named):
        return train(X, y, kernel_of(covariance))[0]
    begin = posterior.theta_R if start == "warm" else start_of(posterior, start)
    prior = prior_of(posterior, len(y), start)
    again, result = train(
        X,
        y,
        kernel_of(covariance, learned=start == "warm"),
        start=begin,
        tolerance=REFIT_TOLERANCE,
        prior=prior,
        most=(posterior.training and posterior.training.most) or most,
    )
    again.training = replace(result, start=start_of(posterior, start))
    return again


def start_of(posterior: KernelPosterior, start: Start = "same") -> int | None:
    """Index of the built-in start that a GP came from, which its refits use; None for all."""
    if start == "fresh" or posterior.training is None:
        return None
    return posterior.training.start


def prior_of(posterior: KernelPosterior, n_train: int, start: Start) -> LengthscalePrior | None:
    """The prior for training the same kind of GP on other data."""
    prior = posterior.training.prior if posterior.training else None
    if prior is None or start != "warm":
        return prior
    return prior.for_size(n_train, posterior.covariance.n_theta)


def result_of(
    best: Found,
    tried: Sequence[Found],
    start: int | None,
    prior: LengthscalePrior | None,
    penalty: float,
) -> TrainingResult:
    """The result of training by several descents, of which the best is used.

    ``penalty`` is what the prior added to its value, and not part of the likelihood.
    """
    failures = tuple(dict.fromkeys(failure for one in tried for failure in one.failures))
    status = "retried" if failures else "converged" if best.done else "stopped"
    evaluations = sum(one.evaluations for one in tried)
    return TrainingResult(status, -best.value + penalty, evaluations, failures, start, prior)


def maximise_likelihood(
    Z: Inputs,
    t: Tensor,
    covariance: Covariance,
    start: Tensor | int | Sequence[int] | None,
    rng: np.random.Generator,
    tolerance: float = TOLERANCE,
    prior: LengthscalePrior | None = None,
) -> Trained:
    """Hyperparameters [P] with the greatest marginal likelihood, for standardised data.

    The covariance is the given one, with the trained values of parameters outside ``theta``.
    """
    if isinstance(covariance, Named):
        return covariance, *_train_named(Rows.of(Z), t, covariance, start, rng, tolerance, prior)
    from sharpgp.gp.kernels.from_gpytorch import FromGPyTorch, fit_by_botorch

    assert isinstance(covariance, FromGPyTorch)
    rows = Rows.of(Z)
    if rows.noise is not None:
        raise InvalidInputError(
            f"noise: expected one of the kernels {', '.join(KERNELS)}, found "
            f"{type(covariance.as_gpytorch()).__name__}"
        )
    covariance, theta, best = fit_by_botorch(rows.X, t, covariance, rng, NOISE_FLOOR)
    return covariance, theta, result_of(best, [best], None, None, 0.0)


def _likelier_turned(
    Z: Rows,
    t: Tensor,
    found: Trained,
    asked: Directions,
    rng: np.random.Generator,
    tolerance: float,
) -> Trained:
    """The same along the axes of its gradients, where these are worth their angles."""
    covariance, theta, result = found
    assert isinstance(covariance, Named)
    other = turned(covariance, theta, Z, t, asked)
    prior = result.prior
    if prior is not None:
        prior = prior.for_size(len(t), other.covariance.n_theta)
    try:
        again = maximise_likelihood(Z, t, other.covariance, other.start, rng, tolerance, prior)
    except NumericalError:
        return found
    if len(t) * (again[2].log_likelihood - result.log_likelihood) <= other.price:
        return found
    evaluations = result.evaluations + again[2].evaluations
    return *again[:2], replace(again[2], start=result.start, evaluations=evaluations)


class _Objective:
    """Negative log likelihood, or posterior, per point as a function of ``log theta``."""

    def __init__(
        self, rows: Rows, t: Tensor, covariance: Named, prior: LengthscalePrior | None = None
    ) -> None:
        self.t = t
        self.likelihood = likelihood_at(covariance, rows)
        self.penalty = covariance.penalty(prior, rows.X)
        self.evaluate = with_gradient(self, "the marginal likelihood", rows.X)

    def __call__(self, log_theta: Tensor) -> Tensor:
        fit = self.likelihood(log_theta.exp(), self.t)
        return (self.penalty(log_theta) - fit) / len(self.t)


def bounds_of(covariance: Named) -> tuple[np.ndarray, np.ndarray]:
    """Box of ``log theta`` that training stays in."""
    lower, upper = np.full(covariance.n_theta, 1e-4), np.full(covariance.n_theta, 1e4)
    upper[: covariance.n_inverse] = 1e2
    lower[NOISE] = NOISE_FLOOR
    return np.log(lower), np.log(upper)


def built_in_start(number: int, covariance: Named) -> np.ndarray:
    """``log theta`` of one of the starts that training tries; parts share the signal variance."""
    inverse, signal, noise = _STARTS[number]
    d, parts = covariance.n_lengthscales, covariance.n_theta - covariance.n_inverse - 1
    start = np.full(covariance.n_theta, signal / parts)
    # Lengthscales of single features, if there are any, do not grow with the number of features.
    of_all = np.array(covariance.of_all_features)
    start[: covariance.n_inverse] = np.where(of_all, inverse / math.sqrt(d), inverse)
    start[NOISE] = noise
    return np.log(start)


def _train_named(
    Z: Rows,
    t: Tensor,
    covariance: Named,
    start: Tensor | int | Sequence[int] | None,
    rng: np.random.Generator,
    tolerance: float,
    prior: LengthscalePrior | None = None,
) -> tuple[Tensor, TrainingResult]:
    lower, upper = bounds_of(covariance)

    stopping: dict[str, Any] = {"tolerance": tolerance, "steps": STEPS}
    own = threading.local()  # an objective for each thread: it works in its own memory

    def descend(u: np.ndarray, most: int) -> Found:
        if not hasattr(own, "objective"):
            own.objective = _Objective(Z, t, covariance, prior)
        return minimise(own.objective.evaluate, u, lower, upper, most=most, **stopping)

    def descents(starts: list[np.ndarray]) -> list[Found]:
        if len(starts) == 1:
            return [descend(starts[0], _MOST_EVALUATIONS)]
        return side_by_side(
            lambda u: descend(u, _TRIED_FOR), starts, in_turn=Z.device.type != "cpu"
        )

    numbers: list[int | None] = [None]
    if isinstance(start, Tensor):
        starts = [start.log().cpu().numpy()]
    else:
        chosen = range(len(_STARTS)) if start is None else start
        chosen = [chosen] if isinstance(chosen, int) else chosen
        numbers, starts = [*chosen], [built_in_start(number, covariance) for number in chosen]
    tried = descents(starts)
    best = min(tried, key=lambda one: one.value)
    number = numbers[tried.index(best)]
    if best.failed:  # every start failed: draw others before giving up
        tried += descents([starts[0] + rng.normal(0.0, 1.0, covariance.n_theta) for _ in _STARTS])
        best = min(tried, key=lambda one: one.value)
        number = None
    if best.failed:
        raise NumericalError(
            f"training failed from {len(tried)} starts; last failure: {tried[-1].failures[-1]}"
        )
    if not best.done:
        best = descend(best.x, _MOST_EVALUATIONS - _TRIED_FOR)
        tried.append(best)
    theta = torch.from_numpy(np.exp(best.x)).to(t)
    penalty = float(covariance.penalty(prior, Z.X)(theta.log())) / len(t)
    return theta, result_of(best, tried, number, prior, penalty)
