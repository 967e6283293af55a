"""The predictor of ``exact`` within classes: ranks of the scores of a point's own class."""

import copy
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, Self

import numpy as np
import torch
from torch import Tensor

from sharpgp._stored import ABSENT, Array, Maybe, Several, agree, stored
from sharpgp._tail import Tail
from sharpgp._validation import as_weights
from sharpgp.calibration.cautions import warn_if_unsupported
from sharpgp.calibration.predictors.base import Calibrated, ModelPredictor
from sharpgp.calibration.predictors.by_score import ScoredPredictor
from sharpgp.calibration.predictors.covariate_shift import Ratio
from sharpgp.data.copies import equal_rows
from sharpgp.data.folds import first_of_each
from sharpgp.data.target_bounds import Bounds
from sharpgp.distribution import PredictiveDistribution
from sharpgp.exceptions import InvalidInputError, warn
from sharpgp.models.model import Model
from sharpgp.models.repeats import KnownInputs, SeenModel
from sharpgp.rows import Rows

#: Classes with fewer calibration points are pooled into one.
MIN_ROWS_PER_CLASS = 10
# A column with more distinct values does not define classes.
_MAX_CLASSES = 1000


@stored(
    "ClassPredictor",
    columns=Several(int),
    classes=Array("K c", empty=True),  # none if all are small
    parts=Several(ScoredPredictor),
    by=Maybe(type(None)),
    known=Maybe(KnownInputs),
    transient={"n_cal": None, "places": ABSENT},
)
class ClassPredictor(ModelPredictor):
    r"""``value(x, beta_k(delta))`` for points of class ``k``.

    ``beta_k`` ranks the scores of the ``C_k`` calibration points of that class, so that
    ``coverage <= P(y in interval | class k) <= coverage + 1/(C_k + 1)`` for the symmetric band (the
    centred interval: ``+ 2/(C_k + 1)``), if points of a class are exchangeable.  Classes with fewer
    than :data:`MIN_ROWS_PER_CLASS` calibration points, or none, are treated as one class,
    calibrated with the points of all the small ones, or with all points where these are too few.

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
    known : KnownInputs, optional
        Points with one of these inputs are then classes of their own.  There are ``2 (K + 1)``
        parts, the first ``K + 1`` for new inputs; see
        :mod:`sharpgp.calibration.predictors.seen_or_new`.

    References
    ----------
    V. Vovk, "Conditional validity of inductive conformal predictors", ACML 2012.
    """

    n_cal: int
    by: Callable[[Any], Any] | None = None
    known: KnownInputs | None = None
    places: list[Tensor] | None = None

    def __init__(
        self,
        columns: Sequence[int],
        classes: Tensor,
        parts: Sequence[ScoredPredictor],
        by: Callable[[Any], Any] | None = None,
        known: KnownInputs | None = None,
    ) -> None:
        self.columns, self.classes, self.parts = tuple(columns), classes, list(parts)
        self.by, self.known = by, known
        self._restored()

    @classmethod
    def from_predictor(
        cls, predictor: ScoredPredictor, by: Sequence[int] | Callable[[Any], Any]
    ) -> Self:
        """Split a predictor's calibration points into classes, each with its scores."""
        function, columns = (by, ()) if callable(by) else (None, tuple(by))
        X = predictor.rows_cal
        classes, masks, others = _classes_of(X, columns, function)
        small = others if int(others.sum()) >= MIN_ROWS_PER_CLASS else torch.ones_like(others)
        parts = [predictor.at_rows(mask) for mask in [*masks, small]]
        return cls(columns, classes, parts, function)

    @classmethod
    def seen_or_new(
        cls, parts: Sequence[tuple[ScoredPredictor, Tensor]], known: KnownInputs, by: Any = None
    ) -> Self:
        """Two predictors, for new inputs and for known ones, within classes if ``by`` is given.

        Each comes with the numbers of its calibration points, which select their weights.
        """
        if by is None:
            nothing = parts[0][0].X_cal.new_empty(0, 0)
            found = cls((), nothing, [part for part, _ in parts], None, known)
            found.places = [rows for _, rows in parts]
            return found
        function, columns = (by, ()) if callable(by) else (None, tuple(by))
        every = Rows.join(*(part.rows_cal for part, _ in parts))
        classes, _, _ = _classes_of(every, columns, function)
        crossed = []
        for (part, _), where in zip(parts, ("new", "known"), strict=True):
            values = _values(part.rows_cal, columns, function)
            masks = [(values == one).all(-1) for one in classes]
            others = ~torch.stack([*masks, torch.zeros_like(values[:, 0]).bool()]).any(0)
            enough = [int(mask.sum()) >= MIN_ROWS_PER_CLASS for mask in [*masks, others]]
            if not all(enough[:-1]):
                warn(
                    f"by: {len(classes) - sum(enough[:-1])} of {len(classes)} classes have fewer "
                    f"than {MIN_ROWS_PER_CLASS} calibration points at {where} inputs; intervals "
                    "there are those of all classes, and may cover less than requested"
                )
            pairs = zip([*masks, others], enough, strict=True)
            crossed += [part.at_rows(mask) if several else part for mask, several in pairs]
        return cls(columns, classes, crossed, function, known)

    def _restored(self) -> None:
        sides = 1 if self.known is None else 2
        agree("predictors of classes", len(self.parts), sides * (len(self.classes) + 1))
        self.n_cal = min(part.n_cal for part in self.parts)

    @property
    def model(self) -> Model:  # type: ignore[override]
        """The model of all classes."""
        return self.parts[0].model

    @property
    def ratio(self) -> Ratio | None:  # type: ignore[override]
        """The function that gives weights, if there is one."""
        return self.parts[0].ratio

    @property
    def weights(self) -> Tensor | None:  # type: ignore[override]
        """Weights of the calibration points of all classes, if they have any."""
        found = [part.weights for part in self.parts if part.weights is not None]
        return torch.cat(found) if found else None

    @property
    def in_training(self) -> bool:
        """Whether the calibration points train the model, too."""
        return self.parts[0].in_training

    def class_of(self, X: Rows) -> Tensor:
        """Index [T] of each point's class; ``K`` for points without a class of their own.

        Known inputs have the indices from ``K + 1`` on, in the same order.
        """
        values, K = _values(X, self.columns, self.by), len(self.classes)
        found = torch.zeros(len(X), dtype=torch.long, device=X.device)
        if K:
            same = (values.unsqueeze(1) == self.classes.to(values)).all(-1)
            found = torch.where(same.any(-1), same.long().argmax(-1), K)
        return found if self.known is None else found + (K + 1) * (self.known.find(X) >= 0)

    def quantiles(self, X: Rows, delta: Tensor) -> Tensor:
        beta = torch.stack([part.ranks.beta(delta) for part in self.parts], -1)
        return self.model.value(X, beta[:, self.class_of(X)])

    def interval_ends(
        self, X: Rows, coverages: list[float], symmetric: bool | None, weights: Tensor | None
    ) -> Tensor:
        out = X.X.new_empty(2, len(coverages), len(X))
        for part, rows in self._by_class(X):
            own = self._in_units_of(part, weights)
            own = None if own is None else own[rows]
            out[:, :, rows] = part.interval_ends(X[rows], coverages, symmetric, own)
        return out

    def _in_units_of(self, part: ScoredPredictor, weights: Tensor | None) -> Tensor | None:
        """Weights [T] of test points, in units of the largest one that calibrates a class."""
        if weights is None or self.weights is None or part.weights is None:
            return weights
        return weights * (self.weights.max() / part.weights.max())

    def distribution(self, X: Rows) -> PredictiveDistribution:
        """At the levels of the largest class."""
        largest = max(self.parts, key=lambda part: part.n_cal)
        delta = largest.ranks.nodes().to(X.device)
        of = self.class_of(X)
        law = self.law(X)
        table = torch.stack([part.ranks.table(delta) for part in self.parts], -1)[:, of]
        tails = [part.ranks.tail for part in self.parts]
        # A tail that starts before the first level continues from there.
        begun = [
            (float(part.ranks.level[0]) / float(delta[0])) ** (1.0 / tail.degrees)
            for part, tail in zip(self.parts, tails, strict=True)
        ]
        pairs = zip(tails, begun, strict=True)
        scale = torch.stack([tail.scale * max(1.0, grown) for tail, grown in pairs])[of]
        degrees = min(tail.degrees for tail in tails)
        values = law.value(table)
        return PredictiveDistribution(
            delta,
            values,
            tail=Tail(scale * law.growth(table, values, scale), degrees),
            caution=partial(warn_if_unsupported, n_cal=self.n_cal),
        )

    def _by_class(self, X: Rows) -> list[tuple[ScoredPredictor, Tensor]]:
        """The predictor of each class that occurs, and its rows."""
        of = self.class_of(X)
        found = [(part, (of == k).nonzero()[:, 0]) for k, part in enumerate(self.parts)]
        return [(part, rows) for part, rows in found if len(rows)]

    def _warn_of_coverage(
        self, coverage: float, symmetric: bool | None, weights: Tensor | None, n_rows: int
    ) -> None:
        least = min(self.parts, key=lambda part: part.n_cal)
        own = self._in_units_of(least, weights)
        least._warn_of_coverage(coverage, symmetric, own, n_rows)

    @property
    def can_be_rescored(self) -> bool:
        return all(part.can_be_rescored for part in self.parts)

    def _updated(self, X: Rows, y: Tensor, weights: Tensor | None) -> "ClassPredictor":
        trains = self.parts[0].in_training
        model = self.model.updated(X, y) if trains else self.model
        other = self._joined(X, y, weights, None, model)
        if trains and isinstance(model, SeenModel):
            other.known = model.known
        return other

    def _rescored(self, X: Rows, y: Tensor, keep: int | None) -> "ClassPredictor":
        weights = None
        if self.weights is not None and self.ratio is None:
            weights = self.weights.mean().expand(len(X))
        elif self.weights is not None:
            weights = self._new_weights(X, None)
        return self._joined(X, y, weights, keep, self.model)

    def _joined(
        self, X: Rows, y: Tensor, weights: Tensor | None, keep: int | None, model: Model
    ) -> "ClassPredictor":
        other = copy.copy(self)
        other.parts, other.places, of = [], None, self.class_of(X)
        for k, part in enumerate(self.parts):
            rows = (of == k).nonzero()[:, 0]
            own = None if weights is None else weights[rows]
            other.parts.append(part._joined(X[rows], y[rows], own, keep, model))
        other._restored()
        return other

    def weighted(self, sample_weight: Any) -> Calibrated:
        """Within each of the two classes of inputs."""
        other = copy.copy(self)
        if callable(sample_weight):
            other.parts = [part.weighted(sample_weight) for part in self.parts]
        elif self.places is None:
            return super().weighted(sample_weight)
        else:
            n = 1 + max(int(rows.max()) for rows in self.places)
            weights = as_weights(sample_weight, n_rows=max(n, np.size(sample_weight)))
            pairs = zip(self.parts, self.places, strict=True)
            other.parts = [part.weighted(weights[rows]) for part, rows in pairs]
        other._restored()
        return other

    def with_bounds(self, bounds: Bounds | None) -> Self:
        other = super().with_bounds(bounds)
        if self.known is not None:
            other.parts = [part.with_bounds(bounds) for part in self.parts]
        return other

    def once(self) -> list[Tensor]:
        """Which calibration points [C_k] of each class count for it, each point once.

        Points that also stand for a whole input elsewhere are left out.
        """
        found, K = [], len(self.classes)
        for k, part in enumerate(self.parts):
            own = self.class_of(part.rows_cal) == k
            if self.known is not None and self.in_training:  # all of their inputs are known
                own = torch.ones_like(own)
                if k <= K:
                    own = KnownInputs(self.parts[-1].X_cal).find(part.X_cal) < 0
            found.append(own if part.drawn is None else own & (part.drawn > 0))
        return found

    def pooled(self) -> ScoredPredictor:
        """One predictor for all classes, from every point that counts, with its score."""
        rows = list(zip(self.parts, self.once(), strict=True))
        X = Rows.join(*(part.rows_cal[own] for part, own in rows))
        y, scores = (
            torch.cat([getattr(part, name)[own] for part, own in rows])
            for name in ("y_cal", "scores")
        )
        weights = None
        if self.weights is not None:
            own_weights = [part.weights[own] for part, own in rows if part.weights is not None]
            weights = torch.cat(own_weights)
        return ScoredPredictor(
            self.model,
            X,
            y,
            scores,
            weights=weights,
            ratio=self.ratio,
            in_training=self.in_training,
            prefers_band=self.parts[-1].prefers_band,
        )

    def _conditioned(self, X: Rows, y: Tensor) -> Self:
        other = copy.copy(self)
        model = self.model.extended(X, y)
        other.parts = [part._with(model=model) for part in self.parts]
        if isinstance(model, SeenModel):
            other.known = model.known
        return other

    def labelled_data(self) -> tuple[Rows, Tensor]:
        """Training points, then the calibration points, each of them once."""
        model, last = self.model, self.parts[-1]
        rows, y, whole = model.rows, model.y_train, False
        if isinstance(model, SeenModel):
            rows, y, whole = Rows(model.X), model.y, True
        if last.in_training:
            return (rows, y) if whole else (last.rows_cal, last.y_cal)
        rows_cal = Rows.join(*(part.rows_cal for part in self.parts))
        y_cal = torch.cat([part.y_cal for part in self.parts])
        if not whole or len(self.parts) > 2:  # a point may calibrate several parts
            labels = equal_rows(torch.cat([rows_cal.X, y_cal.unsqueeze(-1)], -1))
            first = first_of_each(labels).to(rows_cal.device)
            rows_cal, y_cal = rows_cal[first], y_cal[first]
        return Rows.join(rows, rows_cal), torch.cat([y, y_cal])


