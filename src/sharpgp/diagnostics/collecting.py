"""One pass over test data: every prediction that figures and report need."""

import copy
import warnings
from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.spatial import cKDTree
from sklearn.base import BaseEstimator

from sharpgp._validation import as_numpy, as_target
from sharpgp.calibration.predictors.base import FittedModel, calibrated_of
from sharpgp.calibration.predictors.by_class import ClassPredictor
from sharpgp.calibration.predictors.by_score import ScoredPredictor
from sharpgp.calibration.predictors.held_out_view import HeldOutView
from sharpgp.data.encoding import Encoded
from sharpgp.data.inputs import encode_rows, read_targets
from sharpgp.data.inputs import feature_names as names_of_features
from sharpgp.diagnostics.chance import Floats
from sharpgp.diagnostics.curves import level_curves
from sharpgp.diagnostics.findings import Diagnostics
from sharpgp.exceptions import CalibrationWarning, InvalidInputError
from sharpgp.exchangeability import compare
from sharpgp.metrics import ECE_LEVELS
from sharpgp.pipelines import Through, through
from sharpgp.relevance import relevance

#: Default coverages of the intervals that are examined.
COVERAGES = (0.5, 0.6, 0.7, 0.8, 0.9, 0.95, 0.99)


def diagnose(
    model: FittedModel | BaseEstimator,
    X: ArrayLike | None = None,
    y: ArrayLike | None = None,
    *,
    feature_names: Sequence[str] | None = None,
    coverages: Sequence[float] = COVERAGES,
    method: str | None = None,
    target: str | None = None,
    unit: str = "",
    groups: ArrayLike | None = None,
    noise: ArrayLike | None = None,
) -> Diagnostics:
    """Collect the predictions of a fitted model at test points.

    Without test points, the calibration points are used, each predicted by fits that have not seen
    it; see :class:`sharpgp.calibration.predictors.held_out_view.HeldOutView`.

    Parameters
    ----------
    model : SharpGPRegressor, Calibrated, or what :func:`sharpgp.through` takes
    X : array or frame of shape (n, d), optional
    y : array of shape (n,), optional
    feature_names : sequence of d str, optional
        Default: the names in the fit, or the columns of ``X``, or ``x0, x1, ...``
    coverages : sequence of float in (0, 1)
    method : str, optional
        Name of the calibration, for a predictor that does not know it.
    target, unit : str, optional
        Name and unit of the target; by default the name of ``y``, if any.
    groups : array of shape (n,), optional
        Which test points belong together, such as those of one patient.
    noise : float or array of shape (n,), optional
        Variances of the noise of the targets of the test points, where ``fit`` was given noise.

    Examples
    --------
    >>> from sharpgp import SharpGPRegressor
    >>> from sharpgp.toy import make_toy
    >>> toy = make_toy(random_state=0)
    >>> model = SharpGPRegressor(calibration="kuleshov18")
    >>> model = model.fit(toy.X_train, toy.y_train, toy.X_cal, toy.y_cal)
    >>> found = diagnose(model, toy.X_test, toy.y_test, coverages=[0.9])
    >>> found.method, found.lower.shape, found.curves.beta.shape
    ('kuleshov18', (1000, 1), (200,))
    """
    seen_X: Any
    if X is None:
        view = HeldOutView(calibrated_of(model))
        outside, encoding = through(view), getattr(model, "encoding_", None)
        seen_X = X = as_numpy(view.X_cal)
        y = as_numpy(view.y_cal)
        rows, calibrated = None, calibrated_of(model)
        feature_names = feature_names or names_of_features(model)
    else:
        outside, seen_X = through(model), X
        model, X = outside.model, outside.features(X)
        calibrated, rows = calibrated_of(model), encode_rows(model, X)
        encoding = None if rows is None else rows.encoding
        target = target or getattr(y, "name", None)
        y = read_targets(model, y)
        if noise is not None:
            seen_X = model.rows(X, noise=noise)
    asked = np.unique(np.asarray(coverages, dtype=np.float64))
    with warnings.catch_warnings():
        # Levels without enough calibration points are marked in ``backed`` instead.
        warnings.simplefilter("ignore", CalibrationWarning)
        report = outside.calibration_report(seen_X, y)
        ends = outside.predict_interval(seen_X, asked)
        free = _before_bounds(outside)
        quantiles = free.predict_quantiles(seen_X, ECE_LEVELS[1:-1])
        mean = outside.predict(seen_X)
        plain_X = as_numpy(X) if rows is None else rows.features
        plain_y = as_numpy(as_target(y))
        pit = free.predict_dist(seen_X).cdf(plain_y)
        whole = plain_X.shape[1] == calibrated.n_features
        asked_X: Any = Encoded(plain_X, np.zeros((0, 0)), encoding) if encoding else X
        moved_by = relevance(model, asked_X) if whole else None
        own = isinstance(outside.model, HeldOutView)
        ranked = isinstance(calibrated, ScoredPredictor | ClassPredictor)
        tested = ranked and not outside.targets and not own
        if calibrated.counted == "groups" and groups is None:
            tested = False  # rows of unknown groups are not independent
        alike = compare(model, X if noise is None else seen_X, y, groups=groups) if tested else None
    if encoding is None:
        names = _feature_names(model, X, plain_X.shape[1], feature_names)
        of_lengthscales = names
    else:
        names = tuple(encoding.features)
        of_lengthscales = tuple(encoding.lengthscales)
    known = None if outside.targets else _labelled(calibrated)
    method = method or getattr(model, "calibration_", None) or type(calibrated).__name__
    return Diagnostics(
        method=method,
        n_train=calibrated.n_train,
        n_cal=calibrated.n_cal,
        counted=calibrated.counted,
        X=plain_X,
        y=plain_y,
        feature_names=names,
        mean=mean,
        pit=pit,
        quantiles=quantiles,
        coverages=asked,
        lower=ends[:, 0],
        upper=ends[:, 1],
        backed=tuple(calibrated.band_supported(float(c)) for c in asked),
        curves=level_curves(calibrated, of_lengthscales),
        report=report,
        target=str(target or ""),
        unit=unit,
        members=tuple(getattr(model, "base_", ())),
        relevance=moved_by,
        encoding=encoding,
        groups=_groups(groups, len(plain_y)),
        n_seen=0 if known is None or own else _seen(known, plain_X, plain_y),
        gaps=None if rows is None else tuple(rows.gaps),
        n_missing=0 if rows is None else int(rows.missing.sum()),
        exchangeability=alike,
        X_train=None if known is None else known[:, :-1],
        out_of_fold=own,
    )


