"""What a fitted model says about test data, collected once for figures and for the report."""

import copy
import hashlib
import warnings
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.spatial import cKDTree
from scipy.special import ndtri

from sharpgp._inputs import encoded
from sharpgp._validation import as_numpy, as_target
from sharpgp.calibration.calibrated import calibrated_of
from sharpgp.calibration.scored import ScoredPredictor
from sharpgp.exceptions import CalibrationWarning, InvalidInputError
from sharpgp.exchangeability import Exchangeability, compare
from sharpgp.metrics import (
    ECE_LEVELS,
    BinnedCoverage,
    CalibrationReport,
    coverage_along,
    coverage_band,
    coverage_by,
)
from sharpgp.models.pool import Member
from sharpgp.pipelines import Through, through
from sharpgp.relevance import relevance

Floats = NDArray[np.float64]

#: Coverages at which intervals are looked at, unless the caller asks for others.
COVERAGES = (0.5, 0.6, 0.7, 0.8, 0.9, 0.95, 0.99)
#: The coverages of a page count as so many separate looks: their intervals are nested.
COVERAGE_LOOKS = 3
#: Points from which a group is judged at all.
FEWEST_JUDGED = 10
#: Knots of a curve that are kept; more of them cannot be told apart in a figure.
MOST_KNOTS = 200


@dataclass(frozen=True)
class LevelCurves:
    """``beta(delta)`` (K,) and ``theta(delta) / theta_R`` (K, P) at the levels ``delta`` (K,).

    ``names`` labels the entries of ``theta``; a feature's inverse lengthscale carries its name.
    ``scores`` says whether ``beta`` multiplies a standard deviation; else it is in target units.
    """

    delta: Floats
    beta: Floats
    theta: Floats
    names: tuple[str, ...]
    scores: bool = True

    @property
    def moved(self) -> NDArray[np.bool_]:
        """Mask (P,) of the entries of ``theta`` that differ from the trained ones."""
        return np.array([not np.allclose(column, 1.0) for column in self.theta.T])

    @property
    def by_level(self) -> bool:
        """Whether ``theta`` depends on the level."""
        return not np.allclose(self.theta, self.theta[:1])

    @property
    def gauss(self) -> Floats | None:
        """``beta`` (K,) of a Gaussian, where ``beta`` multiplies one standard deviation."""
        return np.asarray(ndtri(self.delta)) if self.scores and not self.by_level else None


