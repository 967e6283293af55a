r"""Known groups: their own rows say how they differ from the prediction.

A fit without group ``g`` scores its ``n`` rows: ``z_i = b_g + e_i``, with an effect of the group of
variance ``B``, estimated from the scores of all groups, and variance ``W_g`` within the group.  The
same fit predicts a further row of that group.  Its score is then shifted by ``w mean(z)``,
``w = B / (B + W_g/n)``, and has the variance ``W_g + w W_g/n`` instead of ``B + W``.  Ranks are
those of rows left out while the other rows of their group stay.  New groups are predicted as usual.

``W_g`` is one variance for all groups, or shrunk by the size of each,
``(d_0 W_0 + sum_i (z_i - mean(z))^2) / (d_0 + n - 1)``, with a prior ``d_0 W_0 / W_g ~ chi^2(d_0)``
that all groups share, from the logarithms of their variances (G. K. Smyth, "Linear models and
empirical Bayes methods", SAGMB 2004); whichever predicts rows of known groups better.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Annotated, Any

import numpy as np
import torch
from scipy.optimize import brentq
from scipy.special import digamma, polygamma
from torch import Tensor

from sharpgp._stored import Array, agree, stored
from sharpgp.calibration.predictors.parts import MIN_ROWS_PER_CLASS, Parts
from sharpgp.calibration.predictors.scored import ScoredPredictor
from sharpgp.data.folds import Split
from sharpgp.models.laws import Law, joined
from sharpgp.models.model import HeldOut, Model, WrappedModel, held_out_of
from sharpgp.models.repeats import KnownInputs, label_means, own_variance
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
            learner = self.model.learner
            fit = None if learner is None else learner.without_part(rest, part, n_parts)
            self._fits[part] = self.model if fit is None else fit
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


def variance_prior(squares: np.ndarray, freedom: np.ndarray, pooled: float) -> tuple[float, float]:
    """``d_0`` and ``W_0`` of variances, from sums of squares; infinite, pooled if none differ.

    Examples
    --------
    >>> variance_prior(np.array([9.0, 11.0, 10.0]), np.full(3, 10.0), 1.0)
    (inf, 1.0)
    >>> d_0, W_0 = variance_prior(np.array([0.01, 1000.0, 10.0]), np.full(3, 10.0), 33.0)
    >>> d_0, round(W_0, 3)
    (1.0, 0.144)
    """
    half = freedom[freedom > 0] / 2.0
    if len(half) < 2:
        return math.inf, pooled
    variances = np.maximum(squares[freedom > 0] / (2.0 * half), 1e-12 * pooled)
    logs = np.log(variances) - digamma(half) + np.log(half)
    excess = float(logs.var(ddof=1) - polygamma(1, half).mean())
    if excess <= 1e-4:  # d_0 beyond 20,000
        return math.inf, pooled
    # At least one degree of freedom, so that a group of two rows is never without noise.
    least = excess >= polygamma(1, 0.5)
    d = 0.5 if least else brentq(lambda d: float(polygamma(1, d)) - excess, 0.5, 1e5)
    return 2.0 * d, float(np.exp(logs.mean() + digamma(d) - np.log(d)))


def _shrunk(squares: Tensor, freedom: Tensor, d_0: float, W_0: float) -> Tensor:
    """Variances of groups, see the top of this module."""
    if math.isinf(d_0):
        return torch.full_like(squares, W_0)
    return (d_0 * W_0 + squares) / (d_0 + freedom)


def group_effects(
    z: Tensor, place: Tensor, several: Tensor
) -> tuple[Tensor, Tensor, Tensor, float]:
    """What scores ``z`` [n] of groups [n] tell of a further score of each.

    Shift and size [G]; the scores of ``several`` rows, by the other rows of their groups; and the
    size where nothing is known.  Groups have variances of their own where these scores are then
    likelier, as Laplace's law has it, than under one variance for all; each group counts as one.

    Examples
    --------
    >>> place = torch.arange(40) % 4
    >>> z = torch.where(place < 2, 0.1, 1.0).double() * torch.linspace(-1, 1, 40).double()
    >>> _, size, scores, _ = group_effects(z, place, torch.ones(40).bool())
    >>> bool(size[0] < 0.2 * size[3]), len(scores)
    (True, 40)
    """
    values, numbers = z.cpu().numpy(), place.cpu().numpy()
    means, pooled = label_means(values, numbers), max(own_variance(values, numbers), 1e-12)
    of_groups = np.bincount(numbers, (values - means[numbers]) ** 2)
    mean, squares = (torch.from_numpy(one).to(z) for one in (means, of_groups))
    count, of = place.bincount().double(), place[several]
    rest, away = count[of] - 1.0, z[several] - mean[of]
    left = (squares[of] - away.square() * count[of] / rest).clamp_min(0.0)
    share = (1.0 / count[of]) / (1.0 / count[of]).sum()
    found = []
    own = variance_prior(of_groups, np.bincount(numbers) - 1.0, pooled)
    for prior in ((math.inf, pooled), own):
        within = _shrunk(squares, count - 1.0, *prior)
        between = max(float(mean.square().mean() - (within / count).mean()), 0.0)

        def law(
            mean: Tensor, within: Tensor, count: Tensor, between: float = between
        ) -> tuple[Tensor, Tensor]:
            weight = between / (between + within / count)
            return weight * mean, (within + weight * within / count).sqrt()

        moved, scale = law(mean[of] - away / rest, _shrunk(left, rest - 1.0, *prior), rest)
        scores = (z[several] - moved) / scale
        cost = float(share @ scale.log() + (share @ scores.abs()).log())
        found.append((cost, (*law(mean, within, count), scores, (pooled + between) ** 0.5)))
    return min(found, key=lambda one: one[0])[1]


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
    learner = model.learner
    if learner is None or bool((parts < 0).any()):
        return None
    if learner.without_part(pairs[0][0], 0, len(pairs)) is None:
        return None
    if held is None:
        fits: list[Any] = [
            learner.without_part(rest, k, len(pairs)) for k, (rest, _) in enumerate(pairs)
        ]
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
    shifts, sizes, scores, usual = group_effects(z, place, several)
    G = int(names.max()) + 1
    shift, size = z.new_zeros(G), z.new_full((G,), usual)
    shift[names], size[names] = shifts, sizes
    part_of = torch.full((G,), -1, device=z.device)
    part_of[groups] = parts
    by_group = GroupModel(model, parts, part_of, shift, size)

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
