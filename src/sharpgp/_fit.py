"""From labelled rows to a calibrated predictor, and what a fit leaves on the estimator."""

import logging
from collections.abc import Mapping
from dataclasses import dataclass, replace
from numbers import Integral
from typing import Any

import numpy as np
import torch
from torch import Tensor

from sharpgp import _progress as progress
from sharpgp._stored import agree
from sharpgp._validation import as_numpy, as_target, as_weights
from sharpgp.calibration.cautions import warn_if_correlated, warn_if_few_rows, warn_of_merging
from sharpgp.calibration.predictors.base import Calibrated
from sharpgp.calibration.predictors.unseen_levels import with_unseen_levels
from sharpgp.calibration.recalibrator import Recalibrator, chosen_recalibrator
from sharpgp.data.encoding import TableEncoding
from sharpgp.data.far_targets import warn_of_far_targets
from sharpgp.data.fit_arguments import (
    check_pair,
    labelled_rows,
    positive_weights,
    warn_if_misaligned,
)
from sharpgp.data.frames import collected
from sharpgp.data.inputs import (
    check_training_data,
    columns_of,
    feature_names,
    plain,
    read_targets,
    seed_of,
)
from sharpgp.data.noise import merge_replicates
from sharpgp.data.rows import (
    LabelledRows,
    drop_repetition,
    has_known_inputs,
    have_one_target,
    hold_copies_together,
    join_earlier,
    numbers_of_groups,
    split_rows,
)
from sharpgp.data.suspicions import plausible_range
from sharpgp.data.target_bounds import Bounds, bounds_for
from sharpgp.exceptions import InvalidInputError
from sharpgp.gp.compute import choose_device, within_memory
from sharpgp.models.bases import Bases
from sharpgp.models.pool import Base, gp_of, members_of
from sharpgp.models.repeats import Repeats, fitted_rows, own_variance
from sharpgp.outputs import fit_outputs, is_several, joint_of_groups
from sharpgp.rows import Rows

logger = logging.getLogger("sharpgp")


def fit(
    estimator: Any,
    X: Any,
    y: Any,
    X_cal: Any,
    y_cal: Any,
    more: Mapping[str, Any],
    drawn: np.ndarray | None = None,
) -> None:
    """See :meth:`sharpgp.SharpGPRegressor.fit`; ``more`` holds its keyword arguments.

    ``drawn``: which rows of ``X_cal`` were held out one by one; None for all.
    """
    check_pair(X_cal, y_cal)
    X, X_cal = collected(X), collected(X_cal)
    if hasattr(y, "__len__") and len(y) == 0:
        raise InvalidInputError("y: expected at least two rows, found none")
    warn_if_misaligned(X, y)
    y, y_cal = read_targets(estimator, y), read_targets(estimator, y_cal)
    leave(estimator)
    weights, known = more.get("sample_weight"), ("noise", "noise_cal")
    if weights is not None and any(more.get(name) is not None for name in known):
        raise InvalidInputError("sample_weight: expected weights or noise, found both")
    if weights is not None and more.get("sample_weight_cal") is not None and X_cal is None:
        raise InvalidInputError(
            "sample_weight: expected it or sample_weight_cal, found both; without X_cal the "
            "rows that calibrate have the weights of sample_weight"
        )
    X, y, groups, weights = positive_weights(X, y, more.get("groups"), weights)
    more = {**more, "groups": groups, "sample_weight": weights}
    warn_of_far_targets(y)
    if is_several(y):
        leave(estimator, **fit_outputs(estimator, X, y, X_cal, y_cal, more, fit))
    else:
        fit_rows(estimator, *labelled_rows(estimator, X, y, X_cal, y_cal, **more), drawn)


def update(
    estimator: Any, rows: Rows, y: Any, sample_weight: Any, groups: Any, *, refit: bool
) -> None:
    """See :meth:`sharpgp.SharpGPRegressor.update`; ``rows`` are checked."""
    y = as_target(plain(read_targets(estimator, y)), n_rows=len(rows), device=rows.device)
    if not refit:
        weights = plain(sample_weight)
        if hasattr(estimator, "weight_") and weights is not None:
            w = as_weights(weights, n_rows=len(y), device=rows.device)
            if groups is not None:
                groups = np.asarray(plain(groups), dtype=object)[as_numpy(w) > 0]
            rows = replace(rows, weight=w / estimator.weight_)[w > 0]
            y, weights = y[w > 0], as_numpy(w[w > 0])
        units, names = numbers_of_groups(estimator, groups, len(y))
        given = {"sample_weight": weights, "groups": units}
        estimator.calibrated_ = estimator.calibrated_.updated(rows, y, **given)
        if names is not None:
            estimator.group_names_ = names
        if estimator.calibrated_.gp is not None:
            estimator.posterior_ = estimator.calibrated_.gp
        return
    if hasattr(estimator, "weight_"):
        raise InvalidInputError(
            "refit: expected a model fitted without sample_weight, found one with weights; call "
            "fit with all points and their weights"
        )
    grouped = getattr(estimator, "grouped_", False)
    everything, weights = join_earlier(estimator.calibrated_, rows, y, grouped=grouped)
    known = {name: getattr(estimator, name, None) for name in OF_ROWS}
    fit_rows(estimator, *drop_repetition(everything, None, weights), known)


