"""When to stop: the probability that more than a given amount is left to gain."""

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
        Of an exact GP.
    X : Tensor [T, D]
    n : int
    generator : torch.Generator, optional

    Examples
    --------
    >>> from sharpgp.bo import ScoreLaw
    >>> from sharpgp.gp.training import train
    >>> X = torch.linspace(0, 6, 9, dtype=torch.float64)[:, None]
    >>> predictor = SmallSamplePredictor(train(X, X[:, 0].sin())[0], ScoreLaw(X[:0, 0]))
    >>> joint_draws(predictor, X + 0.3, 4).shape
    torch.Size([4, 9])
    """
    gp = predictor.posterior
    with torch.no_grad():
        L = cholesky(gp.latent_covariance(X, X))[0]
        noise = torch.randn(len(X), n, dtype=X.dtype, generator=generator)
        u = (L @ noise / L.square().sum(-1, keepdim=True).sqrt()).mT
        location, spread = SmallSamplePredictor(gp, predictor.law, latent=True).moments(X)
        nodes = torch.linspace(-7.1, 7.1, 143, dtype=X.dtype)
        table = predictor.law.quantile(torch.special.ndtr(nodes))
        place = (u.clamp(-7.0, 7.0) - nodes[0]) / (nodes[1] - nodes[0])
        left = place.floor().long()
        return location + torch.lerp(table[left], table[left + 1], place - left) * spread


def probability_of_gain(draws: Tensor, amount: float, runs: int) -> float:
    r"""Probability that ``runs`` more runs find a point better than the best by over ``amount``.

    ``P(max_(i <= m) f(x_i) > f(x_0) + amount)`` over joint draws with calibrated marginals, where
    ``x_0`` is the best point that was run and ``x_1, ..., x_m`` are those candidates, all over the
    space and around the best points, that are likeliest to gain so much.

    Parameters
    ----------
    draws : Tensor [n, T + 1]
        Of the function at ``x_0`` and at the candidates, in units of the target.
    amount : float
    runs : int
        ``m``.

    Examples
    --------
    >>> draws = torch.tensor([[1.0, 0.0, 2.0], [1.0, 1.5, 0.5], [1.0, 0.0, 0.0], [1.0, 3.0, 0.0]])
    >>> [probability_of_gain(draws, amount, runs=9) for amount in (0.0, 0.7, 2.0)]
    [0.75, 0.5, 0.0]
    """
    gains = draws[:, 1:] - draws[:, :1] > amount
    tried = gains.sum(0).topk(min(runs, gains.shape[1])).indices
    return float(gains[:, tried].any(1).double().mean())
