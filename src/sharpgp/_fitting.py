"""From labelled rows to a calibrated predictor: ``fit``, once its arguments are checked."""

import logging
from dataclasses import replace
from numbers import Integral
from typing import Any

import numpy as np
import torch

from sharpgp import _progress as progress
from sharpgp._fitted import Fitted
from sharpgp._inputs import check_training_data, columns_of, feature_names, seed_of
from sharpgp._rows import Rows, held_out_rows, known_apart
from sharpgp._validation import as_features, as_target
from sharpgp.bounds import bounds_for
from sharpgp.calibration.calibrated import Calibrated
from sharpgp.calibration.cautions import warn_if_correlated, warn_if_few_rows
from sharpgp.calibration.methods.cross_validated import WithoutHoldout
from sharpgp.calibration.recalibrator import PosteriorMethod, Recalibrator, chosen_recalibrator
from sharpgp.calibration.scored import ScoredPredictor
from sharpgp.frames.encoding import TableEncoding
from sharpgp.frames.suspicions import plausible_range
from sharpgp.gp.compute import choose_device, within_memory
from sharpgp.gp.posterior import Posterior
from sharpgp.models.bases import Bases
from sharpgp.models.pool import Base, members_of, posterior_of
from sharpgp.models.repeats import Repeats, SeenModel, agrees, fitted_rows, own_variance
from sharpgp.noise import merged

logger = logging.getLogger("sharpgp")


def fitted(estimator: Any, train: Rows, cal: Rows | None, weights: Any) -> Fitted:
    """Choose the method, hold rows out if it needs any, learn the models, and calibrate them.

    ``estimator`` is asked for its settings, and for what it knows of columns and noise;
    ``weights``, of the rows that calibrate, are an array, a callable or None.
    """
    guarantee = cal is not None or (weights is not None and not train.weighted)
    seed = seed_of(estimator.random_state)
    grouped = train.groups is not None or (cal is not None and cal.groups is not None)
    recalibrator = chosen_recalibrator(
        estimator.calibration,
        len(train),
        seed,
        guarantee=guarantee,
    )
    method = recalibrator.for_columns(columns_of(estimator))
    sides = [train] if cal is None else [train, cal]
    bounds = bounds_for(estimator.y_bounds, *(_targets(side) for side in sides))
    drawn = None
    if cal is None and recalibrator.needs_calibration:
        split = held_out_rows(
            train, weights, estimator.cal_size, seed, by_row=recalibrator.knows_inputs
        )
        train, cal, weights, drawn = split
    # Those that are held out keep their targets, and have no say in what is far.
    plausible = plausible_range(train.y)
    train, repeats, cal = _fitted_to(train, cal, recalibrator, seed or 0)
    if repeats is not None and drawn is not None:
        repeats = replace(repeats, drawn=torch.from_numpy(drawn))
    X, y, groups = train.X, train.y.clip(*plausible), train.groups
    encoding: TableEncoding | None = getattr(estimator, "encoding_", None)
    known_noise = hasattr(estimator, "noise_")
    check_training_data(train.inputs, y, encoding)
    method.check(len(y), 0 if cal is None else len(cal))
    if recalibrator.name == "cv":
        warn_if_few_rows(len(y))
    held_out = (None, None, None) if cal is None else (cal.X, cal.y, cal.groups)

    bases = Bases(
        estimator.base,
        estimator.approximation,
        estimator.effort,
        seed,
        encoding if encoding is not None and not known_noise else feature_names(estimator),
        encoding.ties if encoding else None,
        known_noise,
        train.weighted,
    )
    takes_one = isinstance(recalibrator, PosteriorMethod)

    def work(device: torch.device) -> Calibrated:
        labels = None if groups is None else torch.from_numpy(groups).to(device)
        data = as_features(X, device=device), as_target(y, device=device), labels
        base: Base = bases.one_gp(*data) if takes_one else bases.learned(*data)
        kind = _kind(posterior_of(base))
        logger.log(
            logging.INFO if estimator.verbose else logging.DEBUG,
            f"learned from {len(y)} rows ({device}{kind}); now {recalibrator!r}",
        )
        progress.begin("calibrating")
        X_cal, y_cal, groups_cal = held_out
        settings = {
            "sample_weight": weights,
            "groups": groups,
            "groups_cal": groups_cal,
            "repeats": None if repeats is None else repeats.to(device),
        }
        return method.fit(base, X_cal, y_cal, **settings).within(bounds)

    of_calibration = groups if cal is None else cal.groups
    if cal is None and repeats is not None and repeats.groups is not None:
        of_calibration = repeats.groups.numpy()
    with progress.shown(bool(estimator.verbose)):
        calibrated = within_memory(choose_device(estimator.device, len(y)), work)
    if encoding is not None and isinstance(calibrated, ScoredPredictor):
        for date in sorted(encoding.dates & encoding.places.keys()):
            times = calibrated.X_cal[:, encoding.places[date][0]]
            warn_if_correlated(calibrated.scores, times, date)
    name = bases.model_names(*X.shape, one_gp=takes_one)[0]
    model = getattr(calibrated, "model", None)
    unseen = None if cal is None else (as_features(cal.X), as_target(cal.y))
    members = members_of(model.model if isinstance(model, SeenModel) else model, name, unseen)
    return Fitted(calibrated, recalibrator, members, of_calibration, grouped)


