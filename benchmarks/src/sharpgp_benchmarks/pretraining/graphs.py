"""Regression tables from random causal graphs, drawn on a GPU in groups.

The tables of a group share the graph, the kinds of its nodes and their sizes. Weights, thresholds
and scales are each table's own, from distributions that the group shares: so a table may have
columns that are all alike, or of every kind. A node holds up to 16 latent columns and computes them
from those of its parents. Columns and target are latent columns of nodes. Noise, warps of the
target, gaps and repeated rows come from :mod:`sharpgp_benchmarks.pretraining.tables`.
"""

from __future__ import annotations

import math
import random
from collections.abc import Callable, Sequence

import torch
from torch import Tensor
from torch.nn import functional as F

from sharpgp_benchmarks.pretraining.tables import (
    Device,
    finished,
    standard,
    with_marginals,
)

#: Nodes of a graph, and latent columns of a node, at most.
NODES, LATENT = 32, 12
#: Tables drawn for each that is kept: those whose target is least told by their columns go.
DRAWN = 1.25
#: Latent columns of all parents that a node sees at most.
_SEEN = 24


def graph_tables(
    n_tables: int, n_rows: int, n_columns: int, device: Device, groups: int = 4
) -> tuple[Tensor, Tensor]:
    """``X`` [B, N, F], NaN where missing, and ``y`` [B, N], neither of them standardised."""
    draw = random.Random(int(torch.randint(2**31, ())))
    sizes = [n_tables // groups + (k < n_tables % groups) for k in range(groups)]
    drawn = [_Group(draw, size, n_rows, n_columns, device).tables() for size in sizes if size]
    X, inputs, mean = (torch.cat(parts) for parts in zip(*drawn, strict=True))
    return finished(X, inputs, mean)


class _Group:
    """Tables that share a graph, kinds of nodes, and distributions of numbers."""

    def __init__(self, draw: random.Random, kept: int, rows: int, columns: int, device: Device):
        self.draw, self.kept, self.columns, self.device = draw, kept, columns, device
        self.shape = math.ceil(DRAWN * kept), rows
        self.activations = draw.choices(_ACTIVATIONS, k=draw.choice((1, 2, 4, 12)))
        self.functions = self._weights(self._families())
        self.matrices = self._weights(range(5))
        self.decay = self._numbers(0.0, 2.0)
        self.gain = self._numbers(-0.7, 1.5)
        self.noise = self._numbers(-6.0, 0.0)

    def tables(self) -> tuple[Tensor, Tensor, Tensor]:
        """Columns, the same standardised without transformations, and the target's mean."""
        widths, nodes = self._sizes(), list[Tensor]()
        for parents, width in zip(self._parents(len(widths)), widths, strict=True):
            if parents:
                node = self._child([nodes[p] for p in parents], width)
            else:
                node = self._root(width)
            node = standard(torch.nan_to_num(node, nan=0.0, posinf=0.0, neginf=0.0), 1)
            nodes.append(node.clamp(-12.0, 12.0))
        everything = torch.cat(nodes, 2)
        total = everything.shape[2]
        # The target is rarely a root.
        target = self.draw.randrange(total if self.draw.random() < 0.1 else total - widths[0])
        target = total - 1 - target
        others = [k for k in range(total) if k != target]
        places = self.draw.sample(others, self.columns)
        chosen, mean = everything[:, :, places], everything[:, :, target]
        best = told(chosen, mean).topk(self.kept).indices
        chosen, mean = chosen[best], mean[best]
        X = self._coded(with_marginals(chosen) if self.draw.random() < 0.7 else chosen)
        return X, chosen, mean

    # ------------------------------------------------------------------ structure

    def _sizes(self) -> list[int]:
        """Latent columns of each node: one more than the columns of a table, at least, in all."""
        n = round(2 ** self.draw.uniform(1.0, math.log2(NODES)))
        least = math.ceil((self.columns + 2) / n)
        return [max(least, self.draw.randint(1, LATENT)) for _ in range(n)]

    def _parents(self, n: int) -> list[list[int]]:
        """Edges of a graph whose nodes have Cauchy tendencies to give, and to have, edges."""

        def cauchy() -> float:
            return math.tan(math.pi * (self.draw.random() - 0.5))

        level, gives, takes = cauchy(), [cauchy() for _ in range(n)], [cauchy() for _ in range(n)]
        found = []
        for j in range(n):
            logits = [max(-30.0, min(30.0, level + gives[i] + takes[j])) for i in range(j)]
            some = [i for i in range(j) if self.draw.random() < 1.0 / (1.0 + math.exp(-logits[i]))]
            if j and not some and self.draw.random() < 0.7:
                some = [self.draw.randrange(j)]
            found.append(self.draw.sample(some, min(len(some), 6)))
        return found

    def _weights(self, of: Sequence[object]) -> list[float]:
        """How often each is chosen in this group: all alike, or hardly any but one."""
        spread = self.draw.uniform(0.0, 2.5)
        return [math.exp(spread * self.draw.gauss(0.0, 1.0)) for _ in of]

    def _numbers(self, low: float, high: float) -> Callable[..., Tensor]:
        """Draws between two ends from a beta distribution that the group shares."""
        middle, many = self.draw.uniform(0.05, 0.95), math.exp(self.draw.uniform(0.0, 4.0))

        def drawn(*size: int) -> Tensor:
            ends = torch.tensor([middle * many, (1.0 - middle) * many], device=self.device)
            gammas = torch._standard_gamma(ends.expand(*size, 2).contiguous()).clamp_min(1e-6)
            return low + (high - low) * gammas[..., 0] / gammas.sum(-1)

        return drawn

    # ---------------------------------------------------------------------- nodes

    def _root(self, width: int) -> Tensor:
        """Normal, uniform, heavy-tailed or clustered columns, mixed by a matrix in half of them."""
        B, N = self.shape
        z = torch.randn(B, N, width, device=self.device)
        kind = self.draw.randrange(5)
        if kind == 1:
            z = 3.4 * (torch.special.ndtr(z) - 0.5)
        elif kind == 2:
            z = z * (0.5 * self._numbers(0.0, 1.5)(B)[:, None, None] * z.abs()).exp()
        elif kind == 3:
            centres = 2.5 * torch.randn(B, self.draw.randint(2, 10), width, device=self.device)
            which = torch.randint(centres.shape[1], (B, N, 1), device=self.device)
            z = z * self._numbers(0.1, 1.5)(B)[:, None, None]
            z = z + centres.gather(1, which.expand(-1, -1, width))
        elif kind == 4:
            # A walk: neighbours in time are alike.
            z = standard(z.cumsum(1), 1)
        return z @ self._matrix(width, width) if self.draw.random() < 0.5 else z

    def _child(self, parents: Sequence[Tensor], width: int) -> Tensor:
        """A function of all parents, or of each, joined in one of four ways; with some noise."""
        how = self.draw.randrange(6) if len(parents) > 1 else 0
        if how < 3:
            found = self._function(torch.cat(list(parents), 2), width)
        else:
            parts = torch.stack([standard(self._function(p, width), 1) for p in parents])
            if how == 3:
                found = parts.sum(0)
            elif how == 4:
                found = parts.clamp(-4.0, 4.0).prod(0) if len(parts) < 4 else parts.amax(0)
            else:
                found = parts.amax(0) if self.draw.random() < 0.5 else parts.logsumexp(0)
        if self.draw.random() < 0.5:
            size = self.noise(len(found), width).exp()[:, None]
            found = standard(found, 1) + size * torch.randn_like(found)
        return found

    def _function(self, x: Tensor, width: int) -> Tensor:
        if x.shape[2] > _SEEN:
            x = x[:, :, self.draw.sample(range(x.shape[2]), _SEEN)]
        (family,) = self.draw.choices(self._families(), self.functions)
        return family(x * self._relevance(x.shape[2]), width)

    def _families(self) -> list[Callable[[Tensor, int], Tensor]]:
        return [
            self._network, self._network, self._trees, self._waves, self._quadratic,
            self._nearest, self._plateaus, self._product, self._linear, self._extremes,
        ]  # fmt: skip

    def _linear(self, x: Tensor, width: int) -> Tensor:
        return x @ self._matrix(x.shape[2], width)

    def _network(self, x: Tensor, width: int) -> Tensor:
        for _ in range(self.draw.choice((0, 1, 1, 2))):
            x = self._activated(x @ self._matrix(x.shape[2], self.draw.choice((4, 8, 16, 32))))
        x = x @ self._matrix(x.shape[2], width)
        return self._activated(x) if self.draw.random() < 0.5 else x

    def _activated(self, x: Tensor) -> Tensor:
        """By one activation, at a scale and a place of each table's own."""
        B, _, width = x.shape
        x = standard(x, 1) * self.gain(B).exp()[:, None, None]
        x = x + torch.randn(B, 1, width, device=x.device)
        return torch.nan_to_num(self.draw.choice(self.activations)(x)).clamp(-1e3, 1e3)

    def _trees(self, x: Tensor, width: int) -> Tensor:
        """Sums of trees with one split for all nodes of a level, at values of rows."""
        B, N, d = x.shape
        trees, depth = self.draw.choice((1, 2, 4, 8, 16)), self.draw.randint(1, 6)
        column = torch.randint(d, (B, trees * depth), device=x.device)
        row = torch.randint(N, (B, trees * depth), device=x.device)
        value = x.reshape(B, -1).gather(1, row * d + column)
        right = x.gather(2, column[:, None].expand(B, N, -1)) > value[:, None]
        powers = 2 ** torch.arange(depth, device=x.device)
        leaf = (right.view(B, N, trees, depth) * powers).sum(-1)
        leaf = leaf + 2**depth * torch.arange(trees, device=x.device)
        leaves = torch.randn(B, trees * 2**depth, width, device=x.device)
        found = leaves.gather(1, leaf.reshape(B, -1, 1).expand(-1, -1, width))
        return found.view(B, N, trees, width).sum(2)

    def _waves(self, x: Tensor, width: int, many: int = 96) -> Tensor:
        """Draws of Gaussian processes whose spectra are normal or heavy-tailed."""
        B, _, d = x.shape
        waves = torch.randn(B, d, many, device=x.device)
        freedom = self._numbers(0.5, 6.0)(B)[:, None, None].expand(B, 1, many).contiguous()
        if self.draw.random() < 0.6:
            waves = waves * (freedom / torch._standard_gamma(freedom).clamp_min(1e-2)).sqrt()
        if self.draw.random() < 0.3:  # additive
            keep = torch.randint(d, (B, 1, many), device=x.device)
            waves = waves * (torch.arange(d, device=x.device)[None, :, None] == keep)
            waves = waves * math.sqrt(d)
        waves = waves * (self.gain(B) - 0.5).exp()[:, None, None] / math.sqrt(d)
        phase = 2 * math.pi * torch.rand(B, 1, many, device=x.device)
        return (x @ waves + phase).cos() @ torch.randn(B, many, width, device=x.device)

    def _quadratic(self, x: Tensor, width: int) -> Tensor:
        first, second = (x @ self._matrix(x.shape[2], 2 * width) for _ in range(2))
        linear = x @ self._matrix(x.shape[2], width)
        return (first * second).unflatten(2, (2, width)).sum(2) + linear

    def _product(self, x: Tensor, width: int) -> Tensor:
        first, second = (
            standard(self.draw.choice((self._network, self._waves, self._trees))(x, width), 1)
            for _ in range(2)
        )
        return first.clamp(-5.0, 5.0) * (second + self.gain(len(x))[:, None, None])

    def _extremes(self, x: Tensor, width: int) -> Tensor:
        """Maxima of linear functions, of as many as three."""
        parts = (x @ self._matrix(x.shape[2], 3 * width)).unflatten(2, (3, width))
        return parts.amax(2) if self.draw.random() < 0.5 else parts.sort(2).values[:, :, 1]

    def _nearest(self, x: Tensor, width: int) -> Tensor:
        """The value of the nearest centre: a category that decides."""
        which = self._apart(x).argmin(2, keepdim=True)
        values = torch.randn(len(x), _CENTRES[-1], width, device=x.device)
        return values.gather(1, which.expand(-1, -1, width))

    def _plateaus(self, x: Tensor, width: int) -> Tensor:
        """Means of centres' values by how near these are: plateaus with slopes between."""
        apart = self._apart(x)
        sharp = self._numbers(0.0, 4.0)(len(x)).exp()[:, None, None]
        shares = (-sharp * apart / apart.mean((1, 2), keepdim=True).clamp_min(1e-6)).softmax(2)
        return shares @ torch.randn(len(x), apart.shape[2], width, device=x.device)

    def _apart(self, x: Tensor) -> Tensor:
        """Distances [B, N, K] to rows, by a power of the differences of a few projections."""
        _, N, d = x.shape
        x = x if d <= 4 else x @ self._matrix(d, 4)
        many, power = self.draw.choice(_CENTRES), math.exp(self.draw.uniform(-0.7, 1.4))
        centres = x[:, :: max(1, N // many)][:, :many]
        apart = (x[:, :, None] - centres[:, None]).abs().clamp_min(1e-6)
        return apart.pow(power).sum(3)

    def _matrix(self, rows: int, columns: int) -> Tensor:
        """Matrices [B, rows, columns] of a kind, each column of about unit length."""
        B, device = self.shape[0], self.device
        M = torch.randn(B, rows, columns, device=device)
        (kind,) = self.draw.choices(range(5), self.matrices)
        if kind == 1:
            M = M * (torch.rand_like(M) < self.draw.uniform(0.1, 0.8))
        elif kind == 2:  # a few directions matter
            rank = min(rows, columns, 6)
            size = torch.arange(1, rank + 1, device=device) ** -self.decay(B)[:, None]
            M = torch.randn(B, rows, rank, device=device) * size[:, None]
            M = M @ torch.randn(B, rank, columns, device=device)
        elif kind == 3:  # neighbours are alike
            places = [torch.rand(B, many, device=device) for many in (rows, columns)]
            far = (places[0][:, :, None] - places[1][:, None]).abs()
            M = (-far * self._numbers(0.0, 10.0)(B)[:, None, None]).exp() * M.sign()
        elif kind == 4:
            M = self.draw.choice(self.activations)(M)
            M = torch.nan_to_num(M).clamp(-10.0, 10.0) + 1e-3 * torch.randn_like(M)
        return M / M.norm(dim=1, keepdim=True).clamp_min(1e-3)

    def _relevance(self, d: int) -> Tensor:
        """Scales [B, 1, d] that fall as powers of a random rank."""
        B = self.shape[0]
        rank = torch.rand(B, d, device=self.device).argsort(1) + 1.0
        size = rank ** -self.decay(B)[:, None] * (0.3 * torch.randn_like(rank)).exp()
        return (size / size.square().mean(1, keepdim=True).sqrt())[:, None]

    def _coded(self, X: Tensor) -> Tensor:
        """In a fifth of the groups, some columns become categories or the indicators of one."""
        if self.columns < 3 or self.draw.random() > 0.2:
            return X
        levels = self.draw.randint(2, min(8, self.columns))
        level = (torch.special.ndtr(standard(X[:, :, 0], 1)) * levels).clamp_max(levels - 1).long()
        if self.draw.random() < 0.5:
            return torch.cat([F.one_hot(level, levels).to(X), X[:, :, levels:]], 2)
        code = torch.rand(len(X), levels, device=X.device).argsort(1)
        return torch.cat([code.gather(1, level)[..., None].to(X), X[:, :, 1:]], 2)


_CENTRES = (2, 3, 5, 8, 16)
_ACTIVATIONS: list[Callable[[Tensor], Tensor]] = [
    torch.tanh, torch.relu, torch.sin, torch.cos, torch.abs, torch.sigmoid, torch.sign, torch.round,
    F.gelu, F.silu, F.elu, F.selu, F.softplus, F.relu6, F.softsign, F.hardtanh, torch.floor,
    lambda v: v,
    lambda v: v.square(),
    lambda v: v**3,
    lambda v: (-v.square()).exp(),
    lambda v: v.clamp(-8.0, 6.0).exp(),
    lambda v: v.abs().sqrt(),
    lambda v: v.abs().add(1e-3).log(),
    lambda v: v.sign() * v.abs().clamp(0.1, 10.0).reciprocal(),
    lambda v: (v > 0).float(),
    lambda v: (v.abs() < 0.7).float(),
    lambda v: torch.remainder(v, 1.0),
    lambda v: v * (v > 0) * (v < 1.5),
    lambda v: v.argsort(1).argsort(1).float() / v.shape[1],
    lambda v: v.softmax(-1),
    lambda v: torch.sinc(v),
]  # fmt: skip


def told(X: Tensor, y: Tensor, many: int = 48) -> Tensor:
    """How much [B] of the variance of ``y`` [B, N] the columns ``X`` [B, N, F] tell.

    The share of the second half of the rows that a ridge regression on random hinges of one to
    three columns explains, learned from the first half. Not above 1; negative where it tells
    nothing.
    """
    B, N, columns = X.shape
    weights = torch.randn(B, columns, many, device=X.device)
    seen = torch.rand_like(weights)
    third = seen.topk(min(3, columns), 1, largest=False).values[:, -1:]
    hinges = (X @ (weights * (seen <= third)) + torch.randn(B, 1, many, device=X.device)).relu()
    features = torch.cat([standard(hinges, 1), torch.ones(B, N, 1, device=X.device)], 2)
    half = N // 2
    first, second = features[:, :half], features[:, half:]
    gram = first.mT @ first + (0.02 * half + 1.0) * torch.eye(many + 1, device=X.device)
    factor = torch.linalg.cholesky_ex(gram).L
    learned = torch.cholesky_solve(first.mT @ y[:, :half, None], factor)
    error = (y[:, half:] - (second @ learned)[..., 0]).square().mean(1)
    return 1.0 - error / y[:, half:].var(1).clamp_min(1e-6)
