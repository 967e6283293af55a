"""Estimators that give quantiles after a fit, as models that can be pooled with others."""

from typing import Any

import torch
from sklearn.base import clone
from torch import Tensor

from sharpgp.models.laws import Law, Table
from sharpgp.models.quantiles import quantile_source
from sharpgp.models.refitted import RefittedModel
from sharpgp.models.regressor import as_table


class ForeignModel(RefittedModel):
    """The law that runs through the quantiles of an estimator.

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
    >>> from sklearn.base import BaseEstimator
    >>> class Line(BaseEstimator):
    ...     def fit(self, X, y):
    ...         return self
    ...
    ...     def predict(self, X, quantiles):
    ...         return X[:, :1] + 2.0 * torch.special.ndtri(torch.tensor(quantiles)).numpy()
    >>> X = torch.linspace(0, 6, 60, dtype=torch.float64)[:, None]
    >>> model = ForeignModel(Line(), X, X[:, 0])
    >>> law = model.law(X[-1:])
    >>> round(float(law.location), 6), round(float(law.spread), 6)
    (6.0, 2.0)
    """

    def __init__(self, estimator: Any, X: Tensor, y: Tensor, names: Any = None) -> None:
        super().__init__(X, y)
        self.estimator, self.names = estimator, names
        fitted = clone(estimator).fit(as_table(X, names), y.cpu().numpy())
        self.source = quantile_source(fitted)
        self.typical = float(y.std()) or 1.0

    def law(self, X: Tensor) -> Law:
        """See :meth:`Model.law`; without a gradient."""
        table = self.source.table(as_table(X, self.names)).to(X)
        return Table.of_quantiles(torch.from_numpy(self.source.levels).to(X), table, self.typical)

    def relearned(self, X: Tensor, y: Tensor, labels: Tensor, seed: int) -> "ForeignModel":
        """See :meth:`Learner.relearned`."""
        return ForeignModel(self.estimator, X, y, self.names)
