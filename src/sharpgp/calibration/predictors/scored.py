"""The predictor from scores: a model gives scores and values, ranks of scores give ``beta``."""

from collections.abc import Callable, Sequence
from dataclasses import KW_ONLY, dataclass, field, replace
from functools import partial
from typing import Annotated, Any, Self

import numpy as np
import torch
from numpy.typing import ArrayLike
from torch import Tensor

from sharpgp._forwarded import forwarded
from sharpgp._ranks import points_needed
from sharpgp._stored import Array, Codec, Maybe, Several, add_codec, agree, require, stored
from sharpgp._tail import Tail
from sharpgp._validation import as_numpy, as_weights
from sharpgp.calibration import intervals
from sharpgp.calibration.cautions import (
    warn_if_few_groups,
    warn_if_unsupported,
    warn_of_tail,
    warn_of_weights,
)
from sharpgp.calibration.predictors.base import Calibrated, ModelPredictor
from sharpgp.calibration.predictors.covariate_shift import (
    Ratio,
    Weights,
    require_positive,
    weights_at,
)
from sharpgp.calibration.predictors.parts import MIN_ROWS_PER_CLASS, Parts, classes_of
from sharpgp.calibration.predictors.unseen_levels import UnseenLevels
from sharpgp.calibration.ranks import GroupRanks, Ranks, WiderRanks
from sharpgp.data.copies import equal_rows
from sharpgp.data.folds import first_of_each
from sharpgp.data.target_bounds import Bounds
from sharpgp.distribution import PredictiveDistribution
from sharpgp.exceptions import InvalidInputError
from sharpgp.gp.posterior import WithoutDataError
from sharpgp.metrics import CalibrationReport
from sharpgp.models.laws import Law
from sharpgp.models.model import HeldOut, Model, WrappedModel
from sharpgp.rows import Inputs, Rows, rows_of_earlier

# Columns of the table of scores.
_COLUMNS = ("rows_cal", "y_cal", "scores", "weights", "units", "drawn", "part", "row", "once")
# Ends move outward by this share of the location, so that rounding does not exclude their point.
_ROUNDING = 16 * torch.finfo(torch.float64).eps
# Up to this many scores, a report ranks the others of each of its points.
_MOST_RANKED_APART = 300


def _of_earlier(values: dict[str, Any]) -> dict[str, Any]:
    """The values of a predictor without parts, from files of schemas 2 and 3."""
    values = rows_of_earlier(values)
    if "prefers_band" not in values:
        return values
    groups, labels = values.pop("groups", None), values.pop("labels", None)
    every = torch.arange(len(values["scores"]), device=values["scores"].device)
    counted = "groups" if groups is not None else "points" if labels is None else "inputs"
    units = labels if groups is None else groups
    more: dict[str, Any] = {
        "part": torch.zeros_like(every),
        "row": every,
        "once": torch.ones_like(every),
    }
    more |= {"counted": counted, "parts": Parts(), "bands": [values.pop("prefers_band")]}
    return {**values, **more, **({} if units is None else {"units": units})}


#: Whole numbers [C].
OfEachScore = Annotated[Tensor, Array("C", whole=True)]


