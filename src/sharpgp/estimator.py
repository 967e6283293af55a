"""The scikit-learn estimator: the three lines that most users need.

torch, which takes seconds to load, is imported where a model is fitted or loaded.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
from numpy.typing import ArrayLike
from sklearn.utils.validation import check_is_fitted

from sharpgp._answers import Answers
from sharpgp._stored import ABSENT, Maybe, NumPyArray, Of, Several, stored
from sharpgp.exceptions import SavedModelError
from sharpgp.frames.encoding import TableEncoding

if TYPE_CHECKING:
    from sharpgp.calibration.recalibrator import Recalibrator
    from sharpgp.gp.posterior import TrainingResult
    from sharpgp.models.pool import BaseTable

#: What ``base=`` and ``calibration=`` take by name, for editors to complete.
BaseName = Literal[
    "auto", "rbf", "matern12", "matern32", "matern52", "additive",
]  # fmt: skip
CalibrationName = Literal[
    "auto", "cv", "loo", "cv+", "exact", "paper", "paper_exact", "kuleshov18", "vovk20", "marx22",
    "kuleshov22", "fully_bayesian", "capone22", "vanilla",
]  # fmt: skip


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
    calibrated_=Maybe(Of("sharpgp.calibration.calibrated.Calibrated")),
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
class SharpGPRegressor(Answers):
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
        ``"exact"`` where ``fit`` is given calibration data, weights or more than 5,000 rows,
        and ``"cv"`` otherwise; ``calibration_`` says which.
    approximation : {"auto", "exact", "sparse", "neighbours"}, Sparse or Neighbours
        How GPs are approximated.  ``"auto"``: exact up to 10,000 training rows (on a CPU 3,000 for
        methods that search with it, such as ``"paper"``); beyond, ``"neighbours"`` for Matérn
        kernels of up to 10 features, and sparse otherwise.  ``"sparse"`` has 300 inducing inputs,
        or ``Sparse(m=...)``; ``"neighbours"`` predicts every point from the 64 training points
        nearest to it in units of the lengthscales, or ``Neighbours(m=...)``.
    cal_size : float or int
        Fraction (or number) of the rows held out for calibration, unless ``fit`` is given
        calibration data or the method needs none.  A fraction gives at most 10,000 rows, and a
        number ``C`` for which ``C + 1`` is a multiple of 20, if one is within 5 %, so that 95 %
        intervals end at a whole rank.
    effort : {"low", "auto", "high"}
        How much ``base="auto"`` pools: one Matérn GP; five models; or seven.  With more than
        10,000 rows ``"auto"`` and ``"high"`` pool three or four.
    y_bounds : "auto", (low, high) or None
        Smallest and largest possible value of the target, None for no bound: counts have
        ``(0, None)``, shares ``(0, 1)``.  All predictions stay within; probability beyond a bound
        is moved to the bound itself, see :mod:`sharpgp.bounds`.  ``"auto"`` takes a value for a
        bound where targets pile up with none beyond, and says so in a warning.  For several
        outputs, one for all, or a list with one for each.
    device : {"auto", "cpu", "cuda"} or torch device
        Where to compute; ``"auto"`` is a GPU from 2,000 training rows on, if there is one, and
        otherwise the CPU.  If GPU memory runs out, work continues in smaller blocks, and then on
        the CPU with a warning.
    random_state : int, RandomState instance or None
        Seed of the holdout split and of randomised methods.
    verbose : int
        1 shows on standard error, in a terminal or notebook, what ``fit`` is doing and how long it
        may still take, and logs it on the logger ``sharpgp``.
    missing : number, str or a list of these
        Values of ``X`` and ``y`` that stand for a missing one, such as -999 or ``"?"``, besides
        NaN and None.

    Attributes
    ----------
    calibration_ : str
        Name of the method that was used.
    calibrated_ : Calibrated
        The torch-level predictor.
    base_ : Table
        What was chosen: name, weight and mean held-out CRPS of each model.
    policy_ : Policy
        How models were learned, conditioned and scored: what followed from rows, columns, device
        and effort; prints as a table.
    posterior_ : Posterior
        The trained GP; of a pool, that with the largest weight.  A model without a GP has none.
    outputs_ : list of SharpGPRegressor
        The model of each output, where ``y`` has several columns; each has the attributes above.
    inducing_ : int or None
        Number of inducing inputs of a sparse GP; None for any other.
    training_ : TrainingResult
        How the training of ``posterior_`` went.
    grouped_ : bool
        Whether ``fit`` was given groups.
    encoding_ : TableEncoding
        How columns became features, where ``X`` is a data frame or has gaps; prints as a table.
    constant_ : array of shape (2, k)
        Columns of an array that were constant but for rounding, and their values; whatever is there
        in rows to predict is not looked at.
    noise_ : float
        Where ``fit`` was given noise: the default variance for predictions, which is the median of
        those given.
    weight_ : float
        Where ``fit`` was given weights that differ: their mean.
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

    def __init__(
        self,
        *,
        base: BaseName | Any = "auto",
        calibration: CalibrationName | Recalibrator = "auto",
        approximation: Literal["auto", "exact", "sparse", "neighbours"] | Any = "auto",
        cal_size: float | int = 0.25,
        effort: Literal["low", "auto", "high"] = "auto",
        y_bounds: Literal["auto"] | Any = "auto",
        device: Literal["auto", "cpu", "cuda"] | Any = "auto",
        random_state: Any = None,
        verbose: int = 0,
        missing: Any = (),
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
        sample_weight_cal: ArrayLike | Callable[..., Any] | None = None,
    ) -> SharpGPRegressor:
        """Train the GP and calibrate it.

        Where rows repeat others in ``X``, inputs that the model knows and new ones are calibrated
        apart, see :mod:`sharpgp.calibration.seen_or_new`.  A table in which every row occurs
        equally often is used once, with a warning.

        Parameters
        ----------
        X : array of shape (n, d), or data frame
            Columns of a data frame (pandas, polars, Arrow) may hold numbers, booleans,
            categories, texts and dates, with gaps; see :class:`sharpgp.frames.TableEncoding`.
            Numbers and dates that are written as text are read as such, with a warning.
        y : array of shape (n,)
            Rows without a target are left out, with a warning.  A target that is far beyond any
            plausible tail of the others is named in a warning, and clipped for training, see
            :mod:`sharpgp._far_targets`.  With shape (n, p), gaps allowed: a
            model for each output, see ``outputs_``; predictions then have the outputs last.
        X_cal, y_cal : arrays, optional
            Your own calibration data; without them ``cal_size`` of the rows are held out.
        groups : array of shape (n,), optional
            Which rows belong together, such as those of one patient: strings, numbers or anything
            that can be compared.  They are never on two sides of a split, so that intervals are for
            new groups; those of known ones are asked for with ``groups`` of
            :meth:`predict_interval`.
        groups_cal : array, optional
            The same for the rows of ``X_cal``.
        noise : float, array of shape (n,) or "replicates", optional
            Variances of the observations' noise, where they are known; ``"replicates"`` estimates
            them from rows with equal ``X``.  Models are then fitted to the weighted mean of rows
            with equal ``X``.  See :mod:`sharpgp.noise`.
        noise_cal : float or array, optional
            The same for the rows of ``X_cal``.
        sample_weight : array of shape (n,), optional
            How much each row counts: in learning, in the scores that pool models, and in the ranks
            that make intervals.  Only ratios matter, rows of weight 0 are left out.  A row of
            weight ``w`` has its likelihood to the power of ``w``, as ``w`` equal rows would.  For
            measurements of different precision, ``noise`` is right.  Exact GPs only: beyond 2,000
            rows with ``approximation="exact"``.
        sample_weight_cal : array or callable, optional
            For a covariate shift, weights of the calibration points: how much more frequent their
            inputs are among the points to predict.  One per row of ``X_cal``, or, without it, of
            ``X`` (only those of rows that calibrate are used); or a function of ``X`` (n, d) that
            gives them, which is then also used for the points to predict.
        """
        from sharpgp._fitting import fit

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
        noise: ArrayLike | None = None,
        sample_weight: ArrayLike | None = None,
        refit: bool = False,
    ) -> SharpGPRegressor:
        """Learn from additional labelled points, without starting over.

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
        from sharpgp._fitting import update

        update(self, self._checked(X, noise), y, sample_weight, refit=refit)
        return self

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

    @classmethod
    def load(
        cls, path: str | os.PathLike[str], *, device: Any = "auto", trusted: Sequence[str] = ()
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

    def _restored(self) -> None:
        from sharpgp._fitted import check_restored

        check_restored(self)

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.allow_nan = True
        tags.target_tags.multi_output = True
        return tags
