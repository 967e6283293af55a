"""The scikit-learn estimator: the three lines that most users need.

torch, which takes seconds to load, is imported where a model is fitted or loaded.
"""

from __future__ import annotations

import copy
import os
import warnings
from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING, Any, Literal, Protocol, TypeVar, overload

import numpy as np
from numpy.typing import ArrayLike
from sklearn.base import BaseEstimator, RegressorMixin
from sklearn.utils.validation import check_is_fitted

from sharpgp._hints import hinted
from sharpgp._stored import ABSENT, Maybe, NumPyArray, Of, Several, stored
from sharpgp._validation import as_coverage, as_float, as_numpy
from sharpgp.data.encoding import TableEncoding
from sharpgp.data.inputs import encode_rows, feature_names, plain, read_features, read_targets
from sharpgp.exceptions import (
    CalibrationWarning,
    InvalidInputError,
    SavedModelError,
    SeveralOutputsError,
)
from sharpgp.names import ApproximationName, BaseName, CalibrationName, Effort

if TYPE_CHECKING:
    import torch
    from gpytorch.kernels import Kernel
    from sklearn.utils import Tags

    from sharpgp.calibration.predictors.base import Calibrated
    from sharpgp.calibration.recalibrator import Recalibrator
    from sharpgp.decisions import Decisions
    from sharpgp.distribution import PredictiveDistribution
    from sharpgp.explanations import Explanation, Parts
    from sharpgp.gp.posterior import Posterior, TrainingResult
    from sharpgp.metrics.report import CalibrationReport
    from sharpgp.models.pool import BaseTable
    from sharpgp.plots.models import Axes, Figure
    from sharpgp.policy import Neighbours, Sparse
    from sharpgp.population import PopulationMean
    from sharpgp.promise import Promise
    from sharpgp.rows import Rows
    from sharpgp.selection import Selection
    from sharpgp.summary import Summary

T = TypeVar("T")
PlotKind = Literal[
    "auto", "intervals", "observed", "reliability", "coverage", "relevance", "base", "sheet"
]
_ALL_CORES = "the environment variable OMP_NUM_THREADS for fewer: all cores are used"
#: One number, or several.
Numbers = float | Sequence[float] | np.ndarray
#: Smallest and largest possible target; None for no bound.
Bounds = tuple[float | None, float | None]


class Regressor(Protocol):
    """What fits and predicts as scikit-learn's regressors do."""

    def fit(self, X: Any, y: Any) -> object:
        """Learn from rows ``X`` and targets ``y``."""

    def predict(self, X: Any) -> Any:
        """Targets of rows."""