def _targets(rows: Rows) -> np.ndarray:
    """Targets, of which those of copies count once."""
    if not known_apart(rows):
        return rows.y
    keys = np.column_stack([rows.input_numbers(), rows.y])
    return rows.y[np.unique(keys, axis=0, return_index=True)[1]]


def _fitted_to(
    train: Rows, cal: Rows | None, method: Recalibrator, seed: int
) -> tuple[Rows, Repeats | None, Rows | None]:
    """Rows that models are fitted to, what they stand for, and rows that calibrate.

    Fewer rows stand for rows with equal inputs, see :mod:`sharpgp.models.repeats`.
    """
    given = not isinstance(getattr(method, "folds", "auto"), str | Integral)
    every = train if cal is None else train.joined(cal)
    if given or train.weighted or len(every) == int(every.input_numbers().max()) + 1:
        return train, None, cal
    apart, holdout = method.knows_inputs and known_apart(every), method.needs_calibration
    if apart and not holdout and cal is not None:
        train, cal = every, None  # all rows train
    labels = train.input_numbers()
    X, y, of = torch.from_numpy(train.X), torch.from_numpy(train.y), torch.from_numpy(labels)
    if train.known_noise:
        expands = method.knows_inputs and not holdout and (apart or train.groups is not None)
        if isinstance(method, WithoutHoldout) and not expands:
            return train, None, cal
        groups = None if train.groups is None else torch.from_numpy(train.groups)
        found = Repeats(X, y, of, of.unique(), 0.0, 1.0, True, groups)
        return merged(train), found if apart or expands else None, cal
    if apart:
        rows, targets = fitted_rows(train.X, train.y, labels, seed)
        fitted = labels[rows]
        worth = np.bincount(fitted) / np.bincount(labels)
        own = own_variance(train.y, labels)
        found = Repeats(X, y, of, of[rows], own, float(worth[fitted].mean()))
        return Rows(train.X[rows], targets), found, cal
    few = train.groups is None and not known_apart(train)
    if few or not agrees(labels, train.y):
        return train, None, cal
    return train[np.unique(labels, return_index=True)[1]], None, cal


def _kind(gp: Posterior) -> str:
    """How a GP is approximated, for the log; empty for an exact one."""
    sizes = {"inducing inputs": gp.n_inducing, "neighbours": gp.n_neighbours}
    return "".join(f", {m} {name}" for name, m in sizes.items() if m is not None)
