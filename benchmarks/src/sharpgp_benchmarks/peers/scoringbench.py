"""An entry of this library for ScoringBench, a public leaderboard of probabilistic regressors.

ScoringBench (https://scoringbench.com) asks of an entry a class with ``fit``, ``predict`` and
``predict_distribution``, derived from its ``ProbabilisticWrapper``; the last answers with its
``DistributionPrediction``, which is made from quantiles.  :class:`Entry` is all of that that needs
no ScoringBench, :func:`wrapper_class` the class itself.  In a checkout of ScoringBench, the module
``scoringbench/univariate/wrappers/sharpgp_wrapper.py`` then is two lines::

    from sharpgp_benchmarks.peers.scoringbench import wrapper_class

    SharpGPWrapper = wrapper_class()

``sharpgp bench evidence scoringbench`` runs its protocol here.
"""

import warnings
from typing import Any

import numpy as np

from sharpgp import SharpGPRegressor
from sharpgp.exceptions import InvalidInputError

#: ScoringBench takes the ends of an interval from the nearest levels on the outside: so fine that
#: this changes little, and with the ends of its intervals (20 to 95 %) among them.
LEVELS = np.arange(1, 1000) / 1000


class Entry:
    """The default estimator on rows as ScoringBench hands them over.

    Its tables have numbers only, categories as codes.  Values that are missing or infinite become
    the median of the training rows' column; training rows without a finite target are left out.

    Parameters
    ----------
    **settings
        Of :class:`sharpgp.SharpGPRegressor`; ``random_state`` is 0 unless given.

    Examples
    --------
    >>> rng = np.random.default_rng(0)
    >>> X = rng.uniform(size=(80, 2))
    >>> X[0, 0], y = np.nan, X[:, 1] + 0.1 * rng.normal(size=80)
    >>> entry = Entry(base="rbf", calibration="kuleshov18").fit(X, y)
    >>> mean, quantiles = entry.answer(X[:3])
    >>> quantiles.shape
    (3, 999)
    """

    def __init__(self, **settings: Any) -> None:
        self.settings = {"random_state": 0} | settings

    def fit(self, X: Any, y: Any) -> "Entry":
        """Train and calibrate on all rows that have a target."""
        X, y = np.asarray(X, dtype=np.float64), np.asarray(y, dtype=np.float64).reshape(-1)
        known = np.isfinite(y)
        if not known.any():
            raise InvalidInputError("y: expected finite targets, found none")
        finite = np.where(np.isfinite(X[known]), X[known], np.nan)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # a column without a single value
            self.medians_ = np.nan_to_num(np.nanmedian(finite, axis=0))
            self.model_ = SharpGPRegressor(**self.settings).fit(self._filled(X[known]), y[known])
        return self

    def answer(self, X: Any) -> tuple[np.ndarray, np.ndarray]:
        """Means (n,) of the predictive distributions, and quantiles (n, 999) at LEVELS."""
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # levels beyond what calibration points support
            found = self.model_.predict_dist(self._filled(np.asarray(X, dtype=np.float64)))
            return np.asarray(found.mean), np.asarray(found.quantile(LEVELS))

    def _filled(self, X: np.ndarray) -> np.ndarray:
        return np.where(np.isfinite(X), X, self.medians_)


def wrapper_class() -> type:
    """The class that ScoringBench registers; needs ScoringBench on the path.

    Its constructor takes the settings of :class:`Entry`.
    """
    from scoringbench.univariate.wrappers.base import DistributionPrediction, ProbabilisticWrapper

    class SharpGPWrapper(ProbabilisticWrapper):
        """A calibrated pool of Gaussian processes and trees (sharpgp; MIT licence)."""

        def __init__(self, **settings: Any) -> None:
            self.entry = Entry(**settings)

        def fit(self, X: Any, y: Any) -> "SharpGPWrapper":
            self._set_train_range(y)
            self.entry.fit(X, y)
            return self

        def predict(self, X: Any) -> np.ndarray:
            return self.entry.answer(X)[0]

        def predict_distribution(self, X: Any) -> Any:
            mean, quantiles = self.entry.answer(X)
            return DistributionPrediction.from_multi_quantile(
                quantiles, LEVELS, mean, train_range=self._y_train_range
            )

    return SharpGPWrapper
