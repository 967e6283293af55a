"""Several models as one: weights from points that none of them has seen."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from sharpgp import _progress as progress
from sharpgp._stored import Array, Several, agree, stored
from sharpgp.exceptions import InvalidInputError
from sharpgp.gp.posterior import Posterior
from sharpgp.models.averaged import AveragedModel
from sharpgp.models.folds import Split
from sharpgp.models.gaussian import learn_gaussian
from sharpgp.models.model import HeldOut, Learner, OutOfFold
from sharpgp.models.refitted import RefittedModel
from sharpgp.models.shaped import ShapedModel
from sharpgp.models.weights import (
    pool_weights,
    pooled_crps,
    pooled_location_spread,
    sized,
    spread_floors,
    unit_sizes,
)

#: What a method can calibrate: a trained GP, a model, or several by name.
Base = Posterior | Learner | Mapping[str, Learner]


@stored("Member", name=str, weight=float, crps=float)
@dataclass(frozen=True)
class Member:
    """A candidate of a pool: its weight, and the mean CRPS of its held-out predictions."""

    name: str
    weight: float
    crps: float


class BaseTable(tuple[Member, ...]):
    """The members of a pool, best first; prints as a table.

    Examples
    --------
    >>> print(BaseTable([Member("rbf", 0.25, 1.5), Member("extra_trees", 0.75, 1.25)]))
    model        weight  held-out CRPS
    extra_trees    0.75           1.25
    rbf            0.25            1.5
    """

    def __new__(cls, members: Sequence[Member]) -> "BaseTable":
        """Sort by weight."""
        # To four digits: what makes equal weights differ is another on each machine.
        return super().__new__(cls, sorted(members, key=lambda one: -round(one.weight, 4)))

    def __repr__(self) -> str:
        width = max(len("model"), *(len(one.name) for one in self))
        head = f"{'model':{width}}  weight  held-out CRPS"
        rows = [f"{one.name:{width}}  {one.weight:6.2f}  {one.crps:13.4g}" for one in self]
        return "\n".join([head, *rows])

    __str__ = __repr__


@stored(
    "PooledModel",
    models=Several(Learner),
    weights=Array("K"),
    units=Array("K", positive=True),
    floors=Array("K"),
    scores=Array("n"),
    members=Several(Member),
    leading=int,
)
class PooledModel(Learner):
    r"""Several models as one, with the mean and the deviation of their mixture.

    ``m = sum_k w_k m_k`` and ``s^2 = sum_k w_k (s_k^2 + (m_k - m)^2)``.

    Each ``s_k`` is first raised to a floor that its held-out errors justify, and brought to unit
    size on its own held-out scores, so that weights do not depend on how large a model thinks its
    errors are.

    Parameters
    ----------
    models : sequence of Learner
        Those that have a weight, and a GP.
    weights, units, floors : Tensor [K]
    scores : Tensor [n]
        Held-out scores of the pool.
    members : sequence of Member
        Every candidate, also those without a weight.

    Attributes
    ----------
    leading : int
        Which of the models is the GP with the largest weight; ``posterior`` is its GP.
    """

    scores: Tensor

    def __init__(
        self,
        models: Sequence[Learner],
        weights: Tensor,
        units: Tensor,
        floors: Tensor,
        scores: Tensor,
        members: Sequence[Member],
    ) -> None:
        self.models = list(models)
        self.weights, self.units, self.floors, self.scores = weights, units, floors, scores
        self.members = list(members)
        gps = [k for k, model in enumerate(self.models) if model.has_posterior]
        self.leading = max(gps, key=lambda k: float(weights[k]))

    def _restored(self) -> None:
        agree("models and weights", len(self.models), len(self.weights))
        share = bool((self.weights >= 0).all()) and abs(float(self.weights.sum()) - 1.0) < 1e-6
        agree("weights that are shares", share, True)
        features = {model.n_features for model in self.models}
        agree("features", len(features), 1)
        inside = 0 <= self.leading < len(self.models)
        agree("a leading GP", inside and self.models[self.leading].has_posterior, True)

    @property
    def posterior(self) -> Posterior:  # type: ignore[override]
        """The GP with the largest weight."""
        return self.models[self.leading].posterior

    def _asked(self, X: Tensor) -> list[int]:
        """Models that count at ``X``: those with a weight, and where gradients do, all."""
        return [k for k, w in enumerate(self.weights.tolist()) if w > 0.0 or X.requires_grad]

    def location_and_spread(self, X: Tensor) -> tuple[Tensor, Tensor]:
        """See :meth:`Model.location_and_spread`."""
        asked = self._asked(X)
        found = [self.models[k].location_and_spread(X) for k in asked]
        location, spread = (torch.stack(part) for part in zip(*found, strict=True))
        return self._combined(location, spread, asked)

    def _combined(
        self, location: Tensor, spread: Tensor, asked: Sequence[int]
    ) -> tuple[Tensor, Tensor]:
        kept = (self.weights, self.units, self.floors)
        weights, units, floors = (part[asked].to(location.device) for part in kept)
        return pooled_location_spread(weights, location, sized(spread, units, floors))

    def location(self, X: Tensor) -> Tensor:
        """See :meth:`Model.location`."""
        asked = self._asked(X)
        location = torch.stack([self.models[k].location(X) for k in asked])
        return (self.weights[asked].to(location.device).unsqueeze(-1) * location).sum(0)

    def spread(self, X: Tensor) -> Tensor:
        """See :meth:`Model.spread`: larger where the models disagree."""
        return self.location_and_spread(X)[1]

    def extended(self, X: Tensor, y: Tensor) -> "PooledModel":
        """See :meth:`Model.extended`; models that cannot be conditioned stay as they are."""
        return self._with([model.extended(X, y) for model in self.models])

    def updated(self, X: Tensor, y: Tensor) -> "PooledModel":
        """See :meth:`Model.updated`."""
        return self._with([model.updated(X, y) for model in self.models])

    def relearned(self, X: Tensor, y: Tensor, labels: Tensor, seed: int) -> "PooledModel":
        """See :meth:`Learner.relearned`; weights stay."""
        return self._with([model.relearned(X, y, labels, seed) for model in self.models])

    def leave_one_out(self, labels: Tensor, seed: int) -> HeldOut:
        """See :meth:`Learner.leave_one_out`; weights stay."""
        return self._pooled([model.leave_one_out(labels, seed) for model in self.models])

    def out_of_fold(self, pairs: Sequence[Split], labels: Tensor, seed: int) -> OutOfFold:
        """See :meth:`Learner.out_of_fold`; weights stay."""
        found = [model.out_of_fold(pairs, labels, seed) for model in self.models]
        return OutOfFold(
            self._with([one.model for one in found]),
            [self._with(fits) for fits in zip(*(one.refits for one in found), strict=True)],
            self._pooled([one.held for one in found]),
        )

    def _pooled(self, held: Sequence[HeldOut]) -> HeldOut:
        location = torch.stack([one.location for one in held])
        spread = torch.stack([one.spread for one in held])
        m, s = self._combined(location, spread, range(len(held)))
        rows = held[0].rows
        return HeldOut(rows, m, s, (self.y_train[rows] - m) / s)

    def _with(self, models: Sequence[Learner]) -> "PooledModel":
        return PooledModel(models, self.weights, self.units, self.floors, self.scores, self.members)


def candidates(base: Base, seed: int, labels: Tensor | None) -> dict[str, Learner]:
    """Models by name: those given, or the one that is learned from a trained GP."""
    if isinstance(base, Posterior):
        return {"gp": learn_gaussian(base, seed, labels)}
    return {"model": base} if isinstance(base, Learner) else dict(base)


def posterior_of(base: Base) -> Posterior:
    """The GP, or the first one among several models."""
    if isinstance(base, Posterior):
        return base
    models = base if isinstance(base, Mapping) else {type(base).__name__: base}
    found = next((model for model in models.values() if model.has_posterior), None)
    if found is None:
        raise InvalidInputError(
            f"base: expected a GP among the models to pool, found {', '.join(models)}; add a kernel"
        )
    return found.posterior


def inputs_of(base: Base) -> Tensor:
    """Training inputs [N, d]; where a model keeps them as they were given, as they were."""
    several = list(base.values()) if isinstance(base, Mapping) else [base]
    kept = [model for model in several if isinstance(model, RefittedModel)]
    one = (kept or several)[0]
    X: Tensor = one.inputs if isinstance(one, Learner) else one.X_train
    return X


def pooled_out_of_fold(
    models: Mapping[str, Learner],
    pairs: Sequence[Split],
    labels: Tensor,
    seed: int,
    *,
    drawn: bool = False,
) -> tuple[Learner, HeldOut]:
    """:func:`pooled` with scores of refits to the rows of each pair.

    Where the pairs are parts ``drawn`` at random, only training leaves them out, see
    :meth:`Learner.out_of_training`.

    What predicts is what was scored, the average of the refits.  Only where a splitter keeps some
    rows from several of them, as one in order of time does, fits to all rows predict.
    """
    progress.begin("cross-validating", "fit", len(models) * len(pairs))
    found: dict[str, OutOfFold] = {}
    for name, model in models.items():
        progress.at(name)
        refits_of = model.out_of_training if drawn else model.out_of_fold
        found[name] = refits_of(pairs, labels, seed)
    held = at_common_rows([one.held for one in found.values()])
    average = drawn or _trains_everywhere(pairs, len(labels))
    predicting: dict[str, Learner] = {
        name: AveragedModel.of(one) if average and len(one.refits) > 1 else one.model
        for name, one in found.items()
    }
    return pooled(predicting, held)


def _trains_everywhere(pairs: Sequence[Split], n: int) -> bool:
    """Whether each of ``n`` rows trains in every refit but one at most."""
    rows = torch.cat([rest for rest, _ in pairs])
    return int(rows.bincount(minlength=n).min()) >= len(pairs) - 1


def at_common_rows(held: Sequence[HeldOut]) -> list[HeldOut]:
    """The same for the rows that all of them have."""
    rows = held[0].rows
    for one in held[1:]:
        rows = rows[torch.isin(rows, one.rows)]
    return [one if len(one.rows) == len(rows) else one.only(rows) for one in held]


@dataclass(frozen=True)
class _Judged:
    """Held-out predictions [K, N] of several models; units, floors, weights [K]; CRPS alone."""

    location: Tensor
    scaled: Tensor
    units: Tensor
    floors: Tensor
    weights: Tensor
    alone: list[float]

    @classmethod
    def of(cls, held: Sequence[HeldOut], y: Tensor, rows: Tensor | None) -> "_Judged":
        """By targets [N], and weights [N] of the rows if there are any."""
        location = torch.stack([one.location for one in held])
        spread = torch.stack([one.spread for one in held])
        floors = spread_floors(location, spread, y, rows)
        units = unit_sizes(location, spread.maximum(floors.unsqueeze(-1)), y)
        scaled = sized(spread, units, floors)
        weights = pool_weights(location, scaled, y, rows).to(location.device)
        each = zip(location, scaled, strict=True)
        alone = [float(pooled_crps(m, s, y, rows)[0]) for m, s in each]
        return cls(location, scaled, units, floors, weights, alone)


def pooled(models: Mapping[str, Learner], held: Sequence[HeldOut]) -> tuple[Learner, HeldOut]:
    r"""One model of several, and its held-out scores; a single one is returned as it is.

    Weights minimise the CRPS of the pool for points that no model has seen, see
    :func:`sharpgp.models.weights.pool_weights`.

    Parameters
    ----------
    models : mapping from names to models
    held : sequence of HeldOut
        Of the same rows, in the same order, for each model.
    """
    if len(models) == 1:
        return next(iter(models.values())), held[0]
    first = next(iter(models.values()))
    rows = held[0].rows
    y = first.y_train[rows]
    by_row = first.row_weights
    judged = _Judged.of(held, y, None if by_row is None else by_row[rows])
    m, s = pooled_location_spread(judged.weights, judged.location, judged.scaled)
    scores = (y - m) / s
    members = [
        Member(name, float(weight), crps)
        for name, weight, crps in zip(models, judged.weights, judged.alone, strict=True)
    ]
    kept = _kept(list(models.values()), judged.weights)
    model = PooledModel(
        [list(models.values())[k] for k in kept],
        judged.weights[kept],
        judged.units[kept],
        judged.floors[kept],
        scores,
        members,
    )
    return model, HeldOut(rows, m, s, scores)


def _kept(models: Sequence[Learner], weights: Tensor) -> list[int]:
    """Models with a weight, and the GP with the largest one, which tells where points are far."""
    gps = [k for k, model in enumerate(models) if model.has_posterior]
    leading = max(gps, key=lambda k: float(weights[k]))
    return [k for k, weight in enumerate(weights.tolist()) if weight > 0.0 or k == leading]


def members_of(
    model: object, name: str, unseen: tuple[Tensor, Tensor] | None = None
) -> list[Member]:
    """The members of a pool, or a model alone under a name.

    A model alone is scored on ``unseen`` points, inputs [C, d] and targets [C], where there are
    any, else by leave-one-out.  What cannot be learned again is not scored.
    """
    model = model.model if isinstance(model, ShapedModel) else model
    if isinstance(model, PooledModel):
        return model.members
    if isinstance(model, AveragedModel):
        return [Member(name, 1.0, model.crps)]
    if not isinstance(model, Learner):
        return [Member(name, 1.0, float("nan"))]
    if unseen is None:
        held = model.leave_one_out(torch.arange(len(model.y_train), device=model.device), 0)
        return [Member(name, 1.0, held.crps(model.y_train, model.row_weights))]
    X, y = (part.to(model.device) for part in unseen)
    with torch.no_grad():
        crps, *_ = pooled_crps(*model.location_and_spread(X), y)
    return [Member(name, 1.0, float(crps))]
