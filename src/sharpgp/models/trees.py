r"""Tree models from scikit-learn with a location and a spread of their own.

Forests carry a whole conditional distribution, boosted trees none: with few rows their spread is
constant, as a learned one gained nothing in a pool (``sharpgp bench evidence pooling``), and with
many it is boosted, too.  All give the same answers for the same seed, and keep plain arrays only,
so that they can be saved.
"""

from functools import cache, cached_property
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from threadpoolctl import ThreadpoolController
from torch import Tensor

from sharpgp._stored import Array, Maybe, agree, stored
from sharpgp.gp.sizes import MOST_LEFT_OUT
from sharpgp.models.boosting import BoostedTrees, ScaledBoosting
from sharpgp.models.folds import judging_rows, together
from sharpgp.models.forests import ExtraTrees, LeafForest
from sharpgp.models.model import HeldOut, held_out_of
from sharpgp.models.refitted import RefittedModel

Floats = NDArray[np.float64]
#: What grows under each name: with up to :data:`~sharpgp.gp.sizes.MOST_LEFT_OUT` rows, and beyond.
TREES: dict[str, tuple[type[Any], type[Any]]] = {
    "extra_trees": (ExtraTrees, LeafForest),
    "random_forest": (LeafForest, LeafForest),
    "boosted_trees": (BoostedTrees, ScaledBoosting),
}


def grow(
    kind: str, X: Floats, y: Floats, seed: int, *, many: bool, weights: Floats | None = None
) -> Any:
    """Trees of a kind of :data:`TREES` from inputs [N, d], targets and weights [N]."""
    made = TREES[kind][many]
    # Histograms are filled in parallel otherwise, and trees of few rows gain nothing by it.
    threads = torch.get_num_threads() if many else 1
    # Of OpenMP alone, whose limits are those of a thread: others may grow trees at the same time.
    with _controller().limit(limits=threads, user_api="openmp"):
        if made is LeafForest:
            return LeafForest(X, y, seed, kind, weights)
        return made(X, y, seed) if weights is None else made(X, y, seed, weights)


@cache
def _controller() -> ThreadpoolController:
    """What limits threads; a look at every library that is loaded, once."""
    return ThreadpoolController()


@stored(
    "TreeModel",
    kind=str,
    _X=Array("N d"),
    _y=Array("N"),
    seed=int,
    grown=Maybe(ExtraTrees | LeafForest | BoostedTrees | ScaledBoosting),
    judging=Maybe(Array("J", whole=True)),
    weighted=Maybe(bool),
    transient={"_kept": None},
)
class TreeModel(RefittedModel):
    """Trees of one kind, grown on inputs ``X`` [N, d] and targets ``y`` [N].

    Beyond :data:`~sharpgp.gp.sizes.MOST_LEFT_OUT` rows they do without a few of them, those of
    :func:`~sharpgp.models.folds.judging_rows`, which then tell how good they are.

    Parameters
    ----------
    kind : {"extra_trees", "random_forest", "boosted_trees"}
    X, y : Tensor [N, d], Tensor [N]
    seed : int
    labels : Tensor [N], optional
        Rows that share one are left out together; None: those with equal inputs.
    weighted : bool
        Whether the last feature is the logarithm of each row's relative noise.

    Attributes
    ----------
    judging : Tensor [J] or None
        Rows that the trees have not seen.

    Examples
    --------
    >>> X = torch.linspace(0, 6, 60, dtype=torch.float64)[:, None]
    >>> model = TreeModel("extra_trees", X, X[:, 0].sin(), seed=0)
    >>> model.location(X[:3]).shape
    torch.Size([3])
    """

    judging: Tensor | None = None
    _kept: tuple[Tensor, Tensor, Tensor] | None = None

    def __init__(
        self,
        kind: str,
        X: Tensor,
        y: Tensor,
        seed: int,
        labels: Tensor | None = None,
        *,
        weighted: bool = False,
    ) -> None:
        super().__init__(X, y)
        self.kind, self.seed = kind, seed
        if weighted:
            self.weighted = True
        if len(y) > MOST_LEFT_OUT:
            rest, self.judging = judging_rows(together(X) if labels is None else labels)
            self.grown = grow(kind, X[rest].cpu().numpy(), y[rest].cpu().numpy(), seed, many=True)

    @cached_property
    def grown(self) -> Any:
        """The trees; few rows' ones grow when they are asked, as nobody does where refits predict.

        See :class:`~sharpgp.models.averaged.AveragedModel`.
        """
        weights = self.row_weights
        by_row = None if weights is None else weights.cpu().numpy()
        data = self.inputs.cpu().numpy(), self._y.cpu().numpy()
        return grow(self.kind, *data, self.seed, many=False, weights=by_row)

    def _restored(self) -> None:
        agree("kind of trees", self.kind in TREES, True)
        if "grown" in vars(self):
            agree("kind of trees", isinstance(self.grown, TREES[self.kind]), True)
            agree("features", self.grown.n_features <= self.n_features, True)
        if self.judging is not None:
            inside = (self.judging >= 0) & (self.judging < len(self._y))
            agree("rows that judge", bool(inside.all()), True)

    @property
    def runs_in_threads(self) -> bool:
        """See :meth:`RefittedModel.runs_in_threads`; trees of many rows fill threads themselves."""
        return self.judging is None

    def location(self, X: Tensor) -> Tensor:
        """See :meth:`Model.location`; constant between thresholds, so without a gradient."""
        return self._moments(X)[0]

    def spread(self, X: Tensor) -> Tensor:
        """See :meth:`Model.spread`."""
        return self._moments(X)[1]

    def _moments(self, X: Tensor) -> tuple[Tensor, Tensor]:
        """Both [T]; the last ones are kept, as they are asked for in turn."""
        if self._kept is None or not torch.equal(self._kept[0], X):
            asked = X[:, :-1] if self.weighted else X
            location, spread = self.grown.moments(asked.detach().cpu().numpy())
            found = torch.from_numpy(location).to(X), torch.from_numpy(spread).to(X)
            self._kept = X.detach().clone(), *found
        return self._kept[1:]

    def leave_one_out(self, labels: Tensor, seed: int) -> HeldOut:
        """See :meth:`Learner.leave_one_out`; of many rows, those that the trees do without."""
        if self.judging is None:
            return super().leave_one_out(labels, seed)
        return held_out_of([self], [(self.judging, self.judging)], self._X, self._y)

    def relearned(self, X: Tensor, y: Tensor, labels: Tensor, seed: int) -> "TreeModel":
        """See :meth:`Learner.relearned`."""
        return TreeModel(self.kind, X, y, self.seed, labels, weighted=self.weighted)
