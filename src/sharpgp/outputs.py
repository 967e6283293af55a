r"""Several outputs: one calibrated model each, and regions that contain all of them at once.

A region is a box: ``location_j(x) -+ r u_j spread_j(x)`` for the outputs ``j``.  With the scores
``z_ij`` of points that no model has seen, ``r`` is a rank of ``m_i = max_j |z_ij| / u_j``, which
is exchangeable with that of a new point: ``P(all outputs within) >= coverage`` for ``exact``, as
for a single interval.  Where outputs are correlated, so are their scores, and the box is smaller
than Bonferroni's.  The units ``u_j``, quantiles of each model's scores of its own training points,
let every output miss about equally often.

Bands that contain all rows of a new group at once (a curve, a horizon) work alike, with the rows of
a group in place of outputs: ``m_g = max |z_i|`` over the rows ``i`` of group ``g``.

Weights for a covariate shift and groups enter the rank of ``m`` as they do that of a single score,
see :class:`sharpgp.calibration.ranks.Ranks`; the weight of a group is the mean of its rows'.

Rows with gaps have no ``m``.  Complete rows stand for them if gaps do not depend on ``x``.  Where
they visibly do, each complete row is weighted by ``1 / P(complete | x)``, estimated from all rows:
approximate, and only for gaps that do not depend on ``y`` given ``x``; a warning says so.
"""

import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Annotated, Any

import numpy as np
import torch
from sklearn.base import clone
from sklearn.ensemble import RandomForestClassifier
from torch import Tensor

from sharpgp._ranks import points_needed, q_lin
from sharpgp._stored import Array, stored
from sharpgp._validation import as_coverage, as_numpy
from sharpgp.calibration.cautions import warn_of_tail, warn_of_weights
from sharpgp.calibration.predictors.parts import MIN_ROWS_PER_CLASS
from sharpgp.calibration.ranks import Ranks
from sharpgp.calibration.recalibrator import chosen_recalibrator
from sharpgp.data.copies import equal_rows
from sharpgp.data.encoding import Encoded
from sharpgp.data.inputs import (
    columns_of,
    encode_rows,
    plain,
    read_features,
    seed_of,
    training_data,
)
from sharpgp.data.inputs import read_targets as without_marks
from sharpgp.data.rows import LabelledRows, split_rows, unrepeated_rows, without_hidden_copies
from sharpgp.data.target_bounds import bounds_of_output
from sharpgp.exceptions import InvalidInputError, warn
from sharpgp.exchangeability import moved_features, names_of_features
from sharpgp.rows import Rows

# Rows in a leaf of the forest that estimates P(complete | x), and its trees.
_LEAF, _TREES = 5, 300
# Arguments given for all rows also serve the calibration rows.
_SHARED = ("groups", "noise", "sample_weight")


@stored("JointScores")
@dataclass(frozen=True, eq=False)
class JointScores:
    """Absolute scores [C, p] of points (or groups) whose ``p`` parts are covered at once.

    Parameters
    ----------
    z : Tensor [C, p]
    weights : Tensor [C], optional
        In the units of the test points' weights, see :meth:`radius`.
    groups : Tensor [C], optional
        Whole numbers, equal for points of one group; predictions are for new groups.
    side : Tensor [C], optional
        Number of each point's part of the inputs, such as known and new ones: each is covered.
    """

    z: Annotated[Tensor, Array("C p")]
    weights: Annotated[Tensor | None, Array("C")] = None
    groups: Annotated[Tensor | None, Array("C", whole=True)] = None
    side: Annotated[Tensor | None, Array("C", whole=True)] = None

    def at_sides(
        self, coverage: float, units: Tensor, test_weights: Tensor | None, side: Tensor
    ) -> Tensor:
        """:meth:`radius` for points [T] on some sides; of all points where a side has too few."""
        if self.side is None:
            return self.radius(coverage, units, test_weights)
        out = self.z.new_empty(len(side))
        for k in side.unique().tolist():
            own, rows = self.side == k, side == k
            own = own if int(own.sum()) >= MIN_ROWS_PER_CLASS else torch.ones_like(own)
            weights, groups = (
                None if one is None else one[own] for one in (self.weights, self.groups)
            )
            theirs = None if test_weights is None else test_weights[rows]
            out[rows] = JointScores(self.z[own], weights, groups).radius(coverage, units, theirs)
        return out

    def radius(self, coverage: float, units: Tensor, test_weights: Tensor | None = None) -> Tensor:
        """Half-width, in units [p], that covers all parts with this probability [T or 1].

        ``test_weights`` [T]: weights of the points to predict, in units of ``weights``; 1 by
        default.

        Examples
        --------
        >>> scores = JointScores(torch.tensor([[1.0, 3.0], [2.0, 1.0], [0.5, 0.5]]).double())
        >>> scores.radius(0.75, torch.ones(2).double()).tolist()
        [3.0000000003]
        """
        m = (self.z / units.to(self.z)).amax(-1)
        ranks = Ranks(m, self.weights, groups=self.groups)
        weights = m.new_ones(1) if test_weights is None else test_weights.to(m)
        if self.weights is not None:
            weights = weights / self.weights.max()
        radius, backed = ranks.radius(coverage, weights)
        unbacked = int((~backed).sum())
        if unbacked:
            counted = "points" if self.groups is None else "groups"
            if self.weights is None:
                asked = f"coverage {coverage:g} of all parts at once"
                warn_of_tail(asked, points_needed(coverage), ranks.n, counted)
            else:
                warn_of_weights(coverage, unbacked, len(weights), ranks.n_effective, counted)
        return radius


