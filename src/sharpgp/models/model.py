"""What calibration needs of a model: a location, a spread, and its data."""

from abc import ABC, abstractmethod
from typing import ClassVar

import torch
from torch import Tensor

from sharpgp.gp.posterior import Posterior


class Model(ABC):
    """Location and spread of ``y`` at ``x``, so that ``Q = location + beta * spread``.

    Answers are in the user's units, for inputs of shape [T, d].

    Attributes
    ----------
    posterior : Posterior
        The GP that the model rests on.
    scores : Tensor [N] or None
        Held-out z-scores of its own training points, where it has any.
    normalised : bool
        Whether ``beta`` counts spreads; else it is in units of the target.
    """

    posterior: Posterior
    scores: Tensor | None = None
    normalised: ClassVar[bool] = True

    @abstractmethod
    def location(self, X: Tensor) -> Tensor:
        """Centre [T] of the prediction."""

    @abstractmethod
    def spread(self, X: Tensor) -> Tensor:
        """Spread [T] about the location, positive."""

    @abstractmethod
    def extended(self, X: Tensor, y: Tensor) -> "Model":
        """The same model conditioned on further data; what was learned otherwise is kept."""

    def updated(self, X: Tensor, y: Tensor) -> "Model":
        """As :meth:`extended`, and what is estimated from residuals learns, too."""
        return self.extended(X, y)

    @property
    def n_features(self) -> int:
        """Number of features ``d``."""
        return self.posterior.n_features

    @property
    def device(self) -> torch.device:
        """Where tensors live."""
        return self.posterior.device

    @property
    def X_train(self) -> Tensor:
        """Training inputs [N, d]."""
        return self.posterior.X_train

    @property
    def y_train(self) -> Tensor:
        """Training targets [N]."""
        return self.posterior.y_train
