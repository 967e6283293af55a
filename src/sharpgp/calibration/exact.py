"""Finite-sample exact calibration: the spread from training data, ``beta`` from held-out data."""

from typing import Self

from torch import Tensor

from sharpgp._stored import agree, stored
from sharpgp.calibration.bands import band_is_better
from sharpgp.calibration.ranked import RankedPredictor
from sharpgp.calibration.recalibrator import Recalibrator, register
from sharpgp.calibration.spread import Choice, Spread, learn_spread
from sharpgp.gp.posterior import Posterior


@stored("SpreadPredictor", spread_model=Spread)
class SpreadPredictor(RankedPredictor):
    """``Q(delta, x) = mu(x) + beta(delta) sigma_total(x)``: one learned spread for all levels.

    Attributes
    ----------
    spread_model : Spread
    choice : Choice
        Which spread was chosen, and its held-out score relative to the base GP's.
    """

    def __init__(self, spread: Spread, X_cal: Tensor, r_cal: Tensor, scores: Tensor) -> None:
        super().__init__(spread.posterior, X_cal, r_cal, scores)
        self.spread_model = spread

    def _restored(self) -> None:
        super()._restored()
        agree("posterior of the spread", self.spread_model.posterior is self.posterior, True)

    def _on(self, posterior: Posterior) -> Self:
        other = super()._on(posterior)
        other.spread_model = self.spread_model.on(posterior)
        return other

    @property
    def choice(self) -> Choice:
        """Which spread was chosen on the training data."""
        return self.spread_model.choice

    def prefers_band(self, coverage: float) -> bool:
        """Whether ``C`` scores distributed as the training points' estimate a band better."""
        return band_is_better(self.spread_model.scores, self.n_cal, coverage)

    def spread(self, theta: Tensor, X: Tensor) -> Tensor:
        """``sigma_total`` [K, T], the same for every level."""
        return self.spread_model(X).expand(theta.shape[0], -1)


@register("exact")
class Exact(Recalibrator):
    r"""Calibration with a finite-sample guarantee for exchangeable data.

    The spread ``sigma_total(x)`` (hyperparameters ``theta`` and scale model) is learned from
    leave-one-out quantities of the training data alone; ``beta(delta) = q_lin(delta, z)`` with
    ``z_i = (y_i - mu(x_i)) / sigma_total(x_i)`` on the calibration data.  Since a new point's
    score is exchangeable with those scores, ``P(y <= Q(delta)) = delta`` at
    ``delta = j/(C+1)``, and within ``1/(C+1)`` of it in between.  Intervals take whole ranks, so
    that ``coverage <= P(y in interval) <= coverage + 1/(C+1)`` for the symmetric band and
    ``+ 2/(C+1)`` for the centred interval.  (Without ties among the scores.)

    References
    ----------
    V. Vovk, A. Gammerman and G. Shafer, *Algorithmic Learning in a Random World*, 2005.

    Examples
    --------
    >>> import torch
    >>> from sharpgp.gp.training import train
    >>> X = torch.linspace(0, 6, 90, dtype=torch.float64)[:, None]
    >>> y = X[:, 0].sin() + 0.1 * torch.cos(37 * X[:, 0])
    >>> posterior, _ = train(X[::2], y[::2])
    >>> calibrated = Exact().fit(posterior, X[1::2], y[1::2])
    >>> ends = calibrated.predict_interval(X[1::2], coverage=0.9)
    >>> inside = (ends[:, 0] <= y[1::2]) & (y[1::2] <= ends[:, 1])
    >>> int(inside.sum())  # of 45 calibration points: ceil(0.9 * 46)
    42
    """

    def _fit(self, posterior: Posterior, X: Tensor, y: Tensor) -> SpreadPredictor:
        spread = learn_spread(posterior, self.seed)
        r = y - spread.posterior.mean(X)
        return SpreadPredictor(spread, X, r, r / spread(X))
