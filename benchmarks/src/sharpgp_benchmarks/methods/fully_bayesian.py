"""The GP averaged over the posterior of its hyperparameters."""

import math
from typing import Any, Self

import torch
from torch import Tensor

from sharpgp._stored import Array, agree, stored
from sharpgp.calibration.predictors.by_level import LevelPredictor
from sharpgp.calibration.recalibrator import PosteriorMethod, register
from sharpgp.gp.compute import block_entries
from sharpgp.gp.kernel_posterior import KernelPosterior
from sharpgp.gp.posterior import Posterior
from sharpgp.rows import Rows
from sharpgp_benchmarks.methods import check_counts
from sharpgp_benchmarks.methods.hyperposterior import observed, standardised
from sharpgp_benchmarks.methods.nuts import sample


@stored(
    "MixturePredictor",
    posterior=Posterior,
    own=KernelPosterior,
    theta=Array("S P", positive=True),
)
class MixturePredictor(LevelPredictor):
    r"""Quantiles of ``F(y | x) = mean_s Phi((y - mu_s(x)) / sigma_s(x))``, found as its roots.

    Parameters
    ----------
    posterior : Posterior
    own : KernelPosterior
        The data in standardised units, and the covariance.
    theta : Tensor [S, P]
        Samples of the hyperparameters, in ``own``'s units.
    """

    n_cal = None

    def __init__(self, posterior: Posterior, own: KernelPosterior, theta: Tensor) -> None:
        self.posterior = posterior
        self.own = own
        self.theta = theta

    def _restored(self) -> None:
        agree("features", self.own.n_features, self.posterior.n_features)
        agree("length of theta", self.theta.shape[1], len(self.own.theta_R))

    def components(self, X: Rows) -> tuple[Tensor, Tensor]:
        """Mean and standard deviation [S, T] of a new observation under every sample."""
        return self.own.moments(self.theta, X)

    def predict_mean(self, X: Any) -> Tensor:
        """Mean [T] of the mixture, which is not the mean under the trained hyperparameters."""
        blocks = self.rows(X).split(self._rows(1))
        return torch.cat([self.components(block)[0].mean(0) for block in blocks])

    def quantiles_inside(self, X: Rows, delta: Tensor) -> Tensor:
        blocks = X.split(self._rows(len(delta)))
        parts = [mixture_quantiles(*self.components(block), delta) for block in blocks]
        return torch.cat(parts, dim=-1)

    def band(self, X: Rows, coverage: float) -> tuple[Tensor, Tensor]:
        """About the mixture's mean, with its exact coverage.

        The mass outside ``mean -+ r`` is twice the lower tail of the mixture of all components
        and their mirror images, so that ``r`` is a quantile, too.
        """
        tail = torch.tensor([(1.0 - coverage) / 2.0], dtype=torch.float64, device=X.device)
        lower, upper = [], []
        for block in X.split(self._rows(2)):
            mu, sigma = self.components(block)
            mean = mu.mean(0)
            mirrored = torch.cat([mu - mean, mean - mu])
            radius = -mixture_quantiles(mirrored, torch.cat([sigma, sigma]), tail)[0]
            lower.append(mean - radius)
            upper.append(mean + radius)
        return torch.cat(lower), torch.cat(upper)

    def table_levels(self) -> Tensor:
        """Levels evenly spaced in z-scores, fine enough for a density good to 1e-3."""
        scores = torch.linspace(-5.0, 5.0, 101, dtype=torch.float64, device=self.posterior.device)
        return torch.special.ndtr(scores)

    def _updated(
        self, X: Rows, y: Tensor, weights: Tensor | None, units: Tensor | None = None
    ) -> Self:
        return self._conditioned(X, y)

    def _conditioned(self, X: Rows, y: Tensor) -> Self:
        other = super()._conditioned(X, y)
        other.own = self.own.conditioned_on(other.posterior.rows, other.posterior.y_train)
        return other

    def _rows(self, n_levels: int) -> int:
        width, entries = self.own.n_inducing or self.own.n_dense, block_entries(self.own.device)
        return max(1, entries // (len(self.theta) * max(width, 4 * n_levels)))


def mixture_quantiles(mu: Tensor, sigma: Tensor, delta: Tensor) -> Tensor:
    r"""Quantiles of equally weighted Gaussian mixtures, to rounding.

    Solves ``mean_s Phi((q - mu_s) / sigma_s) = delta`` by Newton steps on the logarithm of the
    smaller tail, inside a bracket that the components' own quantiles give; a step that leaves the
    bracket is replaced by a bisection.  Differentiable in ``mu`` and ``sigma``.

    Parameters
    ----------
    mu, sigma : Tensor [S, T]
    delta : Tensor [K]
        Levels in (0, 1), increasing.

    Returns
    -------
    Tensor [K, T]

    Examples
    --------
    >>> mu = torch.tensor([[-1.0], [1.0]], dtype=torch.float64)
    >>> levels = torch.tensor([0.1, 0.5, 0.9], dtype=torch.float64)
    >>> mixture_quantiles(mu, 0.5 * torch.ones_like(mu), levels)[:, 0]
    tensor([-1.4208,  0.0000,  1.4208], dtype=torch.float64)
    """
    centre = mu.mean(0)
    offset = mu - centre
    upper = delta > 0.5
    # Mirrored, the upper tail is a lower one, where probabilities keep their relative precision.
    low = _lower_quantiles(offset, sigma, delta[~upper])
    high = -_lower_quantiles(-offset, sigma, 1.0 - delta[upper])
    return centre + torch.cat([low, high]).cummax(0).values


def _lower_quantiles(mu: Tensor, sigma: Tensor, tail: Tensor) -> Tensor:
    """Quantiles [K, T] at levels ``tail`` [K] up to 1/2."""
    with torch.no_grad():
        own = mu + torch.special.ndtri(tail)[:, None, None] * sigma  # [K, S, T]
        low, high = own.amin(1), own.amax(1)
        x = own.mean(1)
        goal = tail.unsqueeze(-1)
        tolerance = 1e-14 * torch.maximum(sigma.amin(0), high - low)
        for iteration in range(100):
            mass, density = _mass_and_density(x, mu, sigma)
            below = mass < goal
            low, high = torch.where(below, x, low), torch.where(below, high, x)
            following = x - mass * (mass / goal).log() / density
            inside = (following > low) & (following < high) & (iteration < 40)
            following = torch.where(inside, following, 0.5 * (low + high))
            following = torch.where(mass == goal, x, following)
            done = bool(((following - x).abs() <= tolerance).all())
            x = following
            if done:
                break
    if torch.is_grad_enabled() and (mu.requires_grad or sigma.requires_grad):
        # The value stays; the derivative is that of the implicit function F(x) = tail.
        mass, density = _mass_and_density(x, mu, sigma)
        x = x - (mass - mass.detach()) / density.detach().clamp(min=1e-300)
    return x


def _mass_and_density(x: Tensor, mu: Tensor, sigma: Tensor) -> tuple[Tensor, Tensor]:
    """Mixture cdf and density [K, T] at ``x`` [K, T]."""
    t = (x.unsqueeze(1) - mu) / sigma
    density = (-0.5 * t.square()).exp() / (sigma * math.sqrt(2.0 * math.pi))
    # torch's ndtr is 1 + erf, which loses the tail; erfc keeps it.
    mass = 0.5 * torch.special.erfc(-t / math.sqrt(2.0))
    return mass.mean(1), density.mean(1)


@register("fully_bayesian")
class FullyBayesian(PosteriorMethod):
    r"""Mixture over samples ``theta_s`` from the hyperparameters' posterior, drawn with NUTS.

    ``F(y | x) = 1/S sum_s Phi((y - mu(theta_s, x)) / sigma(theta_s, x))``; its quantiles are
    found as roots, not by matching moments.  The means differ between samples, too:
    ``predict_mean`` of the result is the mixture's mean.  Calibration data are ignored.

    With ``d`` features, the priors on standardised inputs and target are

    - lengthscales: ``log l_j ~ N(log(d) / 2, 1.5^2)``;
    - signal variance: ``log s^2 ~ N(0, 1.5^2)``;
    - noise variance: ``log n^2 ~ N(-3, 2^2)``;

    wide enough for smooth and wiggly functions and for noise of 3 % to 160 % of the target's
    standard deviation.  The chains start at the trained hyperparameters.  Each of the at most
    ``(warmup + samples) (2^max_tree_depth - 1)`` gradients costs one factorisation and one
    inverse of an ``N x N`` matrix; for a sparse GP, the sampler sees at most 1,000 random training
    points, and predictions use all of them.  Needs one of the kernels ``"rbf"``, ``"matern12"``,
    ``"matern32"``, ``"matern52"``, and ``pip install "sharpgp-benchmarks[bayes]"``.

    Parameters
    ----------
    random_state : int or None
        Seed of the sampler.
    warmup, samples : int
        Iterations per chain that adapt the sampler, and that are kept.
    chains : int
        Run one after the other; the mixture has ``chains * samples`` components.
    max_tree_depth : int
        Bound on the length of a trajectory, ``2^max_tree_depth - 1`` steps.

    References
    ----------
    M. Hoffman and A. Gelman, "The No-U-Turn Sampler: Adaptively Setting Path Lengths in
    Hamiltonian Monte Carlo", JMLR, 2014.

    Examples
    --------
    >>> from sharpgp.gp.training import train
    >>> X = torch.linspace(0, 6, 20, dtype=torch.float64)[:, None]
    >>> posterior, _ = train(X, X[:, 0].sin())
    >>> method = FullyBayesian(warmup=5, samples=5, max_tree_depth=3, random_state=0)
    >>> method.fit(posterior, None, None).predict_interval(X, coverage=0.9).shape
    torch.Size([20, 2])
    """

    needs_calibration = False

    def __init__(
        self,
        *,
        random_state: int | None = None,
        warmup: int = 100,
        samples: int = 100,
        chains: int = 1,
        max_tree_depth: int = 7,
    ) -> None:
        super().__init__(random_state=random_state)
        check_counts(warmup=warmup, samples=samples, chains=chains, max_tree_depth=max_tree_depth)
        self.warmup = warmup
        self.samples = samples
        self.chains = chains
        self.max_tree_depth = max_tree_depth

    def _fit(self, posterior: Posterior, X: Rows, y: Tensor) -> MixturePredictor:
        gp = standardised(posterior, self.name)
        theta = sample(
            observed(gp, self.seed),
            seed=self.seed,
            warmup=self.warmup,
            samples=self.samples,
            chains=self.chains,
            max_tree_depth=self.max_tree_depth,
            name=self.name,
        )
        return MixturePredictor(posterior, gp, theta)
