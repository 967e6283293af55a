"""From labelled rows to a calibrated predictor, and what a fit leaves on the estimator."""

import logging
from collections.abc import Mapping
from dataclasses import replace
from numbers import Integral
from typing import Any

import numpy as np
import torch

from sharpgp import _progress as progress
from sharpgp._stored import agree
from sharpgp._validation import as_numpy, as_target, as_weights
from sharpgp.calibration.cautions import warn_if_correlated, warn_if_few_rows, warn_of_merging
from sharpgp.calibration.methods.cross_validation import WithoutHoldout
from sharpgp.calibration.predictors.base import Calibrated
from sharpgp.calibration.recalibrator import PosteriorMethod, Recalibrator, chosen_recalibrator
from sharpgp.data.encoding import TableEncoding
from sharpgp.data.far_targets import warn_of_far_targets
from sharpgp.data.fit_arguments import (
    check_pair,
    labelled_rows,
    positive_weights,
    warn_if_misaligned,
)
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
from sharpgp.data.target_bounds import bounds_for
from sharpgp.exceptions import InvalidInputError
from sharpgp.gp.compute import choose_device, within_memory
from sharpgp.gp.posterior import Posterior
from sharpgp.models.bases import Bases
from sharpgp.models.pool import Base, members_of
from sharpgp.models.repeats import Repeats, SeenModel, fitted_rows, own_variance
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
    if hasattr(y, "__len__") and len(y) == 0:
        raise InvalidInputError("y: expected at least two rows, found none")
    warn_if_misaligned(X, y)
    y, y_cal = read_targets(estimator, y), read_targets(estimator, y_cal)
    forget(estimator)
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
        fit_outputs(estimator, X, y, X_cal, y_cal, more, fit)
    else:
        rows = labelled_rows(estimator, X, y, X_cal, y_cal, **more)
        _fit_rows(estimator, *rows, drawn)


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
    _fit_rows(estimator, *drop_repetition(everything, None, weights))


