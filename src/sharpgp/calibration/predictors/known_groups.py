r"""Known groups: their own rows say how they differ from the prediction.

A fit without group ``g`` scores its ``n`` rows: ``z_i = b_g + e_i``, with an effect of the group of
variance ``B`` and variance ``W`` within groups, both estimated from the scores of all groups.  The
same fit predicts a further row of that group.  Its score is then shifted by ``w mean(z)``,
``w = B / (B + W/n)``, and has the variance ``W + w W/n`` instead of ``B + W``.  Ranks are those of
rows left out while the other rows of their group stay.  New groups are predicted as usual.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Annotated, Any

import torch
from torch import Tensor

from sharpgp._stored import Array, agree, stored
from sharpgp.calibration.predictors.parts import MIN_ROWS_PER_CLASS, Parts
from sharpgp.calibration.predictors.scored import ScoredPredictor
from sharpgp.data.folds import Split
from sharpgp.models.bagged import AveragedModel
from sharpgp.models.gaussian.gaussian_model import GaussianModel
from sharpgp.models.laws import Law, joined
from sharpgp.models.model import HeldOut, Learner, Model, held_out_of
from sharpgp.models.pool import PooledModel
from sharpgp.models.repeats import KnownInputs, label_means, own_variance
from sharpgp.models.wrapper import WrappedModel
from sharpgp.rows import Inputs, Rows


@stored("KnownGroups", transient={"_numbers": None, "_order": None})
class KnownGroups(KnownInputs):
    """Known groups by number, which are the units of rows; -1 if unknown.

    Examples
    --------
    >>> rows = Rows(torch.zeros(2, 1), unit=torch.tensor([3, -1]))
    >>> KnownGroups(torch.zeros(1, 1)).find(rows).tolist()
    [3, -1]
    """

    def find(self, rows: Inputs) -> Tensor:
        """Number [T] of each row's group."""
        return group_of(Rows.of(rows))


def group_of(rows: Rows) -> Tensor:
    """Group [T] of each row; -1 for a row of unknown unit."""
    if rows.unit is None:
        return torch.full((len(rows),), -1, dtype=torch.long, device=rows.device)
    return rows.unit


@stored("GroupModel")
@dataclass(frozen=True, eq=False, repr=False)
class GroupModel(WrappedModel):
    """A model of rows whose units are numbers of known groups, or -1.

    Parameters
    ----------
    model : Model
        What predicts new groups.
    parts : Tensor [N]
        Which part of the training points each belongs to; parts are left out together.
    part_of : Tensor [G]
        The part of each group; -1 for one that the model was not trained on.
    shift, size : Tensor [G]
        Mean and deviation of further scores of each group.
    """

    model: Model
    parts: Annotated[Tensor, Array("N", whole=True)]
    part_of: Annotated[Tensor, Array("G", whole=True)]
    shift: Annotated[Tensor, Array("G")]
    size: Annotated[Tensor, Array("G")]
    _fits: dict[int, Model] = field(default_factory=dict, init=False)

    def _restored(self) -> None:
        agree("parts", len(self.parts), len(self.model.y_train))

    @property
    def scores(self) -> Tensor | None:  # type: ignore[override]
        """Scores of the model."""
        return self.model.scores

    def law(self, rows: Inputs) -> Law:
        rows = Rows.of(rows)
        of = group_of(rows)
        part = torch.where(of >= 0, self.part_of[of], -1)
        which = part.unique().tolist() or [-1]  # an empty set of rows has a law, too
        places = [(part == k).nonzero()[:, 0] for k in which]
        fits = [self._without(k) for k in which]
        laws = [fit.law(rows[some]) for fit, some in zip(fits, places, strict=True)]
        law = joined(laws).take(torch.cat(places).argsort())
        known = of >= 0
        shift = torch.where(known, self.shift[of], 0.0)
        size = torch.where(known, self.size[of], 1.0)
        return law.changed(shift, size)

    def _without(self, part: int) -> Model:
        """The fit without a part, made on first use."""
        if part < 0:
            return self.model
        if part not in self._fits:
            rest = (self.parts != part).nonzero()[:, 0]
            n_parts = int(self.parts.max()) + 1
            self._fits[part] = without_part(self.model, rest, part, n_parts)
        return self._fits[part]

    def extended(self, rows: Inputs, y: Tensor) -> "GroupModel":
        """What is known of groups stays."""
        return self._around(self.model.extended(Rows.of(rows).without("unit"), y))

    def updated(self, rows: Inputs, y: Tensor) -> "GroupModel":
        """What is known of groups stays."""
        return self._around(self.model.updated(Rows.of(rows).without("unit"), y))

    def _around(self, model: Model) -> "GroupModel":
        more = self.parts.new_full((len(model.y_train) - len(self.parts),), -1)
        parts = torch.cat([self.parts, more])
        return GroupModel(model, parts, self.part_of, self.shift, self.size)


