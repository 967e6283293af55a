"""Base of models around another one, with its data and its GP."""

import torch
from torch import Tensor

from sharpgp.gp.posterior import Posterior
from sharpgp.models.model import Model


class WrappedModel(Model):
    """A model around another one, with the other's data and GP.

    Attributes
    ----------
    model : Model
    """

    model: Model

    @property
    def gp(self) -> Posterior | None:
        return self.model.gp

    @property
    def weighted(self) -> bool:
        return self.model.weighted

    @property
    def X_train(self) -> Tensor:
        return self.model.X_train

    @property
    def y_train(self) -> Tensor:
        return self.model.y_train

    @property
    def n_features(self) -> int:
        return self.model.n_features

    @property
    def device(self) -> torch.device:
        return self.model.device
