"""Arguments of ``fit``, checked once and turned into labelled rows."""

from dataclasses import replace
from typing import Any

import numpy as np

from sharpgp._validation import as_numpy, as_target, as_weights
from sharpgp.data.inputs import (
    drop_missing_targets,
    plain,
    read_features,
    take_rows,
    training_data,
)
from sharpgp.data.noise import with_noise
from sharpgp.data.rows import LabelledRows, drop_repetition, group_names, group_numbers
from sharpgp.exceptions import InvalidInputError, warn


def warn_if_misaligned(X: Any, y: Any) -> None:
    """Warn if the rows of a frame and of a series have the same names in different orders.

    Examples
    --------
    >>> import pandas as pd
    >>> warn_if_misaligned(pd.DataFrame({"a": [1, 2]}), pd.Series([3, 4]))
    """
    ours: Any = getattr(X, "index", None)
    theirs: Any = getattr(y, "index", None)
    if not all(hasattr(one, "equals") for one in (ours, theirs)) or ours.equals(theirs):
        return
    if len(ours) == len(theirs) and set(ours) == set(theirs):
        warn(
            "y: its index has the names of X's rows in another order; rows are taken in the order "
            "they stand in. Use y.loc[X.index] if they belong together by name",
            UserWarning,
        )


def labelled_rows(
    estimator: Any,
    X: Any,
    y: Any,
    X_cal: Any,
    y_cal: Any,
    *,
    groups: Any = None,
    groups_cal: Any = None,
    noise: Any = None,
    noise_cal: Any = None,
    sample_weight: Any = None,
    sample_weight_cal: Any = None,
) -> tuple[LabelledRows, LabelledRows | None, Any, dict[str, Any]]:
    """Training rows, calibration rows if given, weights of the rows that calibrate, and the rest.

    The rest is what a fit leaves of its rows, by name: names of groups, usual noise, mean weight.
    Names of columns and their encoding are set on the estimator on the way.
    """
    if sample_weight is not None and X_cal is None:
        sample_weight_cal = sample_weight
    given_rows = X, y, groups, noise, sample_weight, sample_weight_cal
    X, y, groups, noise, sample_weight, *own = drop_missing_targets(*given_rows)
    cal, n_cal = None, 0
    if X_cal is None:
        (sample_weight_cal,) = own
        if groups_cal is not None:
            raise InvalidInputError("groups_cal: expected it with X_cal, found it alone")
    else:
        given = drop_missing_targets(X_cal, y_cal, groups_cal, noise_cal, sample_weight_cal)
        X_cal, y_cal, groups_cal, noise_cal, sample_weight_cal = given
    X, y = training_data(estimator, X, y)
    y = as_numpy(as_target(y))
    if X_cal is not None:
        X_cal = read_features(estimator, X_cal)
        n_cal = len(X_cal)
        y_cal = as_numpy(as_target(plain(y_cal), n_rows=n_cal))
    of_train, of_cal = group_numbers(groups, len(y), groups_cal, n_cal)
    known: dict[str, Any] = {}
    if groups is not None:
        known["group_names_"] = group_names(groups, groups_cal)
    train = LabelledRows(X, y, of_train)
    if X_cal is not None:
        cal = LabelledRows(X_cal, y_cal, of_cal)
    weights = sample_weight_cal
    if not (weights is None or callable(weights)):
        weights = as_numpy(as_weights(plain(weights), n_rows=n_cal or len(y)))
    if sample_weight is not None:
        known["weight_"] = float(np.mean(sample_weight))
        train = replace(train, weight=sample_weight / known["weight_"])
    if noise is not None or noise_cal is not None:
        train, cal, known["noise_"] = with_noise(train, cal, noise, noise_cal)
    return *drop_repetition(train, cal, weights), known


def positive_weights(X: Any, y: Any, groups: Any, sample_weight: Any) -> tuple[Any, Any, Any, Any]:
    """Rows with positive weight: inputs, targets, groups, weights (n,) or None if all are equal.

    Examples
    --------
    >>> X, y, groups, weights = positive_weights(np.eye(3), [1.0, 2.0, 3.0], None, [2, 0, 1])
    >>> y, weights
    ([1.0, 3.0], array([2., 1.]))
    """
    if sample_weight is None:
        return X, y, groups, None
    y = y if hasattr(y, "__len__") else np.asarray(y)
    weights = as_numpy(as_weights(plain(sample_weight), n_rows=len(y)))
    kept = np.flatnonzero(weights > 0)
    if not kept.size:
        raise InvalidInputError("sample_weight: expected some above zero, found none")
    if kept.size < len(weights):
        X, y, groups = (None if one is None else take_rows(one, kept) for one in (X, y, groups))
        weights = weights[kept]
    return X, y, groups, weights if np.ptp(weights) > 0 else None


def check_pair(X_cal: Any, y_cal: Any) -> None:
    """Raise if only one of ``X_cal`` and ``y_cal`` is given."""
    if (X_cal is None) != (y_cal is None):
        given, missing = ("X_cal", "y_cal") if y_cal is None else ("y_cal", "X_cal")
        raise InvalidInputError(
            f"expected both X_cal and y_cal, found {given} only; give {missing} too"
        )
