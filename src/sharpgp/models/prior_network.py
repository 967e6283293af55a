"""The network of :mod:`sharpgp.models.prior_fitted`: from cells of a table to laws of its targets.

Columns come first, each read through a few induced points, so that the cost is linear in the rows.
Then the cells of a row become one vector, and rows attend to the rows of the context.
"""

import math
from collections.abc import Callable
from dataclasses import asdict, dataclass

import torch
from torch import Tensor, nn
from torch.nn import functional as F

#: Keys and values of the context: of every block of columns, then of every block of rows.
Memory = list[tuple[Tensor, Tensor]]
#: A cell sees its column and those so many places further, in a circle.
NEIGHBOURS = (0, 1, 3)
# Numbers by which columns are told apart, and the seed that draws them.
_MARKS, _SEED = 32, 1
# Half-normal tails beyond the outermost bins, in deviations of the context's targets.
_TAIL = 2.5
# Cells computed at a time where nothing is learned, and sequences that CUDA attends to at a time.
_CELLS_AT_ONCE, _SEQUENCES_AT_ONCE = 2**16, 65_535


@dataclass(frozen=True)
class Shape:
    """Sizes of a network: bins; width, points and blocks of cells; width and blocks of rows."""

    n_bins: int = 640
    cell_width: int = 128
    points: int = 64
    column_blocks: int = 3
    across_blocks: int = 3
    classes: int = 4
    row_width: int = 256
    row_blocks: int = 6
    thinking: int = 32
    head_width: int = 32


@dataclass(frozen=True)
class Scales:
    """What the rows of a context say about units: ``X`` [B, n, d], NaN where missing, ``y`` [B, n].

    Examples
    --------
    >>> scales = Scales.from_context(torch.tensor([[[1.0], [3.0]]]), torch.tensor([[2.0, 6.0]]))
    >>> scales.cells(torch.tensor([[[2.0], [3.0]]]))[0, 0, 0].tolist()
    [0.0, 0.0, 0.0]
    >>> scales.z(torch.tensor([[2.0, 6.0]])).tolist()
    [[-1.0, 1.0]]
    """

    mean: Tensor
    scale: Tensor
    count: Tensor
    ordered: Tensor
    mean_y: Tensor
    scale_y: Tensor

    @classmethod
    def from_context(cls, X: Tensor, y: Tensor) -> "Scales":
        """The units of a context: rows ``X`` [B, n, d] and targets ``y`` [B, n]."""
        there = ~X.isnan()
        count = there.sum(1, keepdim=True).clamp_min(1)
        mean = torch.where(there, X, 0.0).sum(1, keepdim=True) / count
        square = torch.where(there, X - mean, 0.0).square().sum(1, keepdim=True) / count
        scale = _positive(square.sqrt(), mean)
        z = ((X - mean) / scale).clamp(-100.0, 100.0)
        ordered = torch.where(there, z, math.inf).transpose(1, 2).contiguous().sort(-1).values
        mean_y = y.mean(1, keepdim=True)
        scale_y = _positive((y - mean_y).square().mean(1, keepdim=True).sqrt(), mean_y)
        return cls(mean, scale, count, ordered, mean_y, scale_y)

    def cells(self, X: Tensor) -> Tensor:
        """Cells [B, N, d, 3] of rows [B, N, d]: z-score, rank from -1.7 to 1.7, 2 where missing.

        Z-scores are logarithmic from 3 on.
        """
        missing = X.isnan()
        z = torch.where(missing, 0.0, (X - self.mean) / self.scale).clamp(-100.0, 100.0)
        at = z.transpose(1, 2).contiguous()
        places = torch.searchsorted(self.ordered, at)
        places = places + torch.searchsorted(self.ordered, at, right=True)
        rank = places.transpose(1, 2).minimum(2 * self.count) / self.count - 1.0
        z = z.sign() * torch.where(z.abs() < 3.0, z.abs(), 3.0 + 3.0 * (z.abs() / 3.0).log())
        rank = torch.where(missing, 0.0, 1.7 * rank)
        return torch.stack([z, rank, 2.0 * missing], dim=-1).float()

    def z(self, y: Tensor) -> Tensor:
        """Z-scores of targets."""
        return ((y - self.mean_y) / self.scale_y).float()