# ------------------------------------------------------------------ several outputs


def is_several(y: Any) -> bool:
    """Whether targets have several columns.

    Examples
    --------
    >>> is_several([[1.0, 2.0], [3.0, 4.0]]), is_several([1.0, 2.0])
    (True, False)
    """
    try:
        shape = tuple(y.shape) if hasattr(y, "shape") else np.shape(y)
    except (TypeError, ValueError):  # rows of different lengths
        return False
    return len(shape) == 2 and shape[1] > 1


@dataclass(frozen=True)
class _Table:
    """Rows, their targets (n, p) with NaN at gaps, and further arguments of ``fit`` by name."""

    X: Any
    Y: np.ndarray
    given: Mapping[str, Any]

    def take(self, rows: np.ndarray) -> "_Table":
        """Some of the rows."""
        given = {name: _of_rows(value, rows, len(self.Y)) for name, value in self.given.items()}
        return _Table(self.X[rows], self.Y[rows], given)

    def output(self, j: int) -> "tuple[np.ndarray, _Table]":
        """Which rows have output ``j``; these rows, with one target."""
        rows = np.flatnonzero(~np.isnan(self.Y[:, j]))
        part = self.take(rows)
        given = {name: _column(value, j) for name, value in part.given.items()}
        return rows, _Table(part.X, part.Y[:, j], given)


def fit_outputs(
    estimator: Any,
    X: Any,
    Y: Any,
    X_cal: Any,
    Y_cal: Any,
    given: Mapping[str, Any],
    fit: Callable[..., None],
) -> dict[str, Any]:
    """``fit`` a clone of the estimator to each column of ``Y`` (n, p); what all leave, by name.

    Gaps are left out.  ``given`` are arguments of ``fit`` with one entry per row, by name.  All
    outputs share one split, so that calibration points have all of their scores.
    """
    seed = seed_of(estimator.random_state)
    given = {name: value for name, value in given.items() if value is not None}
    guarantee = X_cal is not None or "sample_weight_cal" in given
    method = chosen_recalibrator(estimator.calibration, seed, guarantee=guarantee)
    sides = _Sides.of(estimator, X, Y, X_cal, Y_cal, given)
    whole = sides.train if sides.cal is None else sides.cal
    if sides.cal is None and method.needs_calibration:
        sides = sides.split(estimator.cal_size, seed, by_row=method.knows_inputs)
    n_cal = len((sides.train if sides.cal is None else sides.cal).Y)
    fitted, z, of_first = [], [], np.arange(0)
    for j in range(whole.Y.shape[1]):
        rows_j, arguments = sides.output(j)
        bounds = bounds_of_output(estimator.y_bounds, j, whole.Y.shape[1])
        model = clone(estimator).set_params(calibration=method, y_bounds=bounds)
        # The estimator's own fit has named targets that are far from all others.
        with warnings.catch_warnings():
            warnings.filterwarnings("ignore", "y: row ", UserWarning)
            fit(model, *arguments)
        fitted.append(model)
        z.append(_scores(model, rows_j, n_cal))
        of_first = rows_j if j == 0 else of_first
    joint, scored = None, [one for one in z if one is not None]
    if len(scored) == len(fitted):
        # Complete rows have the first output; its model knows their weights and groups.
        joint = _joint(torch.stack(scored, -1), fitted[0], of_first, whole, sides.places, seed)
    return {"outputs_": fitted, "calibration_": fitted[0].calibration_, "joint_": joint}


