"""Recalibration of z-scores with randomised ranks (RV)."""

from typing import Any

import numpy as np
from torch import Tensor

from sharpgp._stored import stored
from sharpgp.calibration.calibrated import Calibrated
from sharpgp.calibration.quantile import rank
from sharpgp.calibration.ranked import RankedPredictor
from sharpgp.calibration.recalibrator import Recalibrator, register
from sharpgp.gp.posterior import Posterior


@stored("RandomisedPredictor", tau=float)
class RandomisedPredictor(RankedPredictor):
    """Takes one of two neighbouring scores, drawn, where others interpolate between them."""

    tau: float

    def beta_at(self, delta: Tensor) -> Tensor:
        """The ``ceil(delta (C+1) - tau)``-th smallest z-score."""
        chosen = (rank(delta, self.n_cal) - self.tau).ceil().clamp(1, self.n_cal).long()
        return self.scores.sort().values[chosen - 1]

    def weighted(self, sample_weight: Any) -> Calibrated:
        """Not offered: the draw is made for equal weights."""
        return Calibrated.weighted(self, sample_weight)


@register("vovk20")
class Vovk20(Recalibrator):
    r"""``Q(delta, x) = mu(x) + z_(ceil(delta (C+1) - tau)) sigma(theta_R, x)``, ``tau ~ U(0, 1)``.

    Between two ranks the neighbouring score is drawn, the upper one with the probability that
    linear interpolation would give it as weight; averaged over the draw, every level in
    ``[1/(C+1), C/(C+1)]`` is then met exactly.  One ``tau`` serves all levels, so that quantiles
    stay in order; it is drawn with ``random_state``.

    References
    ----------
    V. Vovk, I. Petej, I. Nouretdinov, V. Manokhin and A. Gammerman, "Computationally efficient
    versions of conformal predictive distributions", Neurocomputing, 2020.

    Examples
    --------
    >>> import torch
    >>> from sharpgp.gp.training import train
    >>> X = torch.linspace(0, 6, 60, dtype=torch.float64)[:, None]
    >>> y = X[:, 0].sin() + 0.1 * torch.cos(37 * X[:, 0])
    >>> posterior, _ = train(X[::2], y[::2])
    >>> calibrated = Vovk20(random_state=0).fit(posterior, X[1::2], y[1::2])
    >>> calibrated.predict_interval(X[:3], coverage=0.9).shape
    torch.Size([3, 2])
    """

    def _fit(self, posterior: Posterior, X: Tensor, y: Tensor) -> RandomisedPredictor:
        r = y - posterior.mean(X)
        z = r / posterior.sigma(posterior.theta_R.unsqueeze(0), X)[0]
        predictor = RandomisedPredictor(posterior, X, r, z)
        predictor.tau = float(np.random.default_rng(self.seed).uniform())
        return predictor
