"""Calibration without a holdout: every point trains and every point calibrates."""

from numbers import Integral
from typing import Any

import torch
from numpy.typing import ArrayLike
from torch import Tensor

from sharpgp.calibration.predictors.base import Calibrated
from sharpgp.calibration.predictors.known_groups import known_groups
from sharpgp.calibration.predictors.scored import ScoredPredictor
from sharpgp.calibration.predictors.seen_or_new import from_left_out
from sharpgp.calibration.recalibrator import CalibrationPoints, Recalibrator, Scored, register
from sharpgp.data.folds import Split, check_several, row_labels
from sharpgp.exceptions import InvalidInputError, warn
from sharpgp.gp.posterior import Posterior
from sharpgp.models.model import Learner
from sharpgp.models.pool import Base, candidates, inputs_of, pooled_out_of_fold
from sharpgp.models.splitters import Folds, check_folds, learning_pairs, splits
from sharpgp.policy import LEARNINGS
from sharpgp.rows import Rows


class WithoutHoldout(Recalibrator):
    """A method that calibrates on its training points, each scored by fits that have not seen it.

    Calibration data, if given, first join the training data in a refit, so that nothing is wasted.
    """

    needs_calibration = False

    def fit(
        self,
        base: Base,
        X_cal: ArrayLike | Rows | None = None,
        y_cal: ArrayLike | None = None,
        **roles: Any,
    ) -> Calibrated:
        """Calibrate on the training data of ``base``, and on the calibration data if given.

        ``sample_weight`` has one entry per point of both, training points first.
        """
        return super().fit(base, X_cal, y_cal, **roles)

    def _weighted(self, found: Calibrated, points: CalibrationPoints) -> Calibrated:
        n_points = found.n_train if points.repeats is None else len(points.repeats.y)
        each = found.each_once()
        n_scored = n_points if each is None or len(each.parts) > 1 else len(each.scores)
        if not callable(points.weights) and n_scored != n_points:
            raise InvalidInputError(
                "sample_weight: expected a function of X, as some points are in no test fold, "
                f"found numbers, where {n_scored} of {n_points} points calibrate"
            )
        return super()._weighted(found, points)

    def _ranked(self, scored: Scored, points: CalibrationPoints) -> Calibrated:
        model, held, groups = scored.model, scored.held, scored.groups
        assert held is not None
        if points.repeats is not None:
            return from_left_out(model, held, points.repeats)
        found = ScoredPredictor.from_training(model, held)
        if groups is None:
            return found
        of_rows = groups[held.rows]
        of_groups: Any = found.for_groups(of_rows)
        if self.knows_inputs and of_groups.counted == "groups":
            of_groups.trained_groups = groups.unique()
            pairs: Any = scored.pairs
            of_groups.by_group = known_groups(model, groups, pairs, held, of_groups, of_rows)
        return of_groups

    def _everything(
        self, base: Base, points: CalibrationPoints
    ) -> tuple[dict[str, Learner], Tensor | None]:
        """Models learned from all points, and the groups of these."""
        groups = points.groups_train
        if len(points.y):
            groups = _both(groups, points.groups)
            base = _with_more(base, points.rows, points.y, groups, self.seed)
        labels = None if groups is None else row_labels(inputs_of(base), groups)
        models = candidates(base, self.seed, labels)
        n = len(next(iter(models.values())).y_train)
        if n < 4:
            raise InvalidInputError(
                f"cv: expected at least 4 points to cross-validate with, found {n}; add data"
            )
        return models, groups


def split_points(
    folds: Any, X: Tensor, y: Tensor, groups: Tensor | None, seed: int
) -> tuple[Tensor, list[Split]]:
    """Labels [N] of points that belong together, and the splits given by ``folds``."""
    labels, auto = row_labels(X, groups), _is_auto(folds)
    if auto:
        check_several(len(labels.unique()))
    pairs = learning_pairs(labels, seed) if auto else splits(folds, X, y, groups, seed)
    wanted = LEARNINGS if auto else folds
    if groups is not None and isinstance(wanted, Integral) and len(pairs) < int(wanted):
        warn(
            f"{len(pairs)} groups for {wanted} folds: every group is left out in turn; "
            "intervals for new groups are based on few"
        )
    return labels, pairs


def _is_auto(folds: Any) -> bool:
    return isinstance(folds, str) and folds == "auto"


