"""What a fit leaves on an estimator: kept, forgotten by the next one, checked in files."""

from dataclasses import dataclass
from typing import Any

import numpy as np

from sharpgp._stored import agree
from sharpgp.calibration.calibrated import Calibrated
from sharpgp.calibration.recalibrator import Recalibrator
from sharpgp.models.pool import Member
from sharpgp.outputs import joint_of_groups
from sharpgp.policy import Policy

# What a fit may leave behind, and the next one need not set.
_OPTIONAL = ("calibrated_", "posterior_", "members_", "outputs_", "joint_", "group_scores_")


@dataclass(frozen=True)
class Fitted:
    """What a fit of one output has found.

    Attributes
    ----------
    calibrated : Calibrated
    recalibrator : Recalibrator
        The method that made it.
    members : list of Member
        What was pooled.
    groups : array or None
        Those of the rows that calibrate.
    grouped : bool
        Whether the user gave any.
    policy : Policy
    """

    calibrated: Calibrated
    recalibrator: Recalibrator
    members: list[Member]
    groups: np.ndarray | None
    grouped: bool
    policy: Policy

    def keep_on(self, estimator: Any) -> None:
        """Set the attributes that end in an underscore."""
        estimator.calibrated_ = self.calibrated
        estimator.calibration_ = self.recalibrator.name or type(self.recalibrator).__name__
        estimator.members_ = self.members
        if self.calibrated.gp is not None:
            estimator.posterior_ = self.calibrated.gp
        estimator.grouped_ = self.grouped
        estimator.policy_ = self.policy
        joint = joint_of_groups(self.calibrated, self.groups)
        if joint is not None:
            estimator.group_scores_ = joint


def forget(estimator: Any) -> None:
    """Remove what an earlier fit has left, so that none of it stays beside the new one."""
    for name in _OPTIONAL:
        vars(estimator).pop(name, None)


def check_restored(estimator: Any) -> None:
    """Raise unless the attributes that a file gave an estimator go together."""
    vars(estimator).setdefault("missing", ())  # files of earlier versions have none
    if hasattr(estimator, "outputs_"):
        agree("outputs", {type(one) for one in estimator.outputs_}, {type(estimator)})
        return
    agree("predictor", hasattr(estimator, "calibrated_") and hasattr(estimator, "members_"), True)
    encoding = getattr(estimator, "encoding_", None)
    columns = estimator.n_features_in_ if encoding is None else len(encoding.features)
    beside = hasattr(estimator, "noise_") + hasattr(estimator, "weight_")
    agree("features", columns + beside, estimator.calibrated_.n_features)
    posterior = getattr(estimator, "posterior_", None)
    agree("posterior", posterior is estimator.calibrated_.gp, True)
    constant = getattr(estimator, "constant_", None)
    if constant is not None:
        known = set(range(estimator.n_features_in_))
        agree("constant columns", len(constant) == 2 and set(constant[0]) <= known, True)
    names = getattr(estimator, "feature_names_in_", None)
    n_names = estimator.n_features_in_ if names is None else len(names)
    agree("feature names", n_names, estimator.n_features_in_)
