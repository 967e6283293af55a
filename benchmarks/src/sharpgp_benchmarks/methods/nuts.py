"""Samples from the posterior of a GP's hyperparameters, drawn with NUTS (extra ``bayes``)."""

import logging
import math
from typing import Any

import numpy as np
import torch
from torch import Tensor

from sharpgp.exceptions import MissingExtraError, NumericalError
from sharpgp.gp.exact.posterior import ExactPosterior
from sharpgp.gp.kernels.covariance import STATIONARY, Stationary
from sharpgp_benchmarks.methods.hyperposterior import prior

logger = logging.getLogger("sharpgp")


def sample(
    gp: ExactPosterior,
    *,
    seed: int,
    warmup: int,
    samples: int,
    chains: int,
    max_tree_depth: int,
    name: str,
) -> Tensor:
    """Samples [S, P] of the hyperparameters under the prior of ``hyperposterior.prior``.

    Parameters
    ----------
    gp : ExactPosterior
        In standardised units, with a stationary kernel.
    seed : int
    warmup, samples : int
        Iterations per chain that adapt the sampler, and that are kept.
    chains : int
        Run one after the other, each from close to the trained hyperparameters.
    max_tree_depth : int
        Bound on the length of a trajectory, ``2^max_tree_depth - 1`` steps.
    name : str
        Name of the method, for messages.
    """
    enable_x64, jax, hmc = _sampler(name)
    assert isinstance(gp.covariance, Stationary)
    rng = np.random.default_rng(seed)
    location, scale = prior(gp.n_inverse)
    # A lengthscale that training sent to infinity is a poor place to start from.
    trained = gp.theta_R.cpu().numpy()
    start = np.clip((np.log(trained) - location) / scale, -2.0, 2.0)
    start = start + 0.1 * rng.normal(size=(chains, len(start)))
    with enable_x64(True):
        potential = _potential(
            gp.X_standardised.cpu().numpy(),
            gp.y_standardised.cpu().numpy(),
            gp.covariance,
            location,
            scale,
        )
        begin, move = hmc(potential, algo="NUTS")
        step = jax.jit(move)  # compiled once for all iterations of all chains
        kept: list[Any] = []
        diverging = 0
        for initial in start:
            state = begin(
                jax.numpy.asarray(initial),
                warmup,
                max_tree_depth=max_tree_depth,
                rng_key=jax.random.PRNGKey(int(rng.integers(2**31))),
            )
            for iteration in range(warmup + samples):
                state = step(state)
                if iteration >= warmup:
                    kept.append(np.array(state.z))
                    diverging += int(state.diverging)
    white = np.stack(kept)
    logger.info("NUTS: %d samples, %d divergent transitions", len(white), diverging)
    theta: np.ndarray = np.exp(location + scale * white)
    if not np.isfinite(theta).all():
        raise NumericalError(
            "expected finite samples of the hyperparameters, found NaN or inf; check the data "
            "for duplicate rows or use calibration='vanilla'"
        )
    return torch.from_numpy(theta).to(gp.device)


def _sampler(name: str = "fully_bayesian") -> tuple[Any, Any, Any]:
    """The optional packages: a context for double precision, ``jax``, numpyro's ``hmc``."""
    try:
        import jax
        import jax.experimental
        from numpyro.infer.hmc import hmc
    except ImportError:
        raise MissingExtraError(
            f"{name}: expected the packages jax and numpyro, found at least one missing; "
            'pip install "sharpgp-benchmarks[bayes]"'
        ) from None
    home: Any = jax if hasattr(jax, "enable_x64") else jax.experimental  # moved in 0.8
    return home.enable_x64, jax, hmc


def _potential(
    X_train: np.ndarray,
    y_train: np.ndarray,
    covariance: Stationary,
    location: np.ndarray,
    scale: np.ndarray,
) -> Any:
    """Negative log posterior of whitened ``log theta``, as a function for NUTS."""
    import jax
    import jax.numpy as jnp

    n, d = X_train.shape
    lengthscale = np.array(range(d) if covariance.ties is None else covariance.ties)
    X, y = jnp.asarray(X_train), jnp.asarray(y_train)
    identity = jnp.eye(n)

    def evaluate(Ky: Any) -> Any:
        L = jnp.linalg.cholesky(Ky)
        inverse = jax.scipy.linalg.cho_solve((L, True), identity)
        alpha = inverse @ y
        return -0.5 * y @ alpha - jnp.log(jnp.diagonal(L)).sum(), (inverse, alpha)

    @jax.custom_vjp
    def log_likelihood(Ky: Any) -> Any:
        return evaluate(Ky)[0]

    def backward(saved: Any, g: Any) -> tuple[Any]:
        # Cheaper than differentiating through the factor.
        inverse, alpha = saved
        return (0.5 * g * (jnp.outer(alpha, alpha) - inverse),)

    log_likelihood.defvjp(evaluate, backward)

    def potential(white: Any) -> Any:
        theta = jnp.exp(location + scale * white)
        Z = X * theta[lengthscale]
        squares = (Z * Z).sum(1)
        distance = (squares[:, None] + squares - 2.0 * Z @ Z.T) * (1.0 - identity)
        K = theta[-2] * _correlation(distance, STATIONARY[covariance.kind])
        return 0.5 * white @ white - log_likelihood(K + theta[-1] * identity)

    return potential


def _correlation(squared: Any, smoothness: float) -> Any:
    """Correlation at squared distances, with a finite gradient at 0."""
    import jax.numpy as jnp

    if math.isinf(smoothness):
        return jnp.exp(-0.5 * jnp.maximum(squared, 0.0))
    r = jnp.sqrt(2.0 * smoothness * jnp.where(squared > 1e-24, squared, 1e-24))
    if smoothness == 0.5:
        return jnp.exp(-r)
    if smoothness == 1.5:
        return (1.0 + r) * jnp.exp(-r)
    return (1.0 + r + r * r / 3.0) * jnp.exp(-r)