@register("cv")
class CrossValidated(WithoutHoldout):
    r"""No holdout: every point trains, and calibrates by models fitted without it.

    The whole pipeline (mean, ``theta``, scale model) is fitted from scratch without each of
    ``folds`` parts; the z-scores of the parts left out are pooled, and
    ``beta(delta) = q_lin(delta, z)``.  The average of these refits predicts.  Several models are
    weighted by the same scores.  With ``folds="auto"``, GPs learn from parts of the rows and are
    conditioned on all of them.  Every point is predicted from all others by learnings that have not
    seen it.  Coverage is nominal in practice, but without a finite-sample guarantee.  See
    :func:`sharpgp.models.pool.pooled_out_of_fold`.

    Parameters
    ----------
    folds : "auto", int, "ordered", splitter or list of pairs
        Number of parts (``"auto"``: five).  Points that belong together (equal inputs, groups given
        to ``fit``; see :func:`~sharpgp.data.folds.row_labels`) share a part.  ``"ordered"``
        is for rows in order of time: five tests, each predicted from all rows before it.  Or a
        scikit-learn splitter, or pairs (rows to train on, rows to test with): each refit then
        trains on its rows only, and points that no pair tests do not calibrate.  Order keeps the
        newest rows from most refits, so that fits to all rows predict.
    random_state
        As in every recalibrator; the seed draws the parts.

    Notes
    -----
    ``fit(posterior, None, None)`` uses the posterior's own training data.  Given calibration data,
    it first retrains the GP on both together.  Parts run in parallel, one per thread, in as many
    threads as torch has; results do not depend on how many.

    References
    ----------
    V. Vovk, "Cross-conformal predictors", Annals of Mathematics and Artificial Intelligence, 2015.

    Examples
    --------
    >>> from sharpgp.gp.training import train
    >>> X = torch.linspace(0, 6, 60, dtype=torch.float64)[:, None]
    >>> y = X[:, 0].sin() + 0.1 * torch.cos(37 * X[:, 0])
    >>> posterior, _ = train(X, y)
    >>> CrossValidated(folds=5).fit(posterior).n_cal
    60
    """

    def __init__(self, *, folds: Folds = "auto", random_state: int | None = None) -> None:
        super().__init__(random_state=random_state)
        self.folds = folds

    @property
    def knows_inputs(self) -> bool:  # type: ignore[override]
        """A splitter needs the rows as they were given."""
        return isinstance(self.folds, Integral) or _is_auto(self.folds)

    def check(self, n_train: int, n_cal: int) -> None:
        """Refuse a number of parts below two."""
        super().check(n_train, n_cal)
        if not _is_auto(self.folds):
            check_folds(self.folds)

    def first_pair(self, X: Tensor, y: Tensor, groups: Tensor | None) -> Split | None:
        if not _is_auto(self.folds) or len(y) < 4:
            return None
        return learning_pairs(row_labels(X, groups), self.seed)[0]

    def _scored(self, base: Base, points: CalibrationPoints) -> Scored:
        models, groups = self._everything(base, points)
        first = next(iter(models.values()))
        X, y = inputs_of(models), first.y_train
        labels, pairs = split_points(self.folds, X, y, groups, self.seed)
        drawn = _is_auto(self.folds)
        model, held = pooled_out_of_fold(models, pairs, labels, self.seed, drawn=drawn)
        return Scored(model, held, pairs, groups=groups)


def _with_more(base: Base, X: Rows, y: Tensor, groups: Tensor | None, seed: int) -> Base:
    """The same models from more data: a GP continues from its present fit, others start afresh."""

    def all_of(earlier: Rows, y_old: Tensor) -> tuple[Rows, Tensor]:
        return Rows.join(earlier, X), torch.cat([y_old, y])

    if isinstance(base, Posterior):
        everything = all_of(base.rows, base.y_train)
        return base.keeping_together(groups).retrained(*everything, start="warm")

    def again(model: Learner) -> Learner:
        rows, y = all_of(model.rows, model.y_train)
        return model.relearned(rows, y, row_labels(rows.X, groups), seed)

    if isinstance(base, Learner):
        return again(base)
    return {name: again(model) for name, model in base.items()}


def _both(groups: Tensor | None, groups_cal: Tensor | None) -> Tensor | None:
    """Groups of training and calibration points; the same name means the same group."""
    if (groups is None) != (groups_cal is None):
        raise InvalidInputError(
            "groups: expected groups of both training and calibration points, found only one "
            "of the two; give groups and groups_cal"
        )
    return None if groups is None or groups_cal is None else torch.cat([groups, groups_cal])
