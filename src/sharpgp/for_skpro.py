"""The estimator as a probabilistic regressor of skpro (extra ``skpro``)."""

from collections.abc import Sequence
from typing import Any, ClassVar

import numpy as np

from sharpgp._extras import need
from sharpgp.estimator import SharpGPRegressor

try:
    import pandas as pd
    from skpro.distributions.base import BaseDistribution
    from skpro.regression.base import BaseProbaRegressor
except ImportError:  # named when one is made
    BaseDistribution = BaseProbaRegressor = object


class SkproRegressor(BaseProbaRegressor):
    """A calibrated, heteroscedastic GP, or a pool of models, with skpro's interface.

    Parameters
    ----------
    estimator : SharpGPRegressor, optional
        Its settings; it is cloned, never fitted.  Default: ``SharpGPRegressor()``.

    Attributes
    ----------
    estimator_ : SharpGPRegressor
        The fitted clone, for everything beyond skpro's interface.

    Examples
    --------
    >>> from sharpgp import SharpGPRegressor
    >>> from sharpgp.for_skpro import SkproRegressor
    >>> model = SkproRegressor(SharpGPRegressor(effort="low"))  # doctest: +SKIP
    >>> model.fit(X, y).predict_interval(X_new, coverage=[0.9])  # doctest: +SKIP
    >>> model.predict_proba(X_new).pdf(y_new)  # doctest: +SKIP
    """

    _tags: ClassVar[dict[str, Any]] = {
        "authors": ["sharpgp"],
        "capability:missing": True,
        "capability:multioutput": False,
        "python_dependencies": "sharpgp",
    }

    def __init__(self, estimator: SharpGPRegressor | None = None) -> None:
        need("skpro", "skpro", "pandas")
        self.estimator = estimator
        super().__init__()

    def _fit(self, X: Any, y: Any, C: Any = None) -> "SkproRegressor":
        from sklearn.base import clone

        given = SharpGPRegressor() if self.estimator is None else self.estimator
        self.estimator_ = clone(given).fit(_named(X), y.iloc[:, 0])
        return self

    def _predict(self, X: Any) -> Any:
        mean = self.estimator_.predict(_named(X))
        return pd.DataFrame(mean, index=X.index, columns=self._get_columns("predict"))

    def _predict_interval(self, X: Any, coverage: Sequence[float]) -> Any:
        ends = self.estimator_.predict_interval(_named(X), list(coverage))  # (n, 2, k)
        columns = self._get_columns("predict_interval", coverage=coverage)
        by_coverage = ends.transpose(0, 2, 1).reshape(len(ends), -1)
        return pd.DataFrame(by_coverage, index=X.index, columns=columns)

    def _predict_quantiles(self, X: Any, alpha: Sequence[float]) -> Any:
        columns = self._get_columns("predict_quantiles", alpha=alpha)
        found = self.estimator_.predict_quantiles(_named(X), list(alpha))
        return pd.DataFrame(found, index=X.index, columns=columns)

    def _predict_proba(self, X: Any) -> "SharpGPDistribution":
        columns = self._get_columns("predict")
        return SharpGPDistribution(self.estimator_, _named(X), index=X.index, columns=columns)

    @classmethod
    def get_test_params(cls, parameter_set: str = "default") -> list[dict[str, Any]]:
        """Settings that skpro's own checks use."""
        return [
            {"estimator": SharpGPRegressor(base="rbf", calibration="kuleshov18")},
            {"estimator": SharpGPRegressor(base="rbf", calibration="vanilla")},
        ]


def _named(X: Any) -> Any:
    """The same table with text as column names."""
    return X.set_axis([str(name) for name in X.columns], axis=1)


class SharpGPDistribution(BaseDistribution):
    """The predictive distributions of a fitted estimator at rows ``X``, for skpro.

    Parameters
    ----------
    estimator : SharpGPRegressor
        Fitted, with one output.
    X : data frame
    index, columns : pandas.Index, optional

    Examples
    --------
    >>> model.predict_proba(X_new).ppf(0.9)  # doctest: +SKIP
    """

    _tags: ClassVar[dict[str, Any]] = {
        "authors": ["sharpgp"],
        "capabilities:approx": ["energy", "pdfnorm"],
        "capabilities:exact": ["mean", "var", "pdf", "log_pdf", "cdf", "ppf"],
        "distr:measuretype": "continuous",
        "distr:paramtype": "nonparametric",
        "broadcast_init": "off",
    }

    def __init__(
        self, estimator: SharpGPRegressor, X: Any, index: Any = None, columns: Any = None
    ) -> None:
        self.estimator, self.X = estimator, X
        index = X.index if index is None else index
        super().__init__(index=index, columns=pd.RangeIndex(1) if columns is None else columns)
        self._law = estimator.predict_dist(X)

    def _iloc(self, rowidx: Any = None, colidx: Any = None) -> "SharpGPDistribution":
        rows = slice(None) if rowidx is None else np.atleast_1d(rowidx)
        return SharpGPDistribution(self.estimator, self.X.iloc[rows], columns=self.columns)

    def _iat(self, rowidx: Any = None, colidx: Any = None) -> "SharpGPDistribution":
        return self._iloc([rowidx])

    def _mean(self) -> Any:
        return self._law.mean[:, None]

    def _var(self) -> Any:
        return self._law.std[:, None] ** 2

    def _each(self, ask: Any, values: Any) -> Any:
        """Answers (n, 1) for values (n, 1) or one value."""
        column = np.broadcast_to(np.asarray(values, dtype=np.float64), (len(self.X), 1))[:, 0]
        return np.asarray(ask(column))[:, None]

    def _cdf(self, x: Any) -> Any:
        return self._each(self._law.cdf, x)

    def _log_pdf(self, x: Any) -> Any:
        return self._each(self._law.log_prob, x)

    def _pdf(self, x: Any) -> Any:
        return np.exp(self._log_pdf(x))

    def _ppf(self, p: Any) -> Any:
        def each(levels: Any) -> Any:
            several, place = np.unique(levels, return_inverse=True)
            return self._law.quantile(several)[np.arange(len(levels)), place]

        return self._each(each, p)
