"""A model whose predictions are the average of its refits."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Annotated

import torch
from torch import Tensor

from sharpgp._stored import Array, agree, stored
from sharpgp.data.folds import Split
from sharpgp.models.laws import Law, averaged
from sharpgp.models.model import HeldOut, Learner, OutOfFold, WrappedModel
from sharpgp.rows import Inputs, Rows


@stored("AveragedModel")
@dataclass(frozen=True, eq=False, repr=False)
class AveragedModel(WrappedModel, Learner):
    """Fits trained on most of the data, averaged, see :func:`sharpgp.models.laws.averaged`.

    Fits of flexible models differ by chance, which an average removes; and held-out scores of the
    refits are those of the models that predict.

    Parameters
    ----------
    model : Learner
        The fit to all data. Its data and GP are this model's, and refits start from it.
    refits : sequence of Learner
        The fits that predict.
    scores : Tensor [n]
        Scores of the points that each refit did not see.
    crps : float
        Mean CRPS of these points.

    References
    ----------
    L. Breiman, "Bagging predictors", Machine Learning, 1996.

    Examples
    --------
    >>> from sharpgp.models.splitters import complements
    >>> from sharpgp.models.trees.tree_model import TreeModel
    >>> X = torch.linspace(0, 6, 60, dtype=torch.float64)[:, None]
    >>> grown = TreeModel("extra_trees", X, X[:, 0].sin(), seed=0)
    >>> halves = complements(60, torch.arange(60).chunk(2))
    >>> found = grown.out_of_fold(halves, torch.arange(60), seed=0)
    >>> both = torch.stack([fit.location(X) for fit in found.refits])
    >>> torch.equal(AveragedModel.from_out_of_fold(found).location(X), both.mean(0))
    True
    """

    model: Learner
    refits: Sequence[Learner]
    scores: Annotated[Tensor, Array("n")] = field()
    crps: float

    @classmethod
    def from_out_of_fold(cls, found: OutOfFold) -> "AveragedModel":
        """The refits of a model, with the scores of the points that they were trained without."""
        held = found.held
        return cls(
            found.model,
            found.refits,
            held.scores,
            held.crps(found.model.y_train, found.model.rows.weight),
        )

    def of_refits(self, model: Learner, refits: Sequence[Learner]) -> "AveragedModel":
        """The same average of other fits."""
        return AveragedModel(model, refits, self.scores, self.crps)

    def compact(self) -> "AveragedModel":
        """Without the fit to all data, for which the first of those that predict stands."""
        refits = [one.compact() for one in self.refits]
        return self.of_refits(refits[0], refits)

    def _restored(self) -> None:
        agree("refits", len(self.refits) > 0, True)
        features = {one.n_features for one in (self.model, *self.refits)}
        agree("features", len(features), 1)

    def law(self, rows: Inputs) -> Law:
        return averaged([one.law(rows) for one in self.refits])

    def location(self, rows: Inputs) -> Tensor:
        return torch.stack([one.location(rows) for one in self.refits]).mean(0)

    def extended(self, rows: Inputs, y: Tensor) -> "AveragedModel":
        refits = [one.extended(rows, y) for one in self.refits]
        return self.of_refits(self.model.extended(rows, y), refits)

    def updated(self, rows: Inputs, y: Tensor) -> "AveragedModel":
        refits = [one.updated(rows, y) for one in self.refits]
        return self.of_refits(self.model.updated(rows, y), refits)

    learner = Learner.learner

    def restricted(self, keep: Callable[[Rows], Tensor]) -> "AveragedModel":
        return self.of_refits(self.model, [one.restricted(keep) for one in self.refits])

    def without_part(self, rest: Tensor, part: int, n_parts: int) -> Learner:
        """The refit that left out this part, perhaps with others, as refits are in order."""
        refit = self.refits[part // -(-n_parts // len(self.refits))]
        if len(refit.y_train) < len(self.y_train):
            return refit
        return refit.without_part(rest, part, n_parts) or refit

    def relearned(self, rows: Inputs, y: Tensor, labels: Tensor, seed: int) -> Learner:
        return self.model.relearned(rows, y, labels, seed)

    def leave_one_out(self, labels: Tensor, seed: int) -> HeldOut:
        """Location and spread of the fit to all data."""
        return self.model.leave_one_out(labels, seed)

    def out_of_fold(self, pairs: Sequence[Split], labels: Tensor, seed: int) -> OutOfFold:
        return self.model.out_of_fold(pairs, labels, seed)
