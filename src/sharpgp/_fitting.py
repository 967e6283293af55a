"""From labelled rows to a calibrated predictor: ``fit``, once its arguments are checked."""

import logging
from typing import Any

import torch

from sharpgp import _progress as progress
from sharpgp._fitted import Fitted
from sharpgp._inputs import check_training_data, columns_of, feature_names, seed_of
from sharpgp._rows import Rows, held_out_rows
from sharpgp._validation import as_features, as_target
from sharpgp.bounds import bounds_for
from sharpgp.calibration.calibrated import Calibrated
from sharpgp.calibration.cautions import warn_if_few_rows
from sharpgp.calibration.recalibrator import PosteriorMethod, chosen_recalibrator
from sharpgp.frames.encoding import TableEncoding
from sharpgp.frames.suspicions import plausible_range
from sharpgp.gp.compute import choose_device, within_memory
from sharpgp.gp.posterior import Posterior
from sharpgp.models.bases import Bases
from sharpgp.models.pool import Base, members_of, posterior_of

logger = logging.getLogger("sharpgp")


def fitted(estimator: Any, train: Rows, cal: Rows | None, weights: Any) -> Fitted:
    """Choose the method, hold rows out if it needs any, learn the models, and calibrate them.

    ``estimator`` is asked for its settings, and for what it knows of columns and noise;
    ``weights``, of the rows that calibrate, are an array, a callable or None.
    """
    guarantee = cal is not None or weights is not None
    seed = seed_of(estimator.random_state)
    grouped = train.groups is not None or (cal is not None and cal.groups is not None)
    recalibrator = chosen_recalibrator(
        estimator.calibration,
        len(train),
        seed,
        guarantee=guarantee,
    )
    method = recalibrator.for_columns(columns_of(estimator))
    bounds = bounds_for(estimator.y_bounds, train.y, *([] if cal is None else [cal.y]))
    if cal is None and recalibrator.needs_calibration:
        train, cal, weights = held_out_rows(train, weights, estimator.cal_size, seed)
    # Those that are held out keep their targets, and have no say in what is far.
    X, y, groups = train.X, train.y.clip(*plausible_range(train.y)), train.groups
    encoding: TableEncoding | None = getattr(estimator, "encoding_", None)
    known_noise = hasattr(estimator, "noise_")
    check_training_data(X[:, :-1] if known_noise else X, y, encoding)
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
        settings = {"sample_weight": weights, "groups": groups, "groups_cal": groups_cal}
        return method.fit(base, X_cal, y_cal, **settings).within(bounds)

    with progress.shown(bool(estimator.verbose)):
        calibrated = within_memory(choose_device(estimator.device, len(y)), work)
    name = bases.model_names(*X.shape, one_gp=takes_one)[0]
    unseen = None if cal is None else (as_features(cal.X), as_target(cal.y))
    members = members_of(getattr(calibrated, "model", None), name, unseen)
    return Fitted(calibrated, recalibrator, members, groups if cal is None else cal.groups, grouped)


def _kind(gp: Posterior) -> str:
    """How a GP is approximated, for the log; empty for an exact one."""
    sizes = {"inducing inputs": gp.n_inducing, "neighbours": gp.n_neighbours}
    return "".join(f", {m} {name}" for name, m in sizes.items() if m is not None)
