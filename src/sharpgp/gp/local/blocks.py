"""Points conditioned on landmarks and on the block of rows about them, whose factors are kept."""

import copy
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import NamedTuple, Self

import torch
from torch import Tensor

from sharpgp.gp.compute import in_order
from sharpgp.gp.dense import cholesky
from sharpgp.gp.kernels.covariance import Covariance
from sharpgp.gp.sparse.whitening import Data, solve, solve_transposed
from sharpgp.rows import Rows

# Rows among which landmarks are chosen, and points that are whitened at a time.
_CANDIDATES, _POINTS = 2000, 256


@dataclass(frozen=True)
class Layout:
    """Cells of the input space, and the rows that each of them sees.

    A point belongs to the nearest centre: a function of the point alone, so that a row which is
    left out belongs to the same cell as a further point would.

    Attributes
    ----------
    scaled : callable
        Inputs as points among which the nearest are searched.
    centres : Tensor [B, d]
        Among these points.
    near : Tensor [B, m]
        Rows nearest to each centre, none of them a landmark.
    """

    scaled: Callable[[Tensor], Tensor]
    centres: Tensor
    near: Tensor

    @classmethod
    def of_rows(
        cls,
        X: Tensor,
        scaled: Callable[[Tensor], Tensor],
        others: Tensor,
        n_cells: int,
        halo: int,
    ) -> "Layout":
        """Means of parts of about the same number of rows, halved along the widest feature.

        Examples
        --------
        >>> X, every = torch.tensor([[0.0], [4.0], [1.0], [5.0]]).double(), torch.arange(4)
        >>> layout = Layout.of_rows(X, lambda X: X, every, n_cells=2, halo=3)
        >>> layout.centres.flatten().tolist(), layout.cell_of(X).tolist()
        ([0.5, 4.5], [0, 1, 0, 1])
        """
        Z, means = scaled(X), []
        parts = [(torch.arange(len(X), device=X.device), min(n_cells, len(X)))]
        while parts:
            rows, count = parts.pop()
            if count == 1:
                means.append(Z[rows].mean(0))
                continue
            ordered = rows[Z[rows, int(Z[rows].var(0).argmax())].argsort()]
            cut = len(rows) * (count // 2) // count
            parts += [(ordered[cut:], count - count // 2), (ordered[:cut], count // 2)]
        centres, m = torch.stack(means), min(halo, len(others))
        apart = torch.cdist(centres, Z[others])
        return cls(scaled, centres, others[apart.topk(m, largest=False).indices])

    def cell_of(self, X: Tensor) -> Tensor:
        """Number [T] of each point's cell."""
        return torch.cdist(self.scaled(X.detach()), self.centres).argmin(-1)


def greedy_landmarks(
    covariance: Covariance, theta: Tensor, X: Tensor, count: int, seed: int
) -> Tensor:
    """Rows [M] that are landmarks: one after another, where the others leave the most variance.

    Among at most 2,000 random rows.

    Examples
    --------
    >>> from sharpgp.gp.kernels.covariance import Stationary
    >>> X = torch.tensor([[0.0], [0.1], [3.0], [3.1]], dtype=torch.float64)
    >>> theta = torch.tensor([1.0, 1.0, 0.1], dtype=torch.float64)
    >>> found = greedy_landmarks(Stationary("rbf", 1), theta, X, 2, 0)
    >>> sorted((X[found, 0] > 1).tolist())
    [False, True]
    """
    drawn = torch.randperm(len(X), generator=torch.Generator().manual_seed(seed))
    some = drawn[:_CANDIDATES].to(X.device)
    K = covariance.matrix(theta.unsqueeze(0), X[some])[0]
    left, count = K.diagonal().clone(), min(count, len(some))
    factor, chosen = K.new_zeros(count, len(some)), []
    for j in range(count):
        i = int(left.argmax())
        column = K[i] - factor[:j, i] @ factor[:j]
        factor[j] = column / left[i].clamp_min(1e-12 * K[i, i]).sqrt()
        chosen.append(i)
        left -= factor[j].square()
        left[i] = -torch.inf
    return some[chosen]


class _Block(NamedTuple):
    """What a cell's points are asked of: see :class:`Blocks`."""

    rows: Tensor
    W: Tensor
    C: Tensor
    a: Tensor
    weights: Tensor


class Blocks:
    r"""Observations given landmarks ``S`` and the rows ``N`` of their cell, under one ``theta``.

    With ``L L' = K_SS + noise I``, ``W = L^-1 K_SN`` and ``C C' = K_NN + noise I - W' W``, the
    factor of the covariance of ``S`` and ``N`` is ``[[L, 0], [W', C]]``.  A point with
    ``w = L^-1 k_S`` and ``e = C^-1 (k_N - W' w)`` has

    ``mu = w' L^-1 y_S + e' a`` and ``sigma^2 = k(x, x) + noise - w' w - e' e``,

    ``a = C^-1 (y_N - W' L^-1 y_S)``: the exact GP of ``S`` and ``N``, in ``O(m^2 + m M + M^2)`` for
    each point, after ``O(m^2 M + m^3)`` once for its cell.  A mean alone is a product of ``k_S``
    and ``k_N`` with weights, in ``O(m + M)``.  A row is left out in closed form, as in an exact GP.

    Parameters
    ----------
    data : Data
    landmarks : Tensor [M]
    theta : Tensor [P]
    layout : Layout

    Examples
    --------
    >>> from sharpgp.gp.kernels.covariance import Stationary
    >>> X = torch.tensor([[0.0], [3.0]], dtype=torch.float64)
    >>> data, one = Data(Stationary("rbf", 1), X, X[:, 0]), torch.ones(1, dtype=torch.float64)
    >>> layout = Layout.of_rows(X, torch.clone, torch.tensor([1]), n_cells=1, halo=1)
    >>> blocks = Blocks(data, torch.tensor([0]), torch.ones(3, dtype=torch.float64), layout)
    >>> [round(float(moment), 3) for moment in blocks.moments(X[1:])]
    [1.5, 1.5]
    """

    def __init__(self, data: Data, landmarks: Tensor, theta: Tensor, layout: Layout) -> None:
        self._data, self._rows, self._layout = data, landmarks, layout
        self._theta, self._S = theta.unsqueeze(0), data.X[landmarks]
        K = data.covariance.of_observations(self._theta, data.take(landmarks))
        self._L = cholesky(K)[0][0]
        self._c = _solve(self._L, data.y[landmarks])
        self._kept: dict[int, _Block] = {}

    def with_targets(self, y: Tensor) -> Self:
        """The same for other targets [N]; factors are kept."""
        other = copy.copy(self)
        other._data = replace(self._data, y=y)
        other._c = _solve(self._L, y[self._rows])
        kept = self._kept.items()
        other._kept = {cell: other._weighted(one.rows, one.W, one.C) for cell, one in kept}
        return other

    def moments(self, X: Tensor) -> tuple[Tensor, Tensor]:
        """Mean and variance [T] of observations at ``X`` [T, d], with no noise of their own."""

        def ask(block: _Block, rows: Tensor) -> Tensor:
            x = X[rows]
            w = _solve(self._L, self._k(self._S, x))
            e = _solve(block.C, self._k(self._data.X[block.rows], x) - block.W.mT @ w)
            prior = self._data.covariance.prior(self._theta, Rows(x))[0]
            variance = prior - w.square().sum(0) - e.square().sum(0)
            # Rounding may take a near-noiseless variance below zero; it is never exactly zero.
            variance = torch.maximum(variance, 1e-12 * prior.detach())
            return torch.stack([w.mT @ self._c + e.mT @ block.a, variance])

        mean, variance = self._by_cell(X, ask)
        return mean, variance

    def mean(self, X: Tensor) -> Tensor:
        """Mean [T] of observations at ``X`` [T, d], from kernel values alone."""

        def ask(block: _Block, rows: Tensor) -> Tensor:
            given = torch.cat([self._S, self._data.X[block.rows]])
            return (self._k(X[rows], given) @ block.weights).unsqueeze(0)

        return self._by_cell(X, ask)[0]

    def left_out(self, rows: Tensor) -> tuple[Tensor, Tensor]:
        """Mean and variance [R] of the targets in ``rows`` [R], each by the same without it.

        With the noise that a row has of its own.

        With ``A`` the inverse of the covariance of ``S`` and ``N``, the residual is
        ``(A y)_i / A_ii`` and the variance ``1 / A_ii``.
        """
        X = self._data.X[rows]

        def ask(block: _Block, places: Tensor) -> Tensor:
            own = rows[places]
            first, second = ((some.unsqueeze(1) == own).to(X) for some in (self._rows, block.rows))
            seen = (first.sum(0) + second.sum(0)) > 0
            first = _solve(self._L, first)
            second = _solve(block.C, second - block.W.mT @ first)
            precision = first.square().sum(0) + second.square().sum(0) + ~seen
            residual = (first.mT @ self._c + second.mT @ block.a) / precision
            found = torch.stack([self._data.y[own] - residual, 1.0 / precision])
            if not bool(seen.all()):  # rows that their cell does not see
                mean, variance = self.moments(X[places[~seen]])
                noise = self._data.take(own[~seen]).noise
                found[:, ~seen] = torch.stack(
                    [mean, variance if noise is None else variance + noise]
                )
            return found

        mean, variance = self._by_cell(X, ask)
        return mean, variance

    def _by_cell(self, X: Tensor, ask: Callable[[_Block, Tensor], Tensor]) -> Tensor:
        """``ask(block, places)`` [., R] of the points of each cell, in the order of all [., T]."""
        cell = self._layout.cell_of(X)
        order = cell.argsort(stable=True)
        counts = cell[order].unique_consecutive(return_counts=True)[1].tolist()
        runs = [part for run in order.split(counts) for part in run.split(_POINTS)]

        def one(places: Tensor) -> Tensor:
            return ask(self._block(int(cell[places[0]])), places)

        if not runs:
            return X.new_empty(2, 0)
        found = torch.cat(list(in_order(one, runs, in_turn=X.device.type != "cpu")), -1)
        return found[..., order.argsort()]

    def _block(self, cell: int) -> _Block:
        """What the points of a cell are asked of; kept, unless gradients are needed."""
        if cell in self._kept:
            return self._kept[cell]
        rows = self._layout.near[cell]
        X = self._data.X[rows]
        W = _solve(self._L, self._k(self._S, X))
        K = self._data.covariance.of_observations(self._theta, self._data.take(rows))
        block = self._weighted(rows, W, cholesky(K - W.mT @ W)[0][0])
        if not block.C.requires_grad:
            self._kept[cell] = block
        return block

    def _weighted(self, rows: Tensor, W: Tensor, C: Tensor) -> _Block:
        a = _solve(C, self._data.y[rows] - W.mT @ self._c)
        near = _solve(C, a, transposed=True)
        of_landmarks = _solve(self._L, self._c - W @ near, transposed=True)
        return _Block(rows, W, C, a, torch.cat([of_landmarks, near]))

    def _k(self, one: Tensor, other: Tensor) -> Tensor:
        return self._data.covariance.matrix(self._theta, one, other)[0]


def _solve(L: Tensor, right: Tensor, *, transposed: bool = False) -> Tensor:
    """``L^-1 right``, or that of ``L'``, for one column or several."""
    several = right.unsqueeze(-1) if right.dim() == 1 else right
    found = solve_transposed(L, several) if transposed else solve(L, several)
    return found.view_as(right)
