"""Finite-sample exact calibration: the spread from training data, ``beta`` from held-out data."""

import copy
from collections.abc import Callable, Mapping, Sequence
from numbers import Integral
from typing import Any

import numpy as np
from numpy.typing import ArrayLike
from torch import Tensor

from sharpgp._validation import as_labels, as_target, as_weights, check_choice
from sharpgp.calibration.methods.cross_validation import split_points
from sharpgp.calibration.predictors.base import Calibrated
from sharpgp.calibration.predictors.covariate_shift import Weights
from sharpgp.calibration.predictors.known_groups import known_groups
from sharpgp.calibration.predictors.scored import ScoredPredictor
from sharpgp.calibration.predictors.seen_or_new import from_held_out
from sharpgp.calibration.recalibrator import CalibrationPoints, Recalibrator, Scored, register
from sharpgp.data.folds import Split, one_per_label, row_labels
from sharpgp.exceptions import InvalidInputError
from sharpgp.models.model import HeldOut
from sharpgp.models.pool import Base, candidates, inputs_of, pooled_out_of_fold
from sharpgp.models.repeats import Repeats
from sharpgp.models.splitters import learning_pairs
from sharpgp.rows import Rows


@register("exact")
class Exact(Recalibrator):
    r"""Calibration with a finite-sample guarantee for exchangeable data.

    The spread ``sigma_total(x)`` (hyperparameters ``theta`` and scale model) is learned from
    leave-one-out quantities of the training data alone; ``beta(delta) = q_lin(delta, z)`` with
    ``z_i = score(x_i, y_i)`` on the calibration data.  Since a new point's
    score is exchangeable with those scores, ``P(y <= Q(delta)) = delta`` at
    ``delta = j/(C+1)``, and within ``1/(C+1)`` of it in between.  Intervals take whole ranks, so
    that ``coverage <= P(y in interval) <= coverage + 1/(C+1)`` for the symmetric band and
    ``+ 2/(C+1)`` for the centred interval.  Ties among the scores can only raise these coverages.

    Parameters
    ----------
    one_per_group : bool
        Calibrate with one random point of each group of calibration points.  Where groups, not
        rows, are exchangeable, all of the above then holds for a random point of a new group, with
        the number of groups ``G`` in place of ``C``.  With all points (the default), those of a
        group share the weight of one, and intervals cover with a probability of at least
        ``coverage``, and at most ``2/(G+1)`` more (``4/(G+1)`` if centred).
    by : str, int or callable, optional
        Coverage within each class: a column, by name or position, whose values are the classes, or
        a function of the features (n, d) that returns a number for each row's class.  See
        :class:`sharpgp.calibration.predictors.parts.Parts`.
    random_state
        As in every recalibrator; the seed draws parts, and points of groups.

    References
    ----------
    V. Vovk, A. Gammerman and G. Shafer, *Algorithmic Learning in a Random World*, 2005.

    Examples
    --------
    >>> import torch
    >>> from sharpgp.gp.training import train
    >>> X = torch.linspace(0, 6, 90, dtype=torch.float64)[:, None]
    >>> y = X[:, 0].sin() + 0.1 * torch.cos(37 * X[:, 0])
    >>> posterior, _ = train(X[::2], y[::2])
    >>> calibrated = Exact().fit(posterior, X[1::2], y[1::2])
    >>> ends = calibrated.predict_interval(X[1::2], coverage=0.9)
    >>> inside = (ends[:, 0] <= y[1::2]) & (y[1::2] <= ends[:, 1])
    >>> int(inside.sum())  # of 45 calibration points: ceil(0.9 * 46)
    42
    """

    knows_inputs = True

    def __init__(
        self,
        *,
        one_per_group: bool = False,
        by: str | int | Callable[[np.ndarray], ArrayLike] | None = None,
        random_state: int | None = None,
    ) -> None:
        super().__init__(random_state=random_state)
        self.one_per_group = one_per_group
        self.by: Any = by

    @property
    def takes_groups(self) -> bool:  # type: ignore[override]
        """Classes and groups are not combined."""
        return self.by is None

    def checked(
        self,
        base: Base,
        X_cal: ArrayLike | Rows | None,
        y_cal: ArrayLike | None,
        sample_weight: Weights | None = None,
        groups: ArrayLike | None = None,
        groups_cal: ArrayLike | None = None,
        repeats: Repeats | None = None,
    ) -> CalibrationPoints:
        """``one_per_group`` picks a point of each of ``groups_cal``."""
        if self.by is not None and sample_weight is not None:
            raise InvalidInputError("by: expected calibration without weights, found some")
        if self.by is not None and groups_cal is not None and not self.one_per_group:
            raise InvalidInputError(
                "by: expected rows without groups, or one_per_group=True, found groups"
            )
        if self.one_per_group:
            if groups_cal is None:
                raise InvalidInputError(
                    "one_per_group: expected the groups of the calibration points, found none; "
                    "give groups to fit, and groups_cal with X_cal"
                )
            device = inputs_of(base).device
            every = Rows.checked(X_cal, device=device)
            n = len(every)
            rows = one_per_label(as_labels(groups_cal, n_rows=n, device=device), self.seed)
            given: Any = every[rows]
            X_cal, y_cal = given, as_target(y_cal, n_rows=n, device=device)[rows]
            groups_cal = None
            if not (sample_weight is None or callable(sample_weight)):
                sample_weight = as_weights(sample_weight, n_rows=n, device=device)[rows]
        roles = sample_weight, groups, groups_cal, repeats
        found = super().checked(base, X_cal, y_cal, *roles)
        if self.by is not None:
            self._classes(found.rows.n_features)  # refuses what is no class, before any score
        return found

    def first_pair(self, X: Tensor, y: Tensor, groups: Tensor | None) -> Split | None:
        return learning_pairs(row_labels(X, groups), self.seed)[0] if len(y) >= 4 else None

    def _scored(self, base: Base, points: CalibrationPoints) -> Scored:
        groups = points.groups_train
        labels = None if groups is None else row_labels(inputs_of(base), groups)
        models = candidates(base, self.seed, labels)
        model = next(iter(models.values()))
        if not isinstance(base, Mapping):
            return Scored(model, groups=groups)
        # Everything comes from the training points alone, so the guarantee still holds.
        rows = inputs_of(models), model.y_train
        labels, pairs = split_points("auto", *rows, groups, self.seed)
        found = pooled_out_of_fold(models, pairs, labels, self.seed, drawn=True)
        return Scored(*found, pairs, groups=groups)

    def _ranked(self, scored: Scored, points: CalibrationPoints) -> Calibrated:
        model, held, pairs = scored.model, scored.held, scored.pairs
        classes = None if self.by is None else self._classes(points.rows.n_features)
        if points.repeats is not None:

            def without() -> HeldOut:
                inputs = row_labels(inputs_of(model))
                return model.leave_one_out(inputs, self.seed) if held is None else held

            data = points.repeats, points.rows, points.y
            return from_held_out(model, without, *data, by=classes)
        found = ScoredPredictor.from_model(model, points.rows, points.y)
        if classes is not None:
            return found.within(classes)
        if points.groups is None:
            return found
        of_groups: Any = found.for_groups(points.groups)
        groups = scored.groups
        if groups is not None and of_groups.counted == "groups":
            if pairs is None:
                pairs = split_points("auto", model.X_train, model.y_train, groups, self.seed)[1]
            of_groups.trained_groups = groups.unique()
            of_groups.by_group = known_groups(model, groups, pairs, held, of_groups, points.groups)
        return of_groups

    def _classes(self, n_features: int) -> Any:
        """Features that define the class, or a function."""
        if callable(self.by):
            return self.by
        columns = self.by if isinstance(self.by, tuple) else (self.by,)
        if not all(isinstance(j, Integral) and 0 <= int(j) < n_features for j in columns):
            raise InvalidInputError(
                f"by: expected a column's name, its position below {n_features}, or a function, "
                f"found {self.by!r}"
            )
        return columns

    def for_columns(self, features: Mapping[str, Sequence[int]]) -> "Exact":
        """``by`` as the features of that column."""
        names = list(features)
        name = names[self.by] if isinstance(self.by, int) and self.by < len(names) else self.by
        if not (names and isinstance(name, str)):
            return self
        check_choice(name, "by", names)
        if not features[name]:
            raise InvalidInputError(
                f"by: expected a column with several classes, found {name!r}, which the model does "
                "not use"
            )
        other = copy.copy(self)
        other.by = tuple(features[name])
        return other