@dataclass(frozen=True)
class _Sides:
    """Rows that train and rows that calibrate, of all outputs."""

    train: _Table
    cal: _Table | None
    #: Positions of the rows of ``cal`` among all; None if they were given.
    places: np.ndarray | None = None
    #: Which of them were held out one by one; None for all.
    drawn: np.ndarray | None = None

    @classmethod
    def of(
        cls, estimator: Any, X: Any, Y: Any, X_cal: Any, Y_cal: Any, given: Mapping[str, Any]
    ) -> "_Sides":
        """As they are given; of a table that was repeated, and of hidden copies, each row once."""
        own, theirs = given, None
        if X_cal is not None:
            own, theirs = _by_side(given)
        train, cal = _Table(*_rows(estimator, X, Y, first=True), own), None
        if theirs is not None:
            cal = _Table(*_rows(estimator, X_cal, Y_cal), theirs)
        if "sample_weight" not in given:  # weights tell copies apart
            train = train.take(unrepeated_rows(_as_rows(train, _row_numbers(train.Y))))
            if cal is None:
                rows = _as_rows(train, _row_numbers(train.Y).astype(np.float64))
                seed = seed_of(estimator.random_state) or 0
                train = train.take(without_hidden_copies(rows, columns_of(estimator), seed))
        return cls(train, cal)

    def split(self, cal_size: float, seed: int | None, *, by_row: bool) -> "_Sides":
        """Some of the rows that train held out; what is known of all serves both sides."""
        whole = self.train
        rows = _as_rows(whole, whole.Y[:, 0])
        rest, places, drawn = split_rows(rows, cal_size, seed, by_row=by_row)
        own, theirs = _by_side(whole.given)
        shared = {f"{name}_cal": own[name] for name in _SHARED if name in own}
        train, cal = replace(whole, given=own), replace(whole, given=shared | theirs)
        return _Sides(train.take(rest), cal.take(places), places, drawn)

    def output(self, j: int) -> tuple[np.ndarray, tuple[Any, ...]]:
        """Which rows calibrate output ``j``, and the arguments of its fit."""
        rows, part = self.train.output(j)
        if self.cal is None:
            return rows, (part.X, part.Y, None, None, part.given, None)
        rows, cal = self.cal.output(j)
        drawn = None if self.drawn is None else self.drawn[rows]
        return rows, (part.X, part.Y, cal.X, cal.Y, {**part.given, **cal.given}, drawn)


def _by_side(given: Mapping[str, Any]) -> tuple[dict[str, Any], dict[str, Any]]:
    """Arguments for the training rows, and for the calibration rows."""
    theirs = {name: value for name, value in given.items() if name.endswith("_cal")}
    return {name: value for name, value in given.items() if name not in theirs}, theirs


def _as_rows(table: _Table, y: np.ndarray) -> LabelledRows:
    groups = table.given.get("groups")
    if groups is not None:
        groups = np.unique(plain(groups), return_inverse=True)[1].reshape(-1)
    return LabelledRows(_features(table.X), y, groups)


def _row_numbers(Y: np.ndarray) -> np.ndarray:
    """Number (n,) of each row's targets: equal for equal rows, gaps included."""
    gaps = np.isnan(Y)
    return equal_rows(torch.from_numpy(np.column_stack([np.where(gaps, 0.0, Y), gaps]))).numpy()


def _joint(
    z: Tensor,
    model: Any,
    rows: np.ndarray,
    whole: _Table,
    places: np.ndarray | None,
    seed: int | None,
) -> JointScores | None:
    """Scores of the complete rows, with their weights and groups; None if no row is complete.

    ``z`` [n, p] is NaN where there is no score.  ``rows`` calibrate ``model``, the first output's.
    ``places`` are the positions of the ``n`` rows in the ``whole`` table; None for all of it.
    """
    complete = ~z.isnan().any(-1)
    if not bool(complete.any()):
        return None
    known = model.calibrated_
    each = known.each_once()
    places_of = rows[each.row.cpu().numpy()]
    weights, groups, side = each.weights, each.groups, None
    if weights is not None:
        weights = _placed(weights / weights.max(), places_of, len(z))[complete]
    if groups is not None:
        groups = _placed(groups, places_of, len(z))[complete].long()
    if len(known.parts) > 1:
        side = _placed(known.part[known.once > 0], places_of, len(z))[complete].long()
    rarity = _rarity(whole.X, whole.Y, seed)
    if rarity is not None:
        rare = torch.from_numpy(rarity if places is None else rarity[places])[complete]
        weights = rare if weights is None else weights * rare
        # As to gaps, a point to predict has the mean weight of new points.
        weights = weights * (weights.sum() / (weights @ rare))
    return JointScores(z[complete].abs(), weights, groups, side)


