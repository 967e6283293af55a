"""The scikit-learn estimator: the three lines that most users need."""

import logging
import os
from collections.abc import Callable
from typing import Any, TypeVar

import numpy as np
import torch
from sklearn.base import BaseEstimator, RegressorMixin
from sklearn.utils.validation import check_is_fitted
from torch import Tensor

from sharpgp import _progress as progress
from sharpgp import persistence
from sharpgp._inputs import (
    check_training_data,
    columns_of,
    encoded,
    feature_names,
    features,
    plain,
    seed_of,
)
from sharpgp._labelled import both_or_none, forget, labelled
from sharpgp._rows import Rows, each_once, held_out_rows, with_earlier
from sharpgp._stored import ABSENT, Maybe, Several, agree, stored
from sharpgp._validation import as_features, as_numpy, as_target
from sharpgp.bounds import bounds_for
from sharpgp.calibration.calibrated import Calibrated
from sharpgp.calibration.recalibrator import (
    PosteriorMethod,
    Recalibrator,
    chosen_recalibrator,
)
from sharpgp.distribution import PredictiveDistribution
from sharpgp.exceptions import SavedModelError
from sharpgp.frames.encoding import TableEncoding
from sharpgp.gp.compute import choose_device, moved_to, within_memory
from sharpgp.gp.posterior import Posterior, TrainingResult
from sharpgp.models.bases import Bases
from sharpgp.models.pool import Base, BaseTable, Member, members_of, posterior_of
from sharpgp.noise import beside_noise
from sharpgp.outputs import (
    JointScores,
    fit_outputs,
    is_several,
    joint_of_groups,
    of_one_output,
    predict_band,
    predict_region,
    reports,
    stacked,
)

logger = logging.getLogger("sharpgp")

T = TypeVar("T")


