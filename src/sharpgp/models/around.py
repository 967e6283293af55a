"""What models around another one have in common: its data and its GP."""

import torch
from torch import Tensor

from sharpgp.gp.posterior import Posterior
from sharpgp.models.model import Learner


class AroundModel(Learner):
    """A model around another one, whose data and GP are its own.

    Attributes
    ----------
    model : Learner
    """

    model: Learner

    @property
    def has_posterior(self) -> bool:  # type: ignore[override]
        """Whether the model rests on a GP."""
        return self.model.has_posterior

    @property
    def weighted(self) -> bool:
        """See :meth:`Model.weighted`."""
        return self.model.weighted

    @property
    def posterior(self) -> Posterior:  # type: ignore[override]
        """The GP of the other model."""
        return self.model.posterior

    @property
    def X_train(self) -> Tensor:
        """Training inputs [N, d]."""
        return self.model.X_train

    @property
    def y_train(self) -> Tensor:
        """Training targets [N]."""
        return self.model.y_train

    @property
    def n_features(self) -> int:
        """Number of features ``d``."""
        return self.model.n_features

    @property
    def device(self) -> torch.device:
        """Where tensors live."""
        return self.model.device