def marks(d: int) -> Tensor:
    """By what ``d`` columns are told apart, [d, 32]."""
    return torch.randn(d, _MARKS, generator=torch.Generator().manual_seed(_SEED))


class PriorNetwork(nn.Module):
    """From rows with targets and rows without to logits over bins of these.

    1. A cell is what it and two further columns hold, and in the context the target.  Points read
       each column's context, and its cells read the points.
    2. The cells of a row and class tokens attend to each other; the classes become the row.
    3. Rows attend to the rows of the context, and to rows that the network has learned.

    Parameters
    ----------
    shape : Shape
    dtype : torch.dtype
        In which blocks compute.
    """

    borders: Tensor

    def __init__(self, shape: Shape, dtype: torch.dtype = torch.float32) -> None:
        super().__init__()
        self.shape, self.dtype = shape, dtype
        cell, row, head = shape.cell_width, shape.row_width, shape.head_width
        self.cell_in, self.cell_up = _Linear(3 * len(NEIGHBOURS), 64), _Linear(64, cell)
        self.target_in, self.target_up = _Linear(2, 64), _Linear(64, cell)
        self.unknown = nn.Parameter(0.5 * torch.randn(cell))
        self.columns = nn.ModuleList(
            _ColumnBlock(cell, head, shape.points) for _ in range(shape.column_blocks)
        )
        self.mark = _Linear(_MARKS, cell)
        self.classes = nn.Parameter(0.5 * torch.randn(shape.classes, cell))
        last = [k == shape.across_blocks - 1 for k in range(shape.across_blocks)]
        self.across = nn.ModuleList(
            _AcrossBlock(cell, head, shape.classes if ends else None) for ends in last
        )
        self.up, self.target_row = _Linear(shape.classes * cell, row), _Linear(64, row)
        self.thinking = nn.Parameter(0.5 * torch.randn(shape.thinking, row))
        last = [k == shape.row_blocks - 1 for k in range(shape.row_blocks)]
        self.rows = nn.ModuleList(_RowBlock(row, head, last=ends) for ends in last)
        self.head = _Linear(row, shape.n_bins)
        self.register_buffer("borders", torch.linspace(-4.0, 4.0, shape.n_bins + 1))

    @property
    def metadata(self) -> dict[str, str]:
        """The shape, as text beside weights in a file."""
        return {name: str(value) for name, value in asdict(self.shape).items()}

    def forward(
        self, cells: Tensor, y: Tensor, columns: Tensor, memory: Memory | None = None
    ) -> Tensor:
        """Logits [B, N - n, bins] of cells [B, N, d, 3], z-scores [B, n] and marks [B, d, 32].

        An empty ``memory`` is filled with the context, and takes its place where ``n`` is zero.
        """
        n, found = y.shape[1], Memory()
        grouped = torch.cat([cells.roll(-shift, 2) for shift in NEIGHBOURS], -1)
        known = torch.stack([y, y.sign() * y.abs().log1p()], -1).to(self.dtype)
        known = F.gelu(self.target_in(known))
        tokens = self._columns(grouped.to(self.dtype), known, memory, found)
        several = tokens.split(self._at_once(tokens.shape[1], tokens.shape[2]), 2)
        rows = torch.cat([self._across(part, columns.to(self.dtype)) for part in several], 1)
        thinking = self.thinking.to(rows.dtype).expand(len(rows), -1, -1)
        x, seen = rows, 0
        if not memory:
            x = torch.cat([thinking, rows[:, :n] + self.target_row(known), rows[:, n:]], 1)
            seen = self.shape.thinking + n
        for k, block in enumerate(self.rows, start=len(self.columns)):
            kept = memory[k] if memory else None
            many = seen if kept is None else kept[0].shape[2]
            x, keys = block(x, seen, _log(many, x), kept)
            found.append(keys)
        if memory is not None and not memory:
            memory += found
        logits: Tensor = self.head(_norm(x))
        return logits

    def _columns(
        self, cells: Tensor, known: Tensor, memory: Memory | None, found: Memory
    ) -> Tensor:
        """Tokens [B, d, N, width] that know their columns, some columns at a time."""
        (B, N, d, _), n = cells.shape, known.shape[1]
        target = self.target_up(known)
        unknown = self.unknown.to(target.dtype).expand(B, N - n, -1)
        target = torch.cat([target, unknown], 1)[:, None]
        log_n, log_points = _log(n, cells), _log(self.shape.points, cells)
        parts, keys = [], [Memory() for _ in self.columns]
        for some in torch.arange(d).split(self._at_once(N, d)):
            part = slice(int(some[0]), int(some[-1]) + 1)
            x = self._embedded(cells[:, :, part].transpose(1, 2), target)
            for k, block in enumerate(self.columns):
                kept = None
                if memory:
                    kept = tuple(one[:, part].flatten(0, 1) for one in memory[k])
                x, (key, value) = block(x, n, log_n, log_points, kept)
                keys[k].append((key.unflatten(0, (B, -1)), value.unflatten(0, (B, -1))))
            parts.append(x.unflatten(0, (B, -1)))
        joined = [zip(*several, strict=True) for several in keys]
        found += [tuple(torch.cat(one, 1) for one in pair) for pair in joined]  # type: ignore[misc]
        return torch.cat(parts, 1)

    def _embedded(self, cells: Tensor, target: Tensor) -> Tensor:
        """Tokens [B d, N, width] of cells [B, d, N, 9]."""
        return (self.cell_up(F.gelu(self.cell_in(cells))) + target).flatten(0, 1)

    def _across(self, tokens: Tensor, columns: Tensor) -> Tensor:
        """Rows [B, N, width] of their tokens [B, d, N, width] and marks of columns."""
        B, _, N, _ = tokens.shape
        x = tokens.transpose(1, 2) + self.mark(columns)[:, None]
        x = torch.cat([self.classes.to(x.dtype).expand(B, N, -1, -1), x], 2).flatten(0, 1)
        for block in self.across:
            x = block(x, _log(x.shape[1], x))
        rows: Tensor = self.up(_norm(x.reshape(B, N, self.up.in_features)))
        return rows

    def _at_once(self, per_one: int, most: int) -> int:
        """How many columns, or rows, at a time: all while gradients are wanted."""
        if torch.is_grad_enabled():
            return max(1, most)
        return min(max(1, _CELLS_AT_ONCE // max(1, per_one)), max(1, most))

    def log_density(self, logits: Tensor, y: Tensor) -> Tensor:
        """Log density of targets ``y``, as z-scores: even in bins, half-normal at both ends."""
        at = torch.searchsorted(self.borders[1:-1].contiguous(), y.contiguous())
        log_mass = logits.float().log_softmax(-1).gather(-1, at[..., None])[..., 0]
        low, high = self.borders[1], self.borders[-2]
        beyond = torch.where(at == 0, low - y, y - high).clamp_min(0.0) / _TAIL
        half_normal = 0.5 * math.log(2.0 / math.pi) - math.log(_TAIL) - 0.5 * beyond.square()
        at_ends = (at == 0) | (at == self.shape.n_bins - 1)
        return log_mass + torch.where(at_ends, half_normal, -self.borders.diff()[at].log())


class _Linear(nn.Linear):
    """In the type of its input; with an offset where it reads numbers of a table."""

    def __init__(self, fan_in: int, fan_out: int) -> None:
        super().__init__(fan_in, fan_out, bias=fan_in < 32)

    def forward(self, x: Tensor) -> Tensor:
        bias = None if self.bias is None else self.bias.to(x.dtype)
        return F.linear(x, self.weight.to(x.dtype), bias)


class _ColumnBlock(nn.Module):
    """Points read the context of a column, and its cells read the points."""

    def __init__(self, width: int, head_width: int, points: int) -> None:
        super().__init__()
        self.points = nn.Parameter(torch.randn(points, width))
        self.read, self.look = _Attention(width, head_width), _Attention(width, head_width)
        self.mlp = _Mlp(width)

    def forward(
        self,
        x: Tensor,
        n: int,
        log_n: Tensor,
        log_points: Tensor,
        keys: tuple[Tensor, Tensor] | None,
    ) -> tuple[Tensor, tuple[Tensor, Tensor]]:
        """Tokens ``x`` [S, N, width], of which the first ``n`` are the context, and the keys."""
        if keys is None:
            points = self.points.to(x.dtype).expand(len(x), -1, -1)
            points = self.read(points, self.read.keys(x[:, :n]), log_n)
            keys = self.look.keys(points)
        return self.mlp(self.look(x, keys, log_points)), keys


def attended(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    """Values of the keys that queries [S, heads, ., width] attend to, some sequences at a time."""
    if len(q) <= _SEQUENCES_AT_ONCE:
        return F.scaled_dot_product_attention(q, k, v)
    several = zip(*(part.split(_SEQUENCES_AT_ONCE) for part in (q, k, v)), strict=True)
    return torch.cat([F.scaled_dot_product_attention(*some) for some in several])


class _AcrossBlock(nn.Module):
    """Tokens of a row attend to each other; or only the first ``queries`` to all."""

    #: How; a training may have a quicker one for many short rows.
    attend: Callable[[Tensor, Tensor, Tensor], Tensor] = staticmethod(attended)

    def __init__(self, width: int, head_width: int, queries: int | None) -> None:
        super().__init__()
        self.queries = queries
        self.attention, self.mlp = _Attention(width, head_width), _Mlp(width)

    def forward(self, x: Tensor, log_tokens: Tensor) -> Tensor:
        keys = self.attention.keys(x)
        x = self.attention(x[:, : self.queries], keys, log_tokens, self.attend)
        found: Tensor = self.mlp(x)
        return found


class _RowBlock(nn.Module):
    """Rows attend to the first of them, the context; the last block computes the others only."""

    def __init__(self, width: int, head_width: int, *, last: bool) -> None:
        super().__init__()
        self.last = last
        self.attention, self.mlp = _Attention(width, head_width), _Mlp(width)

    def forward(
        self, x: Tensor, seen: int, log_seen: Tensor, keys: tuple[Tensor, Tensor] | None
    ) -> tuple[Tensor, tuple[Tensor, Tensor]]:
        """Rows ``x`` [B, N, width], of which the first ``seen`` are the context, and the keys."""
        if keys is None:
            keys = self.attention.keys(x[:, :seen])
            x = x[:, seen:] if self.last else x
        return self.mlp(self.attention(x, keys, log_seen)), keys


class _Attention(nn.Module):
    """Tokens [S, N, width], to which are added the values of the keys that they attend to.

    Queries are longer by the logarithm of how many keys there are, as far as a head has learned it.
    """

    def __init__(self, width: int, head_width: int) -> None:
        super().__init__()
        self.split = (width // head_width, head_width)
        self.q, self.kv = _Linear(width, width), _Linear(width, 2 * width)
        self.out = _Linear(width, width)
        self.sharpness = nn.Parameter(torch.ones(width // head_width))
        self.growth = nn.Parameter(torch.zeros(width // head_width))
        nn.init.zeros_(self.out.weight)

    def keys(self, x: Tensor) -> tuple[Tensor, Tensor]:
        """Keys and values [S, heads, K, width of a head] of tokens [S, K, width]."""
        k, v = self.kv(_norm(x)).unflatten(-1, (2, *self.split)).transpose(1, 3).unbind(2)
        return _norm(k), v

    def forward(
        self,
        x: Tensor,
        keys: tuple[Tensor, Tensor],
        log_keys: Tensor,
        attend: Callable[[Tensor, Tensor, Tensor], Tensor] = attended,
    ) -> Tensor:
        gain = (self.sharpness + self.growth * log_keys).to(x.dtype)
        q = self.q(_norm(x)).unflatten(-1, self.split).transpose(1, 2)
        seen = attend(_norm(q) * gain[:, None, None], *keys).transpose(1, 2)
        added: Tensor = x + self.out(seen.flatten(2))
        return added


class _Mlp(nn.Module):
    """A hidden layer of twice the width, added to the tokens."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.up, self.out = _Linear(width, 2 * width), _Linear(2 * width, width)
        nn.init.zeros_(self.out.weight)

    def forward(self, x: Tensor) -> Tensor:
        added: Tensor = x + self.out(F.gelu(self.up(_norm(x))))
        return added


def _norm(x: Tensor) -> Tensor:
    return F.rms_norm(x, (x.shape[-1],))


def _log(many: int, like: Tensor) -> Tensor:
    return torch.full((), math.log(max(1, many)), device=like.device)


def _positive(scale: Tensor, mean: Tensor) -> Tensor:
    """1 where a column is constant but for rounding."""
    return torch.where(scale > 1e-12 * (1.0 + mean.abs()), scale, 1.0)