def fit_rows(
    estimator: Any,
    train: LabelledRows,
    cal: LabelledRows | None,
    weights: Any,
    known: Mapping[str, Any],
    drawn: np.ndarray | None = None,
) -> None:
    """The recipe of every fit: learn, condition, score, rank; what answers stays on the estimator.

    ``weights`` of the rows that calibrate: an array, a callable or None.  ``known``: what else the
    fit leaves, by name.  ``drawn``: which rows of ``cal`` were held out one by one; None for all.
    """
    method = chosen_method(estimator, guaranteed(train, cal, weights))
    sides = sides_of(estimator, method, train, cal, weights, drawn)
    bases = bases_of(estimator, sides.train)

    def recipe(device: torch.device) -> Calibrated:
        data = sides.to_learn(device)
        pair = method.first_pair(data[0].X, *data[1:])
        base: Base
        if method.takes_one_gp:
            base = bases.one_gp(*data)
        else:
            models = bases.promising(bases.learn(*data, pair), *data, pair)
            base = bases.condition(models, *data[:2], pair)
        _note(estimator, base, method, device, len(sides.train))
        points = method.checked(base, *sides.to_calibrate(device))
        ranked = method.ranked(method.scored(base, points), points)
        encoding = getattr(estimator, "encoding_", None)
        return with_unseen_levels(ranked, encoding).with_bounds(sides.bounds)

    with progress.show_progress(estimator.verbose):
        device = choose_device(estimator.device, len(sides.train))
        calibrated = within_memory(device, recipe)
    _warn_of_order(estimator, calibrated)
    leave(estimator, **known, **_results(calibrated, method, bases, sides))


# ------------------------------------------------------------------ what the recipe is given


@dataclass(frozen=True)
class Sides:
    """Rows that models are fitted to, and rows that calibrate them."""

    train: LabelledRows
    """Rows that train, targets within what is plausible; of equal inputs some stand for all."""
    cal: LabelledRows | None
    """Rows that are held out; None for a method that calibrates on those that train."""
    weights: Any
    """Weights of the rows that calibrate."""
    repeats: Repeats | None
    """The rows that train, as they were given, if inputs repeat among them."""
    bounds: Bounds | None
    """Bounds of the target."""
    grouped: bool
    """Whether rows came in groups."""

    def to_learn(self, device: torch.device) -> tuple[Rows, Tensor, Tensor | None]:
        """Rows, targets and groups that models learn from."""
        groups = self.train.groups
        labels = None if groups is None else torch.from_numpy(groups).to(device)
        return self.train.rows(device), as_target(self.train.y, device=device), labels

    def to_calibrate(self, device: torch.device) -> tuple[Any, ...]:
        """Arguments of :meth:`~sharpgp.calibration.recalibrator.Recalibrator.checked`."""
        repeats = None if self.repeats is None else self.repeats.to(device)
        held_out: tuple[Any, ...] = (None, None, None)
        if self.cal is not None:
            held_out = self.cal.rows(), self.cal.y, self.cal.groups
        X, y, groups = held_out
        return X, y, self.weights, self.train.groups, groups, repeats

    @property
    def groups_of_scores(self) -> np.ndarray | None:
        """The groups of the rows that calibrate."""
        if self.cal is not None:
            return self.cal.groups
        several = None if self.repeats is None else self.repeats.groups
        return self.train.groups if several is None else several.numpy()


def guaranteed(train: LabelledRows, cal: LabelledRows | None, weights: Any) -> bool:
    """Whether rows or weights were given that only a held-out part can use."""
    return cal is not None or (weights is not None and train.weight is None)


def chosen_method(estimator: Any, guarantee: bool) -> Recalibrator:
    """The method, with columns that it names as the features that encode them."""
    seed = seed_of(estimator.random_state)
    method = chosen_recalibrator(estimator.calibration, seed, guarantee=guarantee)
    return method.for_columns(columns_of(estimator))