@dataclass(frozen=True)
class Diagnostics:
    """Predictions at test points beside what was observed there.

    Attributes
    ----------
    method : str
        Name of the calibration.
    n_train, n_cal : int, int or None
        Sizes; ``n_cal`` is None where nothing is estimated from calibration points.
    counted : str
        What ``n_cal`` counts: points or groups.
    X, y : arrays of shape (n, d) and (n,)
    feature_names : tuple of d str
    mean, pit : arrays of shape (n,)
        Predictive mean, and ``F(y)`` under the predictive distribution.
    quantiles : array of shape (n, 19)
        At the inner 19 of the 21 levels of the ECE.
    coverages : array of shape (k,)
    lower, upper : arrays of shape (n, k)
        Interval ends at these coverages.
    backed : tuple of k bool
        Whether the calibration points support the coverage; a modelled tail answers otherwise.
    curves : LevelCurves or None
        None for methods that have no such curves.
    report : CalibrationReport
    target, unit : str
        Name of the target, and the unit that it is measured in; empty where nobody said.
    members : tuple of Member
        What was pooled, and with which weights.
    relevance : array of shape (d,) or None
        See :func:`sharpgp.relevance.relevance`.
    groups : array of shape (n,) or None
        Which test points belong together.
    n_seen : int
        Test points that are among those that trained or calibrated the model.
    gaps : tuple of n str, or None
        For each row of a data frame the names of the columns that it lacks.
    n_missing : int
        Values that these rows lack in all.
    exchangeability : Exchangeability or None
        Whether these rows are like those that calibrated the model, for methods that rank scores.
    """

    method: str
    n_train: int
    n_cal: int | None
    X: Floats
    y: Floats
    feature_names: tuple[str, ...]
    mean: Floats
    pit: Floats
    quantiles: Floats
    coverages: Floats
    lower: Floats
    upper: Floats
    backed: tuple[bool, ...]
    curves: LevelCurves | None
    report: CalibrationReport
    target: str = ""
    unit: str = ""
    members: tuple[Member, ...] = ()
    relevance: Floats | None = None
    groups: NDArray[Any] | None = None
    n_seen: int = 0
    counted: str = "points"
    gaps: tuple[str, ...] | None = None
    n_missing: int = 0
    exchangeability: Exchangeability | None = None

    @property
    def looks(self) -> int:
        """Looks at groups of points: along each feature, the rows and the widths, by coverage."""
        return COVERAGE_LOOKS * (self.X.shape[1] + 2)

    @property
    def n_copies(self) -> int:
        """Test points that repeat an earlier one in all features and the target."""
        return len(self.y) - len(np.unique(self._rows, axis=0))

    @property
    def fingerprint(self) -> str:
        """Twelve digits that tell these test data from others: of the SHA-256 of their bytes."""
        return hashlib.sha256(np.ascontiguousarray(self._rows).tobytes()).hexdigest()[:12]

    @property
    def _rows(self) -> Floats:
        return np.column_stack([self.X, self.y])

    @property
    def levels(self) -> Floats:
        """Levels of ``quantiles``, shape (19,)."""
        return ECE_LEVELS[1:-1]

    def coverage_by_gaps(self, k: int) -> dict[str, tuple[int, float]]:
        """Points and coverage of the intervals of ``coverages[k]``, by what is missing.

        Rows are told apart by the columns that they lack; patterns of fewer than
        :data:`FEWEST_JUDGED` rows are one, "others".  Empty where no row lacks anything.
        """
        if self.gaps is None or not any(self.gaps):
            return {}
        counts = Counter(self.gaps)
        pattern = [gap if counts[gap] >= FEWEST_JUDGED else "others" for gap in self.gaps]
        found = coverage_by(pattern, self.y, self.lower[:, k], self.upper[:, k])
        return {key or "complete": value for key, value in found.items()}

    def straying_feature(self, k: int) -> int:
        """Column along which the intervals of ``coverages[k]`` leave the band of chance most."""
        coverage, strays = float(self.coverages[k]), []
        for column in self.X.T:
            bins = coverage_along(column, self.y, self.lower[:, k], self.upper[:, k])
            low, high = bands_of_chance(bins, coverage, self.n_cal, self.looks)
            strays.append(np.maximum(low - bins.coverage, bins.coverage - high).max())
        return int(np.argmax(strays))


def bands_of_chance(
    bins: BinnedCoverage, coverage: float, n_cal: int | None, looks: int = 1
) -> tuple[Floats, Floats]:
    """Where the coverage of each bin falls for calibrated intervals, for all bins together.

    19 in 20 calibrated predictors have all of their bins inside, and of ``looks`` figures like
    this one all bins of all figures. Bins of fewer than :data:`FEWEST_JUDGED` points are not
    judged: their band is [0, 1].

    Examples
    --------
    >>> bins = coverage_along(np.arange(24), np.zeros(24), -np.ones(24), np.ones(24), n_bins=2)
    >>> low, high = bands_of_chance(bins, 0.5, None)
    >>> [round(float(v), 3) for v in low], [round(float(v), 3) for v in high]
    ([0.167, 0.167], [0.833, 0.833])
    """
    confidence = 1 - 0.05 / (len(bins.n_points) * looks)
    bands = [
        coverage_band(coverage, n_cal, int(n), confidence) if n >= FEWEST_JUDGED else (0.0, 1.0)
        for n in bins.n_points
    ]
    low, high = np.array(bands).T
    return low, high


