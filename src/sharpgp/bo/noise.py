"""Noise that differs from place to place, learned from the results of an optimisation."""

from dataclasses import dataclass

import torch
from torch import Tensor

from sharpgp._stored import stored
from sharpgp.bo.small_sample import leave_one_out_scores
from sharpgp.gp.exact import ExactPosterior
from sharpgp.models.heteroscedastic import ScaleModel

#: Results from which noise is learned.
LEAST_LEARNED = 20
#: What learned noise has to gain in leave-one-out log density, summed over points.
COST = 2.0


@stored("LearnedNoise", scale=ScaleModel, level=float)
@dataclass(frozen=True, eq=False)
class LearnedNoise:
    """Variance ``level exp(g(x))`` of the noise, with ``g`` a scale model.

    Examples
    --------
    >>> from sharpgp.gp.training import train
    >>> X = torch.linspace(-1, 1, 60, dtype=torch.float64)[:, None]
    >>> draws = torch.randn(60, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    >>> noise, at_runs = learn_noise(train(X, draws * (0.05 + (X[:, 0] > 0)))[0])
    >>> low, high = noise.variance(torch.tensor([[-0.8], [0.8]]).double()).tolist()
    >>> high > 10 * low, at_runs.shape
    (True, torch.Size([60]))
    """

    scale: ScaleModel
    level: float

    def variance(self, F: Tensor) -> Tensor:
        """Variances [T] at features [T, D]."""
        with torch.no_grad():
            return self.level * self.scale.log_square(F).exp()


def learn_noise(gp: ExactPosterior) -> tuple[LearnedNoise, Tensor]:
    """Noise from the leave-one-out scores of a GP, and its variances [N] at the GP's own points.

    On average it is the GP's noise; each point's own variance is told by the others.
    """
    scale = ScaleModel(gp.X_train, leave_one_out_scores(gp), gp.covariance.ties)
    factors = scale.log_square_loo().exp()
    noise = float(gp.theta_R[-1] * gp.y_units.scale.square())
    level = noise / float(factors.mean())
    return LearnedNoise(scale, level), level * factors