def _fit_rows(
    estimator: Any,
    train: LabelledRows,
    cal: LabelledRows | None,
    weights: Any,
    drawn: np.ndarray | None = None,
) -> None:
    """Choose the method, hold out rows if it needs them, learn the models, and calibrate them.

    Settings come from the estimator, and results are set on it.  ``weights`` of the calibration
    rows: an array, a callable or None.  ``drawn``: which rows of ``cal`` were held out one by one;
    None for all.
    """
    guarantee = cal is not None or (weights is not None and train.weight is None)
    seed = seed_of(estimator.random_state)
    recalibrator = chosen_recalibrator(estimator.calibration, seed, guarantee=guarantee)
    train, cal = hold_copies_together(
        *(train, cal, columns_of(estimator)),
        takes_groups=recalibrator.takes_groups,
        once=not isinstance(weights, np.ndarray),
        seed=seed or 0,
    )
    grouped = train.groups is not None or (cal is not None and cal.groups is not None)
    method = recalibrator.for_columns(columns_of(estimator))
    sides = [train] if cal is None else [train, cal]
    bounds = bounds_for(estimator.y_bounds, *(_distinct_targets(side) for side in sides))
    if cal is None and recalibrator.needs_calibration:
        by_row = recalibrator.knows_inputs
        rest, out, drawn = split_rows(train, estimator.cal_size, seed, by_row=by_row)
        train, cal = train[rest], train[out]
        weights = weights[out] if isinstance(weights, np.ndarray) else weights
    # Held-out rows keep their targets, and do not help to decide which targets are plausible.
    plausible = plausible_range(train.y)
    train, repeats, cal = _rows_to_fit(train, cal, recalibrator, seed or 0)
    if repeats is not None and drawn is not None:
        repeats = replace(repeats, drawn=torch.from_numpy(drawn))
    y, groups = train.y.clip(*plausible), train.groups
    encoding: TableEncoding | None = getattr(estimator, "encoding_", None)
    check_training_data(train.X, y, encoding)
    method.check(len(y), 0 if cal is None else len(cal))
    if recalibrator.name == "cv":
        warn_if_few_rows(len(y))
    held_out = (None, None, None) if cal is None else (cal.rows(), cal.y, cal.groups)

    bases = Bases(
        estimator.base,
        estimator.approximation,
        estimator.effort,
        seed,
        feature_names(estimator) if encoding is None else encoding,
        encoding.ties if encoding else None,
        train.roles,
    )
    takes_one = isinstance(recalibrator, PosteriorMethod)

    def work(device: torch.device) -> Calibrated:
        labels = None if groups is None else torch.from_numpy(groups).to(device)
        data = train.rows(device), as_target(y, device=device), labels
        base: Base
        if takes_one:
            base = bases.one_gp(*data)
        else:
            base = bases.learned(*data, method.first_pair(data[0].X, *data[1:]))
        kind = _approximation(base)
        logger.log(
            logging.INFO if estimator.verbose > 0 else logging.DEBUG,
            f"learned from {len(y)} rows ({device}{kind}); now {recalibrator!r}",
        )
        progress.start_phase("calibrating")
        X_cal, y_cal, groups_cal = held_out
        settings = {
            "sample_weight": weights,
            "groups": groups,
            "groups_cal": groups_cal,
            "repeats": None if repeats is None else repeats.to(device),
        }
        return method.fit(base, X_cal, y_cal, **settings).with_bounds(bounds)

    cal_groups = groups if cal is None else cal.groups
    if cal is None and repeats is not None and repeats.groups is not None:
        cal_groups = repeats.groups.numpy()
    with progress.show_progress(estimator.verbose):
        calibrated = within_memory(choose_device(estimator.device, len(y)), work)
    each = calibrated.each_once()
    if encoding is not None and each is not None:
        for date in sorted(encoding.dates & encoding.places.keys()):
            warn_if_correlated(each.scores, each.X_cal[:, encoding.places[date][0]], date)
    estimator.calibrated_ = calibrated
    estimator.calibration_ = recalibrator.name or type(recalibrator).__name__
    name = bases.model_names(*train.X.shape, one_gp=takes_one)[0]
    model = getattr(calibrated, "model", None)
    estimator.members_ = members_of(model.model if isinstance(model, SeenModel) else model, name)
    if calibrated.gp is not None:
        estimator.posterior_ = calibrated.gp
    estimator.grouped_ = grouped
    estimator.policy_ = bases.policy(len(train), train.X.shape[1], calibrated.device.type)
    joint = joint_of_groups(calibrated, cal_groups)
    if joint is not None:
        estimator.group_scores_ = joint


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
    given = not isinstance(getattr(method, "folds", "auto"), str | Integral)
    every = train if cal is None else train.joined(cal)
    if given or train.weight is not None or len(every) == int(every.input_numbers().max()) + 1:
        return train, None, cal
    apart, holdout = method.knows_inputs and has_known_inputs(every), method.needs_calibration
    if apart and not holdout and cal is not None:
        train, cal = every, None  # all rows train
    labels = train.input_numbers()
    X, y, of = torch.from_numpy(train.X), torch.from_numpy(train.y), torch.from_numpy(labels)
    if train.noise is not None:
        expands = method.knows_inputs and not holdout and (apart or train.groups is not None)
        if isinstance(method, WithoutHoldout) and not expands:
            return train, None, cal
        groups = None if train.groups is None else torch.from_numpy(train.groups)
        noise = torch.from_numpy(train.noise)
        found = Repeats(X, y, of, of.unique(), 0.0, 1.0, noise, groups)
        return merge_replicates(train), found if apart or expands else None, cal
    if apart:
        rows, targets = fitted_rows(train.X, train.y, labels, seed)
        fitted = labels[rows]
        worth = np.bincount(fitted) / np.bincount(labels)
        own = own_variance(train.y, labels)
        found = Repeats(X, y, of, of[rows], own, float(worth[fitted].mean()))
        return LabelledRows(train.X[rows], targets), found, cal
    few = train.groups is None and not has_known_inputs(train)
    if few or not have_one_target(labels, train.y):
        return train, None, cal
    rows = np.unique(labels, return_index=True)[1]
    if len(rows) < len(train) and not method.knows_inputs:
        warn_of_merging(method.name, len(train) - len(rows), len(train))
    return train[rows], None, cal


def _approximation(base: Base) -> str:
    """How the first GP is approximated, for the log; empty if it is exact or absent."""
    models = base.values() if isinstance(base, Mapping) else [base]
    gps = (one if isinstance(one, Posterior) else one.gp for one in models)
    gp = next((one for one in gps if one is not None), None)
    if gp is None:
        return ""
    sizes = {"inducing inputs": gp.n_inducing, "neighbours": gp.n_neighbours}
    return "".join(f", {m} {name}" for name, m in sizes.items() if m is not None)


# Attributes that some fits set and others do not.
_OPTIONAL = ("calibrated_", "posterior_", "members_", "outputs_", "joint_", "group_scores_")


def forget(estimator: Any) -> None:
    """Remove the results of an earlier fit, so that none stays beside new ones."""
    for name in _OPTIONAL:
        vars(estimator).pop(name, None)


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
