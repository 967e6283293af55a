r"""Calibrated acquisition functions, in BoTorch's terms."""

import math
import warnings
from abc import abstractmethod

import torch
from botorch.acquisition import AcquisitionFunction
from botorch.acquisition.analytic import _log_ei_helper
from botorch.utils.transforms import t_batch_mode_transform
from torch import Tensor

from sharpgp._ranks import points_needed, supported
from sharpgp._validation import as_features, as_level
from sharpgp.calibration.predictors.base import FittedModel, calibrated_of
from sharpgp.exceptions import CalibrationWarning, InvalidInputError
from sharpgp.rows import Rows

# Normal scores between which a quantile function is linear; beyond, it goes on as it ends.
STEP = 0.25
NODES = torch.arange(-14, 15, dtype=torch.float64) * STEP
# Of the largest slope at a point: a quantile function that stands still counts as rising so much.
_LEAST_SLOPE = 1e-6
# Of a cell that is left to improvement: less counts as this much, for a finite gradient.
_LEAST_SHARE = 1e-14


class _OfCalibrated(AcquisitionFunction):
    """What acquisition functions of a calibrated model share: its points that are pending."""

    def __init__(self, model: FittedModel, maximize: bool, X_pending: Tensor | None) -> None:
        calibrated = calibrated_of(model)
        super().__init__(model=calibrated)  # type: ignore[arg-type]
        self._base = self._now = calibrated
        self.maximize = maximize
        self.set_X_pending(X_pending)

    @abstractmethod
    def _values(self, points: Tensor) -> Tensor:
        """Values [n] at points [n, d]."""

    @t_batch_mode_transform(expected_q=1)  # type: ignore[arg-type]
    def forward(self, X: Tensor) -> Tensor:
        """The value at each of ``X`` [..., 1, d], as [...]."""
        points = X.reshape(-1, X.shape[-1]).to(self._base.posterior.device, torch.float64)
        return self._values(points).reshape(X.shape[:-2]).to(X)

    def set_X_pending(self, X_pending: Tensor | None = None) -> None:
        """Take account of points [n, d] that are being evaluated; None for none.

        As observations of their own mean: the mean stays, and the spread shrinks around them.
        """
        super().set_X_pending(X_pending)
        self._now = self._base
        if X_pending is not None and len(X_pending):
            with torch.no_grad():
                X = as_features(X_pending, device=self._base.posterior.device)
                self._now = self._base.condition_on_observations(X, self._base.predict_mean(X))


class CalibratedUpperConfidenceBound(_OfCalibrated):
    r"""The calibrated ``delta``-quantile as an upper confidence bound.

    ``mu(x) + beta(delta) sigma(theta(delta), x)``; for minimisation, minus the
    ``1 - delta``-quantile.  A drop-in for BoTorch's ``UpperConfidenceBound``: gradients, batches of
    any shape, ``optimize_acqf`` with ``sequential=True``, and whatever device the model is on.

    Parameters
    ----------
    model : SharpGPRegressor or Calibrated
        A fitted estimator, or what a recalibrator's ``fit`` returned.
    delta : float
        Level of the bound.  With fewer than ``1 / (1 - delta) - 1`` calibration points (99 for
        0.99) it lies in the modelled tail, and a warning says so.
    maximize : bool
        False to minimise the target.
    X_pending : Tensor [n, d], optional
        Points that are being evaluated.

    References
    ----------
    A. Capone, S. Hirche and G. Pleiss, "Sharp Calibrated Gaussian Processes", NeurIPS 2023.

    Examples
    --------
    >>> from botorch.optim import optimize_acqf
    >>> from sharpgp import Vanilla
    >>> from sharpgp.gp.training import train
    >>> X = torch.linspace(-1, 1, 40, dtype=torch.float64)[:, None]
    >>> model = Vanilla().fit(train(X, -(X[:, 0] - 0.3).square())[0], None, None)
    >>> bound = CalibratedUpperConfidenceBound(model, delta=0.99)
    >>> bounds = torch.tensor([[-1.0], [1.0]], dtype=torch.float64)
    >>> best, value = optimize_acqf(bound, bounds, q=1, num_restarts=2, raw_samples=16)
    >>> bool(abs(best.item() - 0.3) < 0.1)
    True
    """

    def __init__(
        self,
        model: FittedModel,
        delta: float = 0.99,
        *,
        maximize: bool = True,
        X_pending: Tensor | None = None,
    ) -> None:
        super().__init__(model, maximize, X_pending)
        level, C = as_level(delta, "delta"), self._base.n_cal
        side, device = level if maximize else 1.0 - level, self._base.posterior.device
        self.delta = torch.tensor([side], dtype=torch.float64, device=device)
        if C is not None and not bool(supported(self.delta, C)):
            warnings.warn(
                f"delta {level:g} needs at least {points_needed(level)} calibration points, found "
                f"{C}: the bound lies in a modelled tail, without a guarantee",
                CalibrationWarning,
                stacklevel=2,
            )

    def _values(self, points: Tensor) -> Tensor:
        quantile = self._now.quantiles(Rows(points), self.delta)[0]
        return quantile if self.maximize else -quantile


