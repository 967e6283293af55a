"""Parts of the input space whose points have ranks of their own."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Annotated, Any, Self

import numpy as np
import torch
from torch import Tensor

from sharpgp._stored import Array, Maybe, stored
from sharpgp.exceptions import InvalidInputError, warn
from sharpgp.models.repeats import KnownInputs
from sharpgp.rows import Inputs, Rows

#: Classes with fewer calibration points are pooled into one.
MIN_ROWS_PER_CLASS = 10
# A column with more distinct values does not define classes.
_MAX_CLASSES = 1000


@stored("Parts")
@dataclass(frozen=True, eq=False)
class Parts:
    """Which part each point belongs to: classes of ``by=``, and within these new and known units.

    Attributes
    ----------
    columns : tuple of int
        Features whose values define the class; empty if ``by`` does.
    classes : Tensor [K, c], optional
        Values of these features, or of ``by``, in each class with enough points; all others share
        the class ``K``.
    by : callable, optional
        ``by(X)`` gives the number of each row's class.
    known : KnownInputs, optional
        Points with one of these inputs, or groups, are parts of their own: part ``k + K + 1`` has
        those of class ``k``.

    References
    ----------
    V. Vovk, "Conditional validity of inductive conformal predictors", ACML 2012.

    Examples
    --------
    >>> X = torch.tensor([[0.0, 1.0], [5.0, 2.0], [0.0, 3.0]]).double()
    >>> Parts().find(X).tolist()
    [0, 0, 0]
    >>> Parts((1,), X[:2, 1:]).find(X).tolist()
    [0, 1, 2]
    >>> Parts(known=KnownInputs(X[1:])).find(X).tolist()
    [0, 1, 1]
    """

    columns: tuple[int, ...] = ()
    classes: Annotated[Tensor | None, Array("K c", empty=True)] = None
    by: Annotated[Callable[[Any], Any] | None, Maybe(type(None))] = None
    known: KnownInputs | None = None

    @property
    def n_classes(self) -> int:
        """Number of classes, with that of all others."""
        return 1 if self.classes is None else len(self.classes) + 1

    def __len__(self) -> int:
        return self.n_classes if self.known is None else 2 * self.n_classes

    def class_of(self, X: Inputs) -> Tensor:
        """Number [T] of each point's class."""
        X = Rows.of(X)
        found = torch.zeros(len(X), dtype=torch.long, device=X.device)
        if self.classes is None or not len(self.classes):
            return found
        values = values_of(X, self.columns, self.by)
        same = (values.unsqueeze(1) == self.classes.to(values)).all(-1)
        return torch.where(same.any(-1), same.long().argmax(-1), len(self.classes))

    def find(self, X: Inputs) -> Tensor:
        """Number [T] of each point's part."""
        X = Rows.of(X)
        found = self.class_of(X)
        return found if self.known is None else found + self.n_classes * (self.known.find(X) >= 0)

    def with_known(self, known: KnownInputs | None) -> Self:
        """The same with other known inputs."""
        return self if known is None or self.known is None else replace(self, known=known)


def classes_of(
    X: Rows, by: Sequence[int] | Callable[[Any], Any]
) -> tuple[Parts, list[Tensor], Tensor]:
    """Classes with enough of some calibration points, the points of each, and all other points."""
    function, columns = (by, ()) if callable(by) else (None, tuple(by))
    values = values_of(X, columns, function)
    classes, where, count = values.unique(dim=0, return_inverse=True, return_counts=True)
    if len(classes) > min(_MAX_CLASSES, len(X) // 2):
        raise InvalidInputError(
            f"by: expected classes that calibration points share, found {len(classes)} among "
            f"{len(X)} points; give a column of categories, or a function that makes some"
        )
    large = count >= MIN_ROWS_PER_CLASS
    if bool((~large).any()):
        shown = int(count[~large].sum())
        warn(
            f"by: {int((~large).sum())} of {len(classes)} classes have fewer than "
            f"{MIN_ROWS_PER_CLASS} calibration points; their {shown} points are pooled"
        )
    own = [where == k for k in large.nonzero()[:, 0].tolist()]
    return Parts(columns, classes[large], function), own, ~large[where]


def values_of(X: Rows, columns: Sequence[int], by: Callable[[Any], Any] | None) -> Tensor:
    """The values that define the class of each point [T, c]."""
    if by is None:
        return X.X[:, list(columns)]
    labels = np.asarray(by(X.X.detach().cpu().numpy()))
    if labels.shape != (len(X),) or labels.dtype.kind not in "biuf":
        raise InvalidInputError(
            f"by: expected a function that gives a number for each of {len(X)} rows, found "
            f"{labels.dtype} of shape {labels.shape}"
        )
    return torch.tensor(labels, dtype=torch.float64, device=X.device).unsqueeze(-1)
