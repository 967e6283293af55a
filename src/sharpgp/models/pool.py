"""Several models as one: weights from points that none of them has seen."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from sharpgp import _progress as progress
from sharpgp._stored import Array, Several, agree, stored
from sharpgp.exceptions import InvalidInputError
from sharpgp.gp.posterior import Posterior
from sharpgp.gp.sizes import MOST_AVERAGED, MOST_LEFT_OUT
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
    unit_sizes,
)

# CRPS beyond that of the best model, above which a model that gets no weight is far from it.
_FAR_FROM_BEST = 1.05
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
    scores=Array("n"),
    members=Several(Member),
    leading=int,
)
class PooledModel(Learner):
    r"""Several models as one, with the mean and the deviation of their mixture.

    ``m = sum_k w_k m_k`` and ``s^2 = sum_k w_k (s_k^2 + (m_k - m)^2)``.

    Each ``s_k`` is brought to unit size on its own held-out scores first, so that weights do not
    depend on how large a model thinks its errors are.

    Parameters
    ----------
    models : sequence of Learner
        Those that have a weight, and a GP.
    weights, units : Tensor [K]
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
        scores: Tensor,
        members: Sequence[Member],
    ) -> None:
        self.models = list(models)
        self.weights, self.units, self.scores = weights, units, scores
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
        weights, units = (part[asked].to(location.device) for part in (self.weights, self.units))
        return pooled_location_spread(weights, location, spread * units.unsqueeze(-1))

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
        return PooledModel(models, self.weights, self.units, self.scores, self.members)


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
    X: Tensor = (kept or several)[0].X_train
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
    GPs without a chance are not refitted, see :func:`hopeless`.  Of several models, what predicts
    is the average of these refits, where predictions are quick and the points are at most
    :data:`~sharpgp.gp.sizes.MOST_AVERAGED`.
    """
    progress.begin("cross-validating", "fit", len(models) * len(pairs))
    found: dict[str, OutOfFold] = {}

    def refit(name: str) -> None:
        progress.at(name)
        refits_of = models[name].out_of_training if drawn else models[name].out_of_fold
        found[name] = refits_of(pairs, labels, seed)

    gps = [name for name, model in models.items() if model.has_posterior]
    for name in models:
        if name not in gps:
            refit(name)
    dropped: dict[str, HeldOut] = {}
    refitted = not drawn or any(models[name].unseen(labels) is None for name in gps)
    if len(gps) > 1 and refitted and len(labels) <= MOST_LEFT_OUT:
        rows = torch.cat([test for _, test in pairs]).sort().values
        quick = {name: models[name].leave_one_out(labels, seed).at(rows) for name in gps}
        others = {name: one.held for name, one in found.items()}
        y = next(iter(models.values())).y_train[rows]
        dropped = {name: quick[name] for name in hopeless(quick, others, y)}
    for name in gps:
        if name in dropped:
            progress.advance(len(pairs))
        else:
            refit(name)
    average = len(models) > 1 and len(labels) <= MOST_AVERAGED
    predicting: dict[str, Learner] = {
        name: AveragedModel(found[name].model, found[name].refits)
        if average and model.predicts_quickly
        else found[name].model
        for name, model in models.items()
        if name in found
    }
    held = at_common_rows([found[name].held for name in predicting])
    rows = held[0].rows
    without = {name: (models[name], one.only(rows)) for name, one in dropped.items()}
    return pooled(predicting, held, without)


def at_common_rows(held: Sequence[HeldOut]) -> list[HeldOut]:
    """The same for the rows that all of them have."""
    rows = held[0].rows
    for one in held[1:]:
        rows = rows[torch.isin(rows, one.rows)]
    return [one if len(one.rows) == len(rows) else one.only(rows) for one in held]


def hopeless(quick: Mapping[str, HeldOut], others: Mapping[str, HeldOut], y: Tensor) -> list[str]:
    """Names of the GPs whose leave-one-out predictions get no weight, and are far from the best.

    Hyperparameters that have seen the points flatter these predictions: a GP that gets no weight
    even so gets none by its refits, which cost most of a fit.  The best GP always stays.

    Parameters
    ----------
    quick, others : mapping from names to HeldOut
        Leave-one-out predictions of GPs; those of refits of all other models, of the same rows.
    y : Tensor [N]
        Targets of these rows.
    """
    names = [*quick, *others]
    held = [*quick.values(), *others.values()]
    judged = _Judged.of(held, y)
    best = min(quick, key=lambda name: judged.alone[names.index(name)])
    limit = _FAR_FROM_BEST * min(judged.alone)
    return [
        name
        for name, weight, crps in zip(names, judged.weights.tolist(), judged.alone, strict=True)
        if name in quick and name != best and weight == 0.0 and crps > limit
    ]


@dataclass(frozen=True)
class _Judged:
    """Held-out predictions [K, N] of several models, with units and weights [K], and CRPS alone."""

    location: Tensor
    scaled: Tensor
    units: Tensor
    weights: Tensor
    alone: list[float]

    @classmethod
    def of(cls, held: Sequence[HeldOut], y: Tensor) -> "_Judged":
        location = torch.stack([one.location for one in held])
        spread = torch.stack([one.spread for one in held])
        units = unit_sizes(location, spread, y)
        scaled = spread * units.unsqueeze(-1)
        weights = pool_weights(location, scaled, y).to(location.device)
        alone = [float(pooled_crps(m, s, y)[0]) for m, s in zip(location, scaled, strict=True)]
        return cls(location, scaled, units, weights, alone)


def pooled(
    models: Mapping[str, Learner],
    held: Sequence[HeldOut],
    dropped: Mapping[str, tuple[Learner, HeldOut]] | None = None,
) -> tuple[Learner, HeldOut]:
    r"""One model of several, and its held-out scores; a single one is returned as it is.

    Weights minimise the CRPS of the pool for points that no model has seen, see
    :func:`sharpgp.models.weights.pool_weights`.

    Parameters
    ----------
    models : mapping from names to models
    held : sequence of HeldOut
        Of the same rows, in the same order, for each model.
    dropped : mapping from names to models and HeldOut
        Those that get no weight, whatever their predictions.
    """
    dropped = dropped or {}
    if len(models) + len(dropped) == 1:
        return next(iter(models.values())), held[0]
    first = next(iter(models.values()))
    rows = held[0].rows
    y = first.y_train[rows]
    judged = _Judged.of(held, y)
    m, s = pooled_location_spread(judged.weights, judged.location, judged.scaled)
    scores = (y - m) / s
    members = [
        Member(name, float(weight), crps)
        for name, weight, crps in zip(models, judged.weights, judged.alone, strict=True)
    ]
    for name, (_, one) in dropped.items():
        unit = unit_sizes(one.location[None], one.spread[None], y)
        crps, *_ = pooled_crps(one.location, one.spread * unit, y)
        members.append(Member(name, 0.0, float(crps)))
    kept = _kept(list(models.values()), judged.weights)
    model = PooledModel(
        [list(models.values())[k] for k in kept],
        judged.weights[kept],
        judged.units[kept],
        scores,
        members,
    )
    return model, HeldOut(rows, m, s, scores)


def _kept(models: Sequence[Learner], weights: Tensor) -> list[int]:
    """Models with a weight, and the GP with the largest one, which tells where points are far."""
    gps = [k for k, model in enumerate(models) if model.has_posterior]
    leading = max(gps, key=lambda k: float(weights[k]))
    return [k for k, weight in enumerate(weights.tolist()) if weight > 0.0 or k == leading]


def members_of(model: object, name: str) -> list[Member]:
    """The members of a pool, or a model alone under a name.

    A model alone is judged by its leave-one-out scores; what is no learned model, not at all.
    """
    model = model.model if isinstance(model, ShapedModel) else model
    if isinstance(model, PooledModel):
        return model.members
    if not isinstance(model, Learner):
        return [Member(name, 1.0, float("nan"))]
    held = model.leave_one_out(torch.arange(len(model.y_train), device=model.device), 0)
    crps, *_ = pooled_crps(held.location, held.spread, model.y_train[held.rows])
    return [Member(name, 1.0, float(crps))]