def sides_of(
    estimator: Any,
    method: Recalibrator,
    train: LabelledRows,
    cal: LabelledRows | None,
    weights: Any,
    drawn: np.ndarray | None,
) -> Sides:
    """Rows as a method uses them: copies together, some held out if none are given, checked."""
    seed = seed_of(estimator.random_state)
    train, cal = hold_copies_together(
        *(train, cal, columns_of(estimator)),
        takes_groups=method.takes_groups,
        once=not isinstance(weights, np.ndarray),
        seed=seed or 0,
    )
    grouped = train.groups is not None or (cal is not None and cal.groups is not None)
    given = [train] if cal is None else [train, cal]
    bounds = bounds_for(estimator.y_bounds, *(_distinct_targets(side) for side in given))
    if cal is None and method.needs_calibration:
        rest, out, drawn = split_rows(train, estimator.cal_size, seed, by_row=method.knows_inputs)
        train, cal = train[rest], train[out]
        weights = weights[out] if isinstance(weights, np.ndarray) else weights
    # Held-out rows keep their targets, and do not help to decide which targets are plausible.
    plausible = plausible_range(train.y)
    train, repeats, cal = _rows_to_fit(train, cal, method, seed or 0)
    if repeats is not None and drawn is not None:
        repeats = replace(repeats, drawn=torch.from_numpy(drawn))
    train = replace(train, y=train.y.clip(*plausible))
    check_training_data(train.X, train.y, getattr(estimator, "encoding_", None))
    method.check(len(train), 0 if cal is None else len(cal))
    if method.name == "cv":
        warn_if_few_rows(len(train))
    return Sides(train, cal, weights, repeats, bounds, grouped)


def bases_of(estimator: Any, train: LabelledRows) -> Bases:
    """The models that the estimator's settings name, for these rows."""
    encoding: TableEncoding | None = getattr(estimator, "encoding_", None)
    return Bases(
        estimator.base,
        estimator.approximation,
        estimator.effort,
        seed_of(estimator.random_state),
        feature_names(estimator) if encoding is None else encoding,
        encoding.ties if encoding else None,
        train.roles,
    )


def _distinct_targets(rows: LabelledRows) -> np.ndarray:
    """The targets, without those of copies of other rows."""
    if not has_known_inputs(rows):
        return rows.y
    keys = np.column_stack([rows.input_numbers(), rows.y])
    return rows.y[np.unique(keys, axis=0, return_index=True)[1]]


def _rows_to_fit(
    train: LabelledRows, cal: LabelledRows | None, method: Recalibrator, seed: int
) -> tuple[LabelledRows, Repeats | None, LabelledRows | None]:
    """Rows that models are fitted to, which rows they stand for, and rows that calibrate.

    Of rows with equal inputs, some stand for all, see :mod:`sharpgp.models.repeats`.
    """
    every = train if cal is None else train.joined(cal)
    if _keeps_rows(method, train) or len(every) == int(every.input_numbers().max()) + 1:
        return train, None, cal
    apart = method.knows_inputs and has_known_inputs(every)
    if apart and not method.needs_calibration and cal is not None:
        train, cal = every, None  # all rows train
    if train.noise is not None:
        return *_merged(train, method, apart), cal
    if apart:
        return *_standing_for_others(train, seed), cal
    labels = train.input_numbers()
    few = train.groups is None and not has_known_inputs(train)
    if few or not have_one_target(labels, train.y):
        return train, None, cal
    rows = np.unique(labels, return_index=True)[1]
    if len(rows) < len(train) and not method.knows_inputs:
        warn_of_merging(method.name, len(train) - len(rows), len(train))
    return train[rows], None, cal


def _keeps_rows(method: Recalibrator, train: LabelledRows) -> bool:
    """Whether rows stay as they were given: a splitter or weights tell copies apart."""
    folds = getattr(method, "folds", "auto")
    own = folds == "ordered" if isinstance(folds, str) else not isinstance(folds, Integral)
    return own or train.weight is not None


def _merged(
    train: LabelledRows, method: Recalibrator, apart: bool
) -> tuple[LabelledRows, Repeats | None]:
    """Replicates of known noise as one row each, and the rows that these stand for."""
    holdout = method.needs_calibration
    expands = method.knows_inputs and not holdout and (apart or train.groups is not None)
    if not (holdout or method.takes_one_gp or expands):
        return train, None
    X, y, of = map(torch.from_numpy, (train.X, train.y, train.input_numbers()))
    groups, noise = (
        None if one is None else torch.from_numpy(one) for one in (train.groups, train.noise)
    )
    found = Repeats(X, y, of, of.unique(), 0.0, 1.0, noise, groups)
    return merge_replicates(train), found if apart or expands else None


