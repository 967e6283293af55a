"""Recalibration of z-scores with randomised ranks (RV)."""

import numpy as np
from torch import Tensor

from sharpgp.calibration.predictors.scored import ScoredPredictor
from sharpgp.calibration.recalibrator import PosteriorMethod, register
from sharpgp.gp.posterior import Posterior
from sharpgp.models.gaussian.plain_gp import PosteriorModel
from sharpgp.rows import Rows


@register("vovk20")
class Vovk20(PosteriorMethod):
    r"""The GP's own quantiles, rescaled by held-out z-scores that are drawn between ranks.

    ``Q(delta, x) = mu(x) + z_(ceil(delta (C+1) - tau)) sigma(theta_R, x)``, ``tau ~ U(0, 1)``.
    Between two ranks one of the two scores is drawn: the upper one with a probability equal to its
    weight in linear interpolation.  Averaged over the draw, every level in ``[1/(C+1), C/(C+1)]``
    is met exactly.  One ``tau``, drawn with ``random_state``, serves all levels, so that quantiles
    stay in order.

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

    knows_inputs = True

    def _fit(self, posterior: Posterior, X: Rows, y: Tensor) -> ScoredPredictor:
        draw = float(np.random.default_rng(self.seed).uniform())
        return ScoredPredictor.from_model(PosteriorModel(posterior), X, y, draw=draw)
