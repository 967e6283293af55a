"""Estimators that give quantiles after a fit, as models that can be pooled with others."""

from typing import Any

from scipy.special import ndtr
from sklearn.base import clone
from torch import Tensor

from sharpgp.models.quantiles import quantile_source
from sharpgp.models.refitted import LEAST_SPREAD, RefittedModel
from sharpgp.models.regressor import as_table

# One standard deviation of a Gaussian on either side of the median.
_LEVELS = (float(ndtr(-1.0)), 0.5, float(ndtr(1.0)))


class ForeignModel(RefittedModel):
    """Median as location and ``(q(0.84) - q(0.16)) / 2`` as spread of an estimator.

    The estimator is cloned and fitted, also without each of some parts; it cannot be conditioned
    on further data, and stays as it is there.

    Parameters
    ----------
    estimator : scikit-learn estimator
        With one of the methods of :func:`sharpgp.models.quantiles.quantile_source`.
    X, y : Tensor [N, d], Tensor [N]
    names : array of str, optional
        Column names; with them the estimator is given data frames.

    Examples
    --------
    >>> import torch
    >>> from sklearn.base import BaseEstimator
    >>> class Line(BaseEstimator):
    ...     def fit(self, X, y):
    ...         return self
    ...
    ...     def predict(self, X, quantiles):
    ...         return X[:, :1] + 2.0 * torch.special.ndtri(torch.tensor(quantiles)).numpy()
    >>> X = torch.linspace(0, 6, 60, dtype=torch.float64)[:, None]
    >>> model = ForeignModel(Line(), X, X[:, 0])
    >>> round(float(model.location(X[-1:])), 6), round(float(model.spread(X[-1:])), 6)
    (6.0, 2.0)
    """

    def __init__(self, estimator: Any, X: Tensor, y: Tensor, names: Any = None) -> None:
        super().__init__(X, y)
        self.estimator, self.names = estimator, names
        fitted = clone(estimator).fit(as_table(X, names), y.cpu().numpy())
        self.source = quantile_source(fitted, _LEVELS)
        self.least = LEAST_SPREAD * float(y.std()) or 1.0

    def location(self, X: Tensor) -> Tensor:
        """See :meth:`Model.location`; without a gradient."""
        return self._quantiles(X)[:, 1]

    def spread(self, X: Tensor) -> Tensor:
        """See :meth:`Model.spread`."""
        low, _, high = self._quantiles(X).T
        return ((high - low) / 2.0).clamp(min=self.least)

    def _quantiles(self, X: Tensor) -> Tensor:
        return self.source.table(as_table(X, self.names)).to(X)

    def relearned(self, X: Tensor, y: Tensor, labels: Tensor, seed: int) -> "ForeignModel":
        """See :meth:`Learner.relearned`."""
        return ForeignModel(self.estimator, X, y, self.names)
