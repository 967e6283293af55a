"""Nearest points in Euclidean distance: trees in few dimensions, matrix products otherwise."""

from collections.abc import Callable
from functools import cached_property

import torch
from scipy.spatial import cKDTree
from torch import Tensor

from sharpgp.gp.whitening import by_rows

#: Features up to which a CPU searches a tree; with more, trees look at nearly every point.
MOST_IN_TREE = 10

#: Points up to which a tree finds the very nearest ones.  Beyond, what it finds may be farther away
#: by a factor of at most 1 + _EXCESS: on average 1 to 2 %, in a sixth of the time.
MOST_SEARCHED_EXACTLY = 10_000
_EXCESS = 1.0

#: Of the queries with some numbers: which points [n, N] are not to be found.
Hidden = Callable[[slice], Tensor]


class Nearest:
    """Searches among ``points`` [N, d], with features multiplied by their ``relevance`` [d].

    Examples
    --------
    >>> points = torch.tensor([[0.0], [1.0], [3.0]], dtype=torch.float64)
    >>> nearest = Nearest(points, torch.ones(1, dtype=torch.float64))
    >>> nearest.to(torch.tensor([[2.5]], dtype=torch.float64), 2).tolist()
    [[2, 1]]
    >>> nearest.others(1).tolist()
    [[1], [0], [1]]
    >>> nearest.earlier(torch.tensor([2, 0, 1]), torch.tensor([0, 1]), 1).tolist()
    [[2], [0]]
    """

    def __init__(self, points: Tensor, relevance: Tensor) -> None:
        self.relevance = relevance
        self.points = points * relevance

    def to(self, queries: Tensor, m: int) -> Tensor:
        """Indices [T, m] of the ``m`` points nearest to each of ``queries`` [T, d]."""
        scaled = queries * self.relevance
        return self._in_tree(scaled, m) if self._has_tree else self._by_products(scaled, m)

    def others(self, m: int, rows: Tensor | None = None) -> Tensor:
        """Indices [R, m] of the points nearest to those in ``rows`` [R], excluding each itself.

        Without ``rows``, for all points.
        """
        every = torch.arange(len(self.points), device=self.points.device)
        own = (every if rows is None else rows).unsqueeze(-1)
        queries = self.points if rows is None else self.points[rows]
        if not self._has_tree:
            return self._by_products(queries, m, lambda part: own[part] == every)
        found = self._in_tree(queries, m + 1)
        itself = found == own
        # A point with many copies may not find itself among them: then the last one is dropped.
        itself[:, -1] |= ~itself.any(-1)
        return found[~itself].reshape(len(queries), m)

    def earlier(self, order: Tensor, rows: Tensor, m: int) -> Tensor:
        """Indices [R, m] of the nearest points that precede those in ``rows`` [R].

        ``order`` [N] has the indices of all points, in their order.
        """
        place = torch.empty_like(order)
        place[order] = torch.arange(len(order), device=order.device)
        own = place[rows].unsqueeze(-1)
        return self._by_products(self.points[rows], m, lambda part: place >= own[part])

    @property
    def _has_tree(self) -> bool:
        return self.points.device.type == "cpu" and self.points.shape[1] <= MOST_IN_TREE

    @cached_property
    def _tree(self) -> cKDTree:
        return cKDTree(self.points.numpy())

    def _in_tree(self, queries: Tensor, m: int) -> Tensor:
        excess = 0.0 if len(self.points) <= MOST_SEARCHED_EXACTLY else _EXCESS

        def block(rows: slice) -> Tensor:
            found = self._tree.query(queries[rows].numpy(), k=range(1, m + 1), eps=excess)[1]
            return torch.from_numpy(found)

        return self._found(block, len(queries), 100 * m)

    def _by_products(self, queries: Tensor, m: int, hidden: Hidden | None = None) -> Tensor:
        squares = self.points.square().sum(-1)

        def block(rows: slice) -> Tensor:
            # Squared distances, but for the square of the query itself.
            apart = torch.addmm(squares, queries[rows], self.points.mT, alpha=-2.0)
            if hidden is not None:
                apart.masked_fill_(hidden(rows), torch.inf)
            return apart.topk(m, largest=False, sorted=False).indices

        return self._found(block, len(queries), len(self.points))

    def _found(self, block: Callable[[slice], Tensor], n_queries: int, entries: int) -> Tensor:
        return torch.cat(list(by_rows(block, n_queries, entries, self.points.device)))
