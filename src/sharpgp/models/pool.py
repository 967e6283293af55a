"""Several models as one: weights from points that none of them has seen."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Annotated, Any

import torch
from torch import Tensor

from sharpgp import _progress as progress
from sharpgp._stored import Array, agree, stored
from sharpgp._table import as_html, as_text
from sharpgp.data.folds import Split
from sharpgp.exceptions import InvalidInputError
from sharpgp.gp.posterior import Posterior
from sharpgp.models.bagged import AveragedModel
from sharpgp.models.gaussian.gaussian_model import learn_gaussian
from sharpgp.models.laws import Law, Mixture
from sharpgp.models.model import HeldOut, Learner, OutOfFold, WrappedModel
from sharpgp.models.pool_weights import crps_of_scores, crps_products, pool_weights, unit_size
from sharpgp.models.without_gp import RefittedModel
from sharpgp.rows import Inputs, Rows

#: What a method can calibrate: a trained GP, a model, or several by name.
Base = Posterior | Learner | Mapping[str, Learner]


@stored("Member")
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

    def _rows(self) -> list[tuple[str, ...]]:
        rows = [(one.name, f"{one.weight:.2f}", f"{one.crps:.4g}") for one in self]
        return [("model", "weight", "held-out CRPS"), *rows]

    def __repr__(self) -> str:
        return as_text(self._rows())

    __str__ = __repr__

    def _repr_html_(self) -> str:
        return as_html(self._rows())


@stored("PooledModel")
@dataclass(frozen=True, eq=False, repr=False)
class PooledModel(WrappedModel, Learner):
    r"""Several models as one, the mixture of their laws: ``F_x = sum_k w_k F_kx``.

    Scores of each model are first brought to unit size on its own held-out scores, so that weights
    do not depend on how large a model thinks its errors are.

    Parameters
    ----------
    models : sequence of Learner
        Those that have a weight, and the GP with the largest one, which knows where points are far.
    weights, units : Tensor [K]
    scores : Tensor [n]
        Held-out scores of the pool.
    members : sequence of Member
        Every candidate, also those without a weight.
    """

    models: Sequence[Learner]
    weights: Annotated[Tensor, Array("K")]
    units: Annotated[Tensor, Array("K", positive=True)]
    scores: Annotated[Tensor, Array("n")] = field()
    members: Sequence[Member]

    def _restored(self) -> None:
        agree("models and weights", len(self.models), len(self.weights))
        share = bool((self.weights >= 0).all()) and abs(float(self.weights.sum()) - 1.0) < 1e-6
        agree("weights that are shares", share, True)
        features = {model.n_features for model in self.models}
        agree("features", len(features), 1)

    @property
    def model(self) -> Learner:  # type: ignore[override]
        """The first, which has the data of all."""
        return self.models[0]

    @property
    def gp(self) -> Posterior | None:
        order = self.weights.argsort(descending=True).tolist()
        return next((gp for k in order if (gp := self.models[k].gp) is not None), None)

    def law(self, rows: Inputs) -> Law:
        asked = self._asked(rows)
        laws = [self.models[k].law(rows) for k in asked]
        return mixed(laws, self.units[asked], self.weights[asked])

    def _asked(self, rows: Inputs) -> list[int]:
        """Models that count: those with a weight; all if gradients are needed."""
        every = Rows.of(rows).X.requires_grad
        return [k for k, w in enumerate(self.weights.tolist()) if w > 0.0 or every]

    def location(self, rows: Inputs) -> Tensor:
        asked = self._asked(rows)
        location = torch.stack([self.models[k].location(rows) for k in asked])
        return (self.weights[asked].to(location).unsqueeze(-1) * location).sum(0)

    def extended(self, rows: Inputs, y: Tensor) -> "PooledModel":
        """Models that cannot be conditioned stay as they are."""
        return self.of_models([model.extended(rows, y) for model in self.models])

    def updated(self, rows: Inputs, y: Tensor) -> "PooledModel":
        return self.of_models([model.updated(rows, y) for model in self.models])

    learner = Learner.learner

    def restricted(self, keep: Callable[[Rows], Tensor]) -> "PooledModel":
        return self.of_models([model.restricted(keep) for model in self.models])

    def without_part(self, rest: Tensor, part: int, n_parts: int) -> "PooledModel | None":
        """None unless every model has such a fit."""
        found = [model.without_part(rest, part, n_parts) for model in self.models]
        fits = [one for one in found if one is not None]
        return self.of_models(fits) if len(fits) == len(found) else None

    def relearned(self, rows: Inputs, y: Tensor, labels: Tensor, seed: int) -> "PooledModel":
        """Weights stay."""
        return self.of_models([model.relearned(rows, y, labels, seed) for model in self.models])

    def leave_one_out(self, labels: Tensor, seed: int) -> HeldOut:
        """Weights stay; of the points that every model has."""
        return self._pooled([model.leave_one_out(labels, seed) for model in self.models])

    def out_of_fold(self, pairs: Sequence[Split], labels: Tensor, seed: int) -> OutOfFold:
        """Weights stay."""
        found = [model.out_of_fold(pairs, labels, seed) for model in self.models]
        return OutOfFold(
            self.of_models([one.model for one in found]),
            [self.of_models(fits) for fits in zip(*(one.refits for one in found), strict=True)],
            self._pooled([one.held for one in found]),
        )

    def _pooled(self, held: Sequence[HeldOut]) -> HeldOut:
        held = at_common_rows(held)
        law, rows = mixed([one.law for one in held], self.units, self.weights), held[0].rows
        return HeldOut.from_law(rows, law, self.y_train[rows])

    def compact(self) -> "PooledModel":
        return self.of_models([model.compact() for model in self.models])

    def of_models(self, models: Sequence[Learner]) -> "PooledModel":
        """The same pool of other fits of its models, in their order."""
        return PooledModel(models, self.weights, self.units, self.scores, self.members)


def mixed(laws: Sequence[Law], units: Tensor, weights: Tensor) -> Law:
    """The mixture of laws of the same rows, whose scores are first divided by a unit each."""
    found = [law.changed(size=unit) for law, unit in zip(laws, units.tolist(), strict=True)]
    positive = [k for k, w in enumerate(weights.tolist()) if w > 0.0]
    if len(positive) < len(found) and not any(law.location.requires_grad for law in found):
        weights, found = weights[positive], [found[k] for k in positive]
    return found[0] if len(found) == 1 else Mixture(weights, found)


def candidates(base: Base, seed: int, labels: Tensor | None) -> dict[str, Learner]:
    """Models by name: those given, or the one that is learned from a trained GP."""
    if isinstance(base, Posterior):
        return {"gp": learn_gaussian(base, seed, labels)}
    return {"model": base} if isinstance(base, Learner) else dict(base)


def models_of(base: Base) -> list[Any]:
    """The models, or the one."""
    return list(base.values()) if isinstance(base, Mapping) else [base]


def gp_of(base: Base) -> Posterior | None:
    """The GP of the first model that has one."""
    return next((gp for model in models_of(base) if (gp := model.gp) is not None), None)


def posterior_of(base: Base) -> Posterior:
    """The GP of a method that takes one."""
    found = gp_of(base)
    if found is None:
        names = base if isinstance(base, Mapping) else [type(base).__name__]
        raise InvalidInputError(
            f"base: expected a GP among the models, found {', '.join(names)}; add a kernel"
        )
    return found


def rows_of(base: Base) -> Rows:
    """Training rows, preferably of a model that keeps their features unscaled."""
    several = models_of(base)
    kept = [model for model in several if isinstance(model, RefittedModel)]
    rows: Rows = (kept or several)[0].rows
    return rows


def inputs_of(base: Base) -> Tensor:
    """Features [N, d] of the training rows."""
    return rows_of(base).X


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

    The average of the scored refits predicts.  Only if a splitter keeps some rows from several of
    them, as one in order of time does, fits to all rows predict.
    """
    progress.start_phase("cross-validating", "fit", len(models) * len(pairs))
    found: dict[str, OutOfFold] = {}
    for name, model in models.items():
        progress.name_step(name)
        refits_of = model.out_of_training if drawn else model.out_of_fold
        found[name] = refits_of(pairs, labels, seed)
    held = at_common_rows([one.held for one in found.values()])
    average = drawn or _trains_everywhere(pairs, len(labels))
    predicting: dict[str, Learner] = {
        name: AveragedModel.from_out_of_fold(one) if average else one.model
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
    return [one if len(one.rows) == len(rows) else one.take_rows(rows) for one in held]


def pooled(models: Mapping[str, Learner], held: Sequence[HeldOut]) -> tuple[Learner, HeldOut]:
    r"""One model of several, and its held-out scores; a single one is returned as it is.

    Weights minimise the CRPS of the mixture for points that no model has seen, see
    :func:`sharpgp.models.pool_weights.pool_weights`.

    Parameters
    ----------
    models : mapping from names to models
    held : sequence of HeldOut
        Of the same rows, in the same order, for each model.
    """
    if len(models) == 1:
        return next(iter(models.values())), held[0]
    rows = held[0].rows
    first = next(iter(models.values()))
    y, of_all = first.y_train[rows], first.rows.weight
    by_row = None if of_all is None else of_all[rows]
    units = y.new_tensor([unit_size(one.scores, by_row) for one in held])
    laws = [one.law.changed(size=unit) for one, unit in zip(held, units.tolist(), strict=True)]
    weights = pool_weights(crps_products(laws, y, by_row), len(y)).to(y)
    members = [
        Member(name, float(weight), crps_of_scores(one.law, one.scores, y, by_row))
        for name, weight, one in zip(models, weights, held, strict=True)
    ]
    law = mixed([one.law for one in held], units, weights)
    found = HeldOut.from_law(rows, law, y)
    several = list(models.values())
    order = weights.argsort(descending=True).tolist()
    leading = next((k for k in order if several[k].gp is not None), None)
    kept = [k for k, w in enumerate(weights.tolist()) if w > 0.0 or k == leading]
    chosen = [several[k] for k in kept]
    return PooledModel(chosen, weights[kept], units[kept], found.scores, members), found


def members_of(model: object, name: str) -> list[Member]:
    """The members of a pool, or a model alone under a name.

    A single learned model is scored by points that its learnings have not seen, or by
    leave-one-out.  Anything else is not scored.
    """
    if isinstance(model, PooledModel):
        return list(model.members)
    if isinstance(model, AveragedModel):
        return [Member(name, 1.0, model.crps)]
    if not isinstance(model, Learner):
        return [Member(name, 1.0, float("nan"))]
    held = model.leave_one_out(torch.arange(len(model.y_train), device=model.device), 0)
    return [Member(name, 1.0, held.crps(model.y_train, model.rows.weight))]
