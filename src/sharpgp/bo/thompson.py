"""Thompson sampling from calibrated joint draws."""

import torch
from torch import Tensor

from sharpgp.bo.small_sample import SmallSamplePredictor
from sharpgp.gp.dense import cholesky


def joint_draws(
    predictor: SmallSamplePredictor, X: Tensor, n: int, generator: torch.Generator | None = None
) -> Tensor:
    r"""Joint draws [n, T] of the function at ``X`` [T, D], with calibrated marginals.

    A draw of the GP has the normal scores ``u(x) = (f(x) - mu(x)) / sigma(x)``, which depend on one
    another as the GP says; the function is then drawn as ``mu(x) + F^-1(Phi(u(x))) sigma(x)`` with
    the law ``F`` of the scores.

    Parameters
    ----------
    predictor : SmallSamplePredictor
    X : Tensor [T, D]
    n : int
    generator : torch.Generator, optional

    Examples
    --------
    >>> from sharpgp.bo.small_sample import ScoreLaw
    >>> from sharpgp.gp.training import train
    >>> X = torch.linspace(0, 6, 9, dtype=torch.float64)[:, None]
    >>> predictor = SmallSamplePredictor(train(X, X[:, 0].sin())[0], ScoreLaw(X[:0, 0]))
    >>> joint_draws(predictor.latent(), X + 0.3, 4).shape
    torch.Size([4, 9])
    """
    gp = predictor.posterior
    with torch.no_grad():
        theta = gp.theta_R.unsqueeze(0)
        Z, data = gp.x_units.forward(X), gp.X_standardised
        Ky = gp.covariance.matrix(theta, data)[0]
        Ky.diagonal().add_(theta[0, -1])
        factor = cholesky(Ky)[0]
        V = torch.linalg.solve_triangular(
            factor, gp.covariance.matrix(theta, data, Z)[0], upper=False
        )
        covariance = gp.covariance.matrix(theta, Z)[0] - V.mT @ V
        L = cholesky(covariance)[0]
        noise = torch.randn(len(Z), n, dtype=Z.dtype, generator=generator).to(Z)
        u = (L @ noise / L.square().sum(-1, keepdim=True).sqrt()).mT
        location, spread = predictor.moments(X)
        levels = torch.special.ndtr(u).clamp(1e-12, 1.0 - 1e-12)
        return location + _interpolated(predictor, levels) * spread


def _interpolated(predictor: SmallSamplePredictor, levels: Tensor) -> Tensor:
    """Quantiles of the score at levels of any shape, from a table between normal scores."""
    nodes = torch.linspace(-7.1, 7.1, 143, dtype=levels.dtype, device=levels.device)
    table = predictor.law.quantile(torch.special.ndtr(nodes))
    place = (torch.special.ndtri(levels) - nodes[0]) / (nodes[1] - nodes[0])
    left = place.floor().clamp(0, len(nodes) - 2).long()
    return torch.lerp(table[left], table[left + 1], place - left)
