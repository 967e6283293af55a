r"""Known groups: their own rows say how they differ from the prediction.

A fit without group ``g`` scores its ``n`` rows: ``z_i = b_g + e_i``, with an effect of the group of
variance ``B`` and variance ``W`` within groups, both estimated from the scores of all groups.  The
same fit predicts a further row of that group.  Its score is then shifted by ``w mean(z)``,
``w = B / (B + W/n)``, and has the variance ``W + w W/n`` instead of ``B + W``.  Ranks are those of
rows left out while the other rows of their group stay.  New groups are predicted as usual.
"""

from collections.abc import Sequence

import torch
from torch import Tensor

from sharpgp._stored import Array, agree, stored
from sharpgp.calibration.predictors.by_class import MIN_ROWS_PER_CLASS, ClassPredictor
from sharpgp.calibration.predictors.by_score import ScoredPredictor
from sharpgp.data.folds import Split
from sharpgp.models.bagged import AveragedModel
from sharpgp.models.gaussian.gaussian_model import GaussianModel
from sharpgp.models.laws import Law, joined
from sharpgp.models.model import HeldOut, Learner, Model, held_out_of
from sharpgp.models.pool import PooledModel
from sharpgp.models.repeats import KnownInputs, label_means, own_variance
from sharpgp.models.wrapper import WrappedModel


@stored("KnownGroups", X=Array("L d"), transient={"_numbers": None, "_order": None})
class KnownGroups(KnownInputs):
    """Known groups by number; the last feature of a point is its group, -1 if unknown.

    Examples
    --------
    >>> KnownGroups(torch.zeros(1, 1)).find(torch.tensor([[0.5, 3.0], [0.5, -1.0]])).tolist()
    [3, -1]
    """

    def find(self, X: Tensor) -> Tensor:
        """Number [T] of each point's group."""
        return X.detach()[:, -1].long()


@stored(
    "GroupModel",
    model=Model,
    parts=Array("N", whole=True),
    part_of=Array("G", whole=True),
    shift=Array("G"),
    size=Array("G"),
    transient={"_fits": None},
)
class GroupModel(WrappedModel):
    """A model whose last feature is the number of a known group, or -1.

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

    def __init__(
        self, model: Model, parts: Tensor, part_of: Tensor, shift: Tensor, size: Tensor
    ) -> None:
        self.model, self.parts, self.part_of = model, parts, part_of
        self.shift, self.size = shift, size
        self._fits: dict[int, Model] | None = None

    def _restored(self) -> None:
        agree("parts", len(self.parts), len(self.model.y_train))

    @property
    def scores(self) -> Tensor | None:  # type: ignore[override]
        """Scores of the model."""
        return self.model.scores

    @property
    def n_features(self) -> int:
        return self.model.n_features + 1

    def law(self, X: Tensor) -> Law:
        of, rows = X.detach()[:, -1].long(), X[:, :-1]
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
        if self._fits is None:
            self._fits = {}
        if part not in self._fits:
            rest = (self.parts != part).nonzero()[:, 0]
            n_parts = int(self.parts.max()) + 1
            self._fits[part] = without_part(self.model, rest, part, n_parts)
        return self._fits[part]

    def extended(self, X: Tensor, y: Tensor) -> "GroupModel":
        """What is known of groups stays."""
        return self._around(self.model.extended(X[:, :-1], y))

    def updated(self, X: Tensor, y: Tensor) -> "GroupModel":
        """What is known of groups stays."""
        return self._around(self.model.updated(X[:, :-1], y))

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
        return model._with([without_part(one, rest, part, n_parts) for one in model.models])
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
    found: ScoredPredictor,
    groups_cal: Tensor,
) -> ClassPredictor | None:
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
    X, y = model.X_train, model.y_train
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
        rows, targets = torch.cat([rows, found.X_cal]), torch.cat([targets, found.y_cal])
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

    def numbered(X: Tensor, numbers: Tensor) -> Tensor:
        return torch.cat([X, numbers.to(X).unsqueeze(-1)], -1)

    known = ScoredPredictor(
        by_group,
        numbered(rows[several], of[several]),
        targets[several],
        scores,
        in_training=found.in_training,
    )
    of_none = numbered(found.X_cal, torch.full_like(found.y_cal, -1.0))
    new = found._with(model=by_group, X_cal=of_none, held=None)
    both = [(part, torch.arange(len(part.scores))) for part in (new, known)]
    return ClassPredictor.seen_or_new(both, KnownGroups(X[:1]))
