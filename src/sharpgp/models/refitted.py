"""Models that rest on no GP: all but a prediction is a fit from scratch."""

from abc import abstractmethod
from collections.abc import Sequence
from typing import Self

import torch
from torch import Tensor

from sharpgp import _progress as progress
from sharpgp.models.folds import Split
from sharpgp.models.model import HeldOut, Learner, OutOfFold, held_out_of
from sharpgp.models.splitters import judging_pairs

#: Spreads are at least this part of the target's deviation: a model may know none, such as that of
#: a leaf with equal targets.
LEAST_SPREAD = 1e-3
# Parts that are left out in turn where a quick answer will do.
_QUICK_PARTS = 5


class RefittedModel(Learner):
    """A model that knows its data, and is fitted again to any of them.

    It cannot be conditioned on further data: :meth:`extended` and :meth:`updated` keep it as it
    is.  A kind of model has a :meth:`location`, a :meth:`spread` and :meth:`relearned`.

    Parameters
    ----------
    X, y : Tensor [N, d], Tensor [N]

    Examples
    --------
    >>> class Flat(RefittedModel):
    ...     def location(self, X):
    ...         return self.y_train.mean().expand(len(X))
    ...
    ...     def spread(self, X):
    ...         return self.y_train.std().expand(len(X))
    ...
    ...     def relearned(self, X, y, labels, seed):
    ...         return Flat(X, y)
    >>> X = torch.linspace(0, 6, 60, dtype=torch.float64)[:, None]
    >>> Flat(X, X[:, 0]).leave_one_out(torch.arange(60), 0).location.shape
    torch.Size([60])
    """

    has_posterior = False

    def __init__(self, X: Tensor, y: Tensor) -> None:
        self._X, self._y = X, y

    @property
    def X_train(self) -> Tensor:
        """Training inputs [N, d]."""
        return self._X

    @property
    def y_train(self) -> Tensor:
        """Training targets [N]."""
        return self._y

    @property
    def n_features(self) -> int:
        """Number of features ``d``."""
        return self._X.shape[1]

    @property
    def device(self) -> torch.device:
        """Where tensors live."""
        return self._X.device

    @abstractmethod
    def relearned(self, X: Tensor, y: Tensor, labels: Tensor, seed: int) -> Self:
        """See :meth:`Learner.relearned`."""

    def extended(self, X: Tensor, y: Tensor) -> Self:
        """The same model."""
        return self

    def updated(self, X: Tensor, y: Tensor) -> Self:
        """The same model."""
        return self

    def leave_one_out(self, labels: Tensor, seed: int) -> HeldOut:
        """See :meth:`Learner.leave_one_out`: a fifth of the points at a time."""
        pairs = judging_pairs(labels, _QUICK_PARTS, seed)
        return self.out_of_fold(pairs, labels, seed).held

    def out_of_fold(self, pairs: Sequence[Split], labels: Tensor, seed: int) -> OutOfFold:
        """See :meth:`Learner.out_of_fold`."""
        X, y = self._X, self._y
        fits = []
        for rest, _ in pairs:
            fits.append(self.relearned(X[rest], y[rest], labels[rest], seed))
            progress.advance()
        return OutOfFold(self, fits, held_out_of(fits, pairs, X, y).in_order())
