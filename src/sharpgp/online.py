"""Streams that drift: intervals with nominal long-run coverage, whatever the data do."""

import math
import numbers
import warnings
from collections import deque
from typing import Any

import numpy as np
import torch
from numpy.typing import ArrayLike
from torch import Tensor

from sharpgp._validation import as_count, as_coverage, as_numpy, as_target
from sharpgp.calibration.predictors.base import Calibrated, FittedModel, calibrated_of
from sharpgp.data import TableEncoding
from sharpgp.exceptions import CalibrationWarning, InvalidInputError, warn
from sharpgp.exchangeability import (
    ALARM_LEVEL,
    Martingale,
    moved_features,
    names_of_features,
    one_per_group,
)
from sharpgp.promise import Wager, promise_of
from sharpgp.rows import Rows

#: A promise counts as broken below this p-value.
BROKEN_LEVEL = 0.05
# How many of the newest rows are checked for features that moved.
_RECENT_ROWS = 50


class Online:
    r"""Adaptive conformal inference: the level moves so that coverage is right in the long run.

    With the target ``alpha = 1 - coverage``, the interval for step ``t`` is the model's at coverage
    ``1 - alpha_t``, where ``alpha_1 = alpha`` and

    ``alpha_(t+1) = alpha_t + gamma (alpha - err_t)``,

    ``err_t`` being 1 if the interval missed ``y_t`` and 0 otherwise (over several rows observed
    together, the share of those missed).  If ``alpha_t <= 0``, the interval is infinite, up to
    bounds that the user gave.  If ``alpha_t >= 1``, it is the mean alone and counts as missed.
    Bounds assumed from data are dropped when a target lies beyond.  Then for every sequence of data
    and every ``T``,

    ``|err_1 + ... + err_T - alpha T| <= (max(alpha, 1 - alpha) + gamma) / gamma``,

    so that the share of missed steps tends to ``alpha`` like ``1/T``.  Between the two extremes,
    levels beyond what the calibration points support use modelled tails, without a warning: the
    statement does not depend on them.

    Parameters
    ----------
    model : SharpGPRegressor or Calibrated
        Fitted; it is not changed.
    coverage : float in (0, 1)
    gamma : float
        Step: larger ones follow faster changes, smaller ones give steadier widths.
    window : int or None
        Compute ``beta`` from this many of the newest points, at first calibration points; mean and
        spread stay.  With None, only the level adapts; keeping up with a change then takes more
        infinite intervals.
    symmetric : bool, optional
        As in ``predict_interval``.

    Attributes
    ----------
    alpha : float
        The present ``alpha_t``.
    steps : int
        Number of steps observed.
    missed : float
        Sum of ``err_t`` so far.
    calibrated : Calibrated
        The present predictor; it changes if there is a window.
    martingale : Martingale or None
        Evidence that the stream differs from the calibration points, for models with ranked scores
        and rows that are exchangeable (each of a group of its own, if there are groups), see
        :class:`sharpgp.exchangeability.Martingale`; once its p-value is below 1 %, a warning says
        so and names the features that moved.
    promise : Wager or None
        Evidence that the model covers less than the bound of its promise, where there is one, with
        the intervals that it gave at first; a p-value below 5 % is a warning.  See
        :class:`sharpgp.promise.Wager`.

    References
    ----------
    I. Gibbs and E. J. Candes, "Adaptive Conformal Inference Under Distribution Shift",
    NeurIPS 2021.

    Examples
    --------
    >>> from sharpgp import SharpGPRegressor
    >>> rng = np.random.default_rng(0)
    >>> X = rng.uniform(-3, 3, (400, 1))
    >>> noise = np.where(np.arange(400) < 250, 0.1, 0.2)  # doubles in the middle
    >>> y = np.sin(X[:, 0]) + noise * rng.normal(size=400)
    >>> model = SharpGPRegressor(base="rbf", calibration="exact", random_state=0)
    >>> model = model.fit(X[:100], y[:100])
    >>> online = Online(model, coverage=0.9, gamma=0.02, window=75)
    >>> for x_t, y_t in zip(X[100:, None], y[100:, None]):
    ...     ends = online.predict_interval(x_t)
    ...     online = online.observe(x_t, y_t)
    >>> abs(online.missed / online.steps - 0.1) < 0.02
    True
    """

    def __init__(
        self,
        model: FittedModel,
        coverage: float = 0.95,
        *,
        gamma: float = 0.01,
        window: int | None = 200,
        symmetric: bool | None = None,
    ) -> None:
        calibrated = calibrated_of(model)
        values, single = as_coverage(coverage)
        if not single:
            raise InvalidInputError(f"coverage: expected one number, found {coverage!r}")
        if window is not None and not calibrated.can_be_rescored:
            raise InvalidInputError(
                "window: expected a model that can take new calibration points, found a "
                f"{type(calibrated).__name__}; choose another calibration, or window=None"
            )
        self.calibrated = calibrated
        self.coverage = values[0]
        self.gamma = _as_step(gamma)
        self.window = None if window is None else as_count(window, "window", least=2)
        self.symmetric = symmetric
        self.alpha = 1.0 - values[0]
        self.steps = 0
        self.missed = 0.0
        self.martingale: Martingale | None = None
        ranked = calibrated.each_once()
        if ranked is not None and ranked.weights is None:
            ours = one_per_group(ranked.groups, len(ranked.scores))
            self.martingale = Martingale(as_numpy(ranked.scores)[ours])
        promised = promise_of(calibrated, getattr(model, "calibration_", ""), coverage=values[0])
        bounds = [line.bound for line in promised.lines]
        self._promised = calibrated
        self.promise: Wager | None = None
        if all(one is not None for one in bounds):
            self.promise = Wager(min(one for one in bounds if one is not None))
        self._recent: deque[np.ndarray] = deque(maxlen=_RECENT_ROWS)
        self._warned = self._broken = False
        self._numpy = not isinstance(model, Calibrated)
        self._encoding: TableEncoding | None = getattr(model, "encoding_", None)
        self._model: Any = model

    def predict_interval(
        self, X: ArrayLike, *, noise: ArrayLike | None = None
    ) -> np.ndarray | Tensor:
        """Ends of the intervals for the coming step, shape (n, 2).

        ``noise`` as in :meth:`sharpgp.SharpGPRegressor.predict_interval`.
        NumPy if the model is an estimator, torch otherwise; infinite where ``alpha <= 0``.
        """
        ends = self._ends(self._rows(X, noise))
        return ends.cpu().numpy() if self._numpy else ends

    def observe(self, X: ArrayLike, y: ArrayLike, *, noise: ArrayLike | None = None) -> "Online":
        """Learn from the labels ``y`` (n,) of the rows ``X`` (n, d) of a step."""
        rows = self._rows(X, noise)
        self._observe(rows, as_target(y, n_rows=len(rows), device=rows.device))
        return self

    def track(
        self, X: ArrayLike, y: ArrayLike, *, noise: ArrayLike | None = None
    ) -> np.ndarray | Tensor:
        """Predict and observe row after row; the intervals (n, 2), each made before its label.

        Examples
        --------
        >>> from sharpgp import SharpGPRegressor
        >>> rng = np.random.default_rng(0)
        >>> X = rng.uniform(-3, 3, (200, 1))
        >>> y = np.sin(X[:, 0]) + 0.1 * rng.normal(size=200)
        >>> model = SharpGPRegressor(calibration="kuleshov18", random_state=0).fit(X[:100], y[:100])
        >>> online = Online(model, coverage=0.9)
        >>> online.track(X[100:], y[100:]).shape, online.steps
        ((100, 2), 100)
        """
        rows = self._rows(X, noise)
        y = as_target(y, n_rows=len(rows), device=rows.device)
        ends = torch.cat([self._observe(rows[i : i + 1], y[i : i + 1]) for i in range(len(y))])
        return ends.cpu().numpy() if self._numpy else ends

    def _observe(self, rows: Rows, y: Tensor) -> Tensor:
        ends = self._ends(rows)
        inside = (ends[:, 0] <= y) & (y <= ends[:, 1])
        error = 1.0 if self.alpha >= 1.0 else float((~inside).double().mean())
        bounds = self.calibrated.bounds
        if bounds is not None:
            self.calibrated = self.calibrated.bounded(bounds.revise(as_numpy(y)))
        if self.window is not None:
            self.calibrated = self.calibrated.rescored(rows, y, keep=self.window)
        self._watch(rows, y)
        self._hold_to_promise(rows, y)
        self.alpha += self.gamma * (1.0 - self.coverage - error)
        self.steps += 1
        self.missed += error
        return ends

    def moved(self) -> dict[str, float]:
        """Features whose newest values are distributed unlike those in training, with p-values."""
        ranked = self.calibrated.each_once()
        if not self._recent or ranked is None:
            return {}
        before, after = as_numpy(ranked.model.X_train), np.stack(self._recent)
        return moved_features(before, after, names_of_features(self._encoding, before.shape[1]))

    def _watch(self, rows: Rows, y: Tensor) -> None:
        """Show the step to the martingale; warn when it is sure of a change."""
        if self.martingale is None:
            return
        self._recent.extend(as_numpy(rows.X))
        found: Any = self.calibrated
        if self.window is not None and len(y) <= self.window:
            scores = found.scores[-len(y) :]  # they have joined the others
        else:
            scores = found.score(rows, y)
        self.martingale.observe(as_numpy(scores))
        if not self._warned and self.martingale.p_value < ALARM_LEVEL:
            self._warned = True
            warn(
                "the stream differs from the calibration data "
                f"(p = {self.martingale.p_value:.2g} after {self.steps + 1} steps); features that "
                f"moved: {', '.join(self.moved()) or 'none alone'}"
            )

    def _hold_to_promise(self, rows: Rows, y: Tensor) -> None:
        """Bet against the promise of the first model; warn when it is broken."""
        if self.promise is None or self._broken:
            return
        with warnings.catch_warnings(), torch.no_grad():
            warnings.simplefilter("ignore", CalibrationWarning)
            low, high = self._promised.predict_interval(rows, self.coverage).T
        self.promise.observe(((y < low) | (y > high)).tolist())
        if self.promise.p_value < BROKEN_LEVEL:
            self._broken = True
            warn(
                f"the promise of the model is broken (p = {self.promise.p_value:.2g} after "
                f"{self.steps + 1} steps): its intervals miss more than it allows; fit it anew"
            )

    def _ends(self, rows: Rows) -> Tensor:
        coverage = 1.0 - self.alpha
        if coverage <= 0.0:
            return self.calibrated.predict_mean(rows).unsqueeze(-1).expand(-1, 2)
        if coverage >= 1.0:
            whole = rows.X.new_tensor([-np.inf, np.inf]).expand(len(rows), 2)
            bounds = self.calibrated.bounds
            return whole if bounds is None or bounds.assumed else bounds.clip(whole)
        with warnings.catch_warnings(), torch.no_grad():
            warnings.simplefilter("ignore", CalibrationWarning)
            return self.calibrated.predict_interval(rows, coverage, symmetric=self.symmetric)

    def _rows(self, X: Any, noise: Any) -> Rows:
        return self._model.rows(X) if noise is None else self._model.rows(X, noise=noise)


def _as_step(gamma: Any) -> float:
    if not (isinstance(gamma, numbers.Real) and 0.0 < float(gamma) < math.inf):
        raise InvalidInputError(f"gamma: expected a positive number, found {gamma!r}")
    return float(gamma)
