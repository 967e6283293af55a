"""One pass over test data: every prediction that figures and report need."""

import warnings
from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from numpy.typing import ArrayLike, NDArray
from sklearn.base import BaseEstimator

from sharpgp._validation import as_numpy, as_target
from sharpgp.calibration.predictors.base import FittedModel, calibrated_of
from sharpgp.data.encoding import Encoded
from sharpgp.data.inputs import encode_rows, plain, read_targets, take_rows
from sharpgp.data.inputs import feature_names as names_of_features
from sharpgp.data.suspicions import repeated_rows
from sharpgp.diagnostics.curves import level_curves
from sharpgp.diagnostics.findings import Diagnostics
from sharpgp.diagnostics.own_columns import Floats
from sharpgp.distribution import PredictiveDistribution
from sharpgp.exceptions import CalibrationWarning, InvalidInputError, warn
from sharpgp.exchangeability import compare
from sharpgp.pipelines import through
from sharpgp.promise import promise_of
from sharpgp.relevance import relevance
from sharpgp.rows import Rows

#: Most test rows that are judged; more would change the third digit.
MAX_ROWS_JUDGED = 10_000
# A distribution jumps at a value if this much of its probability lies within this share of it.
_LEAST_JUMP, _JUMP = 1e-3, 1e-6
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
    it; see :class:`sharpgp.calibration.predictors.scored.HeldOutPredictor`.

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
    own = X is None
    if X is None:
        view: Any = calibrated_of(model).at_own_points()
        outside, encoding = through(view), getattr(model, "encoding_", None)
        seen_X = X = as_numpy(view.X_own)
        y = as_numpy(view.y_own)
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
    labels = _groups(groups, len(as_numpy(plain(y))))
    plain_X = as_numpy(X) if rows is None else rows.features
    known = None if outside.targets else _labelled(calibrated)
    both = np.column_stack([plain_X, as_numpy(as_target(plain(y)))])
    seen, copied = (np.zeros(len(both), dtype=bool),) * 2 if own else repeated_rows(both, known)
    kept, n_given = np.flatnonzero(~(seen | copied)), len(both)
    if not own and len(kept) > MAX_ROWS_JUDGED:
        kept = np.sort(np.random.default_rng(0).choice(kept, MAX_ROWS_JUDGED, replace=False))
    if not len(kept):  # nothing is left that could be judged; figures show what was given
        kept = np.arange(n_given)
    if len(kept) < n_given:
        seen_X, X, y, plain_X = (_take(part, kept) for part in (seen_X, X, y, plain_X))
        labels = None if labels is None else np.unique(labels[kept], return_inverse=True)[1]
        if rows is not None:
            rows = encode_rows(model, X)
    with warnings.catch_warnings():
        # Levels without enough calibration points are marked in ``backed`` instead.
        warnings.simplefilter("ignore", CalibrationWarning)
        report = outside.calibration_report(seen_X, y)
        ends = outside.predict_interval(seen_X, asked)
        mean = outside.predict(seen_X)
        plain_y = as_numpy(as_target(plain(y)))
        pit, atoms = _pit(outside.predict_dist(seen_X), plain_y)
        whole = plain_X.shape[1] == calibrated.n_features
        asked_X: Any = Encoded(plain_X, np.zeros((0, 0)), encoding) if encoding else X
        moved_by = relevance(model, asked_X) if whole else None
        ranked = calibrated.each_once() is not None
        tested = ranked and not outside.targets and not own
        if calibrated.counted == "groups" and groups is None:
            tested = False  # rows of unknown groups are not independent
        given = X if noise is None else seen_X
        alike = compare(model, given, y, groups=labels) if tested else None
    if encoding is None:
        names = _feature_names(model, X, plain_X.shape[1], feature_names)
        of_lengthscales = names
    else:
        names = tuple(encoding.features)
        of_lengthscales = tuple(encoding.lengthscales)
    method = method or getattr(model, "calibration_", None) or type(calibrated).__name__
    return Diagnostics(
        method=method,
        n_train=calibrated.n_train,
        n_cal=calibrated.n_cal,
        counted=calibrated.counted,
        row=kept + 1,
        X=plain_X,
        y=plain_y,
        feature_names=names,
        mean=mean,
        pit=pit,
        atoms=atoms,
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
        groups=labels,
        n_given=n_given,
        n_seen=int(seen.sum()),
        n_copies=int((copied & ~seen).sum()),
        gaps=None if rows is None else tuple(rows.gaps),
        n_missing=0 if rows is None else int(rows.missing.sum()),
        exchangeability=alike,
        X_train=None if known is None else known[:, :-1],
        out_of_fold=own,
        promise=promise_of(calibrated, method, encoding=encoding),
    )


def _pit(dist: PredictiveDistribution, y: Floats) -> tuple[Floats, NDArray[np.bool_]]:
    """``F(y)`` (n,), drawn between both ends where ``F`` jumps, and where it does."""
    step = _JUMP * np.maximum(np.abs(y), dist.std)
    low, high = dist.cdf(y - step), dist.cdf(y + step)
    atoms = high - low > _LEAST_JUMP
    drawn = low + np.random.default_rng(0).random(len(y)) * (high - low)
    return np.where(atoms, drawn, dist.cdf(y)), atoms


def _take(part: Any, kept: NDArray[np.int64]) -> Any:
    """Some rows of an array or a table."""
    if isinstance(part, Rows):
        return part[torch.as_tensor(kept, device=part.X.device)]
    return take_rows(part, kept)


def _groups(groups: Any, n: int) -> NDArray[Any] | None:
    if groups is None:
        return None
    labels = np.asarray(groups)
    if labels.shape != (n,):
        raise InvalidInputError(f"groups: expected {n}, one per row, found shape {labels.shape}")
    return np.asarray(np.unique(labels.astype(str), return_inverse=True)[1])


def warn_of_known_rows(model: Any, X: Any, y: Any) -> None:
    """Warn of rows that trained or calibrated a model and now shall judge it."""
    rows = encode_rows(model, X)
    given = X.X if isinstance(X, Rows) else X
    features = as_numpy(given) if rows is None else rows.features
    known = _labelled(calibrated_of(model))
    if known is None or np.ndim(features) != 2 or len(features) != np.size(y):
        return
    seen = repeated_rows(np.column_stack([features, y]).astype(np.float64), known)[0]
    if seen.any():
        warn(
            f"X, y: {seen.sum():,} of {len(seen):,} rows trained or calibrated the model, so that "
            "all figures are too good; leave them out, or call calibration_report() for held-out "
            "predictions of these"
        )


def _labelled(calibrated: Any) -> Floats | None:
    """Features (m, d) and targets of the predictor's own rows; None if it does not keep them."""
    try:
        rows, y = calibrated.labelled_data()
        return np.column_stack([as_numpy(rows.X), as_numpy(y)])
    except AttributeError:  # a model from elsewhere
        return None


def _feature_names(model: Any, X: Any, d: int, given: Sequence[str] | None) -> tuple[str, ...]:
    names = given
    if names is None:
        names = getattr(model, "feature_names_in_", getattr(X, "columns", None))
    if names is None:
        names = [f"x{j}" for j in range(d)]
    if len(names) != d:
        raise InvalidInputError(f"feature_names: expected {d}, one per column, found {len(names)}")
    return tuple(str(name) for name in names)