@stored("ScoredPredictor", earlier=_of_earlier)
@dataclass(eq=False, repr=False)
class ScoredPredictor(ModelPredictor):
    r"""``Q(delta, x) = value(x, beta(delta))``, ``beta`` from ranks of scores.

    Intervals are closed and end at whole ranks, ``[z_(l), z_(u)]`` with
    ``l = floor((1-c)/2 (C+1))`` and ``u = ceil((1+c)/2 (C+1))``, or ``|z| <= |z|_(k)`` with
    ``k = ceil(c (C+1))``.

    With weights ``w_i``, for test inputs that are distributed differently: if ``y`` given ``x`` is
    the same everywhere and test inputs have the density of calibration inputs times a known
    ``w(x)``, up to a factor, then calibration points count with probabilities
    ``p_i = w_i / (W + w)``, ``W = sum_i w_i``, and a test point of weight ``w`` itself with
    ``w / (W + w)``.  The upper end of an interval at level ``delta`` is the smallest score such
    that the points at or below it have ``sum p_i >= delta``, the lower end its mirror image, and
    the band uses absolute scores.  Then ``P(y in interval) >= coverage``, for any model that does
    not depend on the calibration points.  A larger ``w`` gives wider intervals.  The weights of
    test points come from ``sample_weight`` of :meth:`predict_interval`, else from ``ratio``, else
    they are all the largest ``w_i``: the guarantee then holds if ``w(x)`` is nowhere larger.
    Quantiles and distributions use the mean weight of a test point, see
    :class:`sharpgp.calibration.ranks.Ranks`.

    With groups, and predictions for new groups, ``w_i = 1/n_g`` for the ``n_g`` points of a
    group and ``w = 1`` for a test point.  If groups are exchangeable, then
    ``P(y in interval) >= coverage`` for a random point of a new group.  Other weights are
    multiplied by these, without a guarantee.  ``cv`` has none either: its bands are quantiles of
    absolute scores, see :class:`sharpgp.calibration.ranks.GroupRanks`.

    Parameters
    ----------
    model : Model
    rows_cal : Rows [C]
    y_cal : Tensor [C]
        Calibration points, oldest first.
    scores : Tensor [C]
        Their scores under a model that has not seen them.
    weights : Tensor [C], optional
        None for equal ones.
    units : Tensor [C], optional
        Whole numbers, equal for points that count as one: those of a group, or of one input.
    counted : str
        What the units are: ``"groups"``, ``"inputs"`` or ``"points"``.
    drawn : Tensor [C], optional
        1 for points that were held out one by one, 0 for those of inputs that were left out
        whole.  Intervals are then the wider of those by ``units`` and those of the former points,
        each of which counts as one; see :mod:`sharpgp.calibration.predictors.seen_or_new`.
    parts : Parts, optional
        Points of different parts have ranks of their own, so that intervals cover within each
        part, if its points are exchangeable.
    part : Tensor [C], optional
        The part that each score calibrates.
    row : Tensor [C], optional
        Number of the row of each score; a row may calibrate several parts.
    once : Tensor [C], optional
        1 for the scores that count where every row counts once: in reports and tests of drift.
    ratio : callable, optional
        ``w(X)`` for arrays (n, d).
    in_training : bool
        Whether the model was also trained on the calibration points (``cv``, ``loo``).
    draw : float, optional
        In [0, 1): see :class:`sharpgp.calibration.ranks.Ranks`.
    bands : sequence of bool or None, optional
        Whether intervals in each part are symmetric by default.  If None or empty, the rule
        :func:`sharpgp.calibration.intervals.prefers_band` decides.
    law_cal : Law, optional
        Law of the calibration points by fits without them; by default that of the model, which has
        not seen them.

    References
    ----------
    V. Vovk, A. Gammerman and G. Shafer, *Algorithmic Learning in a Random World*, 2005.
    R. J. Tibshirani, R. F. Barber, E. J. Candes and A. Ramdas, "Conformal Prediction Under
    Covariate Shift", NeurIPS 2019.
    Y. Lee, R. F. Barber and R. Willett, "Distribution-Free Inference with Hierarchical Data",
    2023.

    Examples
    --------
    >>> from sharpgp import Kuleshov18
    >>> from sharpgp.gp.training import train
    >>> X = torch.linspace(0, 6, 200, dtype=torch.float64)[:, None]
    >>> y = X[:, 0].sin() + 0.1 * X[:, 0] * torch.cos(37 * X[:, 0])
    >>> posterior, _ = train(X[::2], y[::2])
    >>> weights = X[1::2, 0] / 6  # larger inputs are more frequent than they were
    >>> shifted = Kuleshov18().fit(posterior, X[1::2], y[1::2], sample_weight=weights)
    >>> round(shifted.n_effective)
    75
    >>> plain = Kuleshov18().fit(posterior, X[1::2], y[1::2])
    >>> width = [float(c.predict_interval(X[:1], 0.9).diff()) for c in (plain, shifted)]
    >>> width[0] < width[1]
    True
    """

    model: Model
    rows_cal: Rows
    y_cal: Annotated[Tensor, Array("C")]
    scores: Annotated[Tensor, Array("C")]
    _: KW_ONLY
    weights: Annotated[Tensor | None, Array("C")] = None
    units: Annotated[Tensor | None, Array("C", whole=True)] = None
    counted: str = "points"
    drawn: Annotated[Tensor | None, Array("C", whole=True)] = None
    ratio: Annotated[Ratio | None, Maybe(type(None))] = None
    in_training: bool = False
    draw: float | None = None
    parts: Parts = Parts()  # noqa: RUF009 (frozen)
    part: OfEachScore = None  # type: ignore[assignment]
    row: OfEachScore = None  # type: ignore[assignment]
    once: OfEachScore = None  # type: ignore[assignment]
    bands: Annotated[Sequence[bool | None], Several(bool)] = ()
    law_cal: Law | None = None
    by_group: Calibrated | None = None
    #: Groups of which the model has seen rows; rows that join them say nothing about new groups.
    trained_groups: Annotated[Tensor | None, Array("G", whole=True)] = None
    #: What widens the laws of rows with a category that no training row has.
    unseen: UnseenLevels | None = None
    ranks_of: list[Ranks] = field(init=False)
    n_cal: int = field(init=False)
    _unit_of: list[float] = field(init=False)

    def __post_init__(self) -> None:
        every = torch.arange(len(self.scores), device=self.scores.device)
        self.weights = None if self.weights is None else require_positive(self.weights)
        self.part = torch.zeros_like(every) if self.part is None else self.part
        self.row = every if self.row is None else self.row
        self.once = torch.ones_like(every) if self.once is None else self.once
        decided = self.bands or [None] * len(self.parts)
        self.bands = [self._band_of(k) if one is None else one for k, one in enumerate(decided)]
        own = [self.part == k for k in range(len(self.parts))]
        self.ranks_of = [self._ranks_in(mine) for mine in own]
        self._unit_of = [self._unit_in(mine) for mine in own]
        self.n_cal = min(ranks.n for ranks in self.ranks_of)

    @classmethod
    def from_model(
        cls, model: Model, rows: Inputs, y_cal: Tensor, *, draw: float | None = None
    ) -> Self:
        """Predictor from the scores of points that the model has not seen."""
        return cls(model, Rows.of(rows), y_cal, model.score(rows, y_cal), draw=draw)

    @classmethod
    def from_training(cls, model: Model, held: HeldOut) -> Self:
        """Predictor from the scores of training points, each under fits without it."""
        data = model.rows[held.rows], model.y_train[held.rows], held.scores
        return cls(model, *data, in_training=True, law_cal=held.law)

    def within(self, by: Sequence[int] | Callable[[Any], Any]) -> Self:
        """The same with ranks within classes, see :class:`Parts`.

        Classes with fewer than :data:`~.parts.MIN_ROWS_PER_CLASS` points share the points of all
        these, or all points where they are too few.
        """
        parts, own, small = classes_of(self.rows_cal, by)
        few = int(small.sum()) < MIN_ROWS_PER_CLASS
        return self.split(parts, [*own, torch.ones_like(small) if few else small])

    def split(self, parts: Parts, masks: Sequence[Tensor]) -> Self:
        """The same with parts, each calibrated by some of the scores [C]."""
        places = torch.cat([mask.nonzero()[:, 0] for mask in masks])
        k = torch.arange(len(masks), device=places.device)
        part = k.repeat_interleave(torch.stack([mask.sum() for mask in masks]))
        table = self._taken(places)
        own = (parts.find(table["rows_cal"]) == part).long()
        bands = [self.bands[0]] * len(parts)
        if len(self.bands) > 1:
            bands = [self.bands[k // parts.n_classes] for k in range(len(parts))]
        once = table["once"] * own
        return self._with(**{**table, "part": part, "once": once}, parts=parts, bands=bands)

    def _restored(self) -> None:
        agree("features", self.rows_cal.n_features, self.model.n_features)
        agree("calibration rows", len(self.rows_cal), len(self.scores))
        agree("draw in [0, 1)", self.draw is None or 0.0 <= self.draw < 1.0, True)
        if self.weights is not None:
            right = bool((self.weights >= 0).all() and self.weights.max() > 0)
            agree("sign of weights", right, True)
        agree("parts", self.part.unique().tolist(), list(range(len(self.parts))))
        agree("choices of intervals", len(self.bands), len(self.parts))

    # -------------------------------------------------------------- ranks

    def _ranks_in(self, mine: Tensor) -> Ranks:
        z, weights = self.scores[mine], self._own(mine)
        units = None if self.units is None else self.units[mine]
        if units is not None and len(units.unique()) == len(units):
            units = None
        if self.in_training and self.counted == "groups" and units is not None and weights is None:
            return GroupRanks(z, groups=units)
        ranks = Ranks(z, weights, groups=units, draw=self.draw)
        if self.drawn is None or not bool(self.drawn[mine].any()):
            return ranks
        alone = mine & (self.drawn > 0)
        if units is None and bool(alone[mine].all()):
            return ranks
        own, unit = self._own(alone), 1.0
        if weights is not None and own is not None:
            unit = float(weights.max() / own.max())
        return WiderRanks(ranks, Ranks(self.scores[alone], own), unit)

    def _own(self, mine: Tensor) -> Tensor | None:
        return None if self.weights is None else self.weights[mine]

    def _band_of(self, k: int) -> bool:
        """Whether points of a part get symmetric bands."""
        mine = self.part == k
        n = int(mine.sum()) if self.units is None else len(self.units[mine].unique())
        return intervals.prefers_band(self.model.scores, n)

    @property
    def ranks(self) -> Ranks:
        """Ranks of all scores together, where every row counts once."""
        return self.ranks_of[0] if len(self.parts) == 1 else self.each_once().ranks_of[0]

    @property
    def prefers_band(self) -> bool:
        """Whether intervals are symmetric by default, where there are no known units."""
        return bool(self.bands[0])

    @property
    def n_effective(self) -> float:
        """Number of points of equal weight that hold as much information, in the smallest part."""
        return min(ranks.n_effective for ranks in self.ranks_of)

    @property
    def X_cal(self) -> Tensor:
        """Features [C, d] of the calibration points."""
        return self.rows_cal.X

    @property
    def groups(self) -> Tensor | None:
        """Group [C] of each calibration point, if there are groups."""
        return self.units if self.counted == "groups" else None

    def part_of(self, X: Rows) -> Tensor:
        """Number [T] of the part of each point."""
        return self.parts.find(X)

    def with_bounds(self, bounds: Bounds | None) -> Self:
        """Where targets pile up at a bound, bands are used if they score better there.

        See :func:`sharpgp.calibration.intervals.prefers_band_within`.
        """
        other = super().with_bounds(bounds)
        if self.by_group is not None:
            other.by_group = self.by_group.with_bounds(bounds)
        by_class = self.parts.n_classes > 1 and self.parts.known is None
        if bounds is not None and not by_class and self._piles_up(bounds):
            labels = self.groups if self.in_training else None
            numbers = [ranks.n for ranks in self.ranks_of]
            decided = {
                n: intervals.prefers_band_within(self.model, bounds, n, labels)
                for n in set(numbers)
            }
            other.bands = [decided[n] for n in numbers]
        return other

    def _piles_up(self, bounds: Bounds) -> bool:
        return intervals.pile_up(self.model, bounds)

    # -------------------------------------------------------------- answers

    def quantiles(self, X: Rows, delta: Tensor) -> Tensor:
        return self.law(X).value(self._by_part(X, [r.beta(delta) for r in self.ranks_of]))

    def law(self, X: Rows) -> Law:
        law = super().law(X)
        return law if self.unseen is None else self.unseen.widened(self.model, X, law)

    def score(self, X: Rows, y: Tensor) -> Tensor:
        """Scores [T] of targets, by the laws that answer."""
        factor = None if self.unseen is None else self.unseen.factor(self.model, X)
        if factor is not None:
            location = self.model.location(X)
            y = location + (y - location) / factor
        return self.model.score(X, y)

    def _by_part(self, X: Rows, values: Sequence[Tensor]) -> Tensor:
        """Values [K, T] of each point's part, from those [K] of all; T = 1 for a single part."""
        every = torch.stack(list(values), -1)
        return every if len(self.ranks_of) == 1 else every[..., self.part_of(X)]

    def interval_ends(
        self, X: Rows, coverages: list[float], symmetric: bool | None, weights: Tensor | None
    ) -> Tensor:
        law = self.law(X)
        if len(self.ranks_of) == 1:
            ends = self._end_scores(0, coverages, symmetric, weights)
        else:
            ends, of = self.scores.new_empty(2, len(coverages), len(X)), self.part_of(X)
            for k in of.unique().tolist():
                rows = (of == k).nonzero()[:, 0]
                own = None if weights is None else weights[rows] * self._unit_of[k]
                ends[:, :, rows] = self._end_scores(k, coverages, symmetric, own)
        lower, upper = law.value(torch.cat(list(ends))).chunk(2)
        slack = _ROUNDING * law.location.abs() + law.rounding + self.model.rounding
        return torch.stack([lower - slack, upper + slack])

    def _unit_in(self, mine: Tensor) -> float:
        """The largest weight, in units of that among some of the scores."""
        return 1.0 if self.weights is None else float(self.weights.max() / self.weights[mine].max())

    def _end_scores(
        self, k: int, coverages: list[float], symmetric: bool | None, weights: Tensor | None
    ) -> Tensor:
        """Scores [2, K, T or 1] at which intervals of a part end."""
        w = self.scores.new_ones(1) if weights is None else weights
        ends = []
        for coverage in coverages:
            low, high, _ = self.ranks_of[k].interval_ends(coverage, w)
            radius, _ = self.ranks_of[k].radius(coverage, w)
            band = self.is_band(k, coverage, symmetric, w)
            ends.append(
                torch.stack([torch.where(band, -radius, low), torch.where(band, radius, high)])
            )
        return torch.stack(ends, 1)

    def distribution(self, X: Rows) -> PredictiveDistribution:
        """At the levels of the part with most points."""
        largest = max(self.ranks_of, key=lambda ranks: ranks.n)
        delta = largest.nodes().to(X.device)
        law, tails = self.law(X), [ranks.tail for ranks in self.ranks_of]
        table = self._by_part(X, [ranks.table(delta) for ranks in self.ranks_of])
        # A tail that starts before the first level continues from there.
        begun = [
            (float(ranks.level[0]) / float(delta[0])) ** (1.0 / tail.degrees)
            for ranks, tail in zip(self.ranks_of, tails, strict=True)
        ]
        grown = [1.0] if len(tails) == 1 else [max(1.0, one) for one in begun]
        pairs = zip(tails, grown, strict=True)
        scale = self._by_part(X, [tail.scale * times for tail, times in pairs])
        values = law.value(table)
        degrees = min(tail.degrees for tail in tails)
        beyond = Tail(scale * law.growth(table, values, scale), degrees)
        return PredictiveDistribution(delta, values, tail=beyond, caution=self._caution)

    @property
    def _caution(self) -> Callable[..., None]:
        return partial(warn_if_unsupported, n_cal=self.n_cal, counted=self.counted)

    def is_band(self, k: int, coverage: float, symmetric: bool | None, w: Tensor) -> Tensor:
        """Whether points of weights ``w`` get bands: by choice, or because points are too few."""
        if symmetric is not None:
            return torch.full_like(w, symmetric, dtype=torch.bool)
        return ~self.ranks_of[k].centred_supported(coverage, w) | bool(self.bands[k])

    def _warn_of_coverage(
        self, coverage: float, symmetric: bool | None, weights: Tensor | None, n_rows: int
    ) -> None:
        k = min(range(len(self.ranks_of)), key=lambda k: self.ranks_of[k].n)
        w = self.scores.new_ones(1) if weights is None else weights * self._unit_of[k]
        band = self.is_band(k, coverage, symmetric, w)
        _, _, backed = self.ranks_of[k].interval_ends(coverage, w)
        _, band_backed = self.ranks_of[k].radius(coverage, w)
        unbacked = int((~torch.where(band, band_backed, backed)).sum())
        if not unbacked:
            return
        if weights is None:
            tail = 1.0 - coverage if bool(band) else (1.0 - coverage) / 2.0
            asked = f"coverage {coverage:g}"
            warn_of_tail(asked, points_needed(tail), self.n_cal, self.counted)
            return
        warn_of_weights(coverage, unbacked, n_rows, self.n_effective, self.counted)

    # -------------------------------------------------------------- its own points

    def each_once(self) -> "ScoredPredictor":
        if len(self.parts) == 1 and bool(self.once.all()):
            return self
        counting = (self.once > 0).nonzero()[:, 0]
        groups = None if self.groups is None else self.groups[counting]
        table = self._taken(counting, part=None, drawn=None, units=groups)
        return self._with(**table, parts=Parts(), bands=self.bands[-1:])

    def by_part(self) -> list["ScoredPredictor"]:
        """The predictor of each part alone."""
        if len(self.parts) == 1:
            return [self]
        found = []
        for k in range(len(self.parts)):
            table = self._taken((self.part == k).nonzero()[:, 0], part=None)
            units, drawn, counted = table["units"], table["drawn"], self.counted
            if units is not None and self.groups is None:
                repeated = len(units.unique()) < len(units)
                counted = "inputs" if repeated else "points"
                table["units"] = units if repeated else None
            alone = drawn is not None and (counted != "points" or not bool(drawn.all()))
            table["drawn"] = drawn if alone and bool(drawn.any()) else None
            bands = self.bands[k : k + 1]
            found.append(self._with(**table, counted=counted, parts=Parts(), bands=bands))
        return found

    def at_own_points(self) -> "HeldOutPredictor":
        return HeldOutPredictor(self)

    def compact(self) -> "ScoredPredictor":
        """Known groups and unseen categories ask fits without some rows, and so keep all."""
        if self.by_group is not None or self.unseen is not None:
            return self
        other = CompactPredictor.__new__(CompactPredictor)
        vars(other).update(vars(self), model=self.model.compact())
        for name in ("rows_cal", "law_cal"):
            vars(other).pop(name, None)
        return other

    def held_out(self) -> Law:
        """The law of the calibration points, by fits that have not seen them."""
        if self.law_cal is not None:
            return self.law_cal
        if self.in_training:
            raise InvalidInputError(
                "X, y: expected test data, found none; a model that was fitted by an earlier "
                "version or updated does not keep its out-of-fold predictions"
            )
        return self.model.law(self.rows_cal)

    def labelled_data(self) -> tuple[Rows, Tensor]:
        """Training points, then the calibration points that are not among them."""
        X, y = self.model.learned_from
        first = first_of_each(self.row)
        own = self.rows_cal[first], self.y_cal[first]
        if self.in_training:  # models may have been fitted to fewer rows than calibrate
            return own if len(first) > len(y) else (X, y)
        return Rows.join(X, own[0]), torch.cat([y, own[1]])

    # -------------------------------------------------------------- further points, weights

    @property
    def can_be_rescored(self) -> bool:
        """True: a further point whose weight is unknown has the mean weight."""
        return True

    def _updated(
        self, X: Rows, y: Tensor, weights: Tensor | None, units: Tensor | None = None
    ) -> "ScoredPredictor":
        # If calibration points also train, the present model scores the new points before it learns
        # from them.
        model = self.model.updated(X, y) if self.in_training else self.model
        unseen = torch.ones_like(y).bool()
        if units is not None and self.trained_groups is not None:
            unseen = ~torch.isin(units, self.trained_groups)
        own, theirs = (None if one is None else one[unseen] for one in (weights, units))
        other = self._joined(X[unseen], y[unseen], own, None, model, theirs)
        if self.in_training and units is not None and self.trained_groups is not None:
            other.trained_groups = torch.cat([self.trained_groups, units]).unique()
        if self.by_group is not None:  # as rows of new groups
            of_none = replace(X, unit=torch.full_like(y, -1, dtype=torch.long))
            other.by_group = self.by_group._updated(of_none, y, weights, units)
            other.by_group = other.by_group.bounded(self.bounds)
        return other

    def _rescored(self, X: Rows, y: Tensor, keep: int | None) -> "ScoredPredictor":
        return self._joined(X, y, self._usual_weights(X), keep, self.model)

    def _usual_weights(self, X: Rows) -> Tensor | None:
        """Weights [n] of further points: those of the function, else the mean of the known ones."""
        if self.weights is None or self.ratio is not None:
            return self._new_weights(X, None)
        return self.weights.mean().expand(len(X))

    def _joined(
        self,
        X: Rows,
        y: Tensor,
        weights: Tensor | None,
        keep: int | None,
        model: Model,
        units: Tensor | None = None,
    ) -> "ScoredPredictor":
        """With further scores, each in the part of its point; ``keep`` the newest of each part."""
        part, n = self.part_of(X), torch.arange(len(y), device=self.part.device)
        if self.units is not None and units is None:
            # Rows of one new input count as one; any other row is a unit of its own.
            units = n if self.counted == "groups" else equal_rows(X.X).to(n)
            if self.parts.known is not None:
                units = torch.where(part < self.parts.n_classes, units, n + len(n))
            units = units + int(self.units.max()) + 1
        drawn = None
        if self.drawn is not None:  # parts whose scores are ranked one by one, too, go on so
            alone = [self.drawn[self.part == k].any() for k in range(len(self.parts))]
            drawn = torch.stack(alone)[part].long()
        new: dict[str, Tensor | None] = {
            "y_cal": y,
            "scores": self.score(X, y),
            "weights": weights,
            "units": units,
            "drawn": drawn,
            "part": part,
            "row": n + int(self.row.max()) + 1,
            "once": torch.ones_like(part),
        }
        every = torch.cat([self.part, part])
        place = torch.arange(len(every), device=part.device)
        if keep is not None:
            newest = [(every == k).nonzero()[-keep:, 0] for k in range(len(self.parts))]
            place = torch.cat(newest).sort().values
        table: dict[str, Any] = {"rows_cal": Rows.join(self.rows_cal, X)[place]}
        for name, more in new.items():
            old = getattr(self, name)
            table[name] = None if old is None or more is None else torch.cat([old, more])[place]
        # A stream with a window need not decide again at every step; a decision about bounds needs
        # held-out predictions.
        at_bound = self.bounds is not None and self._piles_up(self.bounds)
        numbers = [one.bincount(minlength=len(self.parts)) for one in (self.part, every[place])]
        pairs = zip(self.bands, (numbers[0] != numbers[1]).tolist(), strict=True)
        bands = [None if changed and not at_bound else band for band, changed in pairs]
        return self._with(**table, model=model, bands=bands, law_cal=None)

    def weighted(self, sample_weight: Weights) -> "ScoredPredictor":
        """The same scores with weights: an array, one for each row, or a function of ``X``."""
        if self.draw is not None:
            raise InvalidInputError(
                "sample_weight: expected a method that ranks scores (exact, cv, kuleshov18, "
                "marx22), found vovk20, whose draw is made for equal weights"
            )
        ratio = sample_weight if callable(sample_weight) else None
        if ratio is not None:
            return self._with(weights=weights_at(self.rows_cal, ratio), ratio=ratio)
        n_rows = int(self.row.max()) + 1
        if len(self.parts) > 1:  # some rows may calibrate none
            n_rows = max(n_rows, np.asarray(sample_weight).size)
        weights = as_weights(sample_weight, n_rows=n_rows, device=self.model.device)
        return self._with(weights=weights[self.row], ratio=None)

    def for_groups(self, groups: Tensor) -> "Calibrated":
        """The points of a group share the weight of one."""
        if self.draw is not None:
            return super().for_groups(groups)
        n_groups, n_points = len(groups.unique()), len(groups)
        if n_groups == n_points:
            return self
        if n_groups < 2:
            raise InvalidInputError(
                "groups: expected at least 2 groups to calibrate with, found 1; hold out more with "
                "cal_size, or use calibration='cv'"
            )
        warn_if_few_groups(n_groups, n_points, held_out=not self.in_training)
        return self._with(units=groups, counted="groups", bands=())

    def _conditioned(self, X: Rows, y: Tensor) -> "ScoredPredictor":
        return self._with(model=self.model.extended(X, y))

    def _taken(self, places: Tensor, **changed: Any) -> dict[str, Any]:
        """Columns of the table at some places, and the law of these points."""
        every = {name: getattr(self, name) for name in _COLUMNS}
        taken = {name: None if one is None else one[places] for name, one in every.items()}
        law = None if self.law_cal is None else self.law_cal.take(places)
        return {**taken, "law_cal": law, **changed}

    def _with(self, **changed: Any) -> Self:
        """The same with other arguments of the constructor; bounds and known groups are left."""
        other = {"model": self.model, "parts": self.parts, "by_group": None, **changed}
        other["parts"] = other["parts"].with_known(other["model"].known)
        return replace(self, **other)


def _labelled_rows(_: ScoredPredictor) -> Any:
    """An error: there are none."""
    raise WithoutDataError(
        "expected a model with its labelled rows, found a compact one; use the model whose "
        "compact() it is"
    )


@stored("CompactPredictor", rows_cal=Maybe(type(None)), law_cal=Maybe(type(None)))
class CompactPredictor(ScoredPredictor):
    """A predictor without labelled rows, which updates and reports need and answers do not."""

    rows_cal, law_cal = property(_labelled_rows), property(_labelled_rows)

    def compact(self) -> "CompactPredictor":
        return self

    def labelled_data(self) -> tuple[Rows, Tensor]:
        return _labelled_rows(self)

    def _restored(self) -> None:
        agree("parts", self.part.unique().tolist(), list(range(len(self.parts))))
        agree("choices of intervals", len(self.bands), len(self.parts))


class HeldOutPredictor(ScoredPredictor):
    """A predictor at its own calibration points, with held-out predictions.

    The law at a point comes from fits without it (``cv``, ``loo``) or without all calibration
    points (``exact``).  ``beta`` comes from the scores of all of them, or of its part; ``exact``
    with up to 300 points leaves out the score of the point itself.  Widths, errors and coverage are
    what new points will have.

    Examples
    --------
    >>> from sharpgp import LeaveOneOut
    >>> from sharpgp.gp.training import train
    >>> X = torch.linspace(0, 6, 60, dtype=torch.float64)[:, None]
    >>> y = X[:, 0].sin() + 0.1 * torch.cos(37 * X[:, 0])
    >>> own = LeaveOneOut().fit(train(X, y)[0]).at_own_points()
    >>> round(own.calibration_report(own.X_own, own.y_own)["coverage_95"], 2)
    0.97
    """

    def __init__(self, of: ScoredPredictor) -> None:
        vars(self).update(vars(of))
        places = (of.once > 0).nonzero()[:, 0]
        law = of.held_out().take(places)
        self.rows_own, self.y_own = of.rows_cal[places], of.y_cal[places]
        self.X_own = self.rows_own.X
        self._part_of_own, self._own_weights = of.part[places], None
        if of.weights is not None:
            self._own_weights = of.weights[places] / of.weights.max()
        self.model, self.unseen = _HeldOutModel(of.model, law), None
        if not of.in_training and 2 < len(places) <= _MOST_RANKED_APART:
            every = torch.arange(len(of.scores), device=places.device)
            parts = of.part[places].tolist()
            pairs = list(zip(places.tolist(), parts, strict=True))
            others = [(of.part == k) & (every != i) for i, k in pairs]
            self.ranks_of = [of._ranks_in(mine) for mine in others]
            self._unit_of = [of._unit_in(mine) for mine in others]
            self.bands = [of.bands[k] for k in parts]
            self._part_of_own = torch.arange(len(places), device=places.device)

    def calibration_report(
        self, X: ArrayLike | Rows, y: ArrayLike, coverage: float = 0.95
    ) -> CalibrationReport:
        """Every metric but the ECE: these very points fixed the levels."""
        found = super().calibration_report(X, y, coverage)
        return CalibrationReport({k: v for k, v in found.items() if not k.startswith("ece")})

    def part_of(self, X: Rows) -> Tensor:
        return self._part_of_own[X.X[:, 0].long()]

    def test_weights(self, X: Rows, sample_weight: Any) -> Tensor | None:
        return None if self._own_weights is None else self._own_weights[X.X[:, 0].long()]

    def rows(self, X: Any) -> Rows:
        """Numbers of the calibration points, in place of their features."""
        if len(X) != len(self.y_own):
            raise InvalidInputError(
                f"X: expected all {len(self.y_own)} calibration points, found {len(X)}"
            )
        numbers = torch.arange(len(X), dtype=torch.float64, device=self.model.device)
        return Rows(numbers[:, None])

    _near_features = rows

    def _weights_of_report(self, rows: Rows) -> np.ndarray | None:
        """Rows count as the user's weights say."""
        return None if self._own_weights is None else as_numpy(self._own_weights)

    def _columns_of(self, X: Rows) -> Tensor:
        return self.X_own


@dataclass(frozen=True, eq=False, repr=False)
class _HeldOutModel(WrappedModel):
    """A model that knows the points by their numbers [n, 1]."""

    model: Model
    held: Law

    scores = forwarded("model.scores")
    rounding = forwarded("model.rounding")

    def law(self, rows: Inputs) -> Law:
        return self.held.take(Rows.of(rows).X[:, 0].long())

    def extended(self, rows: Inputs, y: Tensor) -> Model:
        return self.model.extended(rows, y)

    def updated(self, rows: Inputs, y: Tensor) -> Model:
        return self.model.updated(rows, y)


# ------------------------------------------------------------------ files of schemas 2 and 3


class _EarlierClasses:
    """Stands for the predictor of several classes in files of earlier schemas."""


def _joined_classes(values: dict[str, Any]) -> ScoredPredictor:
    """One predictor with parts, from those of the classes."""
    each = values["parts"]
    require(each, Several(ScoredPredictor))
    classes = values["classes"]
    parts = Parts(tuple(values["columns"]), classes if len(classes) else None, None, None)
    if values.get("known") is not None:
        parts = Parts(parts.columns, parts.classes, None, values["known"])
    agree("predictors of classes", len(each), len(parts))
    first, start, units = each[0], 0, []
    for one in each:
        own = torch.arange(len(one.scores)) if one.units is None else one.units.cpu()
        units.append(own + start)
        start = int(units[-1].max()) + 1
    device = first.scores.device
    numbers = [torch.full_like(one.part, k) for k, one in enumerate(each)]
    zeros = [torch.zeros_like(one.part) if one.drawn is None else one.drawn for one in each]
    weights = None if first.weights is None else torch.cat([one.weights for one in each])
    found = ScoredPredictor(
        first.model,
        Rows.join(*(one.rows_cal for one in each)),
        *(torch.cat([getattr(one, name) for one in each]) for name in ("y_cal", "scores")),
        weights=weights,
        units=torch.cat(units).to(device),
        drawn=torch.cat(zeros),
        in_training=first.in_training,
        draw=first.draw,
        parts=parts,
        part=torch.cat(numbers),
        bands=[one.bands[0] for one in each],
    )
    found.bounds = values.get("bounds")
    return found


add_codec(_EarlierClasses, Codec("ClassPredictor", vars, _joined_classes))