def _rarity(X: Any, Y: np.ndarray, seed: int | None) -> np.ndarray | None:
    """``1 / P(complete | x)`` (n,), where gaps in ``Y`` (n, p) depend on ``X``; None elsewhere.

    Estimated by a forest's out-of-bag votes, if some feature is distributed differently in complete
    rows.
    """
    inputs, complete = _features(X), ~np.isnan(Y).any(1)
    if complete.all() or not complete.any():
        return None
    names = names_of_features(X.encoding if isinstance(X, Encoded) else None, inputs.shape[1])
    moved = moved_features(inputs[complete], inputs[~complete], names)
    if not moved:
        return None
    warn(
        f"y: rows with gaps differ from complete ones in {', '.join(moved)}; regions "
        "weight complete rows by 1 / P(complete | x), estimated: their coverage is approximate"
    )
    forest = RandomForestClassifier(
        _TREES, min_samples_leaf=_LEAF, oob_score=True, random_state=seed
    ).fit(inputs, complete)
    share = forest.oob_decision_function_[:, 1]
    return 1.0 / np.clip(np.nan_to_num(share, nan=complete.mean()), 1.0 / len(inputs), 1.0)


def predict_region(
    estimator: Any, X: Any, coverage: Any, noise: Any = None, sample_weight: Any = None
) -> np.ndarray:
    """See :meth:`SharpGPRegressor.predict_region`."""
    values, single = as_coverage(coverage)
    outputs: Sequence[Any] = getattr(estimator, "outputs_", None) or [estimator]
    settings = {"noise": noise, "sample_weight": sample_weight}
    rows = encode_rows(estimator, X)
    X = X if rows is None else rows
    if len(outputs) == 1:
        return np.asarray(estimator.predict_interval(X, coverage, **settings))[..., None]
    joint: JointScores | None = getattr(estimator, "joint_", None)
    weights = None
    if joint is not None:
        weights = _test_weights(outputs[0], X, _column(noise, 0), sample_weight)
        side = outputs[0].calibrated_.part_of(outputs[0].rows(X, noise=_column(noise, 0)))
    boxes = []
    for value in values:
        if joint is None:
            # Bonferroni, for methods without scores.
            share = 1.0 - (1.0 - value) / len(outputs)
            boxes.append(estimator.predict_interval(X, share, **settings))
            continue
        units = torch.stack([_unit(one.calibrated_, value) for one in outputs])
        radius = joint.at_sides(value, units, weights, side)
        pairs = zip(outputs, units.tolist(), strict=True)
        ends = [
            _band(one, X, radius * unit, _column(noise, j)) for j, (one, unit) in enumerate(pairs)
        ]
        boxes.append(np.stack(ends, -1))
    return boxes[0] if single else np.stack(boxes, 2)


def reports(estimator: Any, X: Any, Y: Any, noise: Any = None, coverage: float = 0.95) -> list[Any]:
    """The calibration report of each output, on the rows that have it."""
    table = _Table(*_rows(estimator, X, Y), {"noise": noise})
    parts = [table.output(j)[1] for j in range(len(estimator.outputs_))]
    return [
        one.calibration_report(part.X, part.Y, coverage=coverage, **part.given)
        for one, part in zip(estimator.outputs_, parts, strict=True)
    ]


def stack_answers(answers: Sequence[Any]) -> Any:
    """Answers for each output as one array with the outputs last; others as a list."""
    if all(isinstance(answer, np.ndarray) for answer in answers):
        return np.stack(answers, -1)
    return list(answers)


# ------------------------------------------------------------------ several rows


def joint_of_groups(calibrated: Any, groups: np.ndarray | None) -> JointScores | None:
    """Scores of whole groups, from those of the calibration points, in order; None without."""
    calibrated = calibrated.each_once()
    if groups is None or calibrated is None or len(groups) != len(calibrated.scores):
        return None
    size = calibrated.scores.abs()
    _, where = np.unique(groups, return_inverse=True)
    largest = size.new_zeros(int(where.max()) + 1)
    index = torch.from_numpy(where.reshape(-1)).to(size.device)
    z = largest.scatter_reduce(0, index, size, "amax").unsqueeze(-1)
    weights = None
    if calibrated.weights is not None:
        relative = calibrated.weights / calibrated.weights.max()
        weights = torch.zeros_like(largest).scatter_reduce(
            0, index, relative, "mean", include_self=False
        )
    return JointScores(z, weights)