@stored(
    "SharpGPRegressor",
    base=object,
    calibration=object,
    approximation=object,
    cal_size=int | float,
    effort=str,
    y_bounds=object,
    device=object,
    random_state=object,
    verbose=int | float,
    missing=Maybe(object),
    calibrated_=Maybe(Of("sharpgp.calibration.predictors.base.Calibrated")),
    calibration_=str,
    members_=Maybe(Several(Of("sharpgp.models.pool.Member"))),
    posterior_=Maybe(Of("sharpgp.gp.posterior.Posterior")),
    outputs_=Maybe(Several(object)),
    joint_=Maybe(Of("sharpgp.outputs.JointScores")),
    group_scores_=Maybe(Of("sharpgp.outputs.JointScores")),
    n_features_in_=int,
    feature_names_in_=Maybe(np.ndarray),
    grouped_=Maybe(bool),
    policy_=Maybe(Of("sharpgp.policy.Policy")),
    group_names_=Maybe(np.ndarray),
    noise_=Maybe(float),
    weight_=Maybe(float),
    encoding_=Maybe(TableEncoding),
    constant_=Maybe(NumPyArray("two k")),
    # scikit-learn's routing and output settings belong to the running program.
    transient={"_metadata_request": ABSENT, "_sklearn_output_config": ABSENT},
)
class SharpGPRegressor(RegressorMixin, BaseEstimator):
    r"""Regression with calibrated, sharp predictive quantiles.

    A model, or a weighted pool of several, predicts a distribution at every ``x``.  Errors on
    held-out points correct its quantiles, so that intervals cover as often as they claim.

    Parameters
    ----------
    base : str, gpytorch kernel, scikit-learn regressor, or a list of these
        What predicts.  ``"auto"``: a pool, weighted by held-out predictions, see
        :data:`sharpgp.policy.POOLS`; methods that take one GP (``"paper"`` and the baselines) get
        ``"rbf"``.  A kernel's name (``"rbf"``, ``"matern12"``, ``"matern32"``, ``"matern52"``,
        ``"additive"``, ``"laplace"``), a sum of these (``"rbf+matern12"``) or a gpytorch kernel:
        that GP alone.  ``"extra_trees"``, ``"random_forest"`` or ``"boosted_trees"``: these trees.
        ``"prior"``: a network trained on generated tables, for up to 45 features.
        A regressor or pipeline: it predicts the location, and a GP of its out-of-fold residuals
        the spread.  A list: a pool.
    calibration : str or Recalibrator
        ``"auto"``, a method's name (``"cv"``, ``"exact"``, ``"paper"``, ``"vanilla"``,
        ``"kuleshov18"``, ...) or an instance such as ``Sharp(family="scaled")``.  ``"auto"`` is
        ``"cv"``, and ``"exact"`` if ``fit`` gets calibration data or ``sample_weight_cal``;
        ``calibration_`` says which.
    approximation : {"auto", "exact", "sparse", "neighbours"}, Sparse or Neighbours
        How GPs are approximated.  ``"auto"``: exact up to 4,000 training rows on a CPU (3,000 for
        methods that search with the GP, such as ``"paper"``), and as far as memory allows on a GPU;
        beyond, predictions use up to 2,000 landmarks, and their 64 nearest neighbours.
        ``"sparse"`` has 300 inducing inputs, or ``Sparse(m=...)``; ``"neighbours"`` uses the 128
        nearest training points, or ``Neighbours(m=...)``.
    cal_size : float or int
        Fraction (or number) of the rows to hold out for calibration, if the method needs it and
        ``fit`` gets no calibration data.  A fraction holds out at most 5,000 rows, rounded (by up
        to 5 %) so that 95 % intervals end at a whole rank.
    effort : {"low", "auto", "high"}
        Size of the pool of ``base="auto"``: one Matérn GP; three GPs, a forest and a network that
        was trained on generated tables; or these and a further GP.  The additive GP joins up to 20
        features, the network up to 45 and 2,000 rows, boosted trees beyond 10,000 rows.
    y_bounds : "auto", (low, high) or None
        Smallest and largest possible target, None for no bound: counts have ``(0, None)``, shares
        ``(0, 1)``.  Predictions stay within; probability beyond a bound moves to the bound, see
        :mod:`sharpgp.data.target_bounds`.  ``"auto"`` assumes a bound where targets pile up with
        none beyond, and warns.  For several outputs, one for all, or a list with one for each.
    device : {"auto", "cpu", "cuda"} or torch device
        Where to compute.  ``"auto"``: on a GPU, if available, from 2,000 training rows; else on the
        CPU.  When GPU memory runs out, blocks shrink; then the CPU takes over, with a warning.
    random_state : int, RandomState instance or None
        Seed of the holdout split and of randomised methods.
    verbose : int
        In a terminal or notebook, what takes more than three seconds shows where it stands and the
        time left.  -1: never; 1: from the start, with messages on the logger ``sharpgp``.
    missing : number, str or a list of these
        Markers of missing values in ``X`` and ``y``, such as -999 or ``"?"``, besides NaN and None.

    Attributes
    ----------
    calibration_ : str
        Name of the method that was used.
    calibrated_ : Calibrated
        The torch-level predictor.
    base_ : Table
        The pool: name, weight and mean held-out CRPS of each model.
    policy_ : Policy
        Settings that follow from rows, columns, device and effort; prints as a table.
    posterior_ : Posterior
        The trained GP; in a pool, the one with the largest weight.  Absent without a GP.
    outputs_ : list of SharpGPRegressor
        The model of each output, where ``y`` has several columns; each has the attributes above.
    inducing_ : int or None
        Number of inducing inputs of a sparse GP; None for any other.
    training_ : TrainingResult
        How the training of ``posterior_`` went.
    grouped_ : bool
        Whether ``fit`` was given groups.
    encoding_ : TableEncoding
        How columns became features, where ``X`` is a data frame, or has gaps or constant columns,
        which predictions ignore; prints as a table.
    noise_ : float
        If ``fit`` got noise: their median, the default variance of predictions.
    weight_ : float
        If ``fit`` got weights that differ: their mean.
    n_features_in_ : int
    feature_names_in_ : array of str
        As in every scikit-learn estimator.

    Examples
    --------
    >>> import numpy as np
    >>> from sharpgp import SharpGPRegressor
    >>> rng = np.random.default_rng(0)
    >>> X = rng.uniform(-3, 3, (120, 1))
    >>> y = np.sin(X[:, 0]) + 0.1 * rng.normal(size=120)
    >>> model = SharpGPRegressor(calibration="kuleshov18", random_state=0).fit(X, y)
    >>> model.predict_interval(X[:5], coverage=0.9).shape
    (5, 2)
    """

    calibrated_: Calibrated
    posterior_: Posterior
    outputs_: list[SharpGPRegressor]

    @hinted(
        **dict.fromkeys(("kernel", "mean", "model", "estimator"), "base="),
        **dict.fromkeys(("cv", "folds"), "calibration=CrossValidated(folds=...)"),
        **dict.fromkeys(("alpha", "coverage", "confidence_level"), "coverage= of predict_interval"),
        **dict.fromkeys(("seed", "random_seed"), "random_state="),
        n_jobs=_ALL_CORES,
        n_restarts_optimizer='effort="high"',
    )
    def __init__(
        self,
        *,
        base: BaseName | Regressor | Kernel | Sequence[BaseName | Regressor | Kernel] = "auto",
        calibration: CalibrationName | Recalibrator = "auto",
        approximation: ApproximationName | Sparse | Neighbours = "auto",
        cal_size: float | int = 0.25,
        effort: Effort = "auto",
        y_bounds: Literal["auto"] | Bounds | Sequence[Bounds | None] | None = "auto",
        device: str | torch.device = "auto",
        random_state: int | np.random.RandomState | None = None,
        verbose: int = 0,
        missing: float | str | Sequence[float | str] = (),
    ) -> None:
        self.base = base
        self.calibration = calibration
        self.approximation = approximation
        self.cal_size = cal_size
        self.effort = effort
        self.y_bounds = y_bounds
        self.device = device
        self.random_state = random_state
        self.verbose = verbose
        self.missing = missing

    @hinted(
        **dict.fromkeys(
            ("eval_set", "validation_data"), "X_cal= and y_cal= for rows that calibrate"
        ),
        weights="sample_weight=",
    )
    def fit(
        self,
        X: ArrayLike,
        y: ArrayLike,
        X_cal: ArrayLike | None = None,
        y_cal: ArrayLike | None = None,
        *,
        groups: ArrayLike | None = None,
        groups_cal: ArrayLike | None = None,
        noise: ArrayLike | Literal["replicates"] | None = None,
        noise_cal: ArrayLike | None = None,
        sample_weight: ArrayLike | None = None,
        sample_weight_cal: ArrayLike | Callable[[np.ndarray], ArrayLike] | None = None,
    ) -> SharpGPRegressor:
        """Train the models and calibrate them.

        If rows repeat others in ``X``, known and new inputs are calibrated apart, see
        :mod:`sharpgp.calibration.predictors.seen_or_new`.  A table in which every row occurs
        equally often is used once, with a warning.

        Parameters
        ----------
        X : array of shape (n, d), or data frame
            Columns of a data frame (pandas, polars, Arrow) may hold numbers, booleans, categories,
            texts and dates, with gaps; see :class:`sharpgp.data.TableEncoding`.  Numbers and dates
            written as text are parsed, with a warning.
        y : array of shape (n,)
            Rows without a target are dropped, with a warning.  A target far beyond any plausible
            tail of the others is named in a warning, and clipped for training, see
            :mod:`sharpgp.data.far_targets`.  With shape (n, p), gaps allowed: one model per output,
            see ``outputs_``; predictions then have the outputs last.
        X_cal, y_cal : arrays, optional
            Your own calibration data; without them ``cal_size`` of the rows are held out.
        groups : array of shape (n,), optional
            Which rows belong together, such as those of one patient: strings, numbers or anything
            comparable.  A group is never split, so that intervals are for new groups; for known
            ones, give ``groups`` to :meth:`predict_interval`.
        groups_cal : array, optional
            The same for the rows of ``X_cal``.
        noise : float, array of shape (n,) or "replicates", optional
            Variances of the observations' noise, where they are known; ``"replicates"`` estimates
            them from rows with equal ``X``.  Models are then fitted to the weighted mean of rows
            with equal ``X``.  See :mod:`sharpgp.data.noise`.
        noise_cal : float or array, optional
            The same for the rows of ``X_cal``.
        sample_weight : array of shape (n,), optional
            Which population counts: the weight of each row in all that is averaged (scores that
            pool models, spreads, trees, the ranks that make intervals), and not in what a GP
            believes about noise.  Only ratios matter, rows of weight 0 are left out.  For
            measurements of different precision, use ``noise``.
        sample_weight_cal : array or callable, optional
            For a covariate shift, weights of the calibration points: how much more frequent their
            inputs are among the points to predict.  One per row of ``X_cal``, or, without it, of
            ``X`` (only those of rows that calibrate are used); or a function of ``X`` (n, d) that
            gives them, which is then also used for the points to predict.
        """
        from sharpgp._fit import fit

        more = {
            "groups": groups,
            "groups_cal": groups_cal,
            "noise": noise,
            "noise_cal": noise_cal,
            "sample_weight": sample_weight,
            "sample_weight_cal": sample_weight_cal,
        }
        fit(self, X, y, X_cal, y_cal, more)
        return self

    def update(
        self,
        X: ArrayLike,
        y: ArrayLike,
        *,
        groups: ArrayLike | None = None,
        noise: ArrayLike | None = None,
        sample_weight: ArrayLike | None = None,
        refit: bool = False,
    ) -> SharpGPRegressor:
        """Learn from additional labelled points, without starting over.

        Trained hyperparameters stay.  New points join the calibration data, which keeps the
        guarantee of ``"exact"`` for exchangeable data; where every point trains and calibrates
        (``"cv"``), they are scored by the present model and then join its training data, too.
        Points of groups that trained the model do not calibrate it for new groups.

        Parameters
        ----------
        X : array of shape (n, d)
        y : array of shape (n,)
            Points that the model has not seen.
        groups : array of shape (n,), optional
            Their groups, where ``fit`` was given groups: known names join their group.
        noise : float or array of shape (n,), optional
            Variances of their noise, where ``fit`` was given noise.
        sample_weight : array of shape (n,), optional
            Their weights, where ``fit`` was given weights as an array.
        refit : bool
            Start over: ``fit`` on all points so far, with a new split.  Not possible if ``fit`` was
            given groups, which a model does not keep.

        Examples
        --------
        >>> rng = np.random.default_rng(0)
        >>> X = rng.uniform(-3, 3, (200, 1))
        >>> y = np.sin(X[:, 0]) + 0.1 * rng.normal(size=200)
        >>> model = SharpGPRegressor(base="rbf", calibration="exact", random_state=0)
        >>> model = model.fit(X[:100], y[:100])
        >>> model.calibrated_.n_cal, model.update(X[100:], y[100:]).calibrated_.n_cal
        (25, 125)
        """
        from sharpgp._fit import update

        update(self, self.rows(X, noise=noise), y, sample_weight, groups, refit=refit)
        return self

    @overload
    def predict(
        self,
        X: ArrayLike,
        return_std: Literal[False] = False,
        *,
        noise: ArrayLike | None = None,
        groups: ArrayLike | None = None,
    ) -> np.ndarray: ...

    @overload
    def predict(
        self,
        X: ArrayLike,
        return_std: Literal[True],
        *,
        noise: ArrayLike | None = None,
        groups: ArrayLike | None = None,
    ) -> tuple[np.ndarray, np.ndarray]: ...

    @hinted(
        **dict.fromkeys(("output_type", "quantiles"), "predict_quantiles(X, [0.05, 0.5, 0.95])"),
        **dict.fromkeys(("alpha", "coverage"), "predict_interval(X, coverage=0.9)"),
        return_cov="return_std=True",
        n_jobs=_ALL_CORES,
    )
    def predict(
        self,
        X: ArrayLike,
        return_std: bool = False,
        *,
        noise: ArrayLike | None = None,
        groups: ArrayLike | None = None,
    ) -> np.ndarray | tuple[np.ndarray, np.ndarray]:
        """Predictive mean (n,), and with ``return_std`` the predictive standard deviation (n,).

        The mean is that of the model; calibration does not move it.  The mean of
        :meth:`predict_dist` differs from it where calibration scores are skewed.  ``groups`` as in
        :meth:`predict_interval`.
        """
        mean = self.answer(X, lambda model, X: as_numpy(model.predict_mean(X)), noise, groups)
        if not return_std:
            return self._as_asked(X, mean, "mean")
        std = self.answer(X, lambda model, X: as_numpy(model.predict_std(X)), noise, groups)
        return self._as_asked(X, mean, "mean"), self._as_asked(X, std, "std")

    @hinted(
        alpha="coverage=, which is 1 - alpha",
        **dict.fromkeys(("confidence_level", "level", "levels"), "coverage="),
    )
    def predict_interval(
        self,
        X: ArrayLike,
        coverage: Numbers = 0.95,
        *,
        confidence: float | None = None,
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
        confidence : float in (0, 1), optional
            Tolerance intervals: with this confidence, *this* fitted model covers at least
            ``coverage`` of all further rows, instead of on average over calibration sets.  Proved
            for ``"exact"`` and rows, or groups, that are independent draws; see
            :mod:`sharpgp.calibration.tolerance`.
        symmetric : bool, optional
            False: centred quantiles; True: the band ``mu -+ radius`` from absolute z-scores.  None:
            as chosen at fit.  ``"exact"``, ``"cv"`` and ``"loo"`` take the better of the two for
            scores like those of the training points; other methods take the band below 199
            calibration points.  Too few points for two tails also mean the band.
        noise : float or array of shape (n,), optional
            Noise variances of the observations to predict, if ``fit`` was given noise; ``noise_``
            by default.  0: observations without that noise.
        sample_weight : array of shape (n,), optional
            Weights of these points, where ``fit`` was given weights; without them the function
            given to ``fit`` is used, or the largest weight of a calibration point.
        groups : array of shape (n,), optional
            The group of each point, where ``fit`` was given groups.  A group that ``fit`` was given
            is answered from what is known of it, see
            :mod:`sharpgp.calibration.predictors.known_groups`, any other one as a new group.
            Without it every point is of a new group.

        Returns
        -------
        array of shape (n, 2), or (n, 2, k) for ``k`` coverages
        """
        settings = {"symmetric": symmetric, "sample_weight": plain(sample_weight)}

        def ask(model: Calibrated, X: Any) -> np.ndarray:
            if confidence is not None:
                from sharpgp.calibration.tolerance import with_confidence

                model = with_confidence(model, confidence, coverage=coverage, symmetric=symmetric)
            return as_numpy(model.predict_interval(X, coverage, **settings))

        return self._as_asked(X, self.answer(X, ask, noise, groups), "interval", coverage)

    def predict_region(
        self,
        X: ArrayLike,
        coverage: Numbers = 0.95,
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
        levels: Numbers,
        *,
        confidence: float | None = None,
        noise: ArrayLike | None = None,
        groups: ArrayLike | None = None,
    ) -> np.ndarray:
        """Quantiles, (n,) for a single level and (n, k) for several; they never cross.

        With ``confidence``, one-sided tolerance limits: this fitted model has at least ``level`` of
        all further rows below, or ``1 - level`` above for levels under 0.5.  ``groups`` as in
        :meth:`predict_interval`.
        """

        def ask(model: Calibrated, X: Any) -> np.ndarray:
            if confidence is not None:
                from sharpgp.calibration.tolerance import with_confidence

                model = with_confidence(model, confidence, levels=levels)
            return as_numpy(model.predict_quantiles(X, levels))

        return self._as_asked(X, self.answer(X, ask, noise, groups), "quantile", levels)

    def predict_dist(
        self, X: ArrayLike, *, noise: ArrayLike | None = None, groups: ArrayLike | None = None
    ) -> PredictiveDistribution:
        """Full predictive distribution at ``X``, answering in NumPy arrays.

        ``groups`` as in :meth:`predict_interval`.
        """
        return self.answer(X, lambda model, X: model.predict_dist(X).numpy(), noise, groups)

    def score(self, X: ArrayLike, y: ArrayLike, sample_weight: ArrayLike | None = None) -> float:
        """Coefficient of determination of the predictive mean, as of every regressor."""
        # Not every version of scikit-learn takes torch tensors, and none those of a GPU.
        return float(super().score(X, plain(read_targets(self, y)), plain(sample_weight)))

    def calibration_report(
        self,
        X: ArrayLike | None = None,
        y: ArrayLike | None = None,
        *,
        coverage: float = 0.95,
        noise: ArrayLike | None = None,
    ) -> CalibrationReport | list[CalibrationReport]:
        """Every metric on test data, by name, with the ECE floor; prints and shows as a table.

        Without test data, on the calibration points, each predicted by fits that have not seen it;
        see :class:`sharpgp.calibration.predictors.scored.HeldOutPredictor`.  With several
        outputs, a list of such tables.

        Parameters
        ----------
        X, y : arrays, optional
        coverage : float in (0, 1)
            Coverage of the intervals; the names of their metrics end with it, as in ``width_95``.
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
        from sharpgp.diagnostics.collecting import warn_of_known_rows
        from sharpgp.outputs import reports

        check_is_fitted(self)
        if (X is None) != (y is None):
            raise InvalidInputError("expected both X and y, or neither, found one of them")
        if hasattr(self, "outputs_"):
            if X is None:
                views: Any = [one.calibrated_.at_own_points() for one in self.outputs_]
                return [one.calibration_report(one.X_own, one.y_own, coverage) for one in views]
            return reports(self, X, y, noise, coverage)
        if X is None:
            view: Any = self.calibrated_.at_own_points()
            return view.calibration_report(view.X_own, view.y_own, coverage)
        y = plain(read_targets(self, y))
        found = self.answer(X, lambda model, X: model.calibration_report(X, y, coverage), noise)
        warn_of_known_rows(self, X, y)
        return found

    def promise(
        self, X: ArrayLike | None = None, *, coverage: float | Sequence[float] = 0.9
    ) -> Promise:
        """What is promised: to whom, how surely, by which theorem, and on what premises.

        For rows like those that calibrate, or for the rows ``X``, at one coverage or several.  See
        :class:`sharpgp.promise.Promise`.
        """
        from sharpgp.promise import promise_of

        self._check_one_output()
        settings: dict[str, Any] = {"coverage": coverage}
        settings["encoding"] = getattr(self, "encoding_", None)
        if X is None:
            settings["by_group"] = self.calibrated_.by_group
            return promise_of(self.calibrated_, self.calibration_, **settings)
        return self.answer(X, lambda model, X: promise_of(model, self.calibration_, X, **settings))

    def decide(
        self,
        X: ArrayLike,
        actions: Iterable[Any],
        utility: Callable[[Any, np.ndarray], ArrayLike],
        *,
        coverage: float = 0.9,
        confidence: float | None = None,
    ) -> Decisions:
        """For each row the action with the best worst case over its interval.

        The utility passes that worst case with the coverage of the interval.  ``utility(action,
        y)`` gets an array of targets.  See :class:`sharpgp.decisions.Decisions`.

        Examples
        --------
        >>> rng = np.random.default_rng(0)
        >>> X = rng.uniform(0, 3, (120, 1))
        >>> sold = 20 + 10 * X[:, 0] + rng.normal(size=120)
        >>> model = SharpGPRegressor(base="rbf", calibration="exact", random_state=0).fit(X, sold)
        >>> found = model.decide(
        ...     X[:2], range(60), lambda order, y: 5 * np.minimum(order, y) - 2 * order
        ... )
        >>> len(found), bool((found.cost_of_safety >= 0).all())
        (2, True)
        """
        from sharpgp.decisions import decide

        self._check_one_output()
        ends = np.asarray(self.predict_interval(X, coverage, confidence=confidence))
        rows = self.rows(X)

        def quantiles(some: slice, levels: np.ndarray) -> np.ndarray:
            with warnings.catch_warnings():  # a mean may use the tail
                warnings.simplefilter("ignore", CalibrationWarning)
                law = self.calibrated_.predict_dist(rows[some])
                return np.asarray(law.numpy().quantile(levels))

        return decide(ends, quantiles, actions, utility)

    def select(
        self,
        X: ArrayLike,
        *,
        above: float | None = None,
        below: float | None = None,
        fdr: float = 0.1,
        sample_weight: ArrayLike | None = None,
    ) -> Selection:
        """Rows whose target is above, below or between limits, at most ``fdr`` wrong on average.

        See :func:`sharpgp.selection.select`.
        """
        from sharpgp.selection import select

        settings: dict[str, Any] = {"above": above, "below": below, "fdr": fdr}
        settings["sample_weight"] = plain(sample_weight)
        self._check_one_output()
        return self.answer(X, lambda model, X: select(model, X, **settings))

    def population_mean(
        self,
        X: ArrayLike,
        *,
        coverage: float = 0.95,
        total: bool = False,
        above: float | None = None,
    ) -> PopulationMean:
        """Mean of the target over unlabelled rows; their total, or the share above a limit.

        For labelled rows that are like a random sample of these.  See
        :func:`sharpgp.population.population_mean`.
        """
        from sharpgp.population import population_mean

        settings: dict[str, Any] = {"coverage": coverage, "total": total, "above": above}
        settings["encoding"] = getattr(self, "encoding_", None)
        self._check_one_output()
        return self.answer(X, lambda model, X: population_mean(model, X, **settings))

    def explain(self, X: ArrayLike, coverage: float = 0.95) -> Explanation:
        """What each column adds to mean and width of each row: parts (n, d) that sum to them.

        See :func:`sharpgp.explanations.explain`; ``explain(X).plot(row)`` draws a row.
        """
        from sharpgp.explanations import explain

        self._check_one_output()
        with warnings.catch_warnings():
            # Mixed rows may lie far from all data; here that is expected.
            warnings.simplefilter("ignore", CalibrationWarning)
            return explain(self, X, as_coverage(coverage)[0][0])

    def explain_width(self, X: ArrayLike, coverage: float = 0.95) -> Parts:
        """What each column adds to the width of each interval; see :meth:`explain`."""
        return self.explain(X, coverage).width

    def summary(self) -> Summary:
        """Rows and columns used and dropped, pool, lengthscales by column, held-out metrics.

        See :class:`sharpgp.summary.Summary`.
        """
        from sharpgp.summary import summarise

        self._check_one_output()
        return summarise(self)

    def plot(
        self,
        X: ArrayLike,
        y: ArrayLike,
        kind: PlotKind = "auto",
        *,
        ax: Axes | None = None,
        **settings: Any,
    ) -> Axes | Figure:
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

    @property
    def base_(self) -> BaseTable:
        """What was chosen: name, weight and mean held-out CRPS of each model.

        Examples
        --------
        >>> rng = np.random.default_rng(0)
        >>> X = rng.uniform(-3, 3, (60, 1))
        >>> y = np.sin(X[:, 0]) + 0.1 * rng.normal(size=60)
        >>> model = SharpGPRegressor(base=["rbf", "matern12"], random_state=0).fit(X, y)
        >>> [member.name for member in model.base_]
        ['rbf', 'matern12']
        """
        from sharpgp.models.pool import BaseTable

        self._check_one_output()
        return BaseTable(self.members_)

    @property
    def training_(self) -> TrainingResult | None:
        """How the training of ``posterior_`` went."""
        self._check_one_output()
        gp = self.calibrated_.gp
        return None if gp is None else gp.training

    @property
    def inducing_(self) -> int | None:
        """Number of inducing inputs of a sparse GP; None for any other."""
        self._check_one_output()
        gp = self.calibrated_.gp
        return None if gp is None else gp.n_inducing

    def save(self, path: str | os.PathLike[str]) -> None:
        """Save the fitted model in one file, without pickle; see :func:`sharpgp.persistence.save`.

        Examples
        --------
        >>> import os, tempfile
        >>> X = np.linspace(0, 6, 40)[:, None]
        >>> model = SharpGPRegressor(calibration="vanilla").fit(X, np.sin(X[:, 0]))
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     model.save(os.path.join(folder, "model.sgp"))
        ...     again = SharpGPRegressor.load(os.path.join(folder, "model.sgp"))
        >>> bool((again.predict_interval(X) == model.predict_interval(X)).all())
        True
        """
        from sharpgp import persistence

        check_is_fitted(self)
        persistence.save(self, path)

    def compact(self) -> SharpGPRegressor:
        """A model to deploy: the same answers, a smaller file, and a quicker first answer.

        What only updates, reports and further fits need is gone: rows that calibrate, the fit that
        refits started from, and the rows of trees.  GPs keep their inputs, which predictions need.
        What asks for more says so in one line.

        Examples
        --------
        >>> X = np.linspace(0, 6, 40)[:, None]
        >>> model = SharpGPRegressor(base="rbf", random_state=0).fit(X, np.sin(X[:, 0]))
        >>> bool((model.compact().predict_interval(X) == model.predict_interval(X)).all())
        True
        """
        check_is_fitted(self)
        other = copy.copy(self)
        if hasattr(self, "outputs_"):
            other.outputs_ = [one.compact() for one in self.outputs_]
            return other
        other.calibrated_ = self.calibrated_.compact()
        if other.calibrated_.gp is not None:
            other.posterior_ = other.calibrated_.gp
        return other

    @classmethod
    def load(
        cls,
        path: str | os.PathLike[str],
        *,
        device: str | torch.device = "auto",
        trusted: Sequence[str] = (),
    ) -> SharpGPRegressor:
        """Load a saved model; see :func:`sharpgp.persistence.load`."""
        from sharpgp import persistence

        model = persistence.load(path, device=device, trusted=trusted)
        if not isinstance(model, cls):
            raise SavedModelError(
                f"cannot load {path}: expected a {cls.__name__}, found {type(model).__name__}; "
                "use sharpgp.persistence.load"
            )
        return model

    def set_output(self, *, predict: Literal["default", "input"] | None = None) -> SharpGPRegressor:
        """Whether means, intervals and quantiles are arrays or frames of the kind of ``X``.

        Parameters
        ----------
        predict : {"default", "input"} or None
            ``"input"``: rows in a data frame (pandas, polars, Arrow) are answered in one, with
            columns as ``sharpgp predict`` names them, and pandas' index.  None: as it was.

        Examples
        --------
        >>> import pandas as pd
        >>> X = pd.DataFrame({"x": np.linspace(0, 6, 40)})
        >>> model = SharpGPRegressor(base="rbf", calibration="vanilla").fit(X, np.sin(X["x"]))
        >>> list(model.set_output(predict="input").predict_interval(X, 0.9))
        ['lower_90', 'upper_90']
        """
        from sharpgp._validation import check_choice

        if predict is not None:
            check_choice(predict, "predict", ("default", "input"))
            self._sklearn_output_config = {"predict": predict}  # clones have it, too
        return self

    def _as_asked(self, X: Any, answer: np.ndarray, what: str, asked: Numbers = ()) -> Any:
        if getattr(self, "_sklearn_output_config", {}).get("predict") != "input":
            return answer
        from sharpgp.data.frames import as_columns, has_kind, like

        return like(X, as_columns(answer, what, asked)) if has_kind(X) else answer

    def _check_one_output(self) -> None:
        """Raise unless this is fitted, and has one output."""
        check_is_fitted(self)
        if hasattr(self, "outputs_"):
            n = len(self.outputs_)
            raise SeveralOutputsError(
                f"expected a model of one output, found {n}; use one of outputs_"
            )

    def rows(
        self,
        X: ArrayLike | Rows,
        *,
        noise: ArrayLike | None = None,
        groups: ArrayLike | None = None,
    ) -> Rows:
        """Rows as the models take them: checked, encoded as in the fit, with all that is known.

        Everything that a fitted estimator is asked goes through here.

        Parameters
        ----------
        X : array of shape (n, d), data frame, or rows that came from here
        noise, groups
            As in :meth:`predict_interval`.

        Examples
        --------
        >>> X = np.linspace(0, 6, 40)[:, None]
        >>> model = SharpGPRegressor(base="rbf", calibration="vanilla")
        >>> model.fit(X, np.sin(X[:, 0]), noise=0.01).rows(X[:3])
        <Rows: 3 of 1 features, with noise>
        """
        from sharpgp.data.noise import noise_to_predict
        from sharpgp.data.rows import group_of_each
        from sharpgp.rows import Rows

        self._check_one_output()
        if isinstance(X, Rows):
            return X
        features = as_float(read_features(self, X), "X", self.calibrated_.device)
        variances = noise_to_predict(noise, getattr(self, "noise_", None), len(features))
        own = None if variances is None else as_float(variances, "noise", features.device)
        unit = None if groups is None else group_of_each(self, groups, len(features))
        return Rows(features, own, unit=unit)

    def answer(
        self,
        X: Any,
        ask: Callable[[Calibrated, Any], T],
        noise: ArrayLike | None = None,
        groups: ArrayLike | None = None,
    ) -> T:
        """``ask(predictor, rows)``; when GPU memory runs out, in smaller blocks, then on the CPU.

        Several outputs are asked one by one, see :func:`sharpgp.outputs.stack_answers`.

        Examples
        --------
        >>> X = np.linspace(0, 6, 40)[:, None]
        >>> model = SharpGPRegressor(base="rbf", calibration="vanilla").fit(X, np.sin(X[:, 0]))
        >>> model.answer(X[:3], lambda predictor, rows: predictor.location(rows).shape)
        torch.Size([3])
        """
        from sharpgp.calibration.cautions import features_named
        from sharpgp.gp.compute import moved_to, within_memory
        from sharpgp.outputs import stack_answers

        if hasattr(self, "outputs_"):
            table = encode_rows(self, X)
            rows = X if table is None else table
            return stack_answers([one.answer(rows, ask, noise, groups) for one in self.outputs_])
        asked = self.rows(X, noise=noise, groups=groups)
        known = self.calibrated_ if groups is None else self.calibrated_.by_group
        assert known is not None  # the groups are known
        predictor: Calibrated = known

        def work(device: torch.device) -> T:
            if device == asked.device:
                return ask(predictor, asked)
            return ask(moved_to(predictor, device), asked.to(device))

        encoding = getattr(self, "encoding_", None)
        with features_named(feature_names(self), encoding.dates if encoding else ()):
            return within_memory(asked.device, work)

    def _restored(self) -> None:
        from sharpgp._fit import check_restored

        check_restored(self)

    def _repr_mimebundle_(self, **settings: Any) -> dict[str, str]:
        """The diagram of scikit-learn, and what a fitted model knows and promises."""
        found: dict[str, str] = super()._repr_mimebundle_(**settings)
        if "text/html" in found and hasattr(self, "calibration_"):
            from sharpgp.summary import display

            found["text/html"] += display(self)
        return found

    def __sklearn_tags__(self) -> Tags:
        tags = super().__sklearn_tags__()
        tags.input_tags.allow_nan = True
        tags.target_tags.multi_output = True
        return tags
