"""gpytorch's ApproximateGP (SVGP): a posterior that is given by its variational distribution."""

from dataclasses import KW_ONLY, dataclass, replace
from typing import Any

import gpytorch
import torch
from gpytorch.models import ApproximateGP
from gpytorch.variational import UnwhitenedVariationalStrategy, VariationalStrategy
from torch import Tensor

from sharpgp._forwarded import forwarded
from sharpgp.exceptions import InvalidInputError
from sharpgp.gp.adapters.input_maps import Map
from sharpgp.gp.adapters.parts import (
    covariance_of,
    double,
    input_units,
    noise_of,
    prior_mean_of,
    target_units,
)
from sharpgp.gp.compute import block_entries
from sharpgp.gp.dense import cholesky
from sharpgp.gp.kernels.covariance import NOISE, Covariance
from sharpgp.gp.posterior import Posterior
from sharpgp.gp.scaling import Affine
from sharpgp.rows import Inputs, Rows


@dataclass(frozen=True, eq=False, repr=False)
class VariationalPosterior(Posterior):
    r"""Posterior of a stochastic variational GP, without its training data.

    With inducing inputs ``Z``, ``L L' = k(theta, Z, Z)``, ``a = L^-1 k(theta, Z, x)`` and the
    whitened variational distribution ``N(m, S)``,

    ``mu(x) = m_0(x) + a' m`` under ``theta_R`` and
    ``sigma^2(theta, x) = k(x, x) + noise - a' a + a' S a`` under ``theta``.

    The variational distribution is fixed in whitened coordinates while ``theta`` moves; under
    ``theta_R`` this is the model's own variance.

    References
    ----------
    J. Hensman, N. Fusi and N. Lawrence, "Gaussian Processes for Big Data", UAI 2013.
    """

    covariance: Covariance
    theta_R: Tensor
    inducing: Tensor
    m: Tensor
    S: Tensor
    _: KW_ONLY
    x_units: Affine
    prior_mean: Map
    scale: Tensor
    # gpytorch adds jitter to the covariance of the inducing points and of new ones.
    jitter_inducing: float
    extra: float

    names = forwarded("covariance.names")
    searched = forwarded("covariance.searched")
    n_inverse = forwarded("covariance.n_inverse")

    @property
    def n_inducing(self) -> int:
        return len(self.inducing)

    @property
    def n_features(self) -> int:
        return self.inducing.shape[1]

    device = forwarded("inducing.device")

    @property
    def n_dense(self) -> int:
        return 0

    @property
    def input_range(self) -> tuple[Tensor, Tensor]:
        """That of the inducing inputs."""
        Z = self.x_units.back(self.inducing)
        return Z.amin(0), Z.amax(0)

    def mean(self, rows: Inputs) -> Tensor:
        theta = self.theta_R.unsqueeze(0)
        L = self._factor(theta)
        parts = []
        for Z in self.x_units.forward(Rows.of(rows).X).split(self._rows(1)):
            a = torch.linalg.solve_triangular(
                L, self.covariance.matrix(theta, self.inducing, Z), upper=False
            )
            parts.append(self.prior_mean(Z) + self.scale * (self.m @ a[0]))
        return torch.cat(parts)

    def sigma(self, theta: Tensor, rows: Inputs) -> Tensor:
        rows = Rows.of(rows)
        L = self._factor(theta)
        parts = []
        for Z in self.x_units.forward(rows.X).split(self._rows(len(theta))):
            a = torch.linalg.solve_triangular(
                L, self.covariance.matrix(theta, self.inducing, Z), upper=False
            )
            prior = self.covariance.diag(theta, Z) + theta[:, NOISE, None] + self.extra
            variance = prior - a.square().sum(-2) + (a * (self.S @ a)).sum(-2)
            # Rounding may take a near-noiseless variance below zero; it is never exactly zero.
            parts.append(torch.maximum(variance, 1e-12 * prior.detach()))
        sigma = torch.cat(parts, -1).sqrt() * self.scale
        return sigma if rows.noise is None else (sigma.square() + rows.noise).sqrt()

    def _factor(self, theta: Tensor) -> Tensor:
        K = self.covariance.matrix(theta, self.inducing)
        eye = torch.eye(len(self.inducing), dtype=K.dtype, device=K.device)
        return cholesky(K + self.jitter_inducing * eye)[0]

    def _rows(self, n_levels: int) -> int:
        return max(1, block_entries(self.device) // (len(self.inducing) * n_levels))


def from_approximate_gp(model: Any, likelihood: Any) -> VariationalPosterior:
    """The posterior of a gpytorch ``ApproximateGP`` or BoTorch's ``SingleTaskVariationalGP``."""
    gp: Any = model if isinstance(model, ApproximateGP) else model.model
    likelihood = likelihood or getattr(model, "likelihood", None)
    if likelihood is None:
        raise InvalidInputError(
            "likelihood: expected that of the ApproximateGP, which has none itself, found none; "
            "use as_posterior(model, likelihood=...)"
        )
    strategy = gp.variational_strategy
    whitened = type(strategy) is VariationalStrategy
    if not whitened and type(strategy) is not UnwhitenedVariationalStrategy:
        raise InvalidInputError(
            f"model: expected a VariationalStrategy, found {type(strategy).__name__}"
        )
    Z = double(strategy.inducing_points)
    with torch.no_grad():
        q = strategy._variational_distribution()
    if not isinstance(q, gpytorch.distributions.MultivariateNormal) or q.mean.dim() != 1:
        raise InvalidInputError(
            f"model: expected a Gaussian variational distribution, found {type(q).__name__}"
        )
    m, S = double(q.mean), double(q.covariance_matrix)
    units = target_units(model)
    noise = noise_of(likelihood)
    covariance, theta = covariance_of(gp.covar_module, noise, Z.shape[1])
    _, prior_mean = prior_mean_of(gp.mean_module, units)
    x_units = input_units(model, Z.shape[1])
    if x_units is None:
        raise InvalidInputError(
            "model: expected input transforms that shift and scale, as Normalize does, found "
            f"{type(model.input_transform).__name__} in a variational GP"
        )
    posterior = VariationalPosterior(
        covariance,
        theta,
        Z,
        m,
        S,
        x_units=x_units,
        prior_mean=lambda Z: prior_mean(Z) + units.shift,
        scale=units.scale,
        jitter_inducing=float(strategy.jitter_val),
        extra=float(strategy.jitter_val) if whitened else 0.0,
    )
    if not whitened:
        with torch.no_grad():
            L = posterior._factor(theta.unsqueeze(0))[0]
            centred = m - prior_mean(Z) / units.scale
        solve = torch.linalg.solve_triangular
        m = solve(L, centred.unsqueeze(-1), upper=False).squeeze(-1)
        return replace(posterior, m=m, S=solve(L, solve(L, S, upper=False).mT, upper=False))
    return posterior