def predict_band(
    estimator: Any, X: Any, coverage: float, noise: Any = None, sample_weight: Any = None
) -> np.ndarray:
    """See :meth:`SharpGPRegressor.predict_band`."""
    joint: JointScores | None = getattr(estimator, "group_scores_", None)
    if joint is None:
        raise InvalidInputError(
            "predict_band: expected a model with one output that was fitted with groups by "
            "'exact', 'cv' or another method that ranks scores, found another; give groups to fit"
        )
    ((value,), _) = as_coverage([coverage])
    weights = _test_weights(estimator, X, noise, sample_weight)
    radius = joint.radius(value, joint.z.new_ones(1), weights)
    return _band(estimator, X, radius, noise)


# ------------------------------------------------------------------ parts


def _rows(estimator: Any, X: Any, Y: Any, *, first: bool = False) -> tuple[Any, np.ndarray]:
    """Rows as models take them, and their targets (n, p) with NaN at gaps."""
    try:
        targets = np.asarray(plain(Y), dtype=np.float64)
    except (TypeError, ValueError):
        raise InvalidInputError("y: expected numbers, found values that are not") from None
    if np.isinf(targets).any():
        raise InvalidInputError("y: expected finite numbers, found inf")
    targets = np.column_stack([without_marks(estimator, column) for column in targets.T])
    empty = np.isnan(targets).all(0)
    if empty.any():
        raise InvalidInputError(f"y: expected values in column {int(empty.argmax())}, found none")
    rows: Any = None
    if first:
        rows, _ = training_data(estimator, X, np.zeros(len(targets)))
    found = encode_rows(estimator, X)
    if found is not None:
        rows = found
    elif rows is None:
        rows = read_features(estimator, X)
    if len(rows) != len(targets):
        raise InvalidInputError(
            f"y: expected {len(rows)} rows, as many as X has, found {len(targets)}"
        )
    return rows, targets


def _features(rows: Any) -> np.ndarray:
    array: np.ndarray = rows.features if isinstance(rows, Encoded) else rows
    return array


def _of_rows(value: Any, rows: np.ndarray, n: int) -> Any:
    """Entries of some of ``n`` rows; an argument for all rows is returned unchanged."""
    if value is None or callable(value) or isinstance(value, str) or np.ndim(plain(value)) == 0:
        return value
    array = np.asarray(plain(value))
    return array[rows] if len(array) == n else array


def _column(value: Any, j: int) -> Any:
    array = None if value is None or isinstance(value, str) else np.asarray(plain(value))
    return value if array is None or array.ndim < 2 else array[:, j]


def _scores(model: Any, rows: np.ndarray, n: int) -> Tensor | None:
    """Scores [n] of the rows that calibrate, NaN elsewhere; None for a method without scores."""
    calibrated = model.calibrated_.each_once()
    if calibrated is None or calibrated.draw is not None or not calibrated.model.normalised:
        return None
    if len(calibrated.scores) != len(rows):
        return None  # some rows do not calibrate
    return _placed(calibrated.scores, rows[calibrated.row.cpu().numpy()], n)


def _placed(values: Tensor, rows: np.ndarray, n: int) -> Tensor:
    """Values of some rows at their positions [n]; NaN elsewhere."""
    out = torch.full((n,), float("nan"), dtype=torch.float64)
    out[torch.from_numpy(rows)] = values.double().cpu()
    return out


def _unit(calibrated: Any, coverage: float) -> Tensor:
    """Size of the scores of a model's own training points at a coverage; 1 where it has none."""
    scores = calibrated.model.scores
    if scores is None:
        return torch.ones((), dtype=torch.float64)
    level = torch.tensor([coverage], dtype=scores.dtype, device=scores.device)
    low, high = 1.0 / (len(scores) + 1), len(scores) / (len(scores) + 1)
    return q_lin(level.clamp(low, high), scores.abs())[0].clamp_min(1e-12).cpu()


def _test_weights(model: Any, X: Any, noise: Any, sample_weight: Any) -> Tensor | None:
    """Weights [n] of points to predict, in units of the largest that calibrates ``model``."""
    features = model.rows(X, noise=noise)
    found: Tensor | None = model.calibrated_.test_weights(features, plain(sample_weight))
    return found


def _band(estimator: Any, X: Any, radius: Tensor, noise: Any) -> np.ndarray:
    """Targets (n, 2) with scores of ``-radius`` and ``radius`` [n or 1]."""

    def ends(calibrated: Any, rows: Rows) -> np.ndarray:
        radii = torch.stack([-radius, radius]).to(rows.X)
        return as_numpy(calibrated.clip(calibrated.law(rows).value(radii).mT))

    answer: np.ndarray = estimator.answer(X, ends, noise)
    return answer
