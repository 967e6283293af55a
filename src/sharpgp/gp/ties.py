"""Features that share a lengthscale, such as those that encode one column of a table.

``ties`` has an entry for every feature: the number of its lengthscale, counted from 0 in the order
in which features name them.  None means that every feature has one of its own.
"""

import torch
from torch import Tensor

Ties = tuple[int, ...]


def as_ties(ties: Ties | None) -> Ties | None:
    """The same ties, or None if every feature has its own lengthscale.

    Examples
    --------
    >>> as_ties((0, 1, 1)), as_ties((0, 1, 2))
    ((0, 1, 1), None)
    """
    return None if ties is None or len(set(ties)) == len(ties) else tuple(ties)


def are_ties(ties: Ties | None, n_features: int) -> bool:
    """Whether ``ties`` number the lengthscales of ``n_features`` features in order.

    Examples
    --------
    >>> are_ties((0, 1, 1), 3), are_ties((0, 2, 2), 3), are_ties((0, 1), 3)
    (True, False, False)
    """
    if ties is None:
        return True
    return len(ties) == n_features and list(dict.fromkeys(ties)) == list(range(len(set(ties))))


def members(ties: Ties | None, n_features: int) -> list[list[int]]:
    """The features of each lengthscale.

    Examples
    --------
    >>> members((0, 1, 1, 0), 4), members(None, 2)
    ([[0, 3], [1, 2]], [[0], [1]])
    """
    if ties is None:
        return [[j] for j in range(n_features)]
    return [[j for j, tie in enumerate(ties) if tie == g] for g in range(len(set(ties)))]


def of_each(values: Tensor, ties: Ties | None, reduce: str) -> Tensor:
    """Values [d] of features as one for each lengthscale [G]: their ``"sum"`` or ``"amax"``.

    Examples
    --------
    >>> of_each(torch.tensor([5.0, 1.0, 2.0]), (0, 1, 1), "sum").tolist()
    [5.0, 3.0]
    """
    if ties is None:
        return values
    index = torch.tensor(ties, device=values.device)
    out = values.new_zeros(len(set(ties)))
    return out.scatter_reduce(0, index, values, reduce, include_self=False)


def per_feature(values: Tensor, ties: Ties | None) -> Tensor:
    """Values [..., G] of lengthscales as one for each feature [..., d].

    Examples
    --------
    >>> per_feature(torch.tensor([5.0, 3.0]), (0, 1, 1)).tolist()
    [5.0, 3.0, 3.0]
    """
    return values if ties is None else values[..., list(ties)]
