r"""Known and new inputs: each class has its own ranks.

A point is *seen* if its input is among those of the rows that trained what predicts it, else
*new*.  That is a function of ``x`` and of the training inputs alone.  Where rows are exchangeable,
those that were held out one by one and a new row are so within each class, too:
``P(y in interval | class) >= coverage``.  Where inputs are exchangeable, each with all of its rows,
and the new row has a new input, the same holds for ranks in which every input that was left out
whole counts as one.  Intervals at new inputs are the wider of the two, see
:class:`sharpgp.calibration.ranks.WiderRanks`.

``cv`` and ``loo`` do the same without a holdout: a row is seen by all others if one of them shares
its input.
"""

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from sharpgp.calibration.predictors.base import Calibrated
from sharpgp.calibration.predictors.by_class import MIN_ROWS_PER_CLASS, ClassPredictor
from sharpgp.calibration.predictors.by_score import ScoredPredictor
from sharpgp.data.copies import equal_rows
from sharpgp.data.folds import one_per_label
from sharpgp.exceptions import warn
from sharpgp.models.laws import Law
from sharpgp.models.model import HeldOut, Model
from sharpgp.models.repeats import Repeats, SeenModel
from sharpgp.rows import Rows

# If every row trains, inputs that occur once represent new inputs alone from this number on.
_MIN_SINGLE_INPUTS = 20


def from_held_out(
    model: Model,
    without: Callable[[], HeldOut | None],
    repeats: Repeats,
    X: Rows,
    y: Tensor,
    *,
    draw: float | None = None,
    by: Any = None,
    seed: int = 0,
) -> ClassPredictor:
    """The predictor from calibration points ``X`` [C, d], ``y`` [C] that did not train ``model``.

    Parameters
    ----------
    model : Model
        Fitted to the rows of ``repeats``.
    without : callable
        Predicts each input by fits without it, or gives None; called only if needed.
    repeats : Repeats
        Training rows, and which calibration points were held out one by one.
    draw, by
        See :class:`ScoredPredictor` and :class:`ClassPredictor`.
    seed : int
        Draws a row of each input for ranks that cannot weight rows.
    """
    seen = repeats.known.find(X) >= 0
    drawn = torch.ones_like(seen) if repeats.drawn is None else repeats.drawn
    enough = int((seen & drawn).sum()) >= MIN_ROWS_PER_CLASS
    _warn_of_copies(repeats, enough)
    if enough and repeats.tells:
        model = SeenModel.learned(model, repeats, without())
    scores = model.score(X, y)
    new = ~seen
    if int(new.sum()) < 2:
        warn(
            "no calibration row has an input that is new to the model: intervals at new inputs "
            "are those at known ones, and may cover less than requested"
        )
        new = drawn
    rows = new.nonzero()[:, 0]
    labels = equal_rows(X.X[new]).to(X.device)
    if len(labels.unique()) < 2:  # with a single input, only rows can be ranked
        labels = torch.arange(len(rows), device=rows.device)
    if draw is not None:
        rows, labels = _one_of_each_input(rows, labels, seed)
    of_new = _by_input(labels, drawn[rows])
    of_seen = ((seen if enough else torch.ones_like(seen)) & drawn).nonzero()[:, 0]

    def part(rows: Tensor, **settings: Any) -> ScoredPredictor:
        return ScoredPredictor(model, X[rows], y[rows], scores[rows], draw=draw, **settings)

    parts = [(part(rows, **of_new), rows), (part(of_seen), of_seen)]
    return ClassPredictor.seen_or_new(parts, repeats.known, by)


def _one_of_each_input(rows: Tensor, labels: Tensor, seed: int) -> tuple[Tensor, Tensor]:
    chosen = one_per_label(labels, seed)
    return rows[chosen], torch.arange(len(chosen), device=rows.device)


def _by_input(labels: Tensor, drawn: Tensor) -> dict[str, Tensor]:
    """Settings by which rows count once per input; empty if every row is its own input."""
    if len(labels.unique()) == len(labels) and bool(drawn.all()):
        return {}
    found = {"labels": labels}
    if int(drawn.sum()) >= MIN_ROWS_PER_CLASS:
        found["drawn"] = drawn.long()
    return found


