r"""Tree models from scikit-learn with laws of their own.

Forests carry a whole conditional distribution, boosted trees none: with few rows their spread is
constant, and with many it is boosted, too.  All give the same answers for the same seed, and keep
plain arrays only, so that they can be saved.
"""

import copy
from functools import cache, cached_property
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from threadpoolctl import ThreadpoolController
from torch import Tensor

from sharpgp._stored import Array, Maybe, agree, stored
from sharpgp.models.laws import Law
from sharpgp.models.registry import base
from sharpgp.models.trees.boosting import BoostedTrees, ScaledBoosting
from sharpgp.models.trees.forests import ExtraTrees, LeafForest, TargetCells
from sharpgp.models.without_gp import RefittedModel
from sharpgp.policy import MOST_LEFT_OUT
from sharpgp.rows import Inputs, Rows, rows_of_earlier

Floats = NDArray[np.float64]
#: What grows under each name: with up to :data:`MOST_LEFT_OUT` rows, and beyond.
TREES: dict[str, tuple[type[Any], type[Any]]] = {
    "extra_trees": (ExtraTrees, LeafForest),
    "random_forest": (LeafForest, LeafForest),
    "boosted_trees": (BoostedTrees, ScaledBoosting),
}


def grow(
    kind: str,
    X: Floats,
    y: Floats,
    seed: int,
    cells: TargetCells | None,
    weights: Floats | None,
    *,
    many: bool,
) -> Any:
    """Trees of a kind of :data:`TREES` from inputs [N, d], targets and weights [N]."""
    made = TREES[kind][many]
    settings: dict[str, Any] = {} if weights is None else {"weights": weights}
    if kind != "boosted_trees":
        settings["cells"] = cells
    if made is LeafForest:
        settings["kind"] = kind
    # Histograms are filled in parallel otherwise, and trees of few rows gain nothing by it.
    threads = torch.get_num_threads() if many else 1
    # Of OpenMP alone, whose limits are those of a thread: others may grow trees at the same time.
    with _controller().limit(limits=threads, user_api="openmp"):
        return made(X, y, seed, **settings)


@cache
def _controller() -> ThreadpoolController:
    """What limits threads; a look at every library that is loaded, once."""
    return ThreadpoolController()


@base(*TREES, roles=("weight",))
@stored(
    "TreeModel",
    kind=str,
    _rows=Rows,
    _y=Array("N"),
    seed=int,
    grown=Maybe(ExtraTrees | LeafForest | BoostedTrees | ScaledBoosting),
    cells=Maybe(TargetCells),
    earlier=rows_of_earlier,
)
class TreeModel(RefittedModel):
    """Trees of one kind, grown on rows [N] and targets ``y`` [N]; heavy rows count more.

    Parameters
    ----------
    kind : {"extra_trees", "random_forest", "boosted_trees"}
    X : Rows or Tensor [N, d]
    y : Tensor [N]
    seed : int
    cells : TargetCells, optional
        Of forests, so that laws of several are about the same values; None: those of ``y``.

    Examples
    --------
    >>> X = torch.linspace(0, 6, 60, dtype=torch.float64)[:, None]
    >>> model = TreeModel("extra_trees", X, X[:, 0].sin(), seed=0)
    >>> model.location(X[:3]).shape
    torch.Size([3])
    """

    cells: TargetCells | None = None

    def __init__(
        self,
        kind: str,
        X: Inputs,
        y: Tensor,
        seed: int,
        cells: TargetCells | None = None,
    ) -> None:
        super().__init__(X, y)
        self.kind, self.seed = kind, seed
        if kind != "boosted_trees":
            self.cells = TargetCells(y.cpu().numpy(), self._by_row) if cells is None else cells

    @classmethod
    def learned(cls, name: str, rows: Inputs, y: Tensor, *, seed: int = 0) -> "TreeModel":
        return cls(name, rows, y, seed)

    @property
    def _by_row(self) -> Floats | None:
        weights = self.rows.weight
        return None if weights is None else weights.cpu().numpy()

    @cached_property
    def grown(self) -> Any:
        """The trees; they grow when they are asked, as nobody does where refits predict.

        See :class:`~sharpgp.models.bagged.AveragedModel`.
        """
        data = self.X_train.cpu().numpy(), self._y.cpu().numpy()
        many = len(self._y) > MOST_LEFT_OUT
        return grow(self.kind, *data, self.seed, self.cells, self._by_row, many=many)

    def _restored(self) -> None:
        agree("kind of trees", self.kind in TREES, True)
        if "grown" in vars(self):
            agree("kind of trees", isinstance(self.grown, TREES[self.kind]), True)
            agree("features", self.grown.n_features <= self.n_features, True)

    @property
    def runs_in_threads(self) -> bool:
        """Trees of many rows fill threads themselves."""
        return len(self._y) <= MOST_LEFT_OUT

    def location(self, rows: Inputs) -> Tensor:
        """Constant between thresholds, so without a gradient."""
        X = Rows.of(rows).X
        return torch.from_numpy(self.grown.location(X.detach().cpu().numpy())).to(X)

    def law(self, rows: Inputs) -> Law:
        X = Rows.of(rows).X.detach()
        found: Law = self.grown.law(X.cpu().numpy(), X)
        return found

    def compact(self) -> "TreeModel":
        """Grown trees need no rows; the first one tells how many features there are."""
        other = copy.copy(self)
        other.grown, other._rows, other._y = self.grown, self._rows[:1], self._y[:1]
        return other

    def relearned(self, rows: Inputs, y: Tensor, labels: Tensor, seed: int) -> "TreeModel":
        return TreeModel(self.kind, rows, y, self.seed, self.cells)