def _classes_of(
    X: Rows, columns: Sequence[int], by: Callable[[Any], Any] | None
) -> tuple[Tensor, list[Tensor], Tensor]:
    """Values [K, c] of the classes with enough points, their points, and all other points."""
    values = _values(X, columns, by)
    classes, where, count = values.unique(dim=0, return_inverse=True, return_counts=True)
    if len(classes) > min(_MAX_CLASSES, len(X) // 2):
        raise InvalidInputError(
            f"by: expected classes that calibration points share, found {len(classes)} among "
            f"{len(X)} points; give a column of categories, or a function that makes some"
        )
    large = count >= MIN_ROWS_PER_CLASS
    small = ~large[where]
    if bool((~large).any()):
        shown = int(count[~large].sum())
        warn(
            f"by: {int((~large).sum())} of {len(classes)} classes have fewer than "
            f"{MIN_ROWS_PER_CLASS} calibration points; their {shown} points are pooled"
        )
    return classes[large], [where == k for k in large.nonzero()[:, 0].tolist()], small


def _values(X: Rows, columns: Sequence[int], by: Callable[[Any], Any] | None) -> Tensor:
    """The values that define the class of each point [T, c]."""
    if by is None:
        return X.X[:, list(columns)]
    labels = np.asarray(by(X.X.detach().cpu().numpy()))
    if labels.shape != (len(X),) or labels.dtype.kind not in "biuf":
        raise InvalidInputError(
            f"by: expected a function that gives a number for each of {len(X)} rows, found "
            f"{labels.dtype} of shape {labels.shape}"
        )
    return torch.tensor(labels, dtype=torch.float64, device=X.device).unsqueeze(-1)