def from_left_out(model: Model, held: HeldOut, repeats: Repeats) -> Calibrated:
    """The predictor where every row trains; ``held`` are points under fits without their input.

    A row that shares its input is scored by what the other rows say of it, see
    :meth:`SeenModel.law_of_known`.  With known noise there are no classes, and every input counts
    as one.
    """
    labels, count = repeats.labels, repeats.count()
    place = repeats.by_input(held)[labels]
    if repeats.noise is not None:
        return _single_rows(model, held.law, place, repeats)
    tested = place >= 0
    several = (tested & (count[labels] > 1)).nonzero()[:, 0]
    enough = len(several) >= MIN_ROWS_PER_CLASS
    _warn_of_copies(repeats, enough)
    X, y = repeats.X, repeats.y
    if enough:
        model = SeenModel.learned(model, repeats, held)
    law = held.law.take(place)
    if isinstance(model, SeenModel):
        law, y = model.of_single(law), model.rounded(y, law.location)
    scores, y = law.score(y), repeats.y
    single = (tested & (count[labels] == 1)).nonzero()[:, 0]
    every = tested.nonzero()[:, 0]
    rows = single if len(single) >= _MIN_SINGLE_INPUTS else every

    def part(rows: Tensor, scores: Tensor, held: Law, **settings: Any) -> ScoredPredictor:
        data = model, X[rows], y[rows], scores
        return ScoredPredictor(*data, in_training=True, held=held, **settings)

    def without(rows: Tensor, **settings: Any) -> ScoredPredictor:
        """Scores of rows by fits without their input."""
        return part(rows, scores[rows], law.take(rows), **settings)

    of_new = {} if rows is single else {"labels": labels[rows]}
    parts = [(without(rows, **of_new), rows)]
    if isinstance(model, SeenModel):
        of, c = labels[several], count[labels[several]]
        others = model.mean[of] + (model.mean[of] - y[several]) / (c - 1)
        known = model.law_of_known(of, others, c - 1)
        z = known.score(model.rounded(y[several], known.location))
        parts.append((part(several, z, known), several))
    else:
        # Too few: the wider of the ranks of new inputs and of all rows.
        settings = {"labels": labels[every], "drawn": torch.ones_like(every)}
        parts.append((without(every, **settings), every))
    return ClassPredictor.seen_or_new(parts, repeats.known, None)


def _single_rows(model: Model, law: Law, place: Tensor, repeats: Repeats) -> Calibrated:
    """Scores of single rows, where fits predict means of lower variance; each input counts as one.

    ``place`` [N]: position of each row's input in ``law``; -1 without one.
    """
    labels, own, groups = repeats.labels, repeats.noise, repeats.groups
    assert own is not None
    merged = 1.0 / own.new_zeros(int(labels.max()) + 1).index_add(0, labels, 1.0 / own)
    single, means = Rows(repeats.X, own), Rows(repeats.X, merged[labels])
    with torch.no_grad():  # added noise of a single row, in the model's own units
        more = model.law(single).spread.square() - model.law(means).spread.square()
    rows = (place >= 0).nonzero()[:, 0]
    law = law.take(place[rows])
    factor = (1.0 + more[rows] / law.spread.square()).sqrt()
    scores = law.changed(factor=factor).score(repeats.y[rows])
    data = model, single[rows], repeats.y[rows], scores
    if groups is not None:
        return ScoredPredictor(*data, in_training=True).for_groups(groups[rows])
    return ScoredPredictor(*data, in_training=True, labels=labels[rows])


def _warn_of_copies(repeats: Repeats, enough: bool) -> None:
    """Warn that rows repeat others in inputs and target, and what follows."""
    k, n = repeats.n_agreeing(), len(repeats.y)
    if not k:
        return
    then = (
        "new rows at these inputs are predicted with what is known there"
        if enough
        else "these are too few to calibrate new rows at these inputs, which are predicted as all "
        "others are"
    )
    warn(
        f"{k} of {n} training rows repeat others in X and y: {then}. If the rows were copied by "
        "mistake, drop them"
    )
