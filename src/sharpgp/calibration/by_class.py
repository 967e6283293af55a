"""The predictor of ``exact`` within classes: ranks of the scores of a point's own class."""

import copy
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, Self

import numpy as np
import torch
from torch import Tensor

from sharpgp._stored import Array, Maybe, Several, agree, stored
from sharpgp._tail import Tail
from sharpgp.calibration.calibrated import Calibrated
from sharpgp.calibration.cautions import warn_if_unsupported
from sharpgp.calibration.ranks import table_levels
from sharpgp.calibration.scored import ScoredPredictor
from sharpgp.distribution import PredictiveDistribution
from sharpgp.exceptions import InvalidInputError, warn
from sharpgp.gp.posterior import Posterior
from sharpgp.models.model import Model

#: Points from which a class is calibrated by its own scores; smaller ones are one class.
FEWEST_OF_CLASS = 10
# A column with more distinct values than this has no classes.
_MOST_CLASSES = 1000


@stored(
    "ClassPredictor",
    columns=Several(int),
    classes=Array("K c", empty=True),  # none where all are small
    parts=Several(ScoredPredictor),
    by=Maybe(type(None)),
    transient={"n_cal": None},
)
class ClassPredictor(Calibrated):
    r"""``location(x) + beta_k(delta) spread(x)`` for points of class ``k``.

    ``beta_k`` ranks the scores of the ``C_k`` calibration points of that class, so that
    ``coverage <= P(y in interval | class k) <= coverage + 1/(C_k + 1)`` for the symmetric band (the
    centred interval: ``+ 2/(C_k + 1)``), if points of a class are exchangeable.  Classes with fewer
    than :data:`FEWEST_OF_CLASS` calibration points, or none, are treated as one class, calibrated
    with the points of all the small ones, or with all points where these are too few.

    Parameters
    ----------
    columns : sequence of int
        Features whose values define the class; empty if ``by`` does.
    classes : Tensor [K, c]
        Values of these features, or of ``by``, in each class with enough points.
    parts : sequence of K + 1 ScoredPredictor
        One for each class, and one for all others, with the same model.
    by : callable, optional
        ``by(X)`` gives the number of each row's class.

    References
    ----------
    V. Vovk, "Conditional validity of inductive conformal predictors", ACML 2012.
    """

    n_cal: int
    by: Callable[[Any], Any] | None = None

    def __init__(
        self,
        columns: Sequence[int],
        classes: Tensor,
        parts: Sequence[ScoredPredictor],
        by: Callable[[Any], Any] | None = None,
    ) -> None:
        self.columns, self.classes, self.parts = tuple(columns), classes, list(parts)
        if by is not None:
            self.by = by
        self._restored()

    @classmethod
    def of(cls, predictor: ScoredPredictor, by: Sequence[int] | Callable[[Any], Any]) -> Self:
        """Split a predictor's calibration points into classes, each with its scores."""
        function, columns = (by, ()) if callable(by) else (None, tuple(by))
        X = predictor.X_cal
        values = _values(X, columns, function)
        classes, where, count = values.unique(dim=0, return_inverse=True, return_counts=True)
        if len(classes) > min(_MOST_CLASSES, len(X) // 2):
            raise InvalidInputError(
                f"by: expected classes that calibration points share, found {len(classes)} among "
                f"{len(X)} points; give a column of categories, or a function that makes some"
            )
        large = count >= FEWEST_OF_CLASS
        small = ~large[where]
        if bool((~large).any()):
            shown = int(count[~large].sum())
            warn(
                f"by: {int((~large).sum())} of {len(classes)} classes have fewer than "
                f"{FEWEST_OF_CLASS} calibration points; their {shown} points are pooled"
            )
        others = small if int(small.sum()) >= FEWEST_OF_CLASS else torch.ones_like(small)
        masks = [where == k for k in large.nonzero()[:, 0].tolist()]
        parts = [_part(predictor, mask) for mask in [*masks, others]]
        return cls(columns, classes[large], parts, function)

    def _restored(self) -> None:
        agree("predictors of classes", len(self.parts), len(self.classes) + 1)
        self.n_cal = min(part.n_cal for part in self.parts)

    @property
    def model(self) -> Model:
        """The model of all classes."""
        return self.parts[0].model

    @property
    def posterior(self) -> Posterior:  # type: ignore[override]
        """The GP that the model is based on."""
        return self.model.posterior

    def class_of(self, X: Tensor) -> Tensor:
        """Index [T] of each point's class; ``K`` for points without a class of their own."""
        values = _values(X, self.columns, self.by)
        if not len(self.classes):
            return torch.zeros(len(X), dtype=torch.long, device=X.device)
        same = (values.unsqueeze(1) == self.classes.to(values)).all(-1)
        return torch.where(same.any(-1), same.long().argmax(-1), len(self.classes))

    def location(self, X: Tensor) -> Tensor:
        """See :meth:`Calibrated.location`."""
        return self.model.location(X)

    def quantiles(self, X: Tensor, delta: Tensor) -> Tensor:
        """See :meth:`Calibrated.quantiles`."""
        beta = torch.stack([part.ranks.beta(delta) for part in self.parts], -1)
        return self.model.at(beta[:, self.class_of(X)], X)

    def ends(
        self, X: Tensor, coverages: list[float], symmetric: bool | None, weights: Tensor | None
    ) -> Tensor:
        """See :meth:`Calibrated.ends`."""
        out = X.new_empty(2, len(coverages), len(X))
        for part, rows in self._by_class(X):
            out[:, :, rows] = part.ends(X[rows], coverages, symmetric, None)
        return out

    def distribution(self, X: Tensor) -> PredictiveDistribution:
        """See :meth:`Calibrated.distribution`: at the levels of the largest class."""
        largest = max(self.parts, key=lambda part: part.n_cal)
        delta = table_levels(largest.n_cal, largest.ranks.level).to(X.device)
        of = self.class_of(X)
        location, spread = self.model.location_and_spread(X)
        table = torch.stack([part.ranks.table(delta) for part in self.parts], -1)[:, of]
        tails = [part.ranks.tail for part in self.parts]
        # A tail that begins before the first level continues from there.
        begun = [
            (float(part.ranks.level[0]) / float(delta[0])) ** (1.0 / tail.degrees)
            for part, tail in zip(self.parts, tails, strict=True)
        ]
        pairs = zip(tails, begun, strict=True)
        scale = torch.stack([tail.scale * max(1.0, grown) for tail, grown in pairs])[of]
        degrees = min(tail.degrees for tail in tails)
        if self.model.shape is not None:
            table, growth = self.model.shape.stretched_table(table, location)
            scale = scale * growth
        return PredictiveDistribution(
            delta,
            location + table * spread,
            tail=Tail(scale * spread, degrees),
            caution=partial(warn_if_unsupported, n_cal=self.n_cal),
        )

    def _by_class(self, X: Tensor) -> list[tuple[ScoredPredictor, Tensor]]:
        """The predictor of each class that occurs, and its rows."""
        of = self.class_of(X)
        found = [(part, (of == k).nonzero()[:, 0]) for k, part in enumerate(self.parts)]
        return [(part, rows) for part, rows in found if len(rows)]

    def _warn_of_coverage(
        self, coverage: float, symmetric: bool | None, weights: Tensor | None, n_rows: int
    ) -> None:
        least = min(self.parts, key=lambda part: part.n_cal)
        least._warn_of_coverage(coverage, symmetric, weights, n_rows)

    def _rescored(self, X: Tensor, y: Tensor, keep: int | None) -> "ClassPredictor":
        other = copy.copy(self)
        other.parts, of = list(self.parts), self.class_of(X)
        for k, part in enumerate(self.parts):
            rows = (of == k).nonzero()[:, 0]
            if len(rows):
                other.parts[k] = part._rescored(X[rows], y[rows], keep)
        other._restored()
        return other

    def _conditioned(self, X: Tensor, y: Tensor) -> Self:
        other = copy.copy(self)
        model = self.model.extended(X, y)
        other.parts = [part._with(model, None, None) for part in self.parts]
        return other

    def labelled_data(self) -> tuple[Tensor, Tensor]:
        """Training points, then the calibration points, each of them once."""
        X = torch.cat([self.model.X_train, *(part.X_cal for part in self.parts)])
        y = torch.cat([self.model.y_train, *(part.y_cal for part in self.parts)])
        both = torch.cat([X, y.unsqueeze(-1)], -1)
        _, where = both.unique(dim=0, return_inverse=True)
        first = torch.full((int(where.max()) + 1,), len(both), device=X.device)
        order = torch.arange(len(both), device=X.device)
        first = first.scatter_reduce(0, where, order, "amin").sort().values
        return X[first], y[first]


def _values(X: Tensor, columns: Sequence[int], by: Callable[[Any], Any] | None) -> Tensor:
    """The values that define the class of each point [T, c]."""
    if by is None:
        return X[:, list(columns)]
    labels = np.asarray(by(X.detach().cpu().numpy()))
    if labels.shape != (len(X),) or labels.dtype.kind not in "biuf":
        raise InvalidInputError(
            f"by: expected a function that gives a number for each of {len(X)} rows, found "
            f"{labels.dtype} of shape {labels.shape}"
        )
    return torch.tensor(labels, dtype=torch.float64, device=X.device).unsqueeze(-1)


def _part(predictor: ScoredPredictor, mask: Tensor) -> ScoredPredictor:
    return ScoredPredictor(
        predictor.model,
        predictor.X_cal[mask],
        predictor.y_cal[mask],
        predictor.scores[mask],
        prefers_band=predictor.prefers_band,
    )