@stored(
    "SharpGPRegressor",
    base=object,
    calibration=str | Recalibrator,
    approximation=object,
    cal_size=int | float,
    effort=str,
    y_bounds=object,
    device=object,
    random_state=object,
    verbose=int | float,
    calibrated_=Maybe(Calibrated),
    calibration_=str,
    members_=Maybe(Several(Member)),
    posterior_=Maybe(Posterior),
    outputs_=Maybe(Several(object)),
    joint_=Maybe(JointScores),
    group_scores_=Maybe(JointScores),
    n_features_in_=int,
    feature_names_in_=Maybe(np.ndarray),
    grouped_=Maybe(bool),
    noise_=Maybe(float),
    encoding_=Maybe(TableEncoding),
    # scikit-learn's routing and output settings belong to the running program.
    transient={"_metadata_request": ABSENT, "_sklearn_output_config": ABSENT},
)
class SharpGPRegressor(RegressorMixin, BaseEstimator):
    r"""Regression with calibrated, sharp predictive quantiles.

    A model, or a pool of several, gives a location and a spread; quantiles are
    ``location(x) + beta(delta) spread(x)``, with ``beta`` from points that it has not seen.

    Parameters
    ----------
    base : str, gpytorch kernel, scikit-learn regressor, or a list of these
        What predicts.  ``"auto"``: several models, weighted by how well they predict points that
        they have not seen, see :func:`sharpgp.models.bases.pool_for`; methods that take one GP
        (``"paper"`` and the baselines) get ``"rbf"``.  A kernel's name (``"rbf"``,
        ``"matern12"``, ``"matern32"``, ``"matern52"``, ``"additive"``) or a gpytorch kernel: that
        GP alone.  A regressor or pipeline: it gives the location, and a GP of its out-of-fold
        residuals the spread.  A list is pooled; it may name ``"extra_trees"``,
        ``"random_forest"`` and ``"boosted_trees"`` beside at least one of the others.
    calibration : str or Recalibrator
        ``"auto"``, a method's name (``"cv"``, ``"exact"``, ``"paper"``, ``"vanilla"``,
        ``"kuleshov18"``, ...) or an instance such as ``Sharp(family="scaled")``.  ``"auto"`` is
        ``"exact"`` where ``fit`` is given calibration data, weights or more than 2,000 rows, and
        ``"cv"`` otherwise; ``calibration_`` tells which.
    approximation : {"auto", "exact", "sparse", "neighbours"}, Sparse or Neighbours
        Of every GP.  ``"auto"``: exact up to 10,000 training rows (on a CPU 3,000 for methods that
        search with it, such as ``"paper"``); beyond that ``"neighbours"`` of up to 10 features, and
        sparse otherwise.  ``"sparse"`` has 300 inducing inputs, or ``Sparse(m=...)``;
        ``"neighbours"`` predicts every point from the 64 training points nearest to it in units of
        the lengthscales, or ``Neighbours(m=...)``.
    cal_size : float or int
        Fraction (or number) of the rows held out for calibration, unless ``fit`` is given
        calibration data or the method needs none.  A fraction gives at most 10,000 rows, and a
        number ``C`` for which ``C + 1`` is a multiple of 20, if one is within 5 %, so that 95 %
        intervals end at a whole rank.
    effort : {"low", "auto", "high"}
        How much ``base="auto"`` pools: one Matérn GP; five models, three beyond 1,000 rows; or
        seven, four beyond 10,000.
    y_bounds : (low, high), optional
        What the target cannot be below or above, None where there is no bound: counts have
        ``(0, None)``, shares ``(0, 1)``.  All answers stay within, and what would lie beyond is
        probability of the bound itself, see :mod:`sharpgp.bounds`.  Of several outputs, one pair
        for all, or a list with one for each.
    device : {"auto", "cpu", "cuda"} or torch device
        Where to compute; ``"auto"`` is a GPU from 2,000 training rows on, if there is one, and else
        the CPU.  Out of GPU memory, work goes on in smaller blocks, and then on the CPU with a
        warning.
    random_state : int, RandomState instance or None
        Seed of the holdout split and of methods that draw.
    verbose : int
        1 shows on standard error, in a terminal or notebook, what ``fit`` is doing and how long it
        may still take, and logs it on the logger ``sharpgp``.

    Attributes
    ----------
    calibration_ : str
        Name of the method that was used.
    calibrated_ : Calibrated
        The torch-level predictor.
    base_ : Table
        What was chosen: name, weight and mean held-out CRPS of each model.
    posterior_ : Posterior
        The trained GP; of a pool, that with the largest weight.
    outputs_ : list of SharpGPRegressor
        The model of each output, where ``y`` has several columns; it has what is above.
    inducing_ : int or None
        Number of inducing inputs of a sparse GP; None for any other.
    training_ : TrainingResult
        How the training of ``posterior_`` went.
    grouped_ : bool
        Whether ``fit`` was given groups.
    encoding_ : TableEncoding
        How columns became features, where ``X`` is a data frame or has gaps; prints as a table.
    noise_ : float
        Where ``fit`` was given noise: the variance that predictions suppose unless told otherwise,
        the median of those given.
    n_features_in_, feature_names_in_
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

    def __init__(
        self,
        *,
        base: Any = "auto",
        calibration: str | Recalibrator = "auto",
        approximation: Any = "auto",
        cal_size: float | int = 0.25,
        effort: str = "auto",
        y_bounds: Any = None,
        device: Any = "auto",
        random_state: Any = None,
        verbose: int = 0,
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

    def fit(
        self,
        X: Any,
        y: Any,
        X_cal: Any = None,
        y_cal: Any = None,
        *,
        groups: Any = None,
        groups_cal: Any = None,
        noise: Any = None,
        noise_cal: Any = None,
        sample_weight_cal: Any = None,
    ) -> "SharpGPRegressor":
        """Train the GP and calibrate it.

        Rows that are copies of others are used once, with a warning; rows with equal ``X`` are
        never on two sides of a split.

        Parameters
        ----------
        X : array of shape (n, d), or data frame
            Of a data frame (pandas, polars, Arrow) columns may hold numbers, truth values,
            categories, texts and dates, with gaps; see :class:`sharpgp.frames.TableEncoding`.
        y : array of shape (n,)
            Rows without a target are left out, with a warning.  Of shape (n, p), with gaps: a
            model for each output, see ``outputs_``; answers then have the outputs last.
        X_cal, y_cal : arrays, optional
            Your own calibration data; without them ``cal_size`` of the rows are held out.
        groups : array of shape (n,), optional
            Which rows belong together, such as those of one patient: strings, numbers or whatever
            can be compared.  They are never on two sides of a split, so that answers are for new
            groups.
        groups_cal : array, optional
            The same for the rows of ``X_cal``.
        noise : float, array of shape (n,) or "replicates", optional
            Variances of the observations' noise, where they are known; ``"replicates"`` estimates
            them from rows with equal ``X``.  Rows with equal ``X`` are then merged into their
            weighted mean.  See :mod:`sharpgp.noise`.
        noise_cal : float or array, optional
            The same for the rows of ``X_cal``.
        sample_weight_cal : array or callable, optional
            For a covariate shift, weights of the calibration points: how much more frequent their
            inputs are among the points to predict.  One per row of ``X_cal``, or, without it, of
            ``X`` (only those of rows that calibrate are used); or a function of ``X`` (n, d) that
            gives them, which then serves the points to predict, too.
        """
        both_or_none(X_cal, y_cal)
        forget(self)
        more = {
            "groups": groups,
            "groups_cal": groups_cal,
            "noise": noise,
            "noise_cal": noise_cal,
            "sample_weight_cal": sample_weight_cal,
        }
        if is_several(y):
            return fit_outputs(self, X, y, X_cal, y_cal, more)
        return self._fit(*labelled(self, X, y, X_cal, y_cal, **more))

    def _fit(self, train: Rows, cal: Rows | None, weights: Any) -> "SharpGPRegressor":
        """``fit`` on checked data; ``weights`` are an array, a callable or None."""
        guarantee = cal is not None or weights is not None
        seed = seed_of(self.random_state)
        recalibrator = chosen_recalibrator(self.calibration, len(train), seed, guarantee=guarantee)
        grouped = train.groups is not None or (cal is not None and cal.groups is not None)
        bounds = bounds_for(self.y_bounds, train.y, *([] if cal is None else [cal.y]))
        if cal is None and recalibrator.needs_calibration:
            train, cal, weights = held_out_rows(train, weights, self.cal_size, seed)
        X, y, groups = train.X, train.y, train.groups
        encoding: TableEncoding | None = getattr(self, "encoding_", None)
        known_noise = hasattr(self, "noise_")
        check_training_data(X[:, :-1] if known_noise else X, y, encoding)
        held_out = (None, None, None) if cal is None else (cal.X, cal.y, cal.groups)

        bases = Bases(
            self.base,
            self.approximation,
            self.effort,
            seed,
            feature_names(self, known_noise),
            encoding.ties if encoding else None,
            known_noise,
        )
        takes_one = isinstance(recalibrator, PosteriorMethod)

        def work(device: torch.device) -> Calibrated:
            labels = None if groups is None else torch.from_numpy(groups).to(device)
            data = as_features(X, device=device), as_target(y, device=device), labels
            base: Base = bases.one_gp(*data) if takes_one else bases.learned(*data)
            gp = posterior_of(base)
            sizes = {"inducing inputs": gp.n_inducing, "neighbours": gp.n_neighbours}
            kind = "".join(f", {m} {name}" for name, m in sizes.items() if m is not None)
            self._log(f"learned from {len(y)} rows ({device}{kind}); now {recalibrator!r}")
            progress.begin("calibrating")
            X_cal, y_cal, groups_cal = held_out
            settings = {"sample_weight": weights, "groups": groups, "groups_cal": groups_cal}
            method = recalibrator.for_columns(columns_of(self))
            return method.fit(base, X_cal, y_cal, **settings).within(bounds)

        with progress.shown(bool(self.verbose)):
            calibrated = within_memory(choose_device(self.device, len(y)), work)
        name = bases.model_names(*X.shape, one_gp=takes_one)[0]
        members = members_of(getattr(calibrated, "model", None), name)
        groups = groups if cal is None else cal.groups
        return self._keep(calibrated, recalibrator, members, groups, grouped=grouped)

    def _keep(
        self,
        calibrated: Calibrated,
        recalibrator: Recalibrator,
        members: list[Member],
        groups: np.ndarray | None,
        *,
        grouped: bool,
    ) -> "SharpGPRegressor":
        """Take what a fit has found; ``groups`` are those of the rows that calibrate."""
        self.calibrated_ = calibrated
        self.calibration_ = recalibrator.name or type(recalibrator).__name__
        self.members_ = members
        self.posterior_ = calibrated.posterior
        self.grouped_ = grouped
        joint = joint_of_groups(calibrated, groups)
        if joint is not None:
            self.group_scores_ = joint
        return self

    def update(
        self,
        X: Any,
        y: Any,
        *,
        noise: Any = None,
        sample_weight: Any = None,
        refit: bool = False,
    ) -> "SharpGPRegressor":
        """Learn from further labelled points, without starting over.

        Trained hyperparameters stay.  New points join the calibration data, which keeps the
        guarantee of ``"exact"`` for exchangeable data; where every point trains and calibrates
        (``"cv"``), they are scored by the present model and then join its training data, too.
        Where ``fit`` was given groups, each of them counts as a group of its own.

        Parameters
        ----------
        X : array of shape (n, d)
        y : array of shape (n,)
            Points that the model has not seen.
        noise : float or array of shape (n,), optional
            Variances of their noise, where ``fit`` was given noise.
        sample_weight : array of shape (n,), optional
            Their weights, where ``fit`` was given weights as an array.
        refit : bool
            Start over after all: ``fit`` on all points so far, with a new split.  Not where
            ``fit`` was given groups, which a model does not keep.

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
        X = self._checked(X, noise)
        y = as_target(plain(y), n_rows=X.shape[0], device=X.device)
        if not refit:
            self.calibrated_ = self.calibrated_.updated(X, y, sample_weight=plain(sample_weight))
            self.posterior_ = self.calibrated_.posterior
            return self
        grouped = getattr(self, "grouped_", False)
        everything, weights = with_earlier(self.calibrated_, X, y, grouped=grouped)
        return self._fit(*each_once(everything, None, weights))

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
        of_one_output(self)
        return BaseTable(self.members_)

    @property
    def training_(self) -> TrainingResult | None:
        """How the training of ``posterior_`` went."""
        of_one_output(self)
        return self.posterior_.training

    @property
    def inducing_(self) -> int | None:
        """Number of inducing inputs of a sparse GP; None for any other."""
        of_one_output(self)
        return self.posterior_.n_inducing

    def predict(self, X: Any, return_std: bool = False, *, noise: Any = None) -> Any:
        """Predictive mean (n,), and with ``return_std`` the predictive standard deviation (n,)."""
        mean = self._answer(X, lambda model, X: as_numpy(model.predict_mean(X)), noise)
        if not return_std:
            return mean
        return mean, self._answer(X, lambda model, X: as_numpy(model.predict_std(X)), noise)

    def predict_interval(
        self,
        X: Any,
        coverage: Any = 0.95,
        *,
        symmetric: bool | None = None,
        noise: Any = None,
        sample_weight: Any = None,
    ) -> np.ndarray:
        """Prediction intervals.

        Parameters
        ----------
        X : array of shape (n, d)
        coverage : float or sequence of float in (0, 1)
        symmetric : bool, optional
            False: centred quantiles; True: the band ``mu -+ radius`` from absolute z-scores.
            None: as chosen at fit, for all coverages: with ``"exact"``, ``"cv"`` and ``"loo"`` the
            better of the two for scores like those of the training points, otherwise the band
            below 199 calibration points.  Where two tails are too much for so few points it is the
            band, too.
        noise : float or array of shape (n,), optional
            Variances of the noise of the observations to come, where ``fit`` was given noise;
            ``noise_`` unless given.  0: for what would be observed without that noise.
        sample_weight : array of shape (n,), optional
            Weights of these points, where ``fit`` was given weights; without them the function
            given to ``fit`` is asked, or the largest weight of a calibration point is used.

        Returns
        -------
        array of shape (n, 2), or (n, 2, k) for ``k`` coverages
        """
        settings = {"symmetric": symmetric, "sample_weight": plain(sample_weight)}
        return self._answer(
            X, lambda model, X: as_numpy(model.predict_interval(X, coverage, **settings)), noise
        )

    def predict_region(self, X: Any, coverage: Any = 0.95, *, noise: Any = None) -> np.ndarray:
        """Boxes (n, 2, p) that hold all ``p`` outputs at once; (n, 2, k, p) for ``k`` coverages.

        With ``"exact"`` the coverage holds in finite samples; see :mod:`sharpgp.outputs`.
        """
        check_is_fitted(self)
        return predict_region(self, X, coverage, noise)

    def predict_band(self, X: Any, coverage: float = 0.95, *, noise: Any = None) -> np.ndarray:
        """A band (n, 2) that holds all rows of a new group at once, where ``fit`` had groups.

        With ``"exact"`` and groups that are exchangeable the coverage holds in finite samples.
        """
        check_is_fitted(self)
        return predict_band(self, X, coverage, noise)

    def predict_quantiles(self, X: Any, levels: Any, *, noise: Any = None) -> np.ndarray:
        """Quantiles, (n,) for a single level and (n, k) for several; they never cross."""
        return self._answer(X, lambda model, X: as_numpy(model.predict_quantiles(X, levels)), noise)

    def predict_dist(self, X: Any, *, noise: Any = None) -> PredictiveDistribution:
        """Full predictive distribution at ``X``, answering in NumPy arrays."""
        return self._answer(X, lambda model, X: model.predict_dist(X).numpy(), noise)

    def score(self, X: Any, y: Any, sample_weight: Any = None) -> float:
        """Coefficient of determination of the predictive mean, as of every regressor."""
        # Not every version of scikit-learn takes torch tensors, and none those of a GPU.
        return float(super().score(X, plain(y), plain(sample_weight)))

    def calibration_report(self, X: Any, y: Any, *, noise: Any = None) -> Any:
        """Every metric on test data, by name, with the ECE floor; prints as a table.

        Of several outputs, a list of such tables.

        Examples
        --------
        >>> rng = np.random.default_rng(0)
        >>> X = rng.uniform(-3, 3, (200, 1))
        >>> y = np.sin(X[:, 0]) + 0.1 * rng.normal(size=200)
        >>> model = SharpGPRegressor(calibration="kuleshov18", random_state=0).fit(X[:150], y[:150])
        >>> report = model.calibration_report(X[150:], y[150:])
        >>> sorted(report)[:3]
        ['coverage_95', 'crps', 'ece']
        """
        if hasattr(self, "outputs_"):
            return reports(self, X, y, noise)
        return self._answer(X, lambda model, X: model.calibration_report(X, plain(y)), noise)

    def plot(self, X: Any, y: Any, kind: str = "auto", *, ax: Any = None, **settings: Any) -> Any:
        """Draw the model on data: ``"intervals"``, ``"observed"``, ``"reliability"``, ...

        See :func:`sharpgp.plots.plot`, which has all kinds and settings.

        Examples
        --------
        >>> from matplotlib.figure import Figure
        >>> X = np.linspace(0, 6, 40)[:, None]
        >>> model = SharpGPRegressor(calibration="vanilla").fit(X, np.sin(X[:, 0]))
        >>> model.plot(X, np.sin(X[:, 0]), ax=Figure().subplots()).get_xlabel()
        'x0'
        """
        from sharpgp import plots

        return plots.plot(self, X, y, kind, ax=ax, **settings)

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
        check_is_fitted(self)
        persistence.save(self, path)

    @classmethod
    def load(cls, path: str | os.PathLike[str], *, device: Any = "auto") -> "SharpGPRegressor":
        """Load a saved model; see :func:`sharpgp.persistence.load`."""
        model = persistence.load(path, device=device)
        if not isinstance(model, cls):
            raise SavedModelError(
                f"cannot load {path}: expected a {cls.__name__}, found {type(model).__name__}; "
                "use sharpgp.persistence.load"
            )
        return model

    def _restored(self) -> None:
        if hasattr(self, "outputs_"):
            agree("outputs", {type(one) for one in self.outputs_}, {SharpGPRegressor})
            return
        agree("predictor", hasattr(self, "posterior_") and hasattr(self, "members_"), True)
        encoding = getattr(self, "encoding_", None)
        columns = self.n_features_in_ if encoding is None else len(encoding.features)
        agree("features", columns + hasattr(self, "noise_"), self.posterior_.n_features)
        agree("posterior", self.posterior_ is self.calibrated_.posterior, True)
        names = getattr(self, "feature_names_in_", None)
        agree(
            "feature names",
            self.n_features_in_ if names is None else len(names),
            self.n_features_in_,
        )

    def _checked(self, X: Any, noise: Any = None) -> Tensor:
        of_one_output(self)
        array = beside_noise(features(self, X), noise, getattr(self, "noise_", None))
        return as_features(array, device=self.posterior_.device)

    def _answer(self, X: Any, ask: Callable[[Calibrated, Tensor], T], noise: Any = None) -> T:
        """``ask(predictor, X)``; out of GPU memory, in smaller blocks, and then on the CPU.

        Of several outputs, the answers for each of them, :func:`sharpgp.outputs.stacked`.
        """
        if hasattr(self, "outputs_"):
            rows = encoded(self, X)
            rows = X if rows is None else rows
            return stacked([one._answer(rows, ask, noise) for one in self.outputs_])
        X = self._checked(X, noise)

        def work(device: torch.device) -> T:
            if device == X.device:
                return ask(self.calibrated_, X)
            return ask(moved_to(self.calibrated_, device), X.to(device))

        return within_memory(X.device, work)

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.allow_nan = True
        tags.target_tags.multi_output = True
        return tags

    def _log(self, message: str) -> None:
        logger.log(logging.INFO if self.verbose else logging.DEBUG, message)
