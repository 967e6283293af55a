"""Weighted scores: calibration on one distribution of inputs, prediction on another."""

import copy
import math
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from sharpgp._stored import Array, agree, stored
from sharpgp._validation import as_weights
from sharpgp.calibration.calibrated import Calibrated, nested_intervals
from sharpgp.calibration.curves import Curves
from sharpgp.calibration.limits import warn_if_far
from sharpgp.calibration.ranked import RankedPredictor
from sharpgp.exceptions import InvalidInputError, warn
from sharpgp.gp.posterior import Posterior

#: ``(X (n, d)) -> weights (n,)``, both NumPy arrays.
Ratio = Callable[[Any], Any]

# A level this close to a step of the weighted distribution is on it; see `quantile.rank`.
_STEP_TOLERANCE = 1e-9


@stored(
    "WeightedPredictor",
    posterior=Posterior,
    base=RankedPredictor,
    weights=Array("C"),
    ratio=type(None),
    transient=dict.fromkeys(("_relative", "_total", "_typical", "n_effective", "n_cal", "_shown")),
)
class WeightedPredictor(Calibrated):
    r"""Ranked scores with weights ``w_i``, for test inputs that are distributed differently.

    If ``y`` given ``x`` is the same everywhere and test inputs have the density of calibration
    inputs times a known ``w(x)``, up to a factor, then a point of weight ``w`` belongs among
    calibration points with probabilities ``p_i = w_i / (W + w)``, ``W = sum_i w_i``, and itself
    with ``w / (W + w)``.  The upper end of an interval at level ``delta`` is the smallest score
    whose points and those below have ``sum p_i >= delta``, the lower end its mirror image, and the
    band uses absolute scores.  Then ``P(y in interval) >= coverage``, for any mean and spread that
    do not depend on the calibration points.

    A larger ``w`` gives wider intervals.  The weights of test points come from ``sample_weight``
    of :meth:`predict_interval`, else from ``ratio``, else the largest ``w_i`` stands for all of
    them: the guarantee then holds where ``w(x)`` is nowhere larger.

    Quantiles and distributions use for all points the mean weight of a test point,
    ``sum w_i^2 / W``, and steps that go up half before and half behind each score.  They
    are backed as by ``C_eff = W^2 / sum w_i^2`` points of equal weight, which is ``n_cal``.

    Parameters
    ----------
    base : RankedPredictor
        Mean, spread and scores.
    weights : Tensor [C]
    ratio : callable, optional
        ``w(X)`` for arrays (n, d).

    References
    ----------
    R. J. Tibshirani, R. F. Barber, E. J. Candes and A. Ramdas, "Conformal Prediction Under
    Covariate Shift", NeurIPS 2019.

    Examples
    --------
    >>> from sharpgp import Kuleshov18
    >>> from sharpgp.gp.training import train
    >>> X = torch.linspace(0, 6, 200, dtype=torch.float64)[:, None]
    >>> y = X[:, 0].sin() + 0.1 * X[:, 0] * torch.cos(37 * X[:, 0])
    >>> posterior, _ = train(X[::2], y[::2])
    >>> weights = X[1::2, 0] / 6  # larger inputs are more frequent than they were
    >>> shifted = Kuleshov18().fit(posterior, X[1::2], y[1::2], sample_weight=weights)
    >>> round(shifted.n_effective)
    75
    >>> plain = Kuleshov18().fit(posterior, X[1::2], y[1::2])
    >>> width = [float(c.predict_interval(X[:1], 0.9).diff()) for c in (plain, shifted)]
    >>> width[0] < width[1]
    True
    """

    n_cal: int

    def __init__(self, base: RankedPredictor, weights: Tensor, ratio: Ratio | None = None) -> None:
        if not bool((weights > 0).any()):
            raise InvalidInputError(
                "sample_weight: expected some positive weights, found none among the "
                f"{len(weights)} calibration points"
            )
        self.base = base
        self.posterior = base.posterior
        self.weights = weights
        self.ratio = ratio
        self._prepare()

    def _prepare(self) -> None:
        self._relative = self.weights / self.weights.max()  # squares of these do not overflow
        self._total = self._relative.sum()
        #: Weight of a typical test point, in units of the largest weight.
        self._typical = self._relative.square().sum() / self._total
        self.n_effective = float(self._total / self._typical)
        self.n_cal = max(1, math.floor(self.n_effective + 1e-9))
        self._shown = copy.copy(self.base)
        self._shown.curves = self._weighted_curves()

    def _restored(self) -> None:
        agree("number of weights", len(self.weights), self.base.n_cal)
        agree("sign of weights", bool((self.weights >= 0).all() and self.weights.max() > 0), True)
        agree("posterior of the scores", self.base.posterior is self.posterior, True)
        self._prepare()

    @classmethod
    def of(cls, base: RankedPredictor, sample_weight: Any) -> "WeightedPredictor":
        """From weights as given: an array, or a function of the inputs that gives one."""
        if callable(sample_weight):
            return cls(base, _evaluate(sample_weight, base.X_cal), sample_weight)
        device = base.posterior.device
        return cls(base, as_weights(sample_weight, n_rows=base.n_cal, device=device))

    def quantiles(self, X: Tensor, delta: Tensor) -> Tensor:
        """See :meth:`Calibrated.quantiles`."""
        return self._shown.quantiles(X, delta)

    def band(self, X: Tensor, coverage: float) -> tuple[Tensor, Tensor]:
        """See :meth:`Calibrated.band`, with the default weights of the test points."""
        lower, upper = self.predict_interval(X, coverage, symmetric=True).mT
        return lower, upper

    def predict_interval(
        self,
        X: Any,
        coverage: Any = 0.95,
        *,
        symmetric: bool | None = None,
        sample_weight: Any = None,
    ) -> Tensor:
        """Interval ends, shape (T, 2) for a single coverage and (T, 2, k) for several.

        ``symmetric=None`` takes the rule of the scores without weights, for the number of points
        ``(W + w)^2 / (sum w_i^2 + w^2) - 1`` that the weights are worth.

        Parameters
        ----------
        X : array of shape (T, d)
        coverage : float or sequence of float in (0, 1)
        symmetric : bool, optional
        sample_weight : array of shape (T,), optional
            Weights of these points; see the class for what is used without them.
        """
        X = self._features(X)
        warn_if_far(self.posterior, X)
        w = self._test_weights(X, sample_weight)
        mu = self.posterior.mean(X)
        spread = self.base.spread(self.posterior.theta_R.unsqueeze(0), X)[0]

        def interval(c: float) -> Tensor:
            z = self.base.scores
            upper, backed = self._step(z, (1.0 + c) / 2.0, w)
            lower, _ = self._step(-z, (1.0 + c) / 2.0, w)
            radius, band_backed = self._step(z.abs(), c, w)
            if symmetric is None:
                band = self._prefers_band(c, w)
            else:
                band = torch.full_like(backed, symmetric)
            backed = torch.where(band, band_backed, backed)
            low = mu - torch.where(band, radius, lower) * spread
            high = mu + torch.where(band, radius, upper) * spread
            if not bool(backed.all()):
                self._warn(c, int((~backed).sum()), len(mu))
                tails = self._table(X).interval(c)
                reach = torch.maximum(tails[:, 1] - mu, mu - tails[:, 0])
                low = torch.where(
                    backed, low, torch.minimum(low, torch.where(band, mu - reach, tails[:, 0]))
                )
                high = torch.where(
                    backed, high, torch.maximum(high, torch.where(band, mu + reach, tails[:, 1]))
                )
            return torch.stack([low, high], dim=-1)

        return nested_intervals(coverage, interval)

    def updated(self, X: Any, y: Any, *, sample_weight: Any = None) -> "WeightedPredictor":
        """See :meth:`Calibrated.updated`; without ``ratio``, new points need weights."""
        X, y = self._labelled(X, y)
        weights = self._new_weights(X, sample_weight)
        base = self.base.updated(X, y)
        assert isinstance(base, RankedPredictor)
        return WeightedPredictor(base, torch.cat([self.weights, weights]), self.ratio)

    def labelled_data(self) -> tuple[Tensor, Tensor]:
        """Training points, then calibration points."""
        return self.base.labelled_data()

    def weighted(self, sample_weight: Any) -> "WeightedPredictor":
        """The same scores with other weights."""
        return WeightedPredictor.of(self.base, sample_weight)

    def _on(self, posterior: Posterior) -> "WeightedPredictor":
        return WeightedPredictor(self.base._on(posterior), self.weights, self.ratio)

    def _weighted_curves(self) -> Curves:
        """Score ``j`` at the level ``(W_j + W_(j-1) + w) / (2 (W + w))`` of sorted weights."""
        order = self.base.scores.argsort()
        order = order[self._relative[order] > 0]
        z, w = self.base.scores[order], self._relative[order]
        level = (2.0 * w.cumsum(0) - w + self._typical) / (2.0 * (self._total + self._typical))
        return Curves.through(level, z, self.posterior.theta_R.expand(len(z), -1))

    def _prefers_band(self, coverage: float, w: Tensor) -> Tensor:
        """Whether test points of weights ``w`` [T] get bands [T].

        By a number that all ``C + 1`` weights enter alike, on a grid of factors of 1.05 below
        ``C``, so that few cases have to be decided.
        """
        C = len(self.weights)
        squares = self._relative.square().sum() + w.square()
        worth = ((self._total + w).square() / squares - 1.0).clamp(1.0, C)
        steps, position = ((C / worth).log() / math.log(1.05)).round().unique(return_inverse=True)
        shown = copy.copy(self.base)
        decided = []
        for step in steps.tolist():
            shown.n_cal = max(1, round(C * 1.05**-step))
            decided.append(shown.prefers_band(coverage))
        return torch.tensor(decided, device=w.device)[position]

    def _step(self, z: Tensor, level: float, w: Tensor) -> tuple[Tensor, Tensor]:
        """Smallest score with ``level`` of the mass at or below it [T], and whether there is one.

        The mass ``w`` [T] of the test point itself lies at infinity.
        """
        ordered, order = z.sort()
        mass = self._relative[order].cumsum(0)
        needed = (level - _STEP_TOLERANCE) * (self._total + w)
        index = torch.searchsorted(mass, needed)
        last = len(z) - 1
        score = ordered[index.clamp(max=last)]
        return score + 1e-10 * score.abs(), index <= last

    def _test_weights(self, X: Tensor, sample_weight: Any) -> Tensor:
        """Weights [T] of test points, in units of the largest calibration weight."""
        if sample_weight is not None:
            weights = as_weights(sample_weight, n_rows=X.shape[0], device=X.device)
        elif self.ratio is not None:
            weights = _evaluate(self.ratio, X)
        else:
            return X.new_ones(X.shape[0])
        return weights / self.weights.max()

    def _new_weights(self, X: Tensor, sample_weight: Any) -> Tensor:
        if sample_weight is not None:
            return as_weights(sample_weight, n_rows=X.shape[0], device=X.device)
        if self.ratio is None:
            raise InvalidInputError(
                "sample_weight: expected weights for the new points, found none; the model was "
                "calibrated with weights"
            )
        return _evaluate(self.ratio, X)

    def _warn(self, coverage: float, unbacked: int, n: int) -> None:
        warn(
            f"coverage {coverage:g} is not backed at {unbacked} of {n} points: their weights are "
            f"too large for {self.n_effective:.1f} effective calibration points; the answer comes "
            "from a modelled exponential tail, without a guarantee"
        )


def _evaluate(ratio: Ratio, X: Tensor) -> Tensor:
    return as_weights(ratio(X.cpu().numpy()), n_rows=X.shape[0], device=X.device)
