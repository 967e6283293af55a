r"""Categories that no training row has: levels of their column that are new units.

Leaving out each known level in turn says how far a new one may be: with the scores ``z`` of its
rows under a fit without them, ``s^2`` is the mean over ``L`` levels of the mean ``z^2`` of each.
Rows with an unseen level have a spread that is ``t s / r`` times as large, with the 95 % quantile
``t`` of Student's law of ``L - 1`` degrees of freedom and the radius ``r`` of the 90 % band.  So
their 90 % band is ``-+ t s``, that of a further level of normal effects.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any
from weakref import WeakKeyDictionary

import torch
from scipy.stats import t as student
from torch import Tensor

from sharpgp._stored import stored
from sharpgp.calibration.ranks import COMPARED_COVERAGE
from sharpgp.data.folds import split_parts
from sharpgp.models.laws import Law, either
from sharpgp.models.model import Model
from sharpgp.rows import Rows

# More levels are left out in so many parts.
_MOST_PARTS = 10
# ``t s`` of the columns of models that were asked before.
_SIZES: WeakKeyDictionary[Model, dict[tuple[int, ...], float]] = WeakKeyDictionary()


@stored("UnseenLevels")
@dataclass(frozen=True, eq=False)
class UnseenLevels:
    """How much wider laws are where a category is new, found when such a row is first asked.

    Attributes
    ----------
    columns : sequence of sequences of int
        Features of each column of categories.
    other : sequence of float
        What all features of a column are for a category that no training row has.
    radius : float
        Of the 90 % band, in scores.
    """

    columns: Sequence[Sequence[int]]
    other: Sequence[float]
    radius: float

    def widened(self, model: Model, rows: Rows, law: Law) -> Law:
        """The law of rows, wider where a category is new."""
        factor = self.factor(model, rows)
        return law if factor is None else either(factor > 1.0, law, law.changed(factor=factor))

    def factor(self, model: Model, rows: Rows) -> Tensor | None:
        """By how much the spread of each row [T] grows; None if no category is new."""
        found = None
        for features, other in zip(self.columns, self.other, strict=True):
            unseen = (rows.X[:, list(features)] == other).all(1)
            if bool(unseen.any()):
                one = torch.where(unseen, self._factor(model, features, other), 1.0)
                found = one if found is None else torch.maximum(found, one)
        return found

    def _factor(self, model: Model, features: Sequence[int], other: float) -> float:
        """The factor of a column, at least 1."""
        sizes = _SIZES.setdefault(model, {})
        key = tuple(features)
        if key not in sizes:
            with torch.no_grad():
                sizes[key] = self._size(model, list(features), other)
        return max(1.0, sizes[key] / self.radius)

    def _size(self, model: Model, features: list[int], other: float) -> float:
        """``t s``, from fits without one or more of the levels."""
        rows, y, learner = model.rows, model.y_train, model.learner
        assert learner is not None
        level = level_of(rows, features, other)
        at_level = (level >= 0).nonzero()[:, 0]
        parts = split_parts(level[at_level], _MOST_PARTS, 0)
        names, z = [], []
        for part in parts:
            test = at_level[part]
            levels = level[test].unique()

            def rest(own: Rows, levels: Tensor = levels) -> Tensor:
                left_out = torch.isin(level_of(own, features, other), levels)
                return (~left_out).nonzero()[:, 0]

            fit = learner.restricted(rest)
            X = rows.X[test].clone()
            X[:, features] = other
            z.append(fit.score(Rows(X, None if rows.noise is None else rows.noise[test]), y[test]))
            names.append(level[test])
        place = torch.cat(names).unique(return_inverse=True)[1]
        sums = torch.zeros(int(place.max()) + 1).to(y).index_add(0, place, torch.cat(z).square())
        mean_square = float((sums / place.bincount()).mean())
        freedom = max(1, len(sums) - 1)
        return float(student.ppf(0.5 * (1.0 + COMPARED_COVERAGE), freedom)) * mean_square**0.5


def level_of(rows: Rows, features: list[int], other: float) -> Tensor:
    """Number [N] of each row's category; -1 where it is none of those known."""
    own = rows.X[:, features]
    return torch.where((own == other).all(1), -1, own.argmax(1))


def with_unseen_levels(calibrated: Any, encoding: Any) -> Any:
    """A predictor whose intervals widen at categories that no training row has.

    For models that can be conditioned or learned again.
    """
    each = calibrated.each_once()
    model = None if each is None else calibrated.model
    known = None if model is None else model.learner
    if encoding is None or known is None:
        return calibrated
    X = known.rows.X
    places = [(one, tuple(encoding.places[one.name])) for one in encoding.columns]
    kept = [
        (features, one.other)
        for one, features in places
        if one.kind == "category" and len(features) > 1 and not (X[:, features] == one.other).any()
    ]
    if kept:
        radius = float(each.ranks.radius(COMPARED_COVERAGE, X.new_ones(1))[0])
        columns, other = zip(*kept, strict=True)
        calibrated.unseen = UnseenLevels(columns, other, max(radius, 1e-12))
    return calibrated
