"""The loop of the paper's optimisations: a model that is kept, or started anew every few points."""

import warnings
from typing import Protocol

from botorch.acquisition import AcquisitionFunction
from botorch.optim import optimize_acqf
from torch import Tensor

from sharpgp.bo import CalibratedUpperConfidenceBound
from sharpgp.calibration import Calibrated
from sharpgp.exceptions import CalibrationWarning

# Steps of the search for the best point; bounds are smooth, and the next point need not be exact.
_MOST_STEPS = 100


class Recalibrate(Protocol):
    """Trains and calibrates on all data so far, ``X`` [n, d] and ``y`` [n]."""

    def __call__(self, X: Tensor, y: Tensor) -> Calibrated:
        """The calibrated predictor."""


class KeptLoop:
    """Ask for a point, tell its value.

    The model is conditioned on every new point; its hyperparameters and curves are kept, unless
    ``recalibrate`` is called every ``every`` points.

    Parameters
    ----------
    model : Calibrated
    bounds : Tensor [2, d]
    delta : float
        Level of the calibrated upper confidence bound.
    recalibrate : callable, optional
        ``recalibrate(X, y)`` returns a predictor trained and calibrated on all data so far.
    every : int
        Points between two recalibrations.

    Examples
    --------
    >>> import torch
    >>> from sharpgp import Vanilla
    >>> from sharpgp.gp.training import train
    >>> X = torch.linspace(-1, 1, 8, dtype=torch.float64)[:, None]
    >>> model = Vanilla().fit(train(X, (2 * X[:, 0]).cos())[0], None, None)
    >>> loop = KeptLoop(model, torch.tensor([[-1.0], [1.0]]).double(), delta=0.9)
    >>> for _ in range(3):
    ...     x = loop.ask()
    ...     loop.tell(x, (2 * x[:, 0]).cos())
    >>> loop.model.posterior.n_train, bool(abs(x.item()) < 0.2)
    (11, True)
    """

    def __init__(
        self,
        model: Calibrated,
        bounds: Tensor,
        *,
        delta: float = 0.99,
        recalibrate: Recalibrate | None = None,
        every: int = 10,
    ) -> None:
        self.model = model
        self.bounds = bounds.to(model.posterior.theta_R)
        self.delta = delta
        self.recalibrate = recalibrate
        self.every = every
        self._since = 0

    def acquisition(self) -> AcquisitionFunction:
        """The bound under the model as it is now."""
        with warnings.catch_warnings():
            # Said once by whoever made the model; not again at every point.
            warnings.simplefilter("ignore", CalibrationWarning)
            return CalibratedUpperConfidenceBound(self.model, self.delta)

    def ask(self) -> Tensor:
        """The next point to evaluate, [1, d]."""
        points, _ = optimize_acqf(
            self.acquisition(),
            self.bounds,
            q=1,
            num_restarts=4,
            raw_samples=64,
            options={"maxiter": _MOST_STEPS},
        )
        found: Tensor = points
        return found

    def tell(self, X: Tensor, y: Tensor) -> None:
        """Values ``y`` [n] that were observed at ``X`` [n, d]."""
        self.model = self.model.condition_on_observations(X, y)
        self._since += len(X)
        if self.recalibrate is not None and self._since >= self.every:
            gp = self.model.posterior
            self.model, self._since = self.recalibrate(gp.X_train, gp.y_train), 0