def can_leave_parts(model: Model) -> bool:
    """Whether there are fits without a part, see :func:`without_part`."""
    if isinstance(model, PooledModel):
        return all(can_leave_parts(one) for one in model.models)
    gp = isinstance(model, GaussianModel) and model.posterior.can_leave_out
    return gp or isinstance(model, AveragedModel)


def without_part(model: Model, rest: Tensor, part: int, n_parts: int) -> Learner:
    """The model refitted, or at least conditioned, without a part of the rows.

    Parameters
    ----------
    model : Model
    rest : Tensor [n]
        Rows that do not belong to the part.
    part, n_parts : int
        The part, and their number. In an average, each refit left out one or more parts, in order.
    """
    if isinstance(model, PooledModel):
        return model.of_models([without_part(one, rest, part, n_parts) for one in model.models])
    if isinstance(model, AveragedModel):
        each = -(-n_parts // len(model.refits))
        refit, n = model.refits[part // each], len(model.y_train)
        if isinstance(refit, GaussianModel) and len(refit.y_train) == n:
            return refit.with_data(model.X_train[rest], model.y_train[rest])
        return refit
    assert isinstance(model, GaussianModel)
    return model.with_data(model.X_train[rest], model.y_train[rest])


def known_groups(
    model: Model,
    groups: Tensor,
    pairs: Sequence[Split],
    held: HeldOut | None,
    found: Any,
    groups_cal: Tensor,
) -> ScoredPredictor | None:
    """A predictor for points with the number of their group as the last feature.

    None if there are no fits without a group, or too few groups have several rows.

    Parameters
    ----------
    model : Model
    groups : Tensor [N]
        Of the training points.
    pairs : sequence of Split
        Parts of the training points, with whole groups.
    held : HeldOut, optional
        Predictions for each part by fits without it.
    found : ScoredPredictor
        The predictor for new groups.
    groups_cal : Tensor [C]
        Of the points that calibrate it.
    """
    X, y = model.rows, model.y_train
    parts = torch.full_like(groups, -1)
    for k, (_, test) in enumerate(pairs):
        parts[test] = k
    if not can_leave_parts(model) or bool((parts < 0).any()):
        return None
    if held is None:
        fits = [without_part(model, rest, k, len(pairs)) for k, (rest, _) in enumerate(pairs)]
        held = held_out_of(fits, pairs, X, y)
    rows, z, of = X[held.rows], held.scores, groups[held.rows]
    targets = y[held.rows]
    if not found.in_training:
        rows, targets = Rows.join(rows, found.rows_cal), torch.cat([targets, found.y_cal])
        z, of = torch.cat([z, found.scores]), torch.cat([of, groups_cal])
    count = of.bincount(minlength=int(groups.max()) + 1)
    several = count[of] > 1
    if int(several.sum()) < MIN_ROWS_PER_CLASS:
        return None
    names, place = of.unique(return_inverse=True)
    count = place.bincount().double()
    numbers = place.cpu().numpy()
    mean = torch.from_numpy(label_means(z.cpu().numpy(), numbers)).to(z)
    within = max(own_variance(z.cpu().numpy(), numbers), 1e-12)
    between = max(float(mean.square().mean() - within * (1.0 / count).mean()), 0.0)

    def law(mean: Tensor, count: Tensor) -> tuple[Tensor, Tensor]:
        weight = between / (between + within / count)
        return weight * mean, (within + weight * within / count).sqrt()

    G = int(names.max()) + 1
    shift, size = z.new_zeros(G), z.new_full((G,), (within + between) ** 0.5)
    shift[names], size[names] = law(mean, count)
    part_of = torch.full((G,), -1, device=z.device)
    part_of[groups] = parts
    by_group = GroupModel(model, parts, part_of, shift, size)

    rest = count[place[several]] - 1
    others = (count[place[several]] * mean[place[several]] - z[several]) / rest
    moved, scale = law(others, rest)
    scores = (z[several] - moved) / scale

    new_rows = replace(found.rows_cal, unit=torch.full_like(found.y_cal, -1, dtype=torch.long))
    known_rows = replace(rows[several], unit=of[several])
    n = len(found.scores)
    part = torch.cat([torch.zeros_like(found.part), torch.ones_like(of[several])])
    units = torch.arange(n, device=z.device) if found.units is None else found.units
    # Each known group counts as one, as each new one does.
    return ScoredPredictor(
        by_group,
        Rows.join(new_rows, known_rows),
        torch.cat([found.y_cal, targets[several]]),
        torch.cat([found.scores, scores]),
        units=torch.cat([units, int(units.max()) + 1 + of[several]]),
        counted="groups",
        in_training=found.in_training,
        parts=Parts(known=KnownGroups(X.X[:1])),
        part=part,
        bands=[found.bands[0], None],
    )
