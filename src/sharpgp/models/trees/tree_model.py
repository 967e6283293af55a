r"""Tree models from scikit-learn with laws of their own.

Forests carry a whole conditional distribution, boosted trees none: with few rows their spread is
constant, and with many it is boosted, too.  All give the same answers for the same seed, and keep
plain arrays only, so that they can be saved.
"""

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
    _X=Array("N d"),
    _y=Array("N"),
    seed=int,
    grown=Maybe(ExtraTrees | LeafForest | BoostedTrees | ScaledBoosting),
    cells=Maybe(TargetCells),
    weighted=Maybe(bool),
)
class TreeModel(RefittedModel):
    """Trees of one kind, grown on inputs ``X`` [N, d] and targets ``y`` [N].

    Parameters
    ----------
    kind : {"extra_trees", "random_forest", "boosted_trees"}
    X, y : Tensor [N, d], Tensor [N]
    seed : int
    cells : TargetCells, optional
        Of forests, so that laws of several are about the same values; None: those of ``y``.
    weighted : bool
        Whether the last feature is the logarithm of each row's relative noise.

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
        X: Tensor,
        y: Tensor,
        seed: int,
        cells: TargetCells | None = None,
        *,
        weighted: bool = False,
    ) -> None:
        super().__init__(X, y)
        self.kind, self.seed = kind, seed
        if weighted:
            self.weighted = True
        if kind != "boosted_trees":
            self.cells = TargetCells(y.cpu().numpy(), self._by_row) if cells is None else cells

    @classmethod
    def learned(
        cls, name: str, X: Tensor, y: Tensor, *, seed: int = 0, weighted: bool = False
    ) -> "TreeModel":
        return cls(name, X, y, seed, weighted=weighted)

    @property
    def _by_row(self) -> Floats | None:
        weights = self.row_weights
        return None if weights is None else weights.cpu().numpy()

    @cached_property
    def grown(self) -> Any:
        """The trees; they grow when they are asked, as nobody does where refits predict.

        See :class:`~sharpgp.models.bagged.AveragedModel`.
        """
        data = self.inputs.cpu().numpy(), self._y.cpu().numpy()
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

    def location(self, X: Tensor) -> Tensor:
        """Constant between thresholds, so without a gradient."""
        return torch.from_numpy(self.grown.location(self._asked(X))).to(X)

    def law(self, X: Tensor) -> Law:
        found: Law = self.grown.law(self._asked(X), X.detach())
        return found

    def _asked(self, X: Tensor) -> Floats:
        """Inputs without weights."""
        asked = X[:, :-1] if self.weighted else X
        return asked.detach().cpu().numpy()

    def relearned(self, X: Tensor, y: Tensor, labels: Tensor, seed: int) -> "TreeModel":
        return TreeModel(self.kind, X, y, self.seed, self.cells, weighted=self.weighted)