def _before_bounds(outside: Through) -> Through:
    """The same without ``y_bounds``: levels whose quantiles lie at a bound cannot be told apart."""
    calibrated = calibrated_of(outside.model)
    if calibrated.bounds is None or outside.targets:
        return outside
    other, free = copy.copy(outside), calibrated.with_bounds(None)
    if outside.model is calibrated:
        other.model = free
    else:
        other.model = copy.copy(outside.model)
        other.model.calibrated_ = free
    return other


def _groups(groups: Any, n: int) -> NDArray[Any] | None:
    if groups is None:
        return None
    labels = np.asarray(groups)
    if labels.shape != (n,):
        raise InvalidInputError(f"groups: expected {n}, one per row, found shape {labels.shape}")
    return np.asarray(np.unique(labels.astype(str), return_inverse=True)[1])


def _labelled(calibrated: Any) -> Floats | None:
    """Features and targets of the predictor's own rows; None if it does not keep them."""
    try:
        rows, y = calibrated.labelled_data()
        return np.column_stack([as_numpy(rows.X), as_numpy(y)])
    except AttributeError:  # a model from elsewhere
        return None


def _seen(known: Floats, X: Floats, y: Floats) -> int:
    """How many rows of ``X`` and ``y`` are among the predictor's own."""
    if known.shape[1] != X.shape[1] + 1:
        return 0
    # Standardising data and back changes the last digits.
    scale = known.std(axis=0)
    scale[scale == 0] = 1.0
    away, _ = cKDTree(known / scale).query(
        np.column_stack([X, y]) / scale, distance_upper_bound=1e-8
    )
    return int(np.isfinite(away).sum())


def _feature_names(model: Any, X: Any, d: int, given: Sequence[str] | None) -> tuple[str, ...]:
    names = given
    if names is None:
        names = getattr(model, "feature_names_in_", getattr(X, "columns", None))
    if names is None:
        names = [f"x{j}" for j in range(d)]
    if len(names) != d:
        raise InvalidInputError(f"feature_names: expected {d}, one per column, found {len(names)}")
    return tuple(str(name) for name in names)