def _standing_for_others(train: LabelledRows, seed: int) -> tuple[LabelledRows, Repeats]:
    """Rows that stand for those with the same input, and all of them."""
    labels = train.input_numbers()
    rows, targets = fitted_rows(train.X, train.y, labels, seed)
    fitted = labels[rows]
    worth = np.bincount(fitted) / np.bincount(labels)
    own = own_variance(train.y, labels)
    X, y, of = map(torch.from_numpy, (train.X, train.y, labels))
    found = Repeats(X, y, of, of[rows], own, float(worth[fitted].mean()))
    return LabelledRows(train.X[rows], targets), found


# ------------------------------------------------------------------ what a fit says and leaves


def _note(
    estimator: Any, base: Base, method: Recalibrator, device: torch.device, n_rows: int
) -> None:
    """Log what was learned; what follows is shown as calibration."""
    gp = gp_of(base)
    sizes = {} if gp is None else {"inducing inputs": gp.n_inducing, "neighbours": gp.n_neighbours}
    kind = "".join(f", {m} {name}" for name, m in sizes.items() if m is not None)
    logger.log(
        logging.INFO if estimator.verbose > 0 else logging.DEBUG,
        f"learned from {n_rows} rows ({device}{kind}); now {method!r}",
    )
    progress.start_phase("calibrating")


def _warn_of_order(estimator: Any, calibrated: Calibrated) -> None:
    """Warn if errors are alike in the order of a column of dates."""
    encoding: TableEncoding | None = getattr(estimator, "encoding_", None)
    each = calibrated.each_once()
    folds = getattr(getattr(estimator, "calibration", None), "folds", None)
    in_order = isinstance(folds, str) and folds == "ordered"
    if encoding is not None and each is not None and not in_order:
        for date in sorted(encoding.dates & encoding.places.keys()):
            warn_if_correlated(each.scores, each.X_cal[:, encoding.places[date][0]], date)


#: What a fit knows of its rows: names of groups, usual noise, mean weight.
OF_ROWS = ("group_names_", "noise_", "weight_")
#: All that a fit leaves, besides columns and encoding, which :mod:`sharpgp.data.inputs` keeps.
LEFT = (
    *OF_ROWS, "calibrated_", "posterior_", "calibration_", "members_", "policy_", "grouped_",
    "group_scores_", "outputs_", "joint_",
)  # fmt: skip


def leave(estimator: Any, **results: Any) -> None:
    """Put the results of a fit on the estimator, and none of an earlier one; None is left out."""
    unknown = results.keys() - set(LEFT)
    assert not unknown, unknown
    for name in LEFT:
        vars(estimator).pop(name, None)
    vars(estimator).update({k: value for k, value in results.items() if value is not None})


def _results(
    calibrated: Calibrated, method: Recalibrator, bases: Bases, sides: Sides
) -> dict[str, Any]:
    """What a fit of one output leaves."""
    n, d = sides.train.X.shape
    model = getattr(getattr(calibrated, "model", None), "learner", None)
    name = bases.model_names(n, d, one_gp=method.takes_one_gp)[0]
    return {
        "calibrated_": calibrated,
        "posterior_": calibrated.gp,
        "calibration_": method.name or type(method).__name__,
        "members_": members_of(model, name),
        "policy_": bases.policy(n, d, calibrated.device.type),
        "grouped_": sides.grouped,
        "group_scores_": joint_of_groups(calibrated, sides.groups_of_scores),
    }


def check_restored(estimator: Any) -> None:
    """Raise unless the attributes read from a file are consistent."""
    vars(estimator).setdefault("missing", ())  # files of earlier versions have none
    if hasattr(estimator, "outputs_"):
        agree("outputs", {type(one) for one in estimator.outputs_}, {type(estimator)})
        return
    agree("predictor", hasattr(estimator, "calibrated_") and hasattr(estimator, "members_"), True)
    encoding = getattr(estimator, "encoding_", None)
    columns = estimator.n_features_in_ if encoding is None else len(encoding.features)
    agree("features", columns, estimator.calibrated_.n_features)
    posterior = getattr(estimator, "posterior_", None)
    agree("posterior", posterior is estimator.calibrated_.gp, True)
    constant = getattr(estimator, "constant_", None)
    if constant is not None:
        known = set(range(estimator.n_features_in_))
        agree("constant columns", len(constant) == 2 and set(constant[0]) <= known, True)
    names = getattr(estimator, "feature_names_in_", None)
    n_names = estimator.n_features_in_ if names is None else len(names)
    agree("feature names", n_names, estimator.n_features_in_)