def diagnose(
    model: Any,
    X: Any,
    y: Any,
    *,
    feature_names: Sequence[str] | None = None,
    coverages: Sequence[float] = COVERAGES,
    method: str | None = None,
    target: str | None = None,
    unit: str = "",
    groups: Any = None,
) -> Diagnostics:
    """Collect the predictions of a fitted model at test points.

    Parameters
    ----------
    model : SharpGPRegressor, Calibrated, or what :func:`sharpgp.through` takes
    X : array or frame of shape (n, d)
    y : array of shape (n,)
    feature_names : sequence of d str, optional
        Default: those that the model was fitted with, or the columns of ``X``, or ``x0, x1, ...``
    coverages : sequence of float in (0, 1)
    method : str, optional
        Name of the calibration, for a predictor that does not know it.
    target, unit : str, optional
        What was measured, and in which unit; the name of ``y`` if it has one.
    groups : array of shape (n,), optional
        Which test points belong together, such as those of one patient.

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
    outside, seen_X = through(model), X
    model, X = outside.model, outside.features(X)
    calibrated = calibrated_of(model)
    asked = np.unique(np.asarray(coverages, dtype=np.float64))
    with warnings.catch_warnings():
        # Levels without enough calibration points are marked in ``backed`` instead.
        warnings.simplefilter("ignore", CalibrationWarning)
        report = outside.calibration_report(seen_X, y)
        ends = outside.predict_interval(seen_X, asked)
        free = _before_bounds(outside)
        quantiles = free.predict_quantiles(seen_X, ECE_LEVELS[1:-1])
        mean = outside.predict(seen_X)
        rows = encoded(model, X)
        plain_X = as_numpy(X) if rows is None else rows.features
        plain_y = as_numpy(as_target(y))
        pit = free.predict_dist(seen_X).cdf(plain_y)
        whole = plain_X.shape[1] == calibrated.posterior.n_features
        moved_by = relevance(model, plain_X) if whole else None
        tested = isinstance(calibrated, ScoredPredictor) and not outside.targets
        alike = compare(model, X, y) if tested else None
    if rows is None:
        names = _feature_names(model, X, plain_X.shape[1], feature_names)
        of_lengthscales = names
    else:
        names = tuple(rows.encoding.features)
        of_lengthscales = tuple(rows.encoding.lengthscales)
    method = method or getattr(model, "calibration_", None) or type(calibrated).__name__
    return Diagnostics(
        method=method,
        n_train=calibrated.posterior.n_train,
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
        target=str(target or getattr(y, "name", None) or ""),
        unit=unit,
        members=tuple(getattr(model, "base_", ())),
        relevance=moved_by,
        groups=_groups(groups, len(plain_y)),
        n_seen=0 if outside.targets else _seen(calibrated, plain_X, plain_y),
        gaps=None if rows is None else tuple(rows.gaps),
        n_missing=0 if rows is None else int(rows.missing.sum()),
        exchangeability=alike,
    )


def level_curves(calibrated: Any, feature_names: Sequence[str] = ()) -> LevelCurves | None:
    """The calibrated curves of a predictor as arrays, or None where it has none.

    Where one spread serves all levels (``exact``, ``cv``), ``theta`` is that of the spread.

    Examples
    --------
    >>> import torch
    >>> from sharpgp import Vanilla
    >>> from sharpgp.gp.training import train
    >>> X = torch.linspace(0, 6, 30, dtype=torch.float64)[:, None]
    >>> posterior, _ = train(X, X[:, 0].sin())
    >>> level_curves(Vanilla().fit(posterior, None, None)) is None
    True
    """
    posterior = calibrated.posterior
    if isinstance(calibrated, ScoredPredictor):
        delta, beta = calibrated.ranks.level, calibrated.ranks.z
        theta = getattr(calibrated.model, "theta", posterior.theta_R).expand(len(delta), -1)
        scores = calibrated.model.normalised
    elif (curves := getattr(calibrated, "curves", None)) is not None:
        delta, beta, theta, scores = curves.delta, curves.beta, curves.theta, True
    else:
        return None
    knots = len(delta)
    kept = np.unique(np.linspace(0, knots - 1, min(knots, MOST_KNOTS)).round().astype(np.int64))
    return LevelCurves(
        delta=as_numpy(delta)[kept],
        beta=as_numpy(beta)[kept],
        theta=as_numpy(theta / posterior.theta_R)[kept],
        names=tuple(_theta_name(name, feature_names) for name in posterior.names),
        scores=scores,
    )


def _before_bounds(outside: Through) -> Through:
    """The same without ``y_bounds``: levels whose quantiles lie at a bound cannot be told apart."""
    calibrated = calibrated_of(outside.model)
    if calibrated.bounds is None or outside.targets:
        return outside
    other, free = copy.copy(outside), calibrated.within(None)
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


def _seen(calibrated: Any, X: Floats, y: Floats) -> int:
    """How many rows of ``X`` and ``y`` are among the predictor's own."""
    try:
        known = np.column_stack([as_numpy(part) for part in calibrated.labelled_data()])
    except AttributeError:  # a model from elsewhere, which does not keep its data
        return 0
    if known.shape[1] != X.shape[1] + 1:
        return 0
    # Data that were standardised and brought back differ in their last digits.
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


def _theta_name(name: str, feature_names: Sequence[str]) -> str:
    """``inverse_lengthscale_3`` with the name of feature 3; the others in words."""
    stem, _, number = name.rpartition("_")
    if stem == "inverse_lengthscale" and number.isdecimal() and int(number) < len(feature_names):
        return f"1/lengthscale of {feature_names[int(number)]}"
    return name.replace("_", " ")
