"""The predictor from scores: a model gives scores and values, ranks of scores give ``beta``."""

from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import Any, Self

import torch
from torch import Tensor

from sharpgp._ranks import points_needed
from sharpgp._stored import Array, Maybe, agree, stored
from sharpgp._validation import as_weights
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
from sharpgp.calibration.predictors.window import last_of_rows, last_rows, with_new_groups
from sharpgp.calibration.ranks import Ranks, WiderRanks
from sharpgp.data.target_bounds import Bounds
from sharpgp.distribution import PredictiveDistribution
from sharpgp.exceptions import InvalidInputError
from sharpgp.models.laws import Law
from sharpgp.models.model import HeldOut, Model
from sharpgp.rows import Inputs, Rows, rows_of_earlier

# Arguments of the constructor that are attributes of the same name.
_ARGUMENTS = (
    *("model", "rows_cal", "y_cal", "scores", "weights", "groups", "labels", "drawn", "ratio"),
    *("in_training", "draw", "prefers_band"),
)
# Ends move outward by this share of the location, so that rounding does not exclude their point.
_ROUNDING = 16 * torch.finfo(torch.float64).eps


@stored(
    "ScoredPredictor",
    model=Model,
    rows_cal=Rows,
    y_cal=Array("C"),
    scores=Array("C"),
    prefers_band=bool,
    in_training=bool,
    weights=Maybe(Array("C")),
    groups=Maybe(Array("C", whole=True)),
    labels=Maybe(Array("C", whole=True)),
    drawn=Maybe(Array("C", whole=True)),
    ratio=Maybe(type(None)),
    draw=Maybe(float),
    by_group=Maybe(Calibrated),
    law_cal=Maybe(Law),
    transient={"ranks": None, "n_cal": None},
    earlier=rows_of_earlier,
)
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
    multiplied by these, without a guarantee.

    Parameters
    ----------
    model : Model
    rows_cal : Rows or Tensor [C, d]
    y_cal : Tensor [C]
        Calibration points, oldest first.
    scores : Tensor [C]
        Their scores under a model that has not seen them.
    weights : Tensor [C], optional
        None for equal ones.
    groups : Tensor [C], optional
        Whole numbers, equal for points of one group.
    labels : Tensor [C], optional
        Whole numbers, equal for points with equal inputs; each input then counts as one, as a
        group does.
    drawn : Tensor [C], optional
        1 for points that were held out one by one, 0 for those of inputs that were left out
        whole.  Intervals are then the wider of those by ``labels`` and those of the former points,
        each of which counts as one; see :mod:`sharpgp.calibration.predictors.seen_or_new`.
    ratio : callable, optional
        ``w(X)`` for arrays (n, d).
    in_training : bool
        Whether the model was also trained on the calibration points (``cv``, ``loo``).
    draw : float, optional
        In [0, 1): see :class:`sharpgp.calibration.ranks.Ranks`.
    prefers_band : bool, optional
        Whether intervals are symmetric by default.  If None, the rule
        :func:`sharpgp.calibration.intervals.prefers_band` decides.
    held : Law, optional
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

    n_cal: int
    groups: Tensor | None = None
    labels: Tensor | None = None
    drawn: Tensor | None = None
    draw: float | None = None
    law_cal: Law | None = None

    def __init__(
        self,
        model: Model,
        rows_cal: Inputs,
        y_cal: Tensor,
        scores: Tensor,
        *,
        weights: Tensor | None = None,
        groups: Tensor | None = None,
        labels: Tensor | None = None,
        drawn: Tensor | None = None,
        ratio: Ratio | None = None,
        in_training: bool = False,
        draw: float | None = None,
        prefers_band: bool | None = None,
        held: Law | None = None,
    ) -> None:
        self.model = model
        self.rows_cal, self.y_cal, self.scores = Rows.of(rows_cal), y_cal, scores
        self.weights = None if weights is None else require_positive(weights)
        self.groups, self.labels, self.drawn, self.ratio = groups, labels, drawn, ratio
        self.in_training, self.draw, self.law_cal = in_training, draw, held
        if prefers_band is None:
            alike = labels if groups is None else groups
            independent = len(scores) if alike is None else len(alike.unique())
            prefers_band = intervals.prefers_band(model.scores, independent)
        self.prefers_band = prefers_band
        self._rank()

    @classmethod
    def from_model(
        cls, model: Model, rows: Inputs, y_cal: Tensor, *, draw: float | None = None
    ) -> Self:
        """Predictor from the scores of points that the model has not seen."""
        return cls(model, rows, y_cal, model.score(rows, y_cal), draw=draw)

    @classmethod
    def from_training(cls, model: Model, held: HeldOut) -> Self:
        """Predictor from the scores of training points, each under fits without it."""
        data = model.rows[held.rows], model.y_train[held.rows], held.scores
        return cls(model, *data, in_training=True, held=held.law)

    def _rank(self) -> None:
        groups = self.labels if self.groups is None else self.groups
        self.ranks = Ranks(self.scores, self.weights, groups=groups, draw=self.draw)
        if self.drawn is not None:
            rows = self.drawn > 0
            weights, unit = None if self.weights is None else self.weights[rows], 1.0
            if weights is not None and self.weights is not None:
                unit = float(self.weights.max() / weights.max())
            self.ranks = WiderRanks(self.ranks, Ranks(self.scores[rows], weights), unit)
        self.n_cal = self.ranks.n

    def _restored(self) -> None:
        agree("features", self.rows_cal.n_features, self.model.n_features)
        agree("calibration rows", len(self.rows_cal), len(self.scores))
        agree("draw in [0, 1)", self.draw is None or 0.0 <= self.draw < 1.0, True)
        if self.weights is not None:
            right = bool((self.weights >= 0).all() and self.weights.max() > 0)
            agree("sign of weights", right, True)
        self._rank()

    @property
    def X_cal(self) -> Tensor:
        """Features [C, d] of the calibration points."""
        return self.rows_cal.X

    @property
    def n_effective(self) -> float:
        """Number of points of equal weight that hold as much information."""
        return self.ranks.n_effective

    @property
    def counted(self) -> str:  # type: ignore[override]
        if self.groups is not None:
            return "groups"
        return "points" if self.labels is None else "inputs"

    def with_bounds(self, bounds: Bounds | None) -> Self:
        """Where targets pile up at a bound, bands are used if they score better there.

        See :func:`sharpgp.calibration.intervals.prefers_band_within`.
        """
        other = super().with_bounds(bounds)
        if self.by_group is not None:
            other.by_group = self.by_group.with_bounds(bounds)
        if bounds is not None and intervals.pile_up(self.model, bounds):
            labels = self.groups if self.in_training else None
            other.prefers_band = intervals.prefers_band_within(
                self.model, bounds, self.n_cal, labels
            )
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

    # -------------------------------------------------------------- answers

    def quantiles(self, X: Rows, delta: Tensor) -> Tensor:
        return self.model.value(X, self.ranks.beta(delta).unsqueeze(-1))

    def interval_ends(
        self, X: Rows, coverages: list[float], symmetric: bool | None, weights: Tensor | None
    ) -> Tensor:
        law = self.law(X)
        scores = torch.cat(self._end_scores(coverages, symmetric, weights))
        lower, upper = law.value(scores).chunk(2)
        slack = _ROUNDING * law.location.abs() + law.rounding + self.model.rounding
        return torch.stack([lower - slack, upper + slack])

    def _end_scores(
        self, coverages: list[float], symmetric: bool | None, weights: Tensor | None
    ) -> tuple[Tensor, Tensor]:
        """Scores [K, T or 1] at which intervals end."""
        w = self.scores.new_ones(1) if weights is None else weights
        lower, upper = [], []
        for coverage in coverages:
            low, high, _ = self.ranks.interval_ends(coverage, w)
            radius, _ = self.ranks.radius(coverage, w)
            band = self._is_band(coverage, symmetric, w)
            lower.append(torch.where(band, -radius, low))
            upper.append(torch.where(band, radius, high))
        return torch.stack(lower), torch.stack(upper)

    def distribution(self, X: Rows) -> PredictiveDistribution:
        delta = self.ranks.nodes()
        law, tail = self.law(X), self.ranks.tail
        table = self.ranks.table(delta).unsqueeze(-1)
        values = law.value(table)
        beyond = tail.times(law.growth(table, values, tail.scale))
        return PredictiveDistribution(delta, values, tail=beyond, caution=self._caution)

    @property
    def _caution(self) -> Callable[..., None]:
        return partial(warn_if_unsupported, n_cal=self.n_cal, counted=self.counted)

    def _is_band(self, coverage: float, symmetric: bool | None, w: Tensor) -> Tensor:
        """Whether points of weights ``w`` get bands: by choice, or because points are too few."""
        if symmetric is not None:
            return torch.full_like(w, symmetric, dtype=torch.bool)
        return ~self.ranks.centred_supported(coverage, w) | self.prefers_band

    def _warn_of_coverage(
        self, coverage: float, symmetric: bool | None, weights: Tensor | None, n_rows: int
    ) -> None:
        w = self.scores.new_ones(1) if weights is None else weights
        band = self._is_band(coverage, symmetric, w)
        _, _, backed = self.ranks.interval_ends(coverage, w)
        _, band_backed = self.ranks.radius(coverage, w)
        unbacked = int((~torch.where(band, band_backed, backed)).sum())
        if not unbacked:
            return
        if weights is None:
            tail = 1.0 - coverage if bool(band) else (1.0 - coverage) / 2.0
            asked = f"coverage {coverage:g}"
            warn_of_tail(asked, points_needed(tail), self.n_cal, self.counted)
            return
        warn_of_weights(coverage, unbacked, n_rows, self.n_effective, self.counted)

    # -------------------------------------------------------------- further points, weights

    @property
    def can_be_rescored(self) -> bool:
        """True: a further point whose weight is unknown has the mean weight."""
        return True

    def _updated(self, X: Rows, y: Tensor, weights: Tensor | None) -> "ScoredPredictor":
        # If calibration points also train, the present model scores the new points before it learns
        # from them.
        model = self.model.updated(X, y) if self.in_training else self.model
        other = self._joined(X, y, weights, None, model)
        if self.by_group is not None:  # each of them is of a new group
            of_none = replace(X, unit=torch.full_like(y, -1, dtype=torch.long))
            other.by_group = self.by_group._updated(of_none, y, weights)._bounded(self.bounds)
        return other

    def _rescored(self, X: Rows, y: Tensor, keep: int | None) -> "ScoredPredictor":
        return self._joined(X, y, self._usual_weights(X), keep, self.model)

    def _usual_weights(self, X: Rows) -> Tensor | None:
        """Weights [n] of further points: those of the function, else the mean of the known ones."""
        if self.weights is None or self.ratio is not None:
            return self._new_weights(X, None)
        return self.weights.mean().expand(len(X))

    def _joined(
        self, X: Rows, y: Tensor, weights: Tensor | None, keep: int | None, model: Model
    ) -> "ScoredPredictor":
        scores = last_rows(self.scores, self.model.score(X, y), keep)
        if weights is not None and self.weights is not None:
            weights = last_rows(self.weights, weights, keep)
        return self._with(
            model=model,
            rows_cal=last_of_rows(self.rows_cal, X, keep),
            y_cal=last_rows(self.y_cal, y, keep),
            scores=scores,
            weights=weights,
            groups=with_new_groups(self.groups, len(y), keep),
            labels=with_new_groups(self.labels, len(y), keep),
            drawn=self._still_drawn(len(y), keep),
            prefers_band=self.prefers_band if self._has_decided(len(scores)) else None,
            held=None,
        )

    def _still_drawn(self, n_new: int, keep: int | None) -> Tensor | None:
        if self.drawn is None:
            return None
        kept = last_rows(self.drawn, self.drawn.new_ones(n_new), keep)
        return kept if bool(kept.any()) else None

    def _has_decided(self, n_scores: int) -> bool:
        """Whether the choice between bands and centred intervals stays, with this many scores.

        A stream with a window need not decide again at every step; a decision about bounds needs
        held-out predictions.
        """
        at_bound = self.bounds is not None and intervals.pile_up(self.model, self.bounds)
        return at_bound or n_scores == len(self.scores)

    def weighted(self, sample_weight: Weights) -> "ScoredPredictor":
        """The same scores with weights: an array (C,), or a function of ``X`` that gives one."""
        if self.draw is not None:
            raise InvalidInputError(
                "sample_weight: expected a method that ranks scores (exact, cv, kuleshov18, "
                "marx22), found vovk20, whose draw is made for equal weights"
            )
        ratio = sample_weight if callable(sample_weight) else None
        if ratio is not None:
            weights = weights_at(self.rows_cal, ratio)
        else:
            n, device = len(self.scores), self.model.device
            weights = as_weights(sample_weight, n_rows=n, device=device)
        return self._with(weights=weights, ratio=ratio)

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
        return self._with(groups=groups, prefers_band=None)

    def at_rows(self, mask: Tensor) -> "ScoredPredictor":
        """The same from some of the calibration points [C]."""
        of_rows = ("rows_cal", "y_cal", "scores", "weights", "groups", "labels", "drawn")
        every = {name: getattr(self, name) for name in of_rows}
        kept = {name: None if value is None else value[mask] for name, value in every.items()}
        if kept["drawn"] is not None and not bool(kept["drawn"].any()):
            kept["drawn"] = None
        return self._with(**kept, held=None)

    def labelled_data(self) -> tuple[Rows, Tensor]:
        """Training points, then the calibration points that are not among them."""
        rows, y = self.model.rows, self.model.y_train
        if self.in_training:
            return (rows, y) if self.labels is None else (self.rows_cal, self.y_cal)
        return Rows.join(rows, self.rows_cal), torch.cat([y, self.y_cal])

    def _conditioned(self, X: Rows, y: Tensor) -> "ScoredPredictor":
        return self._with(model=self.model.extended(X, y))

    def _with(self, **changed: Any) -> Self:
        """The same with other arguments of the constructor; bounds and known groups are left."""
        kept = {name: getattr(self, name) for name in _ARGUMENTS}
        return type(self)(**{**kept, "held": self.law_cal, **changed})
