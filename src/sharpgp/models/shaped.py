"""A model whose scores have another law at every location."""

from collections.abc import Sequence
from dataclasses import replace

from torch import Tensor

from sharpgp._stored import stored
from sharpgp.models.around import AroundModel
from sharpgp.models.folds import Split
from sharpgp.models.location_shape import LocationShape, shape_that_pays
from sharpgp.models.model import HeldOut, Learner, OutOfFold


@stored("ShapedModel", model=Learner, shape=LocationShape)
class ShapedModel(AroundModel):
    r"""``Q = location + g_m(beta) spread``: scores are stretched by the location ``m``.

    ``g_m`` is learned once, from points that the model has not seen, and stays.

    Parameters
    ----------
    model : Learner
    shape : LocationShape

    Examples
    --------
    >>> import torch
    >>> from sharpgp.models.trees import TreeModel
    >>> X = torch.linspace(0, 6, 60, dtype=torch.float64)[:, None]
    >>> model = TreeModel("extra_trees", X, X[:, 0].sin(), seed=0)
    >>> z = torch.special.ndtri((torch.arange(1000).double() + 0.5) / 1000)
    >>> shape = LocationShape.learned(torch.linspace(-1, 1, 1000).double(), 2.0 * z.flip(0))
    >>> shaped = ShapedModel(model, shape)
    >>> scores = shaped.scores_of(X, X[:, 0].sin() + 0.1)
    >>> bool((shaped.at(scores.unsqueeze(0), X)[0] - X[:, 0].sin() - 0.1).abs().max() < 1e-9)
    True
    """

    shape: LocationShape

    def __init__(self, model: Learner, shape: LocationShape) -> None:
        self.model, self.shape = model, shape

    def location(self, X: Tensor) -> Tensor:
        """See :meth:`Model.location`."""
        return self.model.location(X)

    def spread(self, X: Tensor) -> Tensor:
        """See :meth:`Model.spread`."""
        return self.model.spread(X)

    def location_and_spread(self, X: Tensor) -> tuple[Tensor, Tensor]:
        """See :meth:`Model.location_and_spread`."""
        return self.model.location_and_spread(X)

    def extended(self, X: Tensor, y: Tensor) -> "ShapedModel":
        """See :meth:`Model.extended`."""
        return ShapedModel(self.model.extended(X, y), self.shape)

    def updated(self, X: Tensor, y: Tensor) -> "ShapedModel":
        """See :meth:`Model.updated`."""
        return ShapedModel(self.model.updated(X, y), self.shape)

    def relearned(self, X: Tensor, y: Tensor, labels: Tensor, seed: int) -> "ShapedModel":
        """See :meth:`Learner.relearned`."""
        return ShapedModel(self.model.relearned(X, y, labels, seed), self.shape)

    def leave_one_out(self, labels: Tensor, seed: int) -> HeldOut:
        """See :meth:`Learner.leave_one_out`."""
        return self._stretched(self.model.leave_one_out(labels, seed))

    def out_of_fold(self, pairs: Sequence[Split], labels: Tensor, seed: int) -> OutOfFold:
        """See :meth:`Learner.out_of_fold`."""
        found = self.model.out_of_fold(pairs, labels, seed)
        refits = [ShapedModel(one, self.shape) for one in found.refits]
        return OutOfFold(ShapedModel(found.model, self.shape), refits, self._stretched(found.held))

    def _stretched(self, held: HeldOut) -> HeldOut:
        return replace(held, scores=self.shape.unstretched(held.scores, held.location))


def shaped(model: Learner, held: HeldOut) -> Learner:
    """The model with shapes by location, where points that it has not seen say that they pay.

    Such scores are normal already, so that it has none to decide by between band and centred
    interval: the rule for a model without scores does.
    """
    y = model.y_train[held.rows]
    shape = shape_that_pays(held.location, held.spread, y)
    return model if shape is None else ShapedModel(model, shape)
