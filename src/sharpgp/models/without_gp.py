"""Models without a GP: everything except a prediction is a fit from scratch."""

from abc import abstractmethod
from collections.abc import Sequence
from typing import Self

from torch import Tensor

from sharpgp import _progress as progress
from sharpgp._forwarded import forwarded
from sharpgp.data.folds import Split
from sharpgp.gp.compute import side_by_side
from sharpgp.models.model import HeldOut, Learner, OutOfFold, held_out_of
from sharpgp.models.splitters import quick_pairs
from sharpgp.rows import Inputs, Rows

# Number of parts to leave out in turn if a quick answer is enough.
_QUICK_PARTS = 5


class RefittedModel(Learner):
    """A model that knows its data, and is fitted again to any of them.

    It cannot be conditioned on further data: :meth:`extended` and :meth:`updated` keep it as it
    is.  A kind of model has a :meth:`law` and :meth:`relearned`.

    Parameters
    ----------
    X : Rows or Tensor [N, d]
    y : Tensor [N]

    Examples
    --------
    >>> import torch
    >>> from sharpgp.models.laws import Normal
    >>> class Flat(RefittedModel):
    ...     def law(self, rows):
    ...         mean, std = self.y_train.mean(), self.y_train.std()
    ...         return Normal(mean.expand(len(rows)), std.expand(len(rows)))
    ...
    ...     def relearned(self, rows, y, labels, seed):
    ...         return Flat(rows, y)
    >>> X = torch.linspace(0, 6, 60, dtype=torch.float64)[:, None]
    >>> Flat(X, X[:, 0]).leave_one_out(torch.arange(60), 0).scores.shape
    torch.Size([60])
    """

    @property
    def gp(self) -> None:
        """None."""

    @property
    def runs_in_threads(self) -> bool:
        """Whether several fits may run at once; unknown for other libraries' models."""
        return False

    def __init__(self, X: Inputs, y: Tensor) -> None:
        self._rows, self._y = Rows.of(X), y

    rows = forwarded("_rows")
    y_train = forwarded("_y")
    n_features = forwarded("_rows.n_features")
    device = forwarded("_rows.device")

    @classmethod
    def learned(cls, name: str, rows: Inputs, y: Tensor, *, seed: int = 0) -> Self:
        """The model that ``base=name`` stands for, see :mod:`sharpgp.models.registry`."""
        return cls(rows, y)

    @abstractmethod
    def relearned(self, rows: Inputs, y: Tensor, labels: Tensor, seed: int) -> Self:
        """See :meth:`Learner.relearned`."""

    def extended(self, rows: Inputs, y: Tensor) -> Self:
        """The same model."""
        return self

    def updated(self, rows: Inputs, y: Tensor) -> Self:
        """The same model."""
        return self

    def leave_one_out(self, labels: Tensor, seed: int) -> HeldOut:
        """A fifth of the points at a time."""
        pairs = quick_pairs(labels, _QUICK_PARTS, seed)
        return self.out_of_fold(pairs, labels, seed).held

    def out_of_fold(self, pairs: Sequence[Split], labels: Tensor, seed: int) -> OutOfFold:
        rows, y = self._rows, self._y

        def without(pair: Split) -> tuple[Learner, HeldOut]:
            rest, _ = pair
            fit = self.relearned(rows[rest], y[rest], labels[rest], seed)
            held = held_out_of([fit], [pair], rows, y)
            progress.advance()
            return fit, held

        found = side_by_side(without, pairs, in_turn=not self.runs_in_threads)
        held = HeldOut.joined([one for _, one in found])
        return OutOfFold(self, [fit for fit, _ in found], held.in_order())
