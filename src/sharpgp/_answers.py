"""What a fitted estimator predicts, in NumPy: intervals, quantiles, distributions, reports."""

from __future__ import annotations

import warnings
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, Literal, TypeVar

import numpy as np
from numpy.typing import ArrayLike
from sklearn.base import BaseEstimator, RegressorMixin
from sklearn.utils.validation import check_is_fitted

from sharpgp._inputs import encoded, feature_names, features, plain, targets
from sharpgp._validation import as_coverage, as_features, as_numpy
from sharpgp.exceptions import CalibrationWarning, InvalidInputError

if TYPE_CHECKING:
    import torch
    from torch import Tensor

    from sharpgp.calibration.calibrated import Calibrated
    from sharpgp.distribution import PredictiveDistribution
    from sharpgp.gp.posterior import Posterior
    from sharpgp.summary import Summary
    from sharpgp.width_parts import WidthParts

T = TypeVar("T")
PlotKind = Literal[
    "auto", "intervals", "observed", "reliability", "coverage", "relevance", "base", "sheet"
]


class Answers(RegressorMixin, BaseEstimator, ABC):
    """An estimator whose ``fit`` leaves a calibrated predictor, or one for each output."""

    calibrated_: Calibrated
    posterior_: Posterior
    outputs_: list[Any]

    @abstractmethod
    def fit(self, X: ArrayLike, y: Any) -> Any:
        """Set ``calibrated_`` and ``posterior_``, or ``outputs_``."""

    def predict(
        self,
        X: ArrayLike,
        return_std: bool = False,
        *,
        noise: ArrayLike | None = None,
        groups: ArrayLike | None = None,
    ) -> Any:
        """Predictive mean (n,), and with ``return_std`` the predictive standard deviation (n,).

        The mean is that of the model; calibration does not move it.  The mean of
        :meth:`predict_dist` differs from it where calibration scores are skewed.  ``groups`` as in
        :meth:`predict_interval`.
        """
        mean = self._answer(X, lambda model, X: as_numpy(model.predict_mean(X)), noise, groups)
        if not return_std:
            return mean
        std = self._answer(X, lambda model, X: as_numpy(model.predict_std(X)), noise, groups)
        return mean, std

    def predict_interval(
        self,
        X: ArrayLike,
        coverage: float | Sequence[float] | np.ndarray = 0.95,
        *,
        symmetric: bool | None = None,
        noise: ArrayLike | None = None,
        sample_weight: ArrayLike | None = None,
        groups: ArrayLike | None = None,
    ) -> np.ndarray:
        """Prediction intervals.

        Parameters
        ----------
        X : array of shape (n, d)
        coverage : float or sequence of float in (0, 1)
        symmetric : bool, optional
            False: centred quantiles; True: the band ``mu -+ radius`` from absolute z-scores.  None:
            as chosen at fit, for all coverages: with ``"exact"``, ``"cv"`` and ``"loo"`` the better
            of the two for scores like those of the training points, otherwise the band below 199
            calibration points.  Also the band where there are too few points for two tails.
        noise : float or array of shape (n,), optional
            Noise variances of the observations to predict, if ``fit`` was given noise; ``noise_``
            by default.  0: observations without that noise.
        sample_weight : array of shape (n,), optional
            Weights of these points, where ``fit`` was given weights; without them the function
            given to ``fit`` is used, or the largest weight of a calibration point.
        groups : array of shape (n,), optional
            The group of each point, where ``fit`` was given groups.  A group that ``fit`` was given
            is answered from what is known of it, see :mod:`sharpgp.calibration.known_groups`, any
            other one as a new group.  Without it every point is of a new group.

        Returns
        -------
        array of shape (n, 2), or (n, 2, k) for ``k`` coverages
        """
        settings = {"symmetric": symmetric, "sample_weight": plain(sample_weight)}
        return self._answer(
            X,
            lambda model, X: as_numpy(model.predict_interval(X, coverage, **settings)),
            noise,
            groups,
        )

    def predict_region(
        self,
        X: ArrayLike,
        coverage: Any = 0.95,
        *,
        noise: ArrayLike | None = None,
        sample_weight: ArrayLike | None = None,
    ) -> np.ndarray:
        """Boxes (n, 2, p) that contain all ``p`` outputs at once; (n, 2, k, p) for ``k`` coverages.

        With ``"exact"`` the coverage holds in finite samples, if gaps in the outputs do not depend
        on ``X`` or ``y``; see :mod:`sharpgp.outputs`.  ``noise`` and ``sample_weight`` as for
        :meth:`predict_interval`.
        """
        from sharpgp.outputs import predict_region

        check_is_fitted(self)
        return predict_region(self, X, coverage, noise, sample_weight)

    def predict_band(
        self,
        X: ArrayLike,
        coverage: float = 0.95,
        *,
        noise: ArrayLike | None = None,
        sample_weight: ArrayLike | None = None,
    ) -> np.ndarray:
        """A band (n, 2) that contains all rows of a new group at once, if ``fit`` had groups.

        With ``"exact"`` and groups that are exchangeable the coverage holds in finite samples; with
        weights, if they are equal within groups.
        """
        from sharpgp.outputs import predict_band

        check_is_fitted(self)
        return predict_band(self, X, coverage, noise, sample_weight)

    def predict_quantiles(
        self,
        X: ArrayLike,
        levels: Any,
        *,
        noise: ArrayLike | None = None,
        groups: ArrayLike | None = None,
    ) -> np.ndarray:
        """Quantiles, (n,) for a single level and (n, k) for several; they never cross.

        ``groups`` as in :meth:`predict_interval`.
        """
        return self._answer(
            X, lambda model, X: as_numpy(model.predict_quantiles(X, levels)), noise, groups
        )

    def predict_dist(
        self, X: ArrayLike, *, noise: ArrayLike | None = None, groups: ArrayLike | None = None
    ) -> PredictiveDistribution:
        """Full predictive distribution at ``X``, answering in NumPy arrays.

        ``groups`` as in :meth:`predict_interval`.
        """
        return self._answer(X, lambda model, X: model.predict_dist(X).numpy(), noise, groups)

    def score(self, X: ArrayLike, y: ArrayLike, sample_weight: ArrayLike | None = None) -> float:
        """Coefficient of determination of the predictive mean, as of every regressor."""
        # Not every version of scikit-learn takes torch tensors, and none those of a GPU.
        return float(super().score(X, plain(targets(self, y)), plain(sample_weight)))

    def calibration_report(
        self,
        X: ArrayLike | None = None,
        y: ArrayLike | None = None,
        *,
        coverage: float = 0.95,
        noise: ArrayLike | None = None,
    ) -> Any:
        """Every metric on test data, by name, with the ECE floor; prints and shows as a table.

        Without test data, on the points that calibrated the model, each predicted by fits that
        have not seen it; see :class:`sharpgp.calibration.held_out_view.HeldOutView`.  With several
        outputs, a list of such tables.

        Parameters
        ----------
        X, y : arrays, optional
        coverage : float in (0, 1)
            Of the intervals; their metrics are named by it, as in ``width_95``.
        noise : float or array, optional
            See :meth:`predict_interval`.

        Examples
        --------
        >>> from sharpgp import SharpGPRegressor
        >>> rng = np.random.default_rng(0)
        >>> X = rng.uniform(-3, 3, (200, 1))
        >>> y = np.sin(X[:, 0]) + 0.1 * rng.normal(size=200)
        >>> model = SharpGPRegressor(calibration="kuleshov18", random_state=0).fit(X[:150], y[:150])
        >>> report = model.calibration_report(X[150:], y[150:])
        >>> sorted(report)[:3]
        ['coverage_95', 'crps', 'ece']
        >>> bool(model.calibration_report(coverage=0.8)["coverage_80"] > 0.75)
        True
        """
        from sharpgp.calibration.held_out_view import HeldOutView
        from sharpgp.outputs import reports

        check_is_fitted(self)
        if (X is None) != (y is None):
            raise InvalidInputError("expected both X and y, or neither, found one of them")
        if hasattr(self, "outputs_"):
            if X is None:
                return [one.calibration_report(coverage=coverage) for one in self.outputs_]
            return reports(self, X, y, noise, coverage)
        if X is None:
            view = HeldOutView(self.calibrated_)
            return view.calibration_report(view.X_cal, view.y_cal, coverage)
        y = plain(targets(self, y))
        return self._answer(X, lambda model, X: model.calibration_report(X, y, coverage), noise)

    def explain_width(self, X: ArrayLike, coverage: float = 0.95) -> WidthParts:
        """How much each column adds to the width of each interval: parts (n, d) that sum to it.

        See :func:`sharpgp.width_parts.explained_widths`; ``explain_width(X).plot(row)`` draws them.
        """
        from sharpgp.width_parts import explained_widths

        self._check_one_output()
        with warnings.catch_warnings():
            # Rows that mix two others may be far from all data, which is what is asked about.
            warnings.simplefilter("ignore", CalibrationWarning)
            return explained_widths(self, X, as_coverage(coverage)[0][0])

    def summary(self) -> Summary:
        """Rows and columns used and dropped, pool, lengthscales by column, held-out metrics.

        See :class:`sharpgp.summary.Summary`.
        """
        from sharpgp.summary import summarised

        self._check_one_output()
        return summarised(self)

    def plot(
        self,
        X: ArrayLike,
        y: ArrayLike,
        kind: PlotKind = "auto",
        *,
        ax: Any = None,
        **settings: Any,
    ) -> Any:
        """Draw the model on data: ``"intervals"``, ``"observed"``, ``"reliability"``, ...

        See :func:`sharpgp.plots.plot`, which has all kinds and settings.

        Examples
        --------
        >>> from matplotlib.figure import Figure
        >>> from sharpgp import SharpGPRegressor
        >>> X = np.linspace(0, 6, 40)[:, None]
        >>> model = SharpGPRegressor(calibration="vanilla").fit(X, np.sin(X[:, 0]))
        >>> model.plot(X, np.sin(X[:, 0]), ax=Figure().subplots()).get_xlabel()
        'x0'
        """
        from sharpgp import plots

        return plots.plot(self, X, y, kind, ax=ax, **settings)

    def _check_one_output(self) -> None:
        """Raise unless this is fitted, and has one output."""
        check_is_fitted(self)
        if hasattr(self, "outputs_"):
            n = len(self.outputs_)
            raise InvalidInputError(
                f"expected a model of one output, found {n}; use one of outputs_"
            )

    def _checked(self, X: Any, noise: Any = None) -> Tensor:
        from sharpgp.noise import beside_noise

        self._check_one_output()
        array = beside_noise(features(self, X), noise, getattr(self, "noise_", None))
        if hasattr(self, "weight_"):
            array = np.column_stack([array, np.zeros(len(array))])  # of usual weight
        return as_features(array, device=self.calibrated_.device)

    def _answer(
        self,
        X: ArrayLike,
        ask: Callable[[Calibrated, Tensor], T],
        noise: ArrayLike | None = None,
        groups: ArrayLike | None = None,
    ) -> T:
        """``ask(predictor, X)``; out of GPU memory, in smaller blocks, and then on the CPU.

        Of several outputs, the answers for each of them, :func:`sharpgp.outputs.stacked`.
        """
        from sharpgp._rows import with_groups
        from sharpgp.calibration.cautions import features_named
        from sharpgp.gp.compute import moved_to, within_memory
        from sharpgp.outputs import stacked

        if hasattr(self, "outputs_"):
            table = encoded(self, X)
            rows = X if table is None else table
            return stacked([one._answer(rows, ask, noise, groups) for one in self.outputs_])
        X, predictor = self._checked(X, noise), self.calibrated_
        if groups is not None:
            predictor, X = with_groups(self, X, groups)

        def work(device: torch.device) -> T:
            if device == X.device:
                return ask(predictor, X)
            return ask(moved_to(predictor, device), X.to(device))

        with features_named(feature_names(self)):
            return within_memory(X.device, work)
