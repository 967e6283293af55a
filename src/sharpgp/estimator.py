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
    Rows,
    check_training_data,
    each_once,
    group_numbers,
    holdout,
    plain,
    seed_of,
    validated,
)
from sharpgp._stored import ABSENT, Maybe, Several, agree, stored
from sharpgp._validation import as_features, as_numpy, as_target, as_weights
from sharpgp.calibration.calibrated import Calibrated
from sharpgp.calibration.recalibrator import PosteriorMethod, Recalibrator, make_recalibrator
from sharpgp.distribution import PredictiveDistribution
from sharpgp.exceptions import InvalidInputError, SavedModelError
from sharpgp.gp.compute import choose_device, moved_to, within_memory
from sharpgp.gp.posterior import Posterior, TrainingResult
from sharpgp.gp.sizes import MOST_CROSS_VALIDATED
from sharpgp.metrics import CalibrationReport
from sharpgp.models.bases import Bases
from sharpgp.models.pool import Base, BaseTable, Member, members_of, posterior_of

logger = logging.getLogger("sharpgp")

T = TypeVar("T")


@stored(
    "SharpGPRegressor",
    base=object,
    calibration=str | Recalibrator,
    approximation=object,
    cal_size=int | float,
    effort=str,
    device=object,
    random_state=object,
    verbose=int | float,
    calibrated_=Calibrated,
    calibration_=str,
    members_=Several(Member),
    posterior_=Posterior,
    n_features_in_=int,
    feature_names_in_=Maybe(np.ndarray),
    grouped_=Maybe(bool),
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
        residuals the spread.  A list is pooled; it may name ``"extra_trees"`` and
        ``"boosted_trees"`` beside at least one of the others.
    calibration : str or Recalibrator
        ``"auto"``, a method's name (``"cv"``, ``"exact"``, ``"paper"``, ``"vanilla"``,
        ``"kuleshov18"``, ...) or an instance such as ``Sharp(family="scaled")``.  ``"auto"`` is
        ``"exact"`` where ``fit`` is given calibration data, weights or more than 2,000 rows, and
        ``"cv"`` otherwise; ``calibration_`` tells which.
    approximation : {"auto", "exact", "sparse"} or Sparse
        Of every GP.  ``"auto"``: exact up to 3,000 training rows (on a GPU 10,000), beyond that
        sparse with 300 inducing inputs; ``Sparse(m=...)`` sets their number.
    cal_size : float or int
        Fraction (or number) of the rows held out for calibration, unless ``fit`` is given
        calibration data or the method needs none.  A fraction gives a number ``C`` for which
        ``C + 1`` is a multiple of 20, if one is within 5 %, so that 95 % intervals end at a whole
        rank.
    effort : {"low", "auto", "high"}
        How much ``base="auto"`` pools: one Matérn GP, five models, or seven.
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
    inducing_ : int or None
        Number of inducing inputs; None for an exact GP.
    training_ : TrainingResult
        How the training of ``posterior_`` went.
    grouped_ : bool
        Whether ``fit`` was given groups.
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
        device: Any = "auto",
        random_state: Any = None,
        verbose: int = 0,
    ) -> None:
        self.base = base
        self.calibration = calibration
        self.approximation = approximation
        self.cal_size = cal_size
        self.effort = effort
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
        sample_weight_cal: Any = None,
    ) -> "SharpGPRegressor":
        """Train the GP and calibrate it.

        Rows that are copies of others are used once, with a warning; rows with equal ``X`` are
        never on two sides of a split.

        Parameters
        ----------
        X : array of shape (n, d)
        y : array of shape (n,)
        X_cal, y_cal : arrays, optional
            Your own calibration data; without them ``cal_size`` of the rows are held out.
        groups : array of shape (n,), optional
            Which rows belong together, such as those of one patient: strings, numbers or whatever
            can be compared.  They are never on two sides of a split, so that answers are for new
            groups.
        groups_cal : array, optional
            The same for the rows of ``X_cal``.
        sample_weight_cal : array or callable, optional
            For a covariate shift, weights of the calibration points: how much more frequent their
            inputs are among the points to predict.  One per row of ``X_cal``, or, without it, of
            ``X`` (only those of rows that calibrate are used); or a function of ``X`` (n, d) that
            gives them, which then serves the points to predict, too.
        """
        if (X_cal is None) != (y_cal is None):
            given, missing = ("X_cal", "y_cal") if y_cal is None else ("y_cal", "X_cal")
            raise InvalidInputError(
                f"expected both X_cal and y_cal, found {given} only; give {missing} too"
            )
        X, y = validated(self, X, y, y_numeric=True, ensure_min_samples=2)
        y = as_numpy(as_target(y))
        cal, n_cal = None, 0
        if X_cal is not None:
            X_cal = validated(self, X_cal, reset=False)
            n_cal = len(X_cal)
            y_cal = as_numpy(as_target(plain(y_cal), n_rows=n_cal))
        elif groups_cal is not None:
            raise InvalidInputError("expected groups_cal with X_cal only, found it alone")
        of_train, of_cal = group_numbers(groups, len(y), groups_cal, n_cal)
        if X_cal is not None:
            cal = Rows(X_cal, y_cal, of_cal)
        weights = sample_weight_cal
        if not (weights is None or callable(weights)):
            weights = as_numpy(as_weights(plain(weights), n_rows=n_cal or len(y)))
        return self._fit(*each_once(Rows(X, y, of_train), cal, weights))

    def _fit(self, train: Rows, cal: Rows | None, weights: Any) -> "SharpGPRegressor":
        """``fit`` on checked data; ``weights`` are an array, a callable or None."""
        recalibrator = self._recalibrator(len(train), cal is not None or weights is not None)
        grouped = train.groups is not None or (cal is not None and cal.groups is not None)
        if cal is None and recalibrator.needs_calibration:
            train, cal, weights = self._holdout(train, weights)
        X, y, groups = train.X, train.y, train.groups
        check_training_data(X, y)
        held_out = (None, None, None) if cal is None else (cal.X, cal.y, cal.groups)

        bases = Bases(
            self.base,
            self.approximation,
            self.effort,
            seed_of(self.random_state),
            getattr(self, "feature_names_in_", None),
        )
        takes_one = isinstance(recalibrator, PosteriorMethod)

        def work(device: torch.device) -> Calibrated:
            labels = None if groups is None else torch.from_numpy(groups).to(device)
            data = as_features(X, device=device), as_target(y, device=device), labels
            base: Base = bases.one_gp(*data) if takes_one else bases.learned(*data)
            m = posterior_of(base).n_inducing
            kind = "" if m is None else f", {m} inducing inputs"
            self._log(f"learned from {len(y)} rows ({device}{kind}); now {recalibrator!r}")
            progress.begin("calibrating")
            X_cal, y_cal, groups_cal = held_out
            return recalibrator.fit(
                base,
                X_cal,
                y_cal,
                sample_weight=weights,
                groups=groups,
                groups_cal=groups_cal,
            )

        with progress.shown(bool(self.verbose)):
            self.calibrated_ = within_memory(choose_device(self.device, len(y)), work)
        self.calibration_ = recalibrator.name or type(recalibrator).__name__
        name = bases.model_names(*X.shape, one_gp=takes_one)[0]
        self.members_ = members_of(getattr(self.calibrated_, "model", None), name)
        self.posterior_ = self.calibrated_.posterior
        self.grouped_ = grouped
        return self

    def update(
        self, X: Any, y: Any, *, sample_weight: Any = None, refit: bool = False
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
        X = self._checked(X)
        y = as_target(plain(y), n_rows=X.shape[0], device=X.device)
        if not refit:
            self.calibrated_ = self.calibrated_.updated(X, y, sample_weight=plain(sample_weight))
            self.posterior_ = self.calibrated_.posterior
            return self
        if getattr(self, "grouped_", False):
            raise InvalidInputError(
                "refit: expected a model that was fitted without groups, found one with, which it "
                "does not keep; call fit with all points and their groups"
            )
        X_old, y_old = self.calibrated_.labelled_data()
        weights = getattr(self.calibrated_, "ratio", None)
        if weights is None and getattr(self.calibrated_, "weights", None) is not None:
            raise InvalidInputError(
                "refit: expected weights of all points, found those of calibration points only; "
                "call fit with all points and their weights"
            )
        everything = Rows(as_numpy(torch.cat([X_old, X])), as_numpy(torch.cat([y_old, y])))
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
        check_is_fitted(self)
        return BaseTable(self.members_)

    @property
    def training_(self) -> TrainingResult | None:
        """How the training of ``posterior_`` went."""
        check_is_fitted(self)
        return self.posterior_.training

    @property
    def inducing_(self) -> int | None:
        """Number of inducing inputs of the trained GP; None for an exact one."""
        check_is_fitted(self)
        return self.posterior_.n_inducing

    def predict(self, X: Any, return_std: bool = False) -> Any:
        """Predictive mean (n,), and with ``return_std`` the predictive standard deviation (n,)."""
        mean = self._answer(X, lambda model, X: as_numpy(model.predict_mean(X)))
        if not return_std:
            return mean
        return mean, self._answer(X, lambda model, X: as_numpy(model.predict_std(X)))

    def predict_interval(
        self,
        X: Any,
        coverage: Any = 0.95,
        *,
        symmetric: bool | None = None,
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
        sample_weight : array of shape (n,), optional
            Weights of these points, where ``fit`` was given weights; without them the function
            given to ``fit`` is asked, or the largest weight of a calibration point is used.

        Returns
        -------
        array of shape (n, 2), or (n, 2, k) for ``k`` coverages
        """
        settings = {"symmetric": symmetric, "sample_weight": plain(sample_weight)}
        return self._answer(
            X, lambda model, X: as_numpy(model.predict_interval(X, coverage, **settings))
        )

    def predict_quantiles(self, X: Any, levels: Any) -> np.ndarray:
        """Quantiles, (n,) for a single level and (n, k) for several; they never cross."""
        return self._answer(X, lambda model, X: as_numpy(model.predict_quantiles(X, levels)))

    def predict_dist(self, X: Any) -> PredictiveDistribution:
        """Full predictive distribution at ``X``, answering in NumPy arrays."""
        return self._answer(X, lambda model, X: model.predict_dist(X).numpy())

    def score(self, X: Any, y: Any, sample_weight: Any = None) -> float:
        """Coefficient of determination of the predictive mean, as of every regressor."""
        # Not every version of scikit-learn takes torch tensors, and none those of a GPU.
        return float(super().score(X, plain(y), plain(sample_weight)))

    def calibration_report(self, X: Any, y: Any) -> CalibrationReport:
        """Every metric on test data, by name, with the ECE floor; prints as a table.

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
        return self._answer(X, lambda model, X: model.calibration_report(X, plain(y)))

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
        agree("features", self.n_features_in_, self.posterior_.n_features)
        agree("posterior", self.posterior_ is self.calibrated_.posterior, True)
        names = getattr(self, "feature_names_in_", None)
        agree(
            "feature names",
            self.n_features_in_ if names is None else len(names),
            self.n_features_in_,
        )

    def _recalibrator(self, n_rows: int, guarantee: bool) -> Recalibrator:
        if isinstance(self.calibration, Recalibrator):
            return self.calibration
        if not isinstance(self.calibration, str):
            raise InvalidInputError(
                "calibration: expected a method's name or a Recalibrator, "
                f"found {type(self.calibration).__name__}"
            )
        name = self.calibration
        if name == "auto":
            name = "exact" if guarantee or n_rows > MOST_CROSS_VALIDATED else "cv"
        return make_recalibrator(name, random_state=seed_of(self.random_state))

    def _holdout(self, rows: Rows, weights: Any) -> tuple[Rows, Rows, Any]:
        """Rows to train on and to calibrate with, and the weights of the latter."""
        train, cal = holdout(rows.labels(), self.cal_size, seed_of(self.random_state))
        if isinstance(weights, np.ndarray):
            weights = weights[cal]
        return rows[train], rows[cal], weights

    def _checked(self, X: Any) -> Tensor:
        check_is_fitted(self)
        X = validated(self, X, reset=False)
        return as_features(X, device=self.posterior_.device)

    def _answer(self, X: Any, ask: Callable[[Calibrated, Tensor], T]) -> T:
        """``ask(predictor, X)``; out of GPU memory, in smaller blocks, and then on the CPU."""
        X = self._checked(X)

        def work(device: torch.device) -> T:
            if device == X.device:
                return ask(self.calibrated_, X)
            return ask(moved_to(self.calibrated_, device), X.to(device))

        return within_memory(X.device, work)

    def _log(self, message: str) -> None:
        logger.log(logging.INFO if self.verbose else logging.DEBUG, message)
