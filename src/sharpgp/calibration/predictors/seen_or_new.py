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

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor

from sharpgp.calibration.predictors.base import Calibrated
from sharpgp.calibration.predictors.parts import MIN_ROWS_PER_CLASS, Parts, classes_of
from sharpgp.calibration.predictors.scored import ScoredPredictor
from sharpgp.data.copies import equal_rows
from sharpgp.data.folds import one_per_label
from sharpgp.exceptions import warn
from sharpgp.models.laws import Law, joined
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
) -> ScoredPredictor:
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
        See :class:`ScoredPredictor` and :class:`Parts`.
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
    of_seen = ((seen if enough else torch.ones_like(seen)) & drawn).nonzero()[:, 0]
    # Ranks of single rows beside those of inputs, if enough were held out one by one.
    several = len(labels.unique()) < len(labels) or not bool(drawn[rows].all())
    alone = drawn[rows].long() if several else torch.ones_like(rows)
    if int(drawn[rows].sum()) < MIN_ROWS_PER_CLASS:
        alone = torch.zeros_like(rows)
    place, part = torch.cat([rows, of_seen]), _numbers(rows, of_seen)
    own = (repeats.known.find(X[place]) >= 0).long() == part
    found = ScoredPredictor(
        model,
        *(X[place], y[place], scores[place]),
        units=torch.cat([labels, int(labels.max()) + 1 + torch.arange(len(of_seen)).to(labels)]),
        drawn=torch.cat([alone, torch.ones_like(of_seen)]),
        draw=draw,
        parts=Parts(known=repeats.known),
        part=part,
        row=place,
        once=(own & (drawn[place] | (part + alone.any() == 0))).long(),
    )
    return found if by is None else _within_classes(found, by)


def _one_of_each_input(rows: Tensor, labels: Tensor, seed: int) -> tuple[Tensor, Tensor]:
    chosen = one_per_label(labels, seed)
    return rows[chosen], torch.arange(len(chosen), device=rows.device)


def _numbers(*places: Tensor) -> Tensor:
    """Which of several sets of places [n] each belongs to, for all of them in order."""
    return torch.cat([torch.full_like(some, k) for k, some in enumerate(places)])


def _within_classes(found: ScoredPredictor, by: Sequence[int] | Callable[[Any], Any]) -> Any:
    """New and known inputs, each within classes; where a class has too few points, of all."""
    X = found.rows_cal
    parts, own, _ = classes_of(X, by)
    others = ~torch.stack([*own, torch.zeros(len(X), dtype=torch.bool, device=X.device)]).any(0)
    masks = []
    for k, where in enumerate(("new", "known")):
        side = found.part == k
        crossed = [side & mask for mask in (*own, others)]
        few = [int(mask.sum()) < MIN_ROWS_PER_CLASS for mask in crossed]
        if any(few[:-1]):
            warn(
                f"by: {sum(few[:-1])} of {len(own)} classes have fewer "
                f"than {MIN_ROWS_PER_CLASS} calibration points at {where} inputs; intervals "
                "there are those of all classes, and may cover less than requested"
            )
        masks += [side if small else mask for mask, small in zip(crossed, few, strict=True)]
    return found.split(replace(parts, known=found.parts.known), masks)


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

    known: Law
    of_new = labels if rows is every else torch.arange(len(labels)).to(labels)
    if isinstance(model, SeenModel):
        of, c = labels[several], count[labels[several]]
        others = model.mean[of] + (model.mean[of] - y[several]) / (c - 1)
        known = model.law_of_known(of, others, c - 1)
        z = known.score(model.rounded(y[several], known.location))
        last, units, drawn = several, several, torch.zeros_like(several)
    else:
        # Too few: the wider of the ranks of new inputs and of all rows.
        known, z = law.take(every), scores[every]
        last, units, drawn = every, labels[every], torch.ones_like(every)
    place, part = torch.cat([rows, last]), _numbers(rows, last)
    once = torch.cat([~torch.isin(rows, last), torch.ones_like(last).bool()])
    return ScoredPredictor(
        model,
        Rows.of(X[place]),
        repeats.y[place],
        torch.cat([scores[rows], z]),
        units=torch.cat([of_new[rows], int(labels.max()) + len(labels) + 1 + units]),
        drawn=torch.cat([torch.zeros_like(rows), drawn]),
        in_training=True,
        parts=Parts(known=repeats.known),
        part=part,
        row=place,
        once=once.long(),
        law_cal=joined([law.take(rows), known]),
    )


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
    return ScoredPredictor(*data, in_training=True, units=labels[rows], counted="inputs")


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
