"""Nearest points in Euclidean distance: trees in few dimensions, matrix products otherwise."""

from collections.abc import Callable
from functools import cached_property

import torch
from scipy.spatial import cKDTree
from torch import Tensor

from sharpgp.gp.sparse.whitening import by_rows

#: Features up to which a CPU searches a tree; with more, trees look at nearly every point.
MOST_IN_TREE = 10

#: Points up to which a tree finds the very nearest ones.  Beyond, what it finds may be farther away
#: by a factor of at most 1 + _EXCESS: on average 1 to 2 %, in a sixth of the time.
MOST_SEARCHED_EXACTLY = 10_000
_EXCESS = 1.0

#: Of the queries with some numbers: which candidates [n, C] are not to be found.
Hidden = Callable[[slice], Tensor]


class Nearest:
    """Searches ``points`` [N, d].

    It finds rows of ``points``; with ``among`` [C], only rows among these.

    Examples
    --------
    >>> points = torch.tensor([[0.0], [1.0], [3.0]], dtype=torch.float64)
    >>> nearest = Nearest(points)
    >>> nearest.to(torch.tensor([[2.5]], dtype=torch.float64), 2).tolist()
    [[2, 1]]
    >>> nearest.others(1).tolist()
    [[1], [0], [1]]
    >>> nearest.earlier(torch.tensor([2, 0, 1]), torch.tensor([0, 1]), 1).tolist()
    [[2], [0]]
    """

    def __init__(self, points: Tensor, among: Tensor | None = None) -> None:
        self.points = points
        self.among = torch.arange(len(points), device=points.device) if among is None else among
        self._candidates = self.points if among is None else self.points[among]

    def to(self, queries: Tensor, m: int) -> Tensor:
        """Rows [T, m] of the ``m`` points nearest to each of ``queries`` [T, d]."""
        return self._in_tree(queries, m) if self._has_tree else self._by_products(queries, m)

    def others(self, m: int, rows: Tensor | None = None) -> Tensor:
        """Rows [R, m] of the points nearest to those in ``rows`` [R], excluding each itself.

        Without ``rows``, for all points.
        """
        if rows is None:
            rows = torch.arange(len(self.points), device=self.points.device)
        own = rows.unsqueeze(-1)
        if not (self._has_tree and m):
            return self._by_products(self.points[rows], m, lambda part: own[part] == self.among)
        found = self._in_tree(self.points[rows], m + 1)
        # In order of distance, without itself.
        order = (found == own).to(torch.int8).argsort(dim=-1, stable=True)
        return found.gather(-1, order[:, :m])

    def earlier(self, order: Tensor, rows: Tensor, m: int) -> Tensor:
        """Rows [R, m] of the nearest points that precede those in ``rows`` [R].

        ``order`` [C] has the rows that are searched, in their order.
        """
        place = torch.empty(len(self.points), dtype=order.dtype, device=order.device)
        place[order] = torch.arange(len(order), device=order.device)
        own, others = place[rows].unsqueeze(-1), place[self.among]
        return self._by_products(self.points[rows], m, lambda part: others >= own[part])

    @property
    def _has_tree(self) -> bool:
        return self.points.device.type == "cpu" and self.points.shape[1] <= MOST_IN_TREE

    @cached_property
    def _tree(self) -> cKDTree:
        return cKDTree(self._candidates.numpy())

    def _in_tree(self, queries: Tensor, m: int) -> Tensor:
        excess = 0.0 if len(self._candidates) <= MOST_SEARCHED_EXACTLY else _EXCESS

        def block(rows: slice) -> Tensor:
            found = self._tree.query(queries[rows].numpy(), k=range(1, m + 1), eps=excess)[1]
            return self.among[torch.from_numpy(found)]

        return self._found(block, len(queries), m, 100 * m)

    def _by_products(self, queries: Tensor, m: int, hidden: Hidden | None = None) -> Tensor:
        squares = self._candidates.square().sum(-1)

        def block(rows: slice) -> Tensor:
            # Squared distances, but for the square of the query itself.
            apart = torch.addmm(squares, queries[rows], self._candidates.mT, alpha=-2.0)
            if hidden is not None:
                apart.masked_fill_(hidden(rows), torch.inf)
            return self.among[apart.topk(m, largest=False, sorted=False).indices]

        return self._found(block, len(queries), m, len(self._candidates))

    def _found(
        self, block: Callable[[slice], Tensor], n_queries: int, m: int, entries: int
    ) -> Tensor:
        if not m or not n_queries:
            return self.among.new_empty(n_queries, m)
        return torch.cat(list(by_rows(block, n_queries, entries, self.points.device)))