class CalibratedLogExpectedImprovement(_OfCalibrated):
    r"""Logarithm of the expected improvement under the calibrated distribution.

    ``log E[(Y - best)^+]`` with ``Y = Q(Phi(U), x)`` and ``U`` standard normal: a draw of the
    calibrated distribution at ``x``.  The quantile function is taken as linear between ``K``
    normal scores ``u_k``, with slopes ``s_k``, so that with ``G(c) = E[(U - c)^+]``

    ``E[(Y - best)^+] = sum_k s_k (G(c_k) - G(u_(k+1)))``,

    where ``c_k`` is the score at which ``Q`` reaches ``best``, held to ``[u_k, u_(k+1)]``.  Every
    term is positive and summed in logarithms, so that value and gradient last where the expected
    improvement itself underflows.  For a normal distribution it is BoTorch's
    ``LogExpectedImprovement``.  For batches, see :func:`sharpgp.bo.as_botorch`.

    Parameters
    ----------
    model, maximize, X_pending
        As of :class:`CalibratedUpperConfidenceBound`.
    best_f : float
        Value to improve on.

    References
    ----------
    S. Ament, S. Daulton, D. Eriksson, M. Balandat and E. Bakshy, "Unexpected Improvements to
    Expected Improvement for Bayesian Optimization", NeurIPS 2023.

    Examples
    --------
    >>> from sharpgp import Vanilla
    >>> from sharpgp.gp.training import train
    >>> X = torch.linspace(-1, 1, 60, dtype=torch.float64)[:, None]
    >>> model = Vanilla().fit(train(X, -(X[:, 0] - 0.3).square())[0], None, None)
    >>> improvement = CalibratedLogExpectedImprovement(model, best_f=-0.01)
    >>> bool(improvement(X[40:41]) > improvement(X[:1]))
    True
    """

    def __init__(
        self,
        model: FittedModel,
        best_f: float | Tensor,
        *,
        maximize: bool = True,
        X_pending: Tensor | None = None,
    ) -> None:
        super().__init__(model, maximize, X_pending)
        best = torch.as_tensor(best_f, dtype=torch.float64, device=self._base.posterior.device)
        if best.numel() != 1 or not bool(torch.isfinite(best)):
            raise InvalidInputError(f"best_f: expected one finite number, found {best_f!r}")
        self.best = best.reshape(()) if maximize else -best.reshape(())
        self.nodes = NODES.to(best.device)
        self.levels = torch.special.ndtr(self.nodes)
        # Cells between the nodes, and one to infinity on either side.
        open_end = self.nodes.new_full((1,), math.inf)
        self.starts = torch.cat([-open_end, self.nodes])
        self.stops = torch.cat([self.nodes, open_end])

    def _values(self, points: Tensor) -> Tensor:
        quantiles = self._now.quantiles(Rows(points), self.levels)
        return self._log_improvement(quantiles if self.maximize else -quantiles.flip(0))

    def _log_improvement(self, quantiles: Tensor) -> Tensor:
        """``log E[(Y - best)^+]`` [T] from quantiles [K, T] at the nodes."""
        slopes = quantiles.diff(dim=0) / self.nodes.diff().unsqueeze(-1)
        slopes = slopes.clamp(min=_LEAST_SLOPE * float(slopes.detach().max().clamp(min=1e-300)))
        # The two open cells go on with the slope of their neighbours.
        slopes = torch.cat([slopes[:1], slopes, slopes[-1:]])
        anchors = torch.cat([self.nodes[:1], self.nodes]).unsqueeze(-1)
        values = torch.cat([quantiles[:1], quantiles])
        reached = anchors + (self.best - values) / slopes
        starts, stops = self.starts.unsqueeze(-1), self.stops.unsqueeze(-1)
        inside = reached < stops
        held = torch.maximum(torch.where(inside, reached, self.nodes[0] - 1.0), starts)
        above = _log_ei_helper(-self.stops[:-1]).unsqueeze(-1)
        first = _log_ei_helper(-held)
        gap = (above - first[:-1]).clamp(max=-_LEAST_SHARE)
        shares = torch.cat([first[:-1] + torch.log(-torch.expm1(gap)), first[-1:]])
        terms = torch.where(inside, slopes.log() + shares, -math.inf)
        return terms.logsumexp(0)
