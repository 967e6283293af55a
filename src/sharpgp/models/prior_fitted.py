r"""A network that was trained on generated tables, and predicts from rows as context.

It has seen 4.2 million tables that ``benchmarks/pretraining`` draws, and no real one.  A fit keeps
the rows; nothing is learned from them.  So a row is left out by leaving it out of the context.
"""

from collections.abc import Sequence
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any
from weakref import WeakKeyDictionary

import torch
from safetensors import safe_open
from torch import Tensor
from torch.nn import functional as F
from torch.special import ndtr

from sharpgp._stored import Array, agree, stored
from sharpgp.data.folds import Split
from sharpgp.gp.compute import threads_for
from sharpgp.models.laws import Law, Table
from sharpgp.models.model import OutOfFold
from sharpgp.models.prior_network import Memory, PriorNetwork, Scales, Shape, marks
from sharpgp.models.registry import base
from sharpgp.models.without_gp import RefittedModel
from sharpgp.policy import PRIOR_COLUMNS, PRIOR_ROWS, drawn_rows
from sharpgp.rows import Inputs, Rows, rows_of_earlier

#: The name of the model in ``base=``, and of its weights beside this file.
PRIOR = "prior"
WEIGHTS = Path(__file__).with_name("prior_fitted.safetensors")
# Scores at which laws have a value.
_SCORES = torch.linspace(-3.25, 3.25, 131, dtype=torch.float64)
# Rows predicted at a time.
_BLOCK = 500

# What models that were asked before keep of their contexts.
_MEMORIES: WeakKeyDictionary[Any, Memory] = WeakKeyDictionary()


@base(PRIOR, columns=PRIOR_COLUMNS)
@stored("PriorFitted", _rows=Rows, _y=Array("N"), earlier=rows_of_earlier)
class PriorFitted(RefittedModel):
    """The network's predictions from rows ``X`` [N, d] and targets ``y`` [N].

    Of more than 4,096 rows, as many drawn at random are the context.

    Examples
    --------
    >>> X = torch.linspace(0, 6, 60, dtype=torch.float64)[:, None]
    >>> law = PriorFitted(X, X[:, 0].sin()).law(X[:3] + 0.05)
    >>> bool((law.location - (X[:3, 0] + 0.05).sin()).abs().max() < 0.1)
    True
    """

    def _restored(self) -> None:
        agree("features of a context", self.n_features <= PRIOR_COLUMNS, True)

    @property
    def runs_in_threads(self) -> bool:
        """Every pass takes one thread."""
        return True

    def law(self, rows: Inputs) -> Law:
        """A table of quantiles, without a gradient."""
        with torch.no_grad(), threads_for(len(self._y)):
            memory, X = self._memory(), Rows.of(rows).X.detach()
            parts = [self._quantiles(block, memory) for block in X.split(_BLOCK)]
        y, mean = (torch.cat(several) for several in zip(*parts, strict=True))
        scale = float(self._y.std(correction=0)) or 1.0
        return replace(Table.of_quantiles(ndtr(_SCORES).to(y), y, scale), location=mean)

    def _memory(self) -> Memory:
        """What the network knows of the context."""
        memory = _MEMORIES.get(self)
        if not memory:
            memory, (X, y), scales = [], self._context, self._scales
            cells, known = scales.cells(X[None]), scales.z(y[None])
            pretrained(str(X.device))(cells, known, marks(X.shape[1]).to(X)[None], memory)
            # A model that only scores what it was fitted without is asked once.
            _MEMORIES[self] = memory if self in _MEMORIES else []
        return memory

    def _quantiles(self, X: Tensor, memory: Memory) -> tuple[Tensor, Tensor]:
        """Values [T, L] at the scores, and means [T]."""
        if not len(X):
            return X.new_empty(0, len(_SCORES)), X.new_empty(0)
        network, scales = pretrained(str(X.device)), self._scales
        none, columns = X.new_empty(1, 0).float(), marks(X.shape[1]).to(X)[None]
        mass = network(scales.cells(X[None]), none, columns, memory)[0].double().softmax(-1)
        borders = network.borders.double()
        mean = mass @ (0.5 * (borders[1:] + borders[:-1]))
        cdf = F.pad(mass.cumsum(-1), (1, 0))
        levels = ndtr(_SCORES).to(cdf).expand(len(cdf), -1).contiguous()
        z = _interpolated(levels, cdf / cdf[:, -1:], borders.expand_as(cdf))
        shift, scale = scales.mean_y[0], scales.scale_y[0]
        return shift + scale * z, shift + scale * mean

    @property
    def _scales(self) -> Scales:
        X, y = self._context
        return Scales.from_context(X[None], y[None])

    @property
    def _context(self) -> tuple[Tensor, Tensor]:
        """As many rows as the network was trained for."""
        rows = drawn_rows(len(self._y), PRIOR_ROWS).to(self._y.device)
        return self.X_train[rows], self._y[rows]

    def extended(self, rows: Inputs, y: Tensor) -> "PriorFitted":
        """With further rows to draw the context from."""
        return PriorFitted(Rows.join(self._rows, rows), torch.cat([self._y, y]))

    updated = extended

    def relearned(self, rows: Inputs, y: Tensor, labels: Tensor, seed: int) -> "PriorFitted":
        return PriorFitted(rows, y)

    def out_of_training(self, pairs: Sequence[Split], labels: Tensor, seed: int) -> OutOfFold:
        """The network was trained on none of the rows: it predicts from all of them."""
        return replace(self.out_of_fold(pairs, labels, seed), refits=[self])


@cache
def pretrained(device: str) -> "PriorNetwork":
    """The network with its trained weights."""
    with safe_open(WEIGHTS, "pt") as file:
        shape = {name: int(value) for name, value in file.metadata().items()}
        weights = {name: file.get_tensor(name).float() for name in file.keys()}  # noqa: SIM118
    network = PriorNetwork(Shape(**shape))
    network.load_state_dict(weights)
    return network.eval().requires_grad_(False).to(device)


def _interpolated(at: Tensor, given: Tensor, values: Tensor) -> Tensor:
    """Values [T, L] at places ``at`` [T, L], linear between those [T, K] at ``given`` [T, K]."""
    given = given.contiguous()
    right = torch.searchsorted(given, at).clamp(1, given.shape[1] - 1)
    low, high = given.gather(1, right - 1), given.gather(1, right)
    share = ((at - low) / (high - low).clamp_min(1e-300)).clamp(0.0, 1.0)
    return torch.lerp(values.gather(1, right - 1), values.gather(1, right), share)
